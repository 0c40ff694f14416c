"""The sheets of questions in other words, and the conversations that their facts are placed into."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.other_words import (
    Half,
    Question,
    Sheet,
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
SHEETS = (1, 2)
FILES = [(sheet, name) for sheet in SHEETS for name in load_sheet(sheet=sheet).digests]
MAX_ANSWERS = 3
"""A session has the answer to a question in so many messages at most: it is asked for because it is hard to find."""


@pytest.mark.parametrize("number", SHEETS)
def test_every_fact_has_its_answer(number: int) -> None:
    """The statement matches the pattern."""
    for text, question in load_sheet(sheet=number).facts:
        assert re.search(question.answer, text)


@pytest.mark.parametrize("number", SHEETS)
def test_no_question_has_its_answer(number: int) -> None:
    """Only memory can answer it."""
    for question in list_questions(load_sheet(sheet=number)):
        assert not re.search(question.answer, question.own), question
        assert not re.search(question.answer, question.other), question


@pytest.mark.parametrize("number", SHEETS)
def test_every_question_is_asked_in_two_ways_once(number: int) -> None:
    """Nothing counts twice."""
    texts = list_texts(load_sheet(sheet=number))
    assert len(set(texts)) == len(texts)


def test_sheets_share_no_question() -> None:
    """What was chosen with one sheet is checked with the other."""
    first, second = (load_sheet(sheet=number) for number in SHEETS)
    assert not set(list_texts(first)) & set(list_texts(second))
    assert not set(first.unrelated) & set(second.unrelated)
    assert not {text for text, _ in first.facts} & {text for text, _ in second.facts}


def list_questions(sheet: Sheet) -> list[Question]:
    """List the questions about facts and about sessions."""
    asked = [question for _, question in sheet.facts]
    return asked + [question for questions in sheet.sessions.values() for question in questions]


def list_texts(sheet: Sheet) -> list[str]:
    """List the questions in both ways to ask them."""
    return [text for question in list_questions(sheet) for text in (question.own, question.other)]


@pytest.mark.parametrize("number", SHEETS)
def test_sessions_are_many(number: int) -> None:
    """One agent, one project or one language does not decide the result."""
    sheet = load_sheet(sheet=number)
    assert set(sheet.sessions) == set(sheet.digests)
    assert set(sheet.joined) < set(sheet.sessions)
    assert len(sheet.sessions) >= 20
    with_sessions = count_questions("all", folder=SESSIONS, sheet=number)
    assert with_sessions - count_questions("all", folder=None, sheet=number) >= 140
    chinese = [
        question
        for questions in sheet.sessions.values()
        for question in questions
        if re.search(r"[\u4e00-\u9fff]", question.other)
    ]
    assert len(chinese) >= 25


@pytest.mark.variants
@pytest.mark.parametrize(("number", "name"), FILES)
def test_every_session_has_the_answers_in_few_messages(number: int, name: str) -> None:
    """The pattern occurs, and not by chance."""
    if not (SESSIONS / name).is_file():
        pytest.skip(f"the real sessions are not at {SESSIONS}")
    sheet = load_sheet(sheet=number)
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
    _, name = FILES[0]
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    file.write_text('{"role": "user", "content": "Hello"}\n')
    with pytest.raises(InputError, match="not the file"):
        read_session(load_sheet(), name, folder=tmp_path)


@pytest.mark.parametrize("number", SHEETS)
@pytest.mark.parametrize("half", ["choose", "check"])
def test_halves_share_no_question(half: Half, number: int) -> None:
    """What is checked was not chosen with."""
    whole = load_sheet(sheet=number)
    part = load_sheet(half, sheet=number)
    assert 2 * len(part.facts) == len(whole.facts)
    others = load_sheet("check" if half == "choose" else "choose", sheet=number)
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
