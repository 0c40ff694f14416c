"""What a person sees."""

from __future__ import annotations

import io
import signal
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from rich.console import Console

from holdfast.messages import Text, ToolCall, ToolResult
from holdfast_agent.agent import Agent
from holdfast_agent.commands import COMMANDS
from holdfast_agent.opening import interruptible
from holdfast_agent.screen import Screen, shorten, status_line
from holdfast_agent.terminal import WORDS, CommandCompleter, MaskedHistory
from holdfast_agent.toolbox import Action
from holdfast_agent.view import CommandResult
from support.agent_fixture import AgentFixture


class Seen:
    """A screen, and what stands on it."""

    def __init__(self, *, width: int = 40) -> None:
        self.console = Console(file=io.StringIO(), width=width)
        self.screen = Screen(self.console, clock=lambda: 0.0)
        self.screen.begin()

    @property
    def text(self) -> str:
        """What stands there."""
        return str(self.console.file.getvalue())  # type: ignore[attr-defined]


def called(name: str, **arguments: object) -> ToolCall:
    """A call."""
    return ToolCall(id="c", name=name, arguments=arguments)


def answered(name: str, text: str, *, failed: bool = False) -> ToolResult:
    """Its result."""
    return ToolResult(call_id="c", name=name, content=(Text(text=text),), is_error=failed)


class TestScreen:
    def test_an_answer_with_a_tool(self) -> None:
        """Blocks have a blank line between them, tools a line each, however long what they say is."""
        seen = Seen()
        for piece in ("First ", "block.\n\nSec", "ond."):
            seen.screen.text(piece)
        seen.screen.call(called("read", path="目录/" * 30))
        seen.screen.result(answered("read", "line\nline\n" * 50))
        seen.screen.text("Done.")
        seen.screen.end()
        lines = [line.rstrip() for line in seen.text.splitlines()]
        assert lines[:3] == ["First block.", "", "Second."]
        assert lines[3].startswith("▸ read path=目录/")
        assert lines[3].endswith("…")
        assert lines[5:] == ["", "Done.", ""]

    def test_results_of_several_calls_have_names(self) -> None:
        """Where calls run side by side it is told whose answer is whose; an error is told whole."""
        seen = Seen()
        seen.screen.call(called("read", path="a"))
        seen.screen.call(called("bash", command="b"))
        seen.screen.result(answered("read", "x"))
        seen.screen.result(answered("bash", "it failed " * 10, failed=True))
        assert "  read: x" in seen.text
        assert seen.text.count("it failed") >= 8

    def test_notices_wait_while_the_prompt_is_shown(self) -> None:
        """While the prompt has the screen, notices are held back."""
        console = Console(file=io.StringIO(), width=40)
        screen = Screen(console)
        screen.notice("mended a line")
        assert console.file.getvalue() == ""  # type: ignore[attr-defined]
        screen.open()
        assert console.file.getvalue() == "mended a line\n"  # type: ignore[attr-defined]

    def test_a_command_is_shown_whole(self) -> None:
        """Whoever is asked sees every line of what would run, and nothing that hides a part of it."""
        seen = Seen()
        seen.screen.show_action(Action(kind="run", text="echo a\x1b[2K\nrm -r b"))
        assert seen.text == "  $ echo a�[2K\n  > rm -r b\n"

    def test_a_guarded_change_has_a_reason(self) -> None:
        """A change that is always asked for is shown with the reason."""
        seen = Seen(width=100)
        seen.screen.show_action(
            Action(kind="write", text="write .git/config\n+ x", guarded="it can make git run commands")
        )
        warning = "  This always needs your confirmation: it can make git run commands.\n"
        assert seen.text == f"  write .git/config\n  + x\n{warning}"

    def test_a_window_is_drawn(self, tmp_path: Path) -> None:
        """`/context` draws the window; words come below it."""
        agent = AgentFixture(tmp_path).agent(["Hi."])
        agent.say("Hello.")
        seen = Seen(width=100)
        seen.screen.show(CommandResult("words", report=agent.last_window().report))
        assert "workspace files" in seen.text
        assert seen.text.endswith("words\n\n")

    def test_columns_count(self) -> None:
        """A wide character takes two columns."""
        assert shorten("一二三四", 5) == "一二…"
        assert shorten("abcd", 5) == "abcd"


def test_the_status_line_shows_what_fits(tmp_path: Path) -> None:
    """The most important first; in a narrow terminal the rest is left out."""
    agent = AgentFixture(tmp_path).agent(["Hi."])
    agent.say("Hello.")
    whole = status_line(agent, width=100)
    assert whole.startswith("ctx 1 % · ⟳ 0 · recalled 0")
    assert whole.endswith("scripted/test")
    assert status_line(agent, width=15) == "ctx 1 % · ⟳ 0"


class TestPrompt:
    def test_every_command_is_completed(self) -> None:
        """What can be completed is what there is."""
        assert set(WORDS) == {f"/{name}" for name in COMMANDS}
        for name, words in WORDS.items():
            assert all(word in COMMANDS[name[1:]].usage for word in words)

    @pytest.mark.parametrize(
        ("typed", "words"),
        [
            ("/co", ["/compact", "/context "]),
            ("/context d", ["detail "]),
            ("/memory ", ["show ", "add ", "forget ", "search "]),
            ("/memory add x", []),
            ("hello /co", []),
        ],
    )
    def test_completion(self, typed: str, words: list[str]) -> None:
        """Commands at the beginning of the line, their words after them, and nothing elsewhere."""
        found = CommandCompleter().get_completions(Document(typed), CompleteEvent())
        assert [completion.text for completion in found] == words

    def test_the_past_is_private(self, tmp_path: Path) -> None:
        """What was typed comes back, with secrets masked, from a file that no one else can read."""
        past = MaskedHistory(lambda: tmp_path / "home")
        past.store_string("one\ntwo")
        past.store_string("export GITHUB_TOKEN=ghp_" + "x1Y2" * 9)
        newest, *others = MaskedHistory(lambda: tmp_path / "home").load_history_strings()
        assert "ghp_x1" not in newest
        assert others == ["one\ntwo"]
        assert (tmp_path / "home" / "chat_history").stat().st_mode & 0o077 == 0

    def test_a_past_that_cannot_be_kept_is_no_reason_to_stop(self, tmp_path: Path) -> None:
        """A home that is no folder costs the history and nothing else."""
        (tmp_path / "home").write_text("a file")
        past = MaskedHistory(lambda: tmp_path / "home")
        past.store_string("one")
        assert list(past.load_history_strings()) == []


def test_a_second_interrupt_leaves(tmp_path: Path) -> None:
    """The first Ctrl-C is for the agent, the second for the program, even where something swallows it."""
    agent = AgentFixture(tmp_path).agent([])
    with interruptible(agent):
        signal.raise_signal(signal.SIGINT)
        assert agent.cancel.is_set()
    with pytest.raises(KeyboardInterrupt):
        _interrupt_twice(agent)


def _interrupt_twice(agent: Agent) -> None:
    with interruptible(agent):
        assert not agent.cancel.is_set()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
