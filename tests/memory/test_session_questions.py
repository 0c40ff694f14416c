"""Questions about past sessions, and the sessions that answer them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from holdfast.memory.deadlines import Deadlines
from holdfast.memory.memory import Memory
from holdfast.memory.query import RecallQuery, Shown
from holdfast.memory.session_questions import LAST_SESSION, add_sessions, read_question
from holdfast.messages import Message
from holdfast.settings import Archive, Embedding, Settings
from holdfast.store.base import Scope
from support.cases import each
from support.conversations import reply, user
from support.waiting import UNHURRIED

NOW = int(datetime(2026, 11, 17, 15, 0).timestamp() * 1000)  # noqa: DTZ001 - a local time
DAY = 86_400_000
HERE = Scope(project="shop", session="new")


class TestReading:
    @each(
        ("text", "subject"),
        [
            ("What did we do yesterday?", ""),
            ("So what exactly did we get done on Monday?", ""),
            ("Remind me what we worked on last week.", ""),
            ("What happened in March?", ""),
            ("Can you recap the last few days?", ""),
            ("What did we decide about Redis last week?", "Redis"),
            ("Which tickets did I handle last week?", ""),
            ("Summarise last week for my boss.", ""),
            ("What have we done since Friday?", ""),
            ("What did we work on in the last three days?", ""),
            ("What did we do in the first week of November?", ""),
            ("What happened at the beginning of October?", ""),
            ("What did we do on 11/05?", ""),
            ("What did we do between November 3 and November 5?", ""),
            ("Which customers did we deal with on Wednesday last week?", ""),
            ("昨天我们做了什么？", ""),
            ("前天做了什么?", ""),
            ("大前天我们做了什么？", ""),
            ("最近三天做了什么？", ""),
            ("十月最后一周我们做了什么？", ""),
            ("十一月五号我们做了什么？", ""),
            ("11月3日到5日我们做了什么？", ""),
            ("从上周三到昨天做了什么？", ""),
            ("11月3日和5日之间我们做了什么？", ""),
            ("上星期五的工作内容", ""),
            ("上周我处理了哪些工单？", ""),
            ("给老板总结一下上周的工作。", ""),
            ("上周我们完成了哪些工作？", ""),
            ("六月份我们做了什么？", ""),
            ("上个月我们在支付模块上做了什么？", "支付模块"),
            ("先週は何をしましたか", ""),
            ("어제 우리 뭐 했지?", ""),
        ],
    )
    def test_a_period_and_an_activity(self, text: str, subject: str) -> None:
        question = read_question(text, now=NOW)
        assert question is not None
        assert len(question.periods) == 1
        assert question.subject == subject

    @each(
        ("text", "subject"),
        [
            ("In the session about the importer, which file did we change?", "importer"),
            ("Show me the conversation where we picked the queue.", "queue"),
            ("When did we last work on the billing export?", "billing export"),
            ("the chat about pricing: what did we agree?", "pricing"),
            ("关于导入器的那次会话，我们决定了什么？", "导入器"),
            ("讨论缓存的那次对话里定了多长的过期时间？", "缓存"),
            ("我们什么时候修复了登录问题？", "登录问题"),
            ("検索についてのセッションで何を決めましたか", "検索"),
            ("결제에 대한 세션에서 뭐 했지?", "결제"),
        ],
    )
    def test_a_session_by_its_subject(self, text: str, subject: str) -> None:
        question = read_question(text, now=NOW)
        assert question is not None
        assert question.periods == ()
        assert question.subject == subject

    @pytest.mark.parametrize(
        "text",
        [
            "Where did we leave off?",
            "So, where were we?",
            "我们做到哪了？",
            "What was our last session about?",
            "上次我们聊到哪儿了？",
            "前回は何をしましたか",
        ],
    )
    def test_the_last_session(self, text: str) -> None:
        assert read_question(text, now=NOW) == LAST_SESSION

    @each(
        "text",
        [
            "Which port does staging use?",
            "What database did we choose last week?",
            "What did we decide about Redis?",
            "What choices do we have?",
            "Why was the decision about the cache made?",
            "Which port did we set last week?",
            "上周的工作目录在哪里？",
            "Fix the session handling in login.py",
            "Open the session file and fix the bug",
            "Add a date picker for last week and this week",
            "Run the tests again today",
            "May I ask what you did?",
            "修改会话超时的配置",
            "把上周的日志删掉",
            "",
            "What did we do yesterday? " + "And here is a log. " * 40,
        ],
    )
    def test_other_messages(self, text: str) -> None:
        assert read_question(text, now=NOW) is None


def hold(memory: Memory, session: str, *messages: Message, days: int, project: str = "shop") -> None:
    """Archive a session of some days ago."""
    start = NOW - days * DAY
    dated = [replace(message, timestamp=start + number * 60_000) for number, message in enumerate(messages)]
    memory.ingest(dated, scope=Scope(project=project, session=session))


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """Open the memory of one person, with four sessions."""
    settings = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
    with Memory.open(tmp_path, settings=settings, clock=lambda: NOW, is_personal=True) as opened:
        hold(
            opened,
            "importer",
            user("The importer drops empty rows. Please find out why."),
            reply("The cause was filter(None) in read_rows. It is fixed, and all tests pass."),
            user("We decided to keep the old file format."),
            days=1,
        )
        hold(opened, "缓存", user("商品页的缓存太短。"), reply("已经改成十五分钟，数据库的压力下降了。"), days=8)
        hold(opened, "logo", user("Draw a new logo."), reply("The logo is in assets/mark.svg now."), days=40)
        hold(opened, "blog", user("Write a post about whales."), reply("The post is written."), days=1, project="blog")
        yield opened


class TestAnswers:
    def test_the_sessions_of_a_day_with_the_sentences_that_say_most(self, memory: Memory) -> None:
        found = memory.recall(("What did we do yesterday?",), scope=HERE)
        assert found.block.count("\n- [") == 1
        assert "] The importer drops empty rows. → We decided to keep the old file format.\n" in found.block
        assert "· The cause was filter(None) in read_rows." in found.block
        assert found.hits == ()
        assert found.messages == [1, 2, 3]

    def test_requests_and_questions_without_content_are_left_out(self, memory: Memory) -> None:
        hold(
            memory,
            "fenwick",
            user("Fenwick Dental cannot log in. Please check. What is going on? Please find out why."),
            reply("The cause was an expired certificate."),
            days=3,
        )
        hold(memory, "芬威克", user("芬威克无法登录。请检查一下。这是怎么回事？"), reply("原因是证书过期。"), days=3)
        found = memory.recall(("What did we do three days ago?",), scope=HERE)
        assert len(found.sessions) == 2
        for words in ("Please check", "going on", "find out why", "检查一下", "怎么回事"):
            assert words not in found.block

    def test_a_week_in_chinese(self, memory: Memory) -> None:
        found = memory.recall(("上周我们做了什么？",), scope=HERE)
        assert "商品页的缓存太短。 → 已经改成十五分钟，数据库的压力下降了。" in found.block
        assert "importer" not in found.block

    def test_a_subject_in_a_period(self, memory: Memory) -> None:
        assert "mark.svg" in memory.recall(("What did we do about the logo last month?",), scope=HERE).block
        assert not memory.recall(("What did we do about the whales last month?",), scope=HERE).sessions

    @pytest.mark.parametrize(
        "question",
        [
            "What did we decide three days ago?",
            "List all decisions so far.",
            "Which decisions did we make?",
            "What decisions have been made?",
            "What have we agreed on?",
            "What did we settle on?",
            "Summarise our decisions.",
            "到目前为止我们都做了哪些决定？",
            "我们做了哪些决定？",
            "我们决定了什么？",
            "我们定了哪些事？",
            "何を決めましたか？",
            "무엇을 결정했나요?",
            "これまでに決めたことを全部教えて",
            "지금까지 결정한 것을 모두 알려 줘",
        ],
    )
    def test_all_decisions_and_nothing_else(self, memory: Memory, question: str) -> None:
        """Also those that a person words as a rule; work that was asked for and done is not decided."""
        decided = [
            "Let's go with NATS for the events.",
            "We picked Postmark over SendGrid.",
            "Never run migrations on the replica.",
            "Decision: the audit log is append-only.",
            "We agreed to release on Wednesdays.",
            "From now on, all amounts are in cents.",
            "我们决定用 Valkey 存会话。",
            "We settled it: migrations run by hand.",
            "Final call: no dark mode in the first version.",
            "We will support Python 3.11 and newer only.",
            "Go ahead with the blue design.",
            "OK, Svelte it is.",
            "接口超时定为 30 秒。",
            "定了，周五上线。",
            "我们选 MySQL 作主库。",
            "Branch names start with the ticket number.",
        ]
        talk: list[Message] = []
        for number, sentence in enumerate(decided):
            talk += [user(f"Look at module {number}. {sentence}"), reply(f"I changed two lines in module {number}.")]
        talk.append(user("Please stick to that."))  # alone it says nothing
        talk[-3] = user(f"{talk[-3].text} Please stick to that.")
        hold(memory, "long", *talk, days=3)
        block = memory.recall((question,), scope=HERE).block
        assert [sentence for sentence in decided if sentence not in block] == []
        assert "Look at module 3" not in block
        assert "stick to that" not in block

    @pytest.mark.parametrize(
        ("first", "later"),
        [
            ("We decided to keep logs for 45 days.", "Logs are kept for 60 days, not 45."),
            ("We agreed to keep audit logs for 400 days.", "Legal called: audit logs are kept for 730 days, not 400."),
            ("We decided to keep the buckets in Oslo.", "We decided to keep the buckets in Turku instead of Oslo."),
            ("我们决定日志保留四十五天。", "日志保留改成六十天。"),
        ],
    )
    def test_a_decision_is_followed_by_what_changed_it(self, memory: Memory, first: str, later: str) -> None:
        """Also in another session, and after the period that is asked for. It is not listed twice."""
        filler = [user(f"Look at module {number}.") for number in range(6)]
        hold(memory, "first", *filler, user("We decided to use NATS for events."), user(first), days=5)
        hold(memory, "later", *filler, user(later), user("We agreed to release on Wednesdays."), days=2)
        for question in ("What did we decide five days ago?", "What did we decide so far?"):
            block = memory.recall((question,), scope=HERE).block
            assert f"{first} (later: {later})" in block
            assert block.count(later) == 1
            assert "NATS for events. (later" not in block

    def test_what_was_said_in_another_project_changes_no_decision(self, memory: Memory) -> None:
        """Commands read all projects."""
        hold(memory, "first", user("We decided to keep logs for 45 days."), days=5)
        hold(memory, "other", user("Logs are kept for 60 days, not 45."), days=2, project="blog")
        found = memory.recall(("What did we decide so far?",), scope=HERE, across=("project", "session"))
        assert "We decided to keep logs for 45 days." in found.block
        assert "(later:" not in found.block

    def test_what_is_not_decided_yet_is_no_decision(self, memory: Memory) -> None:
        """Nobody decided anything in these sessions, so they are left out."""
        hold(memory, "decided", user("We decided to use NATS for events."), days=2)
        open_questions = ["We have not decided yet which mail provider to use.", "我们还没决定用哪个数据库。"]
        open_questions.append("If the team agreed, we could drop Windows.")
        for number, sentence in enumerate(open_questions):
            hold(memory, f"open {number}", user(sentence), days=2)
        block = memory.recall(("What did we decide so far?",), scope=HERE).block
        assert "NATS" in block
        assert not any(sentence in block for sentence in open_questions)

    def test_decisions_of_the_last_session(self, memory: Memory) -> None:
        hold(memory, "older", user("We decided to use NATS for events."), days=2)
        hold(memory, "last", user("We decided to use Typst for invoices."), days=0)
        found = memory.recall(("Which decisions did we make in the last session?",), scope=HERE)
        assert [line.scope.session for line in found.sessions] == ["last"]

    @pytest.mark.parametrize("question", ["What did we decide last month?", "上个月我们决定了什么？"])
    def test_facts_of_another_time_are_left_out(self, memory: Memory, question: str) -> None:
        """They answer what was decided, but not when it was asked for."""
        memory.remember("We decided to use NATS for events. 我们决定用 NATS。", scope=HERE)
        assert not memory.recall((question,), scope=HERE).facts
        assert memory.recall(("What did we decide today?",), scope=HERE).facts

    def test_a_request_of_another_day_is_no_title(self, memory: Memory) -> None:
        """A session may go on for days."""
        hold(memory, "long", user("Please fix the login page."), reply("The login page is fixed."), days=6)
        hold(memory, "long", user("Please write the exporter."), reply("The exporter is done."), days=3)
        (line,) = memory.recall(("What did we do three days ago?",), scope=HERE).sessions
        assert (line.title, line.outcome) == ("Please write the exporter.", "The exporter is done.")

    def test_a_session_by_its_subject(self, memory: Memory) -> None:
        found = memory.recall(("When did we last work on the logo?",), scope=HERE)
        assert [line.scope.session for line in found.sessions] == ["logo"]

    def test_the_last_session(self, memory: Memory) -> None:
        hold(memory, "new", user("Good morning."), days=0)
        found = memory.recall(("Where did we leave off?",), scope=HERE)
        assert [line.scope.session for line in found.sessions] == ["importer"]

    @pytest.mark.parametrize("question", ["What did we do in the last session?", "上次我们做了什么？"])
    def test_a_session_that_only_asked_is_none(self, memory: Memory, question: str) -> None:
        for number in range(4):
            hold(memory, f"asking {number}", user(question), reply("OK."), days=0)
        found = memory.recall((question,), scope=HERE)
        assert [line.scope.session for line in found.sessions] == ["importer"]

    @pytest.mark.parametrize(
        ("text", "note"),
        [
            ("What did we do today?", "No sessions on 2026-11-17. The last one before was on 2026-11-16."),
            (
                "What did we do the day before yesterday?",
                "No sessions on 2026-11-15. The last one before was on 2026-11-09.",
            ),
            ("前天做了什么?", "No sessions on 2026-11-15. The last one before was on 2026-11-09."),
            ("What happened in September?", "No sessions from 2026-09-01 to 2026-09-30."),
            (
                "11月3日到5日我们做了什么？",
                "No sessions from 2026-11-03 to 2026-11-05. The last one before was on 2026-10-08.",
            ),
        ],
    )
    def test_of_a_period_without_sessions_the_block_says_so(self, memory: Memory, text: str, note: str) -> None:
        found = memory.recall((text,), scope=HERE)
        assert found.sessions == ()
        assert found.hits == ()
        assert found.sessions_note == note
        assert found.match == "the question asks for past sessions"
        assert f"<past-sessions>\n{note}\n</past-sessions>" in found.block

    def test_the_session_that_asks_is_no_other_session(self, memory: Memory) -> None:
        hold(memory, "new", user("Good morning, the shop is open again."), days=0)
        shown = Shown(messages=[10])
        found = memory.recall(("What did we do today?",), scope=HERE, shown=shown)
        assert found.sessions_note.startswith("No other sessions on 2026-11-17.")

    def test_sessions_that_are_not_listed_are_counted(self, memory: Memory) -> None:
        for number in range(30):
            hold(memory, f"s{number}", user(f"Work on part {number}."), reply(f"Part {number} is finished."), days=1)
        found = memory.recall(("What did we do yesterday?",), scope=HERE)
        assert len(found.sessions) == 20
        assert "\n… and 11 more before these.\n</past-sessions>" in found.block
        small = memory.recall(("What did we do yesterday?",), scope=HERE, cap=300)
        assert f"… and {31 - len(small.sessions)} more before these." in small.block

    def test_other_sessions_are_found_only_if_they_may_be_recalled(self, memory: Memory) -> None:
        alone = memory.with_settings(
            Settings(archive=Archive(cross_session=False), embedding=Embedding(provider="none"), recall=UNHURRIED)
        )
        assert alone.recall(("What did we do yesterday?",), scope=HERE).sessions == ()
        own = replace(HERE, session="importer")
        assert len(alone.recall(("What did we do yesterday?",), scope=own).sessions) == 1

    def test_of_a_long_session_only_what_was_said_in_the_period(self, memory: Memory) -> None:
        """One session may go on for months."""
        for day in range(120, -1, -1):
            said = [user(f"Please look at ticket {day}."), reply(f"Ticket {day} is closed now.")]
            hold(memory, "long", *said, days=day)
        found = memory.recall(("What did we do in the tickets 60 days ago?",), scope=HERE)
        (line,) = found.sessions
        assert "Ticket 60 is closed now." in (line.outcome, *line.keys)
        assert "Ticket 61" not in str(line)

    @pytest.mark.parametrize("cap", [60, 120, 300, 2_000])
    def test_a_block_with_sessions_is_never_over_its_cap(self, memory: Memory, cap: int) -> None:
        for number in range(30):
            hold(memory, f"s{number}", user(f"Work on part {number}."), reply(f"Part {number} is finished."), days=1)
        found = memory.recall(("What did we do yesterday?",), scope=HERE, cap=cap)
        assert found.tokens <= cap
        assert bool(found.block) == bool(found.sessions)

    def test_forgotten_and_excluded_messages_are_not_quoted(self, memory: Memory) -> None:
        memory.exclude([3], scope=HERE, across=True)
        memory.forget(scope=replace(HERE, session="importer"), ids=[2])
        block = memory.recall(("What did we do yesterday?",), scope=HERE).block
        assert "The importer drops empty rows." in block
        assert "filter(None)" not in block
        assert "old file format" not in block

    def test_sessions_for_which_there_is_no_time_are_counted(self, memory: Memory) -> None:
        """The newest is listed in any case. Nothing else of a request waits for the words of old sessions."""
        for number in range(5):
            hold(memory, f"s{number}", user(f"We decided to keep part {number}."), days=1 + number)
        query = RecallQuery(texts=("Which decisions did we make?",), scope=HERE, across=True, now=NOW)
        unhurried = add_sessions(memory.store, query, Deadlines.start(None, timer=lambda: 0.0))
        late = add_sessions(memory.store, query, Deadlines.start(0.0, timer=lambda: 0.0))
        assert len(unhurried.sessions) > 4
        assert unhurried.more_sessions == 0
        assert late.sessions == unhurried.sessions[-1:]
        assert late.more_sessions >= 4

    def test_of_pasted_logs_only_the_newest_are_looked_at(self, memory: Memory) -> None:
        """They would take seconds."""
        logs = [user("The worker has read one more page of it. " * 2_500) for _ in range(2)]
        early = user("We decided to use NATS for events.")
        later = user("We decided to keep the buckets in Oslo.")
        hold(memory, "logs", user("Look at the worker."), early, *logs, later, days=2)
        block = memory.recall(("Which decisions did we make?",), scope=HERE).block
        assert "buckets in Oslo" in block
        assert "NATS" not in block
