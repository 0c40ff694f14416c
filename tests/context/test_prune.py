"""Old tool results shrink, and never anything else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from holdfast.context.edits import Edit, Item, Pruned, apply, tokens
from holdfast.context.prune import prune, shrink_results
from holdfast.messages import Message, Opaque, Text, ToolResult
from holdfast.settings import HardClear, Pruning, SoftTrim, ToolFilter
from holdfast.tokens import count_message
from support.cases import each
from support.conversations import PIXEL, answer, call, items, messages_of, reply, results, texts, user

LONG = "line of output\n" * 1_000
HOUR = timedelta(hours=1)


def session(rounds: int = 6, *, text: str = LONG, name: str = "bash") -> list[Item]:
    """A user who asks once, and an assistant that runs a tool again and again."""
    conversation = [user("build it")]
    for number in range(rounds):
        conversation += [reply("", call(f"c{number}", name)), results(answer(f"c{number}", text))]
    return items([*conversation, reply("done")])


def run(window: Sequence[Item], edits: Iterable[Edit] = (), *, size: int = 20_000, **settings: Any) -> tuple[Edit, ...]:
    """Prune with some settings, after an hour's pause."""
    return prune(window, edits, pruning=Pruning(**settings), window=size, idle=HOUR)


def ids(edits: Iterable[Edit]) -> list[int]:
    """What was pruned."""
    return [number for edit in edits for number in edit.ids]


class TestModes:
    """When anything happens at all."""

    def test_off_does_nothing(self) -> None:
        """Whatever the window."""
        assert run(session(), mode="off", size=100) == ()

    def test_aggressive_clears_everything_old_at_once(self) -> None:
        """No ratio is asked."""
        edits = run(session(), mode="aggressive", size=10**9)
        assert ids(edits) == [3, 5, 7, 9]
        assert {edit.reason for edit in edits} == {"aggressive"}

    def test_with_a_cache_to_live_nothing_happens_while_it_is_warm(self) -> None:
        """Nor before the first request, nor without a time to live."""
        settings = Pruning(mode="cache-ttl", ttl=timedelta(minutes=5))
        for idle in (None, timedelta(minutes=4)):
            assert prune(session(), [], pruning=settings, window=9_000, idle=idle) == ()
        assert prune(session(), [], pruning=settings, window=9_000, idle=timedelta(minutes=5))
        never = Pruning(mode="cache-ttl", ttl=timedelta(0))
        assert prune(session(), [], pruning=never, window=9_000, idle=HOUR) == ()

    def test_adaptive_waits_for_the_window_to_fill(self) -> None:
        """Below its share nothing is touched."""
        assert run(session(), mode="adaptive", size=200_000) == ()
        assert run(session(), mode="adaptive", size=60_000)

    def test_adaptive_does_nothing_for_little(self) -> None:
        """A round that saves little is not worth the cache that it breaks."""
        window = session(text="word " * 820)
        assert run(window, mode="adaptive", size=20_000) == ()
        assert run(window, mode="cache-ttl", size=20_000)


class TestRange:
    """Which results are old."""

    def test_results_since_the_last_replies_are_left_alone(self) -> None:
        """Three of them, or as many as are set."""
        assert ids(run(session(), mode="aggressive")) == [3, 5, 7, 9]
        assert ids(run(session(), mode="aggressive", keep_last_assistants=1)) == [3, 5, 7, 9, 11, 13]
        assert ids(run(session(), mode="aggressive", keep_last_assistants=0)) == [3, 5, 7, 9, 11, 13]
        assert run(session(), mode="aggressive", keep_last_assistants=8) == ()

    def test_nothing_before_the_first_word_of_the_user_is_touched(self) -> None:
        """It belongs to the setting."""
        before = [reply("", call("s")), results(answer("s", LONG))]
        window = items([*before, *messages_of(session())])
        assert 2 not in ids(run(window, mode="aggressive"))
        assert (
            run(items([reply("", call("s")), results(answer("s", LONG))]), mode="aggressive", keep_last_assistants=0)
            == ()
        )

    def test_a_reply_written_over_several_lines_counts_once(self) -> None:
        """As in formats where each call is a message of its own."""
        conversation = [
            user("x"),
            reply("", call("a")),
            reply("", call("b")),
            results(answer("a", LONG)),
            results(answer("b", LONG)),
        ]
        window = items([*conversation, reply("one"), reply("more"), user("y"), reply("two")])
        assert ids(run(window, mode="aggressive", keep_last_assistants=2)) == [4, 5]

    def test_pinned_results_stay(self) -> None:
        """And those that no edit can name."""
        window = session()
        window[2] = replace(window[2], pinned=True)
        window[4] = replace(window[4], id=0)
        assert ids(run(window, mode="aggressive")) == [7, 9]

    @each(
        ("tools", "touched"),
        [
            (ToolFilter(), True),
            (ToolFilter(allow=("bash", "read")), True),
            (ToolFilter(allow=("read",)), False),
            (ToolFilter(allow=(" BA* ",)), True),
            (ToolFilter(deny=("*sh",)), False),
            (ToolFilter(allow=("*",), deny=("bash",)), False),
            (ToolFilter(deny=("bas",)), True),
            (ToolFilter(deny=("b.sh", "")), True),
        ],
    )
    def test_tools_are_allowed_and_denied_by_name(self, tools: ToolFilter, *, touched: bool) -> None:
        """`*` is the only wildcard, and what is denied stays denied."""
        assert bool(run(session(), mode="aggressive", tools=tools)) is touched

    def test_a_tool_is_known_by_its_result_too(self) -> None:
        """Where the call is not there."""
        window = items([user("x"), results(answer("a", LONG, name="read")), reply("y")])
        deny = ToolFilter(deny=("read",))
        assert run(window, mode="aggressive", keep_last_assistants=1, tools=deny) == ()


