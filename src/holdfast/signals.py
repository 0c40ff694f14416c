"""Recognise sentences that decide, correct, forbid, prefer, explain or leave something open.

One set of patterns, `patterns/signals.toml`, serves the digest of a compaction, the capture of memories and the
extraction of facts without a model. English and Chinese; Japanese and Korean in their most common forms. `has_signal`
is broad: it finds the words anywhere. `classify_sentence` is narrow: the sentence has to begin with an explicit form
and must state it as true, or to say that something was settled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Final, Literal, TypeAlias, get_args

from holdfast.patterns import NO_ABBREVIATION, compile_once, load

Signal: TypeAlias = Literal[
    "remember", "decision", "choice", "correction", "cause", "conclusion", "preference", "rule", "request", "todo"
]
Statement: TypeAlias = Literal["remember", "decision", "correction"]

MIN_CHARS: Final = 6
MAX_CHARS: Final = 300


# A lower-case letter continues the sentence, after an abbreviation or on the next line of wrapped text, unless it opens
# a request to remember something.
_SENTENCE_END: Final = re.compile(
    rf"(?<=[.!?…]){NO_ABBREVIATION}[\"')\]”’]*\s+(?:(?=(?:please )?remember that\b)|(?![a-z]))|(?<=[。！？])[”’」』]*"
    r"|\n(?=[^\S\n]*\n)|\n(?:(?=\s*(?:please )?remember that\b)|(?!\s*[a-z(]))"
)
_FENCED: Final = re.compile(r"^ {0,3}```.{0,40000}?(?:^ {0,3}```|\Z)", re.DOTALL | re.MULTILINE)
_MARKER: Final = re.compile(r"^[\s>*#•·-]*(?:\d{1,3}[.)、]\s*)?(?:\[[ xX]\]\s*)?")
# Sentences that an agent writes while it works, and sentences that only introduce a list.
_NARRATION: Final = re.compile(
    r"^(?:now |ok(?:ay)?,? |good,? )?(?:let me|i'?ll|let's see|i will now)\b|[:：]$", re.IGNORECASE
)


_NUMBER: Final = re.compile(
    r"\d[\d.,:]*(?:\s*%|\s+(?P<unit>[^\W\d_]{2,}))?|[一二三四五六七八九十]{1,3}(?=[点號号个天月])"
)
"""A number, and the word behind it."""
_DAY: Final = re.compile(
    r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|(?:周|星期|礼拜)[一二三四五六日天]|[月火水木金土日]曜|[월화수목금토일]요일",
    re.IGNORECASE,
)


def without_code(text: str) -> str:
    """Remove fenced code from a text."""
    return _FENCED.sub("\n", text)


def sentences(text: str, *, max_chars: int = MAX_CHARS) -> Iterator[str]:
    """Split a text into sentences and lines of `MIN_CHARS` to `max_chars`, without list marks and code."""
    for piece in _SENTENCE_END.split(without_code(text)):
        bare = _MARKER.sub("", piece, count=1).strip()
        if MIN_CHARS <= len(bare) <= max_chars and not bare.startswith(("<", "|", "{", "```")):
            yield " ".join(bare.split())


def has_signal(text: str, *signals: Signal) -> bool:
    """Return whether a text contains words of one of the signals."""
    return any(_compile("signals", signal, re.VERBOSE).search(text) for signal in signals)


def select(texts: Iterable[str], *signals: Signal) -> list[str]:
    """List the sentences of texts that have one of the signals, in order, each once; narration is left out."""
    return [sentence for sentence in list_statements(texts) if has_signal(sentence, *signals)]


def list_statements(texts: Iterable[str]) -> list[str]:
    """List the sentences of texts, in order, each once; narration is left out."""
    every = (sentence for text in texts for sentence in sentences(text))
    return list(dict.fromkeys(sentence for sentence in every if not _NARRATION.search(sentence)))


def asks(text: str) -> bool:
    """Return whether a text asks for something to be done or answered: not only for how things should be."""
    for sentence in sentences(text):
        if is_question(sentence) or (has_signal(sentence, "request") and classify_sentence(sentence) is None):
            return True
    return False


@cache
def _compile(table: str, name: str, flags: int = 0) -> re.Pattern[str]:
    return compile_once(load("signals")[table][name], flags | re.IGNORECASE)


_ASKS_OR_INTRODUCES: Final = ("?", "？", ":", "：")
_BREAKS_OFF: Final = ("…", "...")
_MAX_WORDS: Final = 50


def classify_sentence(sentence: str) -> Statement | None:
    """Return the kind of explicit statement that a sentence begins with; None for a part of one or a question."""
    if sentence.endswith(_ASKS_OR_INTRODUCES):
        return None
    if _compile("statements", "remember").match(sentence):  # what the user asks for is kept, however it is worded
        return None if is_question(sentence) else "remember"
    if sentence.endswith(_BREAKS_OFF) or len(sentence) > MAX_CHARS or len(sentence.split()) > _MAX_WORDS:
        return None
    kinds: tuple[Statement, ...] = get_args(Statement)
    for kind in kinds:
        if _compile("statements", kind).match(sentence):
            return kind
    return "decision" if _is_settled(sentence) else None


def _is_settled(sentence: str) -> bool:
    """Return whether a sentence says that something was settled: "the board has voted on it", 说好了."""
    if not _compile("forms", "settled_hint", re.VERBOSE).search(sentence):
        return False
    if not _compile("statements", "settled", re.VERBOSE).search(sentence):
        return False
    return not is_question(sentence) and not _compile("forms", "not_settled", re.VERBOSE).search(sentence)


def is_stated(sentence: str) -> bool:
    """Return whether a sentence states something as true now: not asked, supposed, planned, quoted, denied or past."""
    return not any(_compile("forms", form).search(sentence) for form in ("not_stated", "not_now"))


def is_asked(sentence: str) -> bool:
    """Return whether a sentence asks, supposes, plans or quotes."""
    return _compile("forms", "not_stated").search(sentence) is not None


def is_question(sentence: str) -> bool:
    """Return whether a sentence asks something; a request to remember may be worded as a question."""
    if _compile("forms", "request", re.VERBOSE).search(sentence):
        return False
    return _compile("forms", "question", re.VERBOSE).search(sentence) is not None


def without_questions(text: str) -> str:
    """Remove the sentences of a text that ask something."""
    pieces = _SENTENCE_END.split(text)
    kept = [piece for piece in pieces if not is_question(piece.strip())]
    if len(kept) == len(pieces):
        return text
    return " ".join(piece.strip() for piece in kept).strip()


def list_standing(said: Sequence[str], *, following: str = "") -> Iterator[tuple[int, str]]:
    """Yield the sentences that nothing behind them takes back, and their places; no examples, and none of a story.

    `following` is what the same person said next: "Remember that the code is 1122.", "Wait, no, 2211."
    """
    for place, sentence in enumerate(said):
        if begins_story(sentence):
            return
        after = following
        if place + 1 < len(said):
            after = said[place + 1]
        if not is_example(sentence) and not amends(after, sentence):
            yield place, sentence


def begins_story(sentence: str) -> bool:
    """Return whether what follows a sentence is a story, an exercise or somebody else's words."""
    return _compile("forms", "scene").search(sentence) is not None


