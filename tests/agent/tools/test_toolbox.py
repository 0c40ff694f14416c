"""A box of tools: every call is answered, in order, whatever happens."""

import threading
from collections.abc import Callable
from threading import Event

import pytest

from holdfast.errors import StorageError
from holdfast.messages import ToolCall, ToolResult
from holdfast_agent.toolbox import Answer, Arguments, Toolbox, ToolFunction, make_tool
from support.waiting import PATIENCE


class Nothing(Arguments, frozen=True):
    """No arguments."""


def tool(name: str, do: Callable[[Event], str], *, is_parallel: bool = False, ends: int = 0) -> ToolFunction:
    """A tool without arguments."""
    return make_tool(
        name, Nothing, lambda _, cancel: Answer(text=do(cancel), head=ends, tail=ends), is_parallel=is_parallel
    )


def call(name: str, number: int = 1) -> ToolCall:
    """A call of it."""
    return ToolCall(id=f"c{number}", name=name, arguments={})


def fail(_cancel: Event) -> str:
    """Fails."""
    raise ZeroDivisionError


def test_a_call_is_answered() -> None:
    """The result names its call and its tool."""
    result = Toolbox(functions=(tool("one", lambda _: "text"),)).run(call("one"))
    assert (result.call_id, result.name, result.text, result.is_error) == ("c1", "one", "text", False)


def test_a_tool_that_fails_answers_with_an_error() -> None:
    """What is raised becomes an error result; without words, its kind is named."""
    result = Toolbox(functions=(tool("one", fail),)).run(call("one"))
    assert result.is_error
    assert result.text == "one failed: ZeroDivisionError"


def test_a_tool_that_does_not_exist() -> None:
    """The answer names those that do."""
    box = Toolbox(functions=(tool("one", fail), tool("two", fail)))
    assert box.run(call("three")).text == "there is no tool 'three': there are one, two"
    assert Toolbox().run(call("three")).text.endswith("there are none")
    assert [each.name for each in box.tools()] == ["one", "two"]


class TestLongAnswers:
    """What is too long to be shown."""

    TEXT = "a" * 500 + "中" * 500 + "z" * 500

    def test_the_whole_is_kept_and_its_number_shown(self) -> None:
        """The model sees both ends and how to get the rest; what is kept is all of it."""
        kept: list[tuple[str, str]] = []

        def keep(asked: ToolCall, text: str) -> int:
            kept.append((asked.id, text))
            return 57

        box = Toolbox(functions=(tool("one", lambda _: self.TEXT, ends=100),), archive=keep)
        shown = box.run(call("one")).text
        assert (
            shown
            == "a" * 100 + '\n[... 1,300 characters left out: archive_get {"id": 57} shows all of it ...]\n' + "z" * 100
        )
        assert kept == [("c1", self.TEXT)]

    def test_without_an_archive_the_rest_is_marked_as_cut(self) -> None:
        """Nothing pretends to be whole."""
        shown = Toolbox(functions=(tool("one", lambda _: self.TEXT, ends=100),)).run(call("one")).text
        assert "[... 1,300 characters cut ...]" in shown

    def test_an_archive_in_trouble_costs_no_result(self) -> None:
        """What could not be kept is said, and the ends are shown all the same."""

        def keep(_call: ToolCall, _text: str) -> int:
            raise StorageError("the disk is full", path="memory")

        shown = Toolbox(functions=(tool("one", lambda _: self.TEXT, ends=100),), archive=keep).run(call("one"))
        assert not shown.is_error
        assert "the archive could not take them: memory: the disk is full" in shown.text

    def test_a_short_answer_is_shown_whole(self) -> None:
        """Up to both ends together nothing is cut."""
        assert Toolbox(functions=(tool("one", lambda _: "x" * 200, ends=100),)).run(call("one")).text == "x" * 200


class TestTogether:
    """Several calls in one reply."""

    def test_calls_that_change_nothing_run_at_the_same_time(self) -> None:
        """Two that wait for each other both finish."""
        barrier = threading.Barrier(2, timeout=PATIENCE)
        box = Toolbox(functions=(tool("wait", lambda _: str(barrier.wait() >= 0), is_parallel=True),))
        results = box.run_all([call("wait", 1), call("wait", 2)])
        assert [(result.call_id, result.text) for result in results] == [("c1", "True"), ("c2", "True")]

    def test_the_others_run_in_order_and_alone(self) -> None:
        """What changes something starts after everything before it and ends before everything after it."""
        log: list[str] = []

        def slow(_cancel: Event) -> str:
            log.append("in")
            log.append("out")
            return ""

        def change(_cancel: Event) -> str:
            log.append("change")
            return ""

        box = Toolbox(functions=(tool("look", slow, is_parallel=True), tool("change", change)))
        shown: list[str] = []
        names = ["look", "look", "change", "change", "look"]
        calls = [call(name, number) for number, name in enumerate(names)]
        results = box.run_all(calls, on_result=lambda result: shown.append(result.call_id))
        assert log[4:6] == ["change", "change"]
        assert sorted(log[:4]) == ["in", "in", "out", "out"]
        assert shown == [result.call_id for result in results] == [each.id for each in calls]

    def test_what_was_called_off_is_answered_too(self) -> None:
        """Once the user calls it off no further tool runs, and every call has its result."""
        cancel = Event()
        ran: list[str] = []

        def stop(given: Event) -> str:
            given.set()
            return "stopped"

        def more(_given: Event) -> str:
            ran.append("x")
            return ""

        box = Toolbox(functions=(tool("stop", stop), tool("more", more)))
        results = box.run_all([call("stop", 1), call("more", 2), call("none", 3)], cancel=cancel)
        assert [result.is_error for result in results] == [False, True, True]
        assert "cancelled this" in results[1].text
        assert not ran

    @pytest.mark.parametrize("count", [1, 2])
    def test_an_interruption_leaves_a_whole_conversation(self, count: int) -> None:
        """Ctrl-C in a tool sets the event; that call and those after it are answered as called off."""
        cancel = Event()

        def interrupted(_cancel: Event) -> str:
            raise KeyboardInterrupt

        box = Toolbox(functions=(tool("one", interrupted, is_parallel=count > 1), tool("two", lambda _: "ran")))
        calls = [*(call("one", number) for number in range(count)), call("two", 9)]
        results: list[ToolResult] = box.run_all(calls, cancel=cancel)
        assert cancel.is_set()
        assert [result.call_id for result in results] == [each.id for each in calls]
        assert all(result.is_error for result in results)
