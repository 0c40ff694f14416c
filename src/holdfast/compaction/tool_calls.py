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
    name = call.name.rsplit("__", 1)[-1].rsplit(".", 1)[-1].replace("_", "").replace("-", "").lower()
    path = find_path(call)
    patched = [file for text in _strings(arguments) for file in _PATCHED.findall(text)]
    if path is None:
        return [], patched
    if name in _words("readers") or (name in _words("editors") and arguments.get("command") == "view"):
        return [path], patched
    return [], [path, *patched] if name in (*_words("writers"), *_words("editors")) else patched


def find_path(call: ToolCall) -> str | None:
    """Return the file that a call names."""
    paths = (_arguments(call).get(key) for key in _words("path_keys"))
    return next((value for value in paths if isinstance(value, str) and value.strip()), None)


def _arguments(call: ToolCall) -> Mapping[str, Any]:
    return call.arguments if isinstance(call.arguments, Mapping) else {"": call.arguments}


def _strings(value: Any) -> Iterator[str]:
    """Yield every text in a call's arguments, two levels deep."""
    inner = value.values() if isinstance(value, Mapping) else value
    for item in inner:
        if isinstance(item, str):
            yield item
        elif isinstance(item, list | tuple):
            yield from (text for text in item if isinstance(text, str))


def find_command(call: ToolCall) -> str:
    """Return the command line of a call, shortened; nothing for a command that only reads."""
    line = find_command_line(call)
    return "" if not line or only_reads(line) else one_line(line, _MAX_COMMAND)


def find_command_line(call: ToolCall) -> str:
    """Return the whole command line of a call; nothing if it has none."""
    arguments = _arguments(call)
    line = next((arguments[key] for key in _words("command_keys") if arguments.get(key)), "")
    if isinstance(line, list):
        line = str(line[-1]) if line and line[0] in {"bash", "sh", "zsh"} else " ".join(map(str, line))
    if not isinstance(line, str) or _PATCHED.search(line) or set(_words("path_keys")) & set(arguments):
        return ""
    return line.strip()


def only_reads(command: str) -> bool:
    """Tell whether a command line changes nothing, judging by its programs."""
    bare = _QUOTED.sub("''", command)
    firsts = [piece.split(maxsplit=1)[0] for piece in _PIPED.split(bare) if piece.strip()]
    return all(first in _words("read_only") for first in firsts) and not _WRITES.search(bare)


def is_background(call: ToolCall) -> bool:
    """Tell whether a call starts something that runs on after its result."""
    arguments = _arguments(call)
    return bool(arguments.get("run_in_background") or arguments.get("background") or arguments.get("is_background"))


def find_steps(call: ToolCall) -> tuple[PlanStep, ...]:
    """List the steps of the plan that a call writes down, if it does."""
    for value in _arguments(call).values():
        if isinstance(value, list) and value:
            plan = tuple(step for item in value if (step := _read_step(item)) is not None)
            if len(plan) == len(value):
                return plan
    return ()


def _read_step(item: Any) -> PlanStep | None:
    if not isinstance(item, Mapping) or not isinstance(item.get("status"), str):
        return None
    text = next((item[key] for key in _words("step_keys") if isinstance(item.get(key), str)), None)
    return None if text is None else PlanStep(text=one_line(text, _MAX_COMMAND), status=item["status"])


_EXIT: Final = re.compile(
    r"(?:exit(?:ed)?[ _-]?(?:with[ _])?(?:code|status)|returncode|退出码|退出代码|終了コード|종료 코드)"
    r"[^\w\n-]{0,4}(-?\d{1,5})\b",
    re.IGNORECASE,
)
_ENDS: Final = 400
_MAX_FAILURE: Final = 240
_MAX_CALL: Final = 100


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
        status = f" [exit {self.status}]" if self.status is not None else ""
        return f"{self.about}{status}: {self.text}"

    @classmethod
    def of(cls, call: ToolCall, result: ToolResult) -> Self | None:
        """Tell how a call failed; None if it succeeded."""
        output = result.text
        codes = [*_EXIT.findall(output[:_ENDS]), *_EXIT.findall(output[-_ENDS:])]
        status = int(codes[-1]) if codes else None
        size, line = len(output.strip()), find_command_line(call)
        # A search without a hit ends with code 1 and prints little: that is not a failure worth keeping.
        is_empty_search = status == 1 and size < _MAX_CALL // 2 and only_reads(line)
        if is_empty_search or not (result.is_error or (status and size > _MAX_CALL)):
            return None
        text = one_line(shorten(output, _MAX_FAILURE), _MAX_FAILURE) or "failed without a word"
        about = one_line(line or call_text(call, limit=_MAX_CALL), _MAX_CALL)
        return cls(tool=call.name, about=about, status=status, text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """The effects of tool calls in a part of a conversation.

    Files are sorted; one that was changed is not among those that were read. Failures and commands that succeeded come
    oldest first, a command where it was run last. `pending` are calls without a result, `background` those that started
    something that runs on; `steps` are the agent's plan as it last wrote it down.
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
    tally = _Tally()
    results: dict[str, deque[ToolResult]] = defaultdict(deque)  # ids may be used again: each call takes the next result
    open_calls: set[str] = set()
    for message in messages:
        for result in message.results:
            results[result.call_id].append(result)
    for message in messages:
        if message.role == "user":  # calls that wait from before that were given up
            open_calls.clear()
        for call in message.calls:
            open_calls.add(call.id)
            tally.add(call, results[call.id].popleft() if results[call.id] else None)
    return Activity(
        read=tuple(sorted(tally.read - tally.modified)),
        modified=tuple(sorted(tally.modified)),
        failures=tuple(tally.failures.values()),
        pending=tuple(call_text(call, limit=_MAX_CALL) for call in tally.pending if call.id in open_calls),
        background=tuple(tally.background),
        commands=tuple(tally.commands),
        steps=tally.steps,
    )
