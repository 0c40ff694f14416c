"""Text as search and people see it: terms, safe cuts, digests.

Terms are made the same way for a passage and for a question. Latin words are lower-cased, stemmed and
freed of stop words; identifiers count whole and in parts; scripts written without spaces, and Hangul,
count as single characters and pairs.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import regex
    import Stemmer

__all__ = ["STOP_WORDS", "clip", "digest", "expand", "head", "is_unsegmented", "tail", "term_spans", "terms"]

STOP_WORDS: Final = frozenset(
    """
    a about above after again all also am an and any are as at be because been before being below between both but by
    can could did do does doing don down during each few for from further get got had has have having he her here hers
    him his how i if in into is it its itself just let like ll may me might more most must my no nor not now of off on
    once only or other our ours out over own re s same shall she should so some such t than that the their theirs them
    then there these they this those through to too under until up upon us ve very was we were what when where which
    while who whom why will with would yes you your yours
    """.split()  # noqa: SIM905 - words read best as words
)

# Scripts that are written without spaces between words (and Hangul, whose words carry their particles).
_UNSEGMENTED: Final = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff"
    "\u3105-\u312f\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    "\uff66-\uffdc\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
# Vowel signs and points that Python does not count as part of a word.
_MARKS: Final = "\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0dff"
_WORD: Final = rf"[^\W{_UNSEGMENTED}]+(?:[{_MARKS}]+[^\W{_UNSEGMENTED}]*)*"
_TOKEN: Final = re.compile(rf"[{_UNSEGMENTED}]+|{_WORD}(?:[.\-/]{_WORD})*")
_UNSEGMENTED_FIRST: Final = re.compile(rf"[{_UNSEGMENTED}]")
_HUMP: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+|[^\W\d_]+")
_SEPARATOR: Final = re.compile(r"[._\-/]+")
_CYRILLIC: Final = re.compile("[\u0400-\u04ff]")

_LONGEST_TERM: Final = 64
_MOST_PARTS: Final = 8


def terms(text: str) -> list[str]:
    """The search terms of a text, in order, repeated as often as they stand there."""
    found: list[str] = []
    for token in _TOKEN.findall(text):
        found += _ngrams(token) if _UNSEGMENTED_FIRST.match(token) else expand(token)
    return found


def term_spans(text: str) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Where the terms of a text stand: start, end and the terms of each token, for highlighting."""
    for match in _TOKEN.finditer(text):
        token = match.group()
        if not _UNSEGMENTED_FIRST.match(token):
            yield match.start(), match.end(), expand(token)
            continue
        for offset, character in enumerate(token):
            pair = token[offset : offset + 2]
            start = match.start() + offset
            yield start, start + 1, (character,)
            if len(pair) > 1:
                yield start, start + 2, (pair,)


def is_unsegmented(character: str) -> bool:
    """Tell whether a character belongs to a script that is searched by characters and pairs."""
    return _UNSEGMENTED_FIRST.match(character) is not None


def _ngrams(run: str) -> list[str]:
    run = unicodedata.normalize("NFKC", run)
    return [*run, *(left + right for left, right in pairwise(run))]


@lru_cache(maxsize=1 << 17)
def expand(token: str) -> tuple[str, ...]:
    """The terms of one word or identifier: its stem, or the whole of it and the stems of its parts."""
    token = _fold(token)
    parts = _parts(token)
    if len(parts) == 1 and parts[0] == token:
        return _stemmed(token)
    whole = (token.lower(),) if len(token) <= _LONGEST_TERM else ()
    return whole + tuple(stem for part in parts if len(part) > 1 for stem in _stemmed(part))


def _fold(token: str) -> str:
    """The token without width variants and accents."""
    if token.isascii():
        return token
    plain = unicodedata.normalize("NFKD", token)
    if any("a" <= character.lower() <= "z" for character in plain):
        plain = "".join(character for character in plain if not unicodedata.combining(character))
    return unicodedata.normalize("NFKC", plain)


def _parts(token: str) -> list[str]:
    """Split an identifier at separators, humps and digits; hashes and long paths at separators only."""
    pieces = [piece for piece in _SEPARATOR.split(token) if piece]
    humps = [hump for piece in pieces for hump in (_HUMP.findall(piece) if piece.isascii() else [piece])]
    parts = humps if len(humps) <= _MOST_PARTS else pieces
    return parts if len(parts) > 1 else [token.strip("_") or token]


def _stemmed(word: str) -> tuple[str, ...]:
    word = word.lower()
    if word in STOP_WORDS or len(word) > _LONGEST_TERM:
        return ()
    return (_stemmer("russian" if _CYRILLIC.match(word) else "english").stemWord(word),)


@cache
def _stemmer(language: str) -> Stemmer.Stemmer:
    import Stemmer  # noqa: PLC0415 - a compiled part that a reader of settings never needs

    return Stemmer.Stemmer(language)


def digest(text: str) -> str:
    """A stable digest of a text: 32 hexadecimal characters. Half surrogates, which JSON can carry, are fine."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


# --- cutting -----------------------------------------------------------------

_NEARBY: Final = 64
_FENCE: Final = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)


def head(text: str, limit: int) -> str:
    """The first characters of a text, at most `limit`, never half of what is read as one character."""
    return text[: _boundary(text, limit)]


def tail(text: str, limit: int) -> str:
    """The last characters of a text, at most `limit`, never half of what is read as one character."""
    return text[_start(text, limit) :]


def clip(text: str, *, head: int, tail: int, marker: str = "\n...\n") -> str:
    """The first and last characters of a text with `marker` between them; the text itself where that is no shorter.

    A code fence that the cut leaves open is closed before the marker and opened again after it, so that
    what follows is not taken for code.
    """
    if len(text) <= head + tail + len(marker):
        return text
    first, last = text[: _boundary(text, head)], text[_start(text, tail) :]
    before = _open_fence(first)
    after = _open_fence(text[: len(text) - len(last)])
    closed = f"\n{before}" if before else ""
    opened = f"{after}\n" if after and last else ""
    return f"{first}{closed}{marker}{opened}{last}"


def _start(text: str, limit: int) -> int:
    """The first place at which the last `limit` characters of a text may begin."""
    start = max(0, len(text) - max(0, limit))
    while start < len(text) and _boundary(text, start) != start:
        start += 1
    return start


def _boundary(text: str, limit: int) -> int:
    """The last place at or before `limit` where a text may be cut."""
    if limit >= len(text) or limit <= 0:
        return max(0, min(limit, len(text)))
    if text[limit].isascii() and text[limit] != "\n":
        return limit
    start = max(0, limit - _NEARBY)
    cut = start
    for match in _graphemes().finditer(text, start, min(len(text), limit + _NEARBY)):
        if match.end() > limit:
            break
        cut = match.end()
    return cut if cut > start else limit


@cache
def _graphemes() -> regex.Pattern[str]:
    import regex  # noqa: PLC0415 - needed only where something is cut

    return regex.compile(r"\X")


def _open_fence(text: str) -> str:
    """The fence that is still open at the end of a text, or nothing."""
    fence = ""
    for match in _FENCE.finditer(text):
        mark = match.group(1)
        if not fence:
            fence = mark
        elif mark[0] == fence[0] and len(mark) >= len(fence):
            fence = ""
    return fence
