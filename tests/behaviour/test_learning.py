"""Facts are read from messages that leave the window: when, by which model, and what failures change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from holdfast import Engine, Session
from holdfast.errors import ModelBusyError, ModelRefusedError
from holdfast.memory.learning import MAX_BATCH, run_job
from holdfast.memory.learning_queue import EXTRACT, HOSTS, OPEN, OWN, make_mark, queue_idle
from holdfast.messages import Message, Text
from holdfast.models.base import Model, Prompt
from holdfast.models.retry import Fallback, Retrying
from holdfast.models.scripted import Answer
from holdfast.settings import Embedding, Knowledge, Recall, Settings
from holdfast.store.base import Job, Select
from holdfast.testing.processes import child
from support.learning_model import count_extractions, depot_model, extract_depots
from support.waiting import PATIENCE, UNHURRIED

MINUTE = 60_000
HOUR = 60 * MINUTE
START = 1_800_000_000_000
FILLER = "We talked about the weather and the road for a while, and then about lunch. " * 40


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now


def open_engine(
    folder: Path,
    model: Model | Callable[[Any], str] | None,
    clock: Clock,
    *,
    hosts: bool = False,
    recalls: bool = False,
    **knowledge: Any,
) -> Engine:
    """Open an engine without a background thread, so that the test decides when work is done."""
    settings = Settings(
        embedding=Embedding(provider="none"),
        knowledge=Knowledge(**knowledge),
        recall=UNHURRIED if recalls else Recall(automatic=False),  # most of a turn would be the search
    )
    return Engine.open(folder, settings=settings, model=model, background=False, clock=clock, auto="off", hosts=hosts)


def state(number: int) -> str:
    """State a fact, in English or Chinese."""
    time = f"{number // 60 % 24:02d}:{number % 60:02d}"
    if number % 4 == 3:
        return f"仓库 d{number} 在 {time} 关门。"
    return f"Depot d{number} closes at {time}."


def make_turn(number: int) -> list[Message]:
    """A turn of about 900 tokens in which the user states one fact."""
    asked = f"{state(number)} {FILLER}"
    return [
        Message(role="user", parts=(Text(text=asked),)),
        Message(role="assistant", parts=(Text(text=f"Noted, turn {number}."),)),
    ]


def talk(session: Session, turns: range, *, limit: int = 20_000, history: list[Message] | None = None) -> list[Message]:
    """Have a conversation, request by request."""
    messages = [] if history is None else history
    for number in turns:
        asked, answered = make_turn(number)
        messages.append(asked)
        session.assemble(messages, limit=limit)
        session.append([answered])
        messages.append(answered)
    return messages


def state_decision(session: Session, text: str, *, history: Sequence[Message] = ()) -> list[Message]:
    """State a decision, then talk until it has left the window: less than is worth a call of a model."""
    first = Message(role="user", parts=(Text(text=text),))
    noted = Message(role="assistant", parts=(Text(text="Noted."),))
    return talk(session, range(5), limit=4_000, history=[*history, first, noted])


def archive(session: Session, turns: range) -> None:
    """Archive a conversation at once. How messages arrive does not matter for learning."""
    session.append([message for number in turns for message in make_turn(number)])


def count_facts(session: Session) -> Counter[str]:
    """Count all stored facts, by their words."""
    rows = session._memory.store.read_facts(Select(scope=session.scope, across=True))
    return Counter(row.content for row in rows)


def expect(turns: range) -> Counter[str]:
    """Return the facts that must be known after some turns, once each."""
    return Counter(state(number).rstrip(".。") for number in turns)


class TestWhatLeavesTheWindow:
    def test_a_long_chat_in_a_small_window_leaves_every_fact_once(self, tmp_path: Path) -> None:
        """Nothing was compacted: trimming alone removes messages, and they are read in few calls."""
        clock = Clock()
        model = depot_model()
        with open_engine(tmp_path, model, clock) as engine:
            session = engine.session("s")
            for first in range(0, 28, 4):
                talk(session, range(first, first + 4), limit=10_000, history=session_history(session))
                engine.work()
            assert not any(edit.kind == "compacted" for edit in session.edits())
            learned = len(count_facts(session))
            assert learned >= 14  # the rest is in the window still
            assert count_extractions(model) <= learned // 6
            clock.now += 11 * MINUTE
            engine.work()
            assert count_facts(session) == expect(range(28))

    def test_a_message_alone_is_not_worth_a_call(self, tmp_path: Path) -> None:
        """Messages that left are read together, once they fill a batch."""
        model = depot_model()
        with open_engine(tmp_path, model, Clock()) as engine:
            session = engine.session("s")
            talk(session, range(14), limit=10_000)
            assert any(edit.kind == "trimmed" for edit in session.edits())
            engine.work()
            assert count_extractions(model) <= 2

    def test_rules_read_what_leaves_at_once(self, tmp_path: Path) -> None:
        """They make no calls. A decision that was corrected does not hold in the next overview."""
        with open_engine(tmp_path, None, Clock()) as engine:
            session = engine.session("s")
            messages = state_decision(session, "Decision: gold customers get an answer within 4 hours.")
            messages = state_decision(session, "决定：夜班值班电话是 6120。", history=messages)
            engine.work()
            assert sorted(fact.content for fact in session.facts()) == [
                "Decision: gold customers get an answer within 4 hours.",
                "决定：夜班值班电话是 6120。",
            ]
            corrections = [
                "Correction: gold customers get an answer within 2 hours, not 4 hours.",
                "更正：夜班值班电话是 6188，不是 6120。",
            ]
            for correction in corrections:
                messages = state_decision(session, correction, history=messages)
            engine.work()
            assert sorted(fact.content for fact in session.facts()) == corrections

    def test_an_answer_too_long_for_one_call_is_read_in_several(self, tmp_path: Path) -> None:
        """A session that was never read is read in batches of a bounded size."""
        model = depot_model()
        with open_engine(tmp_path, model, Clock()) as engine:
            session = engine.session("s")
            archive(session, range(40))
            assert session.learn() == 80
            assert session.learn() == 0  # it waits already
            engine.work()
            assert count_facts(session) == expect(range(40))
            assert session.learn() == 0
            sizes = [len(prompt.messages[-1].text) / 3 for prompt in model.prompts]
            assert max(sizes) < 1.5 * MAX_BATCH
            assert len(sizes) == pytest.approx(40 * 900 / MAX_BATCH, abs=3)


def session_history(session: Session) -> list[Message]:
    """Return the conversation so far."""
    return [row.message for row in session.messages()]


class TestTheEnd:
    def test_an_idle_session_is_read_to_its_end(self, tmp_path: Path) -> None:
        """It is not read while it is in use, and not twice."""
        clock = Clock()
        model = depot_model()
        with open_engine(tmp_path, model, clock) as engine:
            session = engine.session("s")
            messages = talk(session, range(3))
            clock.now += 9 * MINUTE
            talk(session, range(3, 4), history=messages)
            clock.now += 9 * MINUTE
            engine.work()
            assert count_facts(session) == Counter()
            clock.now += 2 * MINUTE
            engine.work()
            assert count_facts(session) == expect(range(4))
            assert count_extractions(model) == 1
            talk(session, range(4, 6), history=messages)
            clock.now += 11 * MINUTE
            engine.work()
            assert count_facts(session) == expect(range(6))
            clock.now += HOUR
            assert engine.work() == 0
            assert engine._memory.store.waiting(OPEN, limit=9) == []

    def test_what_a_closed_engine_leaves_is_read_by_the_next_one(self, tmp_path: Path) -> None:
        """It does not wait until the session is idle, even after a process was killed."""
        clock = Clock()
        with open_engine(tmp_path, depot_model(), clock) as engine:
            talk(engine.session("s"), range(3))
        with open_engine(tmp_path, depot_model(), clock) as engine:
            engine.work()
            assert count_facts(engine.session("s")) == expect(range(3))

    def test_a_command_that_is_called_again_and_again_is_not_read_each_time(self, tmp_path: Path) -> None:
        """The thread of the next engine waits until the session is idle; a session that has ended is read at once."""
        clock = Clock()
        with open_engine(tmp_path, depot_model(), clock) as engine:
            talk(engine.session("s"), range(3))
        with open_engine(tmp_path, depot_model(), clock) as engine:
            store = engine._memory.store
            assert queue_idle(store, now=clock.now + 9 * MINUTE, idle=10 * MINUTE) == 0
            assert queue_idle(store, now=clock.now + 10 * MINUTE, idle=10 * MINUTE) == 1
            ended = make_mark(engine.session("t").scope, OWN, time=clock.now, has_ended=True)
            engine._memory.ingest(make_turn(1), scope=ended.scope)
            store.add_jobs([ended])
            assert queue_idle(store, now=clock.now, idle=10 * MINUTE) == 1

    def test_an_idle_time_of_zero_waits_for_the_end(self, tmp_path: Path) -> None:
        """Some sessions pause for days."""
        clock = Clock()
        with open_engine(tmp_path, depot_model(), clock, idle=timedelta(0)) as engine:
            talk(engine.session("s"), range(3))
            clock.now += 1000 * HOUR
            assert engine.work() == 0
        with open_engine(tmp_path, depot_model(), clock, idle=timedelta(0)) as engine:
            engine.work()
            assert count_facts(engine.session("s")) == expect(range(3))

    def test_without_extraction_nothing_is_queued(self, tmp_path: Path) -> None:
        """The switch applies to every reason to learn."""
        clock = Clock()
        with open_engine(tmp_path, depot_model(), clock, extraction=False) as engine:
            talk(engine.session("s"), range(16), limit=10_000)
            clock.now += HOUR
            assert engine.work() == 0
        with open_engine(tmp_path, depot_model(), clock, extraction=False) as engine:
            assert engine._memory.store.waiting(OPEN, limit=9) == []
            assert engine._memory.store.waiting(EXTRACT, limit=9) == []

    def test_imported_messages_wait_until_somebody_asks(self, tmp_path: Path) -> None:
        """Nobody has made a request of such a session."""
        clock = Clock()
        model = depot_model()
        with open_engine(tmp_path, model, clock) as engine:
            session = engine.session("s")
            engine._memory.ingest(make_turn(1), scope=session.scope)
            clock.now += HOUR
            assert engine.work() == 0
            assert session.learn() == 2
            engine.work()
            assert count_facts(session) == expect(range(1, 2))


class TestFailures:
    def test_six_hours_without_a_model_lose_nothing(self, tmp_path: Path) -> None:
        """The model is called a few times, the user gets one notice, and all is read when it is back."""
        clock = Clock()
        is_down = True

        def answer(prompt: Prompt) -> Answer:
            return ModelBusyError("overloaded") if is_down else extract_depots(prompt)

        model = depot_model(answer)
        with open_engine(tmp_path, model, clock) as engine:
            session = engine.session("s")
            messages = talk(session, range(20), limit=10_000)
            warnings: list[str] = []
            for minute in range(0, 6 * 60, 3):
                clock.now += 3 * MINUTE
                engine.work()
                if minute % 30 == 0:
                    report = session.assemble([*messages, *make_turn(0)[:1]], limit=10_000).report
                    warnings += [warning for warning in report.warnings if "fact extraction" in warning]
            assert count_facts(session) == Counter()
            assert 3 <= count_extractions(model) <= 14
            assert len(warnings) == 1
            assert "failed 3 times" in warnings[0]
            assert "overloaded" in warnings[0]
            (problem,) = engine.stats().learning.problems
            assert "overloaded" in problem
            is_down = False
            clock.now += HOUR
            engine.work()
            assert count_facts(session) == expect(range(20))
            assert engine.stats().learning.problems == ()

    def test_a_model_that_is_back_reads_before_the_pause_of_others_ends(self, tmp_path: Path) -> None:
        """A request that is refused for its content holds up only its own session."""
        clock = Clock()

        def answer(prompt: Prompt) -> Answer:
            if "d1 " in prompt.messages[-1].text:
                return ModelRefusedError("not this text")
            return extract_depots(prompt)

        with open_engine(tmp_path, depot_model(answer), clock) as engine:
            refused, other = engine.session("refused"), engine.session("other")
            talk(refused, range(1, 2))
            talk(other, range(2, 3))
            for session in (refused, other):
                session.learn()
            for _ in range(5):
                engine.work()
                clock.now += 2 * MINUTE
            assert count_facts(other) == expect(range(2, 3))

    def test_answers_that_cannot_be_used_end_with_the_rules(self, tmp_path: Path) -> None:
        """Each try reads less; only what cannot be read at all is left to the rules, and reported."""
        clock = Clock()

        def answer(prompt: Prompt) -> Answer:
            if "POISON" in prompt.messages[-1].text or "not JSON" in prompt.messages[-1].text:
                return "I would rather not."
            return extract_depots(prompt)

        model = depot_model(answer)
        with open_engine(tmp_path, model, clock) as engine:
            session = engine.session("s")
            poison = [Message(role="user", parts=(Text(text="POISON. Remember that the gate code is kept by Ann."),))]
            messages = talk(session, range(6), limit=200_000)
            session.assemble([*messages, *poison], limit=200_000)
            talk(session, range(6, 12), limit=200_000, history=[*messages, *poison])
            session.learn()
            for _ in range(30):
                engine.work()
                clock.now += 10 * MINUTE
            found = count_facts(session)
            assert expect(range(12)) - found == Counter()
            assert found["Remember that the gate code is kept by Ann."] == 1
            report = session.assemble([*make_turn(0)[:1]], limit=20_000).report
        told = [warning for warning in report.warnings if "read by rules alone" in warning]
        assert len(told) == 1


class TestBudget:
    def test_no_more_calls_an_hour_than_allowed(self, tmp_path: Path) -> None:
        """The rest waits, is reported, and is read in the next hours."""
        clock = Clock()
        clock.now -= clock.now % HOUR
        model = depot_model()
        with open_engine(tmp_path, model, clock, max_calls_per_hour=1) as engine:
            session = engine.session("s")
            archive(session, range(40))
            session.learn()
            calls: list[int] = []
            for _ in range(8):
                before = count_extractions(model)
                for _ in range(6):
                    engine.work()
                    clock.now += 10 * MINUTE - 1
                calls.append(count_extractions(model) - before)
                if len(calls) == 1:
                    report = session.assemble(make_turn(0)[:1], limit=200_000).report
                    assert any("max_calls_per_hour = 1" in warning for warning in report.warnings)
                    assert "max_calls_per_hour" in engine.stats().learning.problems[0]
                clock.now += 6
            assert max(calls) == 1
            assert expect(range(40)) - count_facts(session) == Counter()

    def test_a_limit_is_reported_although_the_model_failed_too(self, tmp_path: Path) -> None:
        """The only call of the hour gave no usable answer, so the model also pauses."""
        with open_engine(tmp_path, lambda _: "not JSON", Clock(), max_calls_per_hour=1) as engine:
            session = engine.session("s")
            archive(session, range(2))
            session.learn()
            engine.work()
            engine.work()
            report = session.assemble(make_turn(0)[:1], limit=200_000).report
        assert any("max_calls_per_hour = 1" in warning for warning in report.warnings)

    def test_no_more_tokens_a_day_than_allowed(self, tmp_path: Path) -> None:
        """The tokens are those that the provider reports; a batch is never larger than a third of them."""
        clock = Clock()
        model = depot_model()
        with open_engine(tmp_path, model, clock, max_tokens_per_day=30_000) as engine:
            session = engine.session("s")
            archive(session, range(40))
            session.learn()
            for _ in range(24 * 8):
                engine.work()
                spent = engine.stats().learning
                assert spent.tokens_today <= 30_000
                clock.now += HOUR
            assert count_facts(session) == expect(range(40))
            assert spent.calls == count_extractions(model)
            assert spent.tokens > 40_000

    def test_zero_is_no_limit(self, tmp_path: Path) -> None:
        """Both limits can be turned off."""
        model = depot_model()
        with open_engine(tmp_path, model, Clock(), max_tokens_per_day=0, max_calls_per_hour=0) as engine:
            session = engine.session("s")
            archive(session, range(40))
            session.learn()
            engine.work()
            assert count_facts(session) == expect(range(40))


class TestWhoReads:
    def test_text_of_a_host_waits_for_the_model_of_hosts(self, tmp_path: Path) -> None:
        """An engine of `holdfast chat` over the same memory has a model, which does not get this text."""
        clock = Clock()
        own, allowed = depot_model(), depot_model(name="scripted/hosts")
        host = Engine(
            open_engine(tmp_path, None, clock)._memory, model=depot_model(), reader=allowed, is_for_hosts=True
        )
        talk(host.session("h"), range(2))
        assert host.session("h").learn() == 4
        with open_engine(tmp_path, own, clock) as chat:
            clock.now += HOUR
            chat.work()
            assert own.prompts == []
            (job,) = chat._memory.store.waiting(EXTRACT, limit=9)
            assert job.data["reader"] == HOSTS
        host.work()
        assert count_facts(host.session("h")) == expect(range(2))
        host.close()

    def test_without_consent_the_rules_read_the_text_of_a_host(self, tmp_path: Path) -> None:
        """The model that writes its summaries does not read it for facts."""
        clock = Clock()
        model = depot_model()
        host = Engine(open_engine(tmp_path, None, clock)._memory, model=model, is_for_hosts=True)
        session = host.session("h")
        session.assemble([{"role": "user", "content": "Remember that the gate is locked at noon."}], limit=20_000)
        clock.now += HOUR
        host.work()
        assert model.prompts == []
        assert [fact.content for fact in session.facts()] == ["Remember that the gate is locked at noon."]
        host.close()

    def test_a_process_without_a_model_leaves_the_work_to_one_that_has(self, tmp_path: Path) -> None:
        """The rules would find less, and the messages would count as read."""
        clock = Clock()
        with open_engine(tmp_path, depot_model(), clock) as engine:
            talk(engine.session("s"), range(3))
        with open_engine(tmp_path, None, clock) as engine:
            engine.work()
            assert count_facts(engine.session("s")) == Counter()
        with open_engine(tmp_path, depot_model(name="another"), clock) as engine:
            engine.work()
            assert count_facts(engine.session("s")) == expect(range(3))

    def test_another_model_does_not_read_again(self, tmp_path: Path) -> None:
        """A user who changes the model does not pay twice."""
        clock = Clock()
        with open_engine(tmp_path, depot_model(), clock) as engine:
            talk(engine.session("s"), range(3))
        other = depot_model(name="other")
        with open_engine(tmp_path, depot_model(), clock) as engine:
            engine.work()
        with open_engine(tmp_path, other, clock) as engine:
            assert engine.session("s").learn() == 0
            assert engine.work() == 0
            assert other.prompts == []

    def test_a_job_of_an_earlier_version_is_read_by_rule(self, tmp_path: Path) -> None:
        """It names messages, but not the model that may read them."""
        clock = Clock()
        model = depot_model()
        with open_engine(tmp_path, model, clock) as engine:
            session = engine.session("s")
            said = [Message(role="user", parts=(Text(text="Remember that the gate is locked at noon."),))]
            numbers = engine._memory.ingest(said, scope=session.scope)
            engine._memory.store.add_jobs([Job(scope=session.scope, kind=EXTRACT, data={"ids": list(numbers)})])
            engine.work()
            assert [fact.content for fact in session.facts()] == ["Remember that the gate is locked at noon."]
            assert model.prompts == []
            assert engine.work() == 0


def work_in_process(folder: Path, reports: Connection) -> None:
    """Do all work in a separate process."""
    with open_engine(folder, depot_model(), Clock()) as engine:
        engine.work()
        reports.send("done")


class TestSeveralProcesses:
    def test_two_engines_read_everything_once(self, tmp_path: Path) -> None:
        """They queue and work at the same time, over one memory."""
        clock = Clock()
        models = [depot_model(), depot_model()]
        with open_engine(tmp_path, models[0], clock) as one, open_engine(tmp_path, models[1], clock) as two:
            for number, engine in enumerate((one, two, one, two)):
                talk(engine.session(f"s{number}"), range(number * 6, number * 6 + 6), limit=10_000)
            clock.now += HOUR
            threads = [Thread(target=engine.work) for engine in (one, two) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            one.work()
            assert count_facts(one.session("s0")) == expect(range(24))

    def test_two_processes_read_everything_once(self, tmp_path: Path) -> None:
        """They are real processes that begin at the same time."""
        with open_engine(tmp_path, depot_model(), Clock()) as engine:
            for name in ("a", "b"):
                first = 30 * (name == "b")
                messages = [message for number in range(first, first + 30) for message in make_turn(number)]
                engine._memory.ingest(messages, scope=engine.session(name).scope)
                engine.session(name).learn()
        with ExitStack() as stack:
            pipes = [stack.enter_context(child(work_in_process, tmp_path))[1] for _ in range(2)]
            for pipe in pipes:
                assert pipe.poll(PATIENCE)
                assert pipe.recv() == "done"
        with open_engine(tmp_path, None, Clock()) as engine:
            assert count_facts(engine.session("a")) == expect(range(60))
            assert engine._memory.store.waiting(EXTRACT, limit=9) == []

    def test_a_batch_that_another_process_has_stored_is_dropped(self, tmp_path: Path) -> None:
        """This holds even if both have called their models for it."""
        clock = Clock()
        with open_engine(tmp_path, depot_model(), clock) as other:

            def answer(prompt: Prompt) -> Answer:
                if not count_facts(other.session("s")):
                    (job,) = other._memory.store.waiting(EXTRACT, limit=9)
                    run_job(other._memory, job, model=depot_model())
                return extract_depots(prompt)

            with open_engine(tmp_path, depot_model(answer), clock) as engine:
                talk(engine.session("s"), range(3))
                engine.session("s").learn()
                engine.work()
                assert count_facts(engine.session("s")) == expect(range(3))


class TestForgottenAndRecalled:
    def test_forgotten_messages_are_never_read(self, tmp_path: Path) -> None:
        """They are not read before the work begins, nor stored if they are forgotten while a model reads them."""
        clock = Clock()
        seen: list[str] = []
        with open_engine(tmp_path, None, clock) as other:

            def answer(prompt: Prompt) -> Answer:
                seen.append(prompt.messages[-1].text)
                if len(seen) == 1:
                    rows = other.session("s").messages()
                    other.session("s").forget([row.id for row in rows if "d3 " in row.message.text])
                return extract_depots(prompt)

            with open_engine(tmp_path, depot_model(answer), clock) as engine:
                session = engine.session("s")
                archive(session, range(6))
                rows = session.messages()
                session.forget([row.id for row in rows if "d2 " in row.message.text])
                session.learn()
                engine.work()
                assert not any("d2 " in text for text in seen)
                found = count_facts(session)
        assert found == expect(range(6)) - Counter([state(2).rstrip("."), state(3).rstrip("。")])

    def test_a_forgotten_session_leaves_no_work(self, tmp_path: Path) -> None:
        """Its jobs and marks are removed with it."""
        clock = Clock()
        model = depot_model()
        with open_engine(tmp_path, model, clock) as engine:
            session = engine.session("s")
            talk(session, range(20), limit=10_000)
            session.forget()
            clock.now += HOUR
            engine.work()
            assert model.prompts == []
            assert count_facts(session) == Counter()

    def test_recalled_text_is_not_learned_from(self, tmp_path: Path) -> None:
        """A block that comes back in the client's history proves nothing."""
        clock = Clock()
        model = depot_model()
        with open_engine(tmp_path, model, clock, recalls=True) as engine:
            engine.session("a").remember("Depot d7 closes at 00:07")
            session = engine.session("b")
            question = Message(role="user", parts=(Text(text="Until when is depot d7 open, when does it close?"),))
            window = session.assemble([question], limit=20_000)
            sent = window.messages[-1]
            assert "00:07" in sent.text
            answer = Message(role="assistant", parts=(Text(text="Let me look."),))
            session.assemble([sent, answer, *make_turn(1)[:1]], limit=20_000)
            clock.now += HOUR
            engine.work()
            assert not any("00:07" in prompt.messages[-1].text for prompt in model.prompts)
            assert count_facts(session)["Depot d1 closes at 00:01"] == 1


