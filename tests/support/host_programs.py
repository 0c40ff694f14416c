"""The real hosts: how each is installed, pointed at a model on this machine, and run for one turn without a person."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from holdfast.messages import ToolCall, Usage
from support.host_terminal import HostTerminal
from support.unprivileged import drop_privileges

CACHE = Path(os.environ.get("HOLDFAST_HOSTS") or Path.home() / ".cache" / "holdfast-hosts")
"""Where the hosts are installed. Set HOLDFAST_HOSTS to use another folder."""
IS_ARM = platform.machine() in {"arm64", "aarch64"}
NODE = f"node-{sys.platform}-{'arm64' if IS_ARM else 'x64'}"
NODE_VERSION = "24.21.0"
MAX_SECONDS = 1_200
_NOT_FOR_THIS_MACHINE = ("ETARGET", "EBADPLATFORM")
"""Errors of npm about a package whose program is in another package for each system and processor."""
PATIENT = {"HOLDFAST_TIMEOUT_MS": "300000", "HOLDFAST_RECALL__DEADLINE_MS": "300000"}
"""On a busy machine memory may be slow."""
LARGE = Usage(input=31_000, output=10)
"""Close to the end of the window that the hosts are told of."""


def install_package(package: str, version: str) -> Path:
    """Install a package from npm, unless it is installed, and return its folder of modules."""
    folder = CACHE / f"{package.rpartition('/')[2]}-{version}"
    modules = folder / "node_modules"
    if not (modules / package).exists():
        # Renamed when it is complete: an installation that was broken off leaves packages without some of their files.
        started = CACHE / f"{folder.name}.{os.getpid()}"
        started.mkdir(parents=True)
        (started / "package.json").write_text('{"private": true}')
        npm = [shutil.which("npm") or "npm", "install", "--no-audit", "--no-fund", "--loglevel=error"]
        command = [*npm, f"{package}@{version}"]
        done = subprocess.run(
            command, cwd=started, env=_with_node(package), capture_output=True, text=True, check=False
        )
        if done.returncode:
            shutil.rmtree(started)
        if any(code in done.stderr for code in _NOT_FOR_THIS_MACHINE):
            raise NotForThisMachineError(f"npm has no {package} {version} for {sys.platform} on {platform.machine()}")
        if done.returncode:
            raise AssertionError(f"{command}: {done.stderr}")
        shutil.rmtree(folder, ignore_errors=True)
        started.rename(folder)
    return modules


def read_files(folder: Path) -> dict[Path, bytes]:
    """Return every file below the home of a host, without the folder that it works in."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "work" not in path.parts}


class NotForThisMachineError(Exception):
    """There is no program of a host for the system and processor of this machine."""


def _with_node(package: str) -> dict[str, str]:
    """Return the environment in which a package is installed and run: OpenClaw refuses an older Node in both."""
    if package == NODE:
        return dict(os.environ)
    node = install_package(NODE, NODE_VERSION) / NODE / "bin"
    return {**os.environ, "PATH": f"{node}{os.pathsep}{os.environ['PATH']}"}


