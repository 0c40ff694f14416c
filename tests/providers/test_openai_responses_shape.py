"""Messages as OpenAI's Responses takes them."""

from __future__ import annotations

import pytest

from holdfast.context.validate import validate
from holdfast.messages import Opaque
from support.conversations import finished, reply, user

ASK, DONE = user("why"), reply("because")


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
        message = {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "so"}],
        }
        done = finished([reasoned, message, reasoned, message], "openai_responses")
        assert [item.get("id") for item in done.wire] == ["rs_1", "msg_1", None]

    def test_parts_are_spelled_by_the_role_of_the_message(self) -> None:
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

    @pytest.mark.parametrize("kind", ["input_image", "computer_screenshot"])
    def test_the_assistant_shows_no_pictures(self, kind: str) -> None:
        """A word stands for a picture that is named by its file, and nothing else is left out."""
        picture = {"type": kind, "file_id": "file-1"}
        wires = [
            {"role": "user", "content": [{"type": "input_text", "text": "看"}, {"type": "input_file", "file_id": "f"}]},
            {"role": "assistant", "content": [{"type": "output_text", "text": "see"}, picture]},
        ]
        wire = finished(wires, "openai_responses").wire
        assert wire[0] == wires[0]
        assert [part["text"] for part in wire[1]["content"]] == ["see", "(image)"]

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
        done = validate([ASK, reply("so", thought="hm"), user("see", Opaque(kind="x", data={}))], "openai_responses")
        assert [item["content"] for item in done.wire] == ["why", "so", "see"]
        own = [{"type": "reasoning", "id": "rs_1"}, {"role": "assistant", "content": "so"}]
        assert len(finished(own, "openai_responses").wire) == 1
