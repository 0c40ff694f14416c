"""Messages as Anthropic takes them."""

from __future__ import annotations

from typing import Any

from holdfast.context.validate import validate
from holdfast.messages import Image, Message, Opaque, RedactedThinking, Text, Thinking, ToolCall, ToolResult
from holdfast.providers import CONTINUED
from support.conversations import PIXEL, THOUGHT, answer, call, finished, kinds, reply, results, system, user

ASK, DONE = user("why"), reply("because")


class TestAnthropic:
    """The Messages API."""

    def test_the_user_speaks_first(self) -> None:
        """Where the beginning was cut off, a word of the user is put there."""
        done = validate([system(), DONE, ASK], "anthropic")
        assert done.wire[0] == {"role": "user", "content": CONTINUED}
        assert done.messages[0].role == "system"

    def test_results_of_one_batch_go_into_one_message(self) -> None:
        """Whoever sent them one by one."""
        messages = [ASK, reply("", call("a"), call("b")), results(answer("a")), results(answer("b"), text="and?")]
        content = validate(messages, "anthropic").wire[2]["content"]
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

    def test_two_replies_that_can_be_separate_are_not_joined(self) -> None:
        """A thought stays at the beginning of its own reply."""
        one = {"role": "assistant", "content": [{"type": "text", "text": "so"}]}
        two = {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "it is"}]}
        wires = [{"role": "user", "content": "why"}, one, two, {"role": "user", "content": "ok"}]
        assert list(finished(wires, "anthropic").wire) == wires

    def test_a_thought_that_ends_up_behind_words_goes(self) -> None:
        """Two replies that are both written again are written as one."""
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
        assert kinds(validate([ASK, late, results(answer("a"))], "anthropic").wire[1]) == ["text", "tool_use"]
        assert kinds(validate([ASK, unsigned], "anthropic").wire[1]) == ["text", "text"]
        assert len(validate([ASK, reply(thought="hm"), user("so?")], "anthropic").wire) == 1
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
        wire = validate(messages, "anthropic").wire
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
        block = validate([ASK, reply("", odd), results(answer("a"))], "anthropic").wire[1]["content"][0]
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
        message = {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "so"}]}
        done = finished(
            [{"role": "user", "content": "why"}, envelope | message, {"role": "user", "content": "ok"}], "anthropic"
        )
        assert done.wire[1] == message

    def test_instructions_are_placed_where_they_may_be(self) -> None:
        """At the front they are the system prompt, elsewhere behind the user's; of other formats, the user's."""
        instructed = {"role": "system", "content": "be brief"}
        wires = [instructed, {"role": "user", "content": "why"}, instructed, {"role": "user", "content": "so?"}]
        done = finished(wires, "anthropic")
        assert [wire["role"] for wire in done.wire] == ["user", "user", "system"]
        assert (done.messages[0].role, done.messages[0].text) == ("system", "be brief")
        foreign = validate([ASK, system("x"), DONE], "anthropic").wire
        assert [wire["role"] for wire in foreign] == ["user", "assistant"]
        assert [block["text"] for block in foreign[0]["content"]] == ["why", "x"]

    def test_the_last_reply_does_not_end_in_white_space(self) -> None:
        """When it is to be continued."""
        assert validate([ASK, reply("so \n")], "anthropic").wire[-1]["content"] == "so"
        two = Message(role="assistant", parts=(Text(text="so"), Text(text=" ")))
        assert validate([ASK, two], "anthropic").wire[-1]["content"] in ("so", [{"type": "text", "text": "so"}])

    def test_the_assistant_shows_no_pictures(self) -> None:
        """A word stands for them."""
        shown = Message(role="assistant", parts=(Text(text="see"), PIXEL))
        assert validate([ASK, shown, ASK], "anthropic").wire[1]["content"][1]["text"] == "(image)"

    def test_what_only_others_know_is_left_out(self) -> None:
        """Opaque parts of other formats, pictures that are not there."""
        message = user("see", Opaque(kind="document", data={}), Image())
        given = ToolResult(call_id="a", content=(Text(text="1"), Opaque(kind="x", data={})))
        done = validate(
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
