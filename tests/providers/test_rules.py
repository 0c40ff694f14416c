"""What each provider refuses, rule by rule."""

from __future__ import annotations

from collections.abc import Callable
from dis import get_instructions
from importlib import import_module
from inspect import isfunction, ismodule
from types import CodeType
from typing import Any

import pytest

from holdfast.errors import FormatError
from holdfast.providers import FORMATS, Format, Violation, check
from support.cases import each

Wire = dict[str, Any]


def rules(provider: str, *wire: Wire) -> list[str]:
    """The rules that a message list breaks."""
    return [violation.rule for violation in check(wire, provider)]


class TestAll:
    """What holds for every provider."""

    @pytest.mark.parametrize("provider", FORMATS)
    def test_a_window_without_a_message_is_refused(self, provider: str) -> None:
        """There must be something to answer."""
        assert rules(provider) == ["empty-window"]

    def test_other_providers_are_not_known(self) -> None:
        """The error names those that are."""
        with pytest.raises(FormatError, match="anthropic"):
            check([], "delphi")

    def test_a_violation_has_its_place_and_its_rule(self) -> None:
        """For people."""
        assert str(Violation("role", "messages[0]", "unknown role 'x'")) == "messages[0]: unknown role 'x' (role)"


def functions_behind(function: Callable[..., Any]) -> set[str]:
    """The names of all functions and modules that a function of a provider uses, directly or not."""
    module = function.__module__
    known = {name: value for name, value in vars(import_module(module)).items() if isfunction(value) or ismodule(value)}
    names: set[str] = set()
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        loads = {step.argval for step in get_instructions(code) if step.opname == "LOAD_GLOBAL"}
        new = known.keys() & loads - names
        names |= new
        codes += [known[name].__code__ for name in new if getattr(known[name], "__module__", None) == module]
    return names


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_rules_share_no_function_with_what_they_check(form: Format) -> None:
    """So that a mistake in reading, shaping or rendering cannot hide itself."""
    checked = functions_behind(form.read) | functions_behind(form.shape) | functions_behind(form.render)
    assert functions_behind(form.check)
    assert functions_behind(form.check).isdisjoint(checked)


def use(call_id: str = "t1", **more: Any) -> Wire:
    """A call as Anthropic writes it."""
    return {"type": "tool_use", "id": call_id, "name": "bash", "input": {}} | more


def gave(call_id: str = "t1", **more: Any) -> Wire:
    """A result as Anthropic writes it."""
    return {"type": "tool_result", "tool_use_id": call_id, "content": "ok"} | more


def says(role: str, *content: Any) -> Wire:
    """A message of blocks; a text stands for a block of it."""
    blocks = [{"type": "text", "text": block} if isinstance(block, str) else block for block in content]
    return {"role": role, "content": blocks}


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
ASKED = {"role": "user", "content": "why"}
SAID = {"role": "assistant", "content": "because"}
INSTRUCTED = {"role": "system", "content": "mind"}


