"""The tools of the agent: files and a shell in the workspace, notes, long-term memories and the archive."""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from threading import Event
from typing import Annotated, Any, BinaryIO, Final

import msgspec
from msgspec import Meta

from holdfast.errors import HoldfastError, InputError
from holdfast.memory.facts import FactHit
from holdfast.messages import Message, Text, ToolCall, ToolResult
from holdfast.moments import minute
from holdfast.redaction import redact
from holdfast.session import Session
from holdfast.store.base import FactRow
from holdfast.store.codec import words
from holdfast.text import head
from holdfast_agent import paths, shell
from holdfast_agent.memories import CATEGORIES, Category, Memories
from holdfast_agent.notes import Notes
from holdfast_agent.paths import Bounds, Place, locate, read_bytes
from holdfast_agent.settings import ChatSettings
from holdfast_agent.toolbox import Action, Answer, Arguments, Confirm, Toolbox, ToolFunction, make_tool


def agent_tools(
    session: Session,
    *,
    settings: ChatSettings,
    bounds: Bounds,
    notes: Notes | None = None,
    confirm: Confirm | None = None,
    memories: Memories | None = None,
) -> Toolbox:
    """Make all tools that the settings allow; those for memories only if there are `memories`.

    `confirm` asks the user before a command runs or a file is written; without it neither is possible.
    """
    agent = settings.agent
    access = agent.workspace.access
    functions: list[ToolFunction] = []
    if access != "none":
        functions += file_tools(bounds, confirm=confirm)
    if access == "rw" and confirm is not None:
        functions.append(make_tool("bash", Bash, lambda given, cancel: given.run(bounds, confirm, cancel)))
    if notes is not None and agent.memory_search.enabled and access != "none":
        functions += note_tools(notes, session)
    if agent.long_term.enabled and memories is not None:
        functions += memory_tools(memories, session)
    functions.append(make_tool("archive_get", GetArchived, lambda given, _: given.show(session), is_parallel=True))

    def archive(call: ToolCall, text: str) -> int:
        whole = ToolResult(call_id=call.id, name=call.name, content=(Text(text=text),))
        return session.append([Message(role="tool", parts=(whole,), id=f"{call.id}:whole")])[0]

    return Toolbox(functions=tuple(functions), archive=archive)


# --- the workspace ------------------------------------------------------------

MAX_READ_LINES: Final = 2_000
MAX_READ_BYTES: Final = 50_000
"""The maximum that one `read` shows."""
MAX_EDIT_BYTES: Final = 32 << 20
MAX_COMPARED_LINES: Final = 4_000
"""Longer texts are not compared line by line, which takes too long."""
MAX_PREVIEW_LINES: Final = 60
"""How many lines of a change the user sees before confirming it."""
HEAD_CHARS: Final = 8_000
TAIL_CHARS: Final = 8_000
"""How much the model sees of a long output: its beginning and its end."""
DEFAULT_SECONDS: Final = 120
MAX_SECONDS: Final = 3_600
_PIECE: Final = 1 << 16
_PROBE: Final = 8_192


class Read(Arguments, frozen=True):
    """Read a text file. Shows up to 2,000 lines or 50 KB; continue with `offset`."""

    path: Annotated[str, Meta(description="The file, relative to the workspace.")]
    offset: Annotated[int, Meta(ge=1, description="The first line to show, from 1.")] = 1
    limit: Annotated[int | None, Meta(description="How many lines; 2,000 unless given.")] = None


class Write(Arguments, frozen=True):
    """Write a whole file. Its old content is replaced."""

    path: Annotated[str, Meta(description="The file, relative to the workspace; missing folders are created.")]
    content: Annotated[str, Meta(description="Its whole new content.")]


class Edit(Arguments, frozen=True):
    """Replace a passage of a file. It must occur exactly once."""

    path: Annotated[str, Meta(description="The file, relative to the workspace.")]
    old_text: Annotated[str, Meta(description="The text to replace, exactly as in the file; it must occur once.")]
    new_text: Annotated[str, Meta(description="The text to put in its place.")]


