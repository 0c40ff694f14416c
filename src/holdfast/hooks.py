"""Hook events of hosts that run a command for each of them: Claude Code, Codex, Qwen Code, Gemini CLI.

The transcript of the host is archived when a turn ends and before a compaction. A new prompt gets what memory recalls
for it, without what the host's window still shows. After a compaction the details that the summary lost are put back,
with what is recalled for the prompt of the turn. A tool output that is very long is archived whole and shortened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, Final

from holdfast import transcripts
from holdfast.compaction.audit import audit, find_requirements
from holdfast.compaction.dialogue import shorten
from holdfast.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.memory.block import Detail, render
from holdfast.memory.query import build_query
from holdfast.messages import Message, Text, ToolResult
from holdfast.session import Session
from holdfast.store.base import Record, Select

MAX_BLOCK_TOKENS: Final = 1_500
"""A block of this size is below that; it is never cut, because its end mark belongs to it."""
MAX_LOST_CHARS: Final = 3_000
"""The most characters of details that are put back after a compaction."""
MAX_OUTPUT_CHARS: Final = 16_000
"""What is left of a tool output that is longer than `pruning.min_prunable_tool_chars`."""
COMPACTED: Final = "compacted"
"""The kind of the record that says which messages the host has compacted."""
LOST: Final = "The summary of the conversation left these details out. They are quoted from the archive:"

Payload = Mapping[str, Any]
Output = dict[str, Any]


@dataclass(slots=True)
class _Host:
    """What the window of a host shows: its messages after the last compaction, and the passages it was given."""

    compacted: int
    messages: Sequence[int] = ()
    quoted: set[int] = field(default_factory=set)
    prompt: str = ""
    added: str = ""
    """What is added to every request of the turn, where the host has compacted in the middle of it."""


class HostHooks:
    """Answers hook events. One object serves any number of sessions and threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._hosts: dict[str, _Host] = {}
        self._lock = Lock()

    def handle(self, payload: Payload) -> Output:
        """Answer an event with what its host expects; an event that is not known gets an empty answer."""
        action = _ACTIONS.get(str(payload.get("hook_event_name", "")))
        session = str(payload.get("session_id") or "")
        if action is None or not session:
            return {}
        with self._lock:
            return action(self, payload, self._engine.session(session, project=str(payload.get("cwd") or "")))

    def _archive(self, payload: Payload, session: Session) -> Output:
        """Archive the transcript of the host."""
        path = Path(str(payload.get("transcript_path") or ""))
        if path.is_file():
            messages = transcripts.read(path).messages
            self._host(session).messages = self._engine.memory.ingest(messages, scope=session.scope)
            self._engine.notify()
        return {}

    def _end_turn(self, payload: Payload, session: Session) -> Output:
        """Archive the transcript of the host; a compaction that follows is no longer about the prompt."""
        self._archive(payload, session)
        self._host(session).prompt = ""
        return {}

    def _recall_prompt(self, payload: Payload, session: Session) -> Output:
        """Recall for a prompt what the window does not show."""
        if session.id not in self._hosts:  # a session of an earlier process
            self._archive(payload, session)
        host = self._host(session)
        prompt = str(payload.get("submitted_prompt") or payload.get("prompt") or "")
        if not prompt.strip():  # Qwen Code sends the event for tool results too
            return {}
        host.prompt, host.added = prompt, ""
        return _add_context(payload, self._recall(session))

    def _recall(self, session: Session) -> str:
        host, memory = self._host(session), self._engine.memory
        query = build_query(
            self._engine.settings,
            (host.prompt,),
            scope=session.scope,
            now=memory.clock(),
            cap=min(MAX_BLOCK_TOKENS, self._engine.settings.recall.hard_cap_tokens),
            in_window=[number for number in host.messages if number > host.compacted],
            automatic=True,
        )
        found = memory.recall(replace(query, quoted=host.quoted))
        host.quoted |= {hit.passage for hit in found.hits}
        return found.block

    def _record_compaction(self, payload: Payload, session: Session) -> Output:
        """Archive what the host will compact, and record how far that goes."""
        self._archive(payload, session)
        host = self._host(session)
        self._set_compacted(session, last=max(host.messages, default=host.compacted))
        return {}

    def _set_compacted(self, session: Session, *, last: int) -> None:
        host = self._host(session)
        self._hosts[session.id] = _Host(last, host.messages, prompt=host.prompt)
        row = Record(scope=session.scope, kind=COMPACTED, key="", data={"last": last}, time=self._engine.memory.clock())
        self._engine.memory.store.add_records([row])

    def _start(self, payload: Payload, session: Session) -> Output:
        """After a compaction, return the details that the host's summary lost, and what the prompt recalls."""
        if payload.get("source") != "compact":
            return self._archive(payload, session) if payload.get("source") == "resume" else {}
        plan = session.compact(dry_run=True).plan
        required = find_requirements(plan, settings=self._engine.settings.compaction)
        lost = audit(_summary(payload), required)
        lines = [line for line in str(lost).splitlines() if not line.startswith("- the heading")]
        text = "\n".join([LOST, *lines])[:MAX_LOST_CHARS]
        details = [Detail(role="archive", time=0, text=text)] if lines else []
        blocks = [render((), details, self._engine.memory.marks)]
        if self._host(session).prompt:
            blocks.append(self._recall(session))
        return _add_context(payload, "\n\n".join(filter(None, blocks)))

    def _check_window(self, payload: Payload, session: Session) -> Output:
        """Recall once more where the request does not show what it showed before: Gemini CLI compacts inside a turn.

        It reports every request as one that is about to be compacted, so that the request itself must be compared.
        """
        request = payload.get("llm_request")
        messages = request.get("messages") if isinstance(request, Mapping) else None
        if not isinstance(messages, list) or session.id not in self._hosts:
            return {}
        host = self._host(session)
        window = "\n".join(map(_content, messages))
        rows = [(row.id, text) for row in session.get(_after(host)) if (text := _first_text(row.message))]
        missing = [number for number, text in rows if text not in window]
        if 2 * len(missing) > len(rows):  # single messages may differ: secrets are masked in the archive
            self._set_compacted(session, last=max(missing))
            host = self._host(session)
            host.added = self._recall(session)
        if not host.added:
            return {}
        last = max((index for index, one in enumerate(messages) if host.prompt in _content(one)), default=-1)
        messages = [*messages]
        messages[last] = {**messages[last], "content": f"{_content(messages[last])}\n\n{host.added}"}
        output = {"hookEventName": "BeforeModel", "llm_request": {"messages": messages}}
        return {"hookSpecificOutput": output}

    def _prune_output(self, payload: Payload, session: Session) -> Output:
        """Shorten a very long tool output, and archive it whole first."""
        pruning = self._engine.settings.pruning
        response = payload.get("tool_response")
        longest = max(map(len, _texts(response)), default=0)
        if pruning.mode == "off" or longest <= pruning.min_prunable_tool_chars:
            return {}
        call, name = str(payload.get("tool_use_id") or ""), str(payload.get("tool_name") or "")
        content = (Text(text="\n".join(_texts(response))),)
        whole = Message(role="tool", parts=(ToolResult(call_id=call, content=content, name=name),))
        (number,) = self._engine.memory.ingest([whole], scope=session.scope)
        self._engine.notify()
        note = f"[Shortened by Holdfast. The whole output is message {number} of the archive: archive_get shows it.]"
        if (
            payload.get("hook_event_name") == "AfterTool"
        ):  # Gemini CLI replaces an output only by the reason of a refusal
            text = response.get("llmContent") if isinstance(response, Mapping) else response
            return {"decision": "deny", "reason": "\n".join(_texts(_shorten(text, note)))}
        output = {"hookEventName": payload["hook_event_name"], "updatedToolOutput": _shorten(response, note)}
        return {"hookSpecificOutput": output}

    def _host(self, session: Session) -> _Host:
        if session.id not in self._hosts:
            records = self._engine.memory.store.read_records(Select(scope=session.scope), kind=COMPACTED)
            self._hosts[session.id] = _Host(max((row.data.get("last", 0) for row in records), default=0))
        return self._hosts[session.id]


