"""A window that its provider will take, with as little change as possible."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from holdfast import formats
from holdfast.context.finish import Finished, finish
from holdfast.context.shape import CONTINUED
from holdfast.context.verify import PROVIDERS
from holdfast.errors import FormatError, InvalidWindowError
from holdfast.messages import Image, Message, Opaque, RedactedThinking, Text, Thinking, ToolCall, ToolResult
from talk import PIXEL, answer, call, reply, results, system, user

ASK, DONE = user("why"), reply("because")
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}


def finished(wires: list[Any], name: str, provider: str | None = None) -> Finished:
    """What becomes of a message list of a format."""
    return finish(formats.read(wires, format=name), provider or name)


def kinds(wire: Any) -> list[str]:
    """The kinds of the blocks in a message."""
    return [block["type"] for block in wire["content"]]


VALID: dict[str, list[Any]] = {
    "anthropic": [
        {"role": "user", "content": "why", "x": 1},
        {"role": "system", "content": "be brief"},
        {
            "role": "assistant",
            "content": [
                THOUGHT,
                {"type": "text", "text": "look"},
                {"type": "tool_use", "id": "t1", "name": "bash", "input": {"b": 1, "a": 2}},
                {"type": "tool_use", "id": "t2", "name": "bash", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t2", "content": "", "cache_control": {"type": "ephemeral"}},
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "tool_reference", "tool_name": "x"}]},
                {"type": "text", "text": "and?"},
            ],
        },
        {"role": "user", "content": [{"type": "text", "text": " "}, {"type": "text", "text": "hurry"}]},
        {"role": "assistant", "content": "so"},
        {"role": "assistant", "content": "it is"},
        {"role": "user", "content": "thanks"},
    ],
    "openai_chat": [
        {"role": "developer", "content": "careful"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "why", "name": "ann"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{ "x":1 }'}, "index": 0},
                {"id": "b", "type": "function", "function": {"name": "f", "arguments": ""}},
            ],
        },
        {"role": "tool", "tool_call_id": "b", "content": ""},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "1"}]},
        {"role": "user", "content": [{"type": "text", "text": "and?"}]},
    ],
    "openai_responses": [
        {"role": "user", "content": "why"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "look"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "f", "arguments": "{}", "status": "completed"},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "function_call_output", "call_id": "b", "output": ""},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"role": "user", "content": [{"type": "input_text", "text": "and?"}]},
    ],
}


class TestUntouched:
    """Valid input is left as it is."""

    @pytest.mark.parametrize("name", VALID)
    def test_what_the_provider_takes_is_sent_byte_for_byte(self, name: str) -> None:
        """No repair, no other key, no other order."""
        done = finished(VALID[name], name)
        assert json.dumps(list(done.wire)) == json.dumps(VALID[name])
        assert not done.repairs
        assert not done.violations

    @pytest.mark.parametrize("name", VALID)
    def test_what_is_appended_changes_nothing_before_it(self, name: str) -> None:
        """The provider's cache holds."""
        more = [*VALID[name], {"role": "assistant", "content": "yes"}, {"role": "user", "content": "next"}]
        assert finished(more, name).wire[: len(VALID[name])] == finished(VALID[name], name).wire


class TestAnyProvider:
    """What holds for all of them."""

    @pytest.mark.parametrize("provider", PROVIDERS)
    @pytest.mark.parametrize("name", VALID)
    def test_every_conversation_can_be_sent_to_every_provider(self, name: str, provider: str) -> None:
        """From any format."""
        done = finished(VALID[name], name, provider)
        assert done.wire
        assert done.violations == ()

    @pytest.mark.parametrize("provider", PROVIDERS)
    def test_a_broken_history_is_mended_and_reported(self, provider: str) -> None:
        """Orphans, gaps and all."""
        broken = [results(answer("x")), ASK, reply("", call("a"), call("b")), results(answer("b")), user(" "), DONE]
        done = finish(broken, provider)
        assert {"orphan-result", "missing-result", "empty-message"} <= {mended.rule for mended in done.repairs}

    @pytest.mark.parametrize("provider", PROVIDERS)
    def test_nothing_at_all_cannot_be_sent(self, provider: str) -> None:
        """The error says which rule, and for whom."""
        with pytest.raises(InvalidWindowError, match="there is no message") as caught:
            finish([], provider)
        assert caught.value.provider == provider
        assert [violation[0] for violation in caught.value.violations if isinstance(violation, tuple)] == [
            "empty-window"
        ]

    def test_unknown_providers_are_refused(self) -> None:
        """Before anything is done."""
        with pytest.raises(FormatError, match="'delphi' is not one of anthropic"):
            finish([ASK], "delphi")

    def test_tools_that_are_gone_are_left_out(self) -> None:
        """Where the request says which there are."""
        done = finish([ASK, reply("so", call("a", "gone")), results(answer("a"))], "openai_chat", known_tools=["bash"])
        assert [message["role"] for message in done.wire] == ["user", "assistant"]


