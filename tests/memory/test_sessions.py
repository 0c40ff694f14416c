"""The list of stored sessions, and their titles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.archive_rows import make_rows
from holdfast.engine import Engine
from holdfast.memory.memory import Memory
from holdfast.memory.sessions import MAX_TITLE_CHARS, find_title, make_title, make_title_of, shorten
from holdfast.memory.summary_topics import find_topic
from holdfast.settings import Embedding, Settings
from holdfast.store.base import Scope
from holdfast.store.sqlite import SqliteStore
from support.conversations import reply, system, user

SCOPE = Scope(session="s")


def test_the_first_real_sentence_of_the_user_is_the_title(tmp_path: Path) -> None:
    """Neither a command nor a greeting, nor what the host or the model said."""
    conversation = [
        system(),
        reply("Welcome."),
        user("/clear"),
        user("Hello!"),
        user("So, where were we?"),
        user("<system-reminder>\nSkills: deploy\n</system-reminder>\nFix the importer. It skips empty rows."),
        user("And the exporter."),
    ]
    with SqliteStore(tmp_path / "holdfast.db") as store:
        store.add_messages(make_rows(conversation, scope=SCOPE))
        assert make_title(store, SCOPE) == "Fix the importer."
        assert make_title(store, Scope(session="other")) == ""


@pytest.mark.parametrize("greeting", ["Hello there.", "你好！", "Thanks"])
def test_a_session_of_greetings_is_named_by_the_first(tmp_path: Path, greeting: str) -> None:
    """A list with an empty line would not say which session it is; what comes later is better."""
    conversation = [system(), user("/clear"), user(greeting), reply("Hello! What shall I do?")]
    assert find_title(conversation) == greeting
    with SqliteStore(tmp_path / "holdfast.db") as store:
        store.add_messages(make_rows(conversation, scope=SCOPE))
        assert make_title(store, SCOPE) == greeting
        store.add_messages(make_rows([user("Fix the importer.")], scope=SCOPE))
        assert make_title(store, SCOPE) == "Fix the importer."


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Why  does\nit fail? Look.", "Why does it fail?"),
        ("修复导入器。它跳过空行。", "修复导入器。"),
        ("Morning. Back again! The importer skips rows. Why?", "The importer skips rows."),
        ("早上好！我回来了。导入器跳过空行。", "导入器跳过空行。"),
        ("Where were we? The importer skips rows.", "The importer skips rows."),
        ("我们做到哪了？导入器跳过空行。", "导入器跳过空行。"),
        ("Version 2.1 of the importer skips rows", "Version 2.1 of the importer skips rows"),
        ("Three things to keep in mind for this project. First, the port is 6543.", "First, the port is 6543."),
        ("A few notes before we start. The port is 6543.", "The port is 6543."),
        ("有三件事要记住。数据库用端口 6543。", "数据库用端口 6543。"),
        ("覚えておいてほしいことが三つあります。ポートは 6543 です。", "ポートは 6543 です。"),
        ("기억할 것이 세 가지 있습니다. 포트는 6543입니다.", "포트는 6543입니다."),
        ("So, Redis. It fell over twice this week.", "So, Redis. It fell over twice this week."),
        ("Their contact, Dr. Halvorsen, wants a plan. Soon.", "Their contact, Dr. Halvorsen, wants a plan."),
        ("Two things are broken. Look.", "Two things are broken."),
        ("Some notes are lost. Why?", "Some notes are lost."),
        ("Three things to remember.", "Three things to remember."),
    ],
)
def test_a_title_is_one_sentence_on_one_line(text: str, title: str) -> None:
    """Full stops inside of numbers and names do not end it."""
    assert shorten(text) == title


@pytest.mark.parametrize("text", ["word " * 100, "字" * 500, "x" * 500])
def test_a_title_is_short(text: str) -> None:
    """In any script."""
    title = shorten(text)
    assert len(title) <= MAX_TITLE_CHARS
    assert title.endswith("…")


CLAUDE_CODE = """This chat is being continued from a previous conversation that ran out of context. Summarized:

Summary:
1. Primary Request and Intent:
   The user asked for a faster importer.
   - Empty rows stay.

2. Key Technical Concepts:
   - Streams
"""
CODEX = """Another language model started to solve this problem and produced a summary of its thinking process.
Use this to build on the work that has already been done. Here is the summary:

The importer is faster now. Tests are left to do.
"""
PI = """The conversation history before this point was compacted into the following summary:

<summary>
## Goal
- [ ] **Make the importer faster**

## Progress
- The parser reads streams.
</summary>"""
GEMINI = """<state_snapshot>
    <overall_goal>
        Make the importer faster.
    </overall_goal>
    <key_knowledge>- Build with `make`</key_knowledge>
