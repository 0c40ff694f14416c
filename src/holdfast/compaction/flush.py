"""The memory flush: a silent turn before a compaction, in which the agent writes down what must be kept.

Pure functions: whether it is due, its prompt, and which parts of the reply a user may see.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from holdfast.context.budget import Budget
from holdfast.prompts import load
from holdfast.settings import MemoryFlush

NO_REPLY: Final = "NO_REPLY"
"""The reply of a model that has nothing to say."""

Verdict: TypeAlias = Literal["due", "early", "done", "off", "read-only", "heartbeat", "failed"]
HEARTBEAT_OK: Final = "HEARTBEAT_OK"
"""The reply to a heartbeat when there is nothing to do."""
_MARK: Final = f"(?:{NO_REPLY}|{HEARTBEAT_OK})"
_OPENING: Final = r"[\s*_`\"'(\[]*"
_ALONE: Final = r"(?<![A-Za-z0-9_])"
_SILENT: Final = re.compile(rf"\W*(?:{_MARK}\W*)+", re.IGNORECASE)
TRAILING: Final = re.compile(rf"(?:{_OPENING}{_ALONE}{_MARK}(?![A-Za-z0-9_])\W*)+\Z")
"""Silence marks at the end of a text."""
LEADING: Final = re.compile(rf"\A(?:\s*(?:\*\*)?{_MARK}(?![A-Za-z0-9_])(?:\*\*)?[\s.:;,!–—-]*)+")
"""Silence marks before a text. A quoted mark is part of the text."""
_FENCED: Final = re.compile(r"\A```(?:json)?\s*(.*?)\s*```\Z", re.DOTALL)


def _beginnings(word: str) -> str:
    return "|".join(re.escape(word[:length]) for length in range(len(word), 0, -1))


MAY_END: Final = re.compile(
    rf"(?:{_OPENING}{_ALONE}{_MARK}\W*)*(?:{_OPENING}(?:{_ALONE}(?:{_beginnings(NO_REPLY)}|{_beginnings(HEARTBEAT_OK)}))?)?\Z",
    re.IGNORECASE,
)
"""The end of a text that may become a mark when more text follows."""
_DATE: Final = "YYYY-MM-DD"
_LAST_RESORT: Final = "If no user-visible reply is needed, start with NO_REPLY."


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """The state of a session between two compactions.

    Attributes:
        compactions: The number of compactions so far.
        flushed_at: That number when the last flush began or was given up; None before the first.
        failures: How many times the flush has failed since then.
        left: Tokens that were cut from windows since then. They count, because a compaction would have removed them.
    """

    compactions: int = 0
    flushed_at: int | None = None
    failures: int = 0
    left: int = 0


@dataclass(frozen=True, slots=True)
class FlushPrompt:
    """The prompt of the silent turn: the user message, an addition to the system prompt, and the file to write."""

    user: str
    system: str
    path: str


def due(
    cycle: Cycle,
    *,
    used: int,
    coming: int,
    budget: Budget,
    settings: MemoryFlush,
    can_write: bool,
    transcript_bytes: int = 0,
    heartbeat: bool = False,
    forced: bool = False,
) -> Verdict:
    """Return whether the silent turn should run now, or why not.

    `used` are the tokens of the last request and its answer, `coming` those that the new prompt adds. `can_write` says
    whether the agent can write notes. If `forced`, a compaction follows in any case: on request, or after an overflow.
    """
    if not settings.enabled:
        return "off"
    if not can_write:
        return "read-only"
    if heartbeat:
        return "heartbeat"
    has_lost_much = 0 < budget.flush_at <= cycle.left  # as much as a window holds
    if cycle.flushed_at == cycle.compactions and not has_lost_much:  # one flush for each compaction
        if cycle.failures >= settings.max_failures:
            return "failed"
        return "done"
    is_full = budget.flush_at > 0 and used + coming + cycle.left >= budget.flush_at
    is_long = 0 < settings.force_flush_transcript_bytes <= transcript_bytes
    if forced or is_full or is_long:
        return "due"
    return "early"


def prompt(settings: MemoryFlush, *, now: datetime) -> FlushPrompt:
    """Make the prompt of the silent turn. Custom prompts get the rules too."""
    day = now.strftime("%Y-%m-%d")
    path = f"memory/{day}.md"
    user = _allow_silence((settings.prompt or load("flush")).replace(_DATE, day))
    if "Current time:" not in user:
        user += f"\n\nCurrent time: {now:%Y-%m-%d %H:%M} ({now.tzname() or 'local time'})"
    system = _allow_silence((settings.system_prompt or load("flush_system")).replace(_DATE, day))
    return FlushPrompt(user=f"{user}\n\n{load('flush_rules', path=path)}", system=system, path=path)


def _allow_silence(text: str) -> str:
    """Add to a prompt that the model may stay silent, unless the prompt says so."""
    if NO_REPLY in text:
        return text
    return f"{text}\n\n{_LAST_RESORT}"


def is_silent(text: str) -> bool:
    """Return whether a text is only a silence mark, alone or inside JSON."""
    if _SILENT.fullmatch(text.strip()):
        return True
    try:
        value: Any = json.loads(_FENCED.sub(r"\1", text.strip()))
    except ValueError:
        return False
    if isinstance(value, dict) and "action" in value:
        value = value["action"]
    elif isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return isinstance(value, str) and _SILENT.fullmatch(value.strip()) is not None


def strip_silence(text: str) -> str:
    """Return a text without the silence marks around it; empty if there is nothing else."""
    if is_silent(text):
        return ""
    return TRAILING.sub("", LEADING.sub("", text))