class TestAnthropic:
    """The Messages API."""

    def test_the_user_speaks_first(self) -> None:
        """Where the beginning was cut off, a word of the user is put there."""
        done = finish([system(), DONE, ASK], "anthropic")
        assert done.wire[0] == {"role": "user", "content": CONTINUED}
        assert done.messages[0].role == "system"

    def test_results_of_one_batch_go_into_one_message(self) -> None:
        """Whoever sent them one by one."""
        messages = [ASK, reply("", call("a"), call("b")), results(answer("a")), results(answer("b"), said="and?")]
        content = finish(messages, "anthropic").wire[2]["content"]
        assert [block["type"] for block in content] == ["tool_result", "tool_result", "text"]

    def test_results_of_its_own_lines_are_joined_block_by_block(self) -> None:
        """The blocks stay as they were."""
        wires: list[Any] = [
            {"role": "user", "content": "why"},
            {"role": "assistant", "content": [THOUGHT]},
            {"role": "assistant", "content": [{"type": "text", "text": "look"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}, "x": 1}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t2", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "1"}]},
            {"role": "user", "content": [{"type": "text", "text": "hm"}, {"type": "tool_result", "tool_use_id": "t2"}]},
        ]
        done = finished(wires, "anthropic")
        assert [kinds(wire) for wire in done.wire[1:]] == [
            ["thinking", "text", "tool_use", "tool_use"],
            ["tool_result", "tool_result", "text"],
        ]
        assert done.wire[1]["content"][2] is wires[3]["content"][0]

    def test_results_come_before_words(self) -> None:
        """In the same message."""
        wires = [
            {"role": "user", "content": "why"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "text", "text": "hm"}, {"type": "tool_result", "tool_use_id": "t1"}]},
        ]
        assert kinds(finished(wires, "anthropic").wire[2]) == ["tool_result", "text"]

    def test_two_replies_that_can_stand_apart_are_not_joined(self) -> None:
        """A thought stays at the beginning of its own reply."""
        one = {"role": "assistant", "content": [{"type": "text", "text": "so"}]}
        two = {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "it is"}]}
        wires = [{"role": "user", "content": "why"}, one, two, {"role": "user", "content": "ok"}]
        assert list(finished(wires, "anthropic").wire) == wires

    def test_a_thought_that_ends_up_behind_words_goes(self) -> None:
        """Two replies that are both written anew are written as one."""
        envelope = {"id": "msg_1", "role": "assistant", "content": [{"type": "text", "text": "so"}]}
        call_ = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
        wires = [
            {"role": "user", "content": "why"},
            envelope,
            {"role": "assistant", "content": [THOUGHT]},
            {"role": "assistant", "content": [call_]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "1"}]},
        ]
        done = finished(wires, "anthropic")
        assert kinds(done.wire[1]) == ["text", "tool_use"]
        assert not done.violations

    def test_thoughts_are_whole_or_not_there(self) -> None:
        """One that nothing follows goes; one that something precedes goes; unsigned ones are words."""
        late = Message(role="assistant", parts=(Text(text="so"), Thinking(text="hm", signature="s"), call("a")))
        unsigned = Message(role="assistant", parts=(Thinking(text="hm"), Text(text="so")))
        assert kinds(finish([ASK, late, results(answer("a"))], "anthropic").wire[1]) == ["text", "tool_use"]
        assert kinds(finish([ASK, unsigned], "anthropic").wire[1]) == ["text", "text"]
        assert len(finish([ASK, reply(thought="hm"), user("so?")], "anthropic").wire) == 1
        own = [
            {"role": "user", "content": "why"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
        ]
        assert kinds(finished(own, "anthropic").wire[1]) == ["text"]

    def test_seals_of_others_mean_nothing_here(self) -> None:
        """Their words are words, and what cannot be read is left out."""
        wires = [
            {"role": "user", "content": "why"},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "x"},
            {"role": "assistant", "content": "so"},
        ]
        wire = finished(wires, "openai_responses", "anthropic").wire
        assert wire[1]["content"] == [{"type": "text", "text": "hm"}, {"type": "text", "text": "so"}]

    def test_ids_are_made_to_fit_and_unique_for_call_and_result_alike(self) -> None:
        """Long ones, odd ones, and ones that were used before."""
        asked = [reply("", call(name), call("b")) for name in ("functions.Bash:0", "x" * 200, "b2", "b")]
        asked[3] = reply("", call("b"))
        messages = [ASK]
        for message in asked:
            messages += [message, results(*(answer(made.id) for made in message.calls))]
        wire = finish(messages, "anthropic").wire
        calls = [block["id"] for turn in wire[1::2] for block in turn["content"]]
        given = [block["tool_use_id"] for turn in wire[2::2] for block in turn["content"]]
        assert calls == given
        assert len(set(calls)) == len(calls)
        assert all(len(name) <= 64 for name in calls)
        assert calls[0].startswith("functions_Bash_0_")
        assert calls[1] == "b"

    def test_names_and_arguments_are_made_to_fit(self) -> None:
        """A name without odd characters, an object for arguments."""
        odd = ToolCall(id="a", name="do it!", arguments="{broken")
        block = finish([ASK, reply("", odd), results(answer("a"))], "anthropic").wire[1]["content"][0]
        assert (block["name"], block["input"]) == ("do_it_", {"_raw": "{broken"})
        own = [
            {"role": "user", "content": "why"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": "x"}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "1"}]},
        ]
        assert finished(own, "anthropic").wire[1]["content"][0]["input"] == {"_raw": "x"}

    def test_blank_texts_go(self) -> None:
        """In messages and in results; an error says something."""
        wires = [
            {"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "why"}]},
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "\n"}, {"type": "tool_use", "id": "t1", "name": "f", "input": {}}],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "is_error": True,
                        "content": [{"type": "text", "text": ""}],
                    }
                ],
            },
        ]
        done = finished(wires, "anthropic")
        assert kinds(done.wire[0]) == ["text"]
        assert kinds(done.wire[1]) == ["tool_use"]
        assert done.wire[2]["content"][0]["content"] == [{"type": "text", "text": "(no output)"}]

    def test_a_reply_is_sent_back_without_its_envelope(self) -> None:
        """Only role and content can be."""
        envelope = {
            "id": "msg_1",
            "type": "message",
            "model": "m",
            "usage": {"input_tokens": 1},
            "stop_reason": "end_turn",
        }
        said = {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "so"}]}
        done = finished(
            [{"role": "user", "content": "why"}, envelope | said, {"role": "user", "content": "ok"}], "anthropic"
        )
        assert done.wire[1] == said

    def test_instructions_stand_where_they_may(self) -> None:
        """Elsewhere, and where they came from another format, the user says them."""
        instructed = {"role": "system", "content": "be brief"}
        wires = [instructed, {"role": "user", "content": "why"}, instructed, {"role": "user", "content": "so?"}]
        assert [wire["role"] for wire in finished(wires, "anthropic").wire] == ["user"] * 4
        foreign = finish([ASK, system("x"), DONE], "anthropic").wire
        assert [wire["role"] for wire in foreign] == ["user", "assistant"]
        assert [block["text"] for block in foreign[0]["content"]] == ["why", "x"]

    def test_the_last_reply_does_not_end_in_white_space(self) -> None:
        """When it is to be continued."""
        assert finish([ASK, reply("so \n")], "anthropic").wire[-1]["content"] == "so"
        two = Message(role="assistant", parts=(Text(text="so"), Text(text=" ")))
        assert finish([ASK, two], "anthropic").wire[-1]["content"] in ("so", [{"type": "text", "text": "so"}])

    def test_the_assistant_shows_no_pictures(self) -> None:
        """A word stands for them."""
        shown = Message(role="assistant", parts=(Text(text="see"), PIXEL))
        assert finish([ASK, shown, ASK], "anthropic").wire[1]["content"][1]["text"] == "(image)"

    def test_what_only_others_know_is_left_out(self) -> None:
        """Opaque parts of other formats, pictures that are not there."""
        message = user("see", Opaque(kind="document", data={}), Image())
        given = ToolResult(call_id="a", content=(Text(text="1"), Opaque(kind="x", data={})))
        done = finish(
            [
                message,
                reply("", call("a")),
                results(given),
                Message(role="assistant", parts=(RedactedThinking(data=""),)),
            ],
            "anthropic",
        )
        assert [wire["content"] for wire in done.wire[:1]] == ["see"]
        assert len(done.wire) == 3
        assert done.wire[2]["content"][0]["content"] == "1"


