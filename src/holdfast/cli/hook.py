"""`holdfast hook`: answers a hook event of a host. It never fails, and never prints to the user.

The command only passes the event on to the server, which is started where none runs. What takes time is imported inside
of functions: a host waits for the answer before every prompt.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click

from holdfast.files import open_private
from holdfast.server.process import find, find_or_start, start

PROMPTS: Final = frozenset({"UserPromptSubmit", "BeforeAgent"})
"""The events before a prompt, which the user waits for."""
PROMPT_SECONDS: Final = 5.0
"""How long the user waits at most."""
OTHER_SECONDS: Final = 60.0


@click.command()
@click.option("--home", type=click.Path(path_type=Path), help="The folder of the memory; default $HOLDFAST_HOME.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, which is what hosts read in any case.")
def hook(*, home: Path | None, as_json: bool) -> None:  # noqa: ARG001 - every command has it
    """Answer a hook event of Claude Code, Codex, Qwen Code or Gemini CLI, from standard input."""
    from holdfast.settings import default_files, load  # noqa: PLC0415 - takes time
    from holdfast.store.opening import default_path, local_file  # noqa: PLC0415 - takes time

    folder = home or default_path()
    try:
        if home is None:
            folder = local_file(None, settings=load(files=default_files()).settings).parent
        payload = json.loads(sys.stdin.buffer.read() or b"{}")
        output = _answer(folder, payload if isinstance(payload, dict) else {})
    except Exception as error:  # the host goes on without memory  # noqa: BLE001
        _log(folder, error)
        output = {}
    if output:
        click.echo(json.dumps(output, ensure_ascii=False))


def _answer(folder: Path, payload: dict[str, Any]) -> Any:
    """Ask the server. Where none runs, one is started; a prompt is answered here, and a beginning needs no answer."""
    event = payload.get("hook_event_name")
    if server := find(folder):
        return server.call("hook", timeout=PROMPT_SECONDS if event in PROMPTS else OTHER_SECONDS, **payload)
    if event == "SessionStart" and payload.get("source") == "startup":
        start(folder)
        return {}
    if event not in PROMPTS:
        return find_or_start(folder).call("hook", timeout=OTHER_SECONDS, **payload)
    from holdfast.store.opening import STORE_NAME  # noqa: PLC0415 - takes time

    if not (folder / STORE_NAME).exists():  # there is nothing to recall
        start(folder)
        return {}
    from msgspec.structs import replace  # noqa: PLC0415 - takes time

    from holdfast.cli.opening import load_settings  # noqa: PLC0415 - takes time
    from holdfast.hooks.handlers import HostHooks  # noqa: PLC0415 - takes time
    from holdfast.memory.memory import Memory  # noqa: PLC0415 - takes time

    settings = load_settings()
    by_words = replace(settings, embedding=replace(settings.embedding, provider="none"))  # a model takes time to load
    with Memory.open(folder, settings=by_words) as memory:
        output = HostHooks(memory).handle(payload)
    start(folder)
    return output


def _log(folder: Path, error: Exception) -> None:
    line = f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {type(error).__name__}: {error}\n"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_private(folder / "hooks.log") as file:
            file.write(line.encode("utf-8", "replace"))
