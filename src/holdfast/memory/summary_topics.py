"""What a summary says that a conversation was about, and whether a text is a part that begins within a sentence."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import Final

from holdfast.memory.archive import is_noise
from holdfast.patterns import compile_once, load

_MAX_CHARS: Final = 20_000
"""The maximum characters of a summary that are read."""
_HEADING: Final = r"^[ \t#*\-\d.()<\[]{{0,40}}{words}[ \t]*(?:[*_]*[:：>][*_]*|[*_\]]*$)[ \t]*(?P<rest>[^\n]*)"
_BULLET: Final = re.compile(r"^(?:[-*•>\s]|\d{1,2}[.)]\s|\[[ xX~]?\])+")
_NO_SENTENCE: Final = re.compile(r"^(?:#|<[^>]*>?$|```|\|)|[:：>]\W*$")
"""A heading, a tag, the beginning of a block or of a table, or what announces the next line."""
_CUT: Final = re.compile(r"^(?:[)\]}）】」』，。、；]|[,;]\s)|^[^(\[{（【「『\n]*[^\W\d_]{3}[)\]}）】」』]")
"""A closing bracket that was never opened, after a word and not after the number of a point; or a comma at first."""


def is_part(text: str) -> bool:
    """Return whether a text of several lines begins within a sentence, as a pasted end of a longer text does."""
    return "\n" in text.strip() and _CUT.search(text.strip()) is not None


def find_topic(summary: str) -> str:
    """Return the sentence of a summary that says what it is about; empty if it has no sentence.

    That is the line after the heading for it, or else for the next steps, or else the first whole sentence.
    """
    text = summary[:_MAX_CHARS].strip()
    sentences = _list_sentences(text)
    places = [place for place, _ in sentences]
    for words in load("summaries")["headings"].values():
        for heading in compile_once(_HEADING.format(words=words), re.IGNORECASE | re.MULTILINE).finditer(text):
            after = bisect_left(places, heading.end())
            below = [sentence for _, sentence in sentences[after : after + 1]]
            for sentence in (_read_sentence(heading["rest"]), *below):
                if sentence:
                    return sentence
    first = int(is_part(text))
    return next((sentence for _, sentence in sentences[first:]), "")


def _list_sentences(text: str) -> list[tuple[int, str]]:
    """List the lines that are sentences, each with its place in the text."""
    found: list[tuple[int, str]] = []
    place = 0
    for line in text.splitlines(keepends=True):
        sentence = _read_sentence(line)
        if sentence:
            found.append((place, sentence))
        place += len(line)
    return found


def _read_sentence(line: str) -> str:
    """Return a line without the marks of Markdown; empty if it is no sentence."""
    bare = _BULLET.sub("", line.strip()).replace("**", "").replace("`", "").strip()
    if _NO_SENTENCE.search(bare) or is_noise(bare):
        return ""
    return bare
