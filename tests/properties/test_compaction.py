"""I4: a compaction ends in bounded calls with fewer tokens, or in a typed error, whatever the model does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.compaction.plan import CompactionPlan, plan_compaction
from holdfast.compaction.summarise import MAX_CALLS
from holdfast.context.edits import Block, Edit, Item, apply, in_force, tokens
from holdfast.errors import (
    CompactionError,
    ModelBusyError,
    ModelError,
    ModelOverflowError,
    ModelRefusedError,
    ModelTimeoutError,
)
from holdfast.messages import Message, units
from holdfast.settings import Compaction
from holdfast.tokens import count_message
from support.compaction import Answer, Summariser, compaction, good, limits, summed_up
from support.conversations import answer, call, items, reply, results, user
from support.strategies import conversations, examples, texts

slow = settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
WORDS = ("word ", "签名验证 ", "署名を検証 ", "서명 ", "src/a.py:12 ", "</summary> ", "🦆", "\ud83d ")
ERRORS = (ModelError, ModelBusyError, ModelTimeoutError, ModelOverflowError, ModelRefusedError)


@st.composite
def talks(draw: st.DrawFn) -> list[Message]:
    """Draw a conversation of some length, with tools, failures, thoughts and pasted text."""
    conversation: list[Message] = []
    for number in range(draw(st.integers(1, 12))):
        said = draw(st.sampled_from(WORDS)) * draw(st.integers(1, 300))
        match draw(st.integers(0, 2)):
            case 0:
                conversation += [user(f"{number} {said}"), reply(said, thought=draw(st.sampled_from([None, "hm"])))]
            case 1:
                conversation.append(user(said))
            case _:
                names = [f"c{number}.{index}" for index in range(draw(st.integers(1, 3)))]
                conversation.append(reply("", *(call(name, "edit", path=f"{name}.py") for name in names)))
                failed = draw(st.booleans())
                conversation += [
                    results(answer(name, said, is_error=failed)) for name in names if draw(st.integers(0, 9))
                ]
    return conversation


ANY_TALK = talks() | conversations()


@st.composite
def windows(draw: st.DrawFn) -> list[Item]:
    """Draw a window: some items are pinned, some have a recalled block or no number, some are sent twice."""
    window = items(draw(ANY_TALK), pinned=draw(st.lists(st.integers(1, 30), max_size=2)))
    for index in draw(st.lists(st.integers(0, max(0, len(window) - 1)), max_size=3)) if window else ():
        nameless = replace(window[index], id=0)
        recalled = replace(window[index], block=Block("recalled", 40))
        window[index] = draw(st.sampled_from([nameless, recalled, window[0]]))
    return window


def answers() -> st.SearchStrategy[Answer]:
    """Draw anything that a model may do."""
    errors = st.sampled_from(ERRORS).map(lambda kind: kind("it went wrong"))
    wrong = st.sampled_from(["", "{", "Error: 500", "I'm sorry, I can't.", "## Goal", "</summary>" * 500, "x" * 60_000])
    return st.one_of(st.none(), errors, wrong, texts(), st.just(good()))


some_settings: st.SearchStrategy[Compaction] = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["default", "safeguard"]),
        "keep_recent_tokens": st.sampled_from([1, 100, 1_000, 20_000]),
        "recent_turns_preserve": st.integers(0, 3),
        "timeout_seconds": st.sampled_from([1, 180]),
    }
).map(lambda chosen: compaction(**chosen))
some_window = st.sampled_from([300, 1_000, 4_000, 32_000])


def planned_as(window: list[Item], settings_: Compaction, size: int, **more: Any) -> CompactionPlan:
    """Return the plan for a window."""
    return plan_compaction(window, settings=settings_, budget=limits(size), **more)


@slow
@given(
    window=windows(), settings_=some_settings, size=some_window, script=st.lists(answers(), max_size=6), last=answers()
)
def test_progress_or_an_error(
    window: list[Item], settings_: Compaction, size: int, script: list[Answer], last: Answer
) -> None:
    """There are fewer tokens after a bounded number of calls and seconds, or a typed error."""
    made = planned_as(window, settings_, size, force=True, previous_summary="## Goal\nIt was about ducks.")
    model = Summariser(
        lambda number, _prompt: script[number - 1] if number <= len(script) else last, context_tokens=size
    )
    try:
        summary = summed_up(made, model, settings=settings_)
    except CompactionError:
        assert made.outcome != "ready" or made.summary_tokens < 120
        return
    finally:
        assert len(model.prompts) <= MAX_CALLS
        assert model.clock.now <= settings_.timeout_seconds
    after = apply(window, [made.edit(summary.framed, cost=summary.tokens)])
    assert summary.tokens == count_message(user(summary.framed)) <= made.summary_tokens
    assert tokens(after) == made.tokens_kept + summary.tokens < made.tokens_before
    assert summary.framed.count("</summary>") == 1


@slow
@given(window=windows(), settings_=some_settings, size=some_window, force=st.booleans())
def test_a_plan_takes_whole_units_and_loses_nothing(
    window: list[Item], settings_: Compaction, size: int, *, force: bool
) -> None:
    """Everything is summarised or kept, in order; no unit is split, and nothing pinned or unnumbered is removed."""
    made = planned_as(window, settings_, size, force=force)
    gone = set(made.ids)
    assert [item for item in window if item.kind == "system" or item.id not in gone] == list(made.kept)
    assert [item for item in window if item.kind == "message" and item.id in gone] == list(made.summarised)
    assert not any(item.pinned or not item.id for item in made.summarised)
    region = [item for item in window if item.kind == "message"]
    for unit in units([item.message for item in region]):
        ids = {item.id in gone for item in region[unit.start : unit.stop]}
        assert len(ids) == 1
    assert made.tokens_before == tokens(window)
    assert (made.outcome == "ready") == bool(made.summarised)


@slow
@given(rounds=st.lists(talks(), min_size=2, max_size=5), size=st.sampled_from([2_000, 8_000]))
def test_compacting_again_and_again_keeps_making_progress(rounds: list[list[Message]], size: int) -> None:
    """Each summary of a summary makes the window smaller, and every message is in the window or summarised."""
    history: list[Message] = []
    edits: list[Edit] = []
    previous: str | None = None
    summarised: set[int] = set()
    for conversation in rounds:
        history += conversation
        window = apply(items(history), in_force(edits, limit=size))
        made = planned_as(list(window), Compaction(keep_recent_tokens=200), size, force=True, previous_summary=previous)
        if made.outcome != "ready":
            continue
        summary = summed_up(made, None)
        edits.append(made.edit(summary.framed, cost=summary.tokens))
        previous = summary.text
        after = apply(items(history), in_force(edits, limit=size))
        assert tokens(after) < tokens(window)
        summarised |= set(made.ids)
        assert {item.id for item in after if item.id} == {item.id for item in items(history)} - summarised
