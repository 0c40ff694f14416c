"""The commands that show what became of windows: replay, context, diff, timeline, bench cache."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from holdfast.cli import holdfast
from holdfast.cli.context import print_window
from holdfast.cli.demo import session_lines
from holdfast.engine import Engine
from holdfast.errors import InputError
from holdfast.report import Category, ContextReport
from holdfast.settings import Embedding, Recall, Settings

SMALL = ("--limit", "7000", "--reserve", "1400")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first days of the long session: more than fits into a small window."""
    file = tmp_path_factory.mktemp("session") / "long.jsonl"
    file.write_text("\n".join(session_lines()[:40]), "utf-8")
    return file


@pytest.fixture(scope="module")
def turns(session: Path) -> Any:
    """Its requests in a small window."""
    return data("timeline", session, *SMALL)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without settings or memory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "memory"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str | Path) -> Result:
    """Run a command."""
    return CliRunner().invoke(holdfast, [*map(str, arguments)])


def data(*arguments: str | Path) -> Any:
    """What a command prints with --json."""
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


class TestReplay:
    def test_the_figures_are_complete_and_good(self, session: Path) -> None:
        """Every promised field is there; nothing invalid, nothing over the limit, nothing lost of the prefix."""
        found = data("replay", session, *SMALL)
        assert {"files", "turns", "invalid", "over_limit", "cuts", "prefix_kept"} <= set(found)
        assert {"recalled_tokens", "ms_p50", "ms_p95"} <= set(found)
        assert (found["files"], found["invalid"], found["over_limit"], found["warnings"]) == (1, 0, 0, 0)
        assert found["cuts"] > 0
        assert found["prefix_kept"] == 1.0
        assert found["turns"] == 20

    def test_people_see_a_draw_window_and_three_lines(self, session: Path) -> None:
        """With the cuts in it."""
        shown = run("replay", session, *SMALL, "--position", "head").output
        assert "▼" in shown
        assert "0 invalid, 0 over the limit" in shown
        assert "ms a request" in shown

    def test_a_window_that_nothing_fits_into_is_reported(self, tmp_path: Path) -> None:
        """Without a picture."""
        file = tmp_path / "large.json"
        file.write_text(json.dumps([{"role": "user", "content": "x " * 9_000}]), "utf-8")
        shown = run("replay", file, "--limit", "2000").output
        assert "No request fitted" in shown
        assert "1 refused" in shown