class TestSoft:
    """The first stage."""

    def test_beginning_end_and_way_back_are_kept(self) -> None:
        """Never more than the limit."""
        window = session()
        edits = run(window, mode="adaptive", size=60_000)
        assert ids(edits) == [3, 5, 7, 9]
        text = texts(messages_of(apply(window, edits)))[2]
        assert text.startswith("line of output\n")
        assert text.endswith("[Tool result trimmed: kept the beginning and the end of 15000 characters. holdfast id 3]")
        assert len(text) <= 4_000

    def test_trouble_in_the_middle_is_kept(self) -> None:
        """And the exit status."""
        text = LONG + "error: certificate expired\n" + LONG + "Command exited with code 1\n" + LONG
        window = session(text=text)
        kept = texts(messages_of(apply(window, run(window, mode="adaptive"))))[2]
        assert "error: certificate expired" in kept
        assert "Command exited with code 1" in kept

    def test_it_works_across_blocks(self) -> None:
        """The text of a result is that of all its blocks."""
        blocks = ToolResult(call_id="c0", content=(Text(text=LONG), Text(text="the end")))
        window = session()
        window[2] = replace(window[2], message=results(blocks), tokens=count_message(results(blocks)))
        assert "the end\n\n[Tool result" in texts(messages_of(apply(window, run(window, mode="adaptive"))))[2]

    def test_short_results_are_left_alone(self) -> None:
        """There is nothing to gain."""
        assert run(session(text="x" * 4_000), mode="adaptive", size=5_000, hard_clear=HardClear(enabled=False)) == ()

    def test_pictures_stay_unless_everything_goes(self) -> None:
        """A result with images shrinks with `aggressive` alone."""
        shot = ToolResult(call_id="c0", content=(Text(text=LONG), PIXEL, PIXEL))
        window = session()
        window[2] = replace(window[2], message=results(shot), tokens=count_message(results(shot)))
        assert 3 not in ids(run(window, mode="adaptive"))
        assert 3 in ids(run(window, mode="aggressive"))

    def test_what_we_do_not_read_is_left_alone(self) -> None:
        """References to tools, documents, sound."""
        odd = ToolResult(call_id="c0", content=(Text(text=LONG), Opaque(kind="tool_reference", data={})))
        window = session()
        window[2] = replace(window[2], message=results(odd), tokens=count_message(results(odd)))
        assert 3 not in ids(run(window, mode="aggressive"))


class TestHard:
    """The second stage."""

    def test_the_oldest_are_cleared_until_there_is_room(self) -> None:
        """And a step further, so that it is rare."""
        window = session(12)
        edits = run(window, mode="adaptive", size=40_000, min_prunable_tool_chars=0)
        cleared = [edit for edit in edits if isinstance(edit.change, Pruned) and not edit.change.keep]
        left = tokens(apply(window, edits))
        assert ids(cleared)
        assert ids(cleared) == sorted(ids(cleared))
        assert left < 0.45 * 40_000
        assert len(cleared) < len(edits)

    def test_the_note_names_the_way_back(self) -> None:
        """The placeholder, and the number in the archive."""
        window = session()
        text = texts(messages_of(apply(window, run(window, mode="aggressive"))))[2]
        assert text == "[Old tool result content cleared] (holdfast id 3)"
        other = run(session(), mode="aggressive", hard_clear=HardClear(placeholder="[gone]"))
        assert isinstance(other[0].change, Pruned)
        assert other[0].change.note.startswith("[gone] (holdfast id 3")

    def test_nothing_is_cleared_while_little_could_be(self) -> None:
        """By the characters of all that may be."""
        edits = run(session(), mode="adaptive", size=20_000, min_prunable_tool_chars=50_000)
        assert all(isinstance(edit.change, Pruned) and edit.change.keep for edit in edits)

    def test_one_chinese_character_weighs_as_three(self) -> None:
        """So that windows in Chinese are pruned in time."""
        chinese, latin = session(text="错" * 3_900), session(text="word " * 780)
        settings: Any = {"mode": "adaptive", "min_prunable_tool_chars": 20_000, "size": 12_000}
        assert run(chinese, **settings)
        assert run(latin, **settings) == ()

    def test_it_can_be_switched_off(self) -> None:
        """Then long results are shortened and no more."""
        edits = run(session(), mode="adaptive", hard_clear=HardClear(enabled=False), min_prunable_tool_chars=0)
        assert all(isinstance(edit.change, Pruned) and edit.change.keep for edit in edits)

    def test_results_shorter_than_the_note_stay(self) -> None:
        """Clearing them would cost more than it saves."""
        assert run(session(text="ok"), mode="aggressive") == ()


