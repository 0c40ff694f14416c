"""The requests of a session: what was sent last, records of turns, and every past window as it was sent.

Past windows are made again in every wire format, through cuts, recalls, branches and restarts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from holdfast import Engine
from holdfast.context.edits import EDIT, Edit, Forgotten, Item, Trimmed, to_json
from holdfast.errors import InputError
from holdfast.memory.memory import Memory
from holdfast.messages import Message, Text, Usage
from holdfast.report import ContextReport
from holdfast.settings import Embedding, Recall, Settings
from holdfast.store.base import Record, Scope, Select
from holdfast.timeline import WHOLE_TURNS, Histories, Timeline, read_edits, read_reports, read_turns
from holdfast.tokens import count_text
from support.conversations import answer, call, items, reply, results, user
from support.wire_conversations import TALKS, Talk

SETTINGS = Settings(
    embedding=Embedding(provider="none"), recall=Recall(deadline_ms=600_000, query_messages=1, min_query_chars=24)
)
NEW_FIELDS = {"question", "recall_texts", "recall_confidence", "recall_size", "recall_cap", "missed", "quoted"}
"""Fields that records of earlier versions lack."""


@pytest.mark.variants
@pytest.mark.parametrize("conversation", TALKS.values(), ids=TALKS.keys())
def test_each_past_request_is_the_one_that_was_sent(conversation: Talk, tmp_path: Path) -> None:
    """Also the requests of an earlier process, and of one next to it."""
    sent, requests, reports = [], {}, []
    with (
        Engine.open(tmp_path, settings=SETTINGS, background=False) as first,
        Engine.open(tmp_path, settings=SETTINGS, background=False) as second,
    ):
        for number, step in enumerate(conversation.steps(16)):
            sent += step.wires
            if number % 4 in {1, 2}:  # one request a turn, after the question or after the results
                continue
            if number == 24:
                first.session("s").compact(sent, limit=4_000)
            engine = second if number % 9 == 5 else first
            window = engine.session("s").assemble(sent, limit=4_000)
            requests[window.report.turn] = window.render()
            reports.append(window.report)
        kinds = {change.kind for report in reports for change in report.changes}
    assert kinds >= {"trimmed", "recalled", "compacted"}
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as later:
        for turn, request in requests.items():
            rebuilt = later.session("s").window(turn)
            assert json.dumps(rebuilt.render()) == json.dumps(request), turn
            assert rebuilt.report.turn == turn


def test_a_past_request_of_another_branch(tmp_path: Path) -> None:
    """A client that goes back and says something else has both branches in its past."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        session = engine.session("s")
        start = [{"role": "user", "content": "Which port?"}, {"role": "assistant", "content": "7654."}]
        one = session.assemble([*start, {"role": "user", "content": "Why that one?"}], limit=8_000)
        other = session.assemble([*start, {"role": "user", "content": "Write it down."}], limit=8_000)
        assert [session.window(turn).render() for turn in (1, 2)] == [one.render(), other.render()]
        session.forget([3])
        assert "Why that one?" not in json.dumps(session.window(1).render())
        assert session.window(2).render() == other.render()


