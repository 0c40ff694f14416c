"""What becomes a summary and what stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.compaction import sections
from holdfast.compaction.plan import CompactionPlan, plan_compaction, spans
from holdfast.context.edits import Block, Item, Summarised, apply, tokens
from holdfast.messages import Message
from holdfast.tokens import count_message
from support.compaction import REQUEST, compaction, conversation, limits, planned, work
from support.conversations import answer, call, items, reply, results, system, user


def long(text: str = "word ", size: int = 400) -> str:
    """A text of some length."""
    return text * size


def summary_item(text: str, cost: int = 500) -> Item:
    """The summary of an earlier compaction."""
    return Item(message=user(text), id=0, tokens=cost, kind="summary")


def numbers(found: tuple[Item, ...]) -> list[int]:
    """The numbers of items."""
    return [item.id for item in found]


def test_the_newest_units_that_fit_are_kept() -> None:
    """What is kept takes no more than keep_recent_tokens, and the next unit would have been too much."""
    made = planned(conversation(), keep=2_000)
    kept = [item for item in made.kept if item.kind == "message"]
    assert made.outcome == "ready"
    assert sum(item.tokens for item in kept) <= 2_000
    last = spans(made.summarised)[-1]
    assert sum(item.tokens for item in kept) + last.tokens > 2_000


def test_everything_is_summarised_or_kept_once_and_in_order() -> None:
    """Summarised and kept together are the window, nothing twice."""
    messages = conversation()
    made = planned(messages)
    assert [item.message for item in (*made.kept[:1], *made.summarised, *made.kept[1:])] == messages


def test_a_call_is_never_parted_from_its_result() -> None:
    """However little is kept, no call and result stand on two sides of the cut."""
    messages = conversation(6)
    for keep in range(1, 4_000, 97):
        made = planned(messages, keep=keep)
        calls = {part.id for item in made.kept for part in item.message.calls}
        assert {part.call_id for item in made.kept for part in item.message.results} == calls


def test_a_cut_turn_has_its_beginning_set_apart() -> None:
    """Where the cut goes through a turn that still runs, its request stays and what came of it is the prefix."""
    messages = [user("old"), reply(long()), user(REQUEST), *work(), reply(long()), *work()[:2]]
    made = planned(messages, keep=300)
    assert made.splits_turn
    assert made.prefix[0].message == messages[3]
    assert numbers(made.history) == [1, 2]
    assert made.first_kept is not None
    assert made.first_kept.message.text == REQUEST


def test_a_turn_without_history_before_it_is_history_itself() -> None:
    """The beginning of the only turn is not set apart from nothing; with a summary before it, it is."""
    messages = [user(REQUEST), reply(long()), *work(), reply("so far")]
    assert not planned(messages, keep=60).splits_turn
    assert planned(messages, keep=60, previous="what was before").splits_turn


def test_a_cut_between_turns_sets_nothing_apart() -> None:
    """Where the kept tail begins with the user there is no prefix."""
    messages = [user("old"), reply(long()), user("new"), reply("done")]
    made = planned(messages, keep=60)
    assert not made.splits_turn
    assert made.first_kept is not None
    assert made.first_kept.message.text == "new"


def test_the_region_holds_what_the_last_compaction_kept() -> None:
    """What an earlier compaction kept is summarised by the next one, and its summary is taken over."""
    made = planned(
        [*items([system()]), summary_item("told before"), *items(conversation())[1:]], previous="told before"
    )
    assert numbers(made.summarised)[0] == 2
    assert made.previous == "told before"
    assert made.replaced == 500 + sum(item.tokens for item in made.summarised)


def test_the_frame_of_the_previous_summary_is_taken_off() -> None:
    """A summary handed back as the window said it is the summary itself."""
    assert planned(conversation(), previous=sections.wrap_summary("what was before")).previous == "what was before"


def test_file_lists_of_the_previous_summary_are_kept() -> None:
    """Files that an earlier summary names are still named, a file once read and then changed as changed."""
    before = "<read-files>\na.py\nsrc/hooks/verify.py\n</read-files>\n\n<modified-files>\nb.py\n</modified-files>"
    made = planned(conversation(), previous=before, keep=60)
    assert "a.py" in made.activity.read
    assert "src/hooks/verify.py" not in made.activity.read
    assert {"b.py", "src/hooks/verify.py"} <= set(made.activity.modified)


def test_one_giant_result_at_the_end_is_kept_and_reported() -> None:
    """The newest unit stays however large it is, with the request that it works on; everything else can go."""
    giant = [reply("", call("g", "bash", command="cat log")), results(answer("g", long(size=9_000)))]
    made = planned([*conversation(5), *giant])
    assert made.outcome == "ready"
    assert [item.message for item in made.kept][-2:] == giant
    assert [item.message.role for item in made.kept] == ["system", "user", "assistant", "tool"]
    assert made.oversized == (made.kept[-1].id,)


def test_a_giant_unit_further_up_goes() -> None:
    """A unit that does not fit next to newer ones is summarised, and told to be oversized."""
    giant = [reply("", call("g", "bash", command="cat log")), results(answer("g", long(size=16_000)))]
    made = planned([*conversation(2), *giant, user("and now?")])
    assert made.summarised[-1].message == giant[-1]
    assert made.oversized == (made.summarised[-1].id,)


def test_pinned_and_nameless_messages_stay() -> None:
    """What is pinned stays with its unit, and so does what no edit could name."""
    messages = items(conversation(4), pinned=[3])
    messages[5] = replace(messages[5], id=0)
    made = planned(messages)
    kept = [item.message for item in made.kept]
    assert all(message in kept for message in [messages[2].message, messages[3].message, messages[5].message])
    assert 0 not in numbers(made.summarised)


def test_a_message_that_is_sent_twice_is_removed_only_if_both_can_be() -> None:
    """An edit names messages by number: one whose number is also kept stays, with all that shares its numbers."""
    messages = items(conversation(4))
    again = [replace(messages[-1], id=messages[1].id), replace(messages[1], id=messages[5].id)]
    made = planned([*messages[:2], *again[1:], *messages[2:], again[0]])
    assert not set(numbers(made.summarised)) & set(numbers(made.kept))


def test_nothing_to_do_is_distinguished_from_impossible() -> None:
    """A short session has nothing to compact; one that is too large and cannot be cut says what would help."""
    short = planned([system(), user("hi"), reply("hello")])
    assert short.outcome == "nothing"
    stuck = planned([system(long(size=30_000)), user("hi"), reply("hello")])
    assert stuck.outcome == "impossible"
    assert "larger window" in stuck.reason
    assert stuck.tokens_before == stuck.tokens_kept == tokens(stuck.kept)


def test_too_little_to_gain_is_nothing() -> None:
    """A few tokens are not worth a summary, even where the user asks for it."""
    made = planned([system(), user("hi"), reply("hello"), user("so"), reply("yes")], force=True)
    assert made.outcome == "nothing"
    assert "tokens could be summarised" in made.reason


def test_force_cuts_what_is_recent() -> None:
    """Where everything is recent, a forced compaction keeps the newer half."""
    messages = conversation(3)
    assert planned(messages, keep=20_000).outcome == "nothing"
    made = planned(messages, keep=20_000, force=True)
    assert made.outcome == "ready"
    assert made.tokens_kept <= made.tokens_before // 2 + 100


@pytest.mark.parametrize("window", [4_000, 8_000, 16_000, 32_000])
def test_a_small_window_keeps_what_it_has_room_for(window: int) -> None:
    """Whatever keep_recent_tokens says, what is kept fits the window with the summary."""
    made = planned(conversation(60, size=300), window=window, keep=200_000)
    assert made.tokens_kept + made.summary_tokens <= limits(window).prompt
    assert made.tokens_kept <= limits(window).history + 10


def test_kept_messages_lose_thinking_that_was_sealed() -> None:
    """Signed thoughts are bound to a history that is gone: they go, and the plan counts it."""
    messages = [*conversation(5), user("go on"), reply("done", thought="a long thought " * 20)]
    made = planned(messages)
    last = made.kept[-1]
    assert made.thinking_removed == ((last.id, count_message(Message(role="assistant", parts=last.message.parts[1:]))),)
    assert made.tokens_kept < sum(item.tokens for item in made.kept)


def test_the_edit_of_a_plan_makes_the_window_of_the_plan() -> None:
    """Applying the edit leaves the summary and what is kept, and what was recalled before is gone."""
    messages = [*conversation(5), user("go on"), reply("done", thought="hm")]
    window = items(messages)
    window[-2] = replace(window[-2], block=Block("recalled", 50))
    made = plan_compaction(window, settings=compaction(keep_recent_tokens=2_000), budget=limits())
    after = apply(window, [made.edit("told", cost=10)])
    assert tokens(after) == made.tokens_kept + 10
    assert [item.kind for item in after[:3]] == ["system", "summary", "message"]
    edit = made.edit("told", cost=10)
    assert isinstance(edit.change, Summarised)
    assert edit.ids == made.ids


def test_safeguard_separates_the_oldest_if_there_is_too_much() -> None:
    """History beyond max_history_share of the window is summarised in two goes, the oldest first."""
    messages = conversation(120)
    assert planned(messages).dropped == ()
    made = planned(messages, mode="safeguard")
    assert made.dropped
    assert made.dropped[-1].id < made.history[0].id
    assert sum(item.tokens for item in made.history) <= limits().history


def test_the_last_request_is_the_users_own() -> None:
    """Notes that programs write in the user's name, and commands run in a shell, are no request."""
    noise = [user("<system-reminder>be nice</system-reminder>"), user("Ran `ls`\n```\na\n```"), user("(no content)")]
    made: CompactionPlan = planned([*conversation(5), *noise])
    assert made.request == REQUEST


def test_a_window_without_messages_has_nothing_to_do() -> None:
    """An empty window is no error."""
    assert planned([system()]).outcome == "nothing"
