"""What happens when a request does not fit after all."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.engine import Engine
from holdfast.errors import ModelBusyError, ModelOverflowError
from holdfast.messages import Usage
from holdfast.models.base import Prompt, Tool
from holdfast.models.scripted import Answer, Said, Scripted
from holdfast.recovery import ModelRequest, complete_with_recovery
from holdfast.settings import Embedding, Settings
from holdfast.tokens import count_messages
from support.conversations import answer, call, reply, results, user
from support.conversations import tool_conversation as session

QUIET = Settings(embedding=Embedding(provider="none"))
TOOL = Tool(name="ls", description="Lists files.", parameters={"type": "object", "properties": {}})


def opened(path: Path) -> Engine:
    """An engine without a thread."""
    return Engine.open(path, settings=QUIET, background=False)


def test_what_fits_is_asked_once(tmp_path: Path) -> None:
    """The window that the model saw and its answer come back; its tools are counted."""
    model = Scripted(["Hello!"])
    with opened(tmp_path) as engine:
        found = complete_with_recovery(engine.session("s"), [user("Hi.")], ModelRequest(tools=[TOOL]), model=model)
    assert found.reply.text == "Hello!"
    assert (found.overflows, found.compactions) == (0, ())
    assert model.prompts[0].messages == found.window.messages
    assert found.window.report.total_tokens > found.window.tokens


def test_an_overflow_is_compacted_and_asked_again(tmp_path: Path) -> None:
    """The provider's limit is lower than ours: it is told, kept to, and the answer comes all the same."""
    model = Scripted(lambda _: "Fine.", context_tokens=24_000)
    with opened(tmp_path) as engine:
        flushed: list[int] = []
        asked = ModelRequest(limit=60_000, before_compact=lambda: flushed.append(1))
        found = complete_with_recovery(engine.session("s"), session(80), asked, model=model)
    assert found.overflows >= 1
    assert found.compactions
    assert len(flushed) == found.overflows
    assert count_messages(found.window.messages) <= 24_000


def test_a_provider_that_counts_more_than_we_do_gets_less(tmp_path: Path) -> None:
    """Where it says how many tokens it counted, the next window is smaller in that proportion."""

    def doubtful(prompt: Prompt) -> Answer:
        counted = 3 * count_messages(prompt.messages)
        if counted > 60_000:
            raise ModelOverflowError("too long", model="m", limit=60_000, requested=counted)
        return "Fine."

    with opened(tmp_path) as engine:
        found = complete_with_recovery(
            engine.session("s"), session(120), ModelRequest(limit=60_000), model=Scripted(doubtful)
        )
    assert found.overflows >= 1
    assert 3 * count_messages(found.window.messages) <= 60_000


@pytest.mark.parametrize(
    ("limit", "requested"),
    [
        (16, 9_000),  # no model has such a window
        (8_192, 99_999_999),  # not tokens, or nonsense
        (200_000, 100),  # would fit
        (None, 99_999_999),
        (1, None),
    ],
)
def test_numbers_that_do_not_fit_are_ignored(tmp_path: Path, limit: int | None, requested: int | None) -> None:
    """The window gets smaller as after an overflow without numbers, not so small that nothing fits."""
    sent: list[int] = []

    def first(prompt: Prompt) -> Answer:
        sent.append(count_messages(prompt.messages))
        if len(sent) == 1:
            raise ModelOverflowError("too long", model="m", limit=limit, requested=requested)
        return "Fine."

    with opened(tmp_path) as engine:
        asked = ModelRequest(limit=16_000, tools=[TOOL])
        found = complete_with_recovery(engine.session("s"), session(80), asked, model=Scripted(first))
    assert found.reply.text == "Fine."
    assert sent[0] / 4 < sent[1] < sent[0]


def test_a_provider_that_counts_the_reply_too_is_not_taken_for_one_that_miscounts(tmp_path: Path) -> None:
    """The longest reply may be a part of what the provider says was asked for: then the window need not shrink."""
    asked: list[int] = []

    def first(prompt: Prompt) -> Answer:
        asked.append(count_messages(prompt.messages))
        if len(asked) == 1:
            raise ModelOverflowError("too long", model="m", limit=60_000, requested=asked[0] + 4_096)
        return "Fine."

    with opened(tmp_path) as engine:
        found = complete_with_recovery(
            engine.session("s"), [*session(40), user("Go on.")], ModelRequest(limit=60_000), model=Scripted(first)
        )
    assert found.window.report.raw_max_tokens == 60_000


