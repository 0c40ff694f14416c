"""The distribution is called `holdfast-memory`; `holdfast` on the package index is another project."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast_memory.distribution import DISTRIBUTION, install_command
from support.cases import each
from support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PLACES = ("src", "docs", "examples", "scripts", "benchmarks", "tests", ".github", ".ci")
STRANGER = "holdfast"
"""The distribution on the package index that no text of ours may name in an install line."""

_TOOL = re.compile(
    r"\b(?:uvx|pipx|bunx|npx|easy_install|(?:pip3?|uv|poetry|pdm|conda|npm|pnpm|brew)\b['\", \t\w=.-]*?"
    r"(?:\b(?:install|add|upgrade|update|download|wheel|inject)|--with))\b"
)
"""The beginning of a line that installs, runs or upgrades, in a shell or as a list of strings."""
_CUT = re.compile(r"&&|\|\||[;`#}]")
_REQUIREMENT = re.compile(
    r"""\bholdfast(?:
          \[[a-z.…]              # extras
        | \s*(?:==|>=|<=|~=|!=)\s*\d
        | \s@\s
    )
    | (?<![/.\w])holdfast@\d
    | \b(?:re)?(?:install|upgrade|update)s?[ ]['"`]?holdfast(?![-\w])
    | \bdependencies\b[^\]\n]*["']holdfast["']
    | ^[ \t]*(?:-\s+)?holdfast\s*$  # a line of requirements.txt
    """,
    re.VERBOSE | re.MULTILINE,
)


def find_install_lines_of_the_stranger(text: str) -> Iterator[str]:
    """Yield each part of a text that would install, run or upgrade the other project."""
    named = "\n".join(line for line in text.split("\n") if STRANGER in line)
    for match in _REQUIREMENT.finditer(named):
        yield match.group()
    for match in _TOOL.finditer(text):
        statement = _CUT.split(_first_statement(text[match.end() :]))[0]
        words = re.findall(r"[^\s\"',\[\]()]+", statement)
        names = [re.split(r"[=<>~!@]", word)[0] for word in words]
        if STRANGER in names and "--from holdfast-memory" not in " ".join(names):
            yield match.group() + statement


def _first_statement(rest: str) -> str:
    """The first line, and those after it while a line of shell, JSON or YAML continues."""
    kept: list[str] = []
    for line in rest.split("\n", 4)[:4]:
        kept.append(line.rstrip("\\"))
        goes_on = not line.strip("\"' ") or line.rstrip().endswith(("\\", ",", "["))
        if not goes_on:
            break
    return " ".join(kept)


def texts() -> list[Path]:
    """Every text file of ours: code, documentation, examples, plugins, workflows, tests."""
    files = [
        path
        for path in ROOT.iterdir()
        if path.suffix in {".md", ".toml", ".yml"} or path.name in {"Makefile", "Dockerfile"}
    ]
    for place in PLACES:
        files += (path for path in (ROOT / place).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(path for path in files if b"\0" not in path.read_bytes()[:4096])


@each(
    "line",
    [
        "pip install {}",
        "pip install -U {}",
        "pip3 install --upgrade '{}[local]'",
        "python -m pip install {}==0.2.0",
        "pipx install '{}[local,chat]'",
        "pipx run {} demo",
        "uvx {} demo",
        "uvx {}@latest demo",
        "uvx --from {} {} demo",
        "uvx --from '{}[mcp]' {} mcp",
        "uv add {}",
        "uv tool install {}",
        "uv tool upgrade {}",
        "uv pip install {}",
        "uv run --with {} agent.py",
        "uv add \\\n  {}",
        "poetry add {}",
        '["uvx", "{}", "mcp"]',
        '["uv", "tool", "install", "{}"]',
        '"command": "uvx",\n"args": ["{}", "mcp"]',
        "command: uvx\nargs: [{}, mcp]",
        'dependencies = ["{}"]',
        'dependencies = ["{}>=0.2"]',
        "dependencies:\n  - {}\n",
        "{}[all]",
        "{} @ git+https://example.com/holdfast",
        "written by a newer version: upgrade {} and start this program again",
        "reinstall `{}`",
        "\n{}\n",
    ],
)
def test_an_install_line_of_the_other_project_is_found(line: str) -> None:
    """The check below finds each spelling; with our own name the same line passes."""
    assert list(find_install_lines_of_the_stranger(line.format(STRANGER, "holdfast")))
    own = [line.format(DISTRIBUTION, "holdfast"), line.format(f"{DISTRIBUTION}[local]", "holdfast")]
    if not line.startswith(("uvx {}", '["uvx"', '"command"', "command", "pipx run")):  # there is no such command
        assert not any(list(find_install_lines_of_the_stranger(text)) for text in own)


@each(
    "line",
    [
        "pip install 'holdfast-memory[openai]'; holdfast chat",
        "pip install '.[local]' && holdfast demo",
        "uvx --from holdfast-memory holdfast demo",
        "uvx --from 'holdfast-memory[mcp]' holdfast mcp",
        '["uvx", "--from", "holdfast-memory", "holdfast", "mcp"]',
        "holdfast install openclaw",
        "postgresql://holdfast@127.0.0.1/memory",
        "Install Holdfast into a host",
    ],
)
def test_other_lines_are_not_found(line: str) -> None:
    """The command, hosts and addresses may be called `holdfast`."""
    assert not list(find_install_lines_of_the_stranger(line))


def test_no_text_of_ours_installs_another_project() -> None:
    """Code, messages, documentation, plugins and workflows install `holdfast-memory`, or a checkout."""
    found = {
        str(path.relative_to(ROOT)): lines
        for path in texts()
        if path != Path(__file__)
        and STRANGER in (text := path.read_text("utf-8", "replace"))
        and (lines := list(find_install_lines_of_the_stranger(text)))
    }
    assert not found


def test_the_project_names_itself() -> None:
    """The name in pyproject.toml is the one in messages, and `all` refers to it."""
    assert PROJECT["name"] == DISTRIBUTION
    (everything,) = PROJECT["optional-dependencies"]["all"]
    assert everything.startswith(f"{DISTRIBUTION}[")
    assert install_command() == "pip install holdfast-memory"
    assert install_command("local", "chat") == "pip install 'holdfast-memory[local,chat]'"


@pytest.mark.parametrize(
    "file",
    [
        "claude_code/.claude-plugin/plugin.json",
        "hermes/plugin.yaml",
        "openclaw/openclaw.plugin.json",
        "openclaw/package.json",
    ],
)
def test_a_plugin_has_the_version_of_the_package(file: str) -> None:
    """`src/holdfast/__init__.py` has the version; the files of plugins repeat it, since hosts read them."""
    text = (ROOT / "src" / "holdfast" / "hooks" / file).read_text("utf-8")
    assert re.findall(r"""^\s*"?version"?:\s*"?([^",\s]+)""", text, re.MULTILINE) == [holdfast.__version__]


def install(folder: Path) -> Path:
    """Install the package into a folder as pip would, and return the folder."""
    source = Path(holdfast.__file__).parent
    for package in (source, source.with_name("holdfast_agent"), source.with_name("holdfast_memory")):
        shutil.copytree(package, folder / package.name)  # with what is compiled, which `doctor` need not compile again
    _record(folder, DISTRIBUTION, holdfast.__version__, ["holdfast/__init__.py", "holdfast/cli/__init__.py"])
    return folder


def install_the_stranger(folder: Path, *, replaces_files: bool = True) -> None:
    """Install the other project into a folder; it has files of the same names."""
    files = {
        "holdfast/__init__.py": '"""Another project."""\n\nfrom .store import Contract\n',
        "holdfast/__main__.py": 'print("another project")\n',
        "holdfast/store.py": "Contract = object\n",  # our folder of the same name hides it
    }
    for name, text in files.items():
        file = folder / name
        if replaces_files or not file.exists():
            file.write_text(text, "utf-8")
    _record(folder, STRANGER, "0.5.1", list(files))


def _record(folder: Path, name: str, version: str, files: list[str]) -> None:
    about = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n", "utf-8")
    (about / "RECORD").write_text("".join(f"{file},,\n" for file in files), "utf-8")


def command(folder: Path, *arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run the installed command in a process whose packages are those of the folder."""
    module, _, function = PROJECT["scripts"]["holdfast"].partition(":")
    script = f"import sys; sys.argv[0] = 'holdfast'; from {module} import {function}; {function}()"
    paths = os.pathsep.join([str(folder), sysconfig.get_path("purelib")])
    environment = {**os.environ, "PYTHONPATH": paths, "HOME": str(home), "HOLDFAST_HOME": str(home / "memory")}
    # Without -S, the editable installation that the tests run in would be found too.
    line = [sys.executable, "-S", "-X", "importtime", "-c", script, *arguments]
    return subprocess.run(line, env=environment, cwd=home, capture_output=True, text=True, check=False)


