"""Quote stored text, so that it can neither close nor fake the tags around it.

A model reads `</𝐝etail>`, `＜/detail＞` or `</det<zero-width space>ail>` as `</detail>`. So what has to be escaped is
searched in the folded text: compatibility forms, accents, letters of other alphabets and brackets of the same shape are
replaced by plain ones, and invisible characters are left out. The text that is quoted is not the folded one: wide
letters and brackets are ordinary in Chinese, Japanese and Korean.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from itertools import accumulate
from typing import Final, NamedTuple

from holdfast.patterns import compile_once

__all__ = ["Folded", "escape_tags", "fold", "fold_character", "remove_controls", "tag_pattern"]

_LINE_ENDS: Final = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85]")
_CONTROLS: Final = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]")

# Characters that unicodedata does not decompose and that a reader takes for the plain ones.
_ALIKE: Final[dict[str, str]] = {
    **dict.fromkeys("‹〈⟨❮❰ᐸ˂⧼", "<"),
    **dict.fromkeys("∕⁄⧸╱", "/"),
    **dict.fromkeys("‐‑‒–—―−⁃˗", "-"),
    **dict.fromkeys("\u2028\u2029", "\n"),
    **dict.fromkeys("аɑα", "a"),
    **dict.fromkeys("сϲᴄ", "c"),
    **dict.fromkeys("ԁɗ", "d"),
    **dict.fromkeys("еҽ", "e"),
    **dict.fromkeys("ɡց", "g"),
    **dict.fromkeys("іıɩι", "i"),
    **dict.fromkeys("кκᴋ", "k"),
    **dict.fromkeys("ӏɭƚ", "l"),
    **dict.fromkeys("мᴍ", "m"),
    **dict.fromkeys("ոռ", "n"),
    **dict.fromkeys("оοσօ", "o"),
    **dict.fromkeys("рρ", "p"),
    **dict.fromkeys("гᴦ", "r"),
    **dict.fromkeys("ѕꜱ", "s"),
    **dict.fromkeys("тτᴛ", "t"),
    **dict.fromkeys("υսᴜ", "u"),
    **dict.fromkeys("ԝѡᴡ", "w"),
    **dict.fromkeys("хχ", "x"),
}
_UNSEEN: Final = frozenset({"Cc", "Cf", "Mn", "Me"})
_FILLERS: Final = "\u115f\u1160\u2800\u3164\uffa0"


class _Folds(dict[str, str]):
    """The character that a reader sees for each character; empty for an invisible one. Filled in on demand."""

    def __missing__(self, character: str) -> str:
        folded = ""
        for lowered in character.lower():
            for piece in unicodedata.normalize("NFKD", _ALIKE.get(lowered, lowered)):
                plain = _ALIKE.get(piece.lower(), piece.lower())
                if plain in "\n\t" or (unicodedata.category(plain[0]) not in _UNSEEN and plain not in _FILLERS):
                    folded += plain
        self[character] = folded
        return folded


_folds: Final = _Folds()


class Folded(NamedTuple):
    """A folded text, and the end of each original character in it."""

    text: str
    ends: list[int] | None

    def locate(self, place: int) -> int:
        """Return the index in the original of the character that was folded to the one at `place`."""
        return place if self.ends is None else bisect_right(self.ends, place)


def fold(text: str) -> Folded:
    """Fold a text to the plain lower-case characters that a reader takes it for."""
    if text.isascii():
        return Folded(text.lower(), None)
    pieces = [_folds[character] for character in text]
    return Folded("".join(pieces), list(accumulate(map(len, pieces))))


def fold_character(character: str) -> str:
    """Fold one character; an invisible one becomes empty."""
    return _folds[character]


def remove_controls(text: str) -> str:
    """Remove control characters, except tabs; whatever ends a line becomes a line feed."""
    if text.isprintable():  # as most lines are
        return text
    return _CONTROLS.sub("", _LINE_ENDS.sub("\n", text))


def tag_pattern(*names: str) -> str:
    """Make the pattern of opening and closing tags with these names, for folded text."""
    return rf"<\s*+(?:/\s*+)?(?:{'|'.join(names)})(?!\w)"


def escape_tags(text: str, pattern: str) -> str:
    """Remove control characters, and write the `<` of every tag that `tag_pattern` describes as `&lt;`."""
    text = remove_controls(text)
    folded = fold(text)
    if "<" not in folded.text:
        return text
    pieces: list[str] = []
    done = 0
    for match in compile_once(pattern).finditer(folded.text):
        start = folded.locate(match.start())
        pieces.append(text[done:start])
        pieces.append("&lt;")
        done = start + 1
    pieces.append(text[done:])
    return "".join(pieces)
