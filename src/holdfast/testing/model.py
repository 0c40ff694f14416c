"""Checks that every model must pass. The docstring of each describes the requirement.

    check_model(open_my_model)

`open_my_model(steps)` is a context manager that opens a model whose provider answers with these steps (see
`holdfast.models.scripted`): text, a reply with calls and thinking, an error, or silence. To test a client of your own
provider, let a small local server give the answers, as the tests of this project do.
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
from holdfast.models.scripted import Answer, Hang, ScriptedReply
from holdfast.providers import FORMATS
from holdfast.testing import collect_checks, run_check

Opener: TypeAlias = Callable[[Sequence[Answer]], AbstractContextManager[Model]]
"""Opens a model whose provider answers with these steps."""
Check: TypeAlias = Callable[[Opener], None]
"""One requirement of a model; raises AssertionError if it is not met."""

_PATIENCE: Final = 60.0
"""How many seconds a check waits for a call that should return at once."""
_SOON: Final = 1.0
"""The timeout of a request that gets no answer. It is long enough to reach the provider on a busy machine."""
_LS: Final = Tool(
    name="ls",
    description="List a folder.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


def _make_prompt(text: str = "hello", *, tools: Sequence[Tool] = ()) -> Prompt:
    return Prompt(messages=[Message(role="user", parts=(Text(text=text),))], tools=tools)


def _ask_after_silence(model: Model) -> Reply:
    """Ask after a request timed out; if that one never reached the provider, this one gets no answer instead: retry."""
    try:
        return model.ask(_make_prompt(), timeout=_PATIENCE, cancel=Event())
    except ModelTimeoutError:
        return model.ask(_make_prompt(), timeout=_PATIENCE, cancel=Event())


def _expect_error(kind: type[ModelError], ask: Callable[[], Reply]) -> ModelError:
    """Return the error that a request raises."""
    try:
        reply = ask()
    except kind as error:
        return error
    except ModelError as error:
        raise AssertionError(f"expected {kind.__name__}, got {type(error).__name__}: {error}") from error
    raise AssertionError(f"expected {kind.__name__}, got a reply: {reply.text[:100]!r}")


def model_describes_itself(open_model: Opener) -> None:
    """A model has a name, a known provider format, and a context window."""
    with open_model([]) as model:
        assert model.name, "the model has no name"
        assert model.provider in FORMATS, f"{model.provider!r} is not one of {', '.join(FORMATS)}"
        assert model.context_tokens > 0, "the context window is empty"


def text_is_returned_and_streamed(open_model: Opener) -> None:
    """A reply is an assistant message with the text of the provider; `on_text` gets the same text as it arrives."""
    words = "Sure: 改用蓝色, naïve café 🦀.\n\n  - and a list"
    with open_model([ScriptedReply(text=words)]) as model:
        received: list[str] = []
        reply = model.ask(_make_prompt(), on_text=received.append)
        assert reply.message.role == "assistant", "the role is not assistant"
        assert reply.text == words, f"{reply.text!r} is not the text of the provider"
        assert "".join(received) == words, "on_text got another text"
        assert reply.stop == "end", f"the stop reason is {reply.stop!r}"


def tool_calls_are_returned_in_order(open_model: Opener) -> None:
    """Parallel tool calls are returned in order, each with its id, its name and its arguments as an object."""
    calls = (
        ToolCall(id="c1", name="ls", arguments={"path": "src", "deep": {"list": [1, 2.5, None, True, "ü"]}}),
        ToolCall(id="c2", name="ls", arguments={"path": "tests"}),
        ToolCall(id="c3", name="ls", arguments={}),
    )
    with open_model([ScriptedReply(text="I look.", calls=calls)]) as model:
        reply = model.ask(_make_prompt(tools=[_LS]))
        assert reply.message.calls == calls, f"{reply.message.calls} are other calls"
        assert reply.text == "I look.", "the text before the calls is lost"
        assert reply.stop == "tools", f"the stop reason is {reply.stop!r}"


def invalid_arguments_are_kept_as_text(open_model: Opener) -> None:
    """Arguments that are not a JSON object are kept as text, and can be sent back."""
    call = ToolCall(id="c1", name="ls", arguments='{"path": "sr')
    with open_model([ScriptedReply(calls=(call,)), "I see."]) as model:
        reply = model.ask(_make_prompt(tools=[_LS]))
        assert [made.arguments for made in reply.message.calls] == ['{"path": "sr'], "the arguments were changed"
        result = ToolResult(call_id="c1", content=(Text(text="no such thing"),), is_error=True)
        history = [*_make_prompt().messages, reply.message, Message(role="tool", parts=(result,))]
        assert model.ask(Prompt(messages=history, tools=[_LS])).text == "I see."


def thinking_is_separate_from_text(open_model: Opener) -> None:
    """Thinking is a separate part before the text; `on_text` does not get it."""
    with open_model([ScriptedReply(text="Four.", thinking="Two and two.")]) as model:
        received: list[str] = []
        reply = model.ask(_make_prompt(), on_text=received.append)
        thoughts = [part.text for part in reply.message.parts if isinstance(part, Thinking)]
        assert thoughts == ["Two and two."], f"{thoughts} is not the thinking of the provider"
        assert isinstance(reply.message.parts[0], Thinking), "thinking is not the first part"
        assert ("".join(received), reply.text) == ("Four.", "Four."), "thinking is in the text"


def usage_is_reported(open_model: Opener) -> None:
    """The reply and its message have the usage that the provider reports, with cached tokens counted separately."""
    usage = Usage(input=100, output=20, cache_read=50)
    with open_model([ScriptedReply(text="ok", usage=usage)]) as model:
        reply = model.ask(_make_prompt())
        assert reply.usage == usage, f"{reply.usage} is not the reported usage"
        assert reply.message.usage == usage, "the message has no usage"


def stop_reason_is_reported(open_model: Opener) -> None:
    """A reply that reached the output limit has the stop reason `length`; a refused one has `refusal`."""
    with open_model(
        [ScriptedReply(text="and then", stop="length"), ScriptedReply(text="No.", stop="refusal")]
    ) as model:
        assert model.ask(_make_prompt()).stop == "length"
        assert model.ask(_make_prompt()).stop == "refusal"


def full_conversation_is_accepted(open_model: Opener) -> None:
    """System prompts, images, thinking, calls, results and lone surrogates can be sent, and a reply sent back."""
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


def overflow_raises_its_own_error(open_model: Opener) -> None:
    """A request that is too long raises ModelOverflowError, with the figures if the provider reports them."""
    with open_model([ModelOverflowError("too long", requested=9_000, limit=8_192)]) as model:
        error = _expect_error(ModelOverflowError, lambda: model.ask(_make_prompt()))
        assert isinstance(error, ModelOverflowError)
        assert (error.requested, error.limit) in {(9_000, 8_192), (None, None)}, "the figures are wrong"


def busy_and_refused_raise_their_own_errors(open_model: Opener) -> None:
    """A busy provider raises ModelBusyError with the time to wait; a refusal raises ModelRefusedError."""
    steps: list[Answer] = [ModelBusyError("busy", status=429, retry_after=7.0), ModelRefusedError("no"), "yes"]
    with open_model(steps) as model:
        busy = _expect_error(ModelBusyError, lambda: model.ask(_make_prompt()))
        assert isinstance(busy, ModelBusyError)
        assert busy.retry_after == 7.0, "retry_after is lost"  # noqa: PLR2004 - as above
        _expect_error(ModelRefusedError, lambda: model.ask(_make_prompt()))
        assert model.ask(_make_prompt()).text == "yes"


def timeout_is_enforced(open_model: Opener) -> None:
    """A request that gets no answer raises ModelTimeoutError after its timeout. The next request works."""
    with open_model(["ready", Hang(), "awake"]) as model:
        model.ask(_make_prompt())  # the first request may have to load something, which is not part of the timeout
        _expect_error(ModelTimeoutError, lambda: model.ask(_make_prompt(), timeout=_SOON))
        assert _ask_after_silence(model).text == "awake"


def cancel_stops_a_request(open_model: Opener) -> None:
    """Another thread can cancel a request, even one that gets no answer. A request that is already cancelled fails."""
    with open_model(["ready", Hang(), "awake"]) as model:
        model.ask(_make_prompt())
        cancel = Event()
        timer = Timer(_SOON, cancel.set)
        timer.start()
        _expect_error(ModelCancelledError, lambda: model.ask(_make_prompt(), timeout=_PATIENCE, cancel=cancel))
        timer.join()
        _expect_error(ModelCancelledError, lambda: model.ask(_make_prompt(), cancel=cancel))
        assert _ask_after_silence(model).text == "awake"


def listener_errors_are_raised(open_model: Opener) -> None:
    """An error that `on_text` raises reaches the caller. The next request works."""

    def refuse(_: str) -> None:
        raise LookupError("the screen is gone")

    with open_model(["one two three", "again"]) as model:
        try:
            model.ask(_make_prompt(), on_text=refuse)
        except LookupError:
            assert model.ask(_make_prompt()).text == "again"
        else:
            raise AssertionError("the error of on_text is lost")


def threads_can_share_a_model(open_model: Opener) -> None:
    """Threads can use one model at the same time; each gets its own reply."""
    texts = [f"reply {number}" for number in range(4)]
    with open_model(texts) as model, ThreadPoolExecutor(max_workers=len(texts)) as pool:
        replies = list(pool.map(lambda text: model.ask(_make_prompt(text), timeout=_PATIENCE).text, texts))
        assert sorted(replies) == texts, "a reply is missing or was returned twice"


CHECKS: Final[tuple[Check, ...]] = collect_checks(globals())
"""Every check of a model."""


def check_model(open_model: Opener) -> None:
    """Run every check on a model; the first that fails raises AssertionError."""
    for check in CHECKS:
        run_check(check, open_model)
