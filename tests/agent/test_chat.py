"""`holdfast chat` without a screen: in a pipe, once, for programs; and what it does when it cannot begin."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.engine import Engine
from holdfast.transcripts import read
from holdfast.transcripts.session import Session as Transcript
from support.conversations import user
from support.forked import run_holdfast


@dataclass
class Ran:
    """What came of a command."""

    returncode: int
    stdout: str
    stderr: str


@dataclass
class Home:
    """A home of its own, with scripts to answer from."""

    folder: Path
    patch: pytest.MonkeyPatch
    captured: pytest.CaptureFixture[str]

    def script(self, *steps: str | Mapping[str, Any]) -> str:
        """The name of a model that answers so."""
        lines = [json.dumps({"text": step} if isinstance(step, str) else step) for step in steps]
        file = self.folder / "script.jsonl"
        file.write_text("\n".join(lines), "utf-8")
        return f"scripted:{file}"

    def chat(self, *arguments: str, stdin: str = "") -> Ran:
        """Run the command with something piped in."""
        self.patch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as left:
            main(["chat", "--workspace", str(self.folder / "work"), *arguments])
        shown = self.captured.readouterr()
        return Ran(int(left.value.code or 0), shown.out, shown.err)

    def run(self, *arguments: str) -> None:
        """Run another command."""
        with pytest.raises(SystemExit) as left:
            main([*arguments])
        assert not left.value.code, self.captured.readouterr().err
        self.captured.readouterr()

    def transcripts(self, agent: str = "main") -> list[Path]:
        """The conversations of an agent."""
        return sorted((self.folder / "memory" / "agents" / agent / "sessions").glob("*.jsonl"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Home:
    """A home of its own."""
    for name in [name for name in os.environ if name.startswith(("HOLDFAST_", "ANTHROPIC_", "OPENAI_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "memory"))
    monkeypatch.setenv("HOLDFAST_EMBEDDING__PROVIDER", "none")
    monkeypatch.setenv("HOLDFAST_RECALL__DEADLINE_MS", "600000")  # on a busy machine memory may be slow
    monkeypatch.setenv("HOLDFAST_AGENT__SESSION__RESET__MODE", "never")  # it may be four in the morning
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work").mkdir()
    return Home(tmp_path, monkeypatch, capsys)


class TestOnce:
    def test_the_answer_is_on_stdout_and_nothing_else(self, home: Home) -> None:
        """What is piped in is added to what is said, and the answer is all that is printed."""
        done = home.chat("--model", home.script("It is 42."), "-p", "What is this?", stdin="a file\n")
        assert (done.returncode, done.stdout) == (0, "It is 42.\n")
        assert [message.text for message in read(home.transcripts()[0]).messages] == [
            "What is this?\n\na file",
            "It is 42.",
        ]

    def test_json_is_for_programs(self, home: Home) -> None:
        """The answer comes with what it took; tools that ran are counted as steps."""
        (home.folder / "work" / "port.txt").write_text("6543")
        look = {"text": "I look.", "calls": [{"name": "read", "arguments": {"path": "port.txt"}}]}
        done = home.chat("--model", home.script(look, "It is 6543."), "--json", stdin="Which port?")
        data = json.loads(done.stdout)
        assert (data["text"], data["steps"], data["interrupted"]) == ("It is 6543.", 2, False)
        assert data["usage"]["input"] > 0
        assert data["session"] == home.transcripts()[0].stem
        assert "[read]" in done.stderr

    def test_an_empty_question_is_a_wrong_call(self, home: Home) -> None:
        """Without words there is nothing to ask."""
        done = home.chat("--model", "echo", "-p", "")
        assert done.returncode == 2
        assert "There is no message" in done.stderr

    def test_there_is_no_shell_unless_it_is_allowed(self, home: Home) -> None:
        """No one can be asked, so commands run only with --yes."""
        call = {"calls": [{"name": "bash", "arguments": {"command": "touch made"}}]}
        home.chat("--model", home.script(call, "Done."), "-p", "Make it.")
        assert not (home.folder / "work" / "made").exists()
        home.chat("--model", home.script(call, "Done."), "-p", "Make it.", "--yes")
        assert (home.folder / "work" / "made").exists()

    def test_silence_prints_nothing(self, home: Home) -> None:
        """An answer that says that there is nothing to say is not shown."""
        done = home.chat("--model", home.script("NO_REPLY"), "-p", "psst")
        assert (done.returncode, done.stdout) == (0, "")

    def test_control_codes_of_a_model_are_not_printed(self, home: Home) -> None:
        """What could move a cursor or turn text round is replaced."""
        done = home.chat("--model", home.script("a\x1b[2Jb\u202ec\r\nd"), "-p", "x")
        assert done.stdout == "a�[2Jb�c\nd\n"

    def test_a_model_that_fails_is_exit_code_1(self, home: Home) -> None:
        """One line says what went wrong; what was said is kept."""
        done = home.chat("--model", home.script({"error": "refused", "message": "no credit"}), "-p", "Hello?")
        assert done.returncode == 1
        assert "no credit" in done.stderr
        assert "Traceback" not in done.stderr
        assert read(home.transcripts()[0]).messages[0].text == "Hello?"


class TestLines:
    def test_each_line_is_answered_and_the_conversation_continues(self, home: Home) -> None:
        """Lines are said one after the other; another process continues where the first one ended."""
        done = home.chat("--model", home.script("One.", "Two."), "--plain", stdin="first\n\nsecond\n")
        assert done.stdout == "One.\nTwo.\n"
        assert done.stderr == ""
        done = home.chat("--model", "echo", stdin="third\n")
        assert "I would have sent 6 messages" in done.stdout
        assert len(home.transcripts()) == 1
        assert len(read(home.transcripts()[0]).messages) == 6

    def test_a_conversation_that_is_continued_is_named(self, home: Home) -> None:
        """One line on stderr, as in the terminal, so that stdout has nothing but answers."""
        home.chat("--model", home.script("5433."), "--plain", stdin="预发布 staging 用哪个端口？\n")
        done = home.chat("--model", home.script("Yes."), "--plain", stdin="Sure?\n")
        assert done.stdout == "Yes.\n"
        assert done.stderr == "Continues “预发布 staging 用哪个端口？” · just now · /new begins another\n"

    def test_commands_work_in_a_pipe(self, home: Home) -> None:
        """Slash commands answer on stdout; /exit leaves what follows unsaid."""
        lines = ["/help", "Hello.", "/status", "/context", "/nonsense", "/exit", "never sent"]
        done = home.chat("--model", home.script("Hi."), "--plain", stdin="\n".join(lines))
        assert done.returncode == 0
        for words in ("/compact [", "Hi.", "compactions 0", "workspace files", "There is no /nonsense"):
            assert words in done.stdout
        assert len(read(home.transcripts()[0]).messages) == 2

    def test_a_turn_that_fails_does_not_end_it(self, home: Home) -> None:
        """The next line is said all the same; the exit code tells that something went wrong."""
        model = home.script({"error": "refused", "message": "no credit"}, "Better now.")
        done = home.chat("--model", model, stdin="first\nsecond\n")
        assert done.stdout == "Better now.\n"
        assert "no credit" in done.stderr
        assert done.returncode == 1

    def test_compaction_by_hand(self, home: Home) -> None:
        """`/compact` tells how much was gained, and the conversation continues."""
        summary = "## Goal\nTalk.\n"
        long = ["words and more words. " * 300] * 8
        steps: list[str | dict[str, Any]] = [*long, "NO_REPLY", {"text": summary, "repeat": True}]
        lines = "\n".join(["tell me more. " * 300] * 8 + ["/compact mind the ports", "/status"])
        done = home.chat("--model", home.script(*steps), "--context-tokens", "64000", stdin=lines)
        assert "Compacted (" in done.stdout
        assert "compactions 1" in done.stdout


class TestSeveral:
    def test_sessions_and_agents_are_apart(self, home: Home) -> None:
        """A session and an agent of another name begin their own conversations and know nothing of the first."""
        for arguments in ([], ["--session", "other"], ["--agent", "second"]):
            done = home.chat("--model", home.script("Noted."), *arguments, "-p", f"Hello {arguments}.")
            assert done.returncode == 0
        assert len(home.transcripts()) == 2
        assert len(home.transcripts("second")) == 1
        for file in (*home.transcripts(), *home.transcripts("second")):
            assert len(read(file).messages) == 2

    def test_a_new_conversation_keeps_the_old_one(self, home: Home) -> None:
        """`/new` begins another; the old transcript is put away and can still be read."""
        home.chat("--model", home.script("One.", "Two."), stdin="first\n/new\nsecond\n")
        (fresh,) = home.transcripts()
        assert [message.text for message in read(fresh).messages] == ["second", "Two."]
        (old,) = fresh.parent.glob("*.jsonl.reset.*")
        assert "first" in old.read_text("utf-8")


class TestOpening:
    def test_without_a_model_three_lines_explain_how_to_begin(self, home: Home) -> None:
        """No key, no model: exit code 1, and the ways in."""
        done = home.chat("-p", "Hello?")
        assert done.returncode == 1
        for way in ("ANTHROPIC_API_KEY", "ollama/", "llama.cpp", "holdfast demo", "--model echo"):
            assert way in done.stderr
        programs = home.chat("-p", "Hello?", "--json")
        assert json.loads(programs.stderr.splitlines()[-1])["error"]["type"] == "InputError"

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--model", "nobody/knows"], "no model is called that"),
            (["--model", "anthropic/claude-x"], "ANTHROPIC_API_KEY"),
            (["--model", "scripted:nowhere.jsonl"], "nowhere.jsonl"),
            (["--model", "echo", "--agent", "../evil"], "cannot name an agent"),
        ],
    )
    def test_a_memory_that_cannot_be_opened_is_an_error_of_one_line(
        self, arguments: Sequence[str], words: str, home: Home
    ) -> None:
        """The message includes the fix; the exit code is 1."""
        done = home.chat(*arguments, "-p", "Hello?")
        assert done.returncode == 1
        assert words in done.stderr
        assert "Traceback" not in done.stderr

    def test_echo_describes_what_would_be_sent(self, home: Home) -> None:
        """Without a model one can see what a model would see."""
        done = home.chat("--model", "echo", "-p", "Which port?")
        assert "I would have sent 2 messages" in done.stdout
        assert "Which port?" in done.stdout

    def test_files_are_written_only_on_request(self, home: Home) -> None:
        """A workspace that was named gets its files; the folder that one happens to be in does not."""
        home.chat("--model", home.script("Hi."), "-p", "x")
        assert (home.folder / "work" / "AGENTS.md").exists()
        assert not (home.folder / "AGENTS.md").exists()


def test_it_runs_as_a_process(home: Home) -> None:
    """The command itself, with real pipes."""
    done = run_holdfast("chat", "--model", home.script("Here."), "-p", "Anybody?", check=False)
    assert (done.returncode, done.stdout) == (0, "Here.\n")


class TestProject:
    """A conversation belongs to the project of the folder in which it began, as imported sessions do."""

    def test_what_was_imported_for_the_folder_is_recalled(self, home: Home) -> None:
        """Passages and facts of an imported session with the same folder are recalled; those of another are not."""
        home.patch.setenv("HOLDFAST_ARCHIVE__CROSS_SESSION", "true")
        for name, folder, port in (("a", home.folder / "work", "6543"), ("b", home.folder / "other", "7654")):
            file = home.folder / f"{name}.jsonl"
            Transcript.create(file, cwd=str(folder), session_id=name).append_message(
                user(f"The zanzibar database listens on port {port}.")
            )
            home.run("import", str(file))
            home.run("remember", f"The giraffe service uses port {port}", "--project", str(folder))
        lines = "Which port has the zanzibar database?\nWhich port has the giraffe service?\n"
        home.chat("--model", home.script("One.", "Two."), stdin=lines)
        with Engine.open(home.folder / "memory") as engine:
            (scope,) = [scope for scope in engine.sessions() if scope.id not in {"a", "b"}]
            recalled = str(engine.session(scope.id, project=str(home.folder / "work")).edits())
        assert "zanzibar database listens on port 6543" in recalled
        assert "giraffe service uses port 6543" in recalled
        assert "7654" not in recalled

    def test_a_conversation_stays_in_its_project(self, home: Home) -> None:
        """Continued from another folder, a conversation keeps the project of the folder in which it began."""
        home.chat("--model", home.script("One."), "-p", "Hello.")
        (home.folder / "other").mkdir()
        home.chat("--model", home.script("Two."), "--workspace", str(home.folder / "other"), "-p", "Again.")
        with Engine.open(home.folder / "memory") as engine:
            assert [info.project for info in engine.sessions()] == [str(home.folder / "work")]

    def test_an_option_names_another(self, home: Home) -> None:
        """With --project the conversation is stored there."""
        home.chat("--model", home.script("One."), "--project", "shop", "-p", "Hello.")
        with Engine.open(home.folder / "memory") as engine:
            assert [info.project for info in engine.sessions()] == ["shop"]