@pytest.mark.untraced
class TestSideBySide:
    def test_doctor_names_the_other_project(self, tmp_path: Path) -> None:
        """It was there first: everything works until it is removed, and doctor says how to remove it."""
        site = install(tmp_path / "site")
        assert "holdfast 0.5.1" not in command(site, "doctor", home=tmp_path).stdout
        install_the_stranger(site, replaces_files=False)
        done = command(site, "doctor", "--json", home=tmp_path)
        found = [one for one in json.loads(done.stdout)["findings"] if "holdfast 0.5.1" in one["what"]]
        assert [one["level"] for one in found] == ["wrong"]
        assert "pip uninstall holdfast" in found[0]["what"]
        assert "pip install --force-reinstall --no-deps holdfast-memory" in found[0]["what"]
        assert done.returncode == 1

    @pytest.mark.parametrize("arguments", [["--version"], ["doctor"], ["recall", "which port?"]])
    def test_the_command_names_a_project_that_replaced_our_files(self, tmp_path: Path, arguments: list[str]) -> None:
        """It was installed later, so that `import holdfast` imports it."""
        site = install(tmp_path / "site")
        install_the_stranger(site)
        done = command(site, *arguments, home=tmp_path)
        assert done.returncode == 1
        assert "holdfast 0.5.1" in done.stderr
        assert "pip uninstall holdfast" in done.stderr
        assert "Traceback" not in done.stderr

    def test_the_command_reports_missing_files(self, tmp_path: Path) -> None:
        """`pip uninstall holdfast` has deleted the files that both projects have."""
        site = install(tmp_path / "site")
        (site / "holdfast" / "__init__.py").unlink()
        done = command(site, "--version", home=tmp_path)
        assert done.returncode == 1
        assert "pip install --force-reinstall --no-deps holdfast-memory" in done.stderr
        assert "Traceback" not in done.stderr

    def test_the_version_is_printed_without_reading_metadata(self, tmp_path: Path) -> None:
        """The look at what is installed takes time: `import holdfast` and `--version` do not take it."""
        done = command(install(tmp_path / "site"), "--version", home=tmp_path)
        assert done.stdout == f"holdfast {holdfast.__version__}\n"
        assert "holdfast_memory.distribution" in done.stderr  # the list of what was imported
        assert "importlib.metadata" not in done.stderr
