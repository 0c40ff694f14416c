"""Questions about the past: the value of that time, next to the one that holds now."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.memory.memory import Memory
from holdfast.memory.past_facts import find_past
from holdfast.settings import Embedding, Settings
from holdfast.store.base import Scope

SCOPE = Scope(session="s")


def at(month: int, day: int) -> int:
    """Return noon of a day of 2026 in Unix milliseconds."""
    return int(datetime(2026, month, day, 12, tzinfo=UTC).timestamp() * 1000)


NOW = at(6, 20)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """A memory in which two values changed in April and in May."""
    moments = [at(1, 10)]
    settings = Settings(embedding=Embedding(provider="none"))
    with Memory.open(tmp_path / "m.db", settings=settings, clock=lambda: moments[-1]) as memory:
        for moment, content in (
            (at(1, 10), "The upload timeout is 30 s"),
            (at(2, 3), "登录的超时时间是20分钟"),
            (at(2, 5), "The office dog is called Bruno"),
            (at(4, 12), "The upload timeout is 45 s"),
            (at(5, 2), "登录的超时时间改成40分钟"),
            (at(5, 20), "The upload timeout is 60 s"),
        ):
            moments.append(moment)
            memory.remember(content, scope=SCOPE)
        yield memory


def lines(memory: Memory, question: str) -> list[str]:
    """Return the facts in the block for a question in June."""
    block = memory.recall([question], scope=SCOPE, now=NOW).block
    return [line.removeprefix("- [decision] ") for line in block.splitlines() if line.startswith("- [")]


@pytest.mark.parametrize(
    "question",
    [
        "What was the upload timeout in March?",
        "What is the upload timeout as of 2026-03-01?",
        "What did we have as upload timeout three months ago?",
        "What was the upload timeout before April?",
    ],
)
def test_a_question_about_a_time_gets_the_value_of_that_time(memory: Memory, question: str) -> None:
    """The value that holds now follows, with its date."""
    assert lines(memory, question) == [
        "The upload timeout is 30 s (from 2026-01-10 until 2026-04-12)",
        "The upload timeout is 60 s (since 2026-05-20)",
    ]


def test_a_value_that_changed_in_the_period_is_shown_with_the_one_before(memory: Memory) -> None:
    """Both held in April."""
    assert lines(memory, "What was the upload timeout in April?")[:2] == [
        "The upload timeout is 30 s (from 2026-01-10 until 2026-04-12)",
        "The upload timeout is 45 s (from 2026-04-12 until 2026-05-20)",
    ]


@pytest.mark.parametrize(
    "question",
    ["三月的时候登录的超时时间是多少？", "截至2026年3月登录的超时时间是多少？", "登录的超时时间改之前是多少？"],
)
def test_a_question_in_chinese(memory: Memory, question: str) -> None:
    """A month, and what was before the change."""
    assert lines(memory, question) == [
        "登录的超时时间是20分钟 (from 2026-02-03 until 2026-05-02)",
        "登录的超时时间改成40分钟 (since 2026-05-02)",
    ]


@pytest.mark.parametrize(
    "question",
    ["What was the upload timeout before the change?", "What did the upload timeout use to be previously?"],
)
def test_what_was_before_the_last_change_is_shown_next_to_what_is_now(memory: Memory, question: str) -> None:
    """Not the values before that."""
    assert lines(memory, question) == [
        "The upload timeout is 45 s (from 2026-04-12 until 2026-05-20)",
        "The upload timeout is 60 s (since 2026-05-20)",
    ]


@pytest.mark.parametrize("question", ["What is the upload timeout?", "What was the upload timeout again?"])
def test_a_question_that_names_no_time_gets_what_holds_now(memory: Memory, question: str) -> None:
    """People ask in the past tense for what they forgot."""
    assert lines(memory, question) == ["The upload timeout is 60 s"]


def test_a_fact_that_never_changed_is_not_dated_for_a_question_about_a_change(memory: Memory) -> None:
    """There is nothing before it."""
    assert lines(memory, "What was the office dog called before the change?") == ["The office dog is called Bruno"]


@pytest.mark.parametrize(
    "text",
    [
        "What is due in March?",
        "What was decided today?",
        "What will the timeout be in March?",
        "三月要做什么？",
        "How long is a link valid before it expires?",
    ],
)
def test_not_every_date_is_a_time_to_go_back_to(text: str) -> None:
    """A plan, or a period that is not over."""
    assert find_past(text, now=NOW) is None