def test_one_giant_result_is_shortened_at_the_last(tmp_path: Path) -> None:
    """Where there is nothing to compact, the largest tool results shrink until it fits."""
    talk = [user("Read it."), reply("", call("c1")), results(answer("c1", "a line of the log\n" * 9_000))]
    model = Scripted(lambda _: "Read.", context_tokens=20_000)
    with opened(tmp_path) as engine:
        found = complete_with_recovery(engine.session("s"), talk, ModelRequest(limit=120_000), model=model)
    assert found.reply.text == "Read."
    assert found.compactions == ()


def test_it_gives_up_after_three_tries_and_says_what_helps(tmp_path: Path) -> None:
    """A provider that refuses everything is asked four times, not for ever."""

    def never(_: Prompt) -> Answer:
        raise ModelOverflowError("too long", model="m", status=400)

    model = Scripted(never)
    with opened(tmp_path) as engine, pytest.raises(ModelOverflowError, match="/new") as caught:
        complete_with_recovery(engine.session("s"), session(60), ModelRequest(limit=60_000), model=model)
    assert len(model.prompts) == 4
    assert caught.value.status == 400


def test_what_can_never_fit_is_an_overflow_before_it_is_sent(tmp_path: Path) -> None:
    """A question longer than the window is not sent at all."""
    model = Scripted(["never"])
    with opened(tmp_path) as engine, pytest.raises(ModelOverflowError):
        complete_with_recovery(engine.session("s"), [user("word " * 50_000)], ModelRequest(limit=8_000), model=model)
    assert model.prompts == []


def test_a_summary_that_is_too_large_for_a_smaller_window_is_compacted_again(tmp_path: Path) -> None:
    """No trimming may remove it: it was written for a model with more room."""
    decisions = "\n".join(f"- item {number} was decided on day {number}, and must be known" for number in range(700))
    model = Scripted(lambda prompt: "Fine." if "And now?" in prompt.messages[-1].text[:8] else f"## Goal\n{decisions}")
    talk = [message for turn in range(60) for message in (user(f"{turn}: " + "word " * 300), reply("Yes."))]
    talk.append(user("And now?"))
    with opened(tmp_path) as engine:
        engine.session("s").compact(talk, limit=60_000, model=model)
        found = complete_with_recovery(engine.session("s"), talk, ModelRequest(limit=4_000), model=model)
    assert found.reply.text == "Fine."
    assert len(found.compactions) == 1
    assert found.window.tokens < 4_000


def test_a_large_message_before_the_question_costs_no_compaction(tmp_path: Path) -> None:
    """It is not what is asked, so it is trimmed."""
    talk = [user("Here is a text."), reply("Yes?"), user("word " * 40_000), user("What was the first word?")]
    model = Scripted(["word"])
    with opened(tmp_path) as engine:
        found = complete_with_recovery(engine.session("s"), talk, ModelRequest(limit=16_000), model=model)
    assert found.reply.text == "word"
    assert found.compactions == ()
    assert found.window.tokens < 16_000


def test_a_request_that_was_cut_in_silence_is_an_overflow(tmp_path: Path) -> None:
    """A provider that took more than its window holds and said nothing has not read all of it."""
    cut = Said(text="Hm.", usage=Usage(input=999_999, output=1))
    model = Scripted([cut, "Fine."])
    with opened(tmp_path) as engine:
        found = complete_with_recovery(engine.session("s"), session(40), ModelRequest(limit=60_000), model=model)
    assert (found.reply.text, found.overflows) == ("Fine.", 1)


def test_other_trouble_is_not_ours(tmp_path: Path) -> None:
    """What is not an overflow is raised as it is, and nothing is compacted."""

    def busy(_: Prompt) -> Answer:
        raise ModelBusyError("busy", model="m")

    with opened(tmp_path) as engine:
        with pytest.raises(ModelBusyError):
            complete_with_recovery(engine.session("s"), session(40), ModelRequest(limit=60_000), model=Scripted(busy))
        assert all(item.kind != "summary" for item in engine.session("s").assemble(session(40), limit=60_000).items)
