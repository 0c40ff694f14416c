"""What any model must do. Each check is a contract: its docstring says what is promised.

    check_model(open_my_model)

`open_my_model(steps)` opens, as a context manager, a model that will be answered as the steps say (see
`holdfast.models.scripted`): text, a reply with calls and thinking, an error, silence. Behind a model of your own stands
a provider of your own: let a small server on this machine give the answers, as the project's own tests do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from threading import Event, Timer
from typing import Final, TypeAlias

from holdfast.errors import (
    ModelBusyError,
    ModelCancelledError,
    ModelError,
    ModelOverflowError,
    ModelRefusedError,
    ModelTimeoutError,
)
from holdfast.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, Usage
from holdfast.models.base import Model, Prompt, Reply, Tool
from holdfast.models.scripted import Answer, Hang, Said
from holdfast.providers import FORMATS
from holdfast.testing import collect_checks, run_check

Opener: TypeAlias = Callable[[Sequence[Answer]], AbstractContextManager[Model]]
"""Opens a model that will be answered in these steps."""
Check: TypeAlias = Callable[[Opener], None]
"""One contract of a model; AssertionError where it is broken."""

_PATIENCE: Final = 60.0
"""Seconds after which a check that should end at once is given up."""
_SOON: Final = 1.0
"""Seconds that a request has to reach whoever answers, before it is given up: on a busy machine that takes a while."""
_LS: Final = Tool(
    name="ls",
    description="List a folder.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


def _asks(text: str = "hello", *, tools: Sequence[Tool] = ()) -> Prompt:
    return Prompt(messages=[Message(role="user", parts=(Text(text=text),))], tools=tools)


def _ask_after_silence(model: Model) -> Reply:
    """Ask after a request that was given up. If it had not reached the provider yet, the silence is for this one."""
    try:
        return model.ask(_asks(), timeout=_PATIENCE, cancel=Event())
    except ModelTimeoutError:
        return model.ask(_asks(), timeout=_PATIENCE, cancel=Event())


def _fails(kind: type[ModelError], ask: Callable[[], Reply]) -> ModelError:
    """The error that asking ends in."""
    try:
        reply = ask()
    except kind as error:
        return error
    except ModelError as error:
        raise AssertionError(f"expected {kind.__name__}, got {type(error).__name__}: {error}") from error
    raise AssertionError(f"expected {kind.__name__}, got a reply: {reply.text[:100]!r}")


def it_says_what_it_is(open_model: Opener) -> None:
    """A model has a name, keeps the rules of a provider that we know, and has a window."""
    with open_model([]) as model:
        assert model.name, "it has no name"
        assert model.provider in FORMATS, f"{model.provider!r} is none of {', '.join(FORMATS)}"
        assert model.context_tokens > 0, "its window is empty"


def words_arrive(open_model: Opener) -> None:
    """A reply is an assistant's message with the words that were said; `on_text` gets the same words as they come."""
    words = "Sure: 改用蓝色, naïve café 🦀.\n\n  - and a list"
    with open_model([Said(text=words)]) as model:
        heard: list[str] = []
        reply = model.ask(_asks(), on_text=heard.append)
        assert reply.message.role == "assistant", "not the assistant speaks"
        assert reply.text == words, f"{reply.text!r} was not said"
        assert "".join(heard) == words, "what was heard is not what was said"
        assert reply.stop == "end", f"it ended for {reply.stop!r}"


def calls_arrive(open_model: Opener) -> None:
    """Calls that are made at once come in order, each with its id, its name and its arguments as an object."""
    calls = (
        ToolCall(id="c1", name="ls", arguments={"path": "src", "deep": {"list": [1, 2.5, None, True, "ü"]}}),
        ToolCall(id="c2", name="ls", arguments={"path": "tests"}),
        ToolCall(id="c3", name="ls", arguments={}),
    )
    with open_model([Said(text="I look.", calls=calls)]) as model:
        reply = model.ask(_asks(tools=[_LS]))
        assert reply.message.calls == calls, f"{reply.message.calls} are not the calls"
        assert reply.text == "I look.", "the words beside the calls are lost"
        assert reply.stop == "tools", f"it ended for {reply.stop!r}"


def broken_arguments_are_kept(open_model: Opener) -> None:
    """Arguments that are no JSON object come as the text that they are, and can be sent back."""
    call = ToolCall(id="c1", name="ls", arguments='{"path": "sr')
    with open_model([Said(calls=(call,)), "I see."]) as model:
        reply = model.ask(_asks(tools=[_LS]))
        assert [made.arguments for made in reply.message.calls] == ['{"path": "sr'], "the arguments are changed"
        result = ToolResult(call_id="c1", content=(Text(text="no such thing"),), is_error=True)
        history = [*_asks().messages, reply.message, Message(role="tool", parts=(result,))]
        assert model.ask(Prompt(messages=history, tools=[_LS])).text == "I see."


def thoughts_arrive(open_model: Opener) -> None:
    """Thinking comes apart from the words, and before them; it is not read out to `on_text`."""
    with open_model([Said(text="Four.", thinking="Two and two.")]) as model:
        heard: list[str] = []
        reply = model.ask(_asks(), on_text=heard.append)
        thoughts = [part.text for part in reply.message.parts if isinstance(part, Thinking)]
        assert thoughts == ["Two and two."], f"{thoughts} was not thought"
        assert isinstance(reply.message.parts[0], Thinking), "thinking comes first"
        assert ("".join(heard), reply.text) == ("Four.", "Four."), "a thought was spoken"


