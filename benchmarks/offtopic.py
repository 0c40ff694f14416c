"""Questions of one conversation asked of another: how many get a block that has nothing to do with them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.datasets import Conversation, Question
from benchmarks.recall import Archive, by_limit
from holdfast.errors import InputError
from holdfast.memory.recall import recall
from holdfast.search.embed.base import Embedder

__all__ = ["measure"]


def measure(
    conversations: Sequence[Conversation],
    *,
    embedder: Embedder | None,
    cap: int = 4000,
    progress: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Ask every question of its own conversation, and of another; the JSON that `python -m benchmarks offtopic` prints.

    `kept` is the share of questions that get a block from their own conversation, `injected_offtopic` that of
    those that get one from the other. Where there is one conversation only, its halves are the two.
    """
    if len(conversations) == 1:
        conversations = [half for half in _halves(conversations[0]) if half.questions]
    if len(conversations) < 2:
        raise InputError("off-topic questions need a data set of at least two conversations")
    own: list[bool] = []
    other: list[bool] = []
    for number, conversation in enumerate(conversations):
        with _archive(conversation, embedder) as mine, _archive(conversations[number - 1], embedder) as foreign:
            foreign.grow(len(foreign.conversation.sessions))
            for limit, questions in by_limit(conversation):
                mine.grow(limit)
                for question in questions:
                    own.append(_gets_block(mine, question, cap))
                    other.append(_gets_block(foreign, question, cap))
                    progress(1)
    return {"questions": len(own), "kept": _share(own), "injected_offtopic": _share(other)}


def _halves(conversation: Conversation) -> tuple[Conversation, Conversation]:
    """The first and the last sessions of a conversation, each with the questions that it alone answers."""
    middle = len(conversation.sessions) // 2
    first = [question for question in conversation.questions if all(place[0] < middle for place in question.evidence)]
    last = [question for question in conversation.questions if all(place[0] >= middle for place in question.evidence)]
    return (
        Conversation(conversation.sessions[:middle], tuple(replace(question, limit=None) for question in first)),
        Conversation(conversation.sessions[middle:], tuple(replace(question, limit=None) for question in last)),
    )


@contextmanager
def _archive(conversation: Conversation, embedder: Embedder | None) -> Iterator[Archive]:
    with tempfile.TemporaryDirectory() as folder:
        held = Archive(conversation, Path(folder), embedder=embedder)
        try:
            yield held
        finally:
            held.store.close()


def _gets_block(held: Archive, question: Question, cap: int) -> bool:
    return bool(recall(held.store, held.request(question, cap=cap), embedder=held.embedder).block)


def _share(answers: Sequence[bool]) -> float:
    return round(sum(answers) / len(answers), 4)
