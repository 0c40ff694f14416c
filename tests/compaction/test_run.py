"""Compacting a session through the engine."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from threading import enumerate as enumerate_threads
from typing import Any

import pytest

from holdfast.compaction.events import Compacted, Compacting, Hooks, SummaryRequest
from holdfast.engine import Engine
from holdfast.errors import CompactionError, InputError, ModelBusyError, ModelCancelledError, WindowTooSmallError
from holdfast.models.retry import Retrying
from holdfast.models.scripted import Scripted
from holdfast.providers import check
from holdfast.settings import Embedding, Knowledge, Settings
from holdfast.store.base import Scope, Select
from support.conversations import answer, call, reply, results, system, tool_conversation, user
from support.waiting import PATIENCE, UNHURRIED

QUIET = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
LIMIT = 20_000
SUMMARY = "## Goal\nMove the staging database.\n\n## Key facts\nIt listens on port 6543; see /etc/pg/staging.conf.\n"


def open_engine(path: Path, model: Scripted | None = None, **more: Any) -> Engine:
    """An engine without a thread."""
    return Engine.open(path, settings=more.pop("settings", QUIET), model=model, background=False, **more)


class TestCompact:
    def test_a_function_writes_one_summary(self, tmp_path: Path) -> None:
        """A model for one compaction is given as one for the engine is."""
        with open_engine(tmp_path) as engine:
            done = engine.session("s").compact(
                tool_conversation(30), limit=LIMIT, model=lambda _: "Every module was read."
            )
            with pytest.raises(InputError, match="expected a name, a Model or a function"):
                engine.session("s").compact(limit=LIMIT, model=7)  # type: ignore[arg-type]
        assert done.summary is not None
        assert "Every module was read." in done.summary.text

    def test_a_summary_replaces_old_messages(self, tmp_path: Path) -> None:
        """The next window begins with the summary and keeps what is recent; every provider would take it."""
        with open_engine(tmp_path) as engine:
            conversation = tool_conversation(30)
            before = engine.session("s").assemble(conversation, limit=LIMIT)
            done = engine.session("s").compact(limit=LIMIT)
            after = engine.session("s").assemble([*conversation, user("Go on.")], limit=LIMIT)
        assert done.summary is not None
        assert done.tokens_after < done.tokens_before
        assert after.items[1].kind == "summary"
        assert done.summary.framed in after.items[1].message.text
        assert len(after.items) < len(before.items)
        for provider in ("anthropic", "openai_chat", "openai_responses"):
            assert check(after.render(provider), provider) == []

    def test_nothing_is_lost(self, tmp_path: Path) -> None:
        """Every compacted message can be had back word for word, and what is asked for is recalled."""
        with open_engine(tmp_path, Scripted(lambda _: "ok, all done")) as engine:
            conversation = tool_conversation(30)
            engine.session("s").assemble(conversation, limit=LIMIT)
            done = engine.session("s").compact(limit=LIMIT)
            rows = engine.session("s").get(done.plan.ids)
            assert [row.message.text for row in rows] == [item.message.text for item in done.plan.summarised]
            conversation += [user("Which port does the staging database listen on?")]
            assert "6543" in str(engine.session("s").assemble(conversation, limit=LIMIT).render()[-1])

    def test_what_was_trimmed_is_in_the_summary_too(self, tmp_path: Path) -> None:
        """A compaction is about everything since the last one; only what is recent comes back after it."""
        with open_engine(tmp_path) as engine:
            conversation = tool_conversation(40)
            cut = engine.session("s").assemble(conversation, limit=LIMIT).report.changes
            gone = {number for change in cut if change.kind == "trimmed" for number in change.ids}
            assert gone
            done = engine.session("s").compact(limit=LIMIT)
            recent = {item.id for item in done.plan.kept}
            assert gone - recent
            assert gone - recent <= set(done.plan.ids)
            after = engine.session("s").assemble([*conversation, user("Go on.")], limit=LIMIT)
            assert (gone - recent).isdisjoint(item.id for item in after.items)

    def test_it_is_sticky_and_another_process_sees_it(self, tmp_path: Path) -> None:
        """A client that sends its whole history again gets the summary again, from whatever process."""
        conversation = [*tool_conversation(20), user("Go on.")]
        with open_engine(tmp_path) as engine:
            engine.session("s").compact(conversation, limit=LIMIT)
            first = engine.session("s").assemble(conversation, limit=LIMIT).render()
        with open_engine(tmp_path) as engine:
            assert engine.session("s").assemble(conversation, limit=LIMIT).render() == first

    def test_one_after_the_other(self, tmp_path: Path) -> None:
        """A second compaction takes the first summary over; there is one summary at a time."""
        with open_engine(tmp_path) as engine:
            conversation = tool_conversation(20)
            engine.session("s").compact(conversation, limit=LIMIT)
            conversation += tool_conversation(40)[3:]
            second = engine.session("s").compact(conversation, limit=LIMIT)
            items = engine.session("s").assemble(conversation, limit=LIMIT).items
        assert second.plan.previous
        assert [item.kind for item in items].count("summary") == 1

    def test_the_model_writes_the_summary_with_the_instructions(self, tmp_path: Path) -> None:
        """A model is asked where there is one, and hears what to look out for."""
        model = Scripted(lambda _: SUMMARY)
        with open_engine(tmp_path, model) as engine:
            done = engine.session("s").compact(tool_conversation(20), limit=LIMIT, instructions="Mind the ports")
        assert done.summary is not None
        assert done.summary.rung == "full"
        assert "6543" in done.summary.text
        assert any("Mind the ports" in message.text for prompt in model.prompts for message in prompt.messages)
        assert done.to_json()["calls"] == done.summary.calls > 0

    def test_nothing_to_do_is_reported(self, tmp_path: Path) -> None:
        """A conversation that is all recent is not compacted, and says so; a dry run changes nothing."""
        with open_engine(tmp_path) as engine:
            with pytest.raises(CompactionError, match="nothing to compact"):
                engine.session("s").compact([user("Hello.")], limit=LIMIT)
            dry = engine.session("t").compact(tool_conversation(20), limit=LIMIT, dry_run=True)
            assert dry.plan.outcome == "ready"
            assert dry.summary is None
            assert dry.to_json()["summarised"] == len(dry.plan.summarised)
            assert engine._memory.store.read_records(Select(scope=Scope(session="t")), kind="edit") == []

    def test_called_off_nothing_has_changed(self, tmp_path: Path) -> None:
        """A compaction that is cancelled leaves the session as it was."""
        cancel = Event()
        cancel.set()
        with open_engine(tmp_path, Scripted(lambda _: SUMMARY)) as engine:
            conversation = tool_conversation(20)
            with pytest.raises(ModelCancelledError):
                engine.session("s").compact(conversation, limit=LIMIT, cancel=cancel)
            assert all(item.kind != "summary" for item in engine.session("s").assemble(conversation, limit=LIMIT).items)

    def test_a_patient_model_is_not_asked_with_double_patience(self, tmp_path: Path) -> None:
        """Retries of a model that retries by itself are not multiplied; the digest takes over."""

        def busy(_: object) -> str:
            raise ModelBusyError("busy", model="scripted", retry_after=0)

        model = Scripted(busy)
        cancel = Event()
        with Engine.open(
            tmp_path, settings=QUIET, model=Retrying(model=model, attempts=50), background=False
        ) as engine:
            done = engine.session("s").compact(tool_conversation(20), limit=LIMIT, cancel=cancel)
        assert done.summary is not None
        assert done.summary.rung == "digest"
        assert len(model.prompts) <= 3


class TestSecrets:
    def test_no_summary_rests_with_one(self, tmp_path: Path) -> None:
        """A summary is told of what was said, and written down without its secrets; so are the instructions."""
        key = "AKIAQ3EGRLWM5N7PXJ2K"
        with open_engine(tmp_path) as engine:
            conversation = [
                system(),
                user(f"Remember: the access key is {key}, the port 6543."),
                *tool_conversation(20)[2:],
            ]
            done = engine.session("s").compact(conversation, limit=LIMIT, instructions=f"Mind {key}.")
            window = engine.session("s").assemble([*conversation, user("Go on.")], limit=LIMIT)
        assert done.summary is not None
        assert "[REDACTED:aws-access-key]" in done.summary.framed
        assert done.summary.tokens == next(item.tokens for item in window.items if item.kind == "summary")
        assert not any(key.encode() in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


class TestHooks:
    def test_one_that_fails_to_summarise_is_skipped(self, tmp_path: Path) -> None:
        """The engine tells it then, and the warning says whose fault it was."""

        def broken(_: SummaryRequest) -> str:
            raise ValueError("no")

        with open_engine(tmp_path, hooks=Hooks(summary=broken)) as engine:
            done = engine.session("s").compact(tool_conversation(20), limit=LIMIT)
        assert done.summary is not None
        assert done.warnings[0] == "hook broken: ValueError('no')"

    def test_one_that_hangs_delays_nothing_and_does_not_keep_the_program_from_ending(self, tmp_path: Path) -> None:
        """Nothing waits for it while history is compacted, and its thread is a daemon."""
        release, ended = Event(), Event()

        def hang(_: object) -> None:
            release.wait()
            ended.set()

        with open_engine(tmp_path, hooks=Hooks(listeners=[hang])) as engine:
            engine.session("s").compact(tool_conversation(20), limit=LIMIT)
            assert not ended.is_set()
            assert all(thread.daemon for thread in enumerate_threads() if thread.name == "holdfast-hook")
            release.set()

    def test_listeners_hear_of_it_and_cannot_harm_it(self, tmp_path: Path) -> None:
        """They are told before and after; one that fails is only reported."""
        heard: list[Compacting | Compacted] = []

        def broken(_: object) -> None:
            raise RuntimeError("no")

        with open_engine(tmp_path, hooks=Hooks(listeners=(heard.append, broken))) as engine:
            done = engine.session("s").compact(tool_conversation(20), limit=LIMIT)
            engine.hooks.wait(PATIENCE)
            window = engine.session("s").assemble([*tool_conversation(20), user("Go on.")], limit=LIMIT)
        before, after = heard
        assert isinstance(before, Compacting)
        assert isinstance(after, Compacted)
        assert after.tokens_after == done.tokens_after < after.tokens_before == before.tokens
        assert window.report.warnings.count("hook broken: RuntimeError('no')") == 1  # said once for both events

    def test_a_hook_may_write_the_summary(self, tmp_path: Path) -> None:
        """What the extension point returns is the summary, unless it is longer than what it stands for."""

        def told(request: SummaryRequest) -> str:
            return f"{len(request.plan.summarised)} messages about modules."

        with open_engine(tmp_path / "a", hooks=Hooks(summary=told)) as engine:
            done = engine.session("s").compact(tool_conversation(20), limit=LIMIT)
            assert done.summary is not None
            assert done.summary.text == f"{len(done.plan.summarised)} messages about modules."
        with open_engine(tmp_path / "b", hooks=Hooks(summary=lambda _: " ")) as engine:
            done = engine.session("s").compact(tool_conversation(20), limit=LIMIT)
            assert done.summary is not None
            assert done.summary.rung == "digest"
        with (
            open_engine(tmp_path / "c", hooks=Hooks(summary=lambda _: "x" * 10**6)) as engine,
            pytest.raises(CompactionError, match="longer than the messages it replaces"),
        ):
            engine.session("s").compact(tool_conversation(20), limit=LIMIT)


class TestLearning:
    def test_facts_are_read_out_of_what_was_compacted(self, tmp_path: Path) -> None:
        """The work is queued with the compaction, survives the process, and is done once."""
        with open_engine(tmp_path) as engine:
            engine.session("s").compact(tool_conversation(20), limit=LIMIT)
        with open_engine(tmp_path) as engine:
            assert engine.session("s").facts() == []
            assert engine.work() > 0
            facts = engine.session("s").facts()
            assert any("6543" in fact.content for fact in facts)
            assert engine.work() == 0
            assert engine.session("s").learn() > 0  # what the compaction kept
            engine.work()
            assert engine.session("s").learn() == 0
            assert engine.session("s").facts() == facts

    def test_it_can_be_switched_off(self, tmp_path: Path) -> None:
        """Without extraction nothing is queued."""
        off = Settings(embedding=Embedding(provider="none"), knowledge=Knowledge(extraction=False))
        with open_engine(tmp_path, settings=off) as engine:
            engine.session("s").compact(tool_conversation(20), limit=LIMIT)
            assert engine.work() == 0


class TestSize:
    def test_it_is_what_is_sent(self, tmp_path: Path) -> None:
        """What was trimmed no longer counts, what is new does, and a compaction makes it smaller."""
        with open_engine(tmp_path) as engine:
            conversation = tool_conversation(40)
            sent = engine.session("s").assemble(conversation, limit=LIMIT)
            assert any(change.kind == "trimmed" for change in sent.report.changes)
            assert engine.session("s").count_tokens(limit=LIMIT) == sent.tokens
            grown = engine.session("s").count_tokens([*conversation, user("more words " * 300)], limit=LIMIT)
            assert grown > sent.tokens + 500
            engine.session("s").compact(limit=LIMIT)
            assert engine.session("s").count_tokens(limit=LIMIT) < grown
            assert [edit.kind for edit in engine.session("s").edits()][-1] == "compacted"


def requirements(language: str) -> str:
    """A request of 120 numbered requirements, far longer than what a summary quotes of one."""
    if language == "Chinese":
        return "请实现以下要求:\n" + "\n".join(
            f"要求 {n}:模块{n}必须返回代码 R{n:03d},不得修改测试。" for n in range(120)
        )
    return "Implement these:\n" + "\n".join(
        f"Requirement {n}: module {n} must return code R{n:03d} and leave the tests alone." for n in range(120)
    )


class TestRunningTurn:
    @pytest.mark.variants(first=True)
    @pytest.mark.parametrize("language", ["English", "Chinese"])
    def test_the_request_is_whole_through_compactions_in_its_tool_loop(self, tmp_path: Path, language: str) -> None:
        """Growing call by call, every window holds all 120 requirements, however often it was compacted."""
        asked = requirements(language)
        conversation = [*tool_conversation(6), user(asked)]
        compactions = 0
        with open_engine(tmp_path) as engine:
            for step in range(20):
                conversation += [
                    reply(f"Module {step}.", call(f"k{step}", command=f"cat src/m{step}.py")),
                    results(answer(f"k{step}", f"line of module {step}\n" * 300)),
                ]
                sent = engine.session("s").assemble(conversation, limit=32_000)
                if engine.session("s").count_tokens(limit=32_000) > 17_000:
                    engine.session("s").compact(limit=32_000)
                    compactions += 1
                    sent = engine.session("s").assemble(conversation, limit=32_000)
                window = [message.text for message in sent.messages]
                assert sum(asked in text for text in window) == 1
                assert check(sent.render("anthropic"), "anthropic") == []
        assert compactions >= 3

    def test_a_request_is_summarised_with_its_turn_when_that_is_over(self, tmp_path: Path) -> None:
        """Once it is answered it is history like any other."""
        asked = requirements("English")
        conversation = [
            *tool_conversation(2),
            user(asked),
            reply("All done. " + "module " * 3_000),
            *tool_conversation(12)[3:],
        ]
        with open_engine(tmp_path) as engine:
            engine.session("s").compact(conversation, limit=LIMIT)
            sent = engine.session("s").assemble(conversation, limit=LIMIT)
        assert all(asked not in message.text for message in sent.messages)

    def test_a_request_that_cannot_fit_is_a_typed_error(self, tmp_path: Path) -> None:
        """Nothing is cut from it in silence."""
        conversation = [*tool_conversation(6), user(requirements("English") * 8)]
        for step in range(4):
            conversation += [reply("Looking.", call(f"k{step}")), results(answer(f"k{step}", "line\n" * 100))]
        with open_engine(tmp_path) as engine:
            engine.session("s").compact(conversation, limit=16_000)
            with pytest.raises(WindowTooSmallError):
                engine.session("s").assemble(conversation, limit=16_000)


def test_a_summary_of_a_summary_has_every_list_once(tmp_path: Path) -> None:
    """The lists below a summary are written again each time, also where the model says nothing and turns are split."""
    settings = Settings(embedding=Embedding(provider="none"))
    with Engine.open(
        tmp_path, model=lambda _: "Various things were done.", settings=settings, background=False
    ) as engine:
        session, conversation = engine.session("s"), list[dict[str, Any]]()
        for turn in range(24):
            file = {"name": "read_file", "arguments": f'{{"path": "src/mod{turn}.py"}}'}
            conversation += [
                {"role": "user", "content": f"Turn {turn}: read module {turn} please and go on."},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": f"c{turn}", "type": "function", "function": file}],
                },
                {"role": "tool", "tool_call_id": f"c{turn}", "content": f"value_{turn} = compute()\n" * 150},
                {"role": "assistant", "content": f"Module {turn} is done."},
            ]
            session.assemble(conversation, limit=16_000, provider="openai_chat")
            if turn % 4 == 3:
                made = session.compact(limit=16_000).summary
                assert made is not None
                text = made.text
                files = text.partition("<read-files>\n")[2].partition("\n</read-files>")[0].splitlines()
                assert all(line.startswith("src/mod") for line in files)
                counts = [text.count(word) for word in ("## Recent Turns", "<read-files>", "</read-files>", "Archive:")]
                assert counts == [1, 1, 1, 1]
                assert text.count("Various things") <= 3
