"""Recorded changes, and how they are replayed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import permutations

import pytest

from holdfast.context.edits import (
    Block,
    Edit,
    Item,
    OverviewAdded,
    Pruned,
    Recalled,
    Summarised,
    Trimmed,
    apply,
    combine,
    from_json,
    in_force,
    shorten,
    to_json,
    tokens,
    without_thinking,
)
from holdfast.errors import FormatError
from holdfast.messages import RedactedThinking, Text, Thinking
from support.conversations import answer, call, ids_of, items, messages_of, reply, results, system, texts, user

WINDOW = items(
    [
        system(),
        user("why did the deploy fail"),
        reply("", call("c1"), thought="look"),
        results(answer("c1", "0123456789")),
        reply("the certificate"),
        user("renew it"),
    ]
)


def pruned(number: int, *, part: int = 0, keep: tuple[tuple[int, int], ...] = (), after: int = 5) -> Edit:
    """A tool result was shortened."""
    change = Pruned(part=part, keep=keep, note="(more)")
    return Edit(change=change, ids=(number,), reason="old", tokens_before=20, tokens_after=after)


def trimmed(*ids: int, limit: int = 100) -> Edit:
    """Messages left."""
    return Edit(change=Trimmed(limit=limit), ids=ids, reason="oldest", tokens_before=9, tokens_after=0)


def compacted(*ids: int, summary: str = "so far", thinking_removed: tuple[tuple[int, int], ...] = ()) -> Edit:
    """A summary stands for messages."""
    change = Summarised(summary=summary, thinking_removed=thinking_removed)
    return Edit(change=change, ids=ids, reason="full", tokens_before=9, tokens_after=7)


def recalled(text: str, into: int | None) -> Edit:
    """A block was placed."""
    change = Recalled(text=text, into=into)
    return Edit(change=change, ids=(99,), reason="recalled", tokens_before=0, tokens_after=3)


def overview(into: int | None) -> Edit:
    """An overview was placed."""
    change = OverviewAdded(text="<o>", into=into)
    return Edit(change=change, ids=(), reason="begins", tokens_before=0, tokens_after=4)


ALL = [
    pruned(4, keep=((0, 2), (8, 10))),
    trimmed(2, 3, 4),
    compacted(2, thinking_removed=((3, 4),)),
    recalled("<r>", 6),
]


class TestJson:
    """Edits at rest."""

    @pytest.mark.parametrize("edit", [*ALL, recalled("<r>", None)], ids=lambda edit: edit.kind)
    def test_an_edit_survives_being_written_down(self, edit: Edit) -> None:
        """Through JSON and back it is the same."""
        assert from_json(json.loads(json.dumps(to_json(edit)))) == edit

    @pytest.mark.parametrize("data", [{}, {"change": {"kind": "dreamt"}}, {"change": 3, "ids": []}])
    def test_anything_else_is_refused(self, data: dict[str, object]) -> None:
        """With an error of ours."""
        with pytest.raises(FormatError, match="not a recorded edit"):
            from_json(data)

    def test_an_edit_has_its_kind(self) -> None:
        """As reports name it."""
        assert [edit.kind for edit in ALL] == ["pruned", "trimmed", "compacted", "recalled"]

    def test_a_pruned_edit_holds_no_word_of_the_message(self) -> None:
        """Places are enough to render it again."""
        assert "01" not in json.dumps(to_json(ALL[0])["change"])


class TestApply:
    """The same message, the same rendering."""

    def test_without_edits_nothing_changes(self) -> None:
        """Every item is the same object."""
        assert all(map(lambda one, other: one is other, apply(WINDOW, []), WINDOW))

    def test_edits_at_once_have_the_effect_of_edits_one_by_one(self) -> None:
        """In every order of any three of them: a past window is made by all of its edits at once."""
        more = [recalled("<h>", None), overview(5), overview(None), trimmed(6), compacted(3, summary="newer")]
        for some in permutations([*ALL, *more], 3):
            window = apply(WINDOW, some)
            one_by_one: Sequence[Item] = WINDOW
            for edit in some:
                one_by_one = apply(one_by_one, [edit])
            assert window == one_by_one
            gone = combine(some).gone
            assert combine(some).apply([item for item in WINDOW if item.id not in gone]) == window

    def test_a_shortened_result_keeps_its_parts_and_has_a_note(self) -> None:
        """With a gap between them, and the note at the end."""
        window = apply(WINDOW, [pruned(4, keep=((0, 2), (8, 10)))])
        assert texts(messages_of(window))[3] == "01\n[...]\n89\n\n(more)"
        assert window[3].tokens == 5

    def test_a_cleared_result_is_its_note(self) -> None:
        """Nothing of it stays."""
        assert texts(messages_of(apply(WINDOW, [pruned(4)])))[3] == "(more)"

    def test_a_shortened_result_may_be_cleared_later(self) -> None:
        """The newest edit counts."""
        window = apply(WINDOW, [pruned(4, keep=((0, 2),)), pruned(4, after=3)])
        assert (texts(messages_of(window))[3], window[3].tokens) == ("(more)", 3)

    def test_only_tool_results_are_ever_shortened(self) -> None:
        """An edit that names anything else changes nothing."""
        assert shorten(WINDOW[1].message, Pruned(part=0, note="x")) is WINDOW[1].message
        assert shorten(WINDOW[3].message, Pruned(part=7, note="x")) is WINDOW[3].message

    def test_trimmed_messages_are_gone(self) -> None:
        """And only they."""
        assert ids_of(apply(WINDOW, [trimmed(2, 3, 4)])) == [1, 5, 6]

    def test_a_summary_is_after_the_system_prompt(self) -> None:
        """For what it replaced."""
        window = apply(WINDOW, [compacted(2, 3, 4)])
        assert [(item.kind, item.id) for item in window[:3]] == [("system", 1), ("summary", 0), ("message", 5)]
        assert window[1].tokens == 7
        assert messages_of(window)[1] == user("so far")

    def test_there_is_one_summary(self) -> None:
        """A later one takes the place of an earlier one."""
        window = apply(apply(WINDOW, [compacted(2)]), [compacted(2, 3, 4, summary="newer")])
        assert [item.message.text for item in window if item.kind == "summary"] == ["newer"]

    def test_a_compaction_may_take_thoughts_from_what_it_keeps(self) -> None:
        """Their seals are of a history that is gone."""
        window = apply(WINDOW, [compacted(2, thinking_removed=((3, 4),))])
        assert [type(part).__name__ for part in window[2].message.parts] == ["ToolCall"]
        assert window[2].tokens == 4

    def test_a_block_at_the_tail_is_the_last_part_of_its_message(self) -> None:
        """A part of its own."""
        window = apply(WINDOW, [recalled("<r>", 6)])
        assert window[5].block == Block("<r>", 3)
        assert messages_of(window)[5].parts == (Text(text="renew it"), Text(text="<r>"))
        assert tokens(window) == tokens(WINDOW) + 3

    def test_a_block_at_the_head_is_a_message_after_system_prompt_and_summary(self) -> None:
        """There is exactly one."""
        window = apply(WINDOW, [compacted(2), recalled("<old>", None), recalled("<r>", None)])
        assert [item.kind for item in window[:4]] == ["system", "summary", "recall", "message"]
        assert texts(messages_of(apply(window, [recalled("<newer>", None)])))[2] == "<newer>"

    def test_a_cut_takes_every_block_with_it(self) -> None:
        """The prefix breaks anyway."""
        window = apply(WINDOW, [recalled("<r>", 6), recalled("<h>", None)])
        assert texts(messages_of(apply(window, [trimmed()]))) == texts(messages_of(WINDOW))

    def test_a_block_of_a_message_that_is_gone_is_gone_too(self) -> None:
        """Nowhere else does it appear."""
        assert texts(messages_of(apply(WINDOW, [trimmed(6), recalled("<r>", 6)]))) == texts(messages_of(WINDOW[:5]))

    def test_what_has_no_number_stays(self) -> None:
        """No edit can name it."""
        nameless = Item(message=user("forgotten"), id=0, tokens=3)
        assert apply([nameless], [trimmed(0), compacted(0)])[-1] == nameless


class TestThinking:
    """Thoughts that go, go whole."""

    def test_sealed_thoughts_go_and_the_rest_stays(self) -> None:
        """Readable or not."""
        message = reply("yes", thought="hm")
        redacted = message.__class__(role="assistant", parts=(RedactedThinking(data="x"), *message.parts))
        assert without_thinking(redacted).parts == (Text(text="yes"),)

    def test_a_message_is_left_alone_where_nothing_else_is_in_it(self) -> None:
        """Or nothing to take."""
        alone = reply(thought="hm")
        assert without_thinking(alone) is alone
        assert without_thinking(user("hi")) is not None
        foreign = Thinking(text="hm").read_from({"type": "reasoning"}, format="openai_responses")
        kept = reply("yes").__class__(role="assistant", parts=(foreign, Text(text="yes")))
        assert without_thinking(kept) is kept


class TestInForce:
    """Which of the recorded edits still hold."""

    def test_pruned_stays_pruned(self) -> None:
        """Whatever happens."""
        assert in_force([pruned(4), compacted(2)], limit=10**9) == (pruned(4), compacted(2))

    def test_trimmed_stays_trimmed_until_a_compaction(self) -> None:
        """Then the summary stands for the past, and what it kept is whole again."""
        assert in_force([trimmed(2), trimmed(3)], limit=100) == (trimmed(2), trimmed(3))
        assert in_force([trimmed(2), compacted(3), trimmed(4)], limit=100) == (compacted(3), trimmed(4))

    def test_trimmed_comes_back_in_a_much_larger_window(self) -> None:
        """Twice as large or more."""
        assert in_force([trimmed(2, limit=100)], limit=199) == (trimmed(2, limit=100),)
        assert in_force([trimmed(2, limit=100)], limit=200) == ()

    def test_a_block_holds_until_the_next_cut(self) -> None:
        """And one at the head for one request."""
        tail, head = recalled("<r>", 6), recalled("<h>", None)
        assert in_force([tail, head, pruned(4)], limit=100) == (tail, pruned(4))
        assert in_force([tail, trimmed(2), tail], limit=100) == (trimmed(2), tail)
        assert in_force([tail, compacted(2)], limit=100) == (compacted(2),)
