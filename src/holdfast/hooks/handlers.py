"""Hook events of hosts that run a command for each of them: Claude Code, Codex, Qwen Code, Gemini CLI.

A new session gets an overview of its project. The transcript of the host is archived when a turn ends and before a
compaction. A new prompt gets what memory recalls for it, without what the host's window still shows. After a compaction
the overview and the details that the summary lost are put back, with what is recalled for the prompt of the turn. A
tool output that is very long is archived whole and shortened.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, Final

from holdfast.cache import LruCache
from holdfast.errors import ConflictError, HoldfastError, StorageError, UnavailableError
from holdfast.files import only_process
from holdfast.hooks import spool
from holdfast.memory.block import Detail, render
from holdfast.memory.fact_recalls import count_recalls
from holdfast.memory.learning_queue import HOSTS, MIN_MARK_PAUSE, RULES, make_mark, queue_until
from holdfast.memory.memory import Memory
from holdfast.messages import Message, Text, ToolResult
from holdfast.store.base import Record, Scope, Select

if TYPE_CHECKING:  # prompts do not need it
    from holdfast.transcripts import Transcript

log = logging.getLogger("holdfast.hooks")

MAX_BLOCK_TOKENS: Final = 1_500
"""A block of this size is below what hosts cut off; it is never cut, because its end mark belongs to it."""
MAX_LOST_CHARS: Final = 3_000
"""The maximum characters of details that are put back after a compaction."""
MAX_OUTPUT_CHARS: Final = 16_000
"""Characters that are kept of a tool output that is longer than `pruning.min_prunable_tool_chars`."""
MAX_PROMPT_BYTES: Final = 1 << 20
"""A transcript that was never archived is archived before a prompt up to this size, else when the turn ends."""
MAX_PROMPT_CHARS: Final = 100_000
"""Characters of a prompt that are kept for recall later in its turn."""
MAX_BLOCKS: Final = 64
"""Blocks of a session whose texts are kept: a new block does not repeat them."""
LOOK_AGAIN_SECONDS: Final = 20.0
"""How long after the end of a turn the transcript of a host is looked at again."""
ARCHIVING_EVENT: Final = "SubagentStop"
"""The event that archives the transcript and changes nothing else."""
MAX_REPLY_TRIES: Final = 10
"""How often the transcript of a host is looked at for the reply of a turn,"""
REPLY_PAUSE: Final = 0.1
"""and the seconds in between."""
MAX_SPOOL_TRIES: Final = 10
"""How often an event of a session is tried that another process may be handling,"""
SPOOL_PAUSE: Final = 0.1
"""and the seconds in between. A host waits for the event after it, two seconds at most."""
MAX_REPLY_CHARS: Final = 80
"""Characters of the reply that are looked for,"""
MAX_END_BYTES: Final = 1 << 18
"""and the bytes at the end of the transcript in which they are."""
MAX_HOSTS: Final = 256
"""Sessions whose state is kept between two events."""
HOST: Final = "host"
"""The kind of the record about a host: what it has compacted, and how much of its transcript is archived."""

Payload = Mapping[str, Any]
Output = dict[str, Any]


@dataclass(slots=True)
class _Host:
    """The state of a host's session.

    Attributes:
        scope: The owner of the session.
        memory: The memory, with the settings of the project.
        lock: Held while an event of the session is handled.
        previous, compacted: The last archived messages that the last two compactions have removed from its window.
        messages: The archived messages that its window shows.
        transcript: The file that was read, its size then, and how many of its messages are archived.
        blocks: The newest blocks in its window that this process has made, with the overview.
        quoted: The passages that blocks in its window quote whole.
        is_started: Whether its window has an overview, if there was anything to say.
        prompt: The prompt of the turn that runs.
        added: What is added to every request of the turn, if the host has compacted in the middle of it.
        marked_at: When the session was last marked as being in use; None if it was not.
    """

    scope: Scope
    memory: Memory
    lock: RLock = field(default_factory=RLock)
    previous: int = 0
    compacted: int = 0
    messages: list[int] = field(default_factory=list)
    transcript: tuple[str, int, int] = ("", 0, 0)
    blocks: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_BLOCKS))
    quoted: set[int] = field(default_factory=set)
    is_started: bool = False
    prompt: str = ""
    added: str = ""
    marked_at: int | None = None


class HostHooks:
    """Answers hook events. One object serves any number of sessions and threads.

    Args:
        memory: The memory.
        choose: Returns the memory with the settings of a project; without it, all projects have the same settings.
        find_reader: Returns under which name the messages of a project are queued for the extraction of facts; by
            default that of hosts if the settings name a model for them.
        notify: Called when there is something new in it.
        notify_end: Called when a session has ended.
        wait: Waits this many seconds for a host that has not written its transcript yet.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        choose: Callable[[str], Memory] | None = None,
        find_reader: Callable[[str], str] | None = None,
        notify: Callable[[], None] = lambda: None,
        notify_end: Callable[[], None] = lambda: None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._memory = memory
        self._choose = choose
        self._find_reader = find_reader
        self._notify = notify
        self._notify_end = notify_end
        self._wait = wait
        self._hosts: LruCache[Scope, _Host] = LruCache(MAX_HOSTS)
        self._lock = Lock()
        self._spool_lock = Lock()
        self._recent: dict[str, tuple[dict[str, Any], float]] = {}

    def handle(self, payload: Payload) -> Output:
        """Answer an event with what its host expects; an event that is not known gets an empty answer."""
        action = _ACTIONS.get(str(payload.get("hook_event_name", "")))
        session = str(payload.get("session_id") or "")
        if action is None or not session:
            return {}
        host = self._find(Scope(project=str(payload.get("cwd") or ""), session=session))
        with host.lock:
            if self._choose is not None:
                host.memory = self._choose(host.scope.project)
            return action(self, payload, host)

    def take_in(self, folder: str, *, memory: str = "", session: str = "") -> int:
        """Handle the events that wait in the spool of a folder, all or those of a session; return how many there were.

        With the name of a memory, events of others are left there.

        Raises:
            StorageError: The store cannot take them. They stay in the spool.
        """
        count = 0
        for name in spool.names(folder):
            event = spool.read(folder, name)
            if session and event is not None and event.get("session_id") != session:
                continue
            if memory and event is not None and event.get("memory", memory) != memory:
                continue
            tries = MAX_SPOOL_TRIES if session else 1  # a host waits for an answer that depends on its events
            if self._take_in_file(folder, name, tries=tries):
                count += 1
        return count

    def _take_in_file(self, folder: str, name: str, *, tries: int) -> bool:
        """Handle an event that waits; False if another process has handled it, or does not stop handling events."""
        for left in reversed(range(tries)):
            # An event is handled once, and before the next one of its session.
            with self._spool_lock, only_process(Path(folder, spool.FOLDER, spool.LOCK)) as is_only:
                if is_only:
                    event = spool.read(folder, name)
                    if event is None:
                        return False
                    self._take_in_event(event)
                    spool.remove(folder, name)
                    self._recent[str(event.get("transcript_path"))] = (event, time.monotonic() + LOOK_AGAIN_SECONDS)
                    return True
            if left:
                self._wait(SPOOL_PAUSE)
        return False

    def look_again(self) -> None:
        """Archive what hosts have added to their transcripts after the event: some write the last reply later.

        Raises:
            StorageError: The store cannot take it.
        """
        for path, (event, end) in list(self._recent.items()):
            with self._spool_lock:
                self._take_in_event({**event, "hook_event_name": ARCHIVING_EVENT})
            if time.monotonic() > end:
                self._recent.pop(path, None)

    def _take_in_event(self, event: Payload) -> None:
        try:
            self.handle(event)
        except (StorageError, ConflictError, UnavailableError):
            raise
        except (HoldfastError, OSError, ValueError) as error:  # as it would be the next time
            log.warning("%s of %s: %s", event.get("hook_event_name"), event.get("transcript_path"), error)

    def archive(self, payload: Payload, host: _Host) -> Output:
        """Archive what is new in the transcript of the host."""
        path = Path(str(payload.get("transcript_path") or ""))
        size = path.stat().st_size if path.is_file() else 0
        name, known_size, known = host.transcript
        if not size or (name, known_size) == (str(path), size):
            return {}
        transcript = _read(path)
        messages = transcript.messages
        if name != str(path) or len(messages) < known:  # another file, or one that was rewritten
            known = 0
        archived = host.memory.ingest(messages[known:], scope=host.scope)
        host.messages += archived
        if transcript.title and all(archived):  # the title may repeat a message that was forgotten
            host.memory.set_title(transcript.title, scope=host.scope)
        if not name:
            host.memory.set_host(transcript.host, scope=host.scope)
        host.transcript = (str(path), size, len(messages))
        self._record(host)
        self._mark(host)
        self._notify()
        return {}

    def end_turn(self, payload: Payload, host: _Host) -> Output:
        """Archive the transcript of the host; a compaction that follows is no longer about the prompt.

        Qwen Code announces the end of a turn shortly before its transcript has the reply, and no further event follows
        if it ends then.
        """
        reply = payload.get("last_assistant_message")
        if isinstance(reply, str) and reply:
            path = Path(str(payload.get("transcript_path") or ""))
            tries = 0
            while path.is_file() and not _has_reply(path, reply) and tries < MAX_REPLY_TRIES:
                self._wait(REPLY_PAUSE)
                tries += 1
        self.archive(payload, host)
        host.prompt = ""
        return {}

    def end_session(self, payload: Payload, host: _Host) -> Output:
        """Archive the transcript of the host, and let the rest of the session be read for facts."""
        self.end_turn(payload, host)
        self._mark(host, has_ended=True)
        self._notify_end()
        return {}

    def _mark(self, host: _Host, *, has_ended: bool = False) -> None:
        """Mark the session as being in use, now and then, or as ended: what is left of it is read for facts."""
        knowledge = host.memory.settings.knowledge
        now = host.memory.clock()
        pause = max(MIN_MARK_PAUSE, knowledge.idle // timedelta(milliseconds=1) // 2)
        is_marked = host.marked_at is not None and 0 <= now - host.marked_at <= pause
        if not knowledge.extraction or (is_marked and not has_ended):
            return
        mark = make_mark(host.scope, self._get_reader(host), time=now, has_ended=has_ended)
        host.memory.store.add_jobs([mark])
        host.marked_at = None if has_ended else now

    def _get_reader(self, host: _Host) -> str:
        if self._find_reader is not None:
            return self._find_reader(host.scope.project)
        return RULES if host.memory.settings.knowledge.host_model is None else HOSTS

    def recall_prompt(self, payload: Payload, host: _Host) -> Output:
        """Recall for a prompt what the window does not show. The first one gets the overview if the start did not."""
        prompt = str(payload.get("submitted_prompt") or payload.get("prompt") or "")
        if not prompt.strip():  # Qwen Code sends the event for tool results too
            return {}
        path = Path(str(payload.get("transcript_path") or ""))
        if not host.transcript[0] and path.is_file() and path.stat().st_size <= MAX_PROMPT_BYTES:
            try:
                self.archive(payload, host)
            except StorageError as error:  # the disk is full, for example; the end of the turn archives it again
                log.warning("%s: %s", path, error)
        host.prompt, host.added = prompt[:MAX_PROMPT_CHARS], ""
        # The event at the start of the session may have come too early for an answer in time.
        overview = "" if host.is_started else self._make_overview(host)
        return _add_context(payload, "\n\n".join(filter(None, (overview, self._recall(host)))))

    def _recall(self, host: _Host) -> str:
        """Make the block for the prompt of the turn, and record what it quotes."""
        from holdfast.memory.query import Shown  # noqa: PLC0415 - see `Memory`

        memory = host.memory
        found = memory.recall(
            (host.prompt,),
            scope=host.scope,
            automatic=True,
            cap=min(MAX_BLOCK_TOKENS, memory.settings.recall.hard_cap_tokens),
            shown=Shown(messages=host.messages, passages=host.quoted, blocks=tuple(host.blocks)),
        )
        if not found.block:
            log.info("no block for a prompt of session %s: %s", host.scope.session, found.reason)
            return ""
        host.blocks.append(found.block)
        host.quoted.update(found.whole_passages)  # more of the others may be asked for
        self._record(host, facts=[hit.fact.id for hit in found.facts])
        return found.block

    def record_compaction(self, payload: Payload, host: _Host) -> Output:
        """Archive what the host will compact, and record how far that goes."""
        self.archive(payload, host)
        self._set_compacted(host, last=max(host.messages, default=host.compacted))
        return {}

    def _set_compacted(self, host: _Host, *, last: int) -> None:
        host.previous, host.compacted = host.compacted, last
        host.messages = [number for number in host.messages if number > last]
        host.blocks.clear()
        host.quoted = set()
        host.is_started = False
        self._record(host)
        if host.memory.settings.knowledge.extraction:
            queue_until(host.memory.store, host.scope, self._get_reader(host), until=last, time=host.memory.clock())
            self._notify()

    def start(self, payload: Payload, host: _Host) -> Output:
        """Return the overview; after a compaction also the details that the summary lost and what the prompt recalls.

        A session that is resumed gets one only if its window has none, and a cleared one with its first prompt.
        """
        source = payload.get("source")
        if source == "resume":
            self.archive(payload, host)
            return {} if host.is_started else _add_context(payload, self._make_overview(host))
        if source != "compact":
            if host.messages:  # the same session with an empty window
                self._set_compacted(host, last=max(host.messages))
            if source == "clear":  # Gemini CLI drops what is returned here; the first prompt gets the overview
                host.is_started = False
                self._record(host)
                return {}
            return _add_context(payload, self._make_overview(host))
        overview = self._make_overview(host)
        from holdfast.hooks.host_summary import find_lost  # noqa: PLC0415 - only for this

        select = Select(scope=host.scope, after=host.previous, before=host.compacted + 1)
        history = [row.message for row in self._memory.store.read_messages(select)]
        lost = find_lost(history, _summary(payload), settings=host.memory.settings.compaction)[:MAX_LOST_CHARS]
        blocks = [overview]
        blocks.append(render((), [Detail(role="archive", time=0, text=lost)] if lost else [], self._memory.marks))
        if host.prompt:
            blocks.append(self._recall(host))
        return _add_context(payload, "\n\n".join(filter(None, blocks)))

    def _make_overview(self, host: _Host) -> str:
        """Make the overview of the project; empty if recall or the overview is off, or if it fails."""
        from holdfast.memory.query import find_recall_switch  # noqa: PLC0415 - see `Memory`

        if find_recall_switch(host.memory.settings):
            return ""
        try:
            overview = host.memory.make_overview(scope=host.scope).text
        except HoldfastError as error:  # the session goes on without it
            log.warning("no overview for session %s: %s", host.scope.session, error)
            return ""
        if overview:
            host.blocks.append(overview)
        host.is_started = True
        self._record(host)
        return overview

    def check_window(self, payload: Payload, host: _Host) -> Output:
        """Recall again if the request does not show what it showed before: Gemini CLI compacts inside a turn.

        It reports every request as one that is about to be compacted, so that the request itself must be compared.
        """
        request = payload.get("llm_request")
        messages = request.get("messages") if isinstance(request, Mapping) else None
        if not isinstance(messages, list):
            return {}
        window = "\n".join(map(_content, messages))
        rows = [
            (row.id, text)
            for row in self._memory.get(host.messages, scope=host.scope)
            if (text := _first_text(row.message))
        ]
        missing = [number for number, text in rows if text not in window]
        if 2 * len(missing) > len(rows):  # single messages may differ: secrets are masked in the archive
            self._set_compacted(host, last=max(missing))
            host.added = self._recall(host)
        if not host.added:
            return {}
        last = max((index for index, one in enumerate(messages) if host.prompt in _content(one)), default=-1)
        messages = [*messages]
        messages[last] = {**messages[last], "content": f"{_content(messages[last])}\n\n{host.added}"}
        output = {"hookEventName": "BeforeModel", "llm_request": {"messages": messages}}
        return {"hookSpecificOutput": output}

    def prune_output(self, payload: Payload, host: _Host) -> Output:
        """Shorten a very long tool output, and archive it whole first."""
        pruning = host.memory.settings.pruning
        response = payload.get("tool_response")
        longest = max(map(len, _texts(response)), default=0)
        if pruning.mode == "off" or longest <= pruning.min_prunable_tool_chars:
            return {}
        call, name = str(payload.get("tool_use_id") or ""), str(payload.get("tool_name") or "")
        content = (Text(text="\n".join(_texts(response))),)
        whole = Message(role="tool", parts=(ToolResult(call_id=call, content=content, name=name),))
        (number,) = host.memory.ingest([whole], scope=host.scope)
        self._notify()
        note = f"[Shortened by Holdfast. The whole output is message {number} of the archive: archive_get shows it.]"
        if (
            payload.get("hook_event_name") == "AfterTool"
        ):  # Gemini CLI replaces an output only by the reason of a refusal
            text = response.get("llmContent") if isinstance(response, Mapping) else response
            return {"decision": "deny", "reason": "\n".join(_texts(_shorten(text, note)))}
        output = {"hookEventName": payload["hook_event_name"], "updatedToolOutput": _shorten(response, note)}
        return {"hookSpecificOutput": output}

    def _find(self, scope: Scope) -> _Host:
        """Return what is known of a session; of an earlier process, what was recorded."""
        with self._lock:
            host = self._hosts.get(scope)
            if host is None:
                host = _Host(scope, self._memory)
                for row in self._memory.store.read_records(Select(scope=scope), kind=HOST):
                    host.previous = row.data.get("previous", 0)
                    host.compacted = row.data.get("compacted", 0)
                    host.transcript = (row.data.get("path", ""), row.data.get("size", 0), row.data.get("messages", 0))
                    host.quoted = set(row.data.get("whole", ()))
                    host.is_started = bool(row.data.get("started", False))
                shown = self._memory.store.read_messages(Select(scope=scope, after=host.compacted))
                host.messages = [row.id for row in shown]
                self._hosts[scope] = host
            return host

    def _record(self, host: _Host, *, facts: Sequence[str] = ()) -> None:
        """Record the state of a session and which facts it recalled, unless nothing can be recorded.

        What is there is recalled all the same, also if the disk is full.
        """
        store = self._memory.store
        if store.readonly:
            return
        now = self._memory.clock()
        path, size, count = host.transcript
        data = {
            "previous": host.previous,
            "compacted": host.compacted,
            "path": path,
            "size": size,
            "messages": count,
            "whole": sorted(host.quoted),
            "started": host.is_started,
        }
        row = Record(scope=host.scope, kind=HOST, key="", data=data, time=now)
        try:
            store.add_records([row, *count_recalls(store, facts, scope=host.scope, time=now)])
        except StorageError as error:
            log.warning("the state of session %s: %s", host.scope.session, error)


_ACTIONS: Final[Mapping[str, Callable[[HostHooks, Payload, _Host], Output]]] = {
    "SessionStart": HostHooks.start,
    "UserPromptSubmit": HostHooks.recall_prompt,
    "BeforeAgent": HostHooks.recall_prompt,
    "BeforeModel": HostHooks.check_window,
    "PostToolUse": HostHooks.prune_output,
    "AfterTool": HostHooks.prune_output,
    "PreCompact": HostHooks.record_compaction,
    "Stop": HostHooks.end_turn,
    "AfterAgent": HostHooks.end_turn,
    "SubagentStop": HostHooks.archive,
    "SessionEnd": HostHooks.end_session,
}
"""The handler of each event, by its name in Claude Code or Gemini CLI."""


def _add_context(payload: Payload, context: str) -> Output:
    if not context:
        return {}
    return {"hookSpecificOutput": {"hookEventName": payload["hook_event_name"], "additionalContext": context}}


def _read(path: Path) -> Transcript:
    from holdfast import transcripts  # noqa: PLC0415 - takes time, and prompts do not need it

    return transcripts.read(path)


def _has_reply(path: Path, reply: str) -> bool:
    """Return whether the end of a transcript has the beginning of a reply, as JSON."""
    words = json.dumps(reply[:MAX_REPLY_CHARS], ensure_ascii=False)[1:-1]
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MAX_END_BYTES))
        end = file.read().decode("utf-8", "replace")
    return words in end or json.dumps(reply[:MAX_REPLY_CHARS])[1:-1] in end


