"""Compaction and learning by the engine itself, for programs that only assemble and ingest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event as Signal
from threading import Thread
from typing import Any

import pytest

from holdfast.compaction.events import Hooks
from holdfast.engine import Engine
from holdfast.models.base import Prompt
from holdfast.models.scripted import Scripted
from holdfast.providers import check, read
from holdfast.report import Window
from holdfast.settings import Compaction, Embedding, MemoryFlush, Recall, Settings
from holdfast.tokens import count_messages
from support.waiting import PATIENCE, until

LIMIT = 16_000
NO_QUESTIONS = Recall(min_query_chars=10**6)
"""Trimming as with recall, without its searches, which would be most of a turn."""
EARLY = MemoryFlush(soft_threshold=0.4)
"""Compaction is due long before anything is trimmed, however late the thread of the engine comes to it."""
SUMMARY = "## Goal\nLook at every module.\n"
FACTS = '{"facts": []}'


def settings(**compaction: Any) -> Settings:
    """Return settings for search by words alone, with these of compaction."""
    return Settings(embedding=Embedding(provider="none"), recall=NO_QUESTIONS, compaction=Compaction(**compaction))


def make_message(role: str, text: str) -> dict[str, str]:
    """Return a message as a client sends it."""
    return {"role": role, "content": text}


def turns(count: int, *, language: str = "English") -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Return questions and answers of about 1,300 tokens, with a fact in the first."""
    for turn in range(count):
        if language == "Chinese":
            asked, answered = (
                f"第{turn}步:请检查模块{turn}。" + f"细节{turn}," * 160,
                f"模块{turn}没有问题。" + "很好," * 200,
            )
        else:
            asked = f"Step {turn}: please look at module {turn}. " + f"detail{turn} " * 220
            answered = f"Module {turn} is fine. " + f"change{turn} " * 220
        fact = "Decision: use PostgreSQL 16 for the billing service. " if turn == 0 else ""
        yield make_message("user", fact + asked), make_message("assistant", answered)


def talk_to(engine: Engine, count: int, *, ingest: bool = True, work: bool = False, **named: Any) -> list[Window]:
    """Have a conversation as a program does: assemble, ask, append the reply."""
    history: list[dict[str, str]] = []
    windows = []
    for asked, answered in turns(count, **named):
        history.append(asked)
        windows.append(engine.session("s").assemble(history, limit=LIMIT))
        assert check(windows[-1].render("openai_chat"), "openai_chat") == []
        assert windows[-1].render("openai_chat")[-1]["content"].startswith(asked["content"])
        history.append(answered)
        if ingest:
            engine.session("s").append([answered])
        if work:
            engine.work()
    return windows


def compactions(engine: Engine) -> int:
    """Count the recorded compactions."""
    return sum(edit.kind == "compacted" for edit in engine.session("s").edits())