class TestChat:
    """Chat Completions."""

    def test_calls_of_one_reply_are_in_one_message(self) -> None:
        """Where a format writes them one by one."""
        messages = [
            ASK,
            reply("so"),
            reply("", call("a")),
            reply("", call("b")),
            results(answer("a")),
            results(answer("b")),
        ]
        wire = finish(messages, "openai_chat").wire
        assert [message["role"] for message in wire] == ["user", "assistant", "assistant", "tool", "tool"]
        assert len(wire[2]["tool_calls"]) == 2

    def test_its_own_messages_are_joined_where_they_must_be(self) -> None:
        """And that is reported."""

        def asked(name: str) -> dict[str, Any]:
            called = {"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}}
            return {"role": "assistant", "content": None, "tool_calls": [called]}

        answered = [{"role": "tool", "tool_call_id": name, "content": "1"} for name in "ab"]
        done = finished([asked("a"), asked("b"), *answered], "openai_chat")
        assert [mended.rule for mended in done.repairs] == ["joined"]
        assert done.wire[0]["tool_calls"] == [*asked("a")["tool_calls"], *asked("b")["tool_calls"]]

    def test_words_beside_results_follow_them(self) -> None:
        """As a message of the user."""
        messages = [ASK, reply("", call("a"), call("b")), results(answer("a"), said="and?"), results(answer("b"))]
        assert [message["role"] for message in finish(messages, "openai_chat").wire] == [
            "user",
            "assistant",
            "tool",
            "tool",
            "user",
        ]

    def test_arguments_are_text(self) -> None:
        """Also where a server sent the object itself."""
        called = {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
        wires = [
            {"role": "assistant", "content": "", "tool_calls": [called]},
            {"role": "tool", "tool_call_id": "a", "content": "1"},
        ]
        assert finished(wires, "openai_chat").wire[0]["tool_calls"][0]["function"]["arguments"] == '{"x":1}'

    def test_long_ids_are_cut_for_both(self) -> None:
        """The same way, so that they still belong together; ids may come again."""
        asked, given = reply("", call("c" * 80)), results(answer("c" * 80))
        wire = finish([ASK, asked, given, asked, given], "openai_chat").wire
        assert wire[1]["tool_calls"][0]["id"] == wire[2]["tool_call_id"] == wire[4]["tool_call_id"]
        assert len(wire[2]["tool_call_id"]) == 64

    def test_empty_lists_and_blank_parts_go(self) -> None:
        """Nothing that says nothing."""
        blank = {"type": "text", "text": ""}
        wires = [
            {"role": "user", "content": [blank, {"type": "text", "text": "why"}]},
            {
                "role": "assistant",
                "content": [],
                "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}],
            },
            {"role": "tool", "tool_call_id": "a", "content": []},
            {"role": "assistant", "content": None, "reasoning_content": "hm"},
        ]
        done = finished(wires, "openai_chat")
        assert done.wire[0]["content"] == [{"type": "text", "text": "why"}]
        assert (done.wire[1]["content"], done.wire[2]["content"]) == (None, "")
        assert len(done.wire) == 3

    def test_old_function_calls_stay_where_they_were_answered_as_such(self) -> None:
        """Nobody has to change a working program."""
        legacy = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
        wires = [{"role": "user", "content": "why"}, legacy, {"role": "function", "name": "f", "content": "1"}]
        assert list(finished(wires, "openai_chat").wire) == wires

    def test_old_function_calls_are_written_anew_where_they_cannot_stay(self) -> None:
        """Unanswered ones, and answers in another spelling."""
        legacy = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
        mixed = finished([legacy, {"role": "tool", "tool_call_id": "f", "content": "1"}], "openai_chat")
        assert mixed.wire[0]["tool_calls"][0]["id"] == "f"
        done = finished([{"role": "user", "content": "why"}, legacy, {"role": "user", "content": "so?"}], "openai_chat")
        assert done.wire[1]["tool_calls"][0]["function"]["name"] == "f"
        assert not done.violations


class TestResponses:
    """Responses."""

    def test_reasoning_that_led_to_nothing_goes(self) -> None:
        """What it led to may have been cut off."""
        reasoned = {"type": "reasoning", "id": "rs_1", "summary": []}
        wires = [
            {"role": "user", "content": "why"},
            reasoned,
            {"role": "user", "content": "so?"},
            {**reasoned, "id": "rs_2"},
        ]
        done = finished(wires, "openai_responses")
        assert [item["content"] for item in done.wire] == ["why", "so?"]
        assert [mended.rule for mended in done.repairs] == ["reasoning-alone"] * 2

    def test_an_item_is_there_once(self) -> None:
        """A second time it has no id, and a thought is not thought twice."""
        reasoned = {"type": "reasoning", "id": "rs_1", "summary": []}
        said = {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "so"}],
        }
        done = finished([reasoned, said, reasoned, said], "openai_responses")
        assert [item.get("id") for item in done.wire] == ["rs_1", "msg_1", None]

    def test_parts_are_spelled_for_who_says_them(self) -> None:
        """Input for the user, output for the assistant."""
        wires = [
            {"role": "user", "content": [{"type": "output_text", "text": "why"}]},
            {
                "role": "assistant",
                "content": [{"type": "input_text", "text": "so"}, {"type": "input_text", "text": ""}],
            },
        ]
        wire = finished(wires, "openai_responses").wire
        assert wire[0]["content"] == "why"
        assert wire[1]["content"] == [{"type": "output_text", "text": "so"}]

    def test_calls_and_results_are_whole(self) -> None:
        """Arguments, output, ids that were used before."""
        call_ = {"type": "function_call", "call_id": "a", "name": "f"}
        output = {"type": "function_call_output", "call_id": "a", "output": None}
        wire = finished([call_, output, call_, output], "openai_responses").wire
        assert [item["call_id"] for item in wire] == ["a", "a", "a_2", "a_2"]
        assert wire[0]["arguments"] == "{}"
        assert wire[1]["output"] == "(no output)"

    def test_thoughts_of_others_are_left_out(self) -> None:
        """Only the provider's own can be sent."""
        done = finish([ASK, reply("so", thought="hm"), user("see", Opaque(kind="x", data={}))], "openai_responses")
        assert [item["content"] for item in done.wire] == ["why", "so", "see"]
        own = [{"type": "reasoning", "id": "rs_1"}, {"role": "assistant", "content": "so"}]
        assert len(finished(own, "openai_responses").wire) == 1