def usage_is_reported(open_model: Opener) -> None:
    """What the provider counted is in the reply and in its message, cached tokens apart from the others."""
    usage = Usage(input=100, output=20, cache_read=50)
    with open_model([Said(text="ok", usage=usage)]) as model:
        reply = model.ask(_asks())
        assert reply.usage == usage, f"{reply.usage} was not counted"
        assert reply.message.usage == usage, "the message does not know it"


def a_cut_reply_says_so(open_model: Opener) -> None:
    """A reply that reached the longest answer ends for `length`, one that is declined for `refusal`."""
    with open_model([Said(text="and then", stop="length"), Said(text="No.", stop="refusal")]) as model:
        assert model.ask(_asks()).stop == "length"
        assert model.ask(_asks()).stop == "refusal"


def a_whole_conversation_is_taken(open_model: Opener) -> None:
    """System prompts, images, thinking, calls, results and halves of characters can be sent, and a reply sent back."""
    call = ToolCall(id="c1", name="ls", arguments={"path": "src"})
    history = [
        Message(role="system", parts=(Text(text="You are an agent."),)),
        Message(role="user", parts=(Text(text="look \ud83d at this"), Image(data="aGk=", media_type="image/png"))),
        Message(role="assistant", parts=(Thinking(text="hm", signature="seal"), Text(text="I look."), call)),
        Message(role="tool", parts=(ToolResult(call_id="c1", content=(Text(text="a.py\nb.py"),)),)),
    ]
    with open_model(["Two files.", "Bye."]) as model:
        reply = model.ask(Prompt(messages=history, tools=[_LS], schema={"type": "object"}))
        assert reply.text == "Two files."
        thanks = Message(role="user", parts=(Text(text="thanks"),))
        assert model.ask(Prompt(messages=[*history, reply.message, thanks])).text == "Bye."


def overflow_is_told_apart(open_model: Opener) -> None:
    """A request that does not fit raises ModelOverflowError, with the figures where the provider tells them."""
    with open_model([ModelOverflowError("too long", requested=9_000, limit=8_192)]) as model:
        error = _fails(ModelOverflowError, lambda: model.ask(_asks()))
        assert isinstance(error, ModelOverflowError)
        assert (error.requested, error.limit) in {(9_000, 8_192), (None, None)}, "the figures are wrong"


def trouble_is_told_apart(open_model: Opener) -> None:
    """A busy provider raises ModelBusyError with the time to wait, a refusal ModelRefusedError; one may ask again."""
    steps: list[Answer] = [ModelBusyError("busy", status=429, retry_after=7.0), ModelRefusedError("no"), "yes"]
    with open_model(steps) as model:
        busy = _fails(ModelBusyError, lambda: model.ask(_asks()))
        assert isinstance(busy, ModelBusyError)
        assert busy.retry_after == 7.0, "when to come back is lost"  # noqa: PLR2004 - as above
        _fails(ModelRefusedError, lambda: model.ask(_asks()))
        assert model.ask(_asks()).text == "yes"


def silence_ends_in_time(open_model: Opener) -> None:
    """A provider that says nothing is given up when the time is over, and the model can be asked again."""
    with open_model(["ready", Hang(), "awake"]) as model:
        model.ask(_asks())  # what the first request has to load is not on its time
        _fails(ModelTimeoutError, lambda: model.ask(_asks(), timeout=_SOON))
        assert _ask_after_silence(model).text == "awake"


def it_can_be_called_off(open_model: Opener) -> None:
    """Another thread can cancel a request, also while the provider is silent; one that was cancelled before ends."""
    with open_model(["ready", Hang(), "awake"]) as model:
        model.ask(_asks())
        cancel = Event()
        timer = Timer(_SOON, cancel.set)
        timer.start()
        _fails(ModelCancelledError, lambda: model.ask(_asks(), timeout=_PATIENCE, cancel=cancel))
        timer.join()
        _fails(ModelCancelledError, lambda: model.ask(_asks(), cancel=cancel))
        assert _ask_after_silence(model).text == "awake"


def a_listener_may_fail(open_model: Opener) -> None:
    """An error of the listener reaches whoever asked, and the model can be asked again."""

    def refuse(_: str) -> None:
        raise LookupError("the screen is gone")

    with open_model(["one two three", "again"]) as model:
        try:
            model.ask(_asks(), on_text=refuse)
        except LookupError:
            assert model.ask(_asks()).text == "again"
        else:
            raise AssertionError("the listener's error is lost")


def threads_may_ask_at_once(open_model: Opener) -> None:
    """Several threads may ask one model at once; each gets a reply of its own."""
    texts = [f"reply {number}" for number in range(4)]
    with open_model(texts) as model, ThreadPoolExecutor(max_workers=len(texts)) as pool:
        replies = list(pool.map(lambda text: model.ask(_asks(text), timeout=_PATIENCE).text, texts))
        assert sorted(replies) == texts, "a reply is lost or was given twice"


CHECKS: Final[tuple[Check, ...]] = collect_checks(globals())
"""Every contract of a model."""


def check_model(open_model: Opener) -> None:
    """Hold a model to every contract; the first that is broken raises AssertionError."""
    for check in CHECKS:
        run_check(check, open_model)
