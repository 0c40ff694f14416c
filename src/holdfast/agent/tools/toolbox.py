"""The tools of an agent in one box: what the model is told, and what happens when it calls."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import Final, TypeAlias

from holdfast.agent.tools.offer import Answer, Offer
from holdfast.errors import HoldfastError
from holdfast.messages import Text, ToolCall, ToolResult
from holdfast.models.base import Tool
from holdfast.text import clip

__all__ = ["Keep", "Toolbox", "called_off"]

Keep: TypeAlias = Callable[[ToolCall, str], int]
"""Archives the whole text of a result that the model is shown a part of, and gives its number."""

_THREADS: Final = 8
_FAULTS: Final = (
    HoldfastError,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    RuntimeError,
    ArithmeticError,
    sqlite3.Error,
)
"""What goes wrong in a tool ends the call, never the conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """Some tools.

    Attributes:
        offers: The tools, in the order in which the model is told of them.
        keep: Archives what is too long to be shown; without it, the rest of a long result is gone.
    """

    offers: tuple[Offer, ...] = ()
    keep: Keep | None = None

    def tools(self) -> tuple[Tool, ...]:
        """What the model is told."""
        return tuple(offer.tool for offer in self.offers)

    def run(self, call: ToolCall, *, cancel: Event | None = None) -> ToolResult:
        """Answer a call. A tool that fails, or does not exist, answers with an error that says what to do."""
        stop = cancel or Event()
        if stop.is_set():
            return called_off(call)
        offer = self._find(call.name)
        if offer is None:
            names = ", ".join(tool.name for tool in self.tools()) or "none"
            return _result(call, f"there is no tool {call.name!r}: there are {names}", is_error=True)
        try:
            answer = offer.run(call.arguments, stop)
            return _result(call, self._shown(call, answer), is_error=answer.is_error)
        except _FAULTS as error:
            return _result(call, f"{call.name} failed: {str(error) or type(error).__name__}", is_error=True)

    def run_all(
        self,
        calls: Sequence[ToolCall],
        *,
        cancel: Event | None = None,
        on_result: Callable[[ToolResult], None] | None = None,
    ) -> list[ToolResult]:
        """Answer the calls of one reply, each exactly once, in their order.

        Neighbours that change nothing run at the same time. Once `cancel` is set, or Ctrl-C is pressed (which sets
        it), what has not run yet is answered as called off: the conversation stays whole. `on_result` is told of
        each answer in order.
        """
        stop = cancel or Event()
        results: list[ToolResult] = []
        for group in self._groups(calls):
            for result in self._run_group(group, stop):
                results.append(result)
                if on_result is not None:
                    on_result(result)
        return results

    def _run_group(self, group: Sequence[ToolCall], stop: Event) -> list[ToolResult]:
        try:
            if len(group) == 1:
                return [self.run(group[0], cancel=stop)]
            return self._run_together(group, stop)
        except KeyboardInterrupt:
            stop.set()
            return [called_off(call) for call in group]

    def _run_together(self, group: Sequence[ToolCall], stop: Event) -> list[ToolResult]:
        with ThreadPoolExecutor(min(_THREADS, len(group)), thread_name_prefix="tool") as pool:
            running = [pool.submit(self.run, call, cancel=stop) for call in group]
            try:
                return [each.result() for each in running]
            except KeyboardInterrupt:
                stop.set()  # here already: leaving waits for those that run
                raise

    def _groups(self, calls: Sequence[ToolCall]) -> Iterator[list[ToolCall]]:
        """Calls that may run at the same time, and the others one by one."""
        group: list[ToolCall] = []
        for call in calls:
            offer = self._find(call.name)
            together = offer is not None and offer.together
            if group and not together:
                yield group
                group = []
            if together:
                group.append(call)
            else:
                yield [call]
        if group:
            yield group

    def _find(self, name: str) -> Offer | None:
        return next((offer for offer in self.offers if offer.tool.name == name), None)

    def _shown(self, call: ToolCall, answer: Answer) -> str:
        """What the model sees of an answer; of a long one the ends, and how to get at the rest."""
        left = len(answer.text) - answer.head - answer.tail
        if not answer.head or left <= 0:
            return answer.text
        marker = f"\n[... {left:,} characters {self._rest(call, answer.text)} ...]\n"
        return clip(answer.text, head=answer.head, tail=answer.tail, marker=marker)

    def _rest(self, call: ToolCall, text: str) -> str:
        """Keep the whole of a text, and say where it is. An archive in trouble never costs a result."""
        if self.keep is None:
            return "cut"
        try:
            return f'left out: archive_get {{"id": {self.keep(call, text)}}} shows all of it'
        except HoldfastError as error:
            return f"cut, and the archive could not take them: {error}"


def called_off(call: ToolCall) -> ToolResult:
    """The answer to a call that was not run, or not to its end, because the user called it off."""
    return _result(call, "The user called this off. Ask before you try it again.", is_error=True)


def _result(call: ToolCall, text: str, *, is_error: bool) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=(Text(text=text),), is_error=is_error)