class TestSmallBudgets:
    @pytest.mark.parametrize("tokens", [4_000, 5_000])
    def test_a_small_budget_reads_something_every_day(self, tmp_path: Path, tokens: int) -> None:
        """Calls are made small enough for it."""
        clock = Clock()
        model = depot_model()
        with open_engine(tmp_path, model, clock, max_tokens_per_day=tokens) as engine:
            session = engine.session("s")
            engine._memory.ingest(
                [Message(role="user", parts=(Text(text=state(number)),)) for number in range(12)], scope=session.scope
            )
            session.learn()
            for _ in range(6 * 24):
                engine.work()
                assert engine.stats().learning.tokens_today <= tokens
                clock.now += HOUR
            assert count_facts(session) == expect(range(12))

    def test_a_budget_below_one_call_is_said_plainly(self, tmp_path: Path) -> None:
        """The report and the statistics say so, and how to fix it."""
        clock = Clock()
        model = depot_model()
        with open_engine(tmp_path, model, clock, max_tokens_per_day=1_000) as engine:
            session = engine.session("s")
            talk(session, range(2))
            session.learn()
            engine.work()
            expected = "a call needs about 2,000 tokens, more than knowledge.max_tokens_per_day = 1,000: raise it"
            report = session.assemble(make_turn(0)[:1], limit=20_000).report
            assert any(expected in warning for warning in report.warnings)
            assert any(expected in problem for problem in engine.stats().learning.problems)
            assert model.prompts == []

    def test_what_stops_a_call_is_what_the_statistics_say(self, tmp_path: Path) -> None:
        """If no call was made although work waits, there is a reason; otherwise there is none."""
        clock = Clock()
        model = depot_model()
        with open_engine(tmp_path, model, clock, max_tokens_per_day=9_000) as engine:
            session = engine.session("s")
            archive(session, range(12))
            session.learn()
            for _ in range(48):
                before = len(model.prompts)
                problems = engine.stats().learning.problems
                waits = engine.stats().learning.waiting
                engine.work()
                has_read = len(model.prompts) > before
                assert not waits or has_read != bool(problems)
                clock.now += HOUR

    def test_a_limit_that_no_longer_holds_is_not_reported(self, tmp_path: Path) -> None:
        """Everything was read before the next request."""
        clock = Clock()
        clock.now -= clock.now % HOUR
        with open_engine(tmp_path, depot_model(), clock, max_calls_per_hour=1) as engine:
            session = engine.session("s")
            archive(session, range(20))
            session.learn()
            for _ in range(5):
                engine.work()
                clock.now += HOUR
            assert count_facts(session) == expect(range(20))
            report = session.assemble(make_turn(0)[:1], limit=200_000).report
            assert not any("fact extraction" in warning for warning in report.warnings)

    def test_each_request_is_counted(self, tmp_path: Path) -> None:
        """A model that fails is not called again without being counted."""
        clock = Clock()
        inner = depot_model(lambda _: ModelBusyError("overloaded"))
        other = depot_model(lambda _: ModelBusyError("overloaded"), name="other")
        model = Fallback([Retrying(model=inner), Retrying(model=other)])
        with Engine.open(
            tmp_path,
            settings=Settings(embedding=Embedding(provider="none")),
            model=model,
            background=False,
            clock=clock,
            auto="off",
        ) as engine:
            talk(engine.session("s"), range(1))
            engine.session("s").learn()
            engine.work()
            assert len(inner.prompts) == 1
            assert engine.stats().learning.calls == len(inner.prompts) + len(other.prompts) == 2


