"""Divide texts into passages, and stored passages into windows again."""

from __future__ import annotations

from dataclasses import replace

from holdfast.messages import Message
from holdfast.search.passages import passages, windows
from holdfast.store.base import PassageText
from holdfast.store.codec import words
from holdfast.text import terms


def window_terms(passage: PassageText) -> tuple[tuple[str, ...], ...]:
    """Return the terms of each window of a passage, and the speaker's name if there is one."""
    name = terms(passage.name)
    return tuple((*terms(passage.text[start:stop]), *name) for start, stop in passage.windows)


def cut_again(passage: PassageText) -> PassageText:
    """Return a stored passage with windows by the present rules."""
    found = windows(passage.text, whole=0) if passage.start else windows(passage.text)
    return replace(passage, windows=tuple(found) or passage.windows)


def cut(text: str, *, speaker: str = "") -> list[PassageText]:
    """Divide a text into passages; the speaker's name is a term of each window."""
    name = tuple(terms(speaker))
    return [
        PassageText(
            start=passage.start,
            text=text[passage.start : passage.stop],
            windows=tuple((first - passage.start, last - passage.start) for first, last in passage.windows),
            terms=tuple((*terms(text[first:last]), *name) for first, last in passage.windows),
        )
        for passage in passages(text)
    ]


def plain_cut(message: Message) -> list[PassageText]:
    """Divide everything readable in a message into passages."""
    return cut(words(message), speaker=message.name or "")
