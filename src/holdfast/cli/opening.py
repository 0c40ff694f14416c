"""Open a memory for a command, and turn its options into scopes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from holdfast import settings as configuration
from holdfast.cli.output import echo
from holdfast.errors import InputError, MissingExtraError
from holdfast.store.base import Across, Scope, Select
from holdfast.store.opening import STORE_NAME, local_file, open_server, server_address, store_file

if TYPE_CHECKING:
    from holdfast.memory.memory import Memory
    from holdfast.models.base import Model
    from holdfast.store.postgres import PostgresStore

_PARTS: Final[tuple[Literal["project", "agent", "session"], ...]] = ("project", "agent", "session")


def open_memory(home: Path | None, *, create: bool = False) -> Memory:
    """Open the memory of this machine, or create it. When the command ends, damaged rows are listed on stderr."""
    settings = load_settings()
    missing = missing_memory(home, settings=settings)
    if missing is not None and not create:
        raise InputError(_explain_missing(missing))
    return _open(home, settings=settings)


def read_memory(home: Path | None) -> Memory:
    """Open the memory of this machine for a command that only reads.

    If there is none yet, a note is printed to stderr, and the command reads an empty memory in a temporary folder.
    """
    settings = load_settings()
    missing = missing_memory(home, settings=settings)
    if missing is None:
        return _open(home, settings=settings)
    print_warnings([_explain_missing(missing)])
    folder = TemporaryDirectory(prefix="holdfast-")
    click.get_current_context().call_on_close(folder.cleanup)
    return _open(Path(folder.name), settings=settings)


def missing_memory(home: Path | None, *, settings: configuration.Settings) -> Path | None:
    """Return the file of the memory of this machine if it does not exist yet."""
    if server_address(home, settings=settings) is not None:
        return None
    file = store_file(home, settings=settings)
    return None if file.exists() else file


def _explain_missing(file: Path) -> str:
    return f"no memory at {file} yet: `holdfast import --discover` or `holdfast remember` creates one"


def _open(home: Path | None, *, settings: configuration.Settings) -> Memory:
    from holdfast.memory.memory import Memory  # noqa: PLC0415 - a hook that asks the server does not need it

    memory = Memory.open(home, settings=settings)
    if memory.store.progress:
        _show_indexing(memory)

    def print_gaps() -> None:
        for gap in memory.store.gaps:
            echo(f"warning: {gap}", err=True)

    click.get_current_context().call_on_close(print_gaps)
    return memory


def _show_indexing(memory: Memory) -> None:
    """Draw a bar on stderr while a command waits for all segments of a memory-context folder to be indexed."""
    from holdfast.cli.console import Progress  # noqa: PLC0415 - few commands draw one
    from holdfast.store.folder import FolderStore  # noqa: PLC0415 - most memories are one SQLite file

    bar: Progress | None = None
    shown = 0

    def show(done: int, total: int) -> None:
        nonlocal bar, shown
        if bar is None:
            bar = Progress(total).__enter__()
        bar.advance(done - shown, f"{done:,} of {total:,} segments indexed")
        shown = done
        if done == total:
            bar.__exit__()

    if isinstance(memory.store, FolderStore):
        memory.store.on_progress = show


def open_model(name: str | None, settings: configuration.Settings) -> Model | None:
    """Open the model of a name; None without one."""
    from holdfast import models  # noqa: PLC0415 - most commands use none

    return models.open_model(name, settings=settings) if name else None


def store_of(home: Path | None) -> Path:
    """Return the file of this machine's memory. If the memory is on a server, its local files are next to that path."""
    return local_file(home, settings=load_settings())


def server_of(home: Path | str | None) -> PostgresStore | None:
    """Open the store on a server that is named here or in the settings, without a limit of time; None for files."""
    settings = load_settings()
    address = server_address(home, settings=settings)
    return None if address is None else open_server(address, settings, timeout=0)


def load_settings() -> configuration.Settings:
    """Load the settings from the default files. Warnings go to stderr."""
    loaded = configuration.load(files=configuration.default_files())
    print_warnings(loaded.warnings)
    return loaded.settings


