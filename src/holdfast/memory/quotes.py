"""Quotes: whether words that are given as proof really stand in what was said."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from holdfast.text import is_unsegmented

__all__ = ["in_other_script", "is_quoted", "missing_numbers", "plain"]

_LOOSE: Final = re.compile(r"[\s\u200b\ufeff*`_~]+")
_SAME: Final = str.maketrans("“”„«»‘’‚′–—−…", '"""""' + "''''" + "---" + ".", "")
_NUMBER: Final = re.compile(r"\d+(?:[.,:]\d+)*")
_LEAST: Final = 6
_CHARACTER: Final = 3


def plain(text: str) -> str:
    """A text as it is compared: without width, case, spaces, marks of emphasis and kinds of quotation marks."""
    return _LOOSE.sub("", unicodedata.normalize("NFKC", text).translate(_SAME).casefold()).replace("..", ".")


def is_quoted(quote: str, said: str) -> bool:
    """Tell whether a quote stands in `said` (made `plain` already); a few letters prove nothing."""
    words = plain(quote)
    weight = sum(_CHARACTER if is_unsegmented(character) else 1 for character in words)
    return weight >= _LEAST and words in said


def missing_numbers(content: str, said: str) -> list[str]:
    """The numbers of a fact that nobody said (`said` made `plain` already)."""
    digits = set(_NUMBER.findall(said))
    whole = [number.strip(".,:") for number in _NUMBER.findall(unicodedata.normalize("NFKC", content))]
    return [number for number in whole if number not in digits and number not in said]


def in_other_script(content: str, quote: str) -> bool:
    """Tell whether a fact is told in Latin letters though what it quotes is not, or the other way round."""
    return (_share(quote) > 0.5 and _share(content) == 0) or (_share(quote) == 0 and _share(content) > 0.5)  # noqa: PLR2004


def _share(text: str) -> float:
    letters = [character for character in text if character.isalpha()]
    return sum(map(is_unsegmented, letters)) / len(letters) if letters else 0.0
