"""Messages as Gemini takes them."""

from __future__ import annotations

from holdfast.context.validate import validate
from holdfast.messages import Image, Message, Opaque, Text, ToolResult
from holdfast.providers import CONTINUED
from support.conversations import PIXEL, answer, call, reply, results, system, user

ASK, DONE = user("why"), reply("because")


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
        done = validate(messages, "gemini")
        assert [turn["role"] for turn in done.wire] == ["user", "model", "user", "model"]
        assert [list(part) for part in done.wire[2]["parts"]] == [["functionResponse"], ["text"], ["text"]]

    def test_names_follow_their_calls(self) -> None:
        """Also where ids come again."""
        messages = [ASK]
        for name in ("f", "g"):
            messages += [reply("", call("0", name)), results(answer("0", is_error=name == "g"))]
        wire = validate(messages, "gemini").wire
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
        wire = validate(messages, "gemini").wire
        assert [next(iter(part)) for part in wire[0]["parts"]] == ["text", "inlineData", "fileData"]
        assert [next(iter(part)) for part in wire[2]["parts"]] == ["functionResponse", "inlineData"]

    def test_the_user_begins(self) -> None:
        """Also where nothing of the user's first words can be sent."""
        message = Message(role="user", parts=(Opaque(kind="x", data={}),))
        assert validate([message, DONE, ASK], "gemini").wire[0]["parts"] == [{"text": CONTINUED}]
