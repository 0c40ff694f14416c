"""The sheet of questions in other words, and the conversations that its facts are placed into."""

from __future__ import annotations

import json
import re

import pytest

from benchmarks.other_words import Half, count_questions, load_sheet, make_talk, make_tool_loop


def test_every_answer_is_in_its_fact_and_in_no_question() -> None:
    """A pattern matches the statement, so that only memory can answer the question."""
    for text, question in load_sheet().facts:
        assert re.search(question.answer, text)
        assert not re.search(question.answer, question.own + question.other)


@pytest.mark.parametrize("half", ["choose", "check"])
def test_halves_share_no_question(half: Half) -> None:
    """What is checked was not chosen with."""
    whole = load_sheet()
    part = load_sheet(half)
    assert 2 * len(part.facts) == len(whole.facts)
    assert count_questions(half) == 2 * len(part.facts) + sum(map(len, part.sessions.values()))
    others = load_sheet("check" if half == "choose" else "choose")
    assert not {text for text, _ in part.facts} & {text for text, _ in others.facts}


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
