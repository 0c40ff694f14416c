"""Tools: their descriptions for the model, and how their calls are answered."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from threading import Event
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from holdfast.errors import HoldfastError, InputError
from holdfast.messages import Text, ToolCall, ToolResult
from holdfast.models.base import Tool
from holdfast.text import clip

A = TypeVar("A", bound="Arguments")

ArchiveText: TypeAlias = Callable[[ToolCall, str], int]
"""Archives the whole text of a result that the model sees a part of, and returns its number."""

MAX_THREADS: Final = 8
_TOOL_ERRORS: Final = (
    HoldfastError,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    RuntimeError,
    ArithmeticError,
    sqlite3.Error,
)
"""Errors that end a tool call, but never the conversation."""


class Arguments(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The arguments of a tool. The types and descriptions of the fields are its schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The whole answer of a tool; that of a failed one has the fix.

    Of a long text the model sees `head` characters of the beginning and `tail` of the end; with 0 all of it.
    """

    text: str
    is_error: bool = False
    head: int = 0
    tail: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A description of what a tool is about to do, for the user to allow, in lines that can be shown.

    `guarded` is why it needs a confirmation even if the user has allowed this kind; empty if it does not.
    """

    kind: Literal["run", "write"]
    text: str
    guarded: str = ""


Confirm: TypeAlias = Callable[[Action], bool]
"""Asks the user whether an action is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFunction:
    """A tool and the function behind it, which gets the arguments as sent and an event that is set to cancel the call.

    If `is_parallel`, calls may run at the same time as others, because they change nothing.
    """

    tool: Tool
    run: Callable[[Mapping[str, Any] | str, Event], Answer]
    is_parallel: bool = False


def make_tool(
    name: str,
    kind: type[A],
    do: Callable[[A, Event], Answer],
    *,
    description: str | None = None,
    is_parallel: bool = False,
) -> ToolFunction:
    """Make a tool of a function. Arguments that do not fit the schema never reach the function.

    The description is the docstring of the arguments, unless another one is given.
    """
    words = " ".join((description or kind.__doc__ or "").split())
    tool = Tool(name=name, description=words, parameters=make_schema(kind))
    return ToolFunction(
        tool=tool, run=lambda given, cancel: do(_parse(given, kind, name), cancel), is_parallel=is_parallel
    )


def make_schema(kind: type[Arguments]) -> dict[str, Any]:
    """Make the JSON schema of arguments, in a plain form that every provider accepts: without the null of options."""
    _, parts = msgspec.json.schema_components([kind], ref_template="{name}")
    whole: dict[str, Any] = parts[kind.__name__]
    fields: dict[str, Any] = {}
    for name, field in whole["properties"].items():
        types = [kind for kind in field.get("anyOf", ()) if kind != {"type": "null"}]
        if len(types) != 1:
            fields[name] = field
            continue
        plain = dict(field)
        del plain["anyOf"]
        if "default" in plain and plain["default"] is None:
            del plain["default"]
        fields[name] = {**types[0], **plain}
    return {"type": "object", "properties": fields, "required": whole["required"]}


def _parse(given: Mapping[str, Any] | str, kind: type[A], name: str) -> A:
    if isinstance(given, str):
        raise InputError(f"the arguments of {name} are not a JSON object: send one with {_list_fields(kind)}")
    try:
        return msgspec.convert(dict(given), kind, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"{name}: {error}; it takes {_list_fields(kind)}") from error


def _list_fields(kind: type[Arguments]) -> str:
    """Name the arguments; a question mark follows those that may be left out."""
    schema = make_schema(kind)
    return ", ".join(f"`{name}`" if name in schema["required"] else f"`{name}`?" for name in schema["properties"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """Some tools, in the order in which the model sees them.

    `archive` archives texts that are too long to be shown; without it, the rest of a long result is lost.
    """

    functions: tuple[ToolFunction, ...] = ()
    archive: ArchiveText | None = None

    def tools(self) -> tuple[Tool, ...]:
        """Return the description for the model."""
        return tuple(function.tool for function in self.functions)

    def run(self, call: ToolCall, *, cancel: Event | None = None) -> ToolResult:
        """Answer a call. A tool that fails, or does not exist, answers with an error that has the fix."""
        stop = cancel or Event()
        if stop.is_set():
            return cancelled_result(call)
        function = next((each for each in self.functions if each.tool.name == call.name), None)
        if function is None:
            names = ", ".join(tool.name for tool in self.tools()) or "none"
            return _make_result(call, f"there is no tool {call.name!r}: there are {names}", is_error=True)
        try:
            answer = function.run(call.arguments, stop)
            return _make_result(call, self._shorten(call, answer), is_error=answer.is_error)
        except _TOOL_ERRORS as error:
            return _make_result(call, f"{call.name} failed: {str(error) or type(error).__name__}", is_error=True)

    def run_all(
        self,
        calls: Sequence[ToolCall],
        *,
        cancel: Event | None = None,
        on_result: Callable[[ToolResult], None] | None = None,
    ) -> list[ToolResult]:
        """Answer the calls of one reply, each exactly once, in their order.

        Neighbours that change nothing run at the same time. Once `cancel` is set, or Ctrl-C is pressed (which sets
        it), the remaining calls are answered as cancelled, so that every call has a result. `on_result` is called with
        each answer in order.
        """
        stop = cancel or Event()
        results: list[ToolResult] = []
        parallel = {function.tool.name for function in self.functions if function.is_parallel}
        groups: list[list[ToolCall]] = []
        for is_parallel, neighbours in groupby(calls, lambda call: call.name in parallel):
            if is_parallel:
                groups.append(list(neighbours))
            else:
                groups += [[call] for call in neighbours]
        for group in groups:
            for result in self._run_group(group, stop):
                results.append(result)
                if on_result is not None:
                    on_result(result)
        return results

    def _run_group(self, group: Sequence[ToolCall], stop: Event) -> list[ToolResult]:
        try:
            if len(group) == 1:
                return [self.run(group[0], cancel=stop)]
            with ThreadPoolExecutor(min(MAX_THREADS, len(group)), thread_name_prefix="tool") as pool:
                running = [pool.submit(self.run, call, cancel=stop) for call in group]
                try:
                    return [each.result() for each in running]
                except KeyboardInterrupt:
                    stop.set()  # before leaving the pool, which waits for its threads
                    raise
        except KeyboardInterrupt:
            stop.set()
            return [cancelled_result(call) for call in group]

    def _shorten(self, call: ToolCall, answer: Answer) -> str:
        """Return what the model sees of an answer; of a long one both ends, and how to get the rest."""
        left = len(answer.text) - answer.head - answer.tail
        if not answer.head or left <= 0:
            return answer.text
        rest = "cut"
        if self.archive is not None:
            try:
                rest = f'left out: archive_get {{"id": {self.archive(call, answer.text)}}} shows all of it'
            except HoldfastError as error:  # a failing archive never costs a result
                rest = f"cut, and the archive could not take them: {error}"
        marker = f"\n[... {left:,} characters {rest} ...]\n"
        return clip(answer.text, head=answer.head, tail=answer.tail, marker=marker)


def cancelled_result(call: ToolCall) -> ToolResult:
    """Make the result of a call that the user cancelled."""
    return _make_result(call, "The user cancelled this. Ask before you try it again.", is_error=True)


def _make_result(call: ToolCall, text: str, *, is_error: bool) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=(Text(text=text),), is_error=is_error)
