"""A new session begins with an overview of its project, which stays the same until messages leave the window."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine, Message, Settings
from holdfast.context.budget import budget
from holdfast.errors import StorageError
from holdfast.memory.memory import Memory
from holdfast.providers import FORMATS
from holdfast.report import Window
from holdfast.settings import Embedding, Recall
from holdfast.store.base import Scope, Select, SessionSpan
from holdfast.store.opening import STORE_NAME
from holdfast.store.sqlite import SqliteStore
from holdfast.tokens import count_messages
from support.conversations import reply, system, user
from support.earlier import EARLIER_RULE, EARLIER_TITLE, add_earlier_session
from support.waiting import UNHURRIED

LIMIT = 40_000


@contextmanager
def opened(path: Path, *, personal: bool = True, **recall: Any) -> Iterator[Engine]:
    """Open an engine without vectors and without a thread."""
    settings = Settings(
        embedding=Embedding(provider="none"), recall=Recall(deadline_ms=UNHURRIED.deadline_ms, **recall)
    )
    with Engine.open(path, settings=settings, background=False, personal=personal) as engine:
        yield engine


def talk(turns: int, *, words: int = 3) -> list[Message]:
    """Return a conversation that ends with a message of the user. A longer one continues a shorter one."""
    messages = [system()]
    for turn in range(turns):
        messages += [user(f"Look at part {turn}. " + f"detail{turn} " * words), reply(f"Part {turn} is fine.")]
    return [*messages, user(f"Look at part {turns}. " + f"detail{turns} " * words)]


def kinds(window: Window) -> list[str]:
    """Return the kinds of the changes of a request."""
    return [change.kind for change in window.report.changes]


def sent(window: Window) -> list[str]:
    """Return the messages of a request as the provider gets them."""
    return [json.dumps(message, ensure_ascii=False) for message in window.render()]


def count_overviews(window: Window) -> int:
    """Count how often the window shows the title of the earlier session as a line of an overview."""
    return sum(message.text.count("<project-overview>") for message in window.messages)


class TestStart:
    def test_the_first_request_has_it_and_the_report_says_so(self, tmp_path: Path) -> None:
        with opened(tmp_path) as engine:
            add_earlier_session(engine)
            window = engine.session("s").assemble([system(), user("Good morning.")], limit=LIMIT)
        assert EARLIER_TITLE in window.overview
        assert EARLIER_RULE in window.overview
        assert "The flamingo importer works now." in window.overview
        assert "TODO: tell the customers" in window.overview
        assert "overview" in kinds(window)
        assert 0 < window.report.overview_tokens <= 400
        parts = {part.name: part.tokens for part in window.report.categories}
        assert parts["recall"] >= window.report.overview_tokens
        assert window.tokens == count_messages(window.messages)

    @pytest.mark.variants
    @pytest.mark.parametrize("provider", sorted(FORMATS))
    @pytest.mark.parametrize("position", ["tail", "head"])
    def test_later_requests_send_it_byte_for_byte(self, tmp_path: Path, provider: str, position: str) -> None:
        with opened(tmp_path, position=position) as engine:
            add_earlier_session(engine)
            before: list[str] = []
            for turn in range(6):
                window = engine.session("s").assemble(talk(turn), limit=LIMIT, provider=provider)
                now = sent(window)
                assert now[: len(before)] == before
                assert count_overviews(window) == 1
                before = now
        assert kinds(window) == []

    def test_a_request_may_have_a_recalled_block_as_well(self, tmp_path: Path) -> None:
        with opened(tmp_path) as engine:
            add_earlier_session(engine)
            window = engine.session("s").assemble([user("What about the flamingo importer?")], limit=LIMIT)
            again = engine.session("s").assemble([user("What about the flamingo importer?")], limit=LIMIT)
        item = window.items[-1]
        assert item.overview is not None
        assert item.block is not None
        assert sent(again) == sent(window)
        assert kinds(again) == []

    def test_a_session_that_is_alone_has_none(self, tmp_path: Path) -> None:
        with opened(tmp_path) as engine:
            window = engine.session("s").assemble(talk(2), limit=LIMIT)
        assert window.overview == ""
        assert kinds(window) == []

    def test_it_is_not_added_to_a_session_that_has_begun(self, tmp_path: Path) -> None:
        with opened(tmp_path) as engine:
            engine.session("s").assemble(talk(1), limit=LIMIT)
            add_earlier_session(engine)
            assert engine.session("s").assemble(talk(2), limit=LIMIT).overview == ""

    def test_another_first_message_gets_it_again(self, tmp_path: Path) -> None:
        """A client that edits its first message begins the conversation again."""
        with opened(tmp_path) as engine:
            add_earlier_session(engine)
            engine.session("s").assemble([system(), user("Good morning.")], limit=LIMIT)
            engine.session("s").assemble(
                [system(), user("Good morning."), reply("Hello."), user("Go on, please.")], limit=LIMIT
            )
            window = engine.session("s").assemble([system(), user("Good evening.")], limit=LIMIT)
        assert count_overviews(window) == 1

    def test_it_comes_back_if_the_client_drops_the_message_that_it_was_in(self, tmp_path: Path) -> None:
        with opened(tmp_path) as engine:
            add_earlier_session(engine)
            engine.session("s").assemble(talk(0), limit=LIMIT)
            engine.session("s").assemble(talk(3), limit=LIMIT)
            window = engine.session("s").assemble([system(), *talk(4)[4:]], limit=LIMIT)
        assert count_overviews(window) == 1
        assert window.items[-1].overview is not None

    def test_a_library_gets_facts_but_not_other_sessions(self, tmp_path: Path) -> None:
        with opened(tmp_path, personal=False) as engine:
            add_earlier_session(engine)
            window = engine.session("s").assemble([user("Good morning.")], limit=LIMIT)
        assert EARLIER_RULE in window.overview
        assert EARLIER_TITLE not in window.overview

    @pytest.mark.parametrize("recall", [{"overview_tokens": 0}, {"automatic": False}, {"enabled": False}])
    def test_a_setting_turns_it_off(self, tmp_path: Path, recall: dict[str, Any]) -> None:
        with opened(tmp_path, **recall) as engine:
            add_earlier_session(engine)
            assert engine.session("s").assemble([user("Good morning.")], limit=LIMIT).overview == ""

    def test_a_tiny_window_has_none(self, tmp_path: Path) -> None:
        with opened(tmp_path) as engine:
            add_earlier_session(engine)
            window = engine.session("s").assemble([user("Good morning.")], limit=2_000)
        assert window.overview == ""

    @pytest.mark.parametrize("limit", [4_000, 6_000, 8_000, 16_000])
    def test_a_small_window_has_a_small_one(self, tmp_path: Path, limit: int) -> None:
        with opened(tmp_path) as engine:
            add_earlier_session(engine)
            window = engine.session("s").assemble([user("What about the flamingo importer?")], limit=limit)
            limits = budget(engine.settings, window=limit)
        assert window.report.overview_tokens <= limits.recall // 4
        assert sum(item.block_tokens for item in window.items) <= limits.live_recall

    def test_chinese(self, tmp_path: Path) -> None:
        with opened(tmp_path) as engine:
            engine.session("旧会话").append([user("请修复导入器。它会跳过空行。"), reply("已经修复，空行会保留。")])
            engine.session("旧会话").remember("提交信息一律用英文。")
            window = engine.session("新会话").assemble([user("早上好，我们继续。")], limit=LIMIT)
        assert "请修复导入器。 → 已经修复，空行会保留。" in window.overview
        assert "提交信息一律用英文。" in window.overview


class TestCuts:
    def test_a_compaction_removes_it_and_the_next_request_has_a_new_one(self, tmp_path: Path) -> None:
        said = talk(20, words=60)
        with opened(tmp_path) as engine:
            add_earlier_session(engine)
            session = engine.session("s")
            first = session.assemble(said, limit=LIMIT // 2)
            session.compact(said, limit=LIMIT // 2)
            summary = next(edit.change for edit in session.edits() if edit.kind == "compacted")
            said = [*said, reply("Fine."), user("What is left?")]
            second = session.assemble(said, limit=LIMIT // 2)
            third = session.assemble([*said, reply("Nothing."), user("Good.")], limit=LIMIT // 2)
        assert EARLIER_TITLE not in str(summary)
        assert count_overviews(first) == count_overviews(second) == count_overviews(third) == 1
        assert second.items[-1].overview is not None
        assert "overview" in kinds(second)
        assert sent(third)[: len(sent(second))] == sent(second)

    def test_so_does_a_cut(self, tmp_path: Path) -> None:
        with opened(tmp_path) as engine:
            add_earlier_session(engine)
            cuts = 0
            for turn in range(12, 60, 3):
                window = engine.session("s").assemble(talk(turn, words=60), limit=8_000)
                assert count_overviews(window) == 1
                assert count_messages(window.messages) <= 8_000
                if "trimmed" in kinds(window) and turn > 12:
                    cuts += 1
                    assert "overview" in kinds(window)
        assert cuts

    def test_earlier_blocks_that_make_room_leave_it_in_place(self, tmp_path: Path) -> None:
        names = ["kestrel", "juniper", "marlin", "tundra", "quill", "cobalt", "willow", "gannet"]
        with opened(tmp_path) as engine:
            add_earlier_session(engine)
            for name in names:
                lines = "".join(f"Line {line}: the {name} has a part called {name}{line}. " for line in range(200))
                engine.session("notes").append([user(f"About the {name}. {lines}")])
            asked: list[Message] = []
            cleared = 0
            for name in names:
                asked.append(user(f"Which parts does the {name} have, such as {name}7?"))
                window = engine.session("s").assemble(asked, limit=16_000)
                cleared += any("made room" in change.reason for change in window.report.changes)
                assert window.items[0].overview is not None
                asked.append(reply("I see."))
        assert cleared


class TestQuestionAfterTheWindow:
    def test_the_overview_is_a_message_before_the_others(self, tmp_path: Path) -> None:
        """The caller places the recalled block itself; there may be no message yet."""
        with opened(tmp_path) as engine:
            add_earlier_session(engine)
            session = engine.session("s")
            empty = session.assemble([], limit=LIMIT, question="What about the flamingo importer?", provider="pi")
            said = [user("What about the flamingo importer?"), reply("It works.")]
            later = session.assemble(said, limit=LIMIT, question="And the exporter?", provider="pi")
        assert count_overviews(empty) == count_overviews(later) == 1
        assert empty.block
        assert sent(later)[: len(sent(empty))] == sent(empty)
        assert later.items[0].kind == "overview"

    @pytest.mark.parametrize("has_earlier", [False, True])
    def test_a_session_that_was_emptied_begins_with_a_new_one(self, tmp_path: Path, *, has_earlier: bool) -> None:
        """OpenClaw keeps the id of a session that it resets. The earlier messages are no longer in the window."""
        with opened(tmp_path) as engine:
            if has_earlier:
                add_earlier_session(engine)
            session = engine.session("s")
            session.assemble([], limit=LIMIT, question="请修复导入器。", provider="pi")
            session.append([user("请修复导入器。"), reply("已经修复，空行会保留。")])
            reset = session.assemble([], limit=LIMIT, question="Good morning.", provider="pi")
            again = session.assemble([], limit=LIMIT, question="Good morning.", provider="pi")
            said = [user("Good morning."), reply("Hello.")]
            later = session.assemble(said, limit=LIMIT, question="What is next?", provider="pi")
        assert "请修复导入器。 → 已经修复，空行会保留。" in reset.overview
        assert (EARLIER_TITLE in reset.overview) == has_earlier
        assert sent(again) == sent(reset)
        assert kinds(again) == []
        assert count_overviews(reset) == count_overviews(later) == 1
        assert sent(later)[: len(sent(reset))] == sent(reset)


class TestOtherProcesses:
    def test_another_process_sends_the_same(self, tmp_path: Path) -> None:
        """This holds even if the first one was killed: the edit is recorded before the request is sent."""
        said = talk(1)
        with opened(tmp_path) as engine:
            add_earlier_session(engine)
            window = engine.session("s").assemble(said, limit=LIMIT)
            with opened(tmp_path) as other:
                other.session("later").append([user("Something else was done meanwhile."), reply("It is done now.")])
                again = other.session("s").assemble(said, limit=LIMIT)
                more = other.session("s").assemble([*said, reply("Yes."), user("Go on then.")], limit=LIMIT)
        assert sent(again) == sent(window)
        assert sent(more)[: len(sent(window))] == sent(window)
        assert "Something else" not in more.overview

    def test_a_past_window_is_made_again_with_it(self, tmp_path: Path) -> None:
        with opened(tmp_path) as engine:
            add_earlier_session(engine)
            window = engine.session("s").assemble(talk(1), limit=LIMIT)
            assert sent(engine.session("s").window(1)) == sent(window)

    def test_a_process_that_ended_before_the_edit_was_recorded_leaves_it_to_the_next(self, tmp_path: Path) -> None:
        said = talk(1)
        with opened(tmp_path) as engine:
            add_earlier_session(engine)
            engine.session("s").append(said)
        with opened(tmp_path) as other:
            assert count_overviews(other.session("s").assemble(said, limit=LIMIT)) == 1


class TestForgetting:
    def test_a_forgotten_session_is_in_no_overview(self, tmp_path: Path) -> None:
        """It is in no new overview and in no earlier one, here or in another process."""
        said = talk(1)
        with opened(tmp_path) as engine, opened(tmp_path) as other:
            add_earlier_session(engine)
            for each in (engine, other):
                assert "flamingo" in each.session("s").assemble(said, limit=LIMIT).overview
            engine.session("earlier").forget()
            new = engine.session("new").assemble([user("Good morning.")], limit=LIMIT)
            later = [*said, reply("Yes."), user("Go on.")]
            windows = [new, *(each.session("s").assemble(later, limit=LIMIT) for each in (engine, other))]
            records = engine._memory.store.read_records(Select(scope=Scope(), across=True))
        assert "flamingo" not in json.dumps([record.data for record in records])
        for window in windows:
            assert "flamingo" not in str(window.render())
        files = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
        assert b"flamingo" not in files

    def test_one_message_that_is_forgotten_is_in_no_overview(self, tmp_path: Path) -> None:
        with opened(tmp_path) as engine:
            add_earlier_session(engine)
            engine.session("s").assemble(talk(1), limit=LIMIT)
            number = engine.session("earlier").search("flamingo importer works")[0].message
            engine.session("earlier").forget([number])
            records = engine._memory.store.read_records(Select(scope=Scope(), across=True))
        quoted = [record for record in records if "flamingo importer works" in json.dumps(record.data)]
        assert quoted == []

    def test_a_forgotten_fact_is_in_no_overview(self, tmp_path: Path) -> None:
        with opened(tmp_path) as engine:
            add_earlier_session(engine)
            engine.session("s").assemble(talk(1), limit=LIMIT)
            (fact,) = [row for row in engine.session("s").facts() if row.content == EARLIER_RULE]
            engine.session("s").forget_facts([fact.id])
            later = engine.session("s").assemble([*talk(1), reply("Yes."), user("Go on.")], limit=LIMIT)
        assert EARLIER_RULE not in str(later.render())
        assert EARLIER_TITLE in later.overview  # a new one, without it

    def test_a_question_after_the_window_gets_a_new_one_too(self, tmp_path: Path) -> None:
        with opened(tmp_path) as engine:
            add_earlier_session(engine)
            engine.session("s").assemble(talk(1)[:-1], question="Which part is next?", limit=LIMIT)
            (fact,) = [row for row in engine.session("s").facts() if row.content == EARLIER_RULE]
            engine.session("s").forget_facts([fact.id])
            later = engine.session("s").assemble(talk(2)[:-1], question="And then?", limit=LIMIT)
        assert EARLIER_RULE not in str(later.render())
        assert EARLIER_TITLE in later.overview

    def test_a_recalled_block_of_another_session_goes_with_the_message(self, tmp_path: Path) -> None:
        said: Sequence[Message] = [user("Which port does the flamingo database use?")]
        with opened(tmp_path, overview_tokens=0) as engine:
            engine.session("a").append([user("The flamingo database listens on port 6543."), reply("Noted.")])
            assert "6543" in str(engine.session("s").assemble(said, limit=LIMIT).render())
            engine.session("a").forget()
            later = engine.session("s").assemble([*said, reply("Hm."), user("Well?")], limit=LIMIT)
            reports = engine.session("s").timeline()
        assert "6543" not in str(later.render())
        assert "6543" not in str(reports)


class NoSessions(SqliteStore):
    """A store that cannot list its sessions."""

    def read_sessions(self, *_: Any, **__: Any) -> list[SessionSpan]:
        """Raise an error."""
        raise StorageError("the disk has an error", path="here")


class TestFailures:
    def test_a_store_that_fails_leaves_the_request_without_it(self, tmp_path: Path) -> None:
        """I10: the report says why."""
        with opened(tmp_path) as engine:
            add_earlier_session(engine)
        settings = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
        store = NoSessions(tmp_path / STORE_NAME)
        with Engine(Memory(store=store, settings=settings, is_personal=True), background=False) as engine:
            window = engine.session("s").assemble(talk(1), limit=LIMIT)
        assert window.overview == ""
        assert window.has_memory
        assert any(warning.startswith("overview: ") for warning in window.report.warnings)
