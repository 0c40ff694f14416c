"""The documentation is complete, and what it shows works."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import holdfast
from benchmarks.__main__ import bench
from holdfast import Engine, Settings, __version__, cli, errors
from support.cases import each
from support.openclaw_paths import DOCUMENTED
from support.paths import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
HOW_TO = {
    f"docs/{name}.md"
    for name in ("chat", "getting-started", "how-to-import", "how-to-forget", "index", "troubleshooting")
}
"""Pages whose commands run in an empty folder, as after `pip install`."""
PROGRAMS = {"holdfast ": cli.holdfast, "python -m benchmarks ": bench}
"""What the commands of the docs begin with, and what runs them."""
PROGRAMS_PAGE = "docs/frameworks.md"
"""The page whose programs need a model server: tests/adapters/test_programs.py runs them."""
_BLOCK = re.compile(r"(?P<skip><!-- not run: [^>]+ -->\n)?```(?P<language>\w+)\n(?P<code>.*?)```", re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    """Every code block of this language that is meant to run, with its page."""
    return [
        (str(page.relative_to(ROOT)), match["code"])
        for page in PAGES
        for match in _BLOCK.finditer(page.read_text("utf-8"))
        if match["language"] == language and not match["skip"]
    ]


def scripts() -> dict[tuple[str, ...], str]:
    """The commands of every block that can be run as they stand, once each, and a page that shows them."""
    return {words: page for page, code in blocks("sh") if (words := tuple(_runnable(code)))}


def _runnable(code: str) -> Iterator[str]:
    for line in code.splitlines():
        words = line.split("#", maxsplit=1)[0].strip()
        if words.startswith(tuple(PROGRAMS)) and not re.search(r"\b[A-Z]{3,}\b", words):
            yield words


def commands() -> list[str]:
    """Every command and subcommand."""
    context = click.Context(cli.holdfast)
    names: list[str] = []
    for name in cli.COMMANDS:
        command = cli.holdfast.get_command(context, name)
        assert command is not None
        names.append(name)
        if isinstance(command, click.Group):
            names += [f"{name} {sub}" for sub in command.commands]
    return names


@each("name", commands())
def test_a_command_is_documented(name: str) -> None:
    """Every command has a heading in docs/cli.md."""
    assert f"## holdfast {name}\n" in (ROOT / "docs" / "cli.md").read_text("utf-8")


@each("name", sorted(bench.commands))
def test_a_benchmark_is_documented(name: str) -> None:
    """Every benchmark has a heading in docs/benchmarks-running.md, a help text and --json."""
    assert f"## python -m benchmarks {name}\n" in (ROOT / "docs" / "benchmarks-running.md").read_text("utf-8")
    command = bench.commands[name]
    assert command.help
    assert any("--json" in parameter.opts for parameter in command.params)


@each("name", holdfast.__all__)
def test_a_public_name_is_documented(name: str) -> None:
    """Every exported name is in docs/api.md: add it to a page in scripts/api_pages.py."""
    assert f"`holdfast.{name}`" in (ROOT / "docs" / "api.md").read_text("utf-8")


def test_the_pages_of_the_api_are_up_to_date() -> None:
    """They are written from the docstrings: `make docs`."""
    pages = runpy.run_path(str(ROOT / "scripts" / "api_pages.py"))["make_pages"]()
    stale = [file.name for file, text in pages.items() if file.read_text("utf-8") != text]
    assert stale == []


@each("name", commands())
def test_a_command_describes_what_it_does(name: str) -> None:
    """Every command has a help text, and all but groups have --json."""
    context = click.Context(cli.holdfast)
    command: click.Command = cli.holdfast
    for part in name.split():
        assert isinstance(command, click.Group)
        found = command.get_command(context, part)
        assert found is not None
        command = found
    assert command.help
    has_json = any("--json" in parameter.opts for parameter in command.params)
    assert has_json or isinstance(command, click.Group)


@each("name", [name for name in vars(errors) if name.endswith("Error")])
def test_an_error_is_documented(name: str) -> None:
    """Every error has a row in docs/errors.md and a place in the drawn tree."""
    assert f"| `{name}` |" in (ROOT / "docs" / "errors.md").read_text("utf-8")
    assert name in (errors.__doc__ or "")


def _seed_rows() -> list[str]:
    """The rows of the tables of promises in docs/seeds.md."""
    promises = (ROOT / "docs" / "seeds.md").read_text("utf-8").partition("\n## Settings\n")[0]
    return [
        line
        for line in promises.splitlines()
        if line.startswith("| ") and not line.startswith(("| ---", "| promise |"))
    ]


@each("row", _seed_rows())
def test_a_promise_of_the_seeds_has_a_test(row: str) -> None:
    """Every row of docs/seeds.md names a test, and every test that it names exists."""
    named = re.findall(r"`(?:tests/)?([\w/]+\.py)((?:::\w+)*)`", row)
    assert named
    for file, names in named:
        lines = (ROOT / "tests" / file).read_text("utf-8").splitlines()
        for name in filter(None, names.split("::")):
            assert any(re.match(rf"\s*(?:async )?(?:def|class) {name}\b", line) for line in lines), f"{file}: {name}"


def test_every_setting_of_the_seeds_is_listed() -> None:
    """The table of settings in docs/seeds.md lists the paths that are tested, with our setting."""
    settings = (ROOT / "docs" / "seeds.md").read_text("utf-8").partition("\n## Settings\n")[2]
    listed = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", settings, re.MULTILINE)
    assert listed == [(path, key) for path, _, key, _ in DOCUMENTED]


def test_the_readme_is_short_and_shows_code_early() -> None:
    """The README has at most 150 lines, and code before line 25."""
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= 150
    assert any(line.startswith("```") for line in lines[:24])


COMPLETE = {
    "bash": '{} && COMP_WORDS=(holdfast rei) COMP_CWORD=1 && _holdfast_completion holdfast && echo "${{COMPREPLY[@]}}"',
    "zsh": "{} && functions _holdfast_completion",
    "fish": '{}; complete -C "holdfast rei"',
}


@pytest.mark.parametrize("shell", COMPLETE)
def test_shell_completion_works(shell: str, tmp_path: Path) -> None:
    """The line that the docs give for a shell completes a command there."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    (line,) = re.findall(rf"^\| {shell} .*\| `(.*{shell}_source.*)` \|$", page, re.MULTILINE)
    if not (program := shutil.which(shell)):
        pytest.skip(f"there is no {shell} here")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = COMPLETE[shell].format(line.replace("\\|", "|"))
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path), "HOLDFAST_HOME": str(tmp_path)}
    done = subprocess.run([program, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ("_HOLDFAST_COMPLETE" if shell == "zsh" else "reindex") in done.stdout


def test_the_version_is_in_the_changelog() -> None:
    """The newest version in the changelog is this one; what is not released yet is above it."""
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert next(name for name in headings if name != "Unreleased") == __version__


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is home and current folder, with an empty memory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "memory"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOLDFAST_RECALL__DEADLINE_MS", "600000")  # a busy machine recalls what any other does
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.untraced
@pytest.mark.parametrize(("page", "code"), [block for block in blocks("python") if block[0] != PROGRAMS_PAGE])
def test_python_in_the_docs_runs(page: str, code: str, home: Path) -> None:
    """Every Python block of the docs runs as it stands."""
    script = home / Path(page).with_suffix(".py").name
    script.write_text(code, "utf-8")
    runpy.run_path(str(script), run_name="__main__")


def find_program(words: str) -> tuple[click.Command, list[str]]:
    """The program that a command starts, and its arguments."""
    for name, program in PROGRAMS.items():
        if words.startswith(name):
            return program, shlex.split(words.removeprefix(name))
    raise LookupError(words)


def is_slow(words: str) -> bool:
    """Whether a command takes seconds: `make nightly` runs it, `make test` only parses it."""
    if words.startswith(("python -m benchmarks ", "holdfast replay session.jsonl ")):
        return True
    return words == "holdfast demo"  # with --save it only writes its conversation


def run_commands(script: Iterable[str], page: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the commands of a page in an empty home. Only the how-to pages run without the examples.

    The page of commands shows each by itself: there the memory has one session.
    """
    if page == "docs/cli.md":
        with Engine.open(home / "memory", settings=Settings(), background=False) as engine:
            texts = [f"Message {number} about the carrier signature." for number in range(4)]
            engine.session("s1").append([{"role": "user", "content": text} for text in texts])
    monkeypatch.chdir(home if page in {"README.md", *HOW_TO} else ROOT)
    for words in script:
        program, arguments = find_program(words.replace("$(mktemp -d)", str(home / "temporary")))
        done = CliRunner().invoke(program, arguments)
        assert done.exit_code == 0, f"{page}: {words}: {done.output} {done.exception!r}"


def quick_commands() -> dict[str, tuple[str, ...]]:
    """The commands of each page that are not slow, in their order and once each."""
    pages: dict[str, dict[str, None]] = {}
    for script, page in scripts().items():
        pages.setdefault(page, {}).update(dict.fromkeys(words for words in script if not is_slow(words)))
    return {page: tuple(words) for page, words in pages.items() if words}


SLOW = {script: page for script, page in scripts().items() if any(is_slow(words) for words in script)}


@pytest.mark.untraced
@pytest.mark.parametrize(("page", "script"), quick_commands().items(), ids=lambda shown: str(shown)[:60])
def test_commands_in_the_docs_run(
    page: str, script: tuple[str, ...], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command of a page runs after those above it, from an empty home on."""
    run_commands(script, page, home, monkeypatch)


@pytest.mark.nightly
@pytest.mark.untraced
@pytest.mark.parametrize(("script", "page"), SLOW.items(), ids=lambda shown: str(shown)[:60])
def test_slow_commands_in_the_docs_run(
    script: tuple[str, ...], page: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Benchmarks and long replays run too, after the commands that they follow on the page."""
    run_commands(script, page, home, monkeypatch)


@pytest.mark.parametrize("words", sorted({words for script in SLOW for words in script if is_slow(words)}))
def test_slow_commands_in_the_docs_have_valid_arguments(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An option that a benchmark no longer has is found without running it."""
    monkeypatch.chdir(ROOT)
    command, arguments = find_program(words)
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), arguments[0])
        assert found is not None, words
        command = found
        arguments = arguments[1:]
    if "session.jsonl" in arguments:  # written by the command before it
        arguments = [word.replace("session.jsonl", "examples/webhook.jsonl") for word in arguments]
    command.make_context(words, arguments)