class Bash(Arguments, frozen=True):
    """Run a command in the workspace and wait for its end.

    Returns stdout and stderr together, and the exit status if it is not 0. Its processes end with it. Nothing can be
    typed into it.
    """

    command: Annotated[str, Meta(description="The command, for bash.")]
    timeout: Annotated[
        float | None, Meta(description=f"Seconds until it is stopped; {DEFAULT_SECONDS} unless given.")
    ] = None

    def run(self, bounds: Bounds, confirm: Confirm, cancel: Event) -> Answer:
        """Run the command, once the user has confirmed it."""
        if not self.command.strip():
            return Answer(text="the command is empty: give a command to run", is_error=True)
        if not confirm(Action(kind="run", text=self.command)):
            return Answer(text="The user refused this command. Ask what to do instead.", is_error=True)
        seconds = min(max(self.timeout or DEFAULT_SECONDS, 1), MAX_SECONDS)
        result = shell.run(self.command, cwd=bounds.root, seconds=seconds, cancel=cancel)
        text = result.output.removesuffix("\n") or "(no output)"
        if result.ended == "timeout":
            text += f"\n[stopped after {seconds:g} s: give a longer `timeout`, or do less at once]"
        elif result.ended == "cancelled":
            text += "\n[cancelled by the user]"
        elif result.status:
            text += f"\n[exit status {result.status}]"
        return Answer(text=text, is_error=result.status != 0, head=HEAD_CHARS, tail=TAIL_CHARS)


def file_tools(bounds: Bounds, *, confirm: Confirm | None = None) -> tuple[ToolFunction, ...]:
    """Make the tools over files; those that write only if the workspace is writable and the user can be asked."""
    read = make_tool("read", Read, partial(_read, bounds), is_parallel=True)
    if not bounds.writable or confirm is None:
        return (read,)
    write = make_tool("write", Write, partial(_write, bounds, confirm))
    edit = make_tool("edit", Edit, partial(_edit, bounds, confirm))
    return read, write, edit


