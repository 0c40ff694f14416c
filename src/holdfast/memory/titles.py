"""Titles of sessions, by which a person recognises them."""

from __future__ import annotations

from typing import Final

from holdfast.memory.archive import is_noise, unwrap
from holdfast.store.base import Scope, Select, Store

MAX_TITLE_CHARS: Final = 72
_MAX_READ: Final = 40
"""The messages at the beginning of a session that are looked at: a host may put its own before those of the user."""
_ENDS: Final = (". ", "? ", "! ", "。", "？", "！")


def make_title(store: Store, scope: Scope) -> str:
    """Return the first real sentence of the user in a session, shortened; empty if there is none."""
    for row in store.read_messages(Select(scope=scope, limit=_MAX_READ)):
        if row.message.role != "user":
            continue
        text = unwrap(row.message.text)
        if text and not is_noise(text):
            return shorten(text)
    return ""


def shorten(text: str) -> str:
    """Return the first sentence of a text, on one line, at most `MAX_TITLE_CHARS` long."""
    line = " ".join(text.split())
    stops = [line.find(end) + len(end) for end in _ENDS if end in line]
    sentence = line[: min(stops, default=len(line))].strip()
    if len(sentence) <= MAX_TITLE_CHARS:
        return sentence
    cut = sentence[: MAX_TITLE_CHARS - 1]
    space = cut.rfind(" ")
    if space > MAX_TITLE_CHARS // 2:
        cut = cut[:space]
    return f"{cut.rstrip()}…"
