"""The model that follows a script, and the one that tells what it would have sent."""

from __future__ import annotations

import re
from pathlib import Path
from threading import Event

import pytest

from holdfast.errors import (
    InputError,
    ModelBusyError,
    ModelCancelledError,
    ModelOverflowError,
    ModelRefusedError,
    ModelTimeoutError,
)
from holdfast.messages import Message, Text, Thinking, ToolCall, Usage
from holdfast.models.base import Prompt, Tool
from holdfast.models.scripted import Echo, Hang, Scripted, ScriptedReply, prompt_tokens

HELLO = Prompt(messages=[Message(role="user", parts=(Text(text="hello"),))])
LS = Tool(name="ls", description="List.", parameters={"type": "object"})


def test_steps_come_in_order_and_prompts_are_kept() -> None:
    """Each prompt gets the next step, and every prompt can be examined afterwards."""
    model = Scripted(["one", lambda prompt: f"{len(prompt.messages)} message", ScriptedReply(text="three")])
    assert [model.ask(HELLO).text for _ in range(3)] == ["one", "1 message", "three"]
    assert model.prompts == [HELLO] * 3


def test_a_function_may_be_the_whole_script() -> None:
    """A model made of a function never ends."""
    model = Scripted(lambda prompt: prompt.messages[-1].text.upper())
    assert [model.ask(HELLO).text for _ in range(3)] == ["HELLO"] * 3


def test_a_script_ends() -> None:
    """Behind its last step the model refuses, and says how many it had; a step that repeats is never the last."""
    model = Scripted(["one"])
    model.ask(HELLO)
    with pytest.raises(ModelRefusedError, match="over after 1 replies"):
        model.ask(HELLO)
    again = Scripted([ScriptedReply(text="again", repeat=True)])
    assert [again.ask(HELLO).text for _ in range(3)] == ["again"] * 3


def test_a_message_is_rendered_as_it_is() -> None:
    """A whole message comes back itself, with an estimate of its usage."""
    call = ToolCall(id="c", name="ls", arguments={})
    message = Message(role="assistant", parts=(Thinking(text="hm", signature="s"), Text(text="ok"), call), id="m1")
    reply = Scripted([message]).ask(HELLO)
    assert (reply.message.parts, reply.message.id) == (message.parts, "m1")
    assert reply.usage is not None
    assert reply.usage.input == prompt_tokens(HELLO)
    assert reply.stop == "tools"


def test_text_arrives_in_pieces() -> None:
    """Text comes in the pieces that it was given in, else word by word, and nothing of it is lost."""
    heard: list[str] = []
    model = Scripted([ScriptedReply(pieces=("he", "llo")), "  two\nwords  "])
    model.ask(HELLO, on_text=heard.append)
    assert heard == ["he", "llo"]
    model.ask(HELLO, on_text=heard.append)
    assert heard[2:] == ["  two\n", "words  "]


def test_usage_is_estimated_unless_it_is_given() -> None:
    """Tools and schema count with the messages."""
    full = Prompt(messages=HELLO.messages, tools=[LS], schema={"type": "object"})
    assert prompt_tokens(full) > prompt_tokens(HELLO)
    model = Scripted(["ok", ScriptedReply(text="ok", usage=Usage(input=1, output=2))])
    first, second = model.ask(full), model.ask(full)
    assert first.usage is not None
    assert first.usage.input == prompt_tokens(full)
    assert second.usage == Usage(input=1, output=2)


def test_a_prompt_that_does_not_fit_is_refused() -> None:
    """What is longer than the window raises, with figures, is kept, and uses up no step."""
    model = Scripted(["ok"], context_tokens=20)
    long = Prompt(messages=[Message(role="user", parts=(Text(text="word " * 100),))])
    with pytest.raises(ModelOverflowError) as caught:
        model.ask(long)
    assert (caught.value.limit, caught.value.requested) == (20, prompt_tokens(long))
    assert model.ask(HELLO).text == "ok"
    assert model.prompts == [long, HELLO]


def test_a_delay_is_cut_short() -> None:
    """Waiting between pieces ends with the deadline and with a cancellation."""
    slow = ScriptedReply(text="a b c", delay=30.0, repeat=True)
    with pytest.raises(ModelTimeoutError):
        Scripted([slow]).ask(HELLO, timeout=0.05)
    cancel = Event()
    cancel.set()
    with pytest.raises(ModelCancelledError):
        Scripted([slow]).ask(HELLO, cancel=cancel)
    with pytest.raises(ModelTimeoutError):
        Scripted([Hang()]).ask(HELLO, timeout=0.01)
    assert Scripted([ScriptedReply(text="a b", delay=0.001)]).ask(HELLO).text == "a b"