class TestNonsense:
    def test_a_model_that_answers_nonsense_costs_few_calls_and_reads_all_once_repaired(self, tmp_path: Path) -> None:
        """It counts as a failing model: it is called less and less often, and nothing is lost."""
        clock = Clock()
        is_broken = True

        def answer(prompt: Prompt) -> Answer:
            return "I would rather not." if is_broken else extract_depots(prompt)

        model = depot_model(answer)
        with open_engine(tmp_path, model, clock) as engine:
            session = engine.session("s")
            archive(session, range(23))
            session.learn()
            for _ in range(60):
                engine.work()
                clock.now += MINUTE
            assert len(model.prompts) <= 12
            assert "not JSON" in engine.stats().learning.problems[0]
            is_broken = False
            for _ in range(10):
                clock.now += HOUR
                engine.work()
            missing = expect(range(23)) - count_facts(session)
            assert missing.total() <= 1
            assert engine.stats().learning.problems == ()

    def test_failures_are_counted_until_an_answer_can_be_used(self, tmp_path: Path) -> None:
        """A session with nothing to ask about is not a success."""
        clock = Clock()
        model = depot_model(lambda _: ModelBusyError("overloaded"))
        with open_engine(tmp_path, model, clock) as engine:
            session = engine.session("s")
            talk(session, range(3))
            session.learn()
            for number in range(90):
                if number % 20 == 0:
                    noise = engine.session(f"noise {number}")
                    engine._memory.ingest([Message(role="user", parts=(Text(text="ok"),))], scope=noise.scope)
                    noise.learn()
                engine.work()
                clock.now += MINUTE
            (problem,) = engine.stats().learning.problems
            assert "failed 6 times in a row" in problem or "failed 7 times in a row" in problem


