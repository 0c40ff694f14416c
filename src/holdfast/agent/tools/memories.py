"""`memory_store`, `memory_recall` and `memory_forget`: long-term memories."""

from __future__ import annotations

from functools import partial
from threading import Event
from typing import Annotated, Final

from msgspec import Meta

from holdfast.agent.capture import Category
from holdfast.agent.memories import Memories, Remembered
from holdfast.agent.tools.offer import Answer, Arguments, Offer, offer
from holdfast.errors import InputError
from holdfast.text import head

__all__ = ["memory_tools"]

LEAST_CANDIDATE: Final = 0.7
CERTAIN: Final = 0.9
CANDIDATES: Final = 5


class Recall(Arguments, frozen=True):
    """The arguments of `memory_recall`."""

    query: Annotated[str, Meta(description="What is looked for, in words.")]
    limit: Annotated[int, Meta(description="The most memories.")] = 5


class Store(Arguments, frozen=True):
    """The arguments of `memory_store`."""

    text: Annotated[str, Meta(description="What to remember, in a sentence.")]
    importance: Annotated[float, Meta(description="0 to 1.")] = 0.7
    category: Category = "other"


class Forget(Arguments, frozen=True):
    """The arguments of `memory_forget`."""

    query: Annotated[str | None, Meta(description="Words of the memory.")] = None
    memory_id: Annotated[str | None, Meta(description="The memory itself, by its id.")] = None


def memory_tools(memories: Memories) -> tuple[Offer, ...]:
    """The tools over long-term memories."""
    return (
        offer(
            "memory_recall",
            "Search long-term memories and facts: preferences, decisions, people, what was learned in any session.",
            Recall,
            partial(_recall, memories),
            together=True,
        ),
        offer(
            "memory_store",
            "Keep something for all future sessions: a preference, a decision, a fact.",
            Store,
            partial(_store, memories),
        ),
        offer(
            "memory_forget",
            "Forget a memory for good, by its id or by words that tell it from all others.",
            Forget,
            partial(_forget, memories),
        ),
    )


def _recall(memories: Memories, asked: Recall, _cancel: Event) -> Answer:
    limit = max(1, asked.limit)
    scored = [(each.score, f"[{each.category}] {each.text}") for each in memories.recall(asked.query, limit=limit)]
    facts = memories.facts(asked.query, limit=limit)
    scored += [(hit.score, f"[{hit.fact.type}] {hit.fact.content}") for hit in facts]
    lines = {line: score for score, line in sorted(scored, reverse=True)[:limit]}
    if not lines:
        return Answer(text="No relevant memories found.")
    numbered = (f"{number}. {line} ({score:.0%})" for number, (line, score) in enumerate(lines.items(), start=1))
    return Answer(text="\n".join([f"Found {len(lines)} memories:", "", *numbered]))


def _store(memories: Memories, asked: Store, _cancel: Event) -> Answer:
    importance = min(1.0, max(0.0, asked.importance))
    kept, is_new = memories.store(asked.text, category=asked.category, importance=importance)
    if not is_new:
        return Answer(text=f'Similar memory already exists: "{kept.text}"')
    return Answer(text=f'Stored: "{_short(kept.text, 100)}"')


def _forget(memories: Memories, asked: Forget, _cancel: Event) -> Answer:
    if asked.memory_id:
        return _forget_one(memories, asked.memory_id)
    if not asked.query:
        raise InputError("Provide query or memoryId.")
    found = memories.recall(asked.query, limit=CANDIDATES, least=LEAST_CANDIDATE)
    if not found:
        return Answer(text="No matching memories found.")
    if len(found) == 1 and found[0].score > CERTAIN:
        memories.forget(found[0].id)
        return Answer(text=f'Forgotten: "{found[0].text}"')
    return Answer(text=f"Found {len(found)} candidates. Specify memoryId:\n{_listed(found)}")


def _forget_one(memories: Memories, wanted: str) -> Answer:
    """By its id, or by the beginning of one that no other has."""
    known = [each for each in memories.all() if each.id.startswith(wanted)]
    if len(known) > 1:
        return Answer(text=f"Found {len(known)} candidates. Specify memoryId:\n{_listed(known)}")
    if not known:
        raise InputError(f"there is no memory {wanted!r}: memory_forget with a query shows the ids")
    memories.forget(known[0].id)
    return Answer(text=f"Memory {known[0].id} forgotten.")


def _listed(found: list[Remembered]) -> str:
    return "\n".join(f"- [{each.id}] {_short(each.text, 60)}" for each in found)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{head(text, most)}..."