def _summary(payload: Payload) -> str:
    """Return the host's summary: the text of the event, or the last long text of its transcript."""
    if isinstance(given := payload.get("compact_summary"), str):
        return given
    path = Path(str(payload.get("transcript_path") or ""))
    messages = _read(path).messages if path.is_file() else []
    return next((message.text for message in reversed(messages) if message.role == "user" and message.text), "")


# --- requests of Gemini CLI, and tool outputs ------------------------------------


def _first_text(message: Message) -> str:
    """Return the first text of a message of the user or the model."""
    texts = (part.text for part in message.parts if isinstance(part, Text)) if message.role != "tool" else ()
    return next((text.strip() for text in texts if text.strip()), "")


def _content(message: Any) -> str:
    return str(message.get("content") or "") if isinstance(message, Mapping) else ""


def _is_media(value: Any) -> bool:
    """Return whether the long text in a value is an image or a sound."""
    return isinstance(value, Mapping) and (value.get("type") in {"image", "audio"} or bool(value.get("isImage")))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list) and not _is_media(value):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


def _shorten(value: Any, note: str) -> Any:
    """Shorten every long text in a JSON value, and keep its shape."""
    if isinstance(value, list):
        return [_shorten(item, note) for item in value]
    if isinstance(value, Mapping) and not _is_media(value):
        return {key: _shorten(item, note) for key, item in value.items()}
    from holdfast.compaction.dialogue import shorten  # noqa: PLC0415 - takes time, and prompts do not need it

    is_long = isinstance(value, str) and len(value) > MAX_OUTPUT_CHARS
    return f"{shorten(value, MAX_OUTPUT_CHARS)}\n{note}" if is_long else value
