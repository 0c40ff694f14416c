"""Search long text in steps: while `re` searches, no other thread of the process runs.

A pattern takes up to a quarter of a microsecond for each character. A request with a line of 60 MB would stop all
others for 15 seconds, although it is masked in a thread of its own.
"""

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["find_all", "find_first"]

STEP_CHARS: Final = 2**19
"""Where matches may begin in one step."""
REACH_CHARS: Final = 2**17
"""Characters read after that: more than the longest match of a pattern that needs an ending, such as a private key."""


def find_all(
    pattern: re.Pattern[str], text: str, start: int = 0, *, step: int = STEP_CHARS, reach: int = REACH_CHARS
) -> Iterator[re.Match[str]]:
    """Yield the matches that `pattern.finditer` yields."""
    if len(text) - start <= step + reach:
        return pattern.finditer(text, start)
    return _find_in_steps(pattern, text, start, step=step, reach=reach)


def find_first(pattern: re.Pattern[str], text: str, start: int = 0) -> re.Match[str] | None:
    """Return the match that `pattern.search` returns."""
    return next(find_all(pattern, text, start), None)


def _find_in_steps(
    pattern: re.Pattern[str], text: str, place: int, *, step: int, reach: int
) -> Iterator[re.Match[str]]:
    while place + step + reach < len(text):
        last = place + step
        end = last + reach
        match: re.Match[str] | None = pattern.search(text, place, end)
        if match is None or match.start() >= last:
            place = last
            continue
        if match.end() > last:  # the end of the step may have cut it, or looked like the end of the text
            whole = pattern.match(text, match.start())
            if whole is None:
                place = match.start() + 1
                continue
            match = whole
        yield match
        place = max(match.end(), match.start() + 1)
    yield from pattern.finditer(text, place)
