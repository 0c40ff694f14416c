"""What every reader yields: the entries of a session, whatever agent wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from holdfast.messages import Message

__all__ = ["Entry", "Item", "Problem", "Transcript"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a file that could not be used as it is, and what was done about it."""

    line: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One record of a session file.

    Attributes:
        type: The record's type in the agent's own word.
        data: The record as it was read.
        line: Where it stands in the file, from 1: its line, or its place where the file is one JSON document.
        id: The record's id, where the agent gives it one.
        parent: The id of the record it follows.
        timestamp: When it was written, in Unix milliseconds.
        messages: What it says to the model, usually one message; empty for metadata.
        sidechain: It belongs to a sub-agent's conversation, not to the main one.
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
"""What a file is streamed as: its records, and in their place what could not be used as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """A whole session as its reader found it.

    Attributes:
        path: The file, or the folder where an agent keeps one session in several files.
        format: The reader's name.
        session: The session's id.
        entries: Every record, in file order.
        problems: What could not be used as it is.
        cwd: The folder the agent worked in.
        title: What the agent called the session.
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
        """The main conversation, in order; where the file holds a sub-agent's only, that one."""
        main = [message for entry in self.entries if not entry.sidechain for message in entry.messages]
        return main or [message for entry in self.entries for message in entry.messages]
