"""The lines of a memory-context folder that its database does not have yet.

They are copied in order, in the background. Until then a reader finds in them what it needs first: the lines of a
session, those of certain numbers, or those with the words of a question.
"""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Final

import msgspec

from holdfast.transcripts.lines import parse_line

_MIN_CUT: Final = 4
"""Stems of this length are looked for without their last letter: `memori` is the stem of `memory`."""
_ACCENTED: Final = re.compile("[\u00c0-\u024f\u1e00-\u1eff\uff01-\uff5e]")
"""Letters that terms have without their accents or their width."""
_ACCENTS: Final = re.compile("[\u0300-\u036f]")


class _Owner(msgspec.Struct):
    """The session of a line; the rest of the line is skipped."""

    sessionId: str = ""  # noqa: N815 - the plugin's name


@dataclass(kw_only=True)
class Backlog:
    """The rest of a file as it was when it was read.

    Attributes:
        identity: The device and inode of the file.
        offset: Where the first line begins in it.
        lines: The lines, each with its line end.
        first_number: The number of the message of the first line. Every line has its own, so that messages are in the
            order of the file whichever of them are copied first.
        copied: The places of lines that were copied before their turn.
    """

    identity: tuple[int, int]
    offset: int
    lines: Sequence[bytes] = field(repr=False)
    first_number: int
    copied: set[int] = field(default_factory=set)

    @cached_property
    def _offsets(self) -> list[int]:
        return list(accumulate(map(len, self.lines), initial=self.offset))

    def offset_of(self, place: int) -> int:
        """Return the offset of a line in the file; after the last one, the end of the backlog."""
        return self._offsets[place]

    def place_of(self, offset: int) -> int:
        """Return the place of the first line that begins at an offset in the file or after it."""
        return min(bisect_left(self._offsets, offset), len(self.lines))

    def places_of_numbers(self, numbers: Iterable[int]) -> list[int]:
        """Return the places of the messages with these numbers, as far as they are here."""
        places = (number - self.first_number for number in numbers)
        return sorted({place for place in places if 0 <= place < len(self.lines)})

    def places_of_session(self, session: str) -> Sequence[int]:
        """Return the places of the lines of a session."""
        return self._sessions.get(session, ())

    @cached_property
    def _sessions(self) -> Mapping[str, Sequence[int]]:
        decoder = msgspec.json.Decoder(_Owner)
        places: dict[str, list[int]] = defaultdict(list)
        for place, raw in enumerate(self.lines):
            try:
                session = decoder.decode(raw).sessionId
            except (msgspec.DecodeError, UnicodeDecodeError):  # the slower reader accepts some invalid JSON too
                session = str((parse_line(raw, 0).data or {}).get("sessionId"))
            places[session].append(place)
        return places

    def places_with(self, terms: Mapping[str, float], *, without: Collection[int], limit: int) -> list[int]:
        """Return the places of lines that have most of the words of a question, rare words first.

        It errs on the side of too many: what is copied because of it is searched like the rest.
        """
        if not terms:
            return []
        matches: dict[str, list[int]] = {}
        for term in terms:
            needle = term[:-1] if term.isascii() and len(term) >= _MIN_CUT else term
            matches[term] = [place for place, text in enumerate(self._texts) if needle in text]
        scores: dict[int, float] = defaultdict(float)
        for term, places in matches.items():
            rarity = math.log1p(len(self.lines) / max(1, len(places)))
            for place in places:
                scores[place] += terms[term] * rarity
        found = [place for place in scores if place not in without]
        best = sorted(found, key=lambda place: (-scores[place], -place))
        return sorted(best[:limit])

    @cached_property
    def _texts(self) -> list[str]:
        """The text of each line, folded roughly as terms are. To make them takes longer than to look into them."""
        return [_fold(raw) for raw in self.lines]


def _fold(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    if "\\u" in text:  # letters are written as escapes
        text = str((parse_line(raw, 0).data or {}).get("content"))
    if text.isascii():
        return text.lower()
    if _ACCENTED.search(text):
        text = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))
    return text.casefold()
