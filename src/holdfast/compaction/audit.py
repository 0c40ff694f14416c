"""What a summary must hold before it may stand for history, and how what is missing is put in by rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.compaction.cut import CompactionPlan
from holdfast.compaction.dialogue import one_line, words
from holdfast.compaction.digest import IDENTIFIERS, outline
from holdfast.compaction.identifiers import identifiers
from holdfast.compaction.language import Language, language
from holdfast.compaction.sections import HEADINGS, Section, parse
from holdfast.context.edits import Item
from holdfast.settings import Compaction
from holdfast.text import terms

__all__ = ["Misses", "Wanted", "audit", "mended", "wanted"]

_RECENT: Final = 10
_NAMES: Final = 12
_LISTED: Final = 8
_ASKED: Final = 400
_SHARE: Final = 0.5
_NONE: Final = "(none)"
_BODY: Final = 30
"""How much of a narrow room a model's own words may take, beside what is put in by rule."""
_NAMED: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a summary must hold.

    Attributes:
        headings: Lines of their own.
        request: The user's last request, by most of its words.
        names: Identifiers, exactly.
        failures: Calls that failed, by what was called.
        files: Paths of files that were changed.
        language: The language it must be in; None where that does not matter.
    """

    headings: tuple[str, ...] = HEADINGS
    request: str = ""
    names: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    language: Language | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Misses:
    """What a summary lacks."""

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
        """How many things are missing."""
        listed = len(self.headings) + len(self.names) + len(self.failures) + len(self.files)
        return listed + bool(self.request) + bool(self.language)

    def __str__(self) -> str:
        lines = [f"- the heading: {heading}" for heading in self.headings]
        lines += [f"- the user's last request: {one_line(self.request, _ASKED)}"] if self.request else []
        lines += [f"- exactly as written: {name}" for name in self.names]
        lines += [f"- the failed call: {failure}" for failure in self.failures]
        lines += [f"- the changed file: {path}" for path in self.files]
        lines += [f"- it must be written in {_named(self.language)}"] if self.language else []
        return "\n".join(lines)


def _named(wanted: Language) -> str:
    return "the language of the conversation" if wanted == "Latin script" else wanted


def wanted(plan: CompactionPlan, *, settings: Compaction) -> Wanted:
    """What the summary of a plan must hold. Failures and files are for the whole of it, lists by rule included."""
    exact = settings.identifier_policy != "off"
    return Wanted(
        request=plan.request,
        names=recent_names(plan.summarised) if exact else (),
        failures=tuple(failure.about for failure in plan.activity.failures[-_LISTED:]),
        files=plan.activity.modified[:_LISTED],
        language=spoken_language([*plan.summarised, *plan.kept]),
    )


def recent_names(items: Sequence[Item]) -> tuple[str, ...]:
    """The identifiers of the last messages, the newest first: those that were said, then those of calls."""
    last = [item.message for item in reversed(items[-_RECENT:])]
    called = [str(call.arguments) for message in last for call in message.calls]
    return identifiers([*map(words, last), *called], limit=_NAMES)


def spoken_language(items: Sequence[Item]) -> Language | None:
    """The language that the user writes, or else the assistant."""
    for role in ("user", "assistant"):
        said = (words(item.message) for item in items if item.kind == "message" and item.message.role == role)
        found = language("\n".join(text[:_ASKED] for text in said))  # of each the beginning: what is long is pasted
        if found is not None:
            return found
    return None


def audit(text: str, wanted: Wanted, *, below: str = "") -> Misses:
    """What a summary lacks of what it must hold. `below` is what is written under it by rule."""
    folded = f"{text}\n{below}".casefold()
    lines = {line.strip() for line in text.splitlines()}
    spoken = language(text)
    return Misses(
        headings=tuple(heading for heading in wanted.headings if heading not in lines),
        request="" if _holds_request(text, wanted.request) else wanted.request,
        names=tuple(name for name in wanted.names if name.casefold() not in folded),
        failures=tuple(failure for failure in wanted.failures if failure.casefold() not in folded),
        files=tuple(path for path in wanted.files if path.casefold() not in folded),
        language=wanted.language if wanted.language and spoken not in {None, wanted.language} else None,
    )


def _holds_request(text: str, request: str) -> bool:
    """Tell whether most words of a request are in a text, or all of the few that it has."""
    asked = set(terms(request[:_ASKED]))
    return not asked or len(asked & set(terms(text))) >= _SHARE * len(asked)


def mended(text: str, misses: Misses, *, plan: CompactionPlan) -> tuple[Section, ...]:
    """A summary with what it lacks put in by rule: the request before it, sections and identifiers behind it.

    Of failures and files nothing is said here: those lists are written below every summary.
    """
    if not misses:
        return (Section(title="", lines=tuple(text.splitlines()), weight=_BODY),)
    messages = [item.message for item in plan.summarised]
    ruled = outline(messages, activity=plan.activity, previous=plan.previous, request=plan.request)
    first, *others = HEADINGS
    anew = first in misses.headings or bool(misses.request or misses.language)
    behind = [section for heading in others if heading in misses.headings for section in _said(heading, ruled[heading])]
    names = Section(title=IDENTIFIERS, lines=tuple(f"- {name}" for name in misses.names), weight=_NAMED)
    if anew:
        return (*ruled[first], _body(text, _without(text, first)), *behind, names)
    return (_body(text, text.splitlines()), *behind, names)


def _body(text: str, lines: Sequence[str]) -> Section:
    """The lines that stay of a model's own words, with a title where those had no heading that is known."""
    title = "" if set(parse(text)) & set(HEADINGS) else "## Summary"
    return Section(title=title, lines=tuple(lines), weight=_BODY)


def _said(heading: str, group: tuple[Section, ...]) -> tuple[Section, ...]:
    """What stands under a heading by rule, or that nothing does."""
    return group if any(section.lines for section in group) else (Section(title=heading, lines=(_NONE,)),)


def _without(text: str, heading: str) -> list[str]:
    """The lines of a summary without one section, which is written anew."""
    lines: list[str] = []
    skipped = False
    for line in text.splitlines():
        if line.startswith("## "):
            skipped = line.strip() == heading
        if not skipped:
            lines.append(line)
    return lines