class TestConversation:
    """What a program goes on with after a restart."""

    def test_the_edited_message_and_its_reply_are_not_part_of_it(self, tmp_path: Path) -> None:
        start = [user("Which cache?"), reply("Memcached or Valkey.")]
        with Engine.open(tmp_path, background=False) as engine:
            session = engine.session("s")
            session.assemble([*start, user("Take Memcached. 用 Memcached。")], limit=16_000)
            session.append([reply("Memcached it is.")])
            session.assemble([*start, user("Take Valkey. 用 Valkey。")], limit=16_000)
            session.append([reply("Valkey it is.")])
        with Engine.open(tmp_path, background=False) as engine:
            session = engine.session("s")
            texts = [message.text for message in session.conversation()]
            assert texts == ["Which cache?", "Memcached or Valkey.", "Take Valkey. 用 Valkey。", "Valkey it is."]
            assert len(session.messages()) == 6

    def test_a_deleted_turn_is_not_part_of_it(self, tmp_path: Path) -> None:
        """Not even while the request without it has no reply, or if a tool ran in it."""
        start = [user("Look at the log."), reply("It is empty.")]
        with Engine.open(tmp_path, background=False) as engine:
            session = engine.session("s")
            session.assemble([*start, user("Delete it.")], limit=16_000)
            session.append([reply("", call("c1")), results(answer("c1", "deleted")), reply("Done.")])
            session.assemble([*start, user("Leave it.")], limit=16_000)
            texts = [message.text for message in session.conversation()]
            assert texts == ["Look at the log.", "It is empty.", "Leave it."]

    def test_a_reply_that_is_asked_for_again_is_not_part_of_it(self, tmp_path: Path) -> None:
        """The conversation ends with the question until there is another reply."""
        with Engine.open(tmp_path, background=False) as engine:
            session = engine.session("s")
            for text in ("One.", "Two."):
                session.assemble([user("Count.")], limit=16_000)
                assert [message.text for message in session.conversation()] == ["Count."]
                session.append([reply(text)])
                assert [message.text for message in session.conversation()] == ["Count.", text]

    def test_before_the_first_request_it_is_what_was_appended(self, tmp_path: Path) -> None:
        with Engine.open(tmp_path, background=False) as engine:
            session = engine.session("s")
            session.append([Message(role="system", parts=(Text(text="Be brief."),)), user("Hello."), reply("Hi.")])
            assert [message.text for message in session.conversation()] == ["Hello.", "Hi."]
            session.assemble([user("Hello."), reply("Hi."), user("Go on.")], limit=16_000)
            session.append([user("And stop.")])
            assert [message.text for message in session.conversation()] == ["Hello.", "Hi.", "Go on.", "And stop."]


def test_a_turn_that_is_not_there(tmp_path: Path) -> None:
    """The error names the call that lists the turns."""
    with (
        Engine.open(tmp_path, settings=SETTINGS, background=False) as engine,
        pytest.raises(InputError, match="turn 7"),
    ):
        engine.session("s").window(7)


@pytest.mark.parametrize("system", [[], [{"role": "system", "content": "Be brief."}]])
def test_a_window_whose_only_message_was_forgotten(tmp_path: Path, system: list[dict[str, str]]) -> None:
    """The error says so, in every wire format; the turns before and after are shown."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        for provider in ("anthropic", "openai_chat", "openai_responses", "gemini"):
            session = engine.session(provider)
            for words in ("Which port?", "Which host?"):
                session.assemble([*system, {"role": "user", "content": words}], limit=8_000, provider=provider)
            asked = [row.id for row in session.messages() if row.message.text == "Which port?"]
            session.forget(asked)
            with pytest.raises(InputError, match=r"messages of turn 1 of session .* were forgotten"):
                session.window(1)
            assert "Which host?" in str(session.window(2).render())


def test_a_window_that_had_no_message(tmp_path: Path) -> None:
    """The caller sent its question after it."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        engine.session("s").assemble([], question="Which port?", limit=8_000)
        assert engine.session("s").window(1).render() == []


SCOPE = Scope(session="s")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """Open a memory without vectors."""
    with Memory.open(tmp_path, settings=SETTINGS) as opened:
        yield opened


@pytest.fixture
def timeline(memory: Memory) -> Timeline:
    """Make the timeline of a session without requests."""
    return Timeline(SCOPE, memory, count_text)


def make_report(turn: int, *, tokens: int = 100) -> ContextReport:
    """Make the report of a turn."""
    return ContextReport(
        session="s", turn=turn, total_tokens=tokens, raw_max_tokens=1_000, percentage=10.0, categories=()
    )


def record(timeline: Timeline, report: ContextReport, numbers: list[int]) -> None:
    """Record a turn without edits."""
    timeline.record(
        report,
        time=7,
        edits=(0, 0),
        limit=900,
        provider="anthropic",
        system=(),
        numbers=numbers,
        place="p",
        forgetting="",
    )


class TestLastRequest:
    def test_the_provider_reports_more_than_the_estimate(self, timeline: Timeline) -> None:
        margin = timeline.token_scale
        timeline.add_turn(make_report(1, tokens=10_000), (), edits=0)
        timeline.calibrate([replace(reply("Yes."), usage=Usage(input=12_500, output=5))])
        assert timeline.token_scale == timeline.scale != margin

    def test_a_second_report_of_the_same_request_is_ignored(self, timeline: Timeline) -> None:
        timeline.add_turn(make_report(1, tokens=10_000), (), edits=0)
        timeline.calibrate([replace(reply("Yes."), usage=Usage(input=12_500, output=5))])
        scale = timeline.scale
        timeline.calibrate([replace(reply("No."), usage=Usage(input=15_000, output=5))])
        assert timeline.scale == scale

    def test_reports_about_an_unknown_request_are_ignored(self, timeline: Timeline) -> None:
        timeline.add_turn(make_report(1, tokens=10_000), (), edits=0)
        timeline.end_calibration()
        timeline.calibrate([replace(reply("Yes."), usage=Usage(input=12_500, output=5))])
        assert timeline.scale is None

    def test_messages_of_the_last_window_were_sent(self, timeline: Timeline) -> None:
        sent, other = items([user("one"), user("two")])
        timeline.add_turn(make_report(1), (sent,), edits=0)
        assert timeline.was_sent(sent)
        assert not timeline.was_sent(other)
        unarchived = replace(other, id=0)
        timeline.add_turn(make_report(2), (unarchived,), edits=0)
        assert timeline.was_sent(other)


