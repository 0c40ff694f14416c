"""Any past request can be shown as it was sent, in every wire format, through cuts, recalls, branches and restarts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast import Engine
from holdfast.errors import InputError
from holdfast.settings import Embedding, Recall, Settings
from wire_talk import TALKS, Talk

SETTINGS = Settings(
    embedding=Embedding(provider="none"), recall=Recall(deadline_ms=600_000, query_messages=1, min_query_chars=24)
)


@pytest.mark.parametrize("talk", TALKS.values(), ids=TALKS.keys())
def test_each_past_request_is_the_one_that_was_sent(talk: Talk, tmp_path: Path) -> None:
    """Also the requests of an earlier process, and of one beside it."""
    sent, requests, reports = [], {}, []
    with (
        Engine.open(tmp_path, settings=SETTINGS, background=False) as first,
        Engine.open(tmp_path, settings=SETTINGS, background=False) as second,
    ):
        for number, step in enumerate(talk.steps(30)):
            sent += step.wires
            if number == 45:
                first.session("s").compact(sent, limit=8_000)
            engine = second if number % 9 == 5 else first
            window = engine.session("s").assemble(sent, limit=8_000)
            requests[window.report.turn] = window.render()
            reports.append(window.report)
        kinds = {change.kind for report in reports for change in report.changes}
    assert kinds >= {"trimmed", "recalled", "compacted"}
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as later:
        for turn, request in requests.items():
            rebuilt = later.session("s").window(turn)
            assert json.dumps(rebuilt.render()) == json.dumps(request), turn
            assert rebuilt.report.turn == turn


def test_a_past_request_of_another_branch(tmp_path: Path) -> None:
    """A client that goes back and says something else has both branches in its past."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        session = engine.session("s")
        start = [{"role": "user", "content": "Which port?"}, {"role": "assistant", "content": "7654."}]
        one = session.assemble([*start, {"role": "user", "content": "Why that one?"}], limit=8_000)
        other = session.assemble([*start, {"role": "user", "content": "Write it down."}], limit=8_000)
        assert [session.window(turn).render() for turn in (1, 2)] == [one.render(), other.render()]
        session.forget([3])
        assert "Why that one?" not in json.dumps(session.window(1).render())
        assert session.window(2).render() == other.render()


def test_a_turn_that_is_not_there(tmp_path: Path) -> None:
    """The error names the call that lists the turns."""
    with (
        Engine.open(tmp_path, settings=SETTINGS, background=False) as engine,
        pytest.raises(InputError, match="turn 7"),
    ):
        engine.session("s").window(7)


@pytest.mark.parametrize("system", [[], [{"role": "system", "content": "Be brief."}]])
def test_a_window_whose_only_message_was_forgotten(tmp_path: Path, system: list[dict[str, str]]) -> None:
    """The error says so, in every wire format; the turns before and after are shown."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        for provider in ("anthropic", "openai_chat", "openai_responses", "gemini"):
            session = engine.session(provider)
            for words in ("Which port?", "Which host?"):
                session.assemble([*system, {"role": "user", "content": words}], limit=8_000, provider=provider)
            asked = [row.id for row in session.get() if row.message.text == "Which port?"]
            session.forget(asked)
            with pytest.raises(InputError, match=r"messages of turn 1 of session .* were forgotten"):
                session.window(1)
            assert "Which host?" in str(session.window(2).render())


def test_a_window_that_had_no_message(tmp_path: Path) -> None:
    """The caller sent its question after it."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        engine.session("s").assemble([], question="Which port?", limit=8_000)
        assert engine.session("s").window(1).render() == []
