"""`bash`: a command in the workspace, asked for first unless the user allowed it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from threading import Event
from typing import Annotated, Final

from msgspec import Meta

from holdfast.agent import shell
from holdfast.agent.tools.offer import Action, Answer, Arguments, Confirm, Offer, offer

__all__ = ["bash_tool"]

HEAD: Final = 8_000
TAIL: Final = 8_000
SECONDS: Final = 120
LONGEST: Final = 3_600


class Bash(Arguments, frozen=True):
    """The arguments of `bash`."""

    command: Annotated[str, Meta(description="The command, for bash.")]
    timeout: Annotated[float | None, Meta(description=f"Seconds until it is stopped; {SECONDS} unless given.")] = None


def bash_tool(folder: Path, *, confirm: Confirm) -> Offer:
    """Offer the shell in a folder. `confirm` is asked before each command."""
    return offer(
        "bash",
        "Run a command in the workspace and wait for its end: stdout and stderr together, and the exit status if it "
        "is not 0. Its processes end with it. Nothing can be typed into it.",
        Bash,
        partial(_bash, folder, confirm),
    )


def _bash(folder: Path, confirm: Confirm, asked: Bash, cancel: Event) -> Answer:
    if not asked.command.strip():
        return Answer(text="the command is empty: say what to run", is_error=True)
    if not confirm(Action(kind="run", text=asked.command)):
        return Answer(text="The user refused this command. Ask what to do instead.", is_error=True)
    seconds = min(max(asked.timeout or SECONDS, 1), LONGEST)
    ran = shell.run(asked.command, cwd=folder, seconds=seconds, cancel=cancel)
    notes = {
        "timeout": f"[stopped after {seconds:g} s: give a longer `timeout`, or do less at once]",
        "cancelled": "[called off by the user]",
        "exit": f"[exit status {ran.status}]" if ran.status else "",
    }
    shown = ran.output.removesuffix("\n") or "(no output)"
    failed = ran.ended != "exit" or ran.status != 0
    return Answer(text="\n".join(filter(None, (shown, notes[ran.ended]))), is_error=failed, head=HEAD, tail=TAIL)
