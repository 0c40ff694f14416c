"""`holdfast compact`: tried on a file, done to a stored session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from holdfast.cli import holdfast
from holdfast.engine import Engine
from holdfast.errors import CompactionError, InputError
from holdfast.messages import Message
from holdfast.settings import Embedding, Settings
from support.conversations import answer, call, reply, results, system, user

QUIET = Settings(embedding=Embedding(provider="none"))
SUMMARY = "## Goal\nMove the staging database.\n\n## Key facts\nIt listens on port 6543; see /etc/pg/staging.conf.\n"


def session(turns: int) -> list[Message]:
    """A conversation with files, a failure and a fact."""
    conversation = [system(), user("Remember that the staging database listens on port 6543."), reply("Noted.")]
    for turn in range(turns):
        conversation += [
            user(f"Step {turn}: please look at module number {turn}."),
            reply("Looking.", call(f"c{turn}", "read", path=f"src/module{turn}.py")),
            results(answer(f"c{turn}", f"line of module {turn}\n" * 40, is_error=turn == 1)),
            reply(f"Module {turn} is fine. " + f"change{turn} " * 20),
        ]
    return conversation


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without settings or memory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "memory"))
    monkeypatch.setenv("HOLDFAST_EMBEDDING__PROVIDER", "none")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A transcript of any known format: a list of messages."""
    path = tmp_path / "talk.json"
    turns = [{"role": "system", "content": "You are careful."}]
    for turn in range(40):
        turns.append({"role": "user", "content": f"Step {turn}: look at it, please. " + f"detail{turn} " * 60})
        turns.append({"role": "assistant", "content": f"Module {turn} is fine. " + f"change{turn} " * 60})
    path.write_text(json.dumps(turns), "utf-8")
    return path


def run(*arguments: str | Path) -> Result:
    """Run a command."""
    return CliRunner().invoke(holdfast, ["compact", *map(str, arguments)], env={"COLUMNS": "100"})


def data(*arguments: str | Path) -> dict[str, Any]:
    """What a command prints with --json."""
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class TestFile:
    def test_a_dry_run_lists_what_would_be_removed_and_kept(self, file: Path) -> None:
        """Without a summary, and with every figure."""
        found = data(file, "--dry-run", "--limit", "12000")
        assert found["outcome"] == "ready"
        assert found["summary"] is None
        assert found["summarised"] + found["kept"] == 81
        assert found["tokens_kept"] < found["tokens_before"] == found["tokens_after"]
        assert found["dry_run"]

    def test_without_a_model_the_summary_is_made_by_rule(self, file: Path) -> None:
        """It is shorter than what it stands for, and the file is as it was."""
        before = file.read_bytes()
        found = data(file, "--limit", "12000")
        assert found["rung"] == "digest"
        assert "Step 39" in found["summary"]
        assert found["tokens_after"] < found["tokens_before"]
        assert file.read_bytes() == before

    def test_a_model_writes_the_summary_with_the_instructions(self, file: Path, tmp_path: Path) -> None:
        """Whichever model is named."""
        script = tmp_path / "script.jsonl"
        script.write_text(json.dumps({"text": SUMMARY, "repeat": True}) + "\n", "utf-8")
        shown = run(
            file, "--limit", "12000", "--model", f"scripted:{script}", "--instructions", "Mind the ports"
        ).output
        assert "Move the staging database" in shown
        assert "model calls" in shown

    def test_people_see_what_goes_and_what_comes(self, tmp_path: Path) -> None:
        """Messages and tokens, files, failures, and the summary."""
        from holdfast.providers import render  # noqa: PLC0415 - only here

        path = tmp_path / "tools.json"
        path.write_text(json.dumps(render(session(40), "anthropic")), "utf-8")
        shown = run(path, "--limit", "20000").output
        for words in ("− summarised", "kept", "+ summary", "read files", "failures", "and ", "by rule", "→"):
            assert words in shown
        dry = run(path, "--limit", "20000", "--dry-run").output
        assert "− summarised" in dry
        assert "+ summary" not in dry

    def test_nothing_to_do_is_reported(self, tmp_path: Path) -> None:
        """A dry run says it, and what was asked for in earnest is an error."""
        path = tmp_path / "short.json"
        path.write_text(json.dumps([{"role": "user", "content": "Hello there, how are you?"}]), "utf-8")
        assert "nothing to compact" in run(path, "--dry-run").output
        assert isinstance(run(path).exception, CompactionError)


class TestSession:
    def test_a_stored_session_is_compacted_for_real(self, home: Path) -> None:
        """The next window of the session begins with the summary; nothing is archived twice."""
        conversation = session(40)
        with Engine.open(home / "memory", settings=QUIET, background=False) as engine:
            engine.session("s").assemble(conversation, limit=20_000)
            known = engine.stats().messages
        assert data("--session", "s", "--limit", "20000", "--dry-run")["outcome"] == "ready"
        found = data("--session", "s", "--limit", "20000")
        assert found["tokens_after"] < found["tokens_before"]
        with Engine.open(home / "memory", settings=QUIET, background=False) as engine:
            assert engine.stats().messages == known
            window = engine.session("s").assemble([*conversation, user("Go on, please.")], limit=20_000)
            assert [item.kind for item in window.items][1] == "summary"
            assert {item.id for item in window.items}.isdisjoint(found["ids"])

    def test_unknown_sessions_and_wrong_calls_are_reported(self, home: Path) -> None:
        """A session that no one knows, and a call with neither or both."""
        assert isinstance(run("--session", "nobody").exception, InputError)
        for arguments in ((), (home / "x.json", "--session", "s")):
            done = run(*arguments)
            assert done.exit_code == click.UsageError.exit_code
            assert "name a transcript FILE" in done.output
