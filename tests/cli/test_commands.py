"""What the commands print and how they exit. Those that need a process of their own get one."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import pytest

from holdfast import Engine
from holdfast.cli import COMMANDS, holdfast, main
from holdfast.cli.output import align_to_words
from holdfast.text import plural
from support.command import run_command
from support.embed_models import Reply, endpoint
from support.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "webhook.jsonl"


HEAVY = {
    *("numpy", "rich", "tokenizers", "wordllama", "onnxruntime", "httpx2", "anthropic", "openai", "asyncio"),
    *("prompt_toolkit", "holdfast.transcripts.registry", "holdfast.engine", "holdfast_agent.agent", "holdfast.models"),
    *("holdfast.embed.remote", "holdfast.embed.onnx"),
}
"""What takes long to load."""


@dataclass(frozen=True)
class Ran:
    """What a command printed, and its exit code."""

    returncode: int
    stdout: str
    stderr: str


def environment(home: Path) -> dict[str, str]:
    """The variables of a command in a home of its own."""
    coverage = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
    return {"HOME": str(home), "HOLDFAST_HOME": str(home / "memory"), "PATH": os.environ["PATH"], **coverage}


def run(*arguments: str | Path, home: Path, **variables: str) -> Ran:
    """Run the command in a home of its own, in this process."""
    out, err = (TextIOWrapper(BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        patch.dict(os.environ, environment(home) | variables, clear=True),
        chdir(home),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as left,
    ):
        main([*map(str, arguments)])
    printed = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return Ran(int(left.value.code or 0), *printed)


def data(*arguments: str | Path, home: Path, **variables: str) -> Any:
    """What a command prints with --json."""
    done = run(*arguments, "--json", home=home, **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose memory has a session."""
    home = tmp_path_factory.mktemp("imported")
    run("import", EXAMPLE, "--no-vectors", home=home)
    return home


