"""Search terms, safe cuts and digests of text.

Terms are made the same way for a passage and for a query. Latin words are lower-cased and stemmed, without stop
words; identifiers count whole and in parts; scripts written without spaces, and Hangul, count as single characters
and pairs.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache, lru_cache
from itertools import chain, pairwise
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from holdfast.patterns import compile_once

if TYPE_CHECKING:
    import regex
    import Stemmer

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
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u309f"
    "\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u3131-\u31bf\u31f0-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff"
    "\uf900-\ufaff\uff66-\uffdc\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
)
_FIRST_UNSEGMENTED: Final = "\u0e00"
# Vowel signs and points that Python does not count as part of a word.
_MARKS: Final = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0dff"
    "\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
)
_WORD: Final = rf"[^\W{_UNSEGMENTED}]+(?:[{_MARKS}]+[^\W{_UNSEGMENTED}]*)*"
_TOKEN: Final = rf"[{_UNSEGMENTED}]+|{_WORD}(?:[.\-/\uff0e\uff0d\uff0f]{_WORD})*"
_ASCII_TOKEN: Final = re.compile(r"\w+(?:[.\-/]\w+)*")
# Characters that are in no token. Classes of many scripts take 3 to 12 ms to compile, and ASCII does not need them.
_SIGNS: Final = rf"[^\x00-\x7f\w{_UNSEGMENTED}{_MARKS}\uff0e\uff0d\uff0f]+"
_ASCII_TO_BLANK: Final = re.sub(r"[^\w.\-/]", " ", "".join(map(chr, range(128))))
_UNSEGMENTED_CHARACTER: Final = rf"[{_UNSEGMENTED}]"
_ONE_HUMP: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_HUMP: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SEPARATOR: Final = re.compile(r"[._\-/]+")
_CYRILLIC: Final = re.compile("[\u0400-\u04ff]")

_MAX_TERM_CHARS: Final = 64
_MAX_CACHED: Final = 1 << 17
_MIN_FRAGMENTS: Final = 8
_MIN_PART_CHARS: Final = 3


def terms(text: str) -> list[str]:
    """Return the search terms of a text, in order, with repetitions."""
    plain = text if text.isascii() else compile_once(_SIGNS).sub(" ", text)  # often only a dash or a quote is not ASCII
    if plain.isascii():
        pieces = plain.translate(_ASCII_TO_BLANK).split()
        return list(chain.from_iterable(map(_EXPANSIONS.__getitem__, pieces)))
    result: list[str] = []
    for token in _token_pattern(plain).findall(plain):
        if token < _FIRST_UNSEGMENTED or not is_unsegmented(token):
            result += _EXPANSIONS[token]
        else:
            run = token
            if not unicodedata.is_normalized("NFKC", token):
                run = "".join(character for character, _, _ in _normalise_characters(token))
            result += run[:1]
            for before, character in pairwise(run):
                result += (before + character, character)
    return result


def term_spans(text: str) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield start, end and terms of each token, in the order of `terms`."""
    plain = text if text.isascii() else compile_once(_SIGNS).sub(lambda match: " " * len(match[0]), text)
    for match in _token_pattern(plain).finditer(plain):
        token, start = match.group(), match.start()
        if is_unsegmented(token):
            characters = [(each, start + first, start + last) for each, first, last in _normalise_characters(token)]
            for (character, first, last), (following, _, end) in pairwise(characters):
                yield first, last, (character,)
                yield first, end, (character + following,)
            yield from ((first, last, (character,)) for character, first, last in characters[-1:])
        elif expanded := _EXPANSIONS[token]:
            yield start, match.end(), expanded


def _token_pattern(text: str) -> re.Pattern[str]:
    return _ASCII_TOKEN if text.isascii() else compile_once(_TOKEN)


def is_unsegmented(character: str) -> bool:
    """Return whether a character belongs to a script that is searched by characters and pairs."""
    return character >= _FIRST_UNSEGMENTED and compile_once(_UNSEGMENTED_CHARACTER).match(character) is not None


def _normalise_characters(run: str) -> Iterator[tuple[str, int, int]]:
    """Yield the characters of a run in normal form (NFKC), each with its place in the run."""
    if unicodedata.is_normalized("NFKC", run):
        yield from ((character, index, index + 1) for index, character in enumerate(run))
        return
    for match in _compile_grapheme().finditer(run):
        for character in unicodedata.normalize("NFKC", match.group()):
            if character.isalnum() or is_unsegmented(character):
                yield character, match.start(), match.end()