def flush_tools(bounds: Bounds, *, note: str, mask: bool = True) -> Toolbox:
    """Make the tools of the turn before a compaction: `read`, and a `write` that can only append to one note.

    The user does not see that turn: with `mask`, secrets are masked.
    """

    def append(given: Write, _cancel: Event) -> Answer:
        if locate(bounds, given.path) != locate(bounds, note):
            raise InputError(f"only {note} can be written now, and only added to: write there")
        gap = ""
        if locate(bounds, note).path.exists():
            before = read_bytes(bounds, note)
            if before.endswith(b"\n"):
                gap = "\n"
            elif before:
                gap = "\n\n"
        text = redact(given.content) if mask else given.content
        paths.append_bytes(bounds, note, _encode(f"{gap}{text.rstrip()}\n"))
        return Answer(text=f"Added {len(given.content):,} characters to {note}.")

    description = f"Add text to the end of {note}, the only file that can be written now."
    return Toolbox(functions=(*file_tools(bounds), make_tool("write", Write, append, description=description)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some lines of a file: the number of the last one, whether more follow, and whether one is longer than shown."""

    text: str
    last: int
    has_more: bool
    is_cut: bool


def _read(bounds: Bounds, given: Read, _cancel: Event) -> Answer:
    with paths.open_file(bounds, given.path) as file:
        if b"\0" in file.read(_PROBE):
            raise InputError(f"{given.path} is not text: use a program in bash that reads its format")
        file.seek(0)
        page = read_page(file, offset=given.offset, limit=given.limit or MAX_READ_LINES)
    if not page.text and given.offset > 1:
        raise InputError(f"{given.path} has no line {given.offset}: it ends at line {page.last}")
    notes = []
    if page.is_cut:
        notes.append(f"line {page.last} is longer than that: `cut -c` in bash shows more of it")
    if page.has_more:
        notes.append(f"more follows: offset={page.last + 1} continues")
    text = page.text or "(empty)"
    if notes:
        text = text.removesuffix("\n")
        text += f"\n\n[lines {given.offset}-{page.last} of {given.path}; {'; '.join(notes)}]"
    return Answer(text=text)


def read_page(file: BinaryIO, *, offset: int, limit: int) -> Page:
    """Read some lines of a file without loading the rest of it; a very long line is read in pieces."""
    end = offset + min(limit, MAX_READ_LINES)
    shown = bytearray()
    last = 0
    number = 0
    is_cut = False
    has_more = False
    begins_line = True
    while piece := file.readline(_PIECE):
        if begins_line:
            number += 1
        room = MAX_READ_BYTES - len(shown)
        is_full = number >= end or (len(piece) > room and len(shown) > 0)
        if is_full and number > last:
            has_more = True
            break
        last = number
        begins_line = piece.endswith(b"\n")
        if number >= offset:
            if len(piece) > room:
                is_cut = True
            shown += piece[:room]
    return Page(text=bytes(shown).decode("utf-8", "replace"), last=last, has_more=has_more, is_cut=is_cut)


def _confirm(bounds: Bounds, confirm: Confirm, given: Write | Edit, *, change: list[str]) -> Place:
    """Ask the user whether a file may be written, and return the place that was shown."""
    place = paths.locate_to_write(bounds, given.path)
    lines = [f"write {place.path}", *change[:MAX_PREVIEW_LINES]]
    if len(change) > MAX_PREVIEW_LINES:
        lines.append(f"… {len(change) - MAX_PREVIEW_LINES:,} more lines")
    action = Action(kind="write", text="\n".join(lines), guarded=paths.guard_reason(bounds, place))
    if not confirm(action):
        raise InputError(f"writing {given.path} was not allowed: ask the user what to do instead")
    return place


def _write(bounds: Bounds, confirm: Confirm, given: Write, _cancel: Event) -> Answer:
    data = _encode(given.content)
    place = _confirm(bounds, confirm, given, change=list_changes(_read_text(bounds, given.path), given.content))
    paths.write_bytes(bounds, given.path, data, place=place)
    return Answer(text=f"Wrote {len(given.content):,} characters to {given.path}.")


def _edit(bounds: Bounds, confirm: Confirm, given: Edit, _cancel: Event) -> Answer:
    content = read_bytes(bounds, given.path, limit=MAX_EDIT_BYTES + 1)
    if len(content) > MAX_EDIT_BYTES:
        raise InputError(f"{given.path} is too large for edit: use a program in bash")
    if given.old_text == given.new_text:
        raise InputError("oldText and newText are the same: nothing would change")
    if not given.old_text:
        raise InputError("oldText is empty: give the text to replace, or use write for a whole file")
    old = _encode(given.old_text)
    new = _encode(given.new_text)
    if 0 < content.count(b"\n") == content.count(b"\r\n"):  # models write the line breaks that they are used to
        old = _use_windows_line_breaks(old)
        new = _use_windows_line_breaks(new)
    at = content.find(old)
    if at < 0:
        raise InputError(
            f"oldText does not occur in {given.path}: read the file again and copy it exactly, with all blanks"
        )
    if content.find(old, at + 1) >= 0:
        times = max(2, content.count(old))  # `count` does not see occurrences that overlap
        raise InputError(f"oldText occurs {times} times in {given.path}: include lines around it until it occurs once")
    line = content.count(b"\n", 0, at) + 1
    change = list_changes(given.old_text, given.new_text, first_line=line)
    place = _confirm(bounds, confirm, given, change=change)
    changed = content[:at] + new + content[at + len(old) :]
    paths.write_bytes(bounds, given.path, changed, expected=content, place=place)
    return Answer(text=f"Replaced the passage at line {line} of {given.path}.")


def _read_text(bounds: Bounds, path: str) -> str:
    """Read a file that is about to be replaced; empty if there is none, or it is no text."""
    try:
        return read_bytes(bounds, path, limit=MAX_EDIT_BYTES).decode()
    except (InputError, UnicodeDecodeError):
        return ""


def list_changes(before: str, after: str, *, first_line: int = 1) -> list[str]:
    """List the lines that differ, as `- old` and `+ new` under `@ line N`, with one line around them.

    Texts that are too long to compare are listed as a whole.
    """
    old = before.splitlines()
    new = after.splitlines()
    if not old:
        return [f"+ {line}" for line in new]
    if len(old) + len(new) > MAX_COMPARED_LINES:
        return [f"@ line {first_line}", *(f"- {line}" for line in old), *(f"+ {line}" for line in new)]
    changes: list[str] = []
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(n=1):
        changes.append(f"@ line {first_line + group[0][1]}")
        for kind, old_start, old_end, new_start, new_end in group:
            if kind == "equal":
                changes += (f"  {line}" for line in old[old_start:old_end])
                continue
            changes += (f"- {line}" for line in old[old_start:old_end])
            changes += (f"+ {line}" for line in new[new_start:new_end])
    return changes or ["(only line breaks change)"]


def _use_windows_line_breaks(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InputError("the text is not valid Unicode: write it again") from None


# --- notes --------------------------------------------------------------------

_ACTION: Final = "Go on without notes, or read the files under memory/ with `read`, and tell the user."


class SearchNotes(Arguments, frozen=True):
    """Search MEMORY.md, memory/*.md and further notes.

    Do it before answering about prior work, decisions, dates, people, preferences or todos. Returns the best matches
    with path and lines, and the known facts.
    """

    query: Annotated[str, Meta(description="What to look for, in words.")]
    max_results: Annotated[int | None, Meta(description="The maximum number of hits.")] = None
    min_score: Annotated[float | None, Meta(description="The minimum score of a hit, 0 to 1.")] = None


class GetNote(Arguments, frozen=True):
    """Read some lines of a note that memory_search found; use `from` and `lines` to keep it small."""

    path: Annotated[str, Meta(description="The note, as memory_search names it.")]
    first: Annotated[int | None, Meta(description="The first line, from 1.")] = msgspec.field(default=None, name="from")
    lines: Annotated[int | None, Meta(description="How many lines.")] = None


def note_tools(notes: Notes, session: Session | None = None) -> tuple[ToolFunction, ...]:
    """Make the tools over the notes of a workspace; with a session, a search returns its facts as well."""

    def get(given: GetNote, _cancel: Event) -> Answer:
        start = _at_least_one(given.first) or 1
        text, following = notes.read(given.path, start=start, count=_at_least_one(given.lines))
        if following:
            text += f"\n\n[more follows: from={following} continues]"
        return _to_json({"path": given.path, "text": text})

    def search(given: SearchNotes, _cancel: Event) -> Answer:
        try:
            found = notes.search(given.query, max_results=_at_least_one(given.max_results), min_score=given.min_score)
        except (HoldfastError, OSError) as error:
            failed = {
                "results": [],
                "disabled": True,
                "unavailable": True,
                "error": str(error),
                "warning": "memory search is not available now",
                "action": _ACTION,
            }
            return _to_json(failed, is_error=True)
        citations = notes.settings.agent.memory_search.citations
        results: list[dict[str, Any]] = []
        for hit in found.hits:
            result = {
                "path": hit.path,
                "startLine": hit.start,
                "endLine": hit.end,
                "score": hit.score,
                "snippet": hit.snippet,
                "source": hit.kind,
            }
            if citations != "off":
                citation = cite(hit.path, hit.start, hit.end)
                result["snippet"] = f"{hit.snippet}\n\nSource: {citation}"
                result["citation"] = citation
            results.append(result)
        data: dict[str, Any] = {
            "results": results,
            "provider": found.provider,
            "model": found.model,
            "fallback": found.fallback and {"from": found.fallback.wanted, "reason": found.fallback.reason},
            "citations": citations,
            "mode": found.mode,
        }
        if found.warnings:
            data["warning"] = "; ".join(found.warnings)
        if facts := _find_facts(session, given.query):
            data["facts"] = [{"type": hit.fact.type, "text": hit.fact.content, "score": hit.score} for hit in facts]
        return _to_json(data)

    return (
        make_tool("memory_search", SearchNotes, search, is_parallel=True),
        make_tool("memory_get", GetNote, get, is_parallel=True),
    )


def cite(path: str, start: int, end: int) -> str:
    """Return the citation of lines: `path#L5`, or `path#L5-L9`."""
    return f"{path}#L{start}" if start == end else f"{path}#L{start}-L{end}"


def _find_facts(session: Session | None, query: str, *, limit: int = 5) -> list[FactHit]:
    """Recall the facts of the agent and project, learned in any session, without long-term memories."""
    if session is None:
        return []
    return list(session.recall(query).facts[:limit])


def _at_least_one(number: int | None) -> int | None:
    return None if number is None else max(1, number)


def _to_json(value: dict[str, Any], *, is_error: bool = False) -> Answer:
    return Answer(text=json.dumps(value, ensure_ascii=False, indent=2), is_error=is_error)


# --- long-term memories ---------------------------------------------------------

MIN_CANDIDATE_SCORE: Final = 0.7
MIN_CERTAIN_SCORE: Final = 0.9
MAX_CANDIDATES: Final = 5


class RecallMemories(Arguments, frozen=True):
    """Search long-term memories and facts: preferences, decisions, people, what was learned in any session."""

    query: Annotated[str, Meta(description="What to look for, in words.")]
    limit: Annotated[int, Meta(description="The maximum number of memories.")] = 5


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
    scored: list[tuple[float, str]] = []
    for hit in memories.recall(given.query, limit=limit):
        category = hit.fact.subject if hit.fact.subject in CATEGORIES else "other"
        scored.append((hit.score, f"[{category}] {hit.fact.content}"))
    facts = _find_facts(session, given.query, limit=limit)
    scored += [(hit.score, f"[{hit.fact.type}] {hit.fact.content}") for hit in facts]
    scored.sort(reverse=True)
    best = {line: score for score, line in scored[:limit]}  # a memory may also be a fact of the session
    if not best:
        return Answer(text="No relevant memories found.")
    lines = [f"Found {len(best)} memories:", ""]
    for number, (line, score) in enumerate(best.items(), start=1):
        lines.append(f"{number}. {line} ({score:.0%})")
    return Answer(text="\n".join(lines))


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


def _shorten(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    return f"{head(text, max_chars)}..."


# --- the archive ----------------------------------------------------------------

MAX_ARCHIVE_CHARS: Final = 20_000


class GetArchived(Arguments, frozen=True):
    """Show a message or tool result that was cut, cleared or summarised, whole, by its archive number.

    A long one comes in parts: continue with `offset`.
    """

    id: Annotated[int, Meta(description="The archive number in the place of what was cut or cleared.")]
    offset: Annotated[int, Meta(ge=0, description="The first character to show, from 0.")] = 0
    limit: Annotated[int, Meta(ge=1, description=f"How many characters; {MAX_ARCHIVE_CHARS:,} at most.")] = (
        MAX_ARCHIVE_CHARS
    )

    def show(self, session: Session) -> Answer:
        """Show the message."""
        rows = session.get([self.id])
        if not rows:
            raise InputError(f"the archive has no message {self.id}: use a number that is shown in this conversation")
        message = rows[0].message
        text = words(message)
        header = f"archived message {rows[0].id}"
        if message.results:
            names = ", ".join(result.name or "a tool" for result in message.results)
            header += f", result of {names}"
        else:
            header += f", said by {message.name or message.role}"
        when = minute(message.timestamp)
        if when:
            header += f", {when}"
        stop = min(len(text), self.offset + min(self.limit, MAX_ARCHIVE_CHARS))
        shown = f"[{header}]\n{text[self.offset : stop]}"
        if stop < len(text):
            shown += f"\n\n[{len(text) - stop:,} characters follow: offset={stop} continues]"
        return Answer(text=shown)