class TestSticky:
    """Pruned stays pruned."""

    def test_what_was_pruned_is_not_pruned_again(self) -> None:
        """The second round finds nothing to do."""
        window = session()
        for mode in ("aggressive", "cache-ttl"):
            edits = run(window, mode=mode, min_prunable_tool_chars=0)
            assert run(apply(window, edits), edits, mode=mode, min_prunable_tool_chars=0) == ()

    def test_what_was_shortened_may_be_cleared_later(self) -> None:
        """When the window fills further."""
        window = session()
        soft = run(window, mode="adaptive", size=60_000)
        hard = run(apply(window, soft), soft, mode="aggressive")
        assert ids(hard) == [3, 5, 7, 9]
        assert tokens(apply(apply(window, soft), hard)) < tokens(apply(window, soft))

    def test_results_of_one_message_shrink_each_by_itself(self) -> None:
        """The costs of the message fall with each."""
        conversation = [
            user("x"),
            reply("", call("a"), call("b")),
            results(answer("a", LONG), answer("b", LONG), text="look"),
        ]
        window = items([*conversation, reply("y")])
        edits = run(window, mode="aggressive", keep_last_assistants=1)
        assert [edit.ids for edit in edits] == [(3,), (3,)]
        assert edits[0].tokens_before == window[2].tokens
        assert edits[0].tokens_after == edits[1].tokens_before
        after = apply(window, edits)[2]
        assert after.tokens == edits[1].tokens_after == count_message(after.message)
        assert after.message.text == "look"


class TestRelief:
    """When what must stay does not fit."""

    def test_the_largest_results_shrink_first_whatever_their_age(self) -> None:
        """Until enough is saved."""
        window = session(2)
        window[4] = replace(window[4], message=results(answer("c1", LONG * 3)), tokens=15_012)
        edits = shrink_results(window, [], excess=5_000, pruning=Pruning())
        assert ids(edits) == [5]
        assert sum(edit.tokens_before - edit.tokens_after for edit in edits) >= 5_000

    def test_results_are_shortened_or_cleared_as_far_as_it_goes(self) -> None:
        """Where nothing is enough, that is what there is."""
        window = session(2)
        for clear in (False, True):
            edits = shrink_results(window, [], excess=10**9, pruning=Pruning(), clear=clear)
            assert all(isinstance(edit.change, Pruned) and bool(edit.change.keep) is not clear for edit in edits)
            assert sorted(ids(edits)) == [3, 5]

    def test_denied_tools_are_left_alone(self) -> None:
        """Here as well."""
        assert shrink_results(session(2), [], excess=9, pruning=Pruning(tools=ToolFilter(deny=("*",)))) == ()


class TestNeverElse:
    """Only results."""

    def test_words_of_user_and_assistant_are_never_touched(self) -> None:
        """However long."""
        conversation = [user(LONG), reply(LONG), user(LONG), reply(LONG), user("x"), reply("y")]
        window = items(conversation)
        for mode in ("cache-ttl", "adaptive", "aggressive"):
            assert run(window, mode=mode, size=1_000, keep_last_assistants=0, min_prunable_tool_chars=0) == ()

    def test_words_next_to_results_stay(self) -> None:
        """The user may speak there."""
        message = Message(role="tool", parts=(answer("a", LONG), Text(text=LONG)))
        window = items([user("x"), reply("", call("a")), message, reply("y")])
        pruned = apply(window, run(window, mode="aggressive", keep_last_assistants=1))
        assert pruned[2].message.text == LONG

    def test_settings_may_keep_less(self) -> None:
        """Small limits hold too."""
        window = session()
        soft = SoftTrim(max_chars=200, head_chars=50, tail_chars=50)
        text = texts(
            messages_of(
                apply(window, run(window, mode="adaptive", soft_trim=soft, hard_clear=HardClear(enabled=False)))
            )
        )[2]
        assert len(text) <= 200
