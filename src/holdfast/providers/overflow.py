"""Recognise a provider's error that says that a request does not fit the model's context window.

Every provider words it differently, and rate limits use many of the same words. Only errors are examined, never
replies, and text that an error quotes from the request is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from holdfast.messages import Usage

__all__ = ["Numbers", "is_overflow", "is_silent_overflow", "numbers"]

MAX_ERROR_CHARS: Final = 4_000
"""Characters of an error that are examined. What is longer quotes the request."""

_OTHER_STATUSES: Final = frozenset({401, 402, 403, 404, 405, 408, 409, 425, 429, 503, 504, 529})
"""HTTP statuses that never mean an overflow."""
_STATUSES_WITHOUT_BODY: Final = frozenset({400, 413})
"""HTTP statuses by which some providers report an overflow without a body."""


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE | re.DOTALL)


_OVERFLOW: Final = _any(
    # about the prompt
    r"prompt (?:is )?too long",
    r"input is too long for (?:the )?(?:requested )?model",
    r"input is too large to process",
    r"too many input tokens",
    r"expected maxLength: [\d,]+, actual: [\d,]+",
    r"(?:prompt|tokens)\b.{0,30}\bexceeds? (?:the )?max(?:imum)? (?:input )?length",
    r"tokens in request more than max tokens allowed",
    r"must have less than [\d,]+ tokens",
    r"exceed max message tokens",
    r"input token count.{0,80}exceeds the maximum",
    r"maximum prompt length is [\d,]+",
    r"decoder prompt .{0,40}longer than the maximum model length",
    r"reduce the length of the (?:messages|input|prompt)",
    r"prompt contains [\d,]+ tokens.{0,80}too large",
    r"input length.{0,80}exceed.{0,40}context",
    r"range of input length should be",
    r"tokens \+ .{0,30}must be <= \d",
    r"input tokens? exceed",
    # about the window
    r"maximum context length (?:is|of) [\d,]+",
    r"too large for model with [\d,]+ maximum context length",
    r"exceeds? (?:the )?(?:model'?s? )?(?:maximum )?context (?:window|length)",
    r"exceeds? the model's maximum context",
    r"exceeded (?:the )?max(?:imum)? context length",
    r"longer than the model'?s context length",
    r"context size (?:has been|was) exceeded",
    r"but the configured context size is [\d,]+",
    r"exceeds? the available context size",
    r"exceeds? (?:the )?context limit",
    r"greater than the context length",
    r"context window exceeds (?:the )?limit",
    r"context window.{0,40}ran out of (?:room|space)",
    r"ran out of (?:room|space).{0,40}context window",
    r"request size exceeds.{0,80}context window",
    r"context overflow:",
    r"max_tokens.{0,80}exceed.{0,80}context",
    # about tokens
    r"exceeds the limit of [\d,]+",
    r"exceeded model token limit|model token limit",
    r"too many tokens",
    r"token limit exceeded",
    r"size limit exceeded by [\d,]+ tokens",
    r"invalid_argument.{0,200}maximum number of tokens",
    # about the size of the body
    r"request_too_large",
    r"request exceeds the maximum size",
    # codes
    r"context[_ ]length[_ ]exceeded",
    r"(?:model_)?context_window_exceeded",
    r"exceed_context_size_error",
    # in Chinese
    r"上下文过长|上下文超出|上下文长度超|超出最大上下文|请压缩上下文",
)

_SOMETHING_ELSE: Final = _any(
    # a rate limit, a quota, a bill
    r"tokens? per (?:second|min(?:ute)?|hour|day)",
    r"\bTP[MDH]\b",
    r"rate[ _-]?limit",
    r"too many requests",
    r"throttl",
    r"please wait before",
    r"service unavailable",
    r"quota",
    r"billing|credit balance|insufficient (?:funds|credits?|balance)",
    # a model that is too small for its host, or requires reasoning
    r"context window.{0,60}(?:too small|minimum is)",
    r"reasoning is (?:mandatory|required)|requires reasoning|reasoning.{0,40}cannot be disabled",
    # another limit than the window's
    r"\b(?:images?|files?|tools?|pages?|documents?|functions?|stop sequences|max_(?:completion_|output_)?tokens)\b"
    r".{0,40}exceeds the limit of",
)

_TOO_LARGE: Final = _any(r"too large|no body")
_BARE: Final = re.compile(r"\s*4(?:00|13)\s*(?:status code)?\s*\(no body\)", re.IGNORECASE)
_QUOTED: Final = re.compile(
    r"""(?P<field>["'](?:message|type|code)["']\s*:\s*)?(?<!\w)"""
    r"""(?:"[^"\n]{1,2000}"|'[^'\n]{1,2000}'(?!\w)|`[^`\n]{1,2000}`|“[^”]{1,2000}”|「[^」]{1,2000}」)""",
    re.IGNORECASE,
)


def is_overflow(text: str, *, status: int | None = None) -> bool:
    """Whether a provider's error says that the request does not fit the window.

    Args:
        text: Its code and message; empty where there was no body.
        status: The HTTP status, where there is one.
    """
    if status in _OTHER_STATUSES:
        return False
    words = _remove_quotations(text[:MAX_ERROR_CHARS])
    if _SOMETHING_ELSE.search(words):
        return False
    if _BARE.match(words) or (status in _STATUSES_WITHOUT_BODY and not text.strip()):
        return True
    if (status == 413 or re.match(r"\s*413\b", words)) and _TOO_LARGE.search(words):  # noqa: PLR2004 - an HTTP status
        return True
    return _OVERFLOW.search(words) is not None


def _remove_quotations(text: str) -> str:
    """Return a text without its quotations; the `message`, `type` and `code` of an error are none."""
    return _QUOTED.sub(lambda match: match[0] if match["field"] else " ", text)


def is_silent_overflow(usage: Usage | None, *, context_tokens: int) -> bool:
    """Whether a provider accepted more than the window holds: then it left something out without an error."""
    return usage is not None and usage.input + usage.cache_read + usage.cache_write > context_tokens


# --- numbers -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """How many tokens fit and how many were requested, by an error; None where it does not say."""

    limit: int | None = None
    requested: int | None = None


_N: Final = r"(\d[\d,_]{0,19})"
_BOTH: Final = tuple(  # the requested tokens come first
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_N}(?: tokens?)? ?> ?{_N}(?: maximum)?",
        rf"token count \({_N}\) exceeds .{{0,60}}\({_N}\)",
        rf"token count of {_N} exceeds the limit of {_N}",
        rf"request \({_N} tokens\) exceeds .{{0,60}}\({_N} tokens\)",
        rf"prompt contains {_N} tokens.{{0,120}}model with {_N}",
        rf"\(length {_N}\).{{0,60}}length of {_N}",
        rf"\({_N} tokens\) is longer than .{{0,60}}\({_N} tokens\)",
        rf"prompt length \({_N}\) exceeds .{{0,60}}\({_N}\)",
        rf"prompt has {_N} tokens?, but .{{0,60}}is {_N}",
        rf"n_prompt_tokens\W{{1,4}}{_N}.{{0,40}}n_ctx\W{{1,4}}{_N}",
    )
)
_SUM: Final = re.compile(rf"{_N} ?\+ ?{_N} ?> ?{_N}")
_LIMITS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"maximum context length (?:is|of) {_N}",
        rf"maximum prompt length is {_N}",
        rf"model with {_N} maximum context length",
        rf"token limit:? {_N}",
        rf"cannot exceed {_N}",
        rf"max input tokens: {_N}",
        rf"must have less than {_N} tokens",
        rf"must be <= {_N}",
        rf"exceeds the limit of {_N}",
        rf"input length should be \[\d+, ?{_N}\]",
    )
)
_REQUESTS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"requested:? (?:about )?{_N}",
        rf"resulted in {_N} tokens",
        rf"request (?:contains|has) {_N}",
        rf"given: {_N}",
        rf"request input token count: {_N}",
        rf"- received {_N}",
    )
)


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


def _first(patterns: Iterable[re.Pattern[str]], words: str) -> int | None:
    matches = (pattern.search(words) for pattern in patterns)
    return next((_number(match[1]) for match in matches if match), None)


def _number(digits: str) -> int:
    return int(digits.replace(",", "").replace("_", ""))
