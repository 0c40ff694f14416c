"""Nothing that someone else wrote moves the cursor: not in any field, of any command, on stdout or stderr."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

from holdfast.cli import COMMANDS, main
from holdfast.cli.console import Progress, SafeConsole, open_console, print_table
from holdfast.cli.output import echo_styled
from holdfast.text import printable

EVIL = "a\x1b[2J\x1b]0;owned\x07\x9b31m\x85b\u202ec\u2066d\u061ce\rf\x08\x7f\u2028文\x00g"
"""Colours and titles by ESC and by C1, bidirectional overrides, carriage return, backspace, other line ends."""
NAME = EVIL.replace("\x00", "")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def hostile_lines() -> list[str]:
    """A transcript with something hostile in every field that can hold text."""
    lines: list[dict[str, Any]] = [
        {"type": "session", "version": 3, "id": EVIL, "timestamp": "2026-06-08T10:00:00.000Z", "cwd": EVIL},
        {"type": "model_change", "id": "m", "parentId": None, "provider": EVIL, "modelId": EVIL},
        {"type": "session_info", "id": "i", "parentId": "m", "name": EVIL},
    ]
    parent = "i"
    for turn in range(15):
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": [{"type": "text", "text": f"turn {turn} {EVIL} " + "question words " * 40}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": EVIL},
                    {"type": "text", "text": f"{EVIL} " + "answer words " * 40},
                    {"type": "toolCall", "id": f"c{turn}", "name": EVIL, "arguments": {EVIL: EVIL, "path": EVIL}},
                    {"type": EVIL, "data": EVIL},
                ],
                "provider": EVIL,
                "model": EVIL,
                "errorMessage": EVIL,
            },
            {
                "role": "toolResult",
                "toolCallId": f"c{turn}",
                "toolName": EVIL,
                "content": [{"type": "text", "text": EVIL + "result " * 60}],
                "isError": True,
            },
        ]
        for index, message in enumerate(messages):
            key = f"{turn:04x}{index:04x}"
            lines.append({"type": "message", "id": key, "parentId": parent, "message": message})
            parent = key
    return [*(json.dumps(line) for line in lines), f'{{"type": "{EVIL[:3]}', json.dumps({"type": EVIL})]


@dataclass
class Ran:
    """What came of a command."""

    code: int
    out: str
    err: str


@dataclass
class Home:
    """A machine with hostile data on it."""

    folder: Path
    heard: pytest.CaptureFixture[str]
    patch: pytest.MonkeyPatch

    @property
    def file(self) -> Path:
        """The transcript."""
        return self.folder / NAME / f"{NAME}.jsonl"

    def run(self, *arguments: str | Path) -> Ran:
        """Run a command."""
        self.patch.setattr(sys, "stdin", io.StringIO(""))
        with pytest.raises(SystemExit) as left:
            main([*map(str, arguments)])
        shown = self.heard.readouterr()
        return Ran(int(left.value.code or 0), shown.out, shown.err)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Home:
    """A machine with hostile data on it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / NAME / "memory"))
    monkeypatch.setenv("HOLDFAST_EMBEDDING__PROVIDER", "none")
    monkeypatch.setenv("HOLDFAST_RECALL__DEADLINE_MS", "600000")
    monkeypatch.chdir(tmp_path)
    made = Home(tmp_path, capsys, monkeypatch)
    made.file.parent.mkdir()
    made.file.write_text("\n".join(hostile_lines()), "utf-8")
    assert made.run("import", made.file).code == 0
    return made


def script(home: Home, *steps: object) -> str:
    """The name of a model that answers so; the name is hostile, too."""
    file = home.folder / f"{NAME}.script"
    file.write_text("\n".join(map(json.dumps, steps)), "utf-8")
    return f"scripted:{file}"


def chat(home: Home) -> tuple[str, ...]:
    """A conversation in which everything is hostile."""
    call = {"name": EVIL, "arguments": {EVIL: EVIL}}
    steps = [{"text": EVIL, "calls": [call]}, {"error": "refused", "message": EVIL}]
    return ("chat", "--model", script(home, *steps), "--session", "x", "-p", EVIL.replace("\x00", ""))


def compact(home: Home) -> tuple[str | Path, ...]:
    """A compaction by a hostile model."""
    return ("compact", home.file, "--limit", "4000", "--model", script(home, {"text": EVIL, "repeat": True}))


def refused(home: Home) -> tuple[str | Path, ...]:
    """A compaction by a provider that refuses in hostile words."""
    model = script(home, {"error": "refused", "message": EVIL})
    return ("compact", home.file, "--limit", "4000", "--model", model)


def folder_settings(home: Home) -> tuple[str, ...]:
    """A settings file with a hostile name in it."""
    (home.folder / "holdfast.toml").write_text(f"{json.dumps(EVIL)} = 1\n")
    return ("stats",)


def trusting(home: Home) -> tuple[str | Path, ...]:
    """A folder with a hostile name that can be trusted."""
    (home.file.parent / "holdfast.toml").write_text("archive.redaction = false\n")
    return ("trust", home.file.parent)


