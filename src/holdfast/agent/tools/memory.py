"""The memory tools: `memory_search` and `memory_get`, `memory_recall`, `_store` and `_forget`, and `archive_get`."""

from __future__ import annotations

import json
from functools import partial
from threading import Event
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from holdfast.agent.memories import CATEGORIES, Category, Memories
from holdfast.agent.note_files import NoteHit
from holdfast.agent.notes import Notes
from holdfast.agent.tools.toolbox import Answer, ArchiveText, Arguments, ToolFunction, make_tool
from holdfast.errors import HoldfastError, InputError
from holdfast.memory.facts import FactHit, current, find, load
from holdfast.messages import Message, Text, ToolCall, ToolResult
from holdfast.moments import minute
from holdfast.session import Session
from holdfast.store.base import FactRow
from holdfast.store.codec import words
from holdfast.text import head

MAX_ARCHIVE_CHARS: Final = 20_000
MIN_CANDIDATE_SCORE: Final = 0.7
MIN_CERTAIN_SCORE: Final = 0.9
MAX_CANDIDATES: Final = 5
_ACTION: Final = "Go on without notes, or read the files under memory/ with `read`, and tell the user."


class SearchNotes(Arguments, frozen=True):
    """Search MEMORY.md, memory/*.md and further notes.

    Do it before answering about prior work, decisions, dates, people, preferences or todos. Returns the best matches
    with path and lines, and the known facts.
    """

    query: Annotated[str, Meta(description="What to look for, in words.")]
    max_results: Annotated[int | None, Meta(description="The most hits.")] = None
    min_score: Annotated[float | None, Meta(description="The least score of a hit, 0 to 1.")] = None


class GetNote(Arguments, frozen=True):
    """Read some lines of a note that memory_search found; use `from` and `lines` to keep it small."""

    path: Annotated[str, Meta(description="The note, as memory_search names it.")]
    first: Annotated[int | None, Meta(description="The first line, from 1.")] = msgspec.field(default=None, name="from")
    lines: Annotated[int | None, Meta(description="How many lines.")] = None


def note_tools(notes: Notes, session: Session | None = None) -> tuple[ToolFunction, ...]:
    """Make the tools over the notes of a workspace; with a session, a search returns its facts as well."""
    search, get = partial(_search_notes, notes, session), partial(_get_note, notes)
    return (
        make_tool("memory_search", SearchNotes, search, is_parallel=True),
        make_tool("memory_get", GetNote, get, is_parallel=True),
    )


def cite(path: str, start: int, end: int) -> str:
    """Return the citation of lines: `path#L5`, or `path#L5-L9`."""
    return f"{path}#L{start}" if start == end else f"{path}#L{start}-L{end}"


def _search_notes(notes: Notes, session: Session | None, given: SearchNotes, _cancel: Event) -> Answer:
    try:
        found = notes.search(given.query, max_results=_at_least_one(given.max_results), min_score=given.min_score)
    except (HoldfastError, OSError) as error:
        failed = {"results": [], "disabled": True, "unavailable": True, "error": str(error)}
        return _to_json(failed | {"warning": "memory search is not available now", "action": _ACTION}, is_error=True)
    citations = notes.settings.memory.citations
    data: dict[str, Any] = {
        "results": [_hit_json(hit, with_citation=citations != "off") for hit in found.hits],
        "provider": found.provider,
        "model": found.model,
        "fallback": found.fallback and {"from": found.fallback.wanted, "reason": found.fallback.reason},
        "citations": citations,
        "mode": found.mode,
    }
    if found.warnings:
        data["warning"] = "; ".join(found.warnings)
    if session is not None and (facts := _find_facts(session, given.query)):
        data["facts"] = [{"type": hit.fact.type, "text": hit.fact.content, "score": hit.score} for hit in facts]
    return _to_json(data)


def _hit_json(hit: NoteHit, *, with_citation: bool) -> dict[str, Any]:
    citation = cite(hit.path, hit.start, hit.end)
    data = {"path": hit.path, "startLine": hit.start, "endLine": hit.end, "score": hit.score}
    if not with_citation:
        return data | {"snippet": hit.snippet, "source": hit.kind}
    return data | {"snippet": f"{hit.snippet}\n\nSource: {citation}", "source": hit.kind, "citation": citation}


def _find_facts(session: Session, query: str, *, limit: int = 5) -> list[FactHit]:
    """Find the facts of the agent and project, learned in any session, without long-term memories."""
    return find(current(load(session.engine.memory.store, session.scope)), query, limit=limit)


def _get_note(notes: Notes, given: GetNote, _cancel: Event) -> Answer:
    start, count = _at_least_one(given.first) or 1, _at_least_one(given.lines)
    text, following = notes.read(given.path, start=start, count=count)
    more = f"\n\n[more follows: from={following} goes on]" if following else ""
    return _to_json({"path": given.path, "text": f"{text}{more}"})


def _at_least_one(number: int | None) -> int | None:
    return None if number is None else max(1, number)


def _to_json(value: dict[str, Any], *, is_error: bool = False) -> Answer:
    return Answer(text=json.dumps(value, ensure_ascii=False, indent=2), is_error=is_error)


class RecallMemories(Arguments, frozen=True):
    """Search long-term memories and facts: preferences, decisions, people, what was learned in any session."""

    query: Annotated[str, Meta(description="What to look for, in words.")]
    limit: Annotated[int, Meta(description="The most memories.")] = 5


class StoreMemory(Arguments, frozen=True):
    """Keep something for all future sessions: a preference, a decision, a fact."""

    text: Annotated[str, Meta(description="What to remember, in a sentence.")]
    importance: Annotated[float, Meta(description="0 to 1.")] = 0.7
    category: Category = "other"