class TestModes:
    @pytest.mark.variants(first=True)
    @pytest.mark.parametrize(("language", "ingest"), [("English", True), ("Chinese", False)])
    def test_inline_without_a_model_a_digest_is_made(self, tmp_path: Path, *, ingest: bool, language: str) -> None:
        """It is made by rule after the reply, or with the next request if replies are not appended."""
        with Engine.open(tmp_path, settings=settings(auto="inline"), background=False) as engine:
            windows = talk_to(engine, 23, ingest=ingest, language=language)
            assert compactions(engine) >= 2
            shown = [change for window in windows for change in window.report.changes if change.kind == "compacted"]
            assert compactions(engine) - len(shown) in {0, 1}  # one after the last reply is not shown yet
            assert all(change.tokens_after < change.tokens_before for change in shown)
            assert max(window.report.total_tokens for window in windows) <= 12_000
            engine.work()
            assert language == "Chinese" or any("PostgreSQL" in fact.content for fact in engine.session("s").facts())

    def test_in_the_background_a_model_summarises(self, tmp_path: Path) -> None:
        """With a model no setting is needed: the engine's thread compacts after the reply."""
        model = Scripted(lambda _: SUMMARY)
        with Engine.open(tmp_path, settings=settings(), model=model) as engine:
            history: list[dict[str, str]] = []
            for asked, answered in turns(15):
                history.append(asked)
                engine.session("s").assemble(history, limit=LIMIT)
                history.append(answered)
                engine.session("s").append([answered])
                # Requests that come faster than the background works trim the window, so that nothing is to be done.
                until(lambda: not engine._due)
            until(lambda: compactions(engine))
            recorded = compactions(engine)
            last = engine.session("s").assemble([*history, make_message("user", "Go on.")], limit=LIMIT)
            assert "Look at every module." in last.messages[0].text
            kinds = [change.kind for turn in engine.session("s").timeline() for change in turn.changes]
            assert kinds.count("compacted") >= recorded  # one may be recorded meanwhile

    def test_in_the_background_without_a_model_only_when_it_is_set(self, tmp_path: Path) -> None:
        """The thread makes the digest, or `work` does if there is no thread."""
        with Engine.open(tmp_path / "a", settings=settings(auto="background"), background=False) as engine:
            talk_to(engine, 15)
            assert compactions(engine) == 0
        with Engine.open(tmp_path / "b", settings=settings(auto="background"), background=False) as engine:
            talk_to(engine, 15, work=True)
            assert compactions(engine) >= 1
        with Engine.open(tmp_path / "c", settings=settings(), background=False) as engine:
            talk_to(engine, 15, work=True)
            assert compactions(engine) == 0

    @pytest.mark.variants(first=True)
    @pytest.mark.parametrize("off", [{"auto": "off"}, {"enabled": False}])
    def test_it_can_be_switched_off(self, tmp_path: Path, off: dict[str, Any]) -> None:
        """Then windows are trimmed, and no model is called."""
        model = Scripted(lambda _: SUMMARY)
        with Engine.open(tmp_path, settings=settings(**off), model=model, background=False) as engine:
            windows = talk_to(engine, 20)
            engine.work()
            assert compactions(engine) == 0
            assert all(prompt.schema is not None for prompt in model.prompts)  # facts are read all the same
            assert any(change.kind == "trimmed" for window in windows for change in window.report.changes)

    def test_a_window_that_trimming_keeps_small_is_not_compacted(self, tmp_path: Path) -> None:
        """The window that is sent counts, not the whole history."""
        history: list[dict[str, str]] = []
        with Engine.open(tmp_path, settings=settings(auto="off"), background=False) as engine:
            for asked, answered in turns(60):
                history.append(asked)
                report = engine.session("s").assemble(history, limit=LIMIT).report
                history.append(answered)
                if len(history) > 30 and any(change.kind == "trimmed" for change in report.changes):
                    break
        assert count_messages(read(history)) > LIMIT
        with Engine.open(tmp_path, settings=settings(auto="inline"), background=False) as engine:
            sent = engine.session("s").assemble([*history, make_message("user", "Go on.")], limit=LIMIT)
            assert sent.report.total_tokens < 10_000
            assert compactions(engine) == 0

    def test_listeners_hear_of_it_before_and_after(self, tmp_path: Path) -> None:
        """They can write notes before history is compacted."""
        heard: list[str] = []
        hooks = Hooks(listeners=[lambda event: heard.append(type(event).__name__)])
        with Engine.open(tmp_path, settings=settings(auto="inline"), hooks=hooks, background=False) as engine:
            talk_to(engine, 15)
            hooks.wait(PATIENCE)
            assert compactions(engine) > 0
            assert heard == ["Compacting", "Compacted"] * compactions(engine)


class TestTrouble:
    def test_a_hook_that_fails_is_reported_with_the_next_request(self, tmp_path: Path) -> None:
        """Nothing is blocked, and the report gives the reason."""

        def summary(_: object) -> str:
            return "words " * 60_000  # longer than what it would stand for

        with Engine.open(
            tmp_path, settings=settings(auto="inline"), hooks=Hooks(summary=summary), background=False
        ) as engine:
            windows = talk_to(engine, 15)
            assert compactions(engine) == 0
        received = [warning for window in windows for warning in window.report.warnings]
        assert any("is longer than the messages it replaces" in warning for warning in received)
        assert len(received) <= 4  # it is not tried again with every message


