"""Holdfast as `pip install 'holdfast-memory[local]'` installs it: default settings, and its own vectors."""

from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from holdfast import Engine
from holdfast.memory.query import build_query
from holdfast.memory.recall import recall
from holdfast.messages import Message, Text
from holdfast.search.relevance import ALWAYS
from holdfast.settings import Settings
from holdfast.store.base import Scope


class System:
    """A memory of one person in a folder. The time is that of the question, as far as it is known."""

    def __init__(self, folder: Path, _: Any) -> None:
        self._now = 0
        self._engine = Engine.open(
            folder, settings=Settings(), personal=True, background=False, clock=lambda: self._now
        )

    def add(self, documents: list[dict[str, Any]]) -> None:
        """Archive each session, with facts and vectors."""
        for session, group in groupby(documents, key=lambda one: one["session"]):
            messages = []
            for one in group:
                self._now = max(self._now, one["time"])
                messages.append(read(one))
            self._engine.session(f"session-{session}").append(messages)
        self._engine.work()

    def recall(self, question: dict[str, Any], budget: int) -> str:
        """Return the block for a question."""
        self._now = question["time"] or self._now
        return self._engine.session("ask").recall(question["text"], cap=budget).block

    def close(self) -> None:
        """Close the memory."""
        self._engine.close()


class Full(System):
    """The same, with a block that is always as large as the budget allows."""

    def recall(self, question: dict[str, Any], budget: int) -> str:
        """Return the block for a question, whatever the confidence."""
        memory = self._engine._memory  # no setting does this
        now = question["time"] or self._now
        scope = Scope(session="ask")
        query = build_query(memory.settings, (question["text"],), scope=scope, now=now, cap=budget, across=True)
        query = replace(query, eagerness=ALWAYS, fill="full")
        return recall(memory.store, query, embedder=memory.embedder).block


def read(document: dict[str, Any]) -> Message:
    """Return a message of the data as one of Holdfast."""
    return Message(
        role="user" if document["role"] == "user" else "assistant",
        parts=(Text(text=document["plain"]),),
        timestamp=document["time"] or None,
        name=document["speaker"] or None,
    )