class TestRecords:
    def test_a_later_process_continues_from_the_last_turn(self, timeline: Timeline, memory: Memory) -> None:
        record(timeline, replace(make_report(3), is_calibrated=True, token_scale=1.25), [1, 2])
        later = Timeline(SCOPE, memory, count_text)
        later.load()
        assert (later.turn, later.last_time, later.scale) == (3, 7, 1.25)
        assert later.was_sent(Item(message=user("two"), id=2, tokens=1))
        assert not later.was_sent(Item(message=user("three"), id=3, tokens=1))

    def test_a_margin_is_not_taken_for_reported_usage(self, timeline: Timeline, memory: Memory) -> None:
        record(timeline, replace(make_report(1), token_scale=1.25), [1])
        later = Timeline(SCOPE, memory, count_text)
        later.load()
        assert later.scale is None

    def test_reports_are_read_in_order(self, timeline: Timeline, memory: Memory) -> None:
        for number in (1, 2, 3):
            record(timeline, make_report(number), list(range(1, number + 1)))
        assert [report.turn for report in read_reports(memory.store, SCOPE)] == [1, 2, 3]


class TestCuts:
    def test_what_left_is_listed_with_its_reason_and_shown_again(self, tmp_path: Path) -> None:
        """What was forgotten is not listed; what a summary replaced is, with the summary."""
        history = [user(f"{number}. 港 " + "harbour " * 150) for number in range(20)]
        with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
            session = engine.session("s")
            assert session.describe_cuts() == []
            session.assemble(history, limit=4_000, reserve=500)
            (cut,) = session.describe_cuts()
            assert (cut.kind, cut.reason != "", cut.tokens > 0) == ("trimmed", True, True)
            assert cut.about[0].startswith(f"[{cut.messages[0]}] user: 0. 港 harbour")
            shown = session.expand_cut(cut.id, max_chars=2_000)
            assert shown.messages[0].text == history[0].text
            assert shown.next == cut.messages[1]
            assert session.expand_cut(cut.id, start=shown.next, max_chars=100).messages[0].left_out > 1_000
            session.forget(cut.messages[:1])
            (rest,) = session.describe_cuts()
            assert rest.messages == cut.messages[1:]
            session.compact(history, limit=4_000)
            (compacted,) = session.describe_cuts(last=1)
            assert (compacted.kind, compacted.summary != "") == ("compacted", True)
            with pytest.raises(InputError, match="has no cut 77"):
                session.expand_cut(77)

    def test_what_came_back_is_listed_again_only_after_another_cut(self, tmp_path: Path) -> None:
        """Cuts of earlier requests stay as they were."""
        history = [user(f"{number}. " + "harbour " * 150) for number in range(20)]
        with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
            session = engine.session("s")
            session.assemble(history, limit=4_000, reserve=500)
            assert session.undo_trim()
            assert session.describe_cuts() == []
            session.assemble([*history, user("Go on with the harbour.")], limit=4_000, reserve=500)
            assert session.describe_cuts()

    def test_results_that_were_shortened_for_one_request_are_one_cut(self, tmp_path: Path) -> None:
        """Each of them is shown whole."""
        with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
            session = engine.session("s")
            history: list[dict[str, object]] = [{"role": "user", "content": "Read all of them."}]
            for number in range(8):
                call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
                history.append({"role": "assistant", "content": None, "tool_calls": [call]})
                history.append(
                    {"role": "tool", "tool_call_id": f"c{number}", "content": f"{number} " + "line\n" * 4_000}
                )
            session.assemble(history, limit=30_000, reserve=500)
            pruned = [cut for cut in session.describe_cuts() if cut.kind == "pruned"]
            assert len(pruned) == 1
            assert len(pruned[0].messages) > 1
            first = session.expand_cut(pruned[0].id).messages[0]
            assert len(first.text) == 20_000
            whole = session.expand_cut(pruned[0].id, max_chars=100_000).messages
            assert [one.left_out for one in whole] == [0] * len(whole)
            assert {one.text for one in whole} <= {message["content"] for message in history}


