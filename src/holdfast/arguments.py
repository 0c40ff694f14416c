"""Checks of the arguments of public methods: a wrong type is an InputError that says what to give."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from holdfast.errors import FormatError, InputError

_MAX_SHOWN_CHARS: Final = 60


def make_error(name: str, value: object, words: str) -> InputError:
    """Make the error for a value of the wrong type; `words` say what to give."""
    shown = repr(value)
    if len(shown) > _MAX_SHOWN_CHARS:
        shown = f"{shown[:_MAX_SHOWN_CHARS]}…"
    return InputError(f"{name}={shown}: give {words}")


def require_type(kind: type | tuple[type, ...], words: str, **values: object) -> None:
    """Raise an InputError for the first value that is not of a type; `words` say what to give."""
    for name, value in values.items():
        if not isinstance(value, kind):
            raise make_error(name, value, words)


def require_text(**values: object) -> None:
    """Raise an InputError for the first value that is no text."""
    require_type(str, "text", **values)


def require_count(*, least: int = 0, **values: object) -> None:
    """Raise an InputError for the first value that is no whole number, or less than `least`."""
    for name, value in values.items():
        if type(value) is not int or value < least:
            raise make_error(name, value, f"a whole number, at least {least}")


def require_list(kind: type, words: str, **values: object) -> None:
    """Raise an InputError for the first value that is no list of a type; `words` say what to give."""
    for name, value in values.items():
        if isinstance(value, str | bytes) or not isinstance(value, Collection):
            raise make_error(name, value, words)
        for item in value:
            if not isinstance(item, kind) or isinstance(item, bool):
                raise make_error(name, value, words)


def require_numbers(**values: object) -> None:
    """Raise an InputError for the first value that is no list of message numbers."""
    require_list(int, "a list of message numbers, such as [3, 4]", **values)


def require_texts(**values: object) -> None:
    """Raise an InputError for the first value that is no list of texts."""
    require_list(str, 'a list of texts, such as ["..."]', **values)


def require_messages(messages: Any) -> None:
    """Raise a FormatError if messages are no list; what is in it is checked when it is read."""
    if not isinstance(messages, Collection):
        raise FormatError(f"expected a list of messages, found {type(messages).__name__}", where="messages")
