"""`memory_search` and `memory_get`: the notes of the workspace."""

from __future__ import annotations

import json
from functools import partial
from threading import Event
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from holdfast.agent.memories import Memories
from holdfast.agent.notes import Found, Hit, Notes, excerpt
from holdfast.agent.tools.offer import Answer, Arguments, Offer, offer
from holdfast.errors import HoldfastError

__all__ = ["citation", "note_tools"]

_ACTION: Final = "Go on without notes, or read the files under memory/ with `read`, and tell the user."


class Search(Arguments, frozen=True):
    """The arguments of `memory_search`."""

    query: Annotated[str, Meta(description="What is looked for, in words.")]
    max_results: Annotated[int | None, Meta(description="The most hits.")] = None
    min_score: Annotated[float | None, Meta(description="The least score of a hit, 0 to 1.")] = None


class Get(Arguments, frozen=True):
    """The arguments of `memory_get`."""

    path: Annotated[str, Meta(description="The note, as memory_search names it.")]
    first: Annotated[int | None, Meta(description="The first line, from 1.")] = msgspec.field(default=None, name="from")
    lines: Annotated[int | None, Meta(description="How many lines.")] = None


def note_tools(notes: Notes, memories: Memories | None = None) -> tuple[Offer, ...]:
    """The tools over the notes of a workspace; a search gives the agent's facts as well."""
    return (
        offer(
            "memory_search",
            "Search MEMORY.md, memory/*.md and further notes before answering about prior work, decisions, dates, "
            "people, preferences or todos. Gives the best stretches with path and lines, and the facts that are known.",
            Search,
            partial(_search, notes, memories),
            together=True,
        ),
        offer(
            "memory_get",
            "Read some lines of a note that memory_search found; `from` and `lines` keep it small.",
            Get,
            partial(_get, notes),
            together=True,
        ),
    )


def citation(path: str, start: int, end: int) -> str:
    """Where something stands: `path#L5`, or `path#L5-L9`."""
    return f"{path}#L{start}" if start == end else f"{path}#L{start}-L{end}"


def _search(notes: Notes, memories: Memories | None, asked: Search, _cancel: Event) -> Answer:
    try:
        found = notes.search(asked.query, max_results=_positive(asked.max_results), min_score=asked.min_score)
    except (HoldfastError, OSError) as error:
        failed = {"results": [], "disabled": True, "unavailable": True, "error": str(error)}
        return _json(failed | {"warning": "memory search is not available now", "action": _ACTION}, is_error=True)
    answer = _found(found, cite=notes.settings.memory.citations)
    facts = [] if memories is None else memories.facts(asked.query)
    known = [{"type": hit.fact.type, "text": hit.fact.content, "score": hit.score} for hit in facts]
    return _json(answer | ({"facts": known} if known else {}))


def _found(found: Found, *, cite: str) -> dict[str, Any]:
    fallback = None if found.fallback is None else {"from": found.fallback.wanted, "reason": found.fallback.reason}
    answer: dict[str, Any] = {
        "results": [_hit(hit, cite=cite != "off") for hit in found.hits],
        "provider": found.provider,
        "model": found.model,
        "fallback": fallback,
        "citations": cite,
        "mode": found.mode,
    }
    return answer | ({"warning": "; ".join(found.warnings)} if found.warnings else {})


def _hit(hit: Hit, *, cite: bool) -> dict[str, Any]:
    place = citation(hit.path, hit.start, hit.end)
    shown: dict[str, Any] = {
        "path": hit.path,
        "startLine": hit.start,
        "endLine": hit.end,
        "score": hit.score,
        "snippet": f"{hit.snippet}\n\nSource: {place}" if cite else hit.snippet,
        "source": hit.kind,
    }
    return shown | ({"citation": place} if cite else {})


def _get(notes: Notes, asked: Get, _cancel: Event) -> Answer:
    found = excerpt(
        asked.path,
        root=notes.root,
        settings=notes.settings,
        sessions=notes.sessions,
        start=_positive(asked.first) or 1,
        count=_positive(asked.lines),
    )
    more = f"\n\n[more follows: from={found.following} goes on]" if found.following else ""
    return _json({"path": found.path, "text": f"{found.text}{more}"})


def _positive(number: int | None) -> int | None:
    return None if number is None else max(1, number)


def _json(value: dict[str, Any], *, is_error: bool = False) -> Answer:
    return Answer(text=json.dumps(value, ensure_ascii=False, indent=2), is_error=is_error)