class Slow(Scripted):
    """A model that waits until it is allowed to answer."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.asked, self.go = Signal(), Signal()

    def _answer(self, prompt: Prompt) -> str:
        self.asked.set()
        assert self.go.wait(PATIENCE)
        return SUMMARY if "fact" not in prompt.messages[0].text[:200] else FACTS


class TestConcurrency:
    def test_requests_continue_while_a_summary_is_made(self, tmp_path: Path) -> None:
        """Any thread assembles windows meanwhile; new messages come after the summary, and nothing appears twice."""
        model = Slow()
        with Engine.open(tmp_path, settings=settings(memory_flush=EARLY), model=model) as engine:
            history = [message for turn in turns(8) for message in turn]
            for stop in range(1, len(history), 2):
                engine.session("s").assemble(history[:stop], limit=LIMIT)
            engine.session("s").append(history[-1:])
            assert model.asked.wait(PATIENCE)
            more = [message for turn in turns(12) for message in turn][len(history) :]
            together: list[Window] = []

            def ask() -> None:
                together.extend(
                    engine.session("s").assemble([*history, *more[:stop]], limit=LIMIT)
                    for stop in range(1, len(more), 2)
                )

            threads = [Thread(target=ask) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert all(window.messages[-1].role == "user" for window in together)
            assert compactions(engine) == 0
            model.go.set()
            until(lambda: compactions(engine) == 1)
            last = engine.session("s").assemble([*history, *more, make_message("user", "Go on.")], limit=LIMIT)
            assert "Look at every module." in last.messages[0].text
            assert last.messages[-2].text == more[-1]["content"]
            assert engine.stats().messages == len(history) + len(more) + 1

    def test_a_summary_of_what_was_taken_back_is_not_recorded(self, tmp_path: Path) -> None:
        """The client went back to the beginning meanwhile: the new conversation is sent as it is."""
        model = Slow()
        with Engine.open(tmp_path, settings=settings(memory_flush=EARLY), model=model) as engine:
            history = [message for turn in turns(8) for message in turn]
            for stop in range(1, len(history), 2):
                engine.session("s").assemble(history[:stop], limit=LIMIT)
            engine.session("s").append(history[-1:])
            assert model.asked.wait(PATIENCE)
            again = [*history[:2], make_message("user", "Let us begin again, with something else.")]
            engine.session("s").assemble(again, limit=LIMIT)
            model.go.set()
            warnings: list[str] = []

            def told() -> bool:
                warnings.extend(engine.session("s").assemble(again, limit=LIMIT).report.warnings)
                return any("changed during the compaction" in warning for warning in warnings)

            until(told)
            assert compactions(engine) == 0
            sent = engine.session("s").assemble(again, limit=LIMIT)
            assert [message.text for message in sent.messages] == [message["content"] for message in again]

    def test_closing_does_not_wait_for_a_model(self, tmp_path: Path) -> None:
        """A running compaction is cancelled, and nothing has changed."""
        model = Slow()
        with Engine.open(tmp_path, settings=settings(), model=model) as engine:
            history = [message for turn in turns(300) for message in turn]
            for stop in range(1, len(history), 2):
                engine.session("s").assemble(history[:stop], limit=LIMIT)
                engine.session("s").append(history[stop : stop + 1])
                # Requests that come faster than the background works trim the window, so that nothing is to be done.
                until(lambda: model.asked.is_set() or not engine._due)
                if model.asked.wait(0.05):
                    break
            assert model.asked.wait(PATIENCE)
            model.go.set()
        with Engine.open(tmp_path, settings=settings(), background=False) as engine:
            assert compactions(engine) == 0
