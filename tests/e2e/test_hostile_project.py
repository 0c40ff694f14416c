"""Nothing in a cloned repository is run or imported, whatever starts Holdfast there and whatever PATH says."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2 as httpx
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from holdfast.hooks.hosts import HOSTS
from holdfast.server.process import find
from holdfast_agent import shell
from support.hostile_project import HostileProject, make_hostile_project
from support.waiting import stop_server, until

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
NODE = shutil.which("node")
SECONDS = 120


@dataclass(frozen=True)
class User:
    """A user with a home of their own, who works in the hostile project."""

    home: Path
    project: HostileProject

    @property
    def memory(self) -> Path:
        return self.home / "memory"

    def run(
        self, *command: str, stdin: str = "", environ: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the project; it succeeds."""
        return subprocess.run(
            command,
            cwd=self.project.folder,
            env=self.project.environ(self.home, **(environ or {})),
            input=stdin,
            capture_output=True,
            text=True,
            check=True,
            timeout=SECONDS,
        )

    def event(self, name: str, **fields: Any) -> str:
        """Return a hook event as hosts send it."""
        return json.dumps({"hook_event_name": name, "session_id": "s1", "cwd": str(self.project.folder), **fields})


@contextmanager
def working(folder: Path) -> Iterator[User]:
    """A user in a hostile project; a server that was started on demand is stopped at the end."""
    home = folder / "home"
    home.mkdir()
    one = User(home, make_hostile_project(folder))
    yield one
    if not one.project.traces():  # else it need not have started
        stop_server(one.memory)


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    """A user who has installed nothing."""
    with working(tmp_path) as one:
        yield one


@pytest.fixture(scope="module")
def host_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """A user who has installed Holdfast into every host, and has a memory with a fact."""
    with working(tmp_path_factory.mktemp("hosts")) as one:
        install = f"for host in {list(HOSTS)}: holdfast(['install', host], standalone_mode=False)"
        one.run(sys.executable, "-P", "-c", f"from holdfast.cli import holdfast\n{install}")
        # A hook on a busy machine may not wait for a server.
        one.run(HOLDFAST, "remember", "The replica uses port 6543.", "--project", str(one.project.folder))
        yield one


def test_the_server_that_a_hook_starts(user: User) -> None:
    """By the command of the installation, for a session that begins and for one that ends."""
    user.run(HOLDFAST, "hook", stdin=user.event("SessionStart", source="startup"))
    until(lambda: find(user.memory) or user.project.traces())
    assert user.project.traces() == []
    user.run(HOLDFAST, "hook", stdin=user.event("Stop"))
    assert user.project.traces() == []
    assert not (user.memory / "hooks.log").exists()


def test_the_module_run_by_hand(user: User) -> None:
    """`python -P -m holdfast` imports nothing from the folder; without -P nothing after the first line of ours."""
    user.run(sys.executable, "-P", "-m", "holdfast", "install")
    assert user.project.traces() == []
    for name in ("holdfast", *sys.stdlib_module_names):  # Python imports some of them before a line of ours
        (user.project.folder / f"{name}.py").unlink()
    user.run(sys.executable, "-m", "holdfast", "install")
    assert user.project.traces() == []


