"""The agent of a chat: opened by the options of the command, interrupted by Ctrl-C, in a terminal or without.

This module is loaded before the first screen; slow modules are imported inside functions.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.settings import Loaded
    from holdfast_agent.agent import Agent
    from holdfast_agent.settings import ChatSettings
    from holdfast_agent.toolbox import Action, Confirm
    from holdfast_agent.view import ChatView, CommandResult, View

_HELP: Final = """\
No model is set. Any of these gets you going:
  export ANTHROPIC_API_KEY=...   (or OPENAI_API_KEY), then `holdfast chat`
  a local server: `holdfast chat --model ollama/NAME`, or `--model http://localhost:8080/v1#NAME` for llama.cpp
  no model at all: `holdfast demo` shows what it does; `holdfast chat --model echo --home try` prints each request"""
_KEYS: Final = {"ANTHROPIC_API_KEY": "anthropic/claude-sonnet-5-5", "OPENAI_API_KEY": "openai/gpt-6.1-sol"}


def handle_line(agent: Agent, view: ChatView, line: str) -> CommandResult | None:
    """Run a slash command or a turn, and show the result; None if it failed."""
    from holdfast.errors import HoldfastError  # noqa: PLC0415 - see the module docstring
    from holdfast_agent.commands import is_command, run  # noqa: PLC0415 - as above
    from holdfast_agent.view import CommandResult  # noqa: PLC0415 - as above

    try:
        if is_command(line, triggers=agent.settings.agent.session.reset_triggers):
            done = run(agent, line)
            view.show(done)
            return done
        turn = agent.say(line)
        view.end()
        if turn.interrupted:
            view.notice("Interrupted. The conversation so far is kept.")
        return CommandResult()
    except HoldfastError as error:
        view.end()
        view.notice(str(error))
        return None
    finally:
        view.end()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command line."""

    model: str | None = None
    session: str = "main"
    agent: str = "main"
    project: str | None = None
    workspace: Path | None = None
    home: Path | None = None
    context_tokens: int | None = None
    yes: bool = False
    init: bool = False

    def choose_model(self, settings: ChatSettings) -> str:
        """Return the model that the options, the settings or an API key in the environment name."""
        name = self.model or settings.model.name
        if name:
            return name
        for variable, default_model in _KEYS.items():
            if os.environ.get(variable):
                return default_model
        from holdfast.errors import InputError  # noqa: PLC0415 - see the module docstring

        raise InputError(_HELP)

    def choose_settings(self, loaded: Loaded[ChatSettings]) -> ChatSettings:
        """Return the settings; without an option or a setting for it, the working directory gets no workspace files."""
        from msgspec.structs import replace  # noqa: PLC0415 - see the module docstring

        settings = loaded.settings
        agent = settings.agent
        is_set = loaded.origins["agent.workspace.skip_bootstrap"] != "default"
        if self.workspace or self.init or agent.workspace.path or is_set:
            return settings
        workspace = replace(agent.workspace, skip_bootstrap=True)
        return replace(settings, agent=replace(agent, workspace=workspace))


def open_agent(options: Options, *, view: View, confirm: Confirm | None = None) -> Agent:
    """Open the agent of the options, with the conversation that it continues.

    Without `confirm` the user cannot be asked: `--yes` then allows everything that is not guarded.
    """
    import time  # noqa: PLC0415 - see the module docstring
    import uuid  # noqa: PLC0415

    from holdfast.models import open_model  # noqa: PLC0415
    from holdfast.settings import default_files  # noqa: PLC0415
    from holdfast_agent.agent import Agent, Records, open_engine  # noqa: PLC0415
    from holdfast_agent.hooks import load_hooks  # noqa: PLC0415
    from holdfast_agent.notes import Notes  # noqa: PLC0415
    from holdfast_agent.sessions import Sessions, session_key  # noqa: PLC0415
    from holdfast_agent.settings import load  # noqa: PLC0415

    model_options = {"context_tokens": options.context_tokens} if options.context_tokens else {}
    loaded = load(files=default_files(), agent_id=options.agent, model=model_options)
    for text in (*loaded.warnings, *loaded.without_effect):
        view.notice(text)
    settings = options.choose_settings(loaded)
    model = open_model(options.choose_model(settings), settings=settings)
    flush_model = None
    if settings.compaction.memory_flush.model:
        flush_model = open_model(settings.compaction.memory_flush.model, settings=settings)
    if confirm is None and options.yes:
        confirm = _allow_unguarded
    root = (options.workspace or Path(settings.agent.workspace.path or ".")).expanduser().resolve()
    key = session_key(options.agent, options.session)
    records = Records()
    engine = open_engine(
        options.home,
        settings=settings,
        model=model,
        root=root,
        key=key,
        records=records,
        hooks=load_hooks(settings.agent.hooks, root=root),
    )
    sessions = Sessions(
        home=engine._memory.home,
        clock=lambda: time.time_ns() // 1_000_000,
        new_id=lambda: str(uuid.uuid4()),
        agent=options.agent,
    )
    notes = Notes(root, settings, sessions.notes_file, sessions=sessions.folder)
    return Agent(
        engine,
        model,
        settings=settings,
        sessions=sessions,
        key=key,
        root=root,
        notes=notes,
        project=options.project,
        confirm=confirm,
        view=view,
        flush_model=flush_model,
        records=records,
    )


def _allow_unguarded(action: Action) -> bool:
    return not action.guarded


@contextmanager
def interruptible(agent: Agent) -> Iterator[None]:
    """Let Ctrl-C cancel what the agent does; the conversation stays valid. Pressed again it is a KeyboardInterrupt."""
    agent.cancel.clear()
    was_pressed = False
    is_leaving = False

    def interrupt(*_: object) -> None:
        nonlocal was_pressed, is_leaving
        if was_pressed or agent.cancel.is_set():
            is_leaving = True
            raise KeyboardInterrupt
        was_pressed = True
        agent.cancel.set()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if is_leaving:  # a tool may have handled it
        raise KeyboardInterrupt


@contextmanager
def terminal_without(*flags: str) -> Iterator[None]:
    """Turn some local modes of the terminal off, and the others on.

    Without `ECHO` and `ICANON`, what is typed is kept for the next prompt and not shown; without `ISIG`, so is Ctrl-C.
    With `NOFLSH`, Ctrl-C does not drop what was typed before it.
    """
    try:
        import termios  # noqa: PLC0415 - not every system has it
    except ImportError:
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    changed = termios.tcgetattr(sys.stdin)
    for flag in ("ECHO", "ICANON", "ISIG", "NOFLSH"):
        changed[3] |= getattr(termios, flag)
    for flag in flags:
        changed[3] &= ~getattr(termios, flag)
    termios.tcsetattr(sys.stdin, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