def is_example(sentence: str) -> bool:
    """Return whether a sentence is only an example, a joke or a text to work on."""
    return _compile("forms", "example").search(sentence) is not None


def amends(sentence: str, before: str) -> bool:
    """Return whether a sentence takes back the one before it, or gives another value in its place.

    A whole correction ("Actually, use NATS instead of Kafka") does not need the one before it: it is a fact itself.
    """
    if classify_sentence(sentence) is not None or match_form(sentence, "replacements") is not None:
        return False
    if _compile("forms", "retracts").search(sentence):
        return True
    instead = _compile("forms", "not_this").match(sentence)  # "Not Redis, Valkey."
    if instead is not None and (instead["old"] or instead["old_zh"]).casefold() in before.casefold():
        return True
    if is_question(sentence) or not _compile("forms", "amends").search(sentence):
        return False
    if _DAY.search(sentence):
        return _DAY.search(before) is not None
    units = [(match["unit"] or "").casefold() for match in _NUMBER.finditer(sentence)]
    return bool(units) and bool(_NUMBER.search(before)) and all(unit in before.casefold() for unit in units)


def is_additive(sentence: str) -> bool:
    """Return whether a sentence adds one more value instead of replacing one."""
    return _compile("forms", "additive").search(sentence) is not None


def match_form(sentence: str, table: Literal["changes", "replacements"]) -> re.Match[str] | None:
    """Find what a correction changes (`subject`, `value` and maybe `old`), or a sentence replaces (`value`, `old`)."""
    plain = sentence.strip().rstrip(".。!！")
    forms = (compile_once(form, re.IGNORECASE) for form in load("signals")[table])
    return next((match for form in forms if (match := form.fullmatch(plain))), None)


def line_pattern(name: str) -> re.Pattern[str]:
    """Return a pattern for the lines of a user: `pasted`, `code`, `quoted`, `todo`, `setting` or `named_value`."""
    return compile_once(load("signals")["lines"][name])
