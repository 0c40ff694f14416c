"""Find what a text says against a part of it: "# Proposal (rejected)", "The following claims are all wrong.".

Without that, an excerpt would say the opposite.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from holdfast.search.passages import SENTENCE_END

MAX_CAVEAT_CHARS: Final = 200
"""A longer sentence is not quoted with an excerpt."""
MAX_DISTANCE_CHARS: Final = 800
"""How far a sentence about what follows, or about what stands above, may be from the excerpt."""
_DENIED: Final = re.compile(
    r"(?<!\bnot )\b(?:wrong|false|invalid|incorrect|untrue|rejected|obsolete|outdated|deprecated|superseded|withdrawn"
    r"|cancell?ed"
    r"|no longer (?:valid|true|holds?|appl(?:y|ies)|used)|not (?:valid|true|approved)"
    r"|falsch|abgelehnt|veraltet|ungültig|verworfen|nicht mehr gültig)\b"
    r"|错的|错误的|不正确|作废|废弃|过时|被拒绝|否决|无效|不再有效|誤り|間違い|却下|廃止|無効|잘못된|폐기|무효",
    re.IGNORECASE,
)
_BELOW: Final = re.compile(r"\b(?:following|below|these|folgende\w*)\b|以下|下面|次の|下記|다음|아래", re.IGNORECASE)
_ABOVE: Final = re.compile(
    r"\b(?:above|(?:all|none) of (?:this|these|those|that)|everything here)\b|以上|上面|上述|上記|위의", re.IGNORECASE
)
_HEADING: Final = re.compile(r"^(?:(?P<marks>#{1,6})\s.*|[^\n]{1,120}[:：])[ \t]*$", re.MULTILINE)
_FENCE: Final = "```"
_LOWEST: Final = 7
"""The level of a line that ends with a colon. That of a heading is the number of its marks."""


@dataclass(frozen=True, slots=True)
class Caveats:
    """What a text says against a part of it, before and after that part."""

    before: str = ""
    after: str = ""

    def add_to(self, excerpt: str) -> str:
        """Put an excerpt between them."""
        return "\n…\n".join(filter(None, (self.before, excerpt, self.after)))


_NONE: Final = Caveats()


def find_caveats(text: str, start: int, stop: int) -> Caveats:
    """Find what a text says against the part from `start` to `stop`."""
    denials = _find_denials(text)
    if not any(place < start or place >= stop for place in denials):
        return _NONE
    before = _find_heading(text, start) or _find_sentence(text, start - MAX_DISTANCE_CHARS, start, _BELOW, is_last=True)
    after = _find_sentence(text, stop, stop + MAX_DISTANCE_CHARS, _ABOVE, is_last=False)
    return Caveats(before=before, after=after)


@lru_cache(maxsize=1024)
def _find_denials(text: str) -> tuple[int, ...]:
    """Find where a text says that something is wrong. Most texts do not, and are quoted in many recalls."""
    return tuple(match.start() for match in _DENIED.finditer(text))


def _find_heading(text: str, start: int) -> str:
    """Return the heading that says that what is below is wrong: of a section around a place, or a line above it."""
    around: dict[int, str] = {}  # by level, the highest first
    for match in _HEADING.finditer(text, 0, start):
        level = len(match["marks"] or "") or _LOWEST
        if text.count(_FENCE, 0, match.start()) % 2 == 1:  # a comment in code
            continue
        around = {other: heading for other, heading in around.items() if other < level}
        # A line that ends with a colon is about the next paragraph.
        if level < _LOWEST or "\n\n" not in text[match.end() : start].strip():
            around[level] = match[0].strip()
    short = [heading for heading in around.values() if len(heading) <= MAX_CAVEAT_CHARS]
    return next(filter(_DENIED.search, short), "")


def _find_sentence(text: str, start: int, stop: int, pattern: re.Pattern[str], *, is_last: bool) -> str:
    """Return the first or the last sentence of a part of a text that says that other sentences are wrong."""
    start = max(0, start)
    stop = min(len(text), stop)
    found = ""
    for end in (*(match.end() for match in SENTENCE_END.finditer(text, start, stop)), stop):
        sentence = text[start:end].strip()
        start = end
        if len(sentence) <= MAX_CAVEAT_CHARS and pattern.search(sentence) and _DENIED.search(sentence):
            found = sentence
            if not is_last:
                break
    return found
