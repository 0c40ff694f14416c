"""`holdfast learn`: facts out of what was imported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from holdfast.cli import holdfast

Run = Callable[..., Result]
SAID = {
    "english": ("Decision: use PostgreSQL 16 for the billing service.", "Noted: PostgreSQL 16 for billing."),
    "chinese": ("记住:账单服务的数据库端口是 6543。", "好的,端口是 6543。"),
}


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in a home of its own, with two sessions that were imported."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "memory"))
    monkeypatch.setenv("HOLDFAST_EMBEDDING__PROVIDER", "none")
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "OPENCLAW_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str | Path) -> Result:
        command: click.Command = holdfast
        return CliRunner().invoke(command, [*map(str, arguments)])

    for session, (asked, answered) in SAID.items():
        conversation = [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
        (tmp_path / f"{session}.json").write_text(json.dumps(conversation), "utf-8")
        assert call("import", tmp_path / f"{session}.json", "--session", session).exit_code == 0
    return call


def data(done: Result) -> Any:
    """What a command prints with --json."""
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def facts(call: Run, *arguments: str) -> list[str]:
    """The facts that hold."""
    return [fact["content"] for fact in data(call("facts", "--json", *arguments))]


def test_an_import_and_the_figures_say_that_nothing_was_read_for_facts(call: Run, tmp_path: Path) -> None:
    """Until it is; a session that is queued, or without extraction, is not among those."""
    unread = "2 archived sessions were not read for facts: `holdfast learn` reads them"
    assert unread in call("import", tmp_path / "english.json", "--session", "english").output
    assert unread in call("stats").output
    assert data(call("stats", "--json"))["learning"]["unread"] == 2
    assert data(call("import", tmp_path / "english.json", "--session", "english", "--json"))["unread"] == 2
    call("learn", "--session", "english")
    assert "1 archived session was not read for facts: `holdfast learn` reads it" in call("stats").output
    call("learn")
    assert "not read" not in call("stats").output
    assert "not read" not in call("import", tmp_path / "english.json", "--session", "english").output


def test_nothing_is_said_about_facts_if_none_are_to_be_extracted(call: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """`holdfast learn` would refuse, too."""
    monkeypatch.setenv("HOLDFAST_KNOWLEDGE__EXTRACTION", "false")
    assert "not read" not in call("stats").output


def test_what_was_imported_has_no_facts_until_it_is_learned_from(call: Run) -> None:
    """By rule, in every session of the agent; doing it again reads nothing."""
    assert facts(call) == []
    learned = data(call("learn", "--json"))
    assert (learned["messages"], learned["model"], learned["problems"]) == (4, None, [])
    assert learned["facts"] == len(facts(call)) > 0
    assert any("PostgreSQL 16" in fact for fact in facts(call))
    assert data(call("learn", "--json"))["messages"] == 0


def test_one_session(call: Run) -> None:
    """Only what was said in it is read; the others wait."""
    assert data(call("learn", "--session", "chinese", "--json"))["messages"] == 2
    assert not any("PostgreSQL" in fact for fact in facts(call))
    assert data(call("learn", "--json"))["messages"] == 2
    assert any("PostgreSQL" in fact for fact in facts(call))


def test_a_model_reads_what_only_the_rules_have_read(call: Run, tmp_path: Path) -> None:
    """Each reader is remembered by its name; what the model says has to be proved by a quote."""
    data(call("learn", "--json"))
    message = {
        "facts": [
            {
                "type": "config",
                "content": "账单服务的数据库端口是 6543",
                "subject": "账单服务",
                "slot": "port",
                "quote": "账单服务的数据库端口是 6543",
            }
        ]
    }
    (tmp_path / "script.jsonl").write_text(json.dumps({"text": json.dumps(message), "repeat": True}) + "\n")
    name = f"scripted:{tmp_path / 'script.jsonl'}"
    learned = data(call("learn", "--model", name, "--json"))
    assert learned["messages"] == 4
    assert learned["model"]
    assert data(call("learn", "--model", name, "--json"))["messages"] == 0


def test_a_person_reads_one_line(call: Run) -> None:
    """How many messages, read by whom, and what came of it."""
    assert "4 messages read by the rules" in call("learn").stdout


def test_nothing_to_learn_from_is_an_error(call: Run) -> None:
    """A session that no one knows, and a model that no one knows."""
    unknown = call("learn", "--session", "nobody")
    assert unknown.exit_code == 1
    assert "no message of session nobody is archived" in str(unknown.exception)
    assert call("learn", "--model", "nobody").exit_code == 1


def test_it_can_be_switched_off(call: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the settings forbid it nothing is read."""
    monkeypatch.setenv("HOLDFAST_KNOWLEDGE__EXTRACTION", "false")
    assert call("learn").exit_code == 1


def write_script(tmp_path: Path, text: str) -> str:
    """Write what a scripted model answers each time, and return the name of the model."""
    (tmp_path / "script.jsonl").write_text(json.dumps({"text": text, "repeat": True}) + "\n")
    return f"scripted:{tmp_path / 'script.jsonl'}"


def test_a_model_is_asked_again_after_it_answered_nonsense(call: Run, tmp_path: Path) -> None:
    """A few calls end the command, which says why; with the model repaired, it reads all messages."""
    name = write_script(tmp_path, "I would rather not.")
    learned = data(call("learn", "--model", name, "--json"))
    assert learned["messages"] == 0
    assert any("not JSON" in problem for problem in learned["problems"])
    state = data(call("stats", "--json"))["learning"]
    assert 0 < state["calls"] <= 8
    assert state["waiting"] == 2
    for _ in range(4):
        call("learn", "--model", name)
    write_script(tmp_path, json.dumps({"facts": []}))
    assert data(call("learn", "--model", name, "--json"))["messages"] == 4
    assert data(call("stats", "--json"))["learning"]["waiting"] == 0
    assert data(call("stats", "--json"))["learning"]["problems"] == []


def test_one_is_not_many(call: Run, tmp_path: Path) -> None:
    """The words follow the number."""
    (tmp_path / "one.json").write_text(json.dumps([{"role": "user", "content": "Remember that Ann is away."}]), "utf-8")
    assert call("import", tmp_path / "one.json", "--session", "one").exit_code == 0
    assert "1 message read by the rules, 1 new fact." in call("learn", "--session", "one").stdout