CASES: dict[str, Callable[[Home], tuple[str | Path, ...]]] = {
    "backup": lambda home: ("backup", home.folder / f"{NAME}.db"),
    "chat": chat,
    "compact": compact,
    "compact refused": refused,
    "compact session": lambda _: ("compact", "--session", EVIL, "--limit", "4000"),
    "context": lambda home: ("context", home.file, "--limit", "4000"),
    "context of nothing": lambda _: ("context", "--session", EVIL),
    "diff": lambda home: ("diff", home.file, "--limit", "4000", "--full"),
    "decrypt": lambda _: ("decrypt", "--key", f"env:{NAME}"),
    "doctor": lambda _: ("doctor",),
    "encrypt": lambda home: ("encrypt", "--home", home.folder / NAME),
    "export": lambda home: ("export", home.folder / f"{NAME}.out"),
    "facts": lambda _: ("facts",),
    "exclude": lambda _: ("exclude", EVIL),
    "keep": lambda _: ("keep", EVIL),
    "forget": lambda _: ("forget", EVIL, "--yes"),
    "get": lambda _: ("get", "1", "--around", "3"),
    "import": lambda home: ("import", home.file, home.folder / NAME / "nothing"),
    "install": lambda _: ("install", EVIL),
    "learn": lambda home: ("learn", "--model", script(home, {"error": "refused", "message": EVIL})),
    "overview": lambda _: ("overview",),
    "recall": lambda _: ("recall", "answer words turn 3"),
    "reindex": lambda _: ("reindex",),
    "remember": lambda _: ("remember", NAME, "--subject", NAME),
    "replay": lambda home: ("replay", home.file, "--limit", "4000"),
    "search": lambda _: ("search", "answer words", "--explain"),
    "sessions": lambda home: ("sessions", home.folder),
    "sessions stored": lambda _: ("sessions",),
    "sessions of nothing": lambda home: ("sessions", home.folder / f"no{NAME}"),
    "settings": folder_settings,
    "show": lambda home: ("show", home.file, "--full"),
    "show nothing": lambda home: ("show", home.folder / NAME / f"no{NAME}"),
    "show debug": lambda home: ("--debug", "show", home.folder / NAME / f"no{NAME}"),
    "stats": lambda _: ("stats",),
    "timeline": lambda home: ("timeline", home.file, "--limit", "4000"),
    "timeline of nothing": lambda _: ("timeline", "--session", EVIL),
    "tokens": lambda home: ("tokens", home.file),
    "tokens by nobody": lambda home: ("tokens", home.file, "--counter", EVIL),
    "trust": trusting,
    "uninstall": lambda _: ("uninstall", EVIL),
    "migrate": lambda home: ("migrate", home.folder / NAME, home.folder / "new"),
    "unknown": lambda _: (EVIL,),
    "usage": lambda home: ("show", home.file, EVIL),
    "vacuum": lambda _: ("vacuum",),
}
OWN_WORDS = {"demo", "hook", "mcp", "models", "rpc", "serve", "token", "ui", "version"}
"""Commands that print nothing of anybody else's, or JSON for programs alone."""


def test_every_command_is_tried() -> None:
    """A new command has to be in the list."""
    assert {name.split()[0] for name in CASES} | OWN_WORDS >= COMMANDS.keys()


@pytest.mark.variants
@pytest.mark.parametrize("name", CASES)
def test_no_control_character_reaches_the_screen(name: str, home: Home) -> None:
    """Whatever is in ids, names, paths, texts and errors: only line breaks and tabs are left of it."""
    done = home.run(*CASES[name](home))
    shown = done.out + done.err
    assert shown.strip()
    assert not CONTROL.findall(shown), repr(CONTROL.sub(lambda found: f"<{found[0]!a}>", shown))[:600]


@pytest.mark.variants
@pytest.mark.parametrize("name", ["show", "search", "sessions", "context", "timeline", "stats"])
def test_json_is_whole_and_harmless(name: str, home: Home) -> None:
    """JSON escapes what a terminal would act on, and holds all of it."""
    done = home.run(*CASES[name](home), "--json")
    assert done.code == 0, done.err
    assert not CONTROL.findall(done.out)
    assert name == "timeline" or EVIL[:10] in json.dumps(json.loads(done.out)).encode().decode("unicode_escape")


def test_the_last_line_of_defence(capsys: pytest.CaptureFixture[str]) -> None:
    """A console and a bar replace what no command did; their own codes work."""
    screen = SafeConsole(file=io.StringIO(), force_terminal=True, width=60)
    screen.print(f"x {EVIL}", style="red")
    written = screen.file.getvalue()  # type: ignore[attr-defined]
    assert written.startswith("\x1b[31m")
    assert not CONTROL.findall(re.sub(r"\x1b\[[0-9;]*m", "", written))
    with Progress(10) as bar:
        bar.describe(f"[bold]{EVIL}")
    assert isinstance(bar.screen, SafeConsole)
    assert not CONTROL.findall(capsys.readouterr().err)


def test_without_colours_a_terminal_gets_no_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for colours nor for bold and dim text, whichever way a command prints."""
    monkeypatch.setenv("TERM", "xterm")
    for value, has_codes in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", value)
        screen = io.StringIO()
        monkeypatch.setattr(screen, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdout", screen)
        print_table(["端口"], [["5433"]])
        open_console().print("bold", style="bold red")
        assert ("\x1b" in screen.getvalue()) == has_codes
        screen.truncate(0)
        echo_styled(click.style("dim", dim=True))
        assert ("\x1b" in screen.getvalue()) == has_codes


def test_printable() -> None:
    """Each character that could act is replaced by one that cannot; a name can be kept on one line."""
    assert printable("a\tb\r\nc 文字 👩‍👩‍👧 é") == "a\tb\nc 文字 👩‍👩‍👧 é"
    assert not CONTROL.findall(printable(EVIL))
    assert len(printable(EVIL)) == len(EVIL)
    assert printable("a\nb\tc", one_line=True) == "a b c"
