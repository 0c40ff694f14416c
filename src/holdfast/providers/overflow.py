"""Recognise a provider's error about a request that does not fit the model's context window.

Every provider words it differently, and rate limits use many of the same words: the patterns are in `overflow.toml`.
Only errors are examined, never replies, and text that an error quotes from the request is ignored.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.messages import Usage

MAX_ERROR_CHARS: Final = 4_000
"""How many characters of an error are examined. A longer error quotes the request."""

_OTHER_STATUSES: Final = frozenset({401, 402, 403, 404, 405, 408, 409, 425, 429, 503, 504, 529})
"""HTTP statuses that never mean an overflow."""
_STATUSES_WITHOUT_BODY: Final = frozenset({400, 413})
"""HTTP statuses by which some providers report an overflow without a body."""

MIN_WINDOW_TOKENS: Final = 512
"""No model has a smaller window: a smaller number in an error is the limit of something else."""
MAX_COUNT_RATIO: Final = 4
"""A provider counts at most this many tokens for each one that we count."""

_NUMBER: Final = r"(\d[\d,_]{0,19})"
_PATTERNS: Final[dict[str, list[str]]] = tomllib.loads(Path(__file__).with_name("overflow.toml").read_text("utf-8"))
_OVERFLOW, _SOMETHING_ELSE = (
    re.compile("|".join(f"(?:{pattern})" for pattern in _PATTERNS[key]), re.IGNORECASE | re.DOTALL)
    for key in ("overflow", "something_else")
)
_BOTH, _LIMITS, _REQUESTS = (
    [re.compile(pattern.replace("N", _NUMBER), re.IGNORECASE) for pattern in _PATTERNS[key]]
    for key in ("both", "limits", "requests")
)
_TOO_LARGE: Final = re.compile(r"too large|no body", re.IGNORECASE)
_BARE: Final = re.compile(r"\s*4(?:00|13)\s*(?:status code)?\s*\(no body\)", re.IGNORECASE)
_QUOTED: Final = re.compile(
    r"""(?P<field>["'](?:message|type|code)["']\s*:\s*)?(?<!\w)"""
    r"""(?:"[^"\n]{1,2000}"|'[^'\n]{1,2000}'(?!\w)|`[^`\n]{1,2000}`|“[^”]{1,2000}”|「[^」]{1,2000}」)""",
    re.IGNORECASE,
)
_SUM: Final = re.compile(rf"{_NUMBER} ?\+ ?{_NUMBER} ?> ?{_NUMBER}")


def is_overflow(text: str, *, status: int | None = None) -> bool:
    """Return whether a provider's error, by its code and message, means that the request does not fit the window."""
    if status in _OTHER_STATUSES:
        return False
    # The `message`, `type` and `code` of an error are no quotations.
    words = _QUOTED.sub(lambda match: match[0] if match["field"] else " ", text[:MAX_ERROR_CHARS])
    if _SOMETHING_ELSE.search(words):
        return False
    if _BARE.match(words) or (status in _STATUSES_WITHOUT_BODY and not text.strip()):
        return True
    if (status == 413 or re.match(r"\s*413\b", words)) and _TOO_LARGE.search(words):  # noqa: PLR2004 - an HTTP status
        return True
    return _OVERFLOW.search(words) is not None


def is_silent_overflow(usage: Usage | None, *, context_tokens: int) -> bool:
    """Return whether a provider accepted more than the window holds: then it left something out without an error."""
    return usage is not None and usage.input + usage.cache_read + usage.cache_write > context_tokens


class Numbers(NamedTuple):
    """The tokens that fit and the tokens that were requested, as an error reports them; None if it does not."""

    limit: int | None = None
    requested: int | None = None


def numbers(text: str) -> Numbers:
    """Read the token counts in an overflow error."""
    words = text[:MAX_ERROR_CHARS]
    if total := _SUM.search(words):
        first, second, limit = map(_number, total.groups())
        return Numbers(limit=limit, requested=first + second)
    for pattern in _BOTH:
        if pair := pattern.search(words):
            requested, limit = map(_number, pair.groups())
            return Numbers(limit=limit, requested=requested)
    return Numbers(limit=_first(_LIMITS, words), requested=_first(_REQUESTS, words))


def believe(found: Numbers, *, sent: int) -> Numbers:
    """Return those numbers of an error that can be true of a request which we count as `sent` tokens.

    Errors contain other numbers too: bytes, the limit of something else, an example.
    """
    limit = found.limit
    requested = found.requested
    if limit is not None and requested is not None and requested <= limit:
        return Numbers()  # that would fit
    if limit is not None and limit < MIN_WINDOW_TOKENS:
        limit = None
    if requested is not None and requested > MAX_COUNT_RATIO * sent:
        requested = None
    return Numbers(limit=limit, requested=requested)


def _first(patterns: list[re.Pattern[str]], words: str) -> int | None:
    matches = (pattern.search(words) for pattern in patterns)
    return next((_number(match[1]) for match in matches if match), None)


def _number(digits: str) -> int:
    return int(digits.replace(",", "").replace("_", ""))
