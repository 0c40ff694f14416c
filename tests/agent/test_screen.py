"""What a person sees."""

from __future__ import annotations

import io
import re
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

    def __init__(self, *, width: int = 40, colours: bool = False) -> None:
        self.seconds = 0.0
        self.console = Console(
            file=io.StringIO(),
            width=width,
            height=40,
            force_terminal=colours,
            color_system="standard" if colours else None,
            _environ={},
        )
        self.screen = Screen(self.console, clock=lambda: self.seconds)
        self.screen.begin()

    def clear(self) -> None:
        """Forget what stands there."""
        self.console.file = io.StringIO()

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
        """Blocks have a blank line between them; a tool has a line of its own, and the first lines of its output."""
        seen = Seen()
        for piece in ("First ", "block.\n\nSec", "ond."):
            seen.screen.text(piece)
        seen.screen.call(called("read", path="目录/" * 30))
        seen.screen.result(answered("read", "line\nline\n" * 50))
        seen.screen.text("Done.")
        seen.screen.end()
        lines = [line.rstrip() for line in seen.text.splitlines()]
        assert lines[:3] == ["First block.", "", "Second."]
        assert lines[3].startswith("▸ read 目录/")
        assert lines[3].endswith("…")
        assert lines[4:9] == ["  line"] * 4 + ["  └ the first 4 of 100 lines · Ctrl-O s…"]
        assert lines[9:] == ["", "Done.", ""]

    def test_every_result_is_below_its_call(self) -> None:
        """Calls of one reply are shown one after the other, each with its result."""
        seen = Seen()
        seen.screen.call(called("read", path="a"))
        seen.screen.call(called("bash", command="b"))
        seen.screen.result(answered("read", "x"))
        seen.screen.result(answered("bash", "it failed " * 10, failed=True))
        lines = [line.rstrip() for line in seen.text.splitlines()]
        assert lines[:3] == ["▸ read a", "  x", "▸ bash b"]
        assert seen.text.count("it failed") >= 8

    def test_the_output_of_a_command_keeps_its_lines(self) -> None:
        """With the number of lines, the exit status and the time; the end of what failed, the beginning of the rest."""
        seen = Seen(width=80)
        output = "\n".join(f"line {number}\t第{number}行" for number in range(1, 8))
        seen.screen.call(called("bash", command="make\ntest"))
        seen.seconds = 2.25
        seen.screen.result(answered("bash", output))
        seen.screen.call(called("bash", command="make test"))
        seen.screen.result(answered("bash", f"{output}\n[exit status 2]", failed=True))
        seen.screen.call(called("bash", command="true"))
        seen.screen.result(answered("bash", "(no output)"))
        lines = [line.rstrip() for line in seen.text.splitlines()]
        assert lines == [
            "▸ bash make test",
            *(f"  line {number}  第{number}行" for number in range(1, 5)),
            "  └ the first 4 of 7 lines · exit 0 · 2.2 s · Ctrl-O shows all",
            "▸ bash make test",
            *(f"  line {number}  第{number}行" for number in range(4, 8)),
            "  └ the last 4 of 7 lines · exit 2 · 0.0 s · Ctrl-O shows all",
            "▸ bash true",
            "  (no output)",
            "  └ exit 0 · 0.0 s",
        ]

    def test_what_was_shortened_can_be_shown_in_full(self) -> None:
        """The newest first, then the one before it."""
        seen = Seen(width=80)
        for name in ("old", "new"):
            seen.screen.call(called("bash", command=f"cat {name}"))
            seen.screen.result(answered("bash", "\n".join(f"{name} {number}" for number in range(9))))
        seen.screen.end()
        for name in ("new", "old"):
            seen.clear()
            seen.screen.expand()
            shown = [f"▸ bash cat {name}", *(f"  {name} {number}" for number in range(9)), ""]
            assert [line.rstrip() for line in seen.text.splitlines()] == shown
        seen.clear()
        seen.screen.expand()
        assert seen.text == "No output was shortened.\n"

    def test_a_command_that_was_asked_for_is_shown_once(self) -> None:
        """The question shows all of it, so the result does not repeat it."""
        seen = Seen(width=80)
        seen.screen.call(called("bash", command="make test"))
        seen.screen.show_action(Action(kind="run", text="make test"))
        seen.screen.result(answered("bash", "passed"))
        assert seen.text.count("make test") == 1
        assert seen.text.startswith("▸ bash\n  $ make test\n  passed\n")

    def test_a_change_is_coloured(self) -> None:
        """Also one that needs no confirmation: what was removed is red, what was added is green."""
        seen = Seen(width=80, colours=True)
        seen.screen.call(called("edit", path="a.md", oldText="港口", newText="端口"))
        seen.screen.show_change(Action(kind="write", text="write a.md\n@ line 2\n- 港口\n+ 端口"))
        assert "\x1b[31m- 港口" in seen.text
        assert "\x1b[32m+ 端口" in seen.text

    def test_a_finished_block_is_drawn_once(self) -> None:
        """Below the block that was written, the next frame has only the block that is growing."""
        seen = Seen(width=80, colours=True)
        seen.screen.text("The first paragraph.\n\nThe sec")
        below = seen.screen._live
        assert below is not None
        seen.clear()
        seen.screen.text("ond paragraph.\n\nThe third")
        assert seen.text.count("The second paragraph.") == 1
        seen.screen.end()

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
        seen.screen.show(CommandResult("words", report=agent.measure()))
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
    assert re.match(r"ctx [\d.]+% · ⟳ 0 · recalled 0", whole)
    assert whole.endswith("scripted/test")
    assert status_line(agent, width=16) == whole[:14]


class TestPrompt:
    def test_every_command_is_completed(self) -> None:
        """What can be completed is what there is."""
        assert set(WORDS) == {f"/{name}" for name in COMMANDS}
        for name, words in WORDS.items():
            assert all(word in COMMANDS[name[1:]].usage for word in words.arguments)
            assert words.help == COMMANDS[name[1:]].help

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