SCRIPT = """
# a comment, and a blank line

{"text": "Hello!"}
{"pieces": ["Hel", "lo"], "thinking": "hm", "signature": "s", "usage": {"input": 5, "output": 2}, "delay": 0}
{"calls": [{"name": "ls", "arguments": {"deep": [1, {"a": null}]}}, {"name": "x", "arguments": "{", "id": "i"}]}
{"text": "and", "stop": "length"}
{"error": "overflow"}
{"error": "busy", "message": "come back", "retry_after": 2.5}
{"error": "timeout"}
{"error": "refused"}
{"hang": true}
{"text": "for ever", "repeat": true}
"""


def test_a_script_is_read_from_a_file(tmp_path: Path) -> None:
    """A file holds a step on each line: words, pieces, thoughts, calls, errors, silence, repetition."""
    path = tmp_path / "script.jsonl"
    path.write_text(SCRIPT, "utf-8")
    model = Scripted.from_file(path)
    assert model.name == f"scripted:{path}"
    assert model.ask(HELLO).text == "Hello!"
    said = model.ask(HELLO)
    assert (said.text, said.usage) == ("Hello", Usage(input=5, output=2))
    assert said.message.parts[0] == Thinking(text="hm", signature="s")
    called = model.ask(HELLO)
    assert [(call.id, call.arguments) for call in called.message.calls] == [
        ("call_6_1", {"deep": [1, {"a": None}]}),
        ("i", "{"),
    ]
    assert called.stop == "tools"
    assert model.ask(HELLO).stop == "length"
    with pytest.raises(ModelOverflowError, match="the script says overflow"):
        model.ask(HELLO)
    with pytest.raises(ModelBusyError, match="come back") as busy:
        model.ask(HELLO)
    assert busy.value.retry_after == 2.5
    with pytest.raises(ModelTimeoutError):
        model.ask(HELLO)
    with pytest.raises(ModelRefusedError):
        model.ask(HELLO)
    with pytest.raises(ModelTimeoutError):
        model.ask(HELLO, timeout=0.01)
    assert [model.ask(HELLO).text for _ in range(2)] == ["for ever"] * 2


@pytest.mark.parametrize("line", ["no json", '{"texts": "hi"}', '{"error": "boom"}', '{"text": 1}', "[]"])
def test_a_bad_line_is_named(line: str, tmp_path: Path) -> None:
    """A line that is none of a script is an error with its number."""
    path = tmp_path / "script.jsonl"
    path.write_text(f'{{"text": "ok"}}\n{line}\n', "utf-8")
    with pytest.raises(InputError, match=r"script\.jsonl:2: not a line of a script"):
        Scripted.from_file(path)


def test_a_missing_script_is_named(tmp_path: Path) -> None:
    """A file that cannot be read is an error with its name."""
    with pytest.raises(InputError, match=r"none\.jsonl: the script cannot be read"):
        Scripted.from_file(tmp_path / "none.jsonl")


def test_the_echo_describes_what_it_would_have_sent() -> None:
    """It counts messages and tokens by role, names the tools, and quotes the last user message."""
    history = [
        Message(role="system", parts=(Text(text="You are an agent."),)),
        Message(role="user", parts=(Text(text="first"),)),
        Message(role="assistant", parts=(Text(text="reply"),)),
        Message(role="user", parts=(Text(text="the last words"),)),
    ]
    heard: list[str] = []
    model = Echo(context_tokens=1_000)
    reply = model.ask(Prompt(messages=history, tools=[LS]), on_text=heard.append)
    assert reply.text.splitlines()[0].startswith("I would have sent 4 messages, ")
    assert "of 1,000 tokens:" in reply.text
    assert "- user: 2 messages, " in reply.text
    assert "- system: 1 message, " in reply.text
    assert re.search(r"^- 1 tool, \d+ tokens: ls$", reply.text, re.MULTILINE)
    assert reply.text.endswith("The last user message: the last words")
    assert heard == [reply.text]
    assert (model.name, model.provider, model.context_tokens) == ("echo", "anthropic", 1_000)
    assert model.ask(Prompt(messages=[])).text.endswith("- no tools\nThe last user message: (none)")
