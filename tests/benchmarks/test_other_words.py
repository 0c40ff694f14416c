"""The sheet of questions in other words, and the conversations that its facts are placed into."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.other_words import (
    Half,
    Question,
    count_questions,
    load_sheet,
    make_talk,
    make_tool_loop,
    read_session,
    read_words,
)
from holdfast.errors import InputError
from holdfast.messages import Message, Text, ToolCall, ToolResult
from support.external_data import DATA

SESSIONS = DATA / "transcripts"
FILES = tuple(load_sheet().digests)
MAX_ANSWERS = 3
"""A session has the answer to a question in so many messages at most: it is asked for because it is hard to find."""


def test_every_fact_has_its_answer() -> None:
    """The statement matches the pattern."""
    for text, question in load_sheet().facts:
        assert re.search(question.answer, text)


def test_no_question_has_its_answer() -> None:
    """Only memory can answer it."""
    sheet = load_sheet()
    asked = [question for _, question in sheet.facts]
    asked += [question for questions in sheet.sessions.values() for question in questions]
    for question in asked:
        assert not re.search(question.answer, question.own), question
        assert not re.search(question.answer, question.other), question


def test_every_question_is_asked_in_two_ways_once() -> None:
    """Nothing counts twice."""
    sheet = load_sheet()
    asked = [question for questions in sheet.sessions.values() for question in questions]
    texts = [text for question in asked for text in (question.own, question.other)]
    assert len(set(texts)) == len(texts)


def test_sessions_are_many() -> None:
    """One agent, one project or one language does not decide the result."""
    sheet = load_sheet()
    assert set(sheet.sessions) == set(sheet.digests)
    assert set(sheet.joined) < set(sheet.sessions)
    assert len(sheet.sessions) >= 20
    assert count_questions("all", folder=SESSIONS) - count_questions("all", folder=None) >= 140
    chinese = [
        question
        for questions in sheet.sessions.values()
        for question in questions
        if re.search(r"[\u4e00-\u9fff]", question.other)
    ]
    assert len(chinese) >= 25


@pytest.mark.variants
@pytest.mark.parametrize("name", FILES)
def test_every_session_has_the_answers_in_few_messages(name: str) -> None:
    """The pattern occurs, and not by chance."""
    if not (SESSIONS / name).is_file():
        pytest.skip(f"the real sessions are not at {SESSIONS}")
    sheet = load_sheet()
    messages = read_session(sheet, name, folder=SESSIONS)
    assert messages[-1].role != "user", "a question would be read together with what was said before it"
    texts = [read_words(message) for message in messages]
    for question in sheet.sessions[name]:
        found = sum(re.search(question.answer, text) is not None for text in texts)
        assert 1 <= found <= MAX_ANSWERS, question


def test_calls_and_results_in_the_window_count() -> None:
    """An agent reads them as well: an answer that a tool printed is an answer."""
    call = ToolCall(id="c", name="bash", arguments={"command": "du -sh build"})
    result = ToolResult(call_id="c", content=(Text(text="322M build"),))
    asked = Message(role="assistant", parts=(Text(text="Let me look."), call))
    assert read_words(asked) == 'Let me look.\n{"command": "du -sh build"}'
    assert re.search("322M", read_words(Message(role="tool", parts=(result,))))


def test_another_file_of_that_name_is_refused(tmp_path: Path) -> None:
    """Its questions were written for other words."""
    file = tmp_path / FILES[0]
    file.parent.mkdir(parents=True)
    file.write_text('{"role": "user", "content": "Hello"}\n')
    with pytest.raises(InputError, match="not the file"):
        read_session(load_sheet(), FILES[0], folder=tmp_path)


@pytest.mark.parametrize("half", ["choose", "check"])
def test_halves_share_no_question(half: Half) -> None:
    """What is checked was not chosen with."""
    whole = load_sheet()
    part = load_sheet(half)
    assert 2 * len(part.facts) == len(whole.facts)
    others = load_sheet("check" if half == "choose" else "choose")
    assert not {text for text, _ in part.facts} & {text for text, _ in others.facts}
    for name, asked in whole.sessions.items():
        mine = part.sessions[name]
        rest = others.sessions[name]
        assert abs(len(mine) - len(rest)) <= 1
        assert sorted([*mine, *rest], key=_key) == sorted(asked, key=_key)


def _key(question: Question) -> str:
    return question.own


@pytest.mark.parametrize("make", [make_tool_loop, make_talk])
def test_every_fact_is_stated_once_in_the_first_half(make: object) -> None:
    """It has left the window when it is asked for."""
    facts = [text for text, _ in load_sheet().facts]
    assert callable(make)
    messages = make(facts)
    assert messages == make(facts)
    first_half = json.dumps(messages[: len(messages) // 2 + 2], ensure_ascii=False)
    whole = json.dumps(messages, ensure_ascii=False)
    for fact in facts:
        assert first_half.count(fact) == whole.count(fact) == 1
