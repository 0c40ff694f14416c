"""Turn a provider's error response into an error of ours: overflow, busy or refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final

from holdfast.errors import ModelBusyError, ModelError, ModelOverflowError, ModelRefusedError
from holdfast.providers.overflow import is_overflow, numbers
from holdfast.redact import redact
from holdfast.text import head

__all__ = ["error_from_response", "retry_after"]

_MAX_MESSAGE_CHARS: Final = 300
_OK: Final = 200
_SERVER_ERROR: Final = 500
_BUSY: Final = frozenset({408, 409, 425, 429})
_NOT_RETRYABLE: Final = frozenset({501, 505})
_BUSY_WORDS: Final = re.compile(
    r"overloaded|rate.?limit|too many requests|throttl|tokens per min|timeout_error|\bapi_error|server_error"
    r"|internal.?error|unavailable|try again|temporar",
    re.IGNORECASE,
)
_NO_CREDIT: Final = re.compile(
    r"insufficient_quota|billing_(?:error|hard)|credit balance|payment required", re.IGNORECASE
)
_HINTS: Final = {
    401: "the key was refused: check it",
    402: "the account has no credit",
    403: "the key may not do this",
    404: "no such model or address: check the model's name and the base URL",
}


def error_from_response(
    model: str,
    *,
    status: int | None,
    body: object = None,
    headers: Mapping[str, str] | None = None,
    now: float = 0.0,
) -> ModelError:
    """Return the error that a provider's response means.

    Args:
        model: The name in the error.
        status: The HTTP status; None, or 200, where the error came in the middle of a reply.
        body: The body: parsed JSON, or text.
        headers: The headers, in any case.
        now: Seconds since 1970, for a `Retry-After` that is a date.
    """
    text = _error_text(body)
    message = _format_message(text, status)
    if is_overflow(text, status=status):
        figures = numbers(text)
        return ModelOverflowError(message, model=model, status=status, limit=figures.limit, requested=figures.requested)
    if _is_busy(text, status):
        wait = retry_after(headers or {}, text, now=now)
        return ModelBusyError(message, model=model, status=status, retry_after=wait)
    return ModelRefusedError(message, model=model, status=status)


def _is_busy(text: str, status: int | None) -> bool:
    if _NO_CREDIT.search(text):
        return False
    if status is None or status == _OK:
        return "invalid_request" not in text
    if status in _BUSY or status >= _SERVER_ERROR:
        return status not in _NOT_RETRYABLE
    return status == 413 and _BUSY_WORDS.search(text) is not None  # noqa: PLR2004 - a rate limit of tokens in disguise


def _format_message(text: str, status: int | None) -> str:
    """Return one line: the status, a hint and the beginning of the text, with secrets masked."""
    code = f"HTTP {status}" if status is not None and status != _OK else ""
    line = head(" ".join(redact(head(text, 10 * _MAX_MESSAGE_CHARS)).split()), _MAX_MESSAGE_CHARS) or "no message"
    return ": ".join(filter(None, (code, _HINTS.get(status or 0, ""), line)))


# --- the text of an error ----------------------------------------------------

_TEXT_KEYS: Final = ("code", "type", "status", "message", "detail", "error")
_NUMBER_KEYS: Final = ("n_prompt_tokens", "n_ctx")
_NO_TEXT: Final = ("", "error")
_MAX_DEPTH: Final = 4


def _error_text(body: object) -> str:
    """Return the code and the message in an error body, in any of the usual shapes."""
    if isinstance(body, str):
        with suppress(ValueError, RecursionError):
            body = json.loads(body)
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    return ": ".join(dict.fromkeys(_strings(body, depth=0)))


def _strings(value: Any, *, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        if value.strip() not in _NO_TEXT:
            yield value.strip()
    elif isinstance(value, list):
        for item in value[:3]:
            yield from _strings(item, depth=depth + 1)
    elif isinstance(value, Mapping) and depth < _MAX_DEPTH:
        for key in _TEXT_KEYS:
            yield from _strings(value.get(key), depth=depth + 1)
        yield from (f"{key}={value[key]}" for key in _NUMBER_KEYS if key in value)


# --- Retry-After -------------------------------------------------------------

_RETRY_TEXT: Final = re.compile(
    r"(?:try again in|retry in|retrydelay\W{1,5}) ?(?:(\d+)m)?(\d+(?:\.\d+)?)(ms|s)", re.IGNORECASE
)
_MAX_WAIT: Final = 86_400.0


def retry_after(headers: Mapping[str, str], text: str = "", *, now: float = 0.0) -> float | None:
    """Return the seconds that the provider asks to wait, from its headers or else from its text."""
    lowered = {name.lower(): value for name, value in headers.items()}
    after = lowered.get("retry-after")
    waits = (_seconds(lowered.get("retry-after-ms"), scale=0.001), _seconds(after), _seconds_until(after, now=now))
    wait = next((wait for wait in waits if wait is not None), None)
    if wait is not None or (match := _RETRY_TEXT.search(text)) is None:
        return wait
    minutes, amount, unit = match.groups()
    return 60.0 * int(minutes or 0) + float(amount) * (0.001 if unit.lower() == "ms" else 1.0)


def _seconds(value: str | None, *, scale: float = 1.0) -> float | None:
    try:
        wait = float(value or "") * scale
    except ValueError:
        return None
    return min(wait, _MAX_WAIT) if wait >= 0 else None


def _seconds_until(value: str | None, *, now: float) -> float | None:
    try:
        moment = parsedate_to_datetime(value or "")
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(max(0.0, moment.timestamp() - now), _MAX_WAIT)
