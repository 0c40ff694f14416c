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
from holdfast.models.base import Reply
from holdfast.patterns import compile_once, load
from holdfast.settings import Compaction
from holdfast.text import terms

Language: TypeAlias = Literal["Chinese", "Japanese", "Korean", "Latin script"]

_RECENT: Final = 10
_MAX_NAMES: Final = 12
_MAX_LISTED: Final = 8
_MAX_REQUEST: Final = 400
_MIN_SHARE: Final = 0.5
_NONE: Final = "(none)"
_BODY_WEIGHT: Final = 30
"""The weight of a model's own words if not all sections fit."""
_NAMES_WEIGHT: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Checklist:
    """Requirements of a summary, or those that it misses: exact identifiers (`names`), and the words of the request."""

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
    last = [item.message for item in plan.summarised[-_RECENT:]] if settings.identifier_policy != "off" else []
    language: Language | None = None
    for role in ("user", "assistant"):  # the language that the user writes, or else the assistant
        items = [
            item for item in (*plan.summarised, *plan.kept) if item.kind == "message" and item.message.role == role
        ]
        words = "\n".join(own_words(item.message)[:_MAX_REQUEST] for item in items)  # the rest may be pasted
        language = language or detect_language(words)
    return Checklist(
        headings=HEADINGS,
        request=plan.request,
        names=list_identifiers(last, limit=_MAX_NAMES),
        failures=tuple(failure.about for failure in plan.activity.failures[-_MAX_LISTED:]),
        files=plan.activity.modified[:_MAX_LISTED],
        language=language,
    )


def audit(text: str, required: Checklist, *, below: str = "") -> Checklist:
    """Find what a summary lacks. `below` is what is written under it by rule."""
    folded = f"{text}\n{below}".casefold()
    lines = {line.strip() for line in text.splitlines()}
    language = detect_language(text)
    wanted = set(terms(required.request[:_MAX_REQUEST]))
    return Checklist(
        headings=tuple(heading for heading in required.headings if heading not in lines),
        request=required.request if len(wanted & set(terms(text))) < _MIN_SHARE * len(wanted) else "",
        names=tuple(name for name in required.names if name.casefold() not in folded),
        failures=tuple(failure for failure in required.failures if failure.casefold() not in folded),
        files=tuple(path for path in required.files if path.casefold() not in folded),
        language=required.language if required.language and language not in {None, required.language} else None,
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
    title = "" if set(parse(text)) & set(HEADINGS) else "## Summary"
    sections.append(Section(title=title, lines=tuple(lines), weight=_BODY_WEIGHT))
    for heading in others:
        if heading in misses.headings:
            is_empty = not any(section.lines for section in digest[heading])
            sections += [Section(title=heading, lines=(_NONE,))] if is_empty else digest[heading]
    names = tuple(map("- {}".format, misses.names))
    return [*sections, Section(title=IDENTIFIERS, lines=names, weight=_NAMES_WEIGHT)]


def _without(lines: Iterable[str], heading: str) -> list[str]:
    kept: list[str] = []
    skipped = False
    for line in lines:
        if line.startswith("## "):
            skipped = line.strip() == heading
        if not skipped:
            kept.append(line)
    return kept


_MAX_SKELETON_LINE: Final = 120
_MIN_FILLED: Final = 12
_MAX_ERROR: Final = 600


def find_fault(reply: Reply) -> str | None:
    """Say why an answer cannot be a summary, such as a refusal or an error; None if it may be one."""
    text = reply.text.strip()
    is_long = len(text) > _MAX_ERROR or text.startswith("## ")
    filled = (line for line in text.splitlines() if len(line) > _MAX_SKELETON_LINE or not _matches("skeleton", line))
    faults = {
        "the model refused": reply.stop == "refusal" or (not is_long and _matches("refusal", text)),
        "the answer is empty": not text,
        "the answer has headings and nothing under them": len("".join(filled)) < _MIN_FILLED,
        "the answer is data, not a summary": _matches("data", text),
        "the answer is an error message": not is_long and _matches("error", text.lstrip("*_`> ⚠️❌")),
    }
    return next((fault for fault, is_there in faults.items() if is_there), None)


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
"""A character of these scripts counts as three letters."""
_MIN_OWN_SHARE: Final = 0.3
"""Chinese about programs contains many Latin words: this share of its own script is enough."""
_MIN_KANA_SHARE: Final = 0.1
_MIN_LETTERS: Final = 12


def detect_language(text: str) -> Language | None:
    """Detect the language of a text by its script, without code, paths and headings; None if it is too short."""
    # A run of Latin letters and signs that is a path, an address or the like says nothing about the language.
    prose = _PRINTED.sub(lambda run: run[0] if _TECHNICAL.isdisjoint(run[0]) else " ", _NOT_PROSE.sub(" ", text))
    han, kana, hangul = (len(pattern.findall(prose)) for pattern in (_HAN, _KANA, _HANGUL))
    own = _CHARACTER_WEIGHT * (han + kana + hangul)
    total = own + len(_LATIN.findall(prose))
    if total < _MIN_LETTERS:
        return None
    if own < _MIN_OWN_SHARE * total:
        return "Latin script"
    if hangul > han + kana:
        return "Korean"
    return "Japanese" if kana > _MIN_KANA_SHARE * (han + kana) else "Chinese"