</state_snapshot>"""
HERMES = """[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted into the summary below.

## Active Task
None.

## Goal
让导入器更快。"""
AIDER = """I spoke to you previously about a number of things.
I asked you to make the importer faster."""
KIMI = """<system>Previous context has been compacted. Here is the compaction output:</system>
<current_focus>
Make the importer faster
</current_focus>"""
PART = """TER_ROWS env var)
- Installed the streams library
Next Steps
- Commit and push the importer
Critical Context
- All tests pass"""
PART_WITHOUT_HEADINGS = """the rest of the rows) was left out.
The importer skips empty rows."""
SUMMARIES = {
    CLAUDE_CODE: "The user asked for a faster importer.",
    CODEX: "The importer is faster now.",
    PI: "Make the importer faster",
    GEMINI: "Make the importer faster.",
    HERMES: "让导入器更快。",
    AIDER: "I asked you to make the importer faster.",
    KIMI: "Make the importer faster",
    PART: "Commit and push the importer",
    PART_WITHOUT_HEADINGS: "The importer skips empty rows.",
}


@pytest.mark.parametrize("summary", SUMMARIES)
def test_a_summary_that_a_host_wrote_is_no_sentence_of_the_user(summary: str, tmp_path: Path) -> None:
    """The first sentence that the user wrote after it is the title; a pasted part of a text is no sentence either."""
    with SqliteStore(tmp_path / "holdfast.db") as store:
        store.add_messages(make_rows([user(summary), reply("Ok."), user("Now the exporter.")], scope=SCOPE))
        assert make_title(store, SCOPE) == "Now the exporter."


@pytest.mark.parametrize(("summary", "title"), SUMMARIES.items())
def test_without_a_sentence_of_the_user_a_line_of_the_summary_is_the_title(
    summary: str, title: str, tmp_path: Path
) -> None:
    """It is the one that says what the session was about, or else what comes next."""
    with SqliteStore(tmp_path / "holdfast.db") as store:
        store.add_messages(make_rows([user(summary), reply("Ok."), user("go on")], scope=SCOPE))
        assert make_title(store, SCOPE) == title


@pytest.mark.parametrize(
    "text",
    [
        "Do two things:\n1) read the rows\n2) write them",
        "Two things: a) read (and count) the rows\nb) write them",
        "привет, посмотри импорт :)\nон пропускает строки",
        "Fix this typo)",
        "import rows\nthey are skipped",
    ],
)
def test_a_bracket_that_belongs_to_a_number_or_a_face_is_no_cut(text: str, tmp_path: Path) -> None:
    """Nor is a small letter at the beginning."""
    with SqliteStore(tmp_path / "holdfast.db") as store:
        store.add_messages(make_rows([user(text), user("Now the exporter.")], scope=SCOPE))
        assert make_title(store, SCOPE) != "Now the exporter."


@pytest.mark.parametrize(
    "text", [" " * 99_999, "goal\n" * 20_000, "a)\n" * 20_000, "- [ ] " * 20_000, "1. #*<" * 20_000]
)
def test_hostile_text_has_a_title_in_time(text: str) -> None:
    """Endless marks and headings without a line."""
    assert len(make_title_of(text)) <= MAX_TITLE_CHARS
    assert isinstance(find_topic(text), str)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (
            "Documents of the customer portal are rendered with the Typst engine, never with the old one of 2019",
            "Documents of the customer portal are rendered with the Typst engine…",
        ),
        (
            "Ship the importer, and measure how long it takes for the archive of the whole last year again",
            "Ship the importer, and measure how long it takes for the archive of…",
        ),
        (
            "Run the migration of the archive on the new cluster; the old one is switched off by Thursday",
            "Run the migration of the archive on the new cluster…",
        ),
        (
            "Invoices of the partners in other countries and on other continents must never not be sent",
            "Invoices of the partners in other countries and on other continents…",
        ),
        (
            "Die Rechnungen in allen anderen Ländern verschicken wir nun nicht nachträglich per Post, nur digital",
            "Die Rechnungen in allen anderen Ländern verschicken wir nun…",
        ),
        (
            "客户门户的所有文档" * 6 + "都用新引擎生成，旧的引擎上周已经停用了",
            "客户门户的所有文档" * 6 + "都用新引擎生成…",
        ),
        ("客户门户的所有文档" * 7 + "以后无论如何都不要用旧的引擎", "客户门户的所有文档" * 7 + "以后无论如何都…"),
        ("客户门户的所有文档" * 7 + "以后也绝对都不要用旧的引擎", "客户门户的所有文档" * 7 + "以后也绝对都…"),
        ("고객포털의모든문서를" * 6 + "옛 엔진으로 절대 안 만듭니다", "고객포털의모든문서를" * 6 + "옛 엔진으로…"),
    ],
    ids=[
        *("a clause", "a clause that ends early", "a semicolon", "negations", "German"),
        *("Chinese, a clause", "Chinese, in a negation", "Chinese, behind a negation", "Korean"),
    ],
)
def test_a_long_title_ends_with_a_clause_and_not_with_a_negation(text: str, title: str) -> None:
    """A clause that ends in the last third of the room is whole; "never" alone hides what is denied."""
    assert shorten(text) == title


class TestHostTitle:
    @pytest.fixture
    def memory(self, tmp_path: Path) -> Iterator[Memory]:
        """A memory with one message of a session."""
        with Memory.open(tmp_path / "m", settings=Settings(embedding=Embedding(provider="none"))) as memory:
            memory.ingest([user("Morning. The importer skips rows."), user("Also the exporter.")], scope=SCOPE)
            yield memory

    def test_a_title_of_the_host_comes_first(self, memory: Memory) -> None:
        """On one line, and without secrets; the newest one counts."""
        assert make_title(memory.store, SCOPE) == "The importer skips rows."
        memory.set_title("Importer\n rows", scope=SCOPE)
        assert make_title(memory.store, SCOPE) == "Importer rows"
        secret = "ghp_" + "x7Kq2mVn8Rt4Lw9Zb3Yc6Hd1Fs5Gj0Pq2Aef"
        memory.set_title(f"Importer with {secret}", scope=SCOPE)
        assert secret not in make_title(memory.store, SCOPE)
        assert make_title(memory.store, SCOPE).startswith("Importer with")

    @pytest.mark.parametrize("ids", [[1], None], ids=["one message", "the session"])
    def test_a_title_is_forgotten_with_a_message(self, memory: Memory, ids: list[int] | None) -> None:
        """It may repeat the message, so the host's titles are not used again."""
        memory.set_title("Importer rows", scope=SCOPE)
        memory.forget(scope=SCOPE, ids=ids)
        memory.set_title("Importer rows", scope=SCOPE)
        assert "Importer" not in make_title(memory.store, SCOPE)

    @pytest.mark.parametrize(
        ("title", "message"),
        [
            ("Importer rows", "My card ends in 4242."),
            ("修复导入器", "我的卡号是四二四二。"),
            ("インポーターの修正", "私のカード番号は四二四二です。"),
            ("가져오기 수정", "내 카드 번호는 사이사이입니다."),
        ],
    )
    def test_a_title_stays_if_another_message_is_forgotten(self, memory: Memory, title: str, message: str) -> None:
        """It shares no word with the message. Later titles of the host might, and are not used."""
        (number,) = memory.ingest([user(message)], scope=SCOPE)
        memory.set_title(title, scope=SCOPE)
        memory.forget(scope=SCOPE, ids=[number])
        assert make_title(memory.store, SCOPE) == title
        memory.set_title(message, scope=SCOPE)
        assert make_title(memory.store, SCOPE) == title

    @pytest.mark.parametrize(
        ("title", "message"),
        [("Rotate the CARD", "My card's number is 4242."), ("换卡号", "我的卡号是四二四二。")],
    )
    def test_a_title_that_shares_a_word_with_a_forgotten_message_goes(
        self, memory: Memory, title: str, message: str
    ) -> None:
        """The first sentence of the user that is left is the title then."""
        (number,) = memory.ingest([user(message)], scope=SCOPE)
        memory.set_title(title, scope=SCOPE)
        memory.forget(scope=SCOPE, ids=[number])
        assert make_title(memory.store, SCOPE) == "The importer skips rows."


