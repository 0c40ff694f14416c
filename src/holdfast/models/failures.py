"""What it means when a provider gives no answer: too long, busy, or refused.

Pure: from the status, the body and the headers of an answer to the error that the caller gets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final

from holdfast.errors import ModelBusyError, ModelError, ModelOverflowError, ModelRefusedError
from holdfast.providers.overflow import is_overflow, numbers
from holdfast.redact import redact
from holdfast.text import head

__all__ = ["failure", "retry_after"]

_EXCERPT: Final = 300
_OK: Final = 200
_SERVER_ERROR: Final = 500
_BUSY: Final = frozenset({408, 409, 425, 429})
_NEVER_BETTER: Final = frozenset({501, 505})
_BUSY_WORDS: Final = re.compile(
    r"overloaded|rate.?limit|too many requests|throttl|tokens per min|timeout_error|\bapi_error|server_error"
    r"|internal.?error|unavailable|try again|temporar",
    re.IGNORECASE,
)
_UNPAID: Final = re.compile(r"insufficient_quota|billing_(?:error|hard)|credit balance|payment required", re.IGNORECASE)
_HINTS: Final = {
    401: "the key was refused: check it",
    402: "the account has no credit",
    403: "the key may not do this",
    404: "no such model or address: check the model's name and the base URL",
}


def failure(
    model: str,
    *,
    status: int | None,
    body: object = None,
    headers: Mapping[str, str] | None = None,
    now: float = 0.0,
) -> ModelError:
    """The error that a provider's answer stands for.

    Args:
        model: Who was asked.
        status: The HTTP status; None, or 200, where the error came in the middle of an answer.
        body: What was said: JSON as it was read, or text.
        headers: The answer's headers, in any case.
        now: Seconds since 1970, for a time to come back that is given as a date.
    """
    said = _said(body)
    shown = _shown(said, status)
    if is_overflow(said, status=status):
        told = numbers(said)
        return ModelOverflowError(shown, model=model, status=status, limit=told.limit, requested=told.requested)
    if _is_busy(said, status):
        wait = retry_after(headers or {}, said, now=now)
        return ModelBusyError(shown, model=model, status=status, retry_after=wait)
    return ModelRefusedError(shown, model=model, status=status)


def _is_busy(said: str, status: int | None) -> bool:
    if _UNPAID.search(said):
        return False
    if status is None or status == _OK:
        return "invalid_request" not in said
    if status in _BUSY or status >= _SERVER_ERROR:
        return status not in _NEVER_BETTER
    return status == 413 and _BUSY_WORDS.search(said) is not None  # noqa: PLR2004 - a rate limit of tokens in disguise


def _shown(said: str, status: int | None) -> str:
    """One line for a person: the status, a hint, and what was said, without keys."""
    code = f"HTTP {status}" if status is not None and status != _OK else ""
    line = head(" ".join(redact(head(said, 10 * _EXCERPT)).split()), _EXCERPT) or "nothing was said"
    return ": ".join(filter(None, (code, _HINTS.get(status or 0, ""), line)))


# --- what was said -----------------------------------------------------------

_WORDS: Final = ("code", "type", "status", "message", "detail", "error")
_EMPTY: Final = ("", "error")
_FIGURES: Final = ("n_prompt_tokens", "n_ctx")


def _said(body: object) -> str:
    """The code and the message in an error's body, whichever of the usual shapes it has."""
    if isinstance(body, str):
        body = _parsed(body)
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    return ": ".join(dict.fromkeys(_words(body, depth=0)))


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _words(value: Any, *, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        if value.strip() not in _EMPTY:
            yield value.strip()
    elif isinstance(value, list):
        for item in value[:3]:
            yield from _words(item, depth=depth + 1)
    elif isinstance(value, Mapping) and depth < 4:  # noqa: PLR2004 - errors inside of errors end somewhere
        for key in _WORDS:
            yield from _words(value.get(key), depth=depth + 1)
        yield from (f"{key}={value[key]}" for key in _FIGURES if key in value)


# --- when to come back -------------------------------------------------------

_IN_WORDS: Final = re.compile(
    r"(?:try again in|retry in|retrydelay\W{1,5}) ?(?:(\d+)m)?(\d+(?:\.\d+)?)(ms|s)", re.IGNORECASE
)
_LONGEST: Final = 86_400.0


def retry_after(headers: Mapping[str, str], said: str = "", *, now: float = 0.0) -> float | None:
    """Seconds that the provider asks to wait: from its headers, else from its words."""
    named = {name.lower(): value for name, value in headers.items()}
    wait = _seconds(named.get("retry-after-ms"), scale=0.001)
    if wait is None:
        wait = _seconds(named.get("retry-after"))
    if wait is None:
        wait = _until(named.get("retry-after"), now=now)
    return wait if wait is not None else _from_words(said)


def _seconds(value: str | None, *, scale: float = 1.0) -> float | None:
    try:
        wait = float(value or "") * scale
    except ValueError:
        return None
    return min(wait, _LONGEST) if wait >= 0 else None


def _until(value: str | None, *, now: float) -> float | None:
    try:
        moment = parsedate_to_datetime(value or "")
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(max(0.0, moment.timestamp() - now), _LONGEST)


def _from_words(said: str) -> float | None:
    found = _IN_WORDS.search(said)
    if found is None:
        return None
    minutes, amount, unit = found.groups()
    return 60.0 * int(minutes or 0) + float(amount) * (0.001 if unit.lower() == "ms" else 1.0)