def _expand(token: str) -> tuple[str, ...]:
    """Return the terms of one word or identifier: its stem, or the whole and the stems of its parts."""
    if _ONE_HUMP.fullmatch(token):
        return _stem(token)
    token = _fold(token)
    parts = _split(token)
    if parts == [token]:
        return _stem(token)
    is_short = len(token) <= _MAX_TERM_CHARS
    whole = (token.casefold(),) if parts and is_short else ()
    stems = map(_cached_stem if is_short else _stem, (part for part in parts if len(part) > 1))
    return whole + tuple(chain.from_iterable(stems))


class _Expansions(dict[str, tuple[str, ...]]):
    """A cache of the terms of pieces of text, as a dictionary: every word of an import is looked up here."""

    def __missing__(self, piece: str) -> tuple[str, ...]:
        tokens = _token_pattern(piece).findall(piece)
        expanded = _expand(piece) if tokens == [piece] else tuple(chain.from_iterable(map(self.__getitem__, tokens)))
        if len(self) >= _MAX_CACHED:
            self.clear()
        if len(piece) <= _MAX_TERM_CHARS:
            self[piece] = expanded
        return expanded


_EXPANSIONS: Final = _Expansions()


def _fold(token: str) -> str:
    """Remove width variants and accents."""
    if token.isascii():
        return token
    plain = unicodedata.normalize("NFKD", token)
    if any("a" <= character.lower() <= "z" for character in plain):
        plain = "".join(character for character in plain if not unicodedata.combining(character))
    return unicodedata.normalize("NFKC", plain)


def _split(token: str) -> list[str]:
    """Split an identifier at separators, case changes and digits; a hash, which has too many, only at separators."""
    pieces = [piece for piece in _SEPARATOR.split(token) if piece]
    humps = [hump for piece in pieces for hump in (_HUMP.findall(piece) if piece.isascii() else [piece])]
    fragmented = len(humps) > _MIN_FRAGMENTS and sum(map(len, pieces)) < _MIN_PART_CHARS * len(humps)
    return pieces if fragmented else humps


def _stem(word: str) -> tuple[str, ...]:
    word = word.casefold()
    if word in STOP_WORDS:
        return ()
    language = "russian" if not word.isascii() and _CYRILLIC.match(word) else "english"
    return (_get_stemmer(language, get_ident()).stemWord(word[:_MAX_TERM_CHARS]),)


_cached_stem = lru_cache(maxsize=1 << 14)(_stem)  # identifiers differ, but share their words


@lru_cache(maxsize=64)
def _get_stemmer(language: str, _thread: int) -> Stemmer.Stemmer:
    """Return a stemmer for one thread: stemmers are not thread-safe."""
    import Stemmer  # noqa: PLC0415 - not needed to import the package

    return Stemmer.Stemmer(language, 0)  # without its own cache: `_Expansions` is one