class TestQuestions:
    def test_a_report_says_what_memory_was_asked_and_how_sure_it_was(self, tmp_path: Path) -> None:
        """The numbers of the messages, the confidence and the size that follows from it, and what just missed."""
        settings = Settings(embedding=Embedding(provider="none"), recall=Recall(deadline_ms=600_000))
        with Engine.open(tmp_path, settings=settings, background=False) as engine:
            session = engine.session("s")
            history: list[dict[str, str]] = []
            for number in range(60):
                history.append(
                    {"role": "user", "content": f"港口 {number}: the pier {number} uses port {7000 + number}."}
                )
                history.append({"role": "assistant", "content": f"Pier {number} is noted. " * 12})
            session.assemble(history, limit=4_000)
            asked = {"role": "user", "content": "Which port does pier 3 use?"}
            report = session.assemble([*history, asked], limit=4_000).report
            last = session.messages()[-1]
            assert report.question[-1] == last.id
            assert report.recall_texts >= 1
            assert report.recall_confidence > 0.5
            assert 0 < report.recall_size <= report.recall_cap
            quoted = {hit.passage for hit in report.recalled}
            assert quoted
            assert report.missed
            assert quoted.isdisjoint(missed.passage for missed in report.missed)
            assert [one.score for one in report.missed] == sorted((one.score for one in report.missed), reverse=True)
            assert session.timeline()[-1] == report
            turn = read_turns(engine._memory.store, session.scope)[-1]
            assert set(turn.source.quoted) == {hit.message for hit in report.recalled}

    def test_a_question_after_the_window_has_no_number(self, tmp_path: Path) -> None:
        """It is not archived with the window."""
        with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
            history = [{"role": "user", "content": "The lock opens at six."}]
            question = "When does the lock of the harbour open in the morning?"
            report = engine.session("s").assemble(history, limit=8_000, question=question).report
            assert report.question == ()

    def test_records_of_earlier_versions_are_read(self, timeline: Timeline, memory: Memory) -> None:
        """They lack what was asked, and the messages that a block quotes."""
        record(timeline, make_report(1), [1, 2])
        for row in memory.store.read_records(Select(scope=timeline.scope)):
            old = {name: value for name, value in row.data.items() if name not in NEW_FIELDS}
            assert len(old) < len(row.data)
            memory.store.add_records([replace(row, data=old)])
        assert [report.turn for report in read_reports(memory.store, timeline.scope)] == [1]
        assert [turn.source.quoted for turn in read_turns(memory.store, timeline.scope)] == [()]


def test_an_edit_of_a_later_version_is_not_ignored(memory: Memory) -> None:
    """It has its number among the edits that can be read, also those with broken characters; later windows need it."""
    edit = Edit(change=Trimmed(limit=900), ids=(1,), reason="oldest \ud83d", tokens_before=9, tokens_after=0)
    written = [to_json(edit), {"change": {"kind": "folded"}}, to_json(structs.replace(edit, change=Forgotten()))]
    keys = ["00000000", "00000001", "forgotten:1"]
    memory.store.add_records(
        [Record(scope=SCOPE, kind=EDIT, key=key, data=data) for key, data in zip(keys, written, strict=True)]
    )
    first, unknown, forgetting = read_edits(memory.store, SCOPE)
    assert (first.number, first.edit) == (0, edit)
    assert (unknown.number, unknown.edit) == (1, None)
    assert forgetting.number == -1
    assert memory.store.gaps == ()


def test_the_whole_history_is_recorded_from_time_to_time(tmp_path: Path) -> None:
    """The newest windows of a very long session are made again without reading all of its turns."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        timeline = Timeline(Scope(session="s"), engine._memory, count_text)
        for turn in range(1, WHOLE_TURNS + 3):
            record(timeline, make_report(turn), list(range(1, turn + 1)))
        newest = Histories(read_turns(engine._memory.store, Scope(session="s"), newest=True, limit=5))
        last = read_turns(engine._memory.store, Scope(session="s"), newest=True, limit=1)[-1]
        assert newest.has_all_of(last.key)
        assert newest.read(last.key) == list(range(1, WHOLE_TURNS + 3))