def test_the_browser_of_the_inspector(user: User) -> None:
    """`holdfast ui` opens a browser: not one that is in the folder."""
    command = [HOLDFAST, "ui", "--json", "--port", "0"]
    environ = user.project.environ(user.home, DISPLAY=":99", BROWSER="")
    process = subprocess.Popen(command, cwd=user.project.folder, env=environ, stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        assert httpx.get(url, timeout=SECONDS).status_code < 500  # it answers after it has tried to open a browser
        process.terminate()
    assert user.project.traces() == []


# --- what is installed into hosts ------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """The commands that an installation wrote: those of hooks and slash commands, and that of the MCP server.

    `plugin` is the address of a plugin in JavaScript, `provider` the file of one in Python.
    """

    hooks: tuple[str | tuple[str, ...], ...] = ()
    mcp: tuple[str, ...] = ()
    plugin: str = ""
    provider: str = ""


def read_claude_code(home: Path) -> Written:
    """Read the plugin of Claude Code."""
    plugin = home / ".claude/skills/holdfast"
    events = json.loads((plugin / "hooks/hooks.json").read_text())["hooks"]
    hooks = [(hook["command"], *hook["args"]) for (group,) in events.values() for hook in group["hooks"]]
    server = json.loads((plugin / ".mcp.json").read_text())["mcpServers"]["memory"]
    texts = [file.read_text() for file in (plugin / "commands").iterdir()]
    lines = [line for text in texts for line in re.findall(r"!`(.*?)`", text)]
    assert lines
    return Written(hooks=(*hooks, *lines), mcp=(server["command"], *server["args"]))


def read_hooks(file: Path) -> tuple[str, ...]:
    """Read the command lines of hooks."""
    events = json.loads(file.read_text())["hooks"]
    return tuple(hook["command"] for (group,) in events.values() for hook in group["hooks"])


def read_codex(home: Path) -> Written:
    """Read the two files of Codex."""
    server = tomllib.loads((home / ".codex/config.toml").read_text())["mcp_servers"]["holdfast"]
    return Written(hooks=read_hooks(home / ".codex/hooks.json"), mcp=(server["command"], *server["args"]))


def read_settings(file: Path) -> Written:
    """Read the settings of Gemini CLI or Qwen Code."""
    server = json.loads(file.read_text())["mcpServers"]["holdfast"]
    return Written(hooks=read_hooks(file), mcp=(server["command"], *server["args"]))


def read_goose(home: Path) -> Written:
    """Read the settings of Goose."""
    text = (home / ".config/goose/config.yaml").read_text()
    lines = dict(line.strip().split(": ", 1) for line in text.splitlines() if ": " in line)
    return Written(mcp=(json.loads(lines["cmd"]), *json.loads(lines["args"])))


def read_opencode(home: Path) -> Written:
    """Read the settings of OpenCode, and find its plugin."""
    folder = home / ".config/opencode"
    server = json.loads((folder / "opencode.json").read_text())["mcp"]["holdfast"]
    return Written(mcp=tuple(server["command"]), plugin=(folder / "plugins/holdfast.js").as_uri())


def read_editor(file: Path, *, key: str) -> Written:
    """Read the settings that a project has for Cursor or VS Code, which put its folder in place of a variable."""
    server = json.loads(file.read_text())[key]["holdfast"]
    folder = str(file.parents[1])
    arguments = [argument.replace("${workspaceFolder}", folder) for argument in server["args"]]
    assert folder in arguments
    return Written(mcp=(server["command"], *arguments))


HOST_READERS: dict[str, Callable[[Path], Written]] = {
    "claude-code": read_claude_code,
    "codex": read_codex,
    "gemini": lambda home: read_settings(home / ".gemini/settings.json"),
    "goose": read_goose,
    "hermes": lambda home: Written(provider=str(home / ".hermes/plugins/holdfast/__init__.py")),
    "openclaw": lambda home: Written(plugin=(home / ".openclaw/extensions/holdfast/index.js").as_uri()),
    "opencode": read_opencode,
    "pi": lambda home: Written(plugin=(home / ".pi/agent/extensions/holdfast.js").as_uri()),
    "qwen": lambda home: read_settings(home / ".qwen/settings.json"),
}
"""The readers of what is installed for a user, who has this home."""
EDITOR_READERS: dict[str, Callable[[Path], Written]] = {
    "cursor": lambda project: read_editor(project / ".cursor/mcp.json", key="mcpServers"),
    "vscode": lambda project: read_editor(project / ".vscode/mcp.json", key="servers"),
}
"""The readers of what is installed for a project, which has this folder."""


def read_installed(user: User, host: str) -> Written:
    """Read what was installed into a host."""
    if HOSTS[host].is_of_project:
        return EDITOR_READERS[host](user.project.folder)
    return HOST_READERS[host](user.home)


async def list_tools(command: tuple[str, ...], *, cwd: Path, environ: dict[str, str]) -> list[str]:
    """Start an MCP server as a client does, and list its tools."""
    started = StdioServerParameters(command=command[0], args=list(command[1:]), cwd=cwd, env=environ)
    async with stdio_client(started) as streams, ClientSession(*streams) as client:
        await client.initialize()
        return [tool.name for tool in (await client.list_tools()).tools]


@pytest.mark.parametrize("host", list(HOSTS))
def test_what_is_installed_into_a_host(host_user: User, host: str) -> None:
    """Every command that is written is absolute, and runs nothing of the project, even if PYTHONPATH names it.

    A host may have read that variable from the `.env` file of the project.
    """
    user = host_user
    assert user.project.traces() == []
    written = read_installed(user, host)
    assert written != Written()
    variables = {"PYTHONPATH": f".:{user.project.folder}", "HOLDFAST_COMMAND": "./holdfast"}
    for hook in dict.fromkeys(written.hooks):  # most events have the same command
        words = shlex.split(hook) if isinstance(hook, str) else list(hook)
        assert Path(words[0]).is_absolute()
        stdin = user.event("UserPromptSubmit", prompt="Which port does the replica use?")
        command = ("/bin/sh", "-c", hook) if isinstance(hook, str) else hook
        user.run(*command, stdin=stdin, environ=variables)
    if written.mcp:
        assert Path(written.mcp[0]).is_absolute()
        environ = user.project.environ(user.home, **variables)

        async def use() -> list[str]:
            return await list_tools(written.mcp, cwd=user.project.folder, environ=environ)

        assert "memory_search" in anyio.run(use)
    if written.plugin:
        if NODE is None:
            pytest.skip("there is no Node here")
        driver = str(Path(__file__).with_name("plugin_host.mjs"))
        patient = {"HOLDFAST_TIMEOUT_MS": f"{1000 * SECONDS}"}
        done = user.run(NODE, driver, host, written.plugin, environ=variables | patient)
        assert json.loads(done.stdout) == {"sent": 1, "warnings": []}
    if written.provider:
        driver = str(Path(__file__).with_name("provider_host.py"))
        patient = {"HOLDFAST_TIMEOUT_MS": f"{1000 * SECONDS}", "HOLDFAST_RECALL__DEADLINE_MS": f"{1000 * SECONDS}"}
        done = user.run(sys.executable, "-E", "-P", driver, written.provider, environ=variables | patient)
        answer = json.loads(done.stdout)
        assert Path(answer["command"][0]).is_absolute()
        assert "6543" in answer["block"]
    assert user.project.traces() == []


# --- the agent -------------------------------------------------------------------------


def test_the_shell_of_the_agent_is_not_one_of_the_project(user: User) -> None:
    """The command that the user approved runs there, and sees the PATH of the user."""
    code = "from holdfast_agent.shell import run; print(run('echo $PATH', cwd=Path.cwd(), seconds=60).output)"
    done = user.run(sys.executable, "-P", "-c", f"from pathlib import Path; {code}")
    assert done.stdout.strip() == user.project.search_path
    assert user.project.traces() == []


def test_a_program_that_the_settings_name_is_not_one_of_the_project(user: User) -> None:
    """Hooks and QMD: a name is looked up outside of the project, and so is what the program starts itself."""
    environ = user.project.environ(user.home)
    with pytest.raises(shell.CommandError, match="notify"):
        shell.run_program(("notify",), cwd=user.project.folder, project=user.project.folder, environ=environ)
    tools = user.home / "tools"
    tools.mkdir()
    script = tools / "summarise"
    script.write_text("#!/bin/sh\nnode --version >/dev/null 2>&1\necho done\n")
    script.chmod(0o755)
    environ["PATH"] = f"{environ['PATH']}:{tools}"
    run = partial(shell.run_program, cwd=user.project.folder, project=user.project.folder, environ=environ)
    assert run(("summarise",)) == "done\n"
    assert user.project.traces() == []
