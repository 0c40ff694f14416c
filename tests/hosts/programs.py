"""The real hosts: how each is installed, pointed at a model on this machine, and run for one turn without a person."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from holdfast.messages import ToolCall

CACHE = Path(os.environ.get("HOLDFAST_HOSTS") or Path.home() / ".cache" / "holdfast-hosts")
"""Where the hosts are installed. Set HOLDFAST_HOSTS to use another folder."""
MAX_SECONDS = 240


@dataclass
class Program:
    """A host: its own home, the folder that it works in, and the address of its model."""

    home: Path
    work: Path
    url: str
    turns: int = field(default=0, init=False)
    session: str = field(default="", init=False)

    package: ClassVar[str]
    version: ClassVar[str]
    binary: ClassVar[str]
    shell: ClassVar[tuple[str, str]] = ("bash", "command")
    """The tool that runs a command, and the name of its argument."""

    @classmethod
    def executable(cls) -> Path:
        """Where npm puts the command."""
        name = cls.package.rpartition("/")[2]
        return CACHE / f"{name}-{cls.version}" / "node_modules" / ".bin" / cls.binary

    @classmethod
    def install(cls) -> None:
        """Install the host from npm, unless it is installed."""
        folder = cls.executable().parents[2]
        if cls.executable().exists():
            return
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true}')
        npm = [shutil.which("npm") or "npm", "install", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run([*npm, f"{cls.package}@{cls.version}"], cwd=folder, check=True)

    @property
    def files(self) -> Path:
        """The folder with the host's own files."""
        return self.home

    def call(self, number: int, command: str) -> ToolCall:
        """Make the call of the tool that runs a command."""
        name, argument = self.shell
        return ToolCall(id=f"call_{number}", name=name, arguments={argument: command})

    def prepare(self) -> None:
        """Write the host's configuration."""

    def environment(self) -> dict[str, str]:
        """Return the variables that the host needs."""
        return {}

    def arguments(self, prompt: str) -> list[str]:
        """Return the arguments for one turn."""
        raise NotImplementedError

    def run(self, *arguments: str) -> str:
        """Run the host, and return what it prints."""
        known = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8", "TERM": "dumb"}
        memory = {"HOLDFAST_HOME": str(self.home / "memory")}
        done = subprocess.run(
            [str(self.executable()), *arguments],
            cwd=self.work,
            env={**known, **memory, **self.environment()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=MAX_SECONDS,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"{self.binary} {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def turn(self, prompt: str) -> str:
        """Run one turn of the session."""
        output = self.run(*self.arguments(prompt))
        self.turns += 1
        return output

    def compact(self) -> None:
        """Make the host compact now; nothing where it does so in the next turn, because of the usage it saw."""

    def write(self, path: str, content: str | dict[str, Any]) -> None:
        """Write a file of the host."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content, indent=2), "utf-8")


class Codex(Program):
    """Codex: compacts when the usage of a reply passes a limit."""

    package, version, binary = "@openai/codex", "0.166.0", "codex"
    shell = ("exec_command", "cmd")

    def prepare(self) -> None:
        self.write(
            ".codex/config.toml",
            'model = "gpt-5"\nmodel_provider = "test"\nsandbox_mode = "danger-full-access"\napproval_policy = "never"\n'
            "model_context_window = 32000\nmodel_auto_compact_token_limit = 20000\n\n"
            f'[model_providers.test]\nname = "test"\nbase_url = "{self.url}/v1"\nwire_api = "responses"\n',
        )

    def arguments(self, prompt: str) -> list[str]:
        last = ["resume", "--last"] if self.turns else []
        return ["exec", *last, "--skip-git-repo-check", "--json", prompt]


class Gemini(Program):
    """Gemini CLI: compresses when the last prompt passes a part of the window."""

    package, version, binary = "@google/gemini-cli", "0.61.0", "gemini"
    shell = ("run_shell_command", "command")
    threshold: float = 0.5

    def prepare(self) -> None:
        self.write(
            "system.json",
            {"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": False}},
        )
        self.write(".gemini/settings.json", {"ui": {"theme": "Default"}})

    def compact(self) -> None:
        self.write(
            "system.json",
            {
                "security": {"auth": {"selectedType": "gemini-api-key"}},
                "privacy": {"usageStatisticsEnabled": False},
                "model": {"compressionThreshold": 0.001},
            },
        )

    def environment(self) -> dict[str, str]:
        return {
            "GEMINI_API_KEY": "x",
            "GOOGLE_GEMINI_BASE_URL": self.url,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "GEMINI_CLI_SYSTEM_SETTINGS_PATH": str(self.home / "system.json"),
        }

    def arguments(self, prompt: str) -> list[str]:
        last = ["--resume", "latest"] if self.turns else []
        return [*last, "--yolo", "-m", "gemini-2.5-pro", "-p", prompt]


class Qwen(Program):
    """Qwen Code."""

    package, version, binary = "@qwen-code/qwen-code", "0.24.4", "qwen"
    shell = ("run_shell_command", "command")

    def prepare(self) -> None:
        self.write(".qwen/settings.json", {"ui": {"theme": "Default"}})

    def environment(self) -> dict[str, str]:
        return {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": f"{self.url}/v1", "OPENAI_MODEL": "m1"}

    def arguments(self, prompt: str) -> list[str]:
        last = ["--continue"] if self.turns else []
        return [*last, "--yolo", "--auth-type", "openai", "-p", prompt]

    def compact(self) -> None:
        self.turn("/compress")


class OpenCode(Program):
    """OpenCode: compacts when the usage of a reply passes the window of the model."""

    package, version, binary = "opencode-ai", "1.18.33", "opencode"

    def prepare(self) -> None:
        model = {"name": "m1", "limit": {"context": 32_000, "output": 4_000}, "tool_call": True}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "test",
            "options": {"baseURL": f"{self.url}/v1", "apiKey": "x"},
            "models": {"m1": model},
        }
        self.write(".config/opencode/opencode.json", {"provider": {"test": provider}, "model": "test/m1"})

    def environment(self) -> dict[str, str]:
        return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}

    def arguments(self, prompt: str) -> list[str]:
        last = ["--continue"] if self.turns else []
        return ["run", *last, "--format", "json", prompt]