_ACTIONS: Final[Mapping[str, Callable[[HostHooks, Payload, Session], Output]]] = {
    "SessionStart": HostHooks._start,  # noqa: SLF001 - its own methods
    "UserPromptSubmit": HostHooks._recall_prompt,  # noqa: SLF001
    "BeforeAgent": HostHooks._recall_prompt,  # noqa: SLF001
    "BeforeModel": HostHooks._check_window,  # noqa: SLF001
    "PostToolUse": HostHooks._prune_output,  # noqa: SLF001
    "AfterTool": HostHooks._prune_output,  # noqa: SLF001
    "PreCompact": HostHooks._record_compaction,  # noqa: SLF001
    "Stop": HostHooks._end_turn,  # noqa: SLF001
    "AfterAgent": HostHooks._end_turn,  # noqa: SLF001
    "SubagentStop": HostHooks._archive,  # noqa: SLF001
    "SessionEnd": HostHooks._end_turn,  # noqa: SLF001
}
"""What is done for each event, by its name in Claude Code or in Gemini CLI."""


def _add_context(payload: Payload, context: str) -> Output:
    if not context:
        return {}
    return {"hookSpecificOutput": {"hookEventName": payload["hook_event_name"], "additionalContext": context}}


def _summary(payload: Payload) -> str:
    """Return the host's summary: the text of the event, or the last long text of its transcript."""
    if isinstance(given := payload.get("compact_summary"), str):
        return given
    try:
        messages: Sequence[Message] = transcripts.read(Path(str(payload.get("transcript_path") or ""))).messages
    except HoldfastError:
        return ""
    return next((message.text for message in reversed(messages) if message.role == "user" and message.text), "")


# --- requests of Gemini CLI, and tool outputs ------------------------------------


def _after(host: _Host) -> list[int]:
    return [number for number in host.messages if number > host.compacted]


def _first_text(message: Message) -> str:
    """Return the first text of a message of the user or the model."""
    texts = (part.text for part in message.parts if isinstance(part, Text)) if message.role != "tool" else ()
    return next((text.strip() for text in texts if text.strip()), "")


def _content(message: Any) -> str:
    return str(message.get("content") or "") if isinstance(message, Mapping) else ""


def _is_media(value: Any) -> bool:
    """Whether the long text in a value is an image or a sound."""
    return isinstance(value, Mapping) and (value.get("type") in {"image", "audio"} or bool(value.get("isImage")))


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value."""
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
    is_long = isinstance(value, str) and len(value) > MAX_OUTPUT_CHARS
    return f"{shorten(value, MAX_OUTPUT_CHARS)}\n{note}" if is_long else value