def digest(text: str) -> str:
    """Return a stable digest of a text: 32 hexadecimal characters. Lone surrogates, which JSON allows, are accepted."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


# Characters that combine with whatever follows, so that the next one is not a character by itself.
_COMBINING: Final = "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e\u1100-\u115f\ua960-\ua97c\U00011000-\U00011fff"
_SIMPLE: Final = (
    rf"(?<![{_COMBINING}])[ -~\u00c0-\u02ff\u0370-\u0482\u048a-\u052f\u05d0-\u05ea\u0620-\u064a\u1e00-\u1fff"
    "\u3041-\u3096\u30a1-\u30fa\u3131-\u318e\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uff66-\uff9d]"
)
_FENCE: Final = re.compile(r"^ {0,3}(?:(`{3,})([^`\n]*)|(~{3,})([^\n]*))$", re.MULTILINE)


def head(text: str, limit: int) -> str:
    """Return the first characters of a text, at most `limit`, without splitting a grapheme."""
    return text[: _find_boundaries(text, limit)[0]]


_LOOP_TAIL: Final = 24
_MIN_LOOP: Final = 100
"""A text in a loop repeats at least this many characters."""


def tail(text: str, limit: int) -> str:
    """Return the last characters of a text, at most `limit`, without splitting a grapheme."""
    return text[_find_boundaries(text, len(text) - max(0, limit))[1] :]


def repeats_itself(text: str) -> bool:
    """Return whether a text ends in a loop: with the same words three times, one after the other."""
    before = text.rfind(text[-_LOOP_TAIL:], 0, len(text) - 1)
    if before < 0:
        return False
    period = len(text) - _LOOP_TAIL - before
    length = max(2 * period, _MIN_LOOP)
    return len(text) >= length + period and text[-length:] == text[-length - period : -period]


def clip(text: str, *, head: int, tail: int, marker: str = "\n...\n") -> str:
    """Return the head and tail of a text with `marker` between them; the text itself if that is not shorter.

    A code fence that the cut leaves open is closed before the marker and opened again after it, so that
    the marker is not read as code.
    """
    if len(text) <= head + tail + len(marker):
        return text
    fences = list(_FENCE.finditer(text))
    stop = _find_boundaries(text, head)[0]
    stop = next((fence.start() for fence in fences if fence.start() < stop < fence.end()), stop)
    start = _avoid_fence_after(_find_boundaries(text, len(text) - max(0, tail))[1], fences, text)
    before = _find_open_fence(_FENCE.finditer(text[:stop]))
    after = _find_open_fence(fence for fence in fences if fence.end() <= start)
    closing = f"\n{before}" if before else ""
    opening = f"{after}\n" if after and start < len(text) else ""
    clipped = f"{text[:stop]}{closing}{marker}{opening}{text[start:]}"
    return clipped if len(clipped) < len(text) else text


def _find_boundaries(text: str, place: int) -> tuple[int, int]:
    """Return the last grapheme boundary up to `place`, and the first from it on."""
    start = place = max(0, min(place, len(text)))
    simple = compile_once(_SIMPLE)
    while start > 0 and not simple.match(text, start):
        start -= 1
    if start == place:
        return place, place
    match = next(match for match in _compile_grapheme().finditer(text, start) if match.end() >= place)
    return (place, place) if match.end() == place else match.span()


@cache
def _compile_grapheme() -> regex.Pattern[str]:
    import regex  # noqa: PLC0415 - rarely needed

    return regex.compile(r"\X")


def _avoid_fence_after(place: int, fences: Iterable[re.Match[str]], text: str) -> int:
    """Return the place, or the line after a fence that a cut there would split, or would make of half a line."""
    end = next((fence.end() for fence in fences if fence.start() < place < fence.end()), None)
    if end is None and not text.endswith("\n", 0, place):
        line, _, _ = text[place:].partition("\n")
        end = place + len(line) if _FENCE.fullmatch(line) else None
    return place if end is None else min(end + 1, len(text))


def _find_open_fence(fences: Iterable[re.Match[str]]) -> str:
    """Return the fence that is open after all of these, or an empty string."""
    fence = ""
    for match in fences:
        mark, info = match.group(1) or match.group(3), match.group(2) or match.group(4)
        if not fence:
            fence = mark
        elif mark.startswith(fence) and not (info or "").strip():
            fence = ""
    return fence


def join_spans(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort spans, and join those that overlap, touch, or are one apart."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if joined and start <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return joined


ACTING: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
"""Control characters, as the content of a character class of a pattern."""
_CONTROL: Final = re.compile(f"[{ACTING}\ud800-\udfff]")


def join_surrogates(value: Any) -> Any:
    """Return a value that UTF-8 can encode, as JSON need not be.

    In all of its texts, a high and a low surrogate in a row become one character, and a lone one becomes U+FFFD.
    """
    if isinstance(value, str):
        if value.isascii():
            return value
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, Mapping):
        return {join_surrogates(key): join_surrogates(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # with names
        return type(value)(*map(join_surrogates, value))
    if isinstance(value, list | tuple):
        return type(value)(map(join_surrogates, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: join_surrogates(getattr(value, field.name)) for field in fields(value)})
    return value


def printable(text: str, *, one_line: bool = False) -> str:
    """Replace characters that move the cursor, hide text or reverse it; with `one_line` also line breaks and tabs."""
    shown = _CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))
    return shown.replace("\n", " ").replace("\t", " ") if one_line else shown


def percent(score: float, best: float) -> str:
    """Format a score relative to the best one, which is 100%; scores themselves have no upper limit."""
    return f"{score / best:.0%}" if best > 0 else "0%"


def shorten_number(number: float) -> str:
    """Shorten a number: 950, 9.5k, 182k, 1.2M, -3G."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        scaled = number / size
        if abs(scaled) >= 0.9995:  # noqa: PLR2004 - 999,500 is 1M: it would be rounded to 1000k
            shown = f"{scaled:.1f}" if abs(scaled) < 9.95 else f"{scaled:.0f}"  # noqa: PLR2004 - 9.95 is rounded to 10
            return shown.removesuffix(".0") + unit
    return f"{number:.0f}"


def plural(count: int, what: str) -> str:
    """Format a count with its noun: `1 cut`, `2 cuts`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
