"""Input that a provider would refuse is repaired and reported: separated reasoning, empty lines, lone surrogates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine, providers
from holdfast.errors import InvalidWindowError
from holdfast.providers import check
from holdfast.settings import Embedding, Settings

PIXEL = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Open an engine over a new memory, by words alone."""
    settings = Settings(embedding=Embedding(provider="none"))
    with Engine.open(tmp_path, settings=settings, background=False) as engine:
        yield engine


def reasoned_talk(turns: int) -> list[dict[str, Any]]:
    """Return a conversation in which every reply follows its reasoning; some turns have two of both."""
    sent: list[dict[str, Any]] = []
    for turn in range(turns):
        sent.append({"role": "user", "content": f"Question {turn}: " + f"词{turn} detail{turn} " * 40})
        for step in range(1 + turn % 2):
            name = f"{turn}_{step}"
            text = {"type": "output_text", "text": f"Answer {name}: " + f"change{turn} " * 60, "annotations": []}
            sealed = f"g{name}" * 100
            sent.append({"type": "reasoning", "id": f"rs_{name}", "summary": [], "encrypted_content": sealed})
            sent.append({"type": "message", "id": f"msg_{name}", "role": "assistant", "content": [text]})
    return sent


def broken(window: list[Any], sent: list[dict[str, Any]]) -> list[Any]:
    """Return the rules that a window breaks, given the whole conversation."""
    return check(window, "openai_responses", reasoning=providers.link_reasoning(providers.read(sent)))


class TestReasoning:
    """An item and its reasoning are one unit."""

    @pytest.mark.parametrize(
        ("limit", "lengths"),
        [(5_000, range(5, 35, 5)), pytest.param(200_000, range(10, 60, 7), marks=pytest.mark.nightly)],
        ids=["small", "large"],
    )
    def test_every_cut_keeps_them_together(self, limit: int, lengths: range, engine: Engine) -> None:
        """After trimming and compaction at many lengths, no reply is sent without its reasoning or without its id."""
        sent = reasoned_talk(60)
        for turns in lengths:
            stop = next(place for place, item in enumerate(sent) if f"Question {turns}:" in str(item)) + 1
            session = f"s{turns}"
            engine.session(session).assemble(sent[:stop], limit=limit)
            engine.session(session).compact(limit=limit)
            window = engine.session(session).assemble(sent[:stop], limit=limit)
            assert not broken(window.render(), sent)
            assert window.report.repairs == ()
            assert all("id" in item for item in window.render() if item.get("role") == "assistant")

    def test_an_item_whose_reasoning_was_forgotten_is_sent_as_new(self, engine: Engine) -> None:
        """It has no id by which the provider would look for the reasoning; the report says so."""
        sent = reasoned_talk(4)
        engine.session("s").assemble(sent)
        engine.session("s").forget(ids=[2])
        window = engine.session("s").assemble([*sent, {"role": "user", "content": "And now?"}])
        assert not broken(window.render(), sent)
        assert "msg_0_0" not in json.dumps(window.render())
        assert "Answer 0_0" in json.dumps(window.render())
        assert "reasoning-missing" in " ".join(window.report.repairs)

    def test_the_checker_checks_the_rule(self) -> None:
        """A window without the reasoning is refused, whatever else it contains."""
        sent = reasoned_talk(2)
        assert not broken(sent, sent)
        without = [item for item in sent if item.get("id") != "rs_1_1"]
        assert [violation.rule for violation in broken(without, sent)] == ["reasoning-missing"]


NOVELTY: dict[str, Any] = {"type": "novelty", "data": "值"}
LOOK: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "look"}, NOVELTY]}
CODE: dict[str, Any] = {"role": "model", "parts": [{"executableCode": {"language": "PYTHON", "code": "1"}}]}
HELLO: dict[str, Any] = {"role": "user", "parts": [{"text": "hi"}]}


def function_call(**fields: Any) -> dict[str, Any]:
    """Return a content with one call."""
    return {"role": "model", "parts": [{"functionCall": {"args": {}, **fields}}]}


def function_response(*names: str, **fields: Any) -> dict[str, Any]:
    """Return a content with a response of each name."""
    return {
        "role": "user",
        "parts": [{"functionResponse": {"name": name, "response": {"output": "好"}, **fields}} for name in names],
    }


class TestLostFields:
    """A part that lost an id, a name or a field is repaired in place: nothing else in the window is left out for it."""

    @pytest.mark.parametrize(
        ("format_", "sent"),
        [
            ("gemini", [HELLO, CODE, {"parts": [{"text": "go on"}]}]),
            ("gemini", [HELLO, CODE, HELLO, function_call(id="a", name="ls"), function_response("cat", id="a")]),
            ("gemini", [HELLO, CODE, HELLO, function_call(id="a", name="ls"), function_response("", id="a")]),
            ("gemini", [HELLO, CODE, HELLO, function_call(name="ls"), function_response("cat", "ls")]),
            ("gemini", [HELLO, CODE, HELLO, function_call(name=""), function_response("")]),
            ("gemini", [HELLO, CODE, function_response("ls"), CODE, HELLO]),
            ("pi", [LOOK, {"role": "toolResult", "toolCallId": "lost", "content": [NOVELTY]}]),
            ("pi", [LOOK, {"role": "toolResult", "content": "no id"}]),
            (
                "anthropic",
                [
                    LOOK,
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "ls"}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]},
                ],
            ),
            (
                "openai_chat",
                [
                    LOOK,
                    {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "ls"}}]},
                    {"role": "tool", "tool_call_id": "a"},
                ],
            ),
        ],
    )
    def test_only_what_is_broken_is_changed(self, format_: str, sent: list[Any], engine: Engine) -> None:
        """This holds from the first message on; blocks that only the provider knows stay in the window."""
        for count in range(1, len(sent) + 1):
            window = engine.session("s").assemble(sent[:count], format=format_)
            assert not check(window.render(), format_)
            assert "left out every block" not in " ".join(window.report.repairs)
            assert all(
                text in json.dumps(window.render())
                for text in ("novelty", "executableCode")
                if text in str(sent[:count])
            )
        assert window.report.repairs

    def test_a_thinking_block_without_a_mark_is_left_out_alone(self, engine: Engine) -> None:
        """Chat Completions accepts no thinking in the content of a reply."""
        thought = {"type": "thinking", "thinking": "嗯"}
        sent = [LOOK, {"role": "assistant", "content": [thought, {"type": "text", "text": "ok"}]}, LOOK]
        window = engine.session("s").assemble(sent, provider="openai_chat")
        assert not check(window.render(), "openai_chat")
        assert window.render() == [LOOK, {"role": "assistant", "content": [{"type": "text", "text": "ok"}]}, LOOK]