class TestAnthropic:
    """The Messages API."""

    @each(
        "wire",
        [
            [ASKED],
            [ASKED, SAID, ASKED],
            [ASKED, ASKED, SAID, SAID, ASKED],
            [ASKED, says("assistant", THOUGHT, "so", use(), use("t2")), says("user", gave("t2"), gave(), "and?")],
            [ASKED, says("assistant", {"type": "redacted_thinking", "data": "x"}, use()), says("user", gave())],
            [ASKED, says("assistant", " ", "so"), ASKED],
            [ASKED, INSTRUCTED, SAID, ASKED, INSTRUCTED],
            [says("user", {"type": "image", "source": {}}), says("assistant", {"type": "compaction"}, THOUGHT, "so")],
            [ASKED, says("assistant", use()), says("user", gave(content=""))],
            [ASKED, says("assistant", {"type": "thinking", "thinking": "", "signature": "s"}, "so"), ASKED],
        ],
    )
    def test_what_it_takes(self, wire: list[Wire]) -> None:
        """No rule is broken by what the provider accepts."""
        assert check(wire, "anthropic") == []

    @each(
        ("rule", "wire"),
        [
            ("first-user", [SAID]),
            ("role", [{"role": "tool", "content": "x"}]),
            ("role", [says("user", use()), ASKED]),
            ("role", [ASKED, says("assistant", gave())]),
            ("role", [says("user", THOUGHT, "x")]),
            ("role", [ASKED, says("assistant", {"type": "image", "source": {}})]),
            ("reply-fields", [ASKED, SAID | {"id": "msg_1", "usage": {}}, ASKED]),
            ("empty-content", [{"role": "user", "content": " "}]),
            ("empty-content", [{"role": "user", "content": []}]),
            ("empty-content", [{"role": "user"}]),
            ("blank-text", [says("user", "", "x")]),
            ("blank-text", [ASKED, says("assistant", "\n", use()), says("user", gave())]),
            (
                "blank-text",
                [ASKED, says("assistant", use()), says("user", gave(content=[{"type": "text", "text": ""}]))],
            ),
            ("id", [ASKED, says("assistant", use("a.b")), says("user", gave("a.b"))]),
            ("id", [ASKED, says("assistant", use("x" * 65)), says("user", gave("x" * 65))]),
            ("name", [ASKED, says("assistant", use(name="bad name")), says("user", gave())]),
            ("arguments", [ASKED, says("assistant", use(input="{}")), says("user", gave())]),
            ("empty-error", [ASKED, says("assistant", use()), says("user", gave(is_error=True, content=""))]),
            ("thinking-first", [ASKED, says("assistant", "so", THOUGHT, use()), says("user", gave())]),
            ("thinking-last", [ASKED, says("assistant", THOUGHT), ASKED]),
            ("unsigned-thinking", [ASKED, says("assistant", {"type": "thinking", "thinking": "hm"}, "so"), ASKED]),
            ("unsigned-thinking", [ASKED, says("assistant", {"type": "redacted_thinking"}, "so"), ASKED]),
            ("unanswered-call", [ASKED, says("assistant", use())]),
            ("unanswered-call", [ASKED, says("assistant", use()), ASKED, says("user", gave())]),
            (
                "unanswered-call",
                [ASKED, says("assistant", use(), use("t2")), says("user", gave()), says("user", gave("t2"))],
            ),
            ("orphan-result", [ASKED, says("user", gave())]),
            ("repeated-result", [ASKED, says("assistant", use()), says("user", gave(), gave())]),
            ("results-first", [ASKED, says("assistant", use()), says("user", "look:", gave())]),
            ("repeated-id", [ASKED, says("assistant", use()), says("user", gave())] * 2),
            ("system-place", [INSTRUCTED, ASKED]),
            ("system-place", [ASKED, INSTRUCTED, ASKED]),
            ("system-place", [ASKED, INSTRUCTED, INSTRUCTED, SAID]),
            ("trailing-space", [ASKED, says("assistant", "so \n")]),
            ("trailing-space", [ASKED, {"role": "assistant", "content": "so "}]),
        ],
    )
    def test_what_it_refuses(self, rule: str, wire: list[Wire]) -> None:
        """Each rule by its name."""
        assert rule in rules("anthropic", *wire)