class TestContext:
    def test_the_grid_and_the_breakdown_are_drawn(self, session: Path) -> None:
        """Every part with its tokens, what was cut so far, and what this request did."""
        shown = run("context", session, *SMALL).output
        assert "▣ ▣ ▣" in shown
        for name in ("workspace files", "tool results", "recall", "reserve", "free"):
            assert name in shown
        assert "removed" in shown

    def test_a_cut_and_a_recall_are_shown_with_reasons_and_scores(self, session: Path, turns: Any) -> None:
        """The request of the timeline that had both shows both."""
        turn = next(turn for turn in turns if turn["is_cut"] and turn["recalled"])
        shown = run("context", session, *SMALL, "--turn", str(turn["turn"])).output
        assert "− trimmed" in shown
        assert "+ recalled from" in shown
        assert re.search(r"100% \[.*\] ", shown)

    def test_json_has_the_fields_of_claude_code_and_ours(self, session: Path) -> None:
        """Both of its forms, with a grid of 200 squares."""
        found = data("context", session, *SMALL, "--turn", "9")
        theirs = {"categories", "totalTokens", "maxTokens", "rawMaxTokens", "percentage", "model", "memoryFiles"}
        theirs |= {"isAutoCompactEnabled", "autoCompactThreshold", "mcpTools", "agents", "gridRows", "apiUsage"}
        assert "messageBreakdown" in found
        assert theirs | {"total_tokens", "raw_max_tokens", "changes", "recalled", "so_far"} <= set(found)
        assert found["turn"] == 9
        assert sum(len(row) for row in found["gridRows"]) == 200
        assert found["categories"][0].keys() == {"name", "tokens", "kind", "color"}
        spoken = found["messageBreakdown"]
        assert {tool["name"] for tool in spoken["toolCallsByType"]} >= {"bash", "read"}

    @pytest.mark.parametrize(("width", "lines_drawn"), [(100, 10), (60, 10), (40, 12)])
    def test_a_narrow_screen_has_a_smaller_grid(self, width: int, lines_drawn: int) -> None:
        """Beside its legend while there is room, above it where there is none."""
        parts = (Category(name="history", tokens=50), Category(name="free", tokens=50, kind="free"))
        report = ContextReport(
            session="s", turn=1, total_tokens=50, raw_max_tokens=100, percentage=50.0, categories=parts
        )
        screen = Console(width=width, record=True, file=StringIO())
        print_window(screen, report)
        drawn = screen.export_text().splitlines()[2:]
        assert max(map(len, drawn)) <= width
        assert len(drawn) >= lines_drawn
        assert any("history" in line for line in drawn)

    def test_a_turn_that_is_not_there_is_an_error(self, session: Path) -> None:
        """It says how many there are."""
        done = run("context", session, "--turn", "9999")
        assert isinstance(done.exception, InputError)
        assert "--turn takes 1 to" in str(done.exception)

    def test_a_request_that_does_not_fit_is_an_error(self, tmp_path: Path) -> None:
        """It includes the fix."""
        file = tmp_path / "large.json"
        file.write_text(json.dumps([{"role": "user", "content": "x " * 9_000}]), "utf-8")
        assert "--limit" in str(run("context", file, "--limit", "2000").exception)

    def test_files_of_the_prompt_are_listed(self, tmp_path: Path) -> None:
        """Each with its tokens."""
        file = tmp_path / "small.json"
        prompt = "# AGENTS.md instructions for /repo\n\n<INSTRUCTIONS>\nRun make check.\n</INSTRUCTIONS>"
        file.write_text(json.dumps([{"role": "user", "content": prompt}]), "utf-8")
        found = data("context", file)
        (part,) = [part for part in found["categories"] if part["name"] == "workspace files"]
        assert part["tokens"] > 0
        assert found["memoryFiles"][0]["path"] == "AGENTS.md"
        assert "AGENTS.md" in run("context", file).output

    def test_a_session_can_be_played_into_a_memory(self, session: Path, home: Path) -> None:
        """Then its timeline can be had without the file."""
        run("context", session, *SMALL, "--turn", "5", "--home", home / "kept")
        turns = data("timeline", "--home", home / "kept", "--session", "5e551011-0000-4000-8000-000000000001")
        assert [turn["turn"] for turn in turns] == [1, 2, 3, 4, 5]

    def test_a_stored_session_is_drawn_without_its_file(self, home: Path) -> None:
        """By what its reports say; a request that was never made is an error."""
        quiet = Settings(embedding=Embedding(provider="none"))
        with Engine.open(home / "memory", settings=quiet, background=False) as engine:
            for words in ("hello there", "hello again"):
                engine.session("s1").assemble([{"role": "user", "content": words}], limit=16_000)
        found = data("context", "--session", "s1", "--turn", "1")
        assert (found["turn"], found["so_far"]["requests"]) == (1, 1)
        assert "request 2" in run("context", "--session", "s1").output
        assert "2 stored requests, not 7" in str(run("context", "--session", "s1", "--turn", "7").exception)
        assert run("context").exit_code == 2

    def test_an_imported_session_has_no_requests_to_draw(self, session: Path) -> None:
        """The error says what to name instead."""
        run("import", session, "--session", "imported")
        assert "Name its transcript" in str(run("context", "--session", "imported").exception)