class ForgetMemory(Arguments, frozen=True):
    """Forget a memory for good, by its id or by words that identify it."""

    query: Annotated[str | None, Meta(description="Words of the memory.")] = None
    memory_id: Annotated[str | None, Meta(description="The memory itself, by its id.")] = None


def memory_tools(memories: Memories, session: Session | None = None) -> tuple[ToolFunction, ...]:
    """Make the tools over long-term memories; with a session, `memory_recall` returns its facts as well."""
    return (
        make_tool("memory_recall", RecallMemories, partial(_recall, memories, session), is_parallel=True),
        make_tool("memory_store", StoreMemory, partial(_store, memories)),
        make_tool("memory_forget", ForgetMemory, partial(_forget, memories)),
    )


def _recall(memories: Memories, session: Session | None, given: RecallMemories, _cancel: Event) -> Answer:
    limit = max(1, given.limit)
    found = memories.recall(given.query, limit=limit)
    scored = [(hit.score, f"[{_category(hit.fact)}] {hit.fact.content}") for hit in found]
    if session is not None:
        facts = _find_facts(session, given.query, limit=limit)
        scored += [(hit.score, f"[{hit.fact.type}] {hit.fact.content}") for hit in facts]
    lines = {line: score for score, line in sorted(scored, reverse=True)[:limit]}
    if not lines:
        return Answer(text="No relevant memories found.")
    numbered = (f"{number}. {line} ({score:.0%})" for number, (line, score) in enumerate(lines.items(), start=1))
    return Answer(text="\n".join([f"Found {len(lines)} memories:", "", *numbered]))


def _category(fact: FactRow) -> str:
    return fact.subject if fact.subject in CATEGORIES else "other"


def _store(memories: Memories, given: StoreMemory, _cancel: Event) -> Answer:
    importance = min(1.0, max(0.0, given.importance))
    memory, is_new = memories.store(given.text, category=given.category, importance=importance)
    if not is_new:
        return Answer(text=f'Similar memory already exists: "{memory.content}"')
    return Answer(text=f'Stored: "{_shorten(memory.content, 100)}"')


def _forget(memories: Memories, given: ForgetMemory, _cancel: Event) -> Answer:
    """Forget a memory: by an id, or the beginning of one that no other memory has; or by words that fit only one."""
    if given.memory_id:
        matches = [row for row in memories.rows() if row.id.startswith(given.memory_id)]
        if not matches:
            raise InputError(f"there is no memory {given.memory_id!r}: memory_forget with a query shows the ids")
        return _forget_only(memories, matches, done=f"Memory {matches[0].id} forgotten.")
    if not given.query:
        raise InputError("Provide query or memoryId.")
    hits = memories.recall(given.query, limit=MAX_CANDIDATES, min_score=MIN_CANDIDATE_SCORE)
    if not hits:
        return Answer(text="No matching memories found.")
    done = f'Forgotten: "{hits[0].fact.content}"' if hits[0].score > MIN_CERTAIN_SCORE else ""
    return _forget_only(memories, [hit.fact for hit in hits], done=done)


def _forget_only(memories: Memories, matches: list[FactRow], *, done: str) -> Answer:
    """Forget the only match; otherwise, or without a text for it, list the candidates."""
    if len(matches) == 1 and done:
        memories.forget(matches[0].id)
        return Answer(text=done)
    lines = "\n".join(f"- [{row.id}] {_shorten(row.content, 60)}" for row in matches)
    return Answer(text=f"Found {len(matches)} candidates. Specify memoryId:\n{lines}")


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{head(text, most)}..."


class GetArchived(Arguments, frozen=True):
    """Show a message or tool result that was cut, cleared or summarised, whole, by its archive number.

    A long one comes in parts: go on with `offset`.
    """

    id: Annotated[int, Meta(description="The archive number in the place of what was cut or cleared.")]
    offset: Annotated[int, Meta(ge=0, description="The first character to show, from 0.")] = 0
    limit: Annotated[int, Meta(ge=1, description=f"How many characters; {MAX_ARCHIVE_CHARS:,} at most.")] = (
        MAX_ARCHIVE_CHARS
    )


def archive_tools(session: Session) -> tuple[ToolFunction, ...]:
    """Make the tool over the archive of the agent's sessions."""
    return (make_tool("archive_get", GetArchived, partial(_get_archived, session), is_parallel=True),)


def archive_text(session: Session) -> ArchiveText:
    """Return a function that archives the whole text of a result that the model sees a part of."""

    def archive(call: ToolCall, text: str) -> int:
        whole = ToolResult(call_id=call.id, name=call.name, content=(Text(text=text),))
        return session.append([Message(role="tool", parts=(whole,), id=f"{call.id}:whole")])[0]

    return archive


def _get_archived(session: Session, given: GetArchived, _cancel: Event) -> Answer:
    rows = session.get([given.id])
    if not rows:
        raise InputError(f"the archive has no message {given.id}: use a number that is shown in this conversation")
    message, text = rows[0].message, words(rows[0].message)
    stop = min(len(text), given.offset + min(given.limit, MAX_ARCHIVE_CHARS))
    more = f"\n\n[{len(text) - stop:,} characters follow: offset={stop} goes on]" if stop < len(text) else ""
    names = ", ".join(result.name or "a tool" for result in message.results)
    origin = f"result of {names}" if names else f"said by {message.name or message.role}"
    when = minute(message.timestamp)
    header = f"[archived message {rows[0].id}, {origin}{f', {when}' if when else ''}]"
    return Answer(text=f"{header}\n{text[given.offset : stop]}{more}")
