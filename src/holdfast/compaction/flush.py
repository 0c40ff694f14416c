"""The silent turn before a compaction, in which the agent writes down what must last.

Pure: when it is due, what is said in it, and which words of its answer a user may see.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from holdfast.context.budget import Budget
from holdfast.prompts import load
from holdfast.settings import Settings

__all__ = ["NO_REPLY", "Cycle", "FlushPrompt", "Held", "due", "is_silent", "prompt", "spoken"]

NO_REPLY: Final = "NO_REPLY"
"""What a model says when it has nothing to say."""

Verdict: TypeAlias = Literal["due", "early", "done", "off", "read-only", "heartbeat", "failed"]
_SILENT: Final = re.compile(r"\W*(?:NO_REPLY\W*)+", re.IGNORECASE)
_TRAILING: Final = re.compile(r"(?:[\s*_`\"'(\[]*\bNO_REPLY\b\W*)+\Z")
_DATE: Final = "YYYY-MM-DD"
_LAST_RESORT: Final = "If no user-visible reply is needed, start with NO_REPLY."


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """Where a session stands between two compactions.

    Attributes:
        compactions: How many there were.
        flushed_at: How many there had been when the last flush began, or was given up; None where there was none.
        failures: Failed flushes in a row since.
    """

    compactions: int = 0
    flushed_at: int | None = None
    failures: int = 0


@dataclass(frozen=True, slots=True)
class FlushPrompt:
    """What is said in the silent turn: the user's words, what is added to the system prompt, and the one file."""

    user: str
    system: str
    path: str


def due(
    cycle: Cycle,
    *,
    used: int,
    coming: int,
    budget: Budget,
    settings: Settings,
    transcript_bytes: int = 0,
    heartbeat: bool = False,
    forced: bool = False,
) -> Verdict:
    """Tell whether the silent turn should run now, or why not.

    Args:
        cycle: Where the session stands.
        used: What the last request took, its answer included.
        coming: What the new prompt will add.
        budget: The limits of the window.
        settings: `compaction.memory_flush` and the access to the workspace.
        transcript_bytes: How long the session's file is.
        heartbeat: Nobody asked anything; such a turn never flushes.
        forced: A compaction is about to happen whatever the figures say: by hand, or after an overflow.
    """
    flush = settings.compaction.memory_flush
    if not flush.enabled:
        return "off"
    if settings.workspace.access != "rw":
        return "read-only"
    if heartbeat:
        return "heartbeat"
    if cycle.flushed_at == cycle.compactions:
        return "failed" if cycle.failures >= flush.max_failures else "done"
    full = budget.flush_at > 0 and used + coming >= budget.flush_at
    long = 0 < flush.force_flush_transcript_bytes <= transcript_bytes
    return "due" if forced or full or long else "early"


def prompt(settings: Settings, *, now: datetime) -> FlushPrompt:
    """What is said in the silent turn. Its rules hold for prompts of the user's own as well."""
    flush = settings.compaction.memory_flush
    day = now.strftime("%Y-%m-%d")
    path = f"memory/{day}.md"
    user = _quiet((flush.prompt or load("flush")).replace(_DATE, day))
    if "Current time:" not in user:
        user += f"\n\nCurrent time: {now:%Y-%m-%d %H:%M} ({now.tzname() or 'local time'})"
    system = _quiet((flush.system_prompt or load("flush_system")).replace(_DATE, day))
    return FlushPrompt(user=f"{user}\n\n{load('flush_rules', path=path)}", system=system, path=path)


def _quiet(text: str) -> str:
    return text if NO_REPLY in text else f"{text}\n\n{_LAST_RESORT}"


# --- silence -----------------------------------------------------------------


def is_silent(text: str) -> bool:
    """Tell whether a text says nothing but that there is nothing to say."""
    words = text.strip()
    return bool(_SILENT.fullmatch(words)) or _silent_json(words)


def _silent_json(text: str) -> bool:
    if not text.startswith(("{", '"')):
        return False
    try:
        value: Any = json.loads(text)
    except ValueError:
        return False
    said = value.get("action") if isinstance(value, dict) else value
    return isinstance(said, str) and said.strip().upper() == NO_REPLY


def spoken(text: str) -> str:
    """What of a text a user may see: nothing of a silent one, and no mark at the end of another."""
    return "" if is_silent(text) else _TRAILING.sub("", text)


@dataclass(slots=True)
class Held:
    """A stream of text, held back while it may still turn out to be silence."""

    _waiting: str = ""
    _open: bool = False

    def feed(self, piece: str) -> str:
        """What may be shown now."""
        if self._open:
            return piece
        self._waiting += piece
        if _may_be_silent(self._waiting):
            return ""
        self._open, shown, self._waiting = True, self._waiting, ""
        return shown

    def end(self) -> str:
        """What was held back and is to be shown after all, now that nothing follows."""
        shown = "" if is_silent(self._waiting) else self._waiting
        self._waiting = ""
        return shown


def _may_be_silent(text: str) -> bool:
    """Tell whether silence may come of a text that goes on."""
    words = text.strip().strip("*`\"'{[(").upper()
    return NO_REPLY.startswith(words[: len(NO_REPLY)]) and bool(_SILENT.fullmatch(words) or len(words) <= len(NO_REPLY))