class TestAModelThatIsAddedLater:
    def test_it_reads_what_an_engine_without_one_left(self, tmp_path: Path) -> None:
        """The session may only be marked, or its messages may be queued already."""
        clock = Clock()
        with open_engine(tmp_path, None, clock) as engine:
            engine.session("marked").append(make_turn(1))
            engine.session("queued").append(make_turn(2))
            engine.session("queued").learn()
        with open_engine(tmp_path, depot_model(), clock) as engine:
            engine.work()
            assert count_facts(engine.session("marked")) == expect(range(1, 3))

    def test_it_does_not_read_sessions_of_hosts_without_consent(self, tmp_path: Path) -> None:
        """The user was not asked about these."""
        clock = Clock()
        with open_engine(tmp_path, None, clock, hosts=True) as engine:
            engine.session("h").append(make_turn(1))
        model = depot_model()
        with open_engine(tmp_path, model, clock) as engine:
            clock.now += HOUR
            engine.work()
            assert model.prompts == []


class TestWhatTheStatisticsSay:
    def test_work_that_waits_for_a_model_says_so(self, tmp_path: Path) -> None:
        """A process without one cannot do it."""
        clock = Clock()
        with open_engine(tmp_path, depot_model(), clock) as engine:
            talk(engine.session("s"), range(2))
            engine.session("s").learn()
            assert engine.stats().learning.problems == ()
        with open_engine(tmp_path, None, clock) as engine:
            (problem,) = engine.stats().learning.problems
            assert "waits for a model, with 1 session to read: set knowledge.model" in problem

    def test_a_session_that_was_read_is_not_in_use(self, tmp_path: Path) -> None:
        """It does not matter who read it; a session that was left long ago is waiting."""
        clock = Clock()
        with open_engine(tmp_path, depot_model(), clock) as engine:
            session = engine.session("s")
            talk(session, range(2))
            assert (engine.stats().learning.waiting, engine.stats().learning.in_use) == (0, 1)
            clock.now += HOUR
            assert (engine.stats().learning.waiting, engine.stats().learning.in_use) == (1, 0)
            session.learn()
            while engine._extract_next():
                pass
            assert (engine.stats().learning.waiting, engine.stats().learning.in_use) == (0, 0)
