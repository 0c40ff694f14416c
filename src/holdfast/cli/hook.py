"""`holdfast hook`: answers a hook event of a host. It never fails, and never prints to the user.

The command only passes the event on to the server, which is started if none runs. Slow modules are imported inside
functions: a host waits for the answer before every prompt.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.files import open_private
from holdfast.server.process import find, find_or_start, start

if TYPE_CHECKING:
    from holdfast.cli.shared import SharedMemory

PROMPTS: Final = frozenset({"UserPromptSubmit", "BeforeAgent"})
"""The events before a prompt, which the user waits for."""
PROMPT_SECONDS: Final = 5.0
"""Maximum time that the user waits."""
OTHER_SECONDS: Final = 60.0


@click.command()
@click.option("--home", type=click.Path(path_type=Path), help="The folder of the memory; default $HOLDFAST_HOME.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, which is what hosts read in any case.")
def hook(*, home: Path | None, as_json: bool) -> None:  # noqa: ARG001 - every command has it
    """Answer a hook event of Claude Code, Codex, Qwen Code or Gemini CLI, from standard input."""
    from holdfast.cli.shared import find_memory  # noqa: PLC0415 - takes time
    from holdfast.settings import folder_of  # noqa: PLC0415 - takes time
    from holdfast.store.opening import default_path  # noqa: PLC0415 - takes time

    folder = home or default_path()
    try:
        payload = json.loads(sys.stdin.buffer.read() or b"{}")
        event = payload if isinstance(payload, dict) else {}
        memory = find_memory(home, project=folder_of(str(event.get("cwd") or Path.cwd())))
        folder = memory.folder
        output = _answer(memory, event)
    except Exception as error:  # the host continues without memory  # noqa: BLE001
        _log(folder, error)
        output = {}
    if output:
        click.echo(json.dumps(output, ensure_ascii=False))


def _answer(memory: SharedMemory, payload: dict[str, Any]) -> Any:
    """Ask the server. If none runs, one is started; a prompt is answered here, and a beginning needs no answer."""
    folder = memory.folder
    event = payload.get("hook_event_name")
    if server := find(folder):
        return server.call("hook", timeout=PROMPT_SECONDS if event in PROMPTS else OTHER_SECONDS, **payload)
    options = _serve_options(memory)
    if event == "SessionStart" and payload.get("source") == "startup":
        start(folder, options=options)
        return {}
    if event not in PROMPTS:
        return find_or_start(folder, options=options).call("hook", timeout=OTHER_SECONDS, **payload)
    if not _is_address(memory.store) and not Path(memory.store).exists():  # there is nothing to recall
        start(folder, options=options)
        return {}
    from msgspec.structs import replace  # noqa: PLC0415 - takes time

    from holdfast.hooks.handlers import HostHooks  # noqa: PLC0415 - takes time
    from holdfast.memory.memory import Memory  # noqa: PLC0415 - takes time
    from holdfast.settings import folder_of  # noqa: PLC0415 - takes time

    settings = memory.projects.load(folder_of(str(payload.get("cwd") or ""))).settings
    by_words = replace(settings, embedding=replace(settings.embedding, provider="none"))  # a model takes time to load
    with Memory.open(memory.store, settings=by_words, is_personal=True) as opened:
        output = HostHooks(opened).handle(payload)
    start(folder, options=options)
    return output


def _is_address(store: str) -> bool:
    return "://" in store


def _serve_options(memory: SharedMemory) -> tuple[str, ...]:
    """Return the options of `holdfast serve` for a memory. An address is not among them: it may contain a password."""
    if memory.owner is not None:
        return ("--project", str(memory.owner))
    return () if _is_address(memory.store) else ("--home", memory.store)


def _log(folder: Path, error: Exception) -> None:
    line = f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {type(error).__name__}: {error}\n"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_private(folder / "hooks.log") as file:
            file.write(line.encode("utf-8", "replace"))