class TestVersion:
    def test_it_names_the_version(self, tmp_path: Path) -> None:
        """The version is printed for people and for programs."""
        assert run("version", home=tmp_path).stdout.startswith("holdfast 0.")
        assert data("version", home=tmp_path)["holdfast"].startswith("0.")
        assert run("--version", home=tmp_path).stdout == run("version", home=tmp_path).stdout

    def test_the_models_are_listed(self, tmp_path: Path) -> None:
        """With the folder of those that are installed, and what gets the others."""
        rows = {row["model"]: row for row in data("models", "list", home=tmp_path)}
        assert Path(rows["wordllama-l2-supercat-256"]["here"]).is_dir()
        assert rows["potion-base-8M"]["here"] is None
        assert "holdfast models get potion-base-8M" in run("models", "list", home=tmp_path).stdout

    def test_a_failed_download_is_not_listed_as_a_model(self, tmp_path: Path) -> None:
        """The error names the address, and the list still says how to get the model."""
        with endpoint(Reply(status=404, body="")) as hub:
            failed = run("models", "get", "potion-base-8M", home=tmp_path, HF_ENDPOINT=hub.url)
        assert failed.returncode == 1
        assert f"{hub.url}/minishlab/potion-base-8M" in failed.stderr
        rows = {row["model"]: row for row in data("models", "list", home=tmp_path)}
        assert rows["potion-base-8M"]["here"] is None

    @pytest.mark.nightly
    def test_after_a_download_the_command_says_how_to_use_the_model(self, tmp_path: Path) -> None:
        """A sentence model is never chosen by itself: it takes much processor time."""
        got = run("models", "get", "all-MiniLM-L6-v2", home=tmp_path)
        assert "HOLDFAST_EMBEDDING__MODEL=all-MiniLM-L6-v2" in got.stdout

    @pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["version"]])
    def test_the_first_screen_loads_nothing_heavy(self, arguments: list[str]) -> None:
        """Neither numpy nor rich, no settings, no store and no search are imported to say what is there."""
        script = (
            "import sys\n"
            "from holdfast.cli import main\n"
            "try: main(sys.argv[1:])\n"
            "except SystemExit: pass\n"
            "print(*sys.modules, file=sys.stderr)"
        )
        command = [sys.executable, "-c", script, *arguments]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        heavy = {"numpy", "rich", "msgspec", "sqlite3", "asyncio", "prompt_toolkit", "wordllama", "tokenizers"}
        ours = {"holdfast.settings", "holdfast.store", "holdfast.search", "holdfast.engine", "holdfast.transcripts"}
        assert not (heavy | ours) & set(done.stderr.split())

    def test_help_and_wrong_usage_load_nothing_heavy(self) -> None:
        """No command loads numpy, rich, readers or the engine before its options are right."""
        script = (
            "import sys\n"
            "from holdfast.cli import COMMANDS, main\n"
            "for name in COMMANDS:\n"
            "    for option, code in (('--help', 0), ('--no-such-option', 2)):\n"
            "        try: main([name, option])\n"
            "        except SystemExit as left: assert left.code == code, name\n"
            "for arguments in (['context'], ['timeline'], ['compact'], ['import'], ['get'], ['forget'], ['show']):\n"
            "    try: main(arguments)\n"
            "    except SystemExit as left: assert left.code == 2, arguments\n"
            "print(*sys.modules, file=sys.stderr)"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert not HEAVY & set(done.stderr.split())

    @pytest.mark.variants
    @pytest.mark.parametrize(
        ("arguments", "needed"),
        [
            (["facts"], set()),
            (["remember", "The port is 8443"], set()),
            (["sessions", "--json"], set()),
            (["sessions"], {"rich"}),
            (["get", "1"], {"rich", "numpy"}),
            (["stats", "--json"], {"numpy"}),
            (["stats"], {"numpy", "rich"}),
            (["recall", "webhook signature"], {"numpy"}),
            (["search", "webhook", "--json"], {"numpy"}),
            (["search", "webhook"], {"numpy"}),
            (["show", str(EXAMPLE)], {"rich", "numpy", "holdfast.transcripts.registry"}),
            (["import", str(EXAMPLE)], {"numpy", "rich", "holdfast.transcripts.registry"}),
            (["export", "out.jsonl"], {"numpy"}),
        ],
    )
    def test_a_command_loads_what_it_needs(
        self, arguments: list[str], needed: set[str], imported: Path, tmp_path: Path
    ) -> None:
        """Reading rows does not wait for numpy, nor search for readers, providers or the engine."""
        shutil.copytree(imported, tmp_path, dirs_exist_ok=True)
        script = (
            "import sys\n"
            "from holdfast.cli import main\n"
            "try: main(sys.argv[1:])\n"
            "except SystemExit as left: assert not left.code\n"
            "print(*sys.modules, file=sys.stderr)"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            capture_output=True,
            text=True,
            check=True,
            env=environment(tmp_path) | {"HOLDFAST_EMBEDDING__PROVIDER": "hash"},
            cwd=tmp_path,
        )
        assert HEAVY & set(done.stderr.split()) == needed

    def test_the_list_has_the_help_of_each_command(self) -> None:
        """The summaries of the list are the first sentences of the commands."""
        context = click.Context(holdfast)
        said = {name: holdfast.get_command(context, name) for name in COMMANDS}
        for name, (_, summary) in COMMANDS.items():
            command = said[name]
            assert command is not None
            assert command.get_short_help_str(limit=300) == summary


class TestErrors:
    def test_an_error_is_one_line_and_exit_code_1(self, tmp_path: Path) -> None:
        """What cannot be done is said in one line, without a trace."""
        done = run("show", tmp_path / "nowhere.jsonl", home=tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith("holdfast: ")
        assert len(done.stderr.strip().splitlines()) == 1

    def test_debug_shows_the_trace(self, tmp_path: Path) -> None:
        """With --debug the whole trace is shown."""
        done = run("--debug", "show", tmp_path / "nowhere.jsonl", home=tmp_path)
        assert done.returncode == 1
        assert "Traceback" in done.stderr

    def test_a_misspelt_command_is_suggested(self, tmp_path: Path) -> None:
        """A command that is nearly right is named."""
        done = run("sesions", home=tmp_path)
        assert done.returncode == 2
        assert "Did you mean sessions" in done.stderr

    @pytest.mark.parametrize("json_", [[], ["--json"]])
    def test_an_unknown_number_is_exit_code_1(self, json_: list[str], tmp_path: Path) -> None:
        """What is not there is said, for people and for programs."""
        run("import", EXAMPLE, "--no-vectors", home=tmp_path)
        done = run("get", "1", "99999", *json_, home=tmp_path)
        assert done.returncode == 1
        assert "not found: #99999" in done.stderr
        assert done.stdout

    @pytest.mark.parametrize("arguments", [["nonsense"], ["show"], ["tokens", "--counter"]])
    def test_a_wrong_call_is_exit_code_2(self, arguments: list[str], tmp_path: Path) -> None:
        """A command that was called wrongly exits with 2."""
        assert run(*arguments, home=tmp_path).returncode == 2

    @pytest.mark.parametrize(
        ("name", "content"),
        [("binary.jsonl", b"\x00\x01\x02" * 100), ("half.jsonl", b'{"type":"sess'), ("other.jsonl", b'{"a":1}\n')],
    )
    def test_a_file_that_is_not_a_transcript_is_reported(self, name: str, content: bytes, tmp_path: Path) -> None:
        """Binary files, half lines and unknown formats are errors that say what is wrong."""
        file = tmp_path / name
        file.write_bytes(content)
        done = run("show", file, home=tmp_path)
        assert done.returncode == 1
        assert name in done.stderr

    @pytest.mark.parametrize(
        ("arguments", "code", "expected"),
        [
            (["show", "没有.jsonl"], 1, {"type": "InputError"}),
            (["search"], 2, {"type": "UsageError"}),
            (["nonsense"], 2, {"type": "UsageError"}),
            (["export", "taken"], 1, {"type": "StorageError", "path": "taken"}),
        ],
    )
    def test_an_error_is_json_for_programs(
        self, arguments: list[str], code: int, expected: dict[str, str], tmp_path: Path
    ) -> None:
        """On one line of standard error, with the message that a person reads and the details of the error."""
        run("remember", "The port is 5433", home=tmp_path)
        (tmp_path / "taken").write_text("mine")
        done = run(*arguments, "--json", home=tmp_path)
        plain = run(*arguments, home=tmp_path)
        assert (done.returncode, done.stdout) == (plain.returncode, "") == (code, "")
        error = json.loads(done.stderr.splitlines()[-1])["error"]
        assert error.items() >= expected.items()
        assert error["message"] in plain.stderr

    def test_a_question_without_an_answer_is_an_error_for_programs(self, tmp_path: Path) -> None:
        """The exit code is that of an interruption."""
        run("remember", "The port is 5433", "--session", "s1", home=tmp_path)
        question = ("forget", "--session", "s1")
        done = run_command(*question, "--json", folder=tmp_path, environ=environment(tmp_path))
        plain = run_command(*question, folder=tmp_path, environ=environment(tmp_path))
        assert (done.returncode, plain.returncode) == (130, 130)
        error = json.loads(done.stderr.splitlines()[-1])["error"]
        assert error["type"] == "Interrupted"
        assert error["message"] in plain.stderr

    @pytest.mark.parametrize("command", [["get"], ["exclude"], ["forget", "--yes"]])
    def test_a_number_of_nothing_is_an_error_for_programs(self, command: list[str], tmp_path: Path) -> None:
        """Next to the result, which is whole."""
        run("remember", "The port is 5433", home=tmp_path)
        done = run(*command, "99999", "--json", home=tmp_path)
        assert done.returncode == 1
        assert "99999" in done.stdout or json.loads(done.stdout) == []
        error = json.loads(done.stderr.splitlines()[-1])["error"]
        assert error == {"type": "InputError", "message": "not found: #99999; `holdfast search` shows numbers"}

    def test_a_traceback_can_be_shown_next_to_it(self, tmp_path: Path) -> None:
        """The last line is still the object."""
        lines = run("--debug", "show", "no.jsonl", "--json", home=tmp_path).stderr.splitlines()
        assert lines[0].startswith("Traceback")
        assert json.loads(lines[-1])["error"]["type"] == "InputError"


class TestShow:
    def test_a_transcript_is_readable(self, tmp_path: Path) -> None:
        """Roles, tool calls and Chinese text are shown."""
        shown = run("show", EXAMPLE, home=tmp_path).stdout
        assert "Carrier webhook signatures" in shown
        assert "→ read" in shown
        assert "时间容差" in shown

    def test_a_session_in_memory_is_printed_by_two_commands(self, tmp_path: Path) -> None:
        """`show` clips long messages unless --full; `get` prints all, with numbers."""
        run("import", EXAMPLE, "--no-vectors", home=tmp_path)
        (stored,) = data("sessions", home=tmp_path)["sessions"]
        parts = [row["parts"] for row in data("show", EXAMPLE, home=tmp_path)["conversation"]]
        shown = data("show", stored["session"], home=tmp_path)["conversation"]
        rows = data("get", "--session", stored["session"], home=tmp_path)
        assert [row["parts"] for row in rows] == [row["parts"] for row in shown] == parts
        done = run("get", "--session", "unknown", home=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert "holdfast sessions" in done.stderr

    def test_json_holds_every_message(self, tmp_path: Path) -> None:
        """The JSON form has the head and every message."""
        found = data("show", EXAMPLE, home=tmp_path)
        assert found["format"] == "pi"
        assert found["messages"] == len(found["conversation"]) == 18

    def test_a_control_code_in_a_message_does_not_reach_the_terminal(self, tmp_path: Path) -> None:
        """Text of others cannot move the cursor or change colours."""
        file = tmp_path / "evil.json"
        file.write_text(json.dumps([{"role": "user", "content": "a\x1b[2Jb\u202ec"}]), "utf-8")
        shown = run("show", file, home=tmp_path).stdout
        assert "\x1b" not in shown
        assert "\u202e" not in shown

    def test_a_closed_pipe_is_no_error(self, tmp_path: Path) -> None:
        """`holdfast show FILE | head -1` ends quietly."""
        file = tmp_path / "long.json"
        file.write_text(json.dumps([{"role": "user", "content": "word " * 100}] * 2_000))
        for arguments in (f"show {file} --full", f"show {file} --full --json"):
            command = f"set -o pipefail; {sys.executable} -m holdfast {arguments} | head -1"
            done = subprocess.run(
                ["/bin/bash", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path
            )
            assert (done.returncode, done.stderr) == (0, "")

    def test_lines_are_not_filled_up_in_a_pipe(self, tmp_path: Path) -> None:
        """What is not shown on a screen has no blanks at the ends of its lines."""
        run("import", EXAMPLE, home=tmp_path)
        for arguments in (["sessions"], ["context", EXAMPLE], ["search", "webhook signature", "--explain"]):
            lines = run(*arguments, home=tmp_path).stdout.splitlines()
            assert lines
            assert all(line == line.rstrip() for line in lines)


class TestContext:
    def test_repeated_repairs_are_one_line(self, tmp_path: Path) -> None:
        """Five results that no one asked for are one line with their number."""
        file = tmp_path / "orphans.json"
        orphans = [{"role": "tool", "tool_call_id": f"c{n}", "content": "lost"} for n in range(5)]
        file.write_text(json.dumps([{"role": "user", "content": "Hi"}, *orphans, {"role": "user", "content": "Go on"}]))
        lines = [line for line in run("context", file, home=tmp_path).stdout.splitlines() if "repaired" in line]
        assert len(lines) == 1
        assert lines[0].endswith("'c0', which is missing (orphan-result), and 4 more like it")


class TestTokens:
    def test_roles_and_parts_add_up(self, tmp_path: Path) -> None:
        """The counts by role and by part both sum to the total."""
        found = data("tokens", EXAMPLE, home=tmp_path)
        assert sum(found["by_role"].values()) == sum(found["by_part"].values()) == found["tokens"]

    def test_the_error_is_printed_if_usage_is_known(self, tmp_path: Path) -> None:
        """A transcript with usage says how far the count is off."""
        found = data("tokens", EXAMPLE, home=tmp_path)
        assert found["reported"]["requests"] == 8
        assert 0 <= found["reported"]["error"] < 0.1

    def test_an_unknown_counter_is_refused(self, tmp_path: Path) -> None:
        """A counter that does not exist is an error naming those that do."""
        done = run("tokens", EXAMPLE, "--counter", "guess", home=tmp_path)
        assert done.returncode == 1
        assert "tiktoken:ENCODING" in done.stderr

    def test_the_counter_of_the_settings_counts(self, tmp_path: Path) -> None:
        """For the model of the settings; the option names another one."""
        thirds = {"HOLDFAST_TOKENS__COUNTER": "thirds"}
        estimated = data("tokens", EXAMPLE, home=tmp_path)
        found = data("tokens", EXAMPLE, home=tmp_path, **thirds)
        assert (estimated["counter"], found["counter"]) == ("estimate", "thirds")
        assert found["tokens"] == data("tokens", EXAMPLE, "--counter", "thirds", home=tmp_path)["tokens"]
        assert found["tokens"] != estimated["tokens"]
        assert "tokens by the counter thirds" in run("tokens", EXAMPLE, home=tmp_path, **thirds).stdout
        assert data("tokens", EXAMPLE, "--counter", "estimate", home=tmp_path, **thirds) == estimated
        gpt = data("tokens", EXAMPLE, home=tmp_path, HOLDFAST_MODEL__NAME="gpt-4o")
        named = data("tokens", EXAMPLE, home=tmp_path, HOLDFAST_TOKENS__ENCODING="gpt")
        assert named["counter"] == "estimate:gpt"
        assert gpt["tokens"] == named["tokens"] < estimated["tokens"]


class TestSessions:
    def test_a_folder_is_recognised_by_itself(self, tmp_path: Path) -> None:
        """Sessions in a folder are found with agent, id and title."""
        found = data("sessions", ROOT / "examples", home=tmp_path)
        (one,) = [one for one in found["sessions"] if one["title"] == "Carrier webhook signatures"]
        assert one["agent"] == "pi"

    def test_a_file_whose_agent_gave_it_no_title_has_that_of_the_import(self, tmp_path: Path) -> None:
        """The first sentence of the user; a file that cannot be read any further keeps its line without one."""
        rollout = tmp_path / ".codex" / "sessions" / "2026" / "rollout-2026-03-01T10-00-00-s1.jsonl"
        rollout.parent.mkdir(parents=True)
        said = ["<environment_context>\n<cwd>/mill</cwd>\n</environment_context>", "Count the wheels. Then stop."]
        items = [{"type": "message", "role": "user", "content": text} for text in said]
        records = [{"type": "session_meta", "payload": {"id": "s1", "cwd": "/mill"}}]
        records += [{"type": "response_item", "payload": item} for item in items]
        rollout.write_text("".join(json.dumps(record) + "\n" for record in records))
        beside = rollout.with_name("rollout-2026-03-01T11-00-00-s2.jsonl")
        beside.write_text(json.dumps(records[0]).replace("s1", "s2") + "\n" + "not JSON\n")
        found = data("sessions", "--discover", home=tmp_path)["sessions"]
        assert {one["session"]: one["title"] for one in found} == {"s1": "Count the wheels.", "s2": None}
        assert "Count the wheels." in run("sessions", "--discover", home=tmp_path).stdout
        run("import", "--discover", "--no-vectors", home=tmp_path)
        assert [one["title"] for one in data("sessions", home=tmp_path)["sessions"]] == ["Count the wheels."]

    def test_the_title_of_the_host_is_kept_by_an_import(self, tmp_path: Path) -> None:
        """It names the session in lists, searches and recalls."""
        run("import", EXAMPLE, home=tmp_path)
        assert [one["title"] for one in data("sessions", home=tmp_path)["sessions"]] == ["Carrier webhook signatures"]
        assert "Carrier webhook signatures" in run("search", "carrier signature", home=tmp_path).stdout
        assert "Carrier webhook signatures" in run("recall", "carrier signature tolerance?", home=tmp_path).stdout

    def test_an_empty_machine_prints_what_to_do(self, tmp_path: Path) -> None:
        """Without any session the command says how to import some, or how to name a folder."""
        done = run("sessions", home=tmp_path)
        assert done.returncode == 0
        assert "holdfast import --discover" in done.stderr
        assert "holdfast sessions FOLDER" in run("sessions", "--discover", home=tmp_path).stderr

    def test_stored_sessions_are_listed(self, tmp_path: Path) -> None:
        """What was imported is listed with agent, project and session, and so is every row of a search."""
        run("import", EXAMPLE, "--project", "港口", home=tmp_path)
        (one,) = data("sessions", home=tmp_path)["sessions"]
        assert (one["project"], one["agent"]) == ("港口", "main")
        assert one["messages"] > 10
        assert one["session"] in run("sessions", home=tmp_path).stdout
        hits = data("search", "webhook signature", "--project", "港口", home=tmp_path)
        rows = data("get", str(hits[0]["message"]), "--project", "港口", home=tmp_path)
        owner = {name: one[name] for name in ("session", "project", "agent")}
        assert all(row | owner == row for row in (*hits, *rows))
        assert one["session"] in run("search", "webhook signature", "--project", "港口", home=tmp_path).stdout
        fact = data("remember", "Port 8443", "--project", "港口", home=tmp_path)
        assert (fact["project"], fact["agent"]) == ("港口", "main")

    def test_the_project_of_a_session_is_its_folder(self, tmp_path: Path) -> None:
        """Sessions of different folders are different projects; without --project all of them are searched."""
        run("import", EXAMPLE, home=tmp_path)
        cwd = data("sessions", EXAMPLE, home=tmp_path)["sessions"][0]["cwd"]
        assert cwd
        assert [one["project"] for one in data("sessions", home=tmp_path)["sessions"]] == [cwd]
        data("remember", "时间容差是 300 秒", "--project", "港口", "--agent", "甲", home=tmp_path)
        for project in ((), ("--project", cwd)):
            assert data("search", "webhook signature", *project, home=tmp_path)[0]["project"] == cwd
            assert data("recall", "carrier webhook signature", *project, home=tmp_path)["hits"][0]["project"] == cwd
        for elsewhere in (("--project", "港口"), ("--project", ""), ("--agent", "甲")):
            assert data("search", "webhook signature", *elsewhere, home=tmp_path) == []
        for options, expected in (((), 1), (("--project", "港口"), 1), (("--project", cwd), 0), (("--agent", "甲"), 1)):
            assert len(data("facts", *options, home=tmp_path)) == expected

    def test_a_session_is_named_without_its_project(self, tmp_path: Path) -> None:
        """Where one session has the name it is meant; where two have it, an error says how to name one."""
        run("import", EXAMPLE, "--session", "s", "--no-vectors", home=tmp_path)
        run("import", EXAMPLE, "--session", "s", "--project", "港口", "--no-vectors", home=tmp_path)
        for command in (["forget", "--yes"], ["get"]):
            done = run(*command, "--session", "s", home=tmp_path)
            assert done.returncode == 1
            assert "2 sessions are called s: name one of" in done.stderr
        assert len(data("get", "--session", "s", "--project", "港口", home=tmp_path)) == 18
        assert data("forget", "--session", "s", "--project", "港口", "--yes", home=tmp_path)["forgotten"] == 18
        assert data("forget", "1", "--yes", home=tmp_path)["forgotten"] == 1
        assert data("forget", "--session", "s", "--yes", home=tmp_path)["forgotten"] == 17

    def test_a_session_that_is_stored_without_a_project_continues_there(self, tmp_path: Path) -> None:
        """A second import adds nothing, wherever the first one put the session."""
        run("import", EXAMPLE, "--project", "", "--no-vectors", home=tmp_path)
        assert data("import", EXAMPLE, "--no-vectors", home=tmp_path)["new"] == 0

    def test_every_row_has_its_session_project_and_agent(self, tmp_path: Path) -> None:
        """Rows of every command that reads carry session, project and agent, with --json."""
        run("import", EXAMPLE, home=tmp_path)
        (one,) = data("sessions", home=tmp_path)["sessions"]
        owner = {name: one[name] for name in ("session", "project", "agent")}
        data("remember", "The carrier signature tolerance is 300 s", "--project", owner["project"], home=tmp_path)
        recalled = data("recall", "carrier signature tolerance", home=tmp_path)
        assert recalled["hits"]
        assert recalled["facts"]
        rows = [*data("search", "signature", home=tmp_path), *data("get", "1", "2", home=tmp_path), *recalled["hits"]]
        assert all(row | owner == row for row in rows)
        facts = [*data("facts", home=tmp_path), *recalled["facts"]]
        assert all(row | owner | {"session": ""} == row for row in facts)
        data("export", tmp_path / "all.jsonl", home=tmp_path)
        lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text("utf-8").splitlines()][1:]
        assert len(lines) == one["messages"] + 1
        assert {line["scope"]["project"] for line in lines} == {owner["project"]}
        shown = data("show", EXAMPLE, home=tmp_path)
        assert {name: shown[name] for name in owner} == owner | {"agent": "pi"}
        with Engine.open(tmp_path / "memory", background=False) as engine:
            session = engine.session(owner["session"], project=owner["project"], agent=owner["agent"])
            session.assemble([{"role": "user", "content": "hello"}])
        for command in ("timeline", "context"):
            output = data(command, "--session", owner["session"], home=tmp_path)
            row = output[0] if isinstance(output, list) else output
            assert row | owner == row

    def test_import_watches_until_it_is_interrupted(self, tmp_path: Path) -> None:
        """A session that grows is archived while the command runs; Ctrl-C ends it with exit code 0."""
        lines = EXAMPLE.read_text().splitlines(keepends=True)
        file = tmp_path / ".pi" / "agent" / "sessions" / "s.jsonl"
        file.parent.mkdir(parents=True)
        file.write_text("".join(lines[:6]))
        command = [sys.executable, "-u", "-m", "holdfast", "import", "--watch", "--every", "0.2", "--no-vectors"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment(tmp_path), cwd=tmp_path
        ) as process:
            assert process.stdout is not None
            assert "of 1 session," in process.stdout.readline()
            assert "not read for facts" in process.stdout.readline()
            with file.open("a") as growing:
                growing.write("".join(lines[6:9]))
            assert "new messages of 1 session" in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0
        (one,) = data("sessions", home=tmp_path)["sessions"]
        assert one["messages"] == data("show", file, home=tmp_path)["messages"]


class TestMemory:
    def test_what_was_imported_is_found_again_and_again_is_no_change(self, tmp_path: Path) -> None:
        """Import, search, get; a second import adds nothing."""
        first = data("import", EXAMPLE, home=tmp_path)
        assert first["messages"] == first["new"] == 18
        assert data("import", EXAMPLE, home=tmp_path)["new"] == 0
        hits = data("search", "signature tolerance in seconds", home=tmp_path)
        assert "300" in hits[0]["text"]
        (row,) = data("get", str(hits[0]["message"]), home=tmp_path)
        assert row["number"] == hits[0]["message"]

    def test_chinese_is_found(self, tmp_path: Path) -> None:
        """A Chinese question finds the Chinese sentence."""
        data("import", EXAMPLE, home=tmp_path)
        assert "时间容差" in data("search", "时间容差放在哪里", home=tmp_path)[0]["text"]

    def test_the_block_holds_the_answer_and_unrelated_questions_get_none(self, tmp_path: Path) -> None:
        """Recall prints a block for what is known, and nothing for what is not."""
        data("import", EXAMPLE, home=tmp_path)
        block = data("recall", "what tolerance does the carrier signature have?", home=tmp_path)["block"]
        assert "carrier_signature_tolerance" in block
        assert data("recall", "favourite pizza toppings of the marketing team", home=tmp_path)["block"] == ""

    def test_recall_prints_eight_passages_and_how_many_more_there_are(self, tmp_path: Path) -> None:
        """`--all` prints the others, and JSON has them."""
        notes = [
            {"role": "user", "content": f"Berth {number} is for the ferry of line {number}."} for number in range(30)
        ]
        file = tmp_path / "notes.json"
        file.write_text(json.dumps(notes))
        data("import", file, home=tmp_path)
        question = "Which berth is for the ferry?"
        found = len(data("recall", question, home=tmp_path)["hits"])
        assert found > 8
        short = run("recall", question, home=tmp_path)
        assert len(re.findall(r"^#\d+", short.stdout, re.MULTILINE)) == 8
        assert f"… {found - 8} more: --all" in short.stderr
        long = run("recall", question, "--all", home=tmp_path)
        assert len(re.findall(r"^#\d+", long.stdout, re.MULTILINE)) == found
        assert "more:" not in long.stderr

    def test_recall_counts_facts_too(self, tmp_path: Path) -> None:
        """And does not speak of passages if there are none."""
        run("remember", "The ferry berth is 7.", home=tmp_path)
        printed = run("recall", "Which berth has the ferry?", home=tmp_path).stderr
        assert re.search(r"^1 fact, \d+ tokens\.$", printed, re.MULTILINE)

    def test_an_empty_memory_says_how_to_fill_it(self, tmp_path: Path) -> None:
        """Whatever is asked of it."""
        with Engine.open(tmp_path / "memory", background=False):
            pass
        for command in (("recall", "Which berth?"), ("search", "berth"), ("facts",), ("overview",)):
            assert "the memory is empty. `holdfast import" in run(*command, home=tmp_path).stderr

    def test_a_session_in_memory_is_shown_by_its_name(self, tmp_path: Path) -> None:
        """With `--home`, as elsewhere."""
        run("import", EXAMPLE, "--home", tmp_path / "m", home=tmp_path)
        (session,) = data("sessions", "--home", tmp_path / "m", home=tmp_path)["sessions"]
        shown = run("show", session["session"], "--home", tmp_path / "m", home=tmp_path)
        assert "Carrier webhook signatures" in shown.stdout.splitlines()[0]
        as_data = data("show", session["session"], "--home", tmp_path / "m", home=tmp_path)
        assert len(as_data["conversation"]) == as_data["messages"] == session["messages"]
        assert "no session in memory" in run("show", "nowhere", "--home", tmp_path / "m", home=tmp_path).stderr

    def test_recall_prints_the_best_first_for_people(self, tmp_path: Path) -> None:
        """With the title of the session and the number for `holdfast get`; `--block` prints what a model gets."""
        data("import", EXAMPLE, home=tmp_path)
        question = "what tolerance does the carrier signature have?"
        found = data("recall", question, home=tmp_path)
        best = max(found["hits"], key=lambda hit: hit["score"])
        printed = run("recall", question, home=tmp_path).stdout
        assert printed.startswith(f"#{best['message']}  ")
        assert best["title"] in printed.splitlines()[0]
        assert "<recalled-context" not in printed
        assert run("recall", "--block", question, home=tmp_path).stdout.startswith("<recalled-context")

    def test_facts_are_remembered_and_forgotten(self, tmp_path: Path) -> None:
        """A remembered fact is listed, takes the place of its slot, and can be forgotten."""
        slot = ("--subject", "api", "--slot", "port")
        older = data("remember", "The API listens on port 8443", *slot, home=tmp_path)
        newer = data("remember", "The API listens on port 9443", *slot, home=tmp_path)
        assert (older["replaced"], newer["replaced"]) == ([], [older["id"]])
        (held,) = data("facts", home=tmp_path)
        assert held["content"].endswith("9443")
        assert data("forget", newer["id"][:8], "--yes", home=tmp_path)["forgotten"] >= 1
        assert data("facts", home=tmp_path) == []

    def test_stats_count_what_is_there(self, tmp_path: Path) -> None:
        """Stats name the file and count messages and sessions."""
        data("import", EXAMPLE, home=tmp_path)
        found = data("stats", home=tmp_path)
        assert (found["messages"], found["sessions"]) == (18, 1)

    def test_stats_count_the_facts_that_hold(self, tmp_path: Path) -> None:
        """Those that were replaced are named separately."""
        for port in ("8443", "9443", "10443"):
            run("remember", f"The port is {port}", "--subject", "api", "--slot", "port", home=tmp_path)
        run("remember", "Deploys are on 火曜日.", "--tenant", "others", home=tmp_path)
        found = data("stats", home=tmp_path)
        assert (found["facts"], found["former_facts"]) == (2, 2)
        assert "2 facts, 2 that no longer hold" in run("stats", home=tmp_path).stdout


class TestDoctor:
    def test_it_counts_what_stats_counts(self, tmp_path: Path) -> None:
        """Both say the same numbers, also after something was forgotten and a fact was replaced."""
        run("import", EXAMPLE, "--no-vectors", home=tmp_path)
        for port in ("8443", "9443"):
            run("remember", f"The port is {port}", "--subject", "api", "--slot", "port", home=tmp_path)
        run("forget", "1", "--yes", home=tmp_path)
        found = data("stats", home=tmp_path)
        found["facts"] += found["former_facts"]  # doctor counts rows
        counted = ", ".join(plural(found[f"{name}s"], name) for name in ("message", "passage", "session", "fact"))
        assert any(one["what"].endswith(counted) for one in data("doctor", home=tmp_path)["findings"])

    def test_it_looks_at_everything_without_a_memory(self, tmp_path: Path) -> None:
        """On a new machine doctor finds nothing wrong and prints what to do next."""
        done = run("doctor", home=tmp_path)
        assert done.returncode == 0, done.stdout
        assert "holdfast import --discover" in done.stdout

    def test_tables_that_are_not_read_are_named(self, tmp_path: Path) -> None:
        """Long-term memories of OpenClaw are in LanceDB."""
        table = tmp_path / ".openclaw" / "memory" / "lancedb" / "memories.lance"
        table.mkdir(parents=True)
        assert f"{table}: memories of OpenClaw in LanceDB, which are not read" in run("doctor", home=tmp_path).stdout

    @pytest.mark.parametrize(
        ("setting", "module", "finding"),
        [
            ("ARCHIVE__PATH=postgresql://db.example.com/m", "holdfast.store.postgres", "a memory on .*[postgres]"),
            ("COMPACTION__MODEL=anthropic/claude-opus-4-5", "anthropic", "compaction.model: .*[anthropic]"),
            ("KNOWLEDGE__HOST_MODEL=ollama/qwen3", "openai", "knowledge.host_model: .*[openai]"),
            ("TOKENS__COUNTER=tiktoken", "tiktoken", "tokens.counter: .*[tiktoken]"),
            ("EMBEDDING__PROVIDER=openai", "httpx2", "embedding: .*[remote]"),
        ],
    )
    def test_a_package_that_the_settings_need_is_named(
        self, setting: str, module: str, finding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With the command that installs it. Without the setting, nothing is wrong."""
        monkeypatch.setitem(sys.modules, module, None)  # as if it was not installed
        assert run("doctor", home=tmp_path).returncode == 0
        name, _, value = setting.partition("=")
        variables = {f"HOLDFAST_{name}": value, "ANTHROPIC_API_KEY": "canary"}
        done = run("doctor", home=tmp_path, **variables)
        assert done.returncode == 1
        line, *_ = [line for line in done.stdout.splitlines() if line.startswith("✗")]
        start, _, extra = finding.partition("[")
        assert re.search(rf"✗ {start}pip install 'holdfast-memory\[{extra[:-1]}\]'", line)

    def test_an_embedder_without_a_key_is_wrong(self, tmp_path: Path) -> None:
        """The settings name it, so that search by words alone is not what was asked for."""
        done = run("doctor", home=tmp_path, HOLDFAST_EMBEDDING__PROVIDER="openai")
        assert done.returncode == 1
        assert re.search("✗ embedding: .*OPENAI_API_KEY", done.stdout)

    def test_a_model_of_another_program_is_only_noted(self, tmp_path: Path) -> None:
        """The proxy looks up its window, and the key may be with the agent."""
        done = run("doctor", home=tmp_path, HOLDFAST_MODEL__NAME="anthropic/claude-opus-4-5")
        assert done.returncode == 0
        assert "· model.name: " in done.stdout
        assert "ANTHROPIC_API_KEY" in done.stdout

    def test_a_wrong_setting_is_wrong(self, tmp_path: Path) -> None:
        """A settings file of the user with an unknown key makes doctor exit with 1 and name the key."""
        own = tmp_path / ".openclaw" / "openclaw.json"
        own.parent.mkdir()
        own.write_text('{"agents": {"defaults": {"compaction": {"reserveToken": 1000}}}}', "utf-8")
        done = run("doctor", home=tmp_path)
        assert done.returncode == 1
        assert "reserveTokens" in done.stdout


def test_excerpts_break_align_to_words() -> None:
    """An end inside a word moves to the nearest space; Chinese is cut anywhere, and a very long word as well."""
    text = "the signature tolerance is three hundred seconds"
    first, last = align_to_words(text, 6, 34)
    assert text[first:last].strip() == "tolerance is three"
    assert align_to_words("签名的容差是三百秒", 2, 5) == (2, 5)
    assert align_to_words("x" * 200, 50, 150) == (50, 150)
    assert align_to_words(text, 0, len(text)) == (0, len(text))