@dataclass
class Program:
    """A host: its own home, the folder that it works in, and the address of its model."""

    home: Path
    work: Path
    url: str
    turns: int = field(default=0, init=False)
    """Turns of the session so far."""
    session: int = field(default=1, init=False)
    patience: dict[str, str] = field(default_factory=lambda: dict(PATIENT), init=False)
    """How long it waits for memory."""
    is_bound_by_modes: bool = field(default=False, init=False)
    """Whether it cannot write what is read-only, even if the tests are run by root."""

    name: ClassVar[str]
    """Its name for `holdfast install`."""
    package: ClassVar[str]
    version: ClassVar[str]
    binary: ClassVar[str]
    shell: ClassVar[tuple[str, str]] = ("bash", "command")
    """The tool that runs a command, and the name of its argument."""
    prunes: ClassVar[bool] = True
    """Whether it lets a very long tool output be replaced."""
    has_window: ClassVar[bool] = False
    """Whether its requests are windows that Holdfast has assembled."""
    refuses: ClassVar[bool] = False
    """Whether the model refuses the question once as too long, and Holdfast compacts in place of the host."""
    last_usage: ClassVar[Usage | None] = None
    """The usage of the third turn, where the host compacts because of it."""
    has_server: ClassVar[bool] = True
    """Whether it runs hooks, which are answered by a server; the others start a process of their own."""
    compacts: ClassVar[bool] = True
    """Whether it can be made to compact without a person."""
    terminal: ClassVar[tuple[str, ...]] = ()
    """The arguments with which a person talks to it in a terminal."""
    ready: ClassVar[tuple[str, ...]] = ()
    """What it shows, in this order, when a conversation has begun and it takes the first line of the user."""
    begun: ClassVar[tuple[str, ...]] = ()
    """What it shows when it has begun a new conversation in the same terminal, if that differs from `ready`."""
    clear: ClassVar[str] = "/clear"
    """The command by which a person begins a new conversation in the same terminal."""
    clear_shown: ClassVar[str] = ""
    """What is on its screen when it has recognised this command, if it does not run it earlier."""
    confirm: ClassVar[tuple[str, str]] = ("", "")
    """What it asks before it begins a new conversation, and the key that agrees."""

    @classmethod
    def is_installed(cls) -> bool:
        """Whether the host is in the cache."""
        return (CACHE / f"{cls.package.rpartition('/')[2]}-{cls.version}" / "node_modules" / cls.package).exists()

    def call(self, number: int, command: str) -> ToolCall:
        """Make the call of the tool that runs a command."""
        tool, argument = self.shell
        return ToolCall(id=f"call_{number}", name=tool, arguments={argument: command, "description": "Runs it"})

    @classmethod
    def find_program(cls) -> Path:
        """Install the host, unless it is installed, and return its program."""
        return install_package(cls.package, cls.version) / ".bin" / cls.binary

    def prepare(self) -> None:
        """Write the host's configuration."""

    def environment(self) -> dict[str, str]:
        """Return the variables that the host needs."""
        return {}

    def arguments(self, prompt: str) -> list[str]:
        """Return the arguments for one turn."""
        raise NotImplementedError

    def variables(self) -> dict[str, str]:
        """Return the whole environment of the host."""
        known = {"PATH": _with_node(self.package)["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8"}
        memory = {"HOLDFAST_HOME": str(self.home / "memory"), "HOLDFAST_PRUNING__MIN_PRUNABLE_TOOL_CHARS": "20000"}
        return {**known, **memory, **self.patience, **self.environment()}

    def run(self, command: str | Path, *arguments: str) -> str:
        """Run a command as the user of the host, and return what it prints."""
        done = subprocess.run(
            [str(command), *arguments],
            cwd=self.work,
            env=self.variables(),
            preexec_fn=drop_privileges if self.is_bound_by_modes else None,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=MAX_SECONDS,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"{command} {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def holdfast(self, *arguments: str) -> str:
        """Run a command of Holdfast for this host."""
        return self.run(Path(sys.executable).with_name("holdfast"), *arguments)

    def turn(self, prompt: str) -> None:
        """Run one turn of the session."""
        self.run(self.find_program(), *self.arguments(prompt))
        self.turns += 1

    def open_terminal(self) -> HostTerminal:
        """Start the host in a terminal."""
        return HostTerminal([str(self.find_program()), *self.terminal], environ=self.variables(), folder=self.work)

    def begin_session(self) -> None:
        """Let the next turn be the first one of a new session in the same folder."""
        self.turns = 0
        self.session += 1

    def compact(self) -> None:
        """Make the host compact now; nothing where it does so in the next turn, because of the usage it saw."""

    def write(self, path: str, content: str | dict[str, Any]) -> None:
        """Write a file of the host."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content, indent=2), "utf-8")


class ClaudeCode(Program):
    """Claude Code."""

    name, package, version, binary = "claude-code", "@anthropic-ai/claude-code", "2.1.325", "claude"
    shell = ("Bash", "command")
    terminal = ("--model", "claude-sonnet-4-5")
    ready = ("? for short",)

    def prepare(self) -> None:
        self.write(".claude/settings.json", {"theme": "dark"})

    def open_terminal(self) -> HostTerminal:
        keys = {"approved": ["x"], "rejected": []}
        trusted = {str(self.work): {"hasTrustDialogAccepted": True}}
        self.write(".claude.json", {"hasCompletedOnboarding": True, "customApiKeyResponses": keys, "projects": trusted})
        return super().open_terminal()

    def environment(self) -> dict[str, str]:
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
        return {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": "x", **quiet}

    def arguments(self, prompt: str) -> list[str]:
        last = ["--continue"] if self.turns else []
        return ["-p", prompt, *last, "--model", "claude-sonnet-4-5", "--allowedTools", "Bash"]

    def compact(self) -> None:
        self.turn("/compact")


class Codex(Program):
    """Codex: compacts when the usage of a reply passes a limit; it cannot replace a tool output."""

    name, package, version, binary = "codex", "@openai/codex", "0.166.0", "codex"
    shell = ("exec_command", "cmd")
    prunes = False
    last_usage = LARGE
    ready = ("Ask Codex",)
    clear = "/new"

    def prepare(self) -> None:
        self.write(
            ".codex/config.toml",
            'model = "gpt-5"\nmodel_provider = "test"\nsandbox_mode = "danger-full-access"\napproval_policy = "never"\n'
            "model_context_window = 32000\nmodel_auto_compact_token_limit = 20000\n\n"
            f'[model_providers.test]\nname = "test"\nbase_url = "{self.url}/v1"\nwire_api = "responses"\n'
            f'\n[projects."{self.work}"]\ntrust_level = "trusted"\n',
        )

    def arguments(self, prompt: str) -> list[str]:
        last = ["resume", "--last"] if self.turns else []
        return ["exec", *last, "--skip-git-repo-check", "--json", prompt]


class Gemini(Program):
    """Gemini CLI: compresses in the turn after its threshold was lowered."""

    name, package, version, binary = "gemini", "@google/gemini-cli", "0.61.0", "gemini"
    shell = ("run_shell_command", "command")
    terminal = ("--yolo", "-m", "gemini-2.5-pro")
    ready = ("Tips for getting started", "Type your message")
    clear = "/clear "
    # After the space it lists no commands any more: from a list that is a key late, return completes the line wrongly.
    clear_shown = "* /clear workspace"

    def prepare(self) -> None:
        self.write(".gemini/settings.json", '{"security": {"auth": {"selectedType": "gemini-api-key"}} /* mine */}\n')
        self.write("work/.gemini/settings.json", {"privacy": {"usageStatisticsEnabled": False}})

    def environment(self) -> dict[str, str]:
        return {
            "GEMINI_API_KEY": "x",
            "GOOGLE_GEMINI_BASE_URL": self.url,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        }

    def arguments(self, prompt: str) -> list[str]:
        last = ["--resume", "latest"] if self.turns else []
        return [*last, "--yolo", "-m", "gemini-2.5-pro", "-p", prompt]

    def compact(self) -> None:
        self.write("work/.gemini/settings.json", {"model": {"compressionThreshold": 0.001}})


class OpenCode(Program):
    """OpenCode: compacts when the usage of a reply passes the window of the model."""

    name, package, binary = "opencode", "opencode-ai", "opencode"
    version = "1.18.18" if IS_ARM else "1.18.33"  # npm has no newer program for ARM
    has_window = True
    has_server = False
    last_usage = LARGE
    ready = ("Ask anything",)
    clear = "/new"

    def prepare(self) -> None:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "test",
            "options": {"baseURL": f"{self.url}/v1", "apiKey": "x"},
            "models": {"m1": {"name": "m1", "limit": {"context": 32_000, "output": 4_000}, "tool_call": True}},
        }
        self.write(
            ".config/opencode/opencode.json",
            {"$schema": "https://opencode.ai/config.json", "provider": {"test": provider}, "model": "test/m1"},
        )

    def environment(self) -> dict[str, str]:
        return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}

    def arguments(self, prompt: str) -> list[str]:
        last = ["--continue"] if self.turns else []
        return ["run", *last, "--format", "json", prompt]


class OpenClaw(Program):
    """OpenClaw without its gateway: the model refuses the question once, as too long, so that it compacts."""

    name, package, version, binary = "openclaw", "openclaw", "2026.9.6", "openclaw"
    shell = ("exec", "command")
    prunes = False
    has_window = True
    has_server = False
    refuses = True

    def prepare(self) -> None:
        model = {"id": "m1", "name": "m1", "contextWindow": 32_000, "maxTokens": 4_000}
        provider = {"baseUrl": f"{self.url}/v1", "apiKey": "x", "api": "openai-completions", "models": [model]}
        defaults = {"model": {"primary": "test/m1"}, "workspace": str(self.work), "skipBootstrap": True}
        settings = {"agents": {"defaults": defaults}, "models": {"providers": {"test": provider}}}
        self.write(".openclaw/openclaw.json", settings)

    def arguments(self, prompt: str) -> list[str]:
        return ["agent", "--local", "--agent", "main", "--session-id", f"s{self.session}", "-m", prompt, "--json"]


class Pi(Program):
    """pi: compacts when the usage of a reply passes the window of the model."""

    name, package, version, binary = "pi", "@earendil-works/pi-coding-agent", "0.87.1", "pi"
    has_window = True
    has_server = False
    last_usage = LARGE
    terminal = ("--provider", "test", "--model", "m1")
    ready = ("(auto) m1",)
    clear = "/new"

    def prepare(self) -> None:
        model = {"id": "m1", "contextWindow": 32_000, "maxTokens": 4_000}
        provider = {"baseUrl": f"{self.url}/v1", "api": "openai-completions", "apiKey": "x", "models": [model]}
        self.write(".pi/agent/models.json", {"providers": {"test": provider}})
        self.write(".pi/agent/settings.json", {"compaction": {"reserveTokens": 4_000, "keepRecentTokens": 200}})

    def environment(self) -> dict[str, str]:
        return {"PI_OFFLINE": "1"}

    def arguments(self, prompt: str) -> list[str]:
        last = ["--continue"] if self.turns else []
        return ["-p", prompt, *last, "--provider", "test", "--model", "m1"]


class Qwen(Program):
    """Qwen Code: it cannot replace a tool output."""

    name, package, version, binary = "qwen", "@qwen-code/qwen-code", "0.24.4", "qwen"
    shell = ("run_shell_command", "command")
    prunes = False
    terminal = ("--yolo", "--auth-type", "openai")
    ready = (">_ Qwen Code", "Type your message")

    def prepare(self) -> None:
        self.write(".qwen/settings.json", {"ui": {"theme": "Default"}, "$version": 4})

    def environment(self) -> dict[str, str]:
        return {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": f"{self.url}/v1", "OPENAI_MODEL": "m1"}

    def arguments(self, prompt: str) -> list[str]:
        last = ["--continue"] if self.turns else []
        return [*last, "--yolo", "--auth-type", "openai", "-p", prompt]

    def compact(self) -> None:
        self.turn("/compress")


class Hermes(Program):
    """Hermes Agent, which is installed from the package index of Python."""

    name, package, version, binary = "hermes", "hermes-agent", "0.19.0", "hermes"
    shell = ("terminal", "command")
    prunes = False
    has_server = False
    compacts = False
    terminal = ("chat", "--yolo", "-t", "terminal")
    ready = ("YOLO",)
    begun = ("New session started!", "YOLO")
    clear = "/new"
    confirm = ("Approve Once", "1")

    @classmethod
    def is_installed(cls) -> bool:
        return (CACHE / f"{cls.package}-{cls.version}" / "bin" / cls.binary).exists()

    @classmethod
    def find_program(cls) -> Path:
        folder = CACHE / f"{cls.package}-{cls.version}"
        if not cls.is_installed():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", f"{cls.package}=={cls.version}"]
            subprocess.run(pip, check=True)
        return folder / "bin" / cls.binary

    def prepare(self) -> None:
        self.write(
            ".hermes/config.yaml",
            f"# mine\nmodel:\n  default: m1\n  provider: custom\n  base_url: {self.url}/v1\n  api_key: x\n"
            "  context_length: 64000\nsecurity:\n  allow_lazy_installs: false\n  tirith_enabled: false\n",
        )

    def environment(self) -> dict[str, str]:
        return {"OPENAI_API_KEY": "x"}

    def arguments(self, prompt: str) -> list[str]:
        last = ["--continue"] if self.turns else []
        return ["chat", *last, "-Q", "--yolo", "-t", "terminal", "-q", prompt]


PROGRAMS: tuple[type[Program], ...] = (Pi, ClaudeCode, Codex, OpenCode, Gemini, Qwen, Hermes, OpenClaw)