class TestGemini:
    """Turns that alternate."""

    def test_each_side_speaks_in_one_turn(self) -> None:
        """Words, results and instructions of one side together, results first."""
        messages = [
            system(),
            ASK,
            user("now"),
            reply("", call("a", "f"), thought="hm"),
            user("x"),
            results(answer("a")),
            system("y"),
            DONE,
        ]
        done = finish(messages, "gemini")
        assert [turn["role"] for turn in done.wire] == ["user", "model", "user", "model"]
        assert [list(part) for part in done.wire[2]["parts"]] == [["functionResponse"], ["text"], ["text"]]

    def test_names_follow_their_calls(self) -> None:
        """Also where ids come again."""
        messages = [ASK]
        for name in ("f", "g"):
            messages += [reply("", call("0", name)), results(answer("0", is_error=name == "g"))]
        wire = finish(messages, "gemini").wire
        given = [part["functionResponse"] for turn in wire[2::2] for part in turn["parts"]]
        assert [(one["name"], list(one["response"])) for one in given] == [("f", ["output"]), ("g", ["error"])]

    def test_pictures_are_shown(self) -> None:
        """Inline or by address, in results as well; what is not there is not."""
        shown = ToolResult(call_id="a", content=(Text(text="see"), PIXEL))
        messages = [
            user("see", PIXEL, Image(url="https://example.com/a.png"), Image()),
            reply("", call("a")),
            results(shown),
            user(" "),
        ]
        wire = finish(messages, "gemini").wire
        assert [next(iter(part)) for part in wire[0]["parts"]] == ["text", "inlineData", "fileData"]
        assert [next(iter(part)) for part in wire[2]["parts"]] == ["functionResponse", "inlineData"]

    def test_the_user_begins(self) -> None:
        """Also where nothing of the user's first words can be sent."""
        message = Message(role="user", parts=(Opaque(kind="x", data={}),))
        assert finish([message, DONE, ASK], "gemini").wire[0]["parts"] == [{"text": CONTINUED}]


class TestLastResort:
    """What still breaks a rule is said plainly, once."""

    def test_what_cannot_be_vouched_for_is_left_out(self) -> None:
        """The window is valid, and the report says what was wrong with it."""
        odd = {"role": "user", "content": [{"type": "text", "text": "why"}, {"type": "text", "text": 5}]}
        message = formats.read([{**odd, "content": [odd["content"][0]]}], format="anthropic")[0]
        sneaky = replace(
            message, origin=message.origin._replace(data={"role": "user", "content": []}) if message.origin else None
        )
        done = finish([sneaky], "anthropic")
        assert done.wire == ({"role": "user", "content": "why"},)
        assert [violation.rule for violation in done.violations] == ["empty-content"]

    def test_what_is_plain_and_still_wrong_is_never_sent(self) -> None:
        """Nothing but blank words is nothing."""
        with pytest.raises(InvalidWindowError):
            finish([user(" "), Message(role="user", parts=(Opaque(kind="x", data=1),))], "anthropic")
