"""The data that every reader yields: entries, problems and whole transcripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from holdfast.messages import Message

__all__ = ["Entry", "Item", "Problem", "Transcript"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A part of a file that could not be used as it is, and how it was handled."""

    line: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One record of a session file.

    Attributes:
        type: The record's type, as the agent names it.
        data: The record as it was read.
        line: Its line in the file, from 1, or its position where the file is one JSON document.
        id: The record's id, where the agent gives it one.
        parent: The id of its parent record.
        timestamp: When it was written, in Unix milliseconds.
        messages: Its messages to or from the model, usually one; empty for metadata.
        sidechain: Whether it belongs to a sub-agent's conversation.
    """

    type: str
    data: Mapping[str, Any] = field(repr=False)
    line: int
    id: str | None = None
    parent: str | None = None
    timestamp: int | None = None
    messages: tuple[Message, ...] = ()
    sidechain: bool = False


Item: TypeAlias = Entry | Problem
"""A record of a file, or the problem in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """A whole session as its reader returns it.

    Attributes:
        path: The file, or the folder where an agent keeps one session in several files.
        format: The reader's name.
        session: The session's id.
        entries: Every record, in file order.
        problems: Parts that could not be used as they are.
        cwd: The folder the agent worked in.
        title: The title that the agent gave the session.
        model: The last model named.
    """

    path: Path
    format: str
    session: str
    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...] = ()
    cwd: str | None = None
    title: str | None = None
    model: str | None = None

    @property
    def messages(self) -> list[Message]:
        """The main conversation in order; a sub-agent's where the file holds nothing else."""
        main = [message for entry in self.entries if not entry.sidechain for message in entry.messages]
        return main or [message for entry in self.entries for message in entry.messages]