class TestRepairs:
    """What is repaired in a window; the archive has it as it came."""

    def test_an_empty_list_of_calls_is_left_out(self, engine: Engine) -> None:
        """Everything else of the message stays."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "Done.",
            "tool_calls": [],
            "reasoning_content": "Hm.",
        }
        sent = [{"role": "user", "content": "Do it"}, message, {"role": "user", "content": "Thanks"}]
        window = engine.session("s").assemble(sent)
        assert window.render()[1] == {"role": "assistant", "content": "Done.", "reasoning_content": "Hm."}
        assert "empty-calls" in " ".join(window.report.repairs)
        (row,) = engine.session("s").get([2])
        assert row.message.origin is not None
        assert row.message.origin.data == message

    @pytest.mark.parametrize("content", [[PIXEL], [{"type": "text", "text": "It broke."}, PIXEL]])
    def test_a_picture_in_an_error_is_shown_behind_it(self, content: list[Any], engine: Engine) -> None:
        """Anthropic accepts only text in a result that is an error."""
        use = {"type": "tool_use", "id": "t1", "name": "shot", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "t1", "content": content, "is_error": True}
        sent: list[dict[str, Any]] = [{"role": "user", "content": "Look"}, {"role": "assistant", "content": [use]}]
        window = engine.session("s").assemble([*sent, {"role": "user", "content": [result]}])
        first, second = window.render()[2]["content"]
        assert (first["type"], first["is_error"], second) == ("tool_result", True, PIXEL)
        assert "image" not in json.dumps(first)
        assert window.report.repairs
        assert not check(window.render(), "anthropic")

    @pytest.mark.parametrize(
        "sent",
        [
            [{"role": "user", "content": "half \ud83d here"}],
            [{"role": "user", "content": [{"type": "text", "text": "half \ud83d here", "cache_control": {"a": 1}}]}],
            [
                {"role": "user", "content": "go"},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {"x": "\udc00"}}],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "坏 \ud83d"}]},
            ],
            [{"role": "user", "parts": [{"text": "half \ud83d here"}]}],
            [
                {"role": "user", "content": "go"},
                {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "a", "output": "half \ud83d"},
            ],
        ],
    )
    def test_half_a_character_is_replaced(self, sent: list[dict[str, Any]], engine: Engine) -> None:
        """The request can be written as UTF-8, the report says so, and the archive has the original."""
        for _ in range(2):
            window = engine.session("s").assemble(sent)
            json.dumps(window.request(), ensure_ascii=False).encode()
            json.dumps(window.render(), ensure_ascii=False).encode()
            assert "\ufffd" in json.dumps(window.render(), ensure_ascii=False)
            assert "surrogates" in " ".join(window.report.repairs)
        rows = engine.session("s").get(range(1, 9))
        assert [row.message.origin.data for row in rows if row.message.origin] == sent
        engine.session("s").search("half \ud83d")

    def test_two_halves_that_belong_together_become_one_character(self, engine: Engine) -> None:
        """A stream that is joined piece by piece leaves them so."""
        window = engine.session("s").assemble([{"role": "user", "content": "\ud83d" + "\ude00"}])
        assert window.render() == [{"role": "user", "content": "😀"}]


class TestEmptyMessages:
    """Some hosts send them."""

    @pytest.mark.variants
    @pytest.mark.parametrize("content", ["", "  \n", None, []])
    @pytest.mark.parametrize("provider", ["openai_chat", "anthropic", "openai_responses", "gemini"])
    def test_they_are_archived_and_left_out_of_windows(self, engine: Engine, content: object, provider: str) -> None:
        """The report names each of them."""
        session = engine.session("s1")
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": "Which port?"},
            {"role": "assistant", "content": content},
            {"role": "user", "content": content},
        ]
        assert session.append(messages) == [1, 2, 3]
        window = session.assemble(messages, provider=provider, limit=8_000)
        assert [row.id for row in session.messages()] == [1, 2, 3]
        assert len(window.render()) == 1
        assert len([line for line in window.report.repairs if "empty-message" in line]) == 2

    def test_a_window_of_nothing_else_is_an_error(self, engine: Engine) -> None:
        """The message is archived anyway."""
        session = engine.session("s1")
        with pytest.raises(InvalidWindowError, match="give it text, or do not send it"):
            session.assemble([{"role": "user", "content": ""}], limit=8_000)
        assert len(session.messages()) == 1
