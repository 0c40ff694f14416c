"""Of two statements about the same subject, the newest is recalled, and the older one is marked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.other_words import make_tool_loop
from holdfast import Engine
from holdfast.errors import FormatError
from holdfast.memory.block import Detail, Fact, Marks, render, strip_text
from holdfast.messages import Message, Text
from holdfast.settings import Archive, Recall, Settings

LIMIT = 8_000
MARK = "outdated: see the later statement"
OTHERS = ("The mobile app is built with Flutter.", "Log lines are JSON.", "Screenshots are taken at 1440 by 900.")


def ask(folder: Path, statements: list[str], question: str, *, cap: int = 4_000) -> str:
    """Return the blocks of a window, for a question long after some statements: the overview, and what is recalled."""
    history: list[dict[str, Any]] = make_tool_loop([*statements, *OTHERS], turns=30)
    settings = Settings(recall=Recall(hard_cap_tokens=cap, deadline_ms=600_000))
    with Engine.open(folder, settings=settings, background=False) as engine:
        session = engine.session("s")
        session.assemble(history, limit=LIMIT, recall=False)
        engine.work()
        window = session.assemble([*history, {"role": "user", "content": question}], limit=LIMIT)
    shown = "\n".join(message.text for message in window.messages)
    return "\n".join(re.findall(r"<recalled-context.*?</recalled-context", shown, re.DOTALL))


@pytest.mark.variants
@pytest.mark.parametrize(
    ("statements", "question", "new"),
    [
        (
            ["Feature flags live in Unleash.", "Unleash is no longer used, LaunchDarkly took over."],
            "Where do feature flags live?",
            "LaunchDarkly",
        ),
        (
            ["The discount of Nordwind AB is 12 percent.", "The discount of Nordwind AB is 15 percent now."],
            "What is the discount of Nordwind AB?",
            "15 percent",
        ),
        (
            ["支付模块的值班人员是孙佳宁。", "孙佳宁休假了，扣款出问题改找何俊杰。"],
            "支付模块的值班人员是谁？",
            "何俊杰",
        ),
        (["退款期限是收货后二十八天。", "退款期限改成收货后三十五天。"], "退款期限是收货后多少天？", "三十五天"),
    ],
    ids=["another name", "another number", "Chinese, another name", "Chinese, another number"],
)
@pytest.mark.parametrize("cap", [300, 4_000])
def test_a_correction_is_recalled_and_the_old_statement_marked(
    tmp_path: Path, statements: list[str], question: str, new: str, cap: int
) -> None:
    """The correction may have no word of the question, and the newest statement is the last."""
    lines = ask(tmp_path, statements, question, cap=cap).splitlines()
    places = [number for number, line in enumerate(lines) if new in line]
    assert places
    assert MARK not in lines[places[-1]]
    for number, line in enumerate(lines):
        if statements[0] in line:
            assert MARK in line
            assert number < places[-1]


def test_an_answer_is_quoted_if_a_later_statement_with_its_word_is_in_the_overview(tmp_path: Path) -> None:
    """The overview has the later one as a decision, so that it is not quoted; the answer is, whatever replaces it."""
    said = {
        "first": "The mobile app is written in Flutter.",
        "second": "We decided to use Swift instead of Flutter for the watch app.",
    }
    with Engine.open(tmp_path, background=False, personal=True) as engine:
        for name, text in said.items():
            session = engine.session(name)
            for words in ("Look at the ticket, please.", text):
                session.append([{"role": "user", "content": words}, {"role": "assistant", "content": "Noted."}])
            session.learn()
        engine.work()
        question = {"role": "user", "content": "What is the mobile app written in?"}
        window = engine.session("third").assemble([question], limit=32_000)
    assert said["second"] in window.overview
    quoted = window.messages[-1].text.replace(window.overview, "")
    assert said["first"] in quoted


def test_a_statement_behind_many_requests_is_corrected(tmp_path: Path) -> None:
    """Neither statement has a word of the question, and requests match it as well."""
    statements = ["I drink my coffee with oat milk.", "I drink my coffee black these days."]
    block = ask(tmp_path, statements, "What should you put into my cup in the morning?")
    for line in block.splitlines():
        if statements[0] in line:
            assert "outdated" in line
            assert statements[1] in block


def test_the_newest_statement_has_priority_in_a_small_block(tmp_path: Path) -> None:
    """With room for only one of them, the old value is left out."""
    first = "The retry limit of the importer is a cap at 6 attempts."
    block = ask(tmp_path, [first, "The retry limit is raised to 22 attempts."], "retry limit of the importer?", cap=140)
    assert "raised to 22" in block


@pytest.mark.parametrize("cap", [120, 160, 200, 300])
@pytest.mark.parametrize("changes", [3, 4, 6])
def test_the_last_of_several_changes_has_priority_in_a_small_block(tmp_path: Path, changes: int, cap: int) -> None:
    """What was changed again and again is asked for as it is now."""
    days = [30, 45, 60, 75, 90, 120][:changes]
    statements = [f"We keep the audit logs for {number} days now, please adjust the config." for number in days]
    block = ask(tmp_path, statements, "How many days do we keep the audit logs?", cap=cap)
    assert f"{days[-1]} days" in block


@pytest.mark.parametrize(
    ("statements", "question", "new"),
    [
        (["会议定在周一下午三点。", "会议推迟到周四下午了。"], "会议在什么时候？", "周四下午"),
        (["我们定了用 Redis 做缓存。", "缓存改成 Valkey 了。"], "缓存用什么？", "Valkey"),
        (["会議は月曜の15時に決まりました。", "会議は火曜の10時に変更になりました。"], "会議はいつですか？", "火曜"),
    ],
    ids=["postponed", "replaced", "Japanese"],
)
def test_a_decision_that_was_changed_is_no_fact_without_a_mark(
    tmp_path: Path, statements: list[str], question: str, new: str
) -> None:
    """A fact is compared with what was said after it, also at the same moment."""
    block = ask(tmp_path, statements, question)
    assert new in block
    for line in block.splitlines():
        if statements[0] in line:
            assert MARK in line


def test_a_statement_in_the_window_is_corrected_by_another_session(tmp_path: Path) -> None:
    """The correction has no word of the question, and nothing else matches it."""
    settings = Settings(archive=Archive(cross_session=True), recall=Recall(deadline_ms=600_000))
    with Engine.open(tmp_path, settings=settings, background=False) as engine:
        session = engine.session("s")
        history = make_tool_loop([*OTHERS, "Feature flags live in Unleash."], turns=4)
        session.assemble(history, limit=LIMIT)
        other: list[dict[str, Any]] = [
            {"role": "user", "content": "Unleash is no longer used, LaunchDarkly took over."}
        ]
        engine.session("other").assemble(other, limit=LIMIT)
        engine.work()
        window = session.assemble([*history, {"role": "user", "content": "Where do feature flags live?"}], limit=LIMIT)
        assert "LaunchDarkly" in window.messages[-1].text


@pytest.mark.variants
@pytest.mark.parametrize(
    ("statements", "question", "new"),
    [
        (
            [
                "The cut-over to the new warehouse is planned for March 14. Show me the migration folder.",
                "Scratch that date for the warehouse, the cut-over slipped to April 2, the racks are not there yet.",
            ],
            "On which day do we switch to the new storage building?",
            "April 2",
        ),
        (
            [
                "We store the tracking events in MongoDB, collection trk_ev. Write me a short script that counts them.",
                "Actually the tracking events live in ClickHouse now, the Mongo cluster was switched off on Friday.",
            ],
            "Which database has the tracking history?",
            "ClickHouse",
        ),
        (
            ["Jonas is the product owner.", "Jonas left, Mira is the product owner now."],
            "Who is the product owner?",
            "Mira",
        ),
        (["The retry limit is 3.", "Bump the retry limit to 7."], "What is the retry limit?", "to 7"),
        (
            ["Error mails go to ops@lark.example.", "Error mails should go to alerts@lark.example, not ops@."],
            "Where do error mails go?",
            "alerts@",
        ),
        (["会议定在周一下午三点。", "会议改到周二上午十点了。"], "会议在什么时候？", "周二上午十点"),
        (["日志级别用 DEBUG。", "日志级别不要用 DEBUG 了，用 WARN。"], "日志级别用什么？", "WARN"),
        (
            ["週報は月曜日に送ってください。", "週報はやっぱり水曜日に送ってください。"],
            "週報はいつ送りますか？",
            "水曜日",
        ),
        (
            ["Die Testdaten liegen auf Server alfa3.", "Die Testdaten liegen jetzt auf Server bravo7."],
            "Wo liegen die Testdaten?",
            "bravo7",
        ),
    ],
    ids=["in other words", "a name", "left", "bare number", "not", "zh weekday", "zh not", "ja weekday", "de now"],
)
def test_a_plain_correction_marks_what_it_corrects(
    tmp_path: Path, statements: list[str], question: str, new: str
) -> None:
    """It says "now", "not", "left" or the like, or has another value; the question may have none of its words."""
    lines = ask(tmp_path, statements, question).splitlines()
    assert any(new in line for line in lines)
    old = [line for line in lines if statements[0] in line]
    assert all(MARK in line for line in old)


def test_a_request_is_never_marked(tmp_path: Path) -> None:
    """It states nothing that may become outdated."""
    statements = ["Show me the last wave output.", "The last wave output is no longer written to the share."]
    lines = ask(tmp_path, statements, "What was the last wave output?").splitlines()
    assert any("Show me" in line for line in lines)
    assert not any("Show me" in line and MARK in line for line in lines)


def test_everything_about_a_subject_is_marked_too(tmp_path: Path) -> None:
    """A broad question quotes more of the older statements."""
    first = "The canary gets 5 percent of the traffic for 40 minutes."
    statements = [first, "The canary is drawn by Freja Lund.", "The canary gets traffic for 95 minutes now."]
    lines = ask(tmp_path, statements, "Tell me everything about the canary").splitlines()
    assert any("95 minutes" in line for line in lines)
    assert all(MARK in line for line in lines if first in line)


def test_what_is_only_related_is_not_marked(tmp_path: Path) -> None:
    """The same words do not make a correction, and neither does an earlier question."""
    first = "The canary gets 5 percent of the traffic for 40 minutes."
    statements = [first, "Tell me how long the canary gets traffic.", "The canary of the shop is drawn by Freja Lund."]
    assert MARK not in ask(tmp_path, statements, "For how many minutes does the canary get traffic?")


def test_a_series_is_not_a_correction(tmp_path: Path) -> None:
    """Lines that differ only in their numbers are both quoted."""
    statements = [f"Migration of the ledger took {number} seconds." for number in (11, 12, 13, 14, 15, 16)]
    assert MARK not in ask(tmp_path, statements, "How many seconds did the migration of the ledger take?")


def test_what_else_a_passage_says_does_not_take_its_room(tmp_path: Path) -> None:
    """A later statement about another sentence of the passage would take the room of the answer."""
    asked = "A colleague asked whether the rate limiter could cache its work in groups of {}."
    first = f"The spare load balancer sits in rack 31C at the Utrecht site. {asked.format(53581)}"
    later = [asked.format(number) for number in (21366, 48187)]
    question = "In which rack at the Utrecht site does the spare load balancer sit?"
    block = ask(tmp_path, [first, *later], question, cap=200)
    assert "rack 31C" in block
    assert MARK not in block


def test_a_pasted_log_is_not_corrected(tmp_path: Path) -> None:
    """Lines of a log differ in their numbers, and none replaces another."""
    logs = [f"2026-03-09T03:{minute}:07Z INFO [upload-29] upload {minute} ms finished" for minute in (31, 42)]
    assert MARK not in ask(tmp_path, logs, "When was upload-29 finished?")


def test_a_marked_block_is_removed_when_it_comes_back() -> None:
    """The mark is part of the signed text."""
    marks = Marks((b"key",))
    details = [
        Detail(role="user", time=1_770_733_860_000, text="The port is 8080.", session=2, superseded="wholly"),
        Detail(role="user", time=1_770_734_860_000, text="The port is 9090.", session=1),
    ]
    block = render([Fact(type="decision", text="Use 8080", superseded="wholly")], details, marks)
    assert "- [decision] Use 8080 (may be outdated: see the later statement)" in block
    assert block.index("The port is 8080. (may be outdated: see the later statement)") < block.index(
        "The port is 9090."
    )
    assert strip_text(f"Hello\n\n{block}", marks) == "Hello"


@pytest.mark.parametrize(
    ("said", "decided", "question"),
    [
        (
            "The discount of Nordwind AB is 12 percent.",
            "The discount of Nordwind AB is 15 percent.",
            "Nordwind discount?",
        ),
        ("退款期限是收货后二十八天。", "退款期限是收货后三十五天。", "退款期限是收货后多少天？"),
    ],
    ids=["English", "Chinese"],
)
def test_a_passage_that_a_later_fact_replaces_is_marked(tmp_path: Path, said: str, decided: str, question: str) -> None:
    """The fact has its day, because not every replacement is recognised."""
    day = 86_400_000
    now = 1_790_000_000_000
    with Engine.open(tmp_path / "memory", clock=lambda: now, personal=True, background=False) as engine:
        session = engine.session("s")
        session.append([{"role": "user", "content": said}, {"role": "assistant", "content": "Noted."}])
        now += day
        session.remember(decided)
        now += day
        engine.work()
        block = engine.session("t").recall(question).block
    fact, _, passage = block.partition("<detail>")
    assert decided in fact
    assert "(since 2026-09-22)" in fact
    assert said in passage
    assert MARK in passage


def test_a_fact_that_replaced_nothing_has_no_day(tmp_path: Path) -> None:
    """Next to an older quote about something else, a day would only raise the question of what it was before."""
    now = 1_790_000_000_000
    with Engine.open(tmp_path / "memory", clock=lambda: now, personal=True, background=False) as engine:
        session = engine.session("s")
        session.append([{"role": "user", "content": "The billing importer reads the ledger of Nordwind AB at night."}])
        now += 86_400_000
        session.remember("The discount of Nordwind AB is 15 percent.")
        now += 86_400_000
        engine.work()
        block = engine.session("t").recall("What do we know of Nordwind AB, its ledger and its discount?").block
    assert "reads the ledger" in block
    assert "15 percent" in block
    assert "(since" not in block


def ask_new(folder: Path, said: list[str], question: str) -> str:
    """Return the block that a new session gets for a question about what another one said and taught."""
    with Engine.open(folder, personal=True, background=False) as engine:
        session = engine.session("s")
        for text in said:
            session.append([{"role": "user", "content": text}, {"role": "assistant", "content": "OK."}])
        session.learn()
        engine.work()
        window = engine.session("new").assemble([{"role": "user", "content": question}], limit=16_000)
    return window.messages[-1].text


def test_a_passage_of_a_replaced_fact_is_marked(tmp_path: Path) -> None:
    """The store knows that another fact replaced it."""
    lines = ask_new(tmp_path, ["MAX_RETRIES=5", "MAX_RETRIES=9"], "What is MAX_RETRIES?").splitlines()
    assert any("MAX_RETRIES=9" in line for line in lines)
    assert all(MARK in line for line in lines if "MAX_RETRIES=5" in line)


def test_a_session_is_not_named_after_what_no_longer_holds(tmp_path: Path) -> None:
    """The overview of a new session has the fact that holds."""
    said = ["Remember that deploys happen on Tuesdays.", "Remember that deploys happen on Fridays now."]
    overview, _, _ = ask_new(tmp_path, said, "Hello there, what is up?").partition("</project-overview>")
    assert "Fridays" in overview
    assert "Tuesdays" not in overview


def test_a_time_in_the_future_does_not_make_a_statement_the_newest(tmp_path: Path) -> None:
    """The messages of a session are in order, whatever the clock of the client says."""
    future = 2_100_000_000_000
    said = Message(role="user", parts=(Text(text="The invoice prefix is KR."),), timestamp=future)
    history: list[Any] = make_tool_loop([*OTHERS, "Correction: the invoice prefix is ZX."], turns=30)
    history[5:5] = [said, {"role": "assistant", "content": "Noted."}]
    with Engine.open(tmp_path, settings=Settings(recall=Recall(deadline_ms=600_000)), background=False) as engine:
        session = engine.session("s")
        session.assemble(history, limit=LIMIT, recall=False)
        engine.work()
        question = {"role": "user", "content": "What is the invoice prefix?"}
        window = session.assemble([*history, question], limit=LIMIT)
    lines = window.messages[-1].text.partition("<detail>")[2].splitlines()
    old = next(number for number, line in enumerate(lines) if "KR" in line)
    new = next(number for number, line in enumerate(lines) if "ZX" in line)
    assert old < new
    assert MARK in lines[old]
    assert MARK not in lines[new]


def test_sessions_that_are_in_the_future_as_a_whole_keep_their_times(tmp_path: Path) -> None:
    """The clock of this machine may be behind. Then the newest statement is still the newest."""
    january, february = 4_070_908_800_000, 4_073_587_200_000  # the first days of both in 2099
    stated = {"Correction: the invoice prefix is ZX.": february, "The invoice prefix is KR.": january}
    settings = Settings(recall=Recall(deadline_ms=600_000))
    with Engine.open(tmp_path, settings=settings, background=False, personal=True) as engine:
        for text, time in stated.items():  # the later one is archived first
            engine.session(text[:5]).append([Message(role="user", parts=(Text(text=text),), timestamp=time)])
        engine.work()
        question = {"role": "user", "content": "What is the invoice prefix?"}
        window = engine.session("new").assemble([question], limit=LIMIT)
    marked = [passage.text for passage in window.report.recalled if passage.superseded != "no"]
    assert marked == ["The invoice prefix is KR."]


def test_a_time_that_is_no_number_is_refused(tmp_path: Path) -> None:
    """The error names the message and its argument."""
    said = Message(role="user", parts=(Text(text="x"),), timestamp="2026-11-18")  # type: ignore[arg-type]
    with Engine.open(tmp_path, background=False) as engine, pytest.raises(FormatError, match="timestamp"):
        engine.session("s").append([said])


def test_the_newest_statement_is_recalled_if_the_overview_has_the_older_one(tmp_path: Path) -> None:
    """The title of the first session says what held; that of the second does not say what changed."""
    settings = Settings(recall=Recall(deadline_ms=600_000))
    with Engine.open(tmp_path, settings=settings, background=False, personal=True) as engine:
        told = (
            "Tomasz looks after everything that has to do with billing.",
            "Tomasz has become a father and is away until February, so from today Ingrid takes care of invoices.",
        )
        for number, text in enumerate(told):
            engine.session(f"s{number}").assemble([{"role": "user", "content": text}], limit=LIMIT)
        engine.work()
        window = engine.session("new").assemble([{"role": "user", "content": "Who looks after billing?"}], limit=LIMIT)
        assert "Tomasz looks after everything" in window.overview
        assert "Ingrid" not in window.overview
        assert "Ingrid takes care of invoices" in str(window.request())
