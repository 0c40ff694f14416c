"""Check a summary before it replaces history, and add what is missing by rule.

It must have all headings, the last request, recent identifiers word for word, failures and changed files, and be in the
language of the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from holdfast.compaction.dialogue import list_identifiers, one_line, own_words
from holdfast.compaction.digest import IDENTIFIERS, outline_plan
from holdfast.compaction.plan import CompactionPlan
from holdfast.compaction.sections import HEADINGS, Section, parse
from holdfast.messages import Role
from holdfast.models.base import Reply
from holdfast.patterns import compile_once, load
from holdfast.settings import Compaction
from holdfast.text import repeats_itself, terms

Language: TypeAlias = Literal["Chinese", "Japanese", "Korean", "Latin script"]

_RECENT: Final = 10
"""The number of the newest messages whose identifiers a summary must contain."""
_MAX_NAMES: Final = 12
"""The maximum number of identifiers that a summary must contain."""
_MAX_LISTED: Final = 8
"""The maximum number of failures, and of changed files, that a summary must contain."""
_MAX_REQUEST: Final = 400
"""How many characters of a request are compared. The rest may be pasted text."""
_MIN_SHARE: Final = 0.5
"""The share of the terms of the last request that a summary must contain."""
_NONE: Final = "(none)"
_BODY_WEIGHT: Final = 30
"""The weight of the model's summary if not all sections fit."""
_NAMES_WEIGHT: Final = 6
"""The weight of the identifiers that it lacks, which are added to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checklist:
    """What a summary must contain, or what it lacks. `names` are exact identifiers, `request` is the last request."""

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
        """The number of entries."""
        total = len(self.headings) + len(self.names) + len(self.failures) + len(self.files)
        if self.request:
            total += 1
        if self.language:
            total += 1
        return total

    def __str__(self) -> str:
        lines = [f"- the heading: {heading}" for heading in self.headings]
        if self.request:
            lines.append(f"- the user's last request: {one_line(self.request, _MAX_REQUEST)}")
        lines += [f"- exactly as written: {name}" for name in self.names]
        lines += [f"- the failed call: {failure}" for failure in self.failures]
        lines += [f"- the changed file: {path}" for path in self.files]
        if self.language == "Latin script":
            lines.append("- it must be written in the language of the conversation")
        elif self.language:
            lines.append(f"- it must be written in {self.language}")
        return "\n".join(lines)


def find_requirements(plan: CompactionPlan, *, settings: Compaction) -> Checklist:
    """Find what the summary of a plan must contain, including the lists below it."""
    names: tuple[str, ...] = ()
    if settings.identifier_policy != "off":
        recent = [item.message for item in plan.summarised[-_RECENT:]]
        names = list_identifiers(recent, limit=_MAX_NAMES)
    return Checklist(
        headings=HEADINGS,
        request=plan.request,
        names=names,
        failures=tuple(failure.about for failure in plan.activity.failures[-_MAX_LISTED:]),
        files=plan.activity.modified[:_MAX_LISTED],
        language=_find_language(plan, "user") or _find_language(plan, "assistant"),
    )


def _find_language(plan: CompactionPlan, role: Role) -> Language | None:
    """Return the language that the user or the assistant writes."""
    words: list[str] = []
    for item in (*plan.summarised, *plan.kept):
        if item.kind == "message" and item.message.role == role:
            words.append(own_words(item.message)[:_MAX_REQUEST])  # the rest may be pasted
    return detect_language("\n".join(words))


def audit(text: str, required: Checklist, *, below: str = "") -> Checklist:
    """Find what a summary lacks. `below` is the text that is added after it by rule."""
    folded = f"{text}\n{below}".casefold()
    lines = {line.strip() for line in text.splitlines()}
    request = ""
    wanted = set(terms(required.request[:_MAX_REQUEST]))
    found = wanted.intersection(terms(text))
    if len(found) < _MIN_SHARE * len(wanted):
        request = required.request
    language: Language | None = None
    if detect_language(text) not in {None, required.language}:
        language = required.language
    return Checklist(
        headings=tuple(heading for heading in required.headings if heading not in lines),
        request=request,
        names=tuple(name for name in required.names if name.casefold() not in folded),
        failures=tuple(failure for failure in required.failures if failure.casefold() not in folded),
        files=tuple(path for path in required.files if path.casefold() not in folded),
        language=language,
    )


def repair(text: str, misses: Checklist, *, plan: CompactionPlan) -> list[Section]:
    """Add by rule what a summary lacks: the request before it, sections and identifiers after it.

    Failures and files are not added here: they are listed below every summary.
    """
    lines = text.splitlines()
    if not misses:
        return [Section(title="", lines=tuple(lines), weight=_BODY_WEIGHT)]
    digest = outline_plan(plan)
    first, *others = HEADINGS
    sections: list[Section] = []
    if first in misses.headings or misses.request or misses.language:
        sections += digest[first]
        lines = _without(lines, first)
    title = "## Summary"
    if not set(HEADINGS).isdisjoint(parse(text)):
        title = ""
    sections.append(Section(title=title, lines=tuple(lines), weight=_BODY_WEIGHT))
    for heading in others:
        if heading in misses.headings:
            if any(section.lines for section in digest[heading]):
                sections += digest[heading]
            else:
                sections.append(Section(title=heading, lines=(_NONE,)))
    names = tuple(f"- {name}" for name in misses.names)
    sections.append(Section(title=IDENTIFIERS, lines=names, weight=_NAMES_WEIGHT))
    return sections


def _without(lines: Iterable[str], heading: str) -> list[str]:
    """Return the lines without the section under a heading."""
    kept: list[str] = []
    is_in_section = False
    for line in lines:
        if line.startswith("## "):
            is_in_section = line.strip() == heading
        if not is_in_section:
            kept.append(line)
    return kept


_MAX_SKELETON_LINE: Final = 120
"""A longer line is text, even if it begins like a heading or an empty entry."""
_MIN_FILLED: Final = 12
"""An answer with fewer characters, not counting headings and empty entries, is not a summary."""
_MAX_ERROR: Final = 600
"""A longer answer is neither a refusal nor an error message."""


def find_fault(reply: Reply) -> str | None:
    """Return why an answer cannot be a summary, such as a refusal or an error; None if it may be one."""
    text = reply.text.strip()
    is_short = len(text) <= _MAX_ERROR and not text.startswith("## ")
    if reply.stop == "refusal" or (is_short and _matches("refusal", text)):
        return "the model refused"
    if not text:
        return "the answer is empty"
    filled = 0
    for line in text.splitlines():
        if len(line) > _MAX_SKELETON_LINE or not _matches("skeleton", line):
            filled += len(line)
    if filled < _MIN_FILLED:
        return "the answer has headings and nothing under them"
    if _matches("data", text):
        return "the answer is data, not a summary"
    if reply.stop == "length" and repeats_itself(text):
        return "the answer repeats itself"
    if is_short and _matches("error", text.lstrip("*_`> ⚠️❌")):
        return "the answer is an error message"
    return None


def _matches(form: str, text: str) -> bool:
    return compile_once(load("summaries")["answers"][form], re.IGNORECASE).match(text) is not None


_NOT_PROSE: Final = re.compile(r"```.{0,20000}?(?:```|\Z)|`[^`\n]{1,200}`|^#{1,6} [^\n]*$", re.DOTALL | re.MULTILINE)
_PRINTED: Final = re.compile(r"[!-~]+")
_TECHNICAL: Final = frozenset("/\\_=")
_HAN: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_KANA: Final = re.compile("[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9d]")
_HANGUL: Final = re.compile("[\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3]")
_LATIN: Final = re.compile("[A-Za-z\u00c0-\u024f]")
_CHARACTER_WEIGHT: Final = 3
"""A character of these three scripts counts as this many letters."""
_MIN_OWN_SHARE: Final = 0.3
"""The minimum share of a text in one of these scripts. Chinese text about programs contains many Latin words."""
_MIN_KANA_SHARE: Final = 0.1
"""The minimum share of kana in Japanese text. Chinese text has none."""
_MIN_LETTERS: Final = 12
"""The minimum letters of a text whose language is detected."""


def _drop_technical(run: re.Match[str]) -> str:
    """Replace a run of Latin letters and signs with a space if it is a path, an address or the like."""
    if _TECHNICAL.isdisjoint(run[0]):
        return run[0]
    return " "


def detect_language(text: str) -> Language | None:
    """Detect the language of a text by its script, without code, paths and headings; None if it is too short."""
    prose = _PRINTED.sub(_drop_technical, _NOT_PROSE.sub(" ", text))
    han = len(_HAN.findall(prose))
    kana = len(_KANA.findall(prose))
    hangul = len(_HANGUL.findall(prose))
    own = _CHARACTER_WEIGHT * (han + kana + hangul)
    total = own + len(_LATIN.findall(prose))
    if total < _MIN_LETTERS:
        return None
    if own < _MIN_OWN_SHARE * total:
        return "Latin script"
    if hangul > han + kana:
        return "Korean"
    if kana > _MIN_KANA_SHARE * (han + kana):
        return "Japanese"
    return "Chinese"