class TestList:
    def test_a_session_has_a_title_times_and_sizes(self, tmp_path: Path) -> None:
        """The session with the newest message comes first."""
        settings = Settings(embedding=Embedding(provider="none"))
        times = iter(range(1_000, 2_000))
        with Engine.open(tmp_path, settings=settings, background=False, clock=lambda: next(times)) as engine:
            engine.session("empty", project="shop")
            engine.session("old", project="shop").append([user("Rename the module."), reply("Done.")])
            window = engine.session("new", agent="ann").assemble([user("Fix the importer. It fails.")], limit=20_000)
            newest, oldest = engine.sessions()
            assert (newest.id, newest.agent, newest.project, newest.tenant) == ("new", "ann", "", "local")
            assert (newest.title, newest.messages) == ("Fix the importer.", 1)
            assert newest.tokens == window.report.total_tokens
            assert (oldest.title, oldest.messages, oldest.tokens) == ("Rename the module.", 2, 0)
            assert oldest.first_time is not None
            assert newest.last_time is not None
            assert oldest.first_time < newest.last_time
            assert newest.host == ""
            engine._memory.set_host("Claude Code", scope=newest.scope)
            assert engine.sessions(limit=1) == [replace(newest, host="Claude Code")]
            engine._memory.set_host("", scope=newest.scope)
            newest = engine.sessions(limit=1)[0]
            assert newest.host == "Claude Code"
            assert engine.sessions(project="shop") == [oldest]
            assert [row.scope for row in engine.session("new", agent="ann").messages()] == [newest.scope]
