"""What tools teach: a command that worked after another had failed, and what was changed until it did."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast.memory.draft import Draft
from holdfast.messages import ToolCall, ToolResult
from holdfast.store.base import MessageRow
from holdfast.text import head, is_unsegmented

__all__ = ["lessons"]

_COMMAND_KEYS: Final = ("command", "cmd", "script")
_PATH_KEYS: Final = ("path", "file_path", "filename", "file")
_EDITS: Final = re.compile(r"edit|write|patch|replace|create|insert", re.IGNORECASE)
_ERROR: Final = re.compile(
    r"^.*(?:\b(?:error|exception|fatal|failed|failure|cannot|denied|not found|no such)\b|错误|失败).*$",
    re.IGNORECASE | re.MULTILINE,
)
_EXIT: Final = re.compile(r"\b(?:exit(?:ed with)?(?: code| status)?|returncode)[:= ]+([1-9]\d{0,2})\b", re.IGNORECASE)
_LOOKING: Final = frozenset("grep rg ls cat find test diff which head tail sed awk wc echo ps git".split())  # noqa: SIM905
"""Programs whose failure means that there was nothing to see, and git, which is another program with every word."""
_CALLED_OFF: Final = re.compile(r"abort|interrupt|cancel|timed? ?out|denied by|rejected by", re.IGNORECASE)
_ALIKE: Final = 0.5
_LONGEST: Final = 160
_END: Final = 400


@dataclass(slots=True)
class _Failure:
    """A command that failed, where, why, and which files were changed since."""

    command: str
    row: MessageRow
    error: str
    changed: list[str] = field(default_factory=list)


def lessons(rows: Iterable[MessageRow]) -> Iterator[Draft]:
    """Commands that worked after failing, in the language that the user speaks."""
    calls: dict[str, ToolCall] = {}
    failures: dict[str, _Failure] = {}
    chinese = False
    for row in rows:
        if row.message.role == "user":
            chinese = any(map(is_unsegmented, row.message.text))
        calls.update((call.id, call) for call in row.message.calls)
        for result in row.message.results:
            call = calls.pop(result.call_id, None)
            if call is not None:
                yield from _outcome(call, result, row, failures, chinese=chinese)


def _outcome(
    call: ToolCall, result: ToolResult, row: MessageRow, failures: dict[str, _Failure], *, chinese: bool
) -> Iterator[Draft]:
    """Note a failure or a change of a file; a success after a failure is a lesson."""
    command = _argument(call, _COMMAND_KEYS).strip()
    program = _program(command)
    if not command:
        _note_change(call, result, failures)
    elif len(command) > _LONGEST or re.search(r"[\n|]", command) or program in _LOOKING:
        return  # of a pipe nobody knows which part succeeded
    elif _failed(result):
        failures[program] = _Failure(command, row, _reason(result.text))
    elif program in failures and _alike(command, failures[program].command):
        yield from _lesson(command, row, failures.pop(program), chinese=chinese)


def _note_change(call: ToolCall, result: ToolResult, failures: Mapping[str, _Failure]) -> None:
    """A file that was changed may be what makes a command work that failed before."""
    path = _argument(call, _PATH_KEYS)
    if path and _EDITS.search(call.name) and not result.is_error:
        for failure in failures.values():
            failure.changed.append(path)


def _lesson(command: str, row: MessageRow, failure: _Failure, *, chinese: bool) -> Iterator[Draft]:
    """What is learned from a command that works: how it has to be called, or what had to be changed for it."""
    error = f": {failure.error}" if failure.error else ""
    draft = Draft(
        type="implementation" if command != failure.command else "issue",
        content="",
        evidence=tuple(sorted({failure.row.id, row.id})),
        quote=failure.error or command,
        time=row.message.timestamp or 0,
    )
    words = _CHINESE if chinese else _ENGLISH
    if command != failure.command:
        yield replace(draft, content=words[0].format(command=command, failed=failure.command, error=error))
    elif failure.changed:
        files = ", ".join(f"`{path}`" for path in dict.fromkeys(failure.changed))
        yield replace(draft, content=words[1].format(command=command, files=files, error=error))


_ENGLISH: Final = (
    "`{command}` works; `{failed}` failed{error}",
    "`{command}` passed after changing {files}; before, it failed{error}",
)
_CHINESE: Final = (
    "`{command}` 可以运行；`{failed}` 失败{error}",
    "修改 {files} 之后 `{command}` 成功；之前失败{error}",
)


def _failed(result: ToolResult) -> bool:
    end = result.text[-_END:]
    return (result.is_error and not _CALLED_OFF.search(end)) or _EXIT.search(end) is not None


def _reason(text: str) -> str:
    """The line that says what went wrong."""
    found = _ERROR.search(text)
    line = found.group() if found else next(iter(text.splitlines()), "")
    return head(" ".join(line.split()), _LONGEST)


def _argument(call: ToolCall, names: Iterable[str]) -> str:
    arguments: Any = call.arguments
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return ""
    if not isinstance(arguments, Mapping):
        return ""
    value = next((arguments[name] for name in names if name in arguments), "")
    if isinstance(value, list):
        value = " ".join(map(str, value[2:] if value[:2] == ["bash", "-lc"] else value))
    return value if isinstance(value, str) else ""


def _program(command: str) -> str:
    """What a command runs, without what it sets and where it goes first."""
    return next(iter(_bare(command).split(maxsplit=1)), "")


def _bare(command: str) -> str:
    return re.sub(r"^(?:cd \S+ && |sudo |env |\w+=\S+ )+", "", command)


def _alike(left: str, right: str) -> bool:
    """Tell whether two commands are tries of the same thing."""
    ours, theirs = set(_bare(left).split()), set(_bare(right).split())
    return len(ours & theirs) / len(ours | theirs) >= _ALIKE
