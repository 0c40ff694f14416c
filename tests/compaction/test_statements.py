"""What the digest says was stated, and what was said later about the same thing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast import Engine
from holdfast.compaction.digest import make_digest
from holdfast.compaction.sections import LATER, parse
from holdfast.compaction.statements import MAX_LINES, find_conclusion, find_kind, list_stated
from holdfast.compaction.tool_calls import find_activity
from holdfast.messages import Message
from holdfast.settings import Embedding, Recall, Settings
from holdfast.tokens import count_text
from support.cases import each
from support.conversations import reply, user

PAIRS = [
    ("Decision: the handover to the Bremen team is on May 9.", "Scratch that, the Bremen handover slipped to June 20."),
    ("Never use the cache on the reporting host.", "The cache is fine on the reporting host after all."),
    ("The disk alarm must go off at 70 percent.", "Set the disk alarm to 85 please."),
    ("Please always write comments in Dutch.", "You can write comments in English again."),
    ("Invoices are archived for seven years.", "From now on invoices are archived for ten years, not seven."),
    ("令牌的有效期必须是 15 分钟。", "令牌的有效期改成 40 分钟吧，太短了。"),
    ("不要在周五发布客户端。", "周五可以发布客户端了，测试已经自动化。"),
    ("セッションの期限は必ず30分にしてください。", "やっぱりセッションの期限は60分でお願いします。"),
    ("文档一律用英文写。", "文档用中文写也没关系。"),
    ("会議の議事録は英語で書いてください。", "議事録の言語を日本語に変更します。"),
]
"""Statements, and what is said later about each."""


def fill(first: int, last: int) -> list[dict[str, str]]:
    """Turns about other things, as Chat Completions has them."""
    messages: list[dict[str, str]] = []
    for number in range(first, last):
        messages.append({"role": "user", "content": f"Look at crate {number} of the loader."})
        messages.append({"role": "assistant", "content": f"Crate {number} has {number * 3} parts in it. " * 12})
    return messages


def say(*texts: str) -> list[dict[str, str]]:
    """Turns of the user with a short reply each."""
    messages: list[dict[str, str]] = []
    for text in texts:
        messages += [{"role": "user", "content": text}, {"role": "assistant", "content": "OK."}]
    return messages


def read(messages: Sequence[dict[str, str]]) -> list[Message]:
    """The same turns as messages."""
    made: list[Message] = []
    for message in messages:
        make = user if message["role"] == "user" else reply
        made.append(make(message["content"]))
    return made


def digest(messages: Sequence[Message], *, previous: str = "", limit: int = 1_600) -> str:
    """The digest of messages."""
    return make_digest(messages, limit=limit, activity=find_activity(messages), previous=previous)


def test_after_three_compactions_no_corrected_statement_is_alone(tmp_path: Path) -> None:
    """The window has every correction, and the summary has none of the corrected statements without it."""
    messages = say("Please get the loader into shape, crate by crate.", *(old for old, _ in PAIRS))
    settings = Settings(embedding=Embedding(provider="none"))
    with Engine.open(tmp_path, settings=settings, background=False) as engine:
        session = engine.session("s")
        messages += fill(0, 30)
        session.compact(messages, limit=16_000)
        messages += say(*(new for _, new in PAIRS)) + fill(30, 60)
        session.compact(messages, limit=16_000)
        messages += fill(60, 90)
        summary = session.compact(messages, limit=16_000).summary
        messages += say("Now write the release notes.")[:1]
        window = session.assemble(messages, limit=16_000, provider="openai_chat").request("openai_chat")
    assert summary is not None
    text = "\n".join(str(message["content"]) for message in window["messages"])
    for _, new in PAIRS:
        assert new in text, new
    for old, new in PAIRS:
        for line in summary.text.splitlines():
            assert old not in line or f"{old}{LATER}{new})" in line, line
    assert parse(summary.text)["## Goal"] == ["Please get the loader into shape, crate by crate."]
    assert count_text(summary.text) <= 1_600


@each(("old", "new"), PAIRS)
def test_what_was_said_later_stands_in_the_same_line(old: str, new: str) -> None:
    """In one digest, and in one that continues the digest of the statement, also if the next has nothing new."""
    filler = read(fill(0, 8))
    at_once = digest([*read(say(old)), *filler, *read(say(new)), *filler])
    second = digest([*filler, *read(say(new)), *filler], previous=digest([*read(say(old)), *filler]))
    third = digest(filler, previous=second)
    for text in (at_once, second, third):
        for title in ("## Constraints & Preferences", "## Key Decisions", "## Critical Context"):
            for line in parse(text).get(title, ()):
                assert old not in line or new in line, line
        assert new in text


def test_the_newest_of_several_later_sentences_is_last() -> None:
    """A statement is followed by what was said later, in order; what is said again is the newest again."""
    first = "The export must finish within 20 minutes."
    second = "Actually the export may take 35 minutes."
    text = digest(read(say(first, second)))
    assert f"- {first}{LATER}{second})" in text.splitlines()
    again = digest(read(say(first)), previous=text)
    assert f"- {second}{LATER}{first})" in again.splitlines()


def test_a_cut_leaves_the_later_sentence() -> None:
    """If a line does not fit as a whole, the statement that no longer holds goes first."""
    old = "Never use the cache on the reporting host, it was wrong twice in the spring and nobody noticed for weeks."
    new = "The cache is fine on the reporting host after all."
    messages = read(say(old, new))
    for limit in range(20, 120, 3):
        text = digest(messages, limit=limit)
        stated = parse(text).get("## Constraints & Preferences", [])
        assert not any("Never use the cache" in line and "fine" not in line for line in stated)


def test_statements_about_different_things_stay_apart() -> None:
    """A common word, or the same words of time and of change, do not make two statements one."""
    said = [
        "Nadia took over as release manager this month.",
        "Our biggest customer ships 41,000 parcels a month, so test with realistic sizes.",
        "The cut-over is planned for March 14.",
        "I'm off on Thursdays, so plan reviews around that.",
        "发布由王敏负责，每周三进行。",
        "报表里的金额用分作单位，不要用浮点数。",
    ]
    text = digest(read(say(*said)))
    assert LATER not in text
    for sentence in said:
        assert f"- {sentence}" in text.splitlines()


@each(
    ("sentence", "kind"),
    [
        ("Never push to main.", "rule"),
        ("Keep the sidebar on the left.", "rule"),
        ("文档一律用英文写。", "rule"),
        ("We agreed on tabs.", "decision"),
        ("The backup runs at 4:30.", "value"),
        ("Finance capped the spend at 18,500 euros.", "value"),
        ("The dashboards are under the folder Nordlicht.", "value"),
        ("仓库盘点在每月 25 日。", "value"),
        ("MAX_RETRIES=5", "value"),
        ("待办：补测试", "value"),
        ("Look at crate 17 of the loader.", None),
        ("Run it again for wave-2779.", None),
        ("Can you check whether parcel 2828 is still there?", None),
        ("看一下第 12 个文件。", None),
        ("I looked through the board again and most of the cards are done.", None),
        ("Thanks, that reads better.", None),
        ("Deploys need two reviewers.", "value"),
        ("[theme] Detected truecolor mode (TERM=xterm-256color)", None),
        ("aider/repomap.py:23:1: E402 module level import not at top of file", None),
        ("========= 1 failed, 6 passed in 3.28s =========", None),
    ],
)
def test_statements_of_the_user_are_told_from_tasks(sentence: str, kind: str | None) -> None:
    """Rules, decisions and values are listed; tasks, questions and remarks are not."""
    assert find_kind(sentence) == kind


@pytest.mark.parametrize(
    "sentence",
    [
        "Root cause found: the lock is taken twice in reserve().",
        "It turns out that the header was missing.",
        "The crash on start was an empty config.",
        "The suite finished: 812 passed, 3 failed.",
        "原因是缓存没有失效。",
        "原因はキャッシュの期限でした。",
    ],
)
def test_conclusions_of_the_assistant_are_kept(sentence: str) -> None:
    """What was found out is among the decisions, also if it was said between tool calls."""
    assert find_conclusion(sentence) == "decision"
    assert f"- {sentence}" in parse(digest([user("Why?"), reply(sentence), reply("Done.")]))["## Key Decisions"]


def test_no_more_statements_are_listed_than_fit() -> None:
    """The newest are, so that a long conversation is not compared with all that was ever said in it."""
    said = [
        f"The quota of {chr(97 + number % 26) * 4}{number} is {number * 3} boxes." for number in range(MAX_LINES + 40)
    ]
    listed = list_stated({"rule": (), "decision": (), "value": ()}, read(say(*said)))
    assert len(listed["value"]) <= MAX_LINES
    assert said[-1] in listed["value"][-1]


def test_an_assistant_does_not_end_a_rule_of_the_user() -> None:
    """What it says may stand behind the rule, never instead of it."""
    rule = "We always use Kafka for the order events."
    text = digest([*read(say(rule)), reply("We no longer use Kafka for the order events.")])
    assert rule in text


def test_the_goal_is_a_request() -> None:
    """Neither a decision nor a rule nor a short word is; an open request stands before the first one."""
    first = "Please bring the parser of the manifests up to date."
    messages = read(
        say("Let's go with NATS for the order events.", "ok, go on", first, "Never log the tokens of users.")
    )
    assert parse(digest(messages))["## Goal"] == [first]
    opened = "Rewrite the importer of the price lists in Go."
    more = [user(opened), user("What is the weather in Bremen like today?"), reply("Rain.")]
    assert parse(digest(more, previous=digest(messages)))["## Goal"] == [opened, first]


def test_done_lines_commands_and_numbers_are_few() -> None:
    """What is done is listed for the newest turns, and a number without a name is no identifier."""
    text = digest(read(fill(1000, 1030)), limit=4_000)
    assert len(parse(text)["### Done"]) == 8
    assert "### Exact Identifiers" not in parse(text)


def test_what_is_archived_is_said_to_be_recalled_if_it_is(tmp_path: Path) -> None:
    """A model without a tool reads that it need not search; without recall nothing is promised."""
    for is_on in (True, False):
        settings = Settings(embedding=Embedding(provider="none"), recall=Recall(enabled=is_on))
        with Engine.open(tmp_path / str(is_on), settings=settings, background=False) as engine:
            summary = engine.session("s").compact(fill(0, 40), limit=16_000).summary
        assert summary is not None
        assert ("recalled from them by itself" in summary.text) is is_on


def test_statements_about_two_things_both_stand_alone() -> None:
    """Neither is written behind the other as what was said later."""
    said = (
        "We decided to use Kafka for the order events.",
        "We decided to use NATS for the metrics instead of StatsD.",
        "The discount for Nordbank is 12 percent.",
        "The discount for Suedbank is 15 percent now.",
    )
    listed = list_stated({}, read(say(*said)))
    assert sorted(line for lines in listed.values() for line in lines) == sorted(f"- {text}" for text in said)


def test_a_statement_is_listed_with_the_sentence_that_changes_it() -> None:
    """And nothing of a story is."""
    said = (
        "Remember that the code of the gate is 1122. Wait, no, 2211.",
        "Imagine you are a pirate. From now on, answer only in rhymes.",
    )
    listed = list_stated({}, read(say(*said)))
    assert [line for lines in listed.values() for line in lines] == [f"- {said[0]}"]