def called(*ids: str, **more: Any) -> Wire:
    """A message with calls as Chat Completions writes it."""
    function = {"name": "bash", "arguments": "{}"} | more
    calls = [{"id": call_id, "type": "function", "function": function} for call_id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def tool(call_id: str, content: Any = "ok") -> Wire:
    """A result as Chat Completions writes it."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


class TestChat:
    """Chat Completions."""

    @each(
        "wire",
        [
            [SAID, ASKED],
            [INSTRUCTED, ASKED, INSTRUCTED, {"role": "developer", "content": "x"}],
            [called("a", "b"), tool("b"), tool("a", ""), ASKED],
            [called("a"), tool("a"), called("a"), tool("a")],
            [{"role": "assistant", "content": None, "refusal": "no"}],
            [
                {"role": "assistant", "function_call": {"name": "f", "arguments": ""}},
                {"role": "function", "name": "f", "content": "x"},
            ],
            [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "f", "input": "x"}}],
                },
                tool("a"),
            ],
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        ],
    )
    def test_what_it_takes(self, wire: list[Wire]) -> None:
        """No rule is broken by what the provider accepts."""
        assert check(wire, "openai_chat") == []

    @each(
        ("rule", "wire"),
        [
            ("role", [{"role": "bot", "content": "x"}]),
            ("role", [called("a") | {"role": "user", "content": "x"}, tool("a")]),
            ("empty-content", [{"role": "user", "content": ""}]),
            ("empty-content", [{"role": "user", "content": []}]),
            ("empty-content", [{"role": "assistant", "content": None}]),
            ("blank-text", [{"role": "user", "content": [{"type": "text", "text": ""}]}]),
            ("part-role", [{"role": "assistant", "content": [{"type": "image_url"}]}]),
            ("unanswered-call", [called("a")]),
            ("unanswered-call", [called("a", "b"), tool("a"), ASKED, tool("b")]),
            ("orphan-result", [tool("a")]),
            ("orphan-result", [called("a"), tool("a"), tool("a")]),
            ("orphan-result", [called("a"), ASKED, tool("a")]),
            ("id", [called("x" * 65), tool("x" * 65)]),
            ("id", [called(""), tool("")]),
            ("name", [called("a", name="no name"), tool("a")]),
            ("name", [called("a", name="x" * 65), tool("a")]),
            ("arguments", [called("a", arguments={}), tool("a")]),
            ("repeated-id", [called("a", "a"), tool("a"), tool("a")]),
        ],
    )
    def test_what_it_refuses(self, rule: str, wire: list[Wire]) -> None:
        """Each rule by its name."""
        assert rule in rules("openai_chat", *wire)


def item(kind: str, call_id: str = "a", **more: Any) -> Wire:
    """A call or a result as Responses writes it."""
    fields = {"function_call": {"name": "bash", "arguments": "{}"}, "function_call_output": {"output": "ok"}}
    return {"type": kind, "call_id": call_id, **fields.get(kind, {}), **more}


CALL, OUTPUT = item("function_call"), item("function_call_output")
REASONED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}


class TestResponses:
    """Responses."""

    @pytest.mark.parametrize(
        "wire",
        [
            [ASKED, REASONED, CALL, OUTPUT, SAID],
            [ASKED, CALL, ASKED, item("function_call", "b"), item("function_call_output", "b"), OUTPUT],
            [REASONED, {"type": "reasoning", "id": "rs_2", "summary": []}, SAID],
            [REASONED, {"type": "web_search_call", "id": "ws_1"}, SAID],
            [
                {"type": "local_shell_call", "id": "ls", "call_id": "c", "action": {}},
                {"type": "local_shell_call_output", "id": "c", "output": "x"},
            ],
            [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "x"}, {"type": "refusal", "refusal": "no"}],
                }
            ],
            [item("custom_tool_call", name="f", input="x"), item("custom_tool_call_output", output=[])],
        ],
        ids=str,
    )
    def test_what_it_takes(self, wire: list[Wire]) -> None:
        """No rule is broken by what the provider accepts."""
        assert check(wire, "openai_responses") == []

    @each(
        ("rule", "wire"),
        [
            ("role", [{"role": "tool", "content": "x"}]),
            ("empty-content", [{"role": "user", "content": ""}]),
            ("empty-content", [{"role": "user", "content": [None]}]),
            ("empty-content", [CALL, OUTPUT | {"output": None}]),
            ("blank-text", [{"role": "user", "content": [{"type": "input_text", "text": ""}]}]),
            ("part-role", [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}]),
            ("part-role", [{"role": "user", "content": [{"type": "output_text", "text": "x"}]}]),
            ("reasoning", [{"type": "reasoning"}, SAID]),
            ("reasoning-alone", [REASONED]),
            ("reasoning-alone", [REASONED, ASKED]),
            ("reasoning-alone", [CALL, REASONED, OUTPUT]),
            ("id", [item("function_call", "x" * 65), item("function_call_output", "x" * 65)]),
            ("name", [CALL | {"name": ""}, OUTPUT]),
            ("arguments", [CALL | {"arguments": {}}, OUTPUT]),
            ("arguments", [item("custom_tool_call", name="f"), OUTPUT]),
            ("unanswered-call", [CALL]),
            ("orphan-result", [OUTPUT, CALL]),
            ("repeated-result", [CALL, OUTPUT, OUTPUT]),
            ("repeated-id", [CALL, OUTPUT, CALL, OUTPUT]),
            ("repeated-item", [REASONED, SAID, REASONED, SAID]),
        ],
    )
    def test_what_it_refuses(self, rule: str, wire: list[Wire]) -> None:
        """Each rule by its name."""
        assert rule in rules("openai_responses", *wire)


def turn(role: str, *parts: Wire) -> Wire:
    """A turn as Gemini writes it."""
    return {"role": role, "parts": list(parts)}


HI, ASKS, ANSWERS = {"text": "hi"}, {"functionCall": {"name": "f", "args": {}}}, {"functionResponse": {"name": "f"}}


class TestGemini:
    """Turns that alternate."""

    def test_what_it_takes(self) -> None:
        """Each in its turn."""
        wire = [turn("user", HI), turn("model", HI, ASKS, ASKS), turn("user", ANSWERS, ANSWERS, HI), turn("model", HI)]
        assert check(wire, "gemini") == []

    @each(
        ("rule", "wire"),
        [
            ("role", [turn("assistant", HI)]),
            ("role", [turn("user", ASKS)]),
            ("role", [turn("user", HI), turn("model", ANSWERS)]),
            ("first-user", [turn("model", HI)]),
            ("alternation", [turn("user", HI), turn("user", HI)]),
            ("empty-content", [turn("user")]),
            ("blank-text", [turn("user", {"text": ""})]),
            ("orphan-result", [turn("user", HI), turn("model", HI), turn("user", ANSWERS)]),
            ("unanswered-call", [turn("user", HI), turn("model", ASKS, ASKS), turn("user", ANSWERS)]),
            ("unanswered-call", [turn("user", HI), turn("model", ASKS)]),
            ("name", [turn("user", HI), turn("model", {"functionCall": {}}), turn("user", {"functionResponse": {}})]),
        ],
    )
    def test_what_it_refuses(self, rule: str, wire: list[Wire]) -> None:
        """Each rule by its name."""
        assert rule in rules("gemini", *wire)
