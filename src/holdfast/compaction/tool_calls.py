"""The effects of tool calls in a part of a conversation: files, failures, commands, plans, calls without a result."""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from holdfast.compaction.dialogue import call_text, one_line, shorten
from holdfast.messages import Message, ToolCall, ToolResult
from holdfast.patterns import load

_PATCHED: Final = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.{1,400}?)\s*$", re.MULTILINE)
_MAX_COMMAND: Final = 240
"""The maximum characters of a command, and of a step of a plan."""
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_PIPED: Final = re.compile(r"\|\||&&|[|;\n]")
_WRITES: Final = re.compile(r"(?<![0-9&>])>{1,2}\s*(?!&|/dev/null)|\bsed -i|\s-delete\b|\s-exec\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """A step of the agent's own plan, with its status as the agent names it."""

    text: str
    status: str


def _words(kind: str) -> list[str]:
    words: list[str] = load("tools")[kind]
    return words


def find_files(call: ToolCall) -> tuple[list[str], list[str]]:
    """List the files that a call reads, and those that it changes."""
    arguments = _arguments(call)
    # `mcp__files__read_file`, `functions.readFile` and `read-file` are the same tool.
    name = call.name.rsplit("__", 1)[-1].rsplit(".", 1)[-1]
    name = name.replace("_", "").replace("-", "").lower()
    path = find_path(call)
    patched: list[str] = []
    for text in _strings(arguments):
        patched += _PATCHED.findall(text)
    if path is None:
        return [], patched
    if name in _words("readers") or (name in _words("editors") and arguments.get("command") == "view"):
        return [path], patched
    if name in _words("writers") or name in _words("editors"):
        return [], [path, *patched]
    return [], patched


def find_path(call: ToolCall) -> str | None:
    """Return the file that a call names; None if it names none."""
    arguments = _arguments(call)
    for key in _words("path_keys"):
        value = arguments.get(key)
        if isinstance(value, str) and value.strip():
            return value
    return None


def _arguments(call: ToolCall) -> Mapping[str, Any]:
    """Return the arguments by name; those that are not a JSON object have an empty name."""
    if isinstance(call.arguments, Mapping):
        return call.arguments
    return {"": call.arguments}


def _strings(value: Any) -> Iterator[str]:
    """Yield every text in a call's arguments, two levels deep."""
    if isinstance(value, Mapping):
        value = value.values()
    for item in value:
        if isinstance(item, str):
            yield item
        elif isinstance(item, list | tuple):
            yield from (text for text in item if isinstance(text, str))


def find_command(call: ToolCall) -> str:
    """Return the command line of a call, shortened; empty for a command that only reads."""
    line = find_command_line(call)
    if not line or only_reads(line):
        return ""
    return one_line(line, _MAX_COMMAND)


def find_command_line(call: ToolCall) -> str:
    """Return the whole command line of a call; empty if it has none."""
    arguments = _arguments(call)
    line: Any = ""
    for key in _words("command_keys"):
        if arguments.get(key):
            line = arguments[key]
            break
    if isinstance(line, list):
        if line[0] in ("bash", "sh", "zsh"):  # ["bash", "-lc", "the command"]
            line = str(line[-1])
        else:
            line = " ".join(map(str, line))
    if not isinstance(line, str) or _PATCHED.search(line):
        return ""
    if any(key in arguments for key in _words("path_keys")):
        return ""
    return line.strip()


def only_reads(command: str) -> bool:
    """Return whether a command line changes nothing, judging by its programs."""
    bare = _QUOTED.sub("''", command)
    if _WRITES.search(bare):
        return False
    programs = [piece.split(maxsplit=1)[0] for piece in _PIPED.split(bare) if piece.strip()]
    return all(program in _words("read_only") for program in programs)


def is_background(call: ToolCall) -> bool:
    """Return whether a call starts something that continues to run after its result."""
    arguments = _arguments(call)
    return bool(arguments.get("run_in_background") or arguments.get("background") or arguments.get("is_background"))


def find_steps(call: ToolCall) -> tuple[PlanStep, ...]:
    """List the steps of the plan that a call writes down; empty if it writes none."""
    for value in _arguments(call).values():
        if isinstance(value, list):
            steps = _read_steps(value)
            if steps:
                return steps
    return ()


def _read_steps(items: Iterable[Any]) -> tuple[PlanStep, ...]:
    """Read a list as the steps of a plan; empty if one of its items is not a step."""
    steps: list[PlanStep] = []
    for item in items:
        step = _read_step(item)
        if step is None:
            return ()
        steps.append(step)
    return tuple(steps)


def _read_step(item: Any) -> PlanStep | None:
    if not isinstance(item, Mapping) or not isinstance(item.get("status"), str):
        return None
    for key in _words("step_keys"):
        text = item.get(key)
        if isinstance(text, str):
            return PlanStep(text=one_line(text, _MAX_COMMAND), status=item["status"])
    return None


_EXIT: Final = re.compile(
    r"(?:exit(?:ed)?[ _-]?(?:with[ _])?(?:code|status)|returncode|退出码|退出代码|終了コード|종료 코드)"
    r"[^\w\n-]{0,4}(-?\d{1,5})\b",
    re.IGNORECASE,
)
_ENDS: Final = 400
"""How many characters at the beginning and at the end of an output are searched for an exit status."""
_MAX_FAILURE: Final = 240
"""The maximum characters of the output of a failed call."""
_MAX_CALL: Final = 100
"""The maximum characters of a call."""
_MIN_FAILED_OUTPUT: Final = 100
"""An output with a bad exit status is a failure if it has more characters than this."""
_MAX_NO_HIT_OUTPUT: Final = 50
"""A search that ends with code 1 and fewer characters than this only found nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedCall:
    """A tool call that failed, and was not repeated with success.

    `about` is the command or the arguments, and `text` the output, both shortened.
    """

    tool: str
    about: str
    status: int | None
    text: str

    def __str__(self) -> str:
        if self.status is None:
            return f"{self.about}: {self.text}"
        return f"{self.about} [exit {self.status}]: {self.text}"

    @classmethod
    def of(cls, call: ToolCall, result: ToolResult) -> Self | None:
        """Return how a call failed; None if it succeeded."""
        output = result.text
        codes = [*_EXIT.findall(output[:_ENDS]), *_EXIT.findall(output[-_ENDS:])]
        status: int | None = None
        if codes:
            status = int(codes[-1])
        size = len(output.strip())
        line = find_command_line(call)
        if status == 1 and size < _MAX_NO_HIT_OUTPUT and only_reads(line):
            return None
        has_failed = result.is_error or (status and size > _MIN_FAILED_OUTPUT)
        if not has_failed:
            return None
        text = one_line(shorten(output, _MAX_FAILURE), _MAX_FAILURE) or "failed without output"
        about = one_line(line or call_text(call, limit=_MAX_CALL), _MAX_CALL)
        return cls(tool=call.name, about=about, status=status, text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """The effects of tool calls in a part of a conversation.

    Attributes:
        read: The files that were read and not changed, sorted.
        modified: The files that were changed, sorted.
        failures: The failed calls, oldest first.
        pending: The calls without a result.
        background: The calls that started something that continues to run.
        commands: The commands that succeeded, oldest first; a repeated one is in its last position only.
        steps: The agent's plan as it last wrote it down.
    """

    read: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    failures: tuple[FailedCall, ...] = ()
    pending: tuple[str, ...] = ()
    background: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    steps: tuple[PlanStep, ...] = ()

    def add_files(self, *, read: Iterable[str], modified: Iterable[str]) -> Activity:
        """Add the files of earlier history."""
        changed = {*self.modified, *modified}
        only_read = {*self.read, *read} - changed
        return replace(self, read=tuple(sorted(only_read)), modified=tuple(sorted(changed)))


@dataclass(slots=True)
class _Tally:
    """The effects of the calls so far. Failures are stored by call, so that a later success removes one."""

    read: set[str] = field(default_factory=set)
    modified: set[str] = field(default_factory=set)
    failures: dict[str, FailedCall] = field(default_factory=dict)
    pending: list[ToolCall] = field(default_factory=list)
    background: list[str] = field(default_factory=list)
    commands: dict[str, None] = field(default_factory=dict)
    steps: tuple[PlanStep, ...] = ()

    def add(self, call: ToolCall, result: ToolResult | None) -> None:
        key = f"{call.name} {find_path(call) or json.dumps(call.arguments, sort_keys=True, default=str)}"
        self.failures.pop(key, None)
        if result is None:
            self.pending.append(call)
        elif failure := FailedCall.of(call, result):
            self.failures[key] = failure
        else:
            read, modified = find_files(call)
            self.read.update(read)
            self.modified.update(modified)
            self.steps = find_steps(call) or self.steps
            if is_background(call):
                self.background.append(call_text(call, limit=_MAX_CALL))
            elif line := find_command(call):
                self.commands.pop(line, None)
                self.commands[line] = None


def find_activity(messages: Sequence[Message]) -> Activity:
    """Find what tools did. A failure counts until the same call, or one on the same file, succeeds."""
    results: dict[str, deque[ToolResult]] = defaultdict(deque)
    for message in messages:
        for result in message.results:
            results[result.call_id].append(result)
    tally = _Tally()
    open_calls: set[str] = set()
    for message in messages:
        if message.role == "user":  # no result will come for open calls before a request
            open_calls.clear()
        for call in message.calls:
            open_calls.add(call.id)
            waiting = results[call.id]
            if waiting:  # ids may be used again: each call takes the next result
                tally.add(call, waiting.popleft())
            else:
                tally.add(call, None)
    return Activity(
        read=tuple(sorted(tally.read - tally.modified)),
        modified=tuple(sorted(tally.modified)),
        failures=tuple(tally.failures.values()),
        pending=tuple(call_text(call, limit=_MAX_CALL) for call in tally.pending if call.id in open_calls),
        background=tuple(tally.background),
        commands=tuple(tally.commands),
        steps=tally.steps,
    )
