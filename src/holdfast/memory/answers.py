"""What a model answered, read with patience: fences, words around, trailing commas, an end that was cut off."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["read"]

_COMMA: Final = re.compile(r",(?=\s*[}\]])")
_LONGEST: Final = 20_000
"""Characters of one object; what is longer is no answer of ours."""


def read(text: str, *, name: str, key: str) -> list[dict[str, Any]] | None:
    """The objects of an answer `{name: [...]}` that have a `key`; None where the answer holds no such JSON at all.

    A bare list, a single object and several objects in a row are understood as well, and of an answer that was cut
    off everything that is complete.
    """
    whole = _parsed(text.strip())
    if isinstance(whole, dict) and isinstance(whole.get(name), list):
        return _objects(whole[name], key)
    if isinstance(whole, list):
        return _objects(whole, key)
    found = [value for piece in _pieces(text) if isinstance(value := _parsed(piece), dict)]
    objects = _objects(found, key)
    return objects if objects or any(name in value for value in found) else None


def _objects(values: list[Any], key: str) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict) and key in value]


def _parsed(text: str) -> Any:
    for words in (text, _COMMA.sub("", text)):
        try:
            return json.loads(words, strict=False)
        except (ValueError, RecursionError):
            continue
    return None


def _pieces(text: str) -> Iterator[str]:
    """Every stretch of a text between a brace and the one that closes it, inner ones first."""
    starts: list[int] = []
    quoted = escaped = False
    for place, character in enumerate(text):
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = bool(starts)  # a quotation mark in the words around opens nothing
        elif character == "{":
            starts.append(place)
        elif character == "}" and starts:
            start = starts.pop()
            if place - start < _LONGEST:
                yield text[start : place + 1]