def print_warnings(texts: Iterable[str]) -> None:
    """Print warnings to stderr, each once in a command: some commands load the settings several times."""
    printed: set[str] = click.get_current_context().meta.setdefault("holdfast.warnings", set())
    for text in texts:
        if text not in printed:
            printed.add(text)
            echo(f"warning: {text}", err=True)


def scope_of(*, tenant: str, project: str | None, agent: str | None, session: str | None) -> tuple[Scope, Across]:
    """Return the scope that the options name, and the parts that no option names: a read covers all of their values."""
    # An empty name is a name: only an option that was left out has a default.
    scope = Scope(tenant=tenant, project=project or "", agent="main" if agent is None else agent, session=session or "")
    named = {"project": project, "agent": agent, "session": session}
    return scope, tuple(name for name in _PARTS if named[name] is None)


def owner_of(scope: Scope) -> dict[str, str]:
    """Return the owner of a row for `--json`."""
    return {"tenant": scope.tenant, "session": scope.session, "project": scope.project, "agent": scope.agent}


def session_scope(memory: Memory, *, session: str, **whose: Any) -> Scope:
    """Return the scope of the stored session that the options name; several of that name are an InputError."""
    scope, across = scope_of(session=session, **whose)
    required = scope.required(across)
    matches = [one for one in memory.store.sessions() if one.required(across) == required]
    if len(matches) > 1:
        places = ", ".join(f"--project {one.project!r} --agent {one.agent}" for one in matches)
        raise InputError(f"{len(matches)} sessions are called {session}: name one of {places}")
    return matches[0] if matches else scope


def owners(memory: Memory, **whose: Any) -> list[Scope]:
    """Return the scope of each project and agent that the options cover, without a session, newest first."""
    scope, across = scope_of(**whose | {"session": None})
    facts = memory.store.read_facts(Select(scope=scope, across=across))
    stored = [one for one in memory.store.sessions() if one.required(across) == scope.required(across)]
    return list(dict.fromkeys(replace(one, session="") for one in (*stored, *(fact.scope for fact in facts))))


def no_session(scope: Scope) -> InputError:
    """Make the error for a session that is not stored."""
    return InputError(
        f"no session of tenant {scope.tenant} is called {scope.session}: `holdfast sessions` lists those of all tenants"
    )


def no_requests(memory: Memory, scope: Scope) -> InputError:
    """Make the error for a session without requests: it does not exist, or its messages came another way."""
    if scope not in memory.store.sessions():
        return no_session(scope)
    return InputError(
        f"no request of session {scope.session} is stored: its messages were imported, or archived without a window. "
        f"Name its transcript instead of --session; `holdfast get --session {scope.session}` prints the messages"
    )


def no_transcript(paths: Iterable[Path | str]) -> InputError:
    """Make the error for paths without a transcript."""
    from holdfast.store.connection import is_store_file  # noqa: PLC0415 - only for this

    paths = list(paths)
    for path in paths:
        place = Path(path)
        if is_store_file(place / STORE_NAME if place.is_dir() else place):
            return InputError(
                f"{path}: a memory, not a transcript: use it with --home {path}, or copy it to a new one with `holdfast"
                f" migrate {path} TARGET`"
            )
    return InputError(
        f"{', '.join(map(str, paths))}: no transcript of a known agent; `--format NAME` names the format of a file,"
        " and `holdfast sessions --discover` lists your sessions"
    )


def require(feature: str, *modules: str, extra: str) -> None:
    """Refuse a command whose extra is not installed."""
    if any(find_spec(module) is None for module in modules):
        raise MissingExtraError(feature, extra=extra)


EXTRAS: Final = {
    "anthropic": "anthropic",
    "chat": "prompt_toolkit",
    "encrypted": "sqlcipher3",
    "local": "wordllama",
    "mcp": "mcp",
    "onnx": "onnxruntime",
    "openai": "openai",
    "otel": "opentelemetry",
    "postgres": "psycopg_pool",
    "remote": "httpx2",
    "server": "uvicorn",
    "tiktoken": "tiktoken",
    "tokenizers": "tokenizers",
}
"""The extras that commands and settings need, and the module by which each is recognised as installed."""


def has_extra(extra: str) -> bool:
    """Return whether an extra is installed."""
    return find_spec(EXTRAS[extra]) is not None
