"""The agent behind `holdfast chat`: opened as the command line says, broken off by Ctrl-C, and let go of."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:  # what takes time to load is loaded while the user types
    from holdfast.agent.loop import Agent
    from holdfast.agent.tools import Action, Confirm
    from holdfast.agent.view import View
    from holdfast.settings import Loaded, Settings

__all__ = ["Options", "close", "interruptible", "open_agent"]

_HELP: Final = """\
No model is set. Any of these gets you going:
  export ANTHROPIC_API_KEY=...   (or OPENAI_API_KEY), then `holdfast chat`
  a local server: `holdfast chat --model ollama/NAME`, or `--model http://localhost:8080/v1#NAME` for llama.cpp
  no model at all: `holdfast demo` shows what it does; `holdfast chat --model echo` shows what would be sent"""
_KEYS: Final = {"ANTHROPIC_API_KEY": "anthropic/claude-sonnet-5-5", "OPENAI_API_KEY": "openai/gpt-6.1-sol"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says."""

    model: str | None = None
    session: str = "main"
    agent: str = "main"
    workspace: Path | None = None
    home: Path | None = None
    context_tokens: int | None = None
    yes: bool = False
    init: bool = False


def model_name(options: Options, configured: str | None) -> str:
    """The model that the options, the settings or the keys in the environment name.

    Raises:
        ClickException: There is none; the message says how to get one.
    """
    found = options.model or configured or next((name for key, name in _KEYS.items() if os.environ.get(key)), None)
    if found is None:
        raise click.ClickException(_HELP)
    return found


def open_agent(options: Options, *, view: View, confirm: Confirm | None = None) -> Agent:
    """Open the agent that the options ask for, on the conversation that it goes on with.

    Without `confirm` nobody can be asked: `--yes` allows everything but what is always asked for.
    """
    if confirm is None and options.yes:
        confirm = _allow_unguarded
    import time  # noqa: PLC0415 - loaded beside the first screen
    import uuid  # noqa: PLC0415 - as above

    from holdfast.agent.hooks import load_hooks  # noqa: PLC0415 - as above
    from holdfast.agent.loop import Agent  # noqa: PLC0415 - as above
    from holdfast.agent.notes import Notes  # noqa: PLC0415 - as above
    from holdfast.agent.sessions import Sessions, session_key  # noqa: PLC0415 - as above
    from holdfast.cli.opening import load  # noqa: PLC0415 - as above
    from holdfast.engine import Engine  # noqa: PLC0415 - as above
    from holdfast.models import open_model  # noqa: PLC0415 - as above

    loaded = load(warn=view.notice, agent_id=options.agent, **_overrides(options))
    for text in loaded.without_effect:
        view.notice(text)
    known = _settings(options, loaded)
    model = open_model(model_name(options, known.agent.model), settings=known)
    flush_model = known.compaction.memory_flush.model
    scribe = open_model(flush_model, settings=known) if flush_model else None
    root = (options.workspace or Path(known.workspace.path or ".")).expanduser().resolve()
    engine = Engine.open(options.home, settings=known, hooks=load_hooks(known.hooks, root=root))
    sessions = Sessions(
        home=engine.memory.home,
        clock=lambda: time.time_ns() // 1_000_000,
        new_id=lambda: str(uuid.uuid4()),
        agent=options.agent,
    )
    notes = Notes(root, known, sessions.notes_file, sessions=sessions.folder)
    agent = Agent.open(
        engine,
        model,
        sessions=sessions,
        key=session_key(options.agent, options.session),
        root=root,
        notes=notes,
        confirm=confirm,
        view=view,
    )
    agent.scribe = scribe
    return agent


def _allow_unguarded(action: Action) -> bool:
    return not action.guarded


def _overrides(options: Options) -> dict[str, Any]:
    """What the command line says about settings."""
    return {"agent": {"context_tokens": options.context_tokens}} if options.context_tokens else {}


def _settings(options: Options, loaded: Loaded) -> Settings:
    """Return the settings. A working directory that nobody named gets no files that nobody asked for."""
    import msgspec  # noqa: PLC0415 - loaded beside the first screen

    known = loaded.settings
    asked = loaded.origins["workspace.skip_bootstrap"] != "default"
    if options.workspace or options.init or known.workspace.path or asked:
        return known
    return msgspec.structs.replace(known, workspace=msgspec.structs.replace(known.workspace, skip_bootstrap=True))


@contextmanager
def interruptible(agent: Agent) -> Iterator[None]:
    """Ctrl-C breaks off what the agent does; the conversation stays whole. A second one leaves.

    Raises:
        KeyboardInterrupt: There was a second one.
    """
    agent.cancel.clear()
    heard = leaving = False

    def interrupt(*_: object) -> None:
        nonlocal heard, leaving
        if heard or agent.cancel.is_set():
            leaving = True
            raise KeyboardInterrupt
        heard = True
        agent.cancel.set()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if leaving:  # a tool took it for the first
        raise KeyboardInterrupt


def close(agent: Agent) -> None:
    """Let go of everything."""
    agent.close()
