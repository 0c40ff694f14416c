"""What was done in a stretch of history: files, failures, commands, plans, and what never came back. By rule."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from holdfast.compaction.dialogue import call_text, one_line, shortened
from holdfast.compaction.effects import Step, command, command_line, files, only_looks, path_of, runs_on, steps
from holdfast.messages import Message, ToolCall, ToolResult

__all__ = ["Activity", "Failure", "activity"]

_EXIT: Final = re.compile(
    r"(?:exit(?:ed)?[ _-]?(?:with[ _])?(?:code|status)|returncode|退出码|退出代码|終了コード|종료 코드)"
    r"[^\w\n-]{0,4}(-?\d{1,5})\b",
    re.IGNORECASE,
)
_ENDS: Final = 400
_FAILURE: Final = 240
_ABOUT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A tool call that failed, and was not repeated with success.

    Attributes:
        tool: Which tool.
        about: What it was called with, in short.
        status: The exit code, where one was told.
        text: What it said, in short.
    """

    tool: str
    about: str
    status: int | None
    text: str

    def __str__(self) -> str:
        status = f" [exit {self.status}]" if self.status is not None else ""
        return f"{self.about}{status}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What was done.

    Attributes:
        read: Files that were read and not changed, sorted.
        modified: Files that were written, sorted.
        failures: Calls that failed, oldest first.
        pending: Calls that nobody answered.
        background: Calls that were started to run on.
        commands: Commands that went through, oldest first, each where it was run last.
        steps: The agent's plan as it last wrote it down.
    """

    read: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    pending: tuple[str, ...] = ()
    background: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()

    def after(self, *, read: Iterable[str], modified: Iterable[str]) -> Activity:
        """The same with the files of what came before."""
        changed = {*self.modified, *modified}
        looked_at = {*self.read, *read} - changed
        return replace(self, read=tuple(sorted(looked_at)), modified=tuple(sorted(changed)))


class _Done(NamedTuple):
    """A call and what came of it."""

    call: ToolCall
    result: ToolResult | None

    @property
    def status(self) -> int | None:
        text = self.result.text if self.result else ""
        found = [*_EXIT.findall(text[:_ENDS]), *_EXIT.findall(text[-_ENDS:])]
        return int(found[-1]) if found else None

    @property
    def failed(self) -> bool:
        if self.result is None:
            return False
        failed = self.result.is_error or (bool(self.status) and len(self.result.text.strip()) > _ABOUT)
        return failed and not self._found_nothing

    @property
    def _found_nothing(self) -> bool:
        """A search without a hit also ends with a code: without a word it is no failure to remember."""
        text = self.result.text if self.result else ""
        return self.status == 1 and len(text.strip()) < _ABOUT // 2 and only_looks(command_line(self.call))


@dataclass(slots=True)
class _Tally:
    read: set[str] = field(default_factory=set)
    modified: set[str] = field(default_factory=set)
    failures: dict[str, Failure] = field(default_factory=dict)
    pending: list[ToolCall] = field(default_factory=list)
    background: list[str] = field(default_factory=list)
    commands: dict[str, None] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()

    def add(self, done: _Done) -> None:
        call = done.call
        subject = path_of(call) or json.dumps(call.arguments, sort_keys=True, default=str)
        key = f"{call.name} {subject}"
        self.failures.pop(key, None)
        if done.failed:
            self.failures[key] = _failure(done)
            return
        if done.result is None:
            self.pending.append(call)
            return
        self._add_files(call)
        self.steps = steps(call) or self.steps
        if runs_on(call):
            self.background.append(call_text(call, limit=_ABOUT))
        elif line := command(call):
            self.commands.pop(line, None)
            self.commands[line] = None

    def _add_files(self, call: ToolCall) -> None:
        read, modified = files(call)
        self.read.update(read)
        self.modified.update(modified)


def activity(messages: Sequence[Message]) -> Activity:
    """What was done in these messages. A failure counts until the same call, or one on the same file, goes well."""
    tally = _Tally()
    for done in _calls(messages):
        tally.add(done)
    open_calls = {call.id for message in _last_turn(messages) for call in message.calls}
    return Activity(
        read=tuple(sorted(tally.read - tally.modified)),
        modified=tuple(sorted(tally.modified)),
        failures=tuple(tally.failures.values()),
        pending=tuple(call_text(call, limit=_ABOUT) for call in tally.pending if call.id in open_calls),
        background=tuple(tally.background),
        commands=tuple(tally.commands),
        steps=tally.steps,
    )


def _last_turn(messages: Sequence[Message]) -> Sequence[Message]:
    """What came after the user last spoke: what waits from before that was given up."""
    asked = (index for index in range(len(messages) - 1, -1, -1) if messages[index].role == "user")
    return messages[next(asked, 0) :]


def _calls(messages: Sequence[Message]) -> Iterator[_Done]:
    """Every call with its result; ids may be used again, so each takes the next result of its id."""
    waiting: dict[str, deque[ToolResult]] = {}
    for message in messages:
        for result in message.results:
            waiting.setdefault(result.call_id, deque()).append(result)
    for message in messages:
        for call in message.calls:
            results = waiting.get(call.id)
            yield _Done(call, results.popleft() if results else None)


def _failure(done: _Done) -> Failure:
    text = done.result.text if done.result else ""
    about = command_line(done.call) or call_text(done.call, limit=_ABOUT)
    said = one_line(shortened(text, _FAILURE), _FAILURE) or "failed without a word"
    return Failure(tool=done.call.name, about=one_line(about, _ABOUT), status=done.status, text=said)
