"""Request bodies of clients that send their whole history: what is read from one, and what a window changes in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.messages import Message
from holdfast.providers import render_request
from holdfast.providers.overflow import believe, numbers
from holdfast.providers.wire import leading_system
from holdfast.window import Window

OVERFLOW_STATUSES: Final = frozenset({400, 413, 422, 500})
"""Statuses of replies that may say that the window does not fit."""
REPLY_FIELDS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
SHRINK: Final = 0.8
"""The share of a window that was refused which the next one may take."""


def is_continued(body: Mapping[str, Any]) -> bool:
    """Whether the provider has the earlier messages, so that the body contains only what is new."""
    return bool(body.get("previous_response_id") or body.get("conversation"))


def reply_reserve(body: Mapping[str, Any], *, limit: int) -> int | None:
    """Return the tokens that a request keeps for the reply, where that leaves room for a prompt."""
    given = next((body[key] for key in REPLY_FIELDS if isinstance(body.get(key), int)), 0)
    return given if 0 < given <= limit // 2 else None


def changed_fields(
    body: Mapping[str, Any], messages: Sequence[Message], window: Sequence[Message], *, format: str
) -> dict[str, Any]:
    """Return the fields of a body that the window of its messages changes. A system prompt without edits stays."""
    if _is_unchanged(messages, window):
        return {}
    # What the system field is made of: a system message in the middle may have become a part of it.
    prompt, sent_prompt = (given[: leading_system(given, format)] for given in (messages, window))
    kept = {"system", "instructions"} if prompt == sent_prompt else set()
    fields = render_request(window, format)
    return {key: value for key, value in fields.items() if key not in kept and body.get(key) != value}


def _is_unchanged(messages: Sequence[Message], window: Sequence[Message]) -> bool:
    """Whether both have the same parts, also where a system message in the middle is moved, or sent as the user's."""
    system = [message.parts for message in messages if message.role == "system"]
    before, after = ([one.parts for one in given if one.parts not in system] for given in (messages, window))
    return before == after and all(parts in [message.parts for message in window] for parts in system)


def smaller_limit(limit: int, window: Window | None, error: str) -> int:
    """Return a limit below the window that was refused, and at most the one that the provider states."""
    if window is None:
        stated = believe(numbers(error), sent=limit).limit or limit
        return min(stated, int(SHRINK * limit))
    report = window.report
    sent = int(report.total_tokens * report.token_scale)
    stated = believe(numbers(error), sent=sent).limit or limit
    return min(stated, int(SHRINK * sent) + report.reserved_tokens)