class TestDiff:
    def test_trimmed_messages_are_listed_with_request_and_reason(self, session: Path) -> None:
        """Every message of the conversation is in it once, kept or not."""
        found = data("diff", session, *SMALL)
        numbers = [entry["id"] for entry in found["entries"] if entry["id"]]
        assert len(numbers) == len(set(numbers)) == found["before"]["messages"]
        trimmed = [entry for entry in found["entries"] if entry["status"] == "trimmed"]
        assert trimmed
        assert all(entry["reason"] and entry["turn"] and not entry["tokens_after"] for entry in trimmed)
        assert found["after"]["tokens"] == sum(entry["tokens_after"] for entry in found["entries"])

    def test_people_see_runs_of_messages(self, session: Path) -> None:
        """What was kept is counted, or shown whole with --full."""
        short = (session, *SMALL, "--turn", "18")
        assert "messages kept" in run("diff", *short).output
        full = run("diff", *short, "--full").output
        assert "messages kept" not in full
        assert "− trimmed in request" in full

    def test_what_was_recalled_is_in_it(self, session: Path, turns: Any) -> None:
        """As a block of its own at the tail, and as a message at the head."""
        turn = next(str(turn["turn"]) for turn in turns if turn["recalled"])
        tail = data("diff", session, *SMALL, "--turn", turn)
        (block,) = [entry for entry in tail["entries"] if entry["status"] == "recalled" and str(entry["turn"]) == turn]
        assert block["tokens_before"] == 0
        assert tail["recalled"][0]["parts"]
        head = run("diff", session, *SMALL, "--turn", turn, "--position", "head").output
        assert "1 recalled" in head

    def test_what_was_pruned_is_shown_before_and_after(self, tmp_path: Path) -> None:
        """A result too large for the window is shortened, and what is sent of it is told."""
        call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
        conversation = [
            {"role": "user", "content": "run it"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "line of output\n" * 3_000},
        ]
        file = tmp_path / "large.json"
        file.write_text(json.dumps(conversation), "utf-8")
        found = data("diff", file, "--limit", "8000")
        (entry,) = [entry for entry in found["entries"] if entry["status"] == "pruned"]
        assert entry["tokens_after"] < entry["tokens_before"]
        assert "line of output" in entry["text"]
        assert "sent: " in run("diff", file, "--limit", "8000").output

    def test_a_stored_session_is_compared_with_what_was_sent(self, home: Path) -> None:
        """For any of its requests; the figures are those of the report."""
        history = [{"role": "user", "content": f"{number}. 倉庫の鍵 " + "the importer " * 150} for number in range(20)]
        plain = Settings(embedding=Embedding(provider="none"))
        with Engine.open(home / "memory", settings=plain, background=False) as engine:
            stored = engine.session("s1")
            windows = [stored.assemble(history[:count], limit=4_000, reserve=500) for count in (2, 20)]
        for turn, window in enumerate(windows, start=1):
            found = data("diff", "--session", "s1", "--turn", str(turn))
            assert found["after"] == {"messages": len(window.items), "tokens": window.report.total_tokens}
        assert found["before"]["messages"] == 20
        assert found["kinds"]["trimmed"] + found["kinds"]["kept"] == 20
        assert "− trimmed in request 2" in run("diff", "--session", "s1").output
        assert "is called 没有" in str(run("diff", "--session", "没有").exception)
        assert run("diff").exit_code == 2


class TestTimeline:
    def test_every_request_has_a_line(self, session: Path) -> None:
        """With tokens, how full, the prefix kept and what happened."""
        shown = run("timeline", session, *SMALL, "--last", "12").output
        assert "▼" in shown
        assert "100%" in shown
        assert "12 requests" in shown

    def test_a_stored_session_has_one_too(self, home: Path) -> None:
        """What the engine did is read back from its memory, warnings and all."""
        quiet = Settings(embedding=Embedding(provider="none"))
        with Engine.open(home / "memory", settings=quiet, background=False) as engine:
            engine.session("s1").assemble([{"role": "user", "content": "hello there"}])
        (turn,) = data("timeline", "--session", "s1")
        assert turn["turn"] == 1
        assert "1 request" in run("timeline", "--session", "s1").output

    def test_an_unknown_session_is_an_error(self, home: Path) -> None:
        """And so is no session at all."""
        assert home.is_dir()
        assert isinstance(run("timeline", "--session", "nobody").exception, InputError)
        assert run("timeline").exit_code == 2

    def test_prunings_and_warnings_are_printed(self) -> None:
        """A line names everything that happened."""
        from holdfast.cli.timeline import _describe_changes  # noqa: PLC0415 - a line alone

        changes = [{"kind": "pruned", "ids": [1], "tokens_before": 9, "tokens_after": 1}]
        line = _describe_changes({"changes": changes, "recalled": [], "warnings": ["archive: the disk is full"]}).plain
        assert "~ 1 result" in line
        assert "! archive: the disk is full" in line

    @pytest.mark.parametrize("question", ["What did we do in our last session?", "What did we do on 2 May 2020?"])
    def test_a_block_about_past_sessions_alone_is_named(self, home: Path, question: str) -> None:
        """It has no facts and no passages, whose counts the line has otherwise."""
        quiet = Settings(embedding=Embedding(provider="none"), recall=Recall(overview_tokens=0))
        with Engine.open(home / "memory", settings=quiet, personal=True, background=False) as engine:
            engine.session("old").append([{"role": "user", "content": "Render the handbook with Typst, please."}])
            engine.session("s1").assemble([{"role": "user", "content": question}])
        assert "◆ past sessions, " in run("timeline", "--session", "s1").output
        assert re.search(r"recalled from (1 message|past sessions), ", run("context", "--session", "s1").output)
