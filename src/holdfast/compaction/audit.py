"""Check a summary before it replaces history, and add what is missing by rule.

It must have all headings, the last request, recent identifiers word for word, failures and changed files, and be in the
language of the conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.compaction.dialogue import one_line, own_words
from holdfast.compaction.digest import IDENTIFIERS, outline
from holdfast.compaction.plan import CompactionPlan
from holdfast.compaction.sections import HEADINGS, Section, parse
from holdfast.compaction.wording import Language, detect_language, find_identifiers
from holdfast.context.edits import Item
from holdfast.settings import Compaction
from holdfast.text import terms

__all__ = ["Checklist", "audit", "find_requirements", "repair"]

_RECENT: Final = 10
_MAX_NAMES: Final = 12
_MAX_LISTED: Final = 8
_MAX_REQUEST: Final = 400
_MIN_SHARE: Final = 0.5
_NONE: Final = "(none)"
_BODY_WEIGHT: Final = 30
"""The weight of a model's own words where not all sections fit."""
_NAMES_WEIGHT: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Checklist:
    """What a summary must contain, or what it lacks of it.

    Attributes:
        headings: Headings, each on a line of its own.
        request: The user's last request, by most of its words.
        names: Identifiers, exactly.
        failures: Commands that failed.
        files: Files that were changed.
        language: The language of the summary; None for any.
    """

    headings: tuple[str, ...] = ()
    request: str = ""
    names: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    language: Language | None = None

    def __bool__(self) -> bool:
        return self.total > 0

    @property
    def total(self) -> int:
        """The number of things on the list."""
        listed = len(self.headings) + len(self.names) + len(self.failures) + len(self.files)
        return listed + bool(self.request) + bool(self.language)

    def __str__(self) -> str:
        lines = [f"- the heading: {heading}" for heading in self.headings]
        lines += [f"- the user's last request: {one_line(self.request, _MAX_REQUEST)}"] if self.request else []
        lines += [f"- exactly as written: {name}" for name in self.names]
        lines += [f"- the failed call: {failure}" for failure in self.failures]
        lines += [f"- the changed file: {path}" for path in self.files]
        name = "the language of the conversation" if self.language == "Latin script" else self.language
        lines += [f"- it must be written in {name}"] if name else []
        return "\n".join(lines)


def find_requirements(plan: CompactionPlan, *, settings: Compaction) -> Checklist:
    """Find what the summary of a plan must contain, the lists below it included."""
    is_exact = settings.identifier_policy != "off"
    return Checklist(
        headings=HEADINGS,
        request=plan.request,
        names=recent_names(plan.summarised) if is_exact else (),
        failures=tuple(failure.about for failure in plan.activity.failures[-_MAX_LISTED:]),
        files=plan.activity.modified[:_MAX_LISTED],
        language=conversation_language([*plan.summarised, *plan.kept]),
    )


def recent_names(items: Sequence[Item]) -> tuple[str, ...]:
    """List the identifiers of the last messages, newest first: those in words, then those in calls."""
    last = [item.message for item in reversed(items[-_RECENT:])]
    calls = [str(call.arguments) for message in last for call in message.calls]
    return find_identifiers([*map(own_words, last), *calls], limit=_MAX_NAMES)


def conversation_language(items: Sequence[Item]) -> Language | None:
    """Detect the language that the user writes, or else the assistant."""
    for role in ("user", "assistant"):
        texts = (own_words(item.message) for item in items if item.kind == "message" and item.message.role == role)
        language = detect_language("\n".join(text[:_MAX_REQUEST] for text in texts))  # the rest may be pasted
        if language is not None:
            return language
    return None


def audit(text: str, required: Checklist, *, below: str = "") -> Checklist:
    """Find what a summary lacks. `below` is what is written under it by rule."""
    folded = f"{text}\n{below}".casefold()
    lines = {line.strip() for line in text.splitlines()}
    language = detect_language(text)
    return Checklist(
        headings=tuple(heading for heading in required.headings if heading not in lines),
        request="" if _contains_request(text, required.request) else required.request,
        names=tuple(name for name in required.names if name.casefold() not in folded),
        failures=tuple(failure for failure in required.failures if failure.casefold() not in folded),
        files=tuple(path for path in required.files if path.casefold() not in folded),
        language=required.language if required.language and language not in {None, required.language} else None,
    )


def _contains_request(text: str, request: str) -> bool:
    """Tell whether a text contains most words of a request."""
    wanted = set(terms(request[:_MAX_REQUEST]))
    return not wanted or len(wanted & set(terms(text))) >= _MIN_SHARE * len(wanted)


def repair(text: str, misses: Checklist, *, plan: CompactionPlan) -> tuple[Section, ...]:
    """Add by rule what a summary lacks: the request before it, sections and identifiers after it.

    Failures and files are not added here: they are listed below every summary.
    """
    if not misses:
        return (Section(title="", lines=tuple(text.splitlines()), weight=_BODY_WEIGHT),)
    messages = [item.message for item in plan.summarised]
    digest = outline(messages, activity=plan.activity, previous=plan.previous, request=plan.request)
    first, *others = HEADINGS
    is_request_missing = first in misses.headings or bool(misses.request or misses.language)
    missing = [heading for heading in others if heading in misses.headings]
    after = [section for heading in missing for section in _or_none(heading, digest[heading])]
    names = Section(title=IDENTIFIERS, lines=tuple(f"- {name}" for name in misses.names), weight=_NAMES_WEIGHT)
    if is_request_missing:
        return (*digest[first], _body(text, _without(text, first)), *after, names)
    return (_body(text, text.splitlines()), *after, names)


def _body(text: str, lines: Sequence[str]) -> Section:
    """Make a section of a model's own words, with a title where they have no known heading."""
    title = "" if set(parse(text)) & set(HEADINGS) else "## Summary"
    return Section(title=title, lines=tuple(lines), weight=_BODY_WEIGHT)


def _or_none(heading: str, group: tuple[Section, ...]) -> tuple[Section, ...]:
    """Return the sections of a heading, or one that says that there is nothing."""
    return group if any(section.lines for section in group) else (Section(title=heading, lines=(_NONE,)),)


def _without(text: str, heading: str) -> list[str]:
    """Remove one section from a summary."""
    lines: list[str] = []
    skipped = False
    for line in text.splitlines():
        if line.startswith("## "):
            skipped = line.strip() == heading
        if not skipped:
            lines.append(line)
    return lines
