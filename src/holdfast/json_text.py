"""Decode JSON."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec


def decode_json(text: str | bytes | bytearray) -> Any:
    """Return the value of a JSON text, as `json.loads` does.

    Raises:
        ValueError: It is not JSON.
        RecursionError: It is nested too deeply.
    """
    # msgspec takes a third of the time or less, but it refuses lone surrogates, NaN, and very large numbers.
    with suppress(msgspec.DecodeError, UnicodeError):
        return msgspec.json.decode(text)
    return json.loads(text)
