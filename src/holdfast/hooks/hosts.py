"""The hosts that Holdfast can be installed into, and what is changed in each of them.

To add a host, add an entry to `HOSTS` and its files next to this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

PROGRAM: Final = "{program}"
"""As a string of its own, stands for the program that runs `holdfast`, by its absolute path."""
ARGUMENTS: Final = "{arguments}"
"""As a string of its own in a list, stands for the arguments of the program before those of `holdfast`."""
COMMAND_LINE: Final = "{command line}"
"""Inside of a string, stands for the program and these arguments, quoted for a shell."""
GO_ON: Final = "{or go on}"
"""After a command line, stands for what makes the shell succeed if the program is missing. Gemini CLI refuses a prompt
whose hook fails, whatever the reason is."""
TRUST: Final = "{trust}"
"""Stands for the lines by which Codex trusts the hooks in `hooks.json`; it skips others without a word."""

_PRODUCTS: Final = {
    "aider": "Aider",
    "claude-cli": "Claude Code",
    "claude-code": "Claude Code",
    "cline": "Cline",
    "codex": "Codex",
    "copilot": "Copilot",
    "cursor": "Cursor",
    "gemini-cli": "Gemini CLI",
    "geminicli": "Gemini CLI",
    "githubcopilot": "Copilot",
    "goose": "Goose",
    "hermes": "Hermes Agent",
    "openclaw": "OpenClaw",
    "opencode": "OpenCode",
    "openhands": "OpenHands",
    "qwen-code": "Qwen Code",
    "qwencode": "Qwen Code",
}
"""How hosts begin the name of their product in a `User-Agent`, or as clients of MCP, and what they are called here."""


def name_product(product: str) -> str:
    """Return the name of the host behind a `User-Agent` or a client of MCP; empty if it is none that is known."""
    words = product.strip().lower().replace("_", "-").replace(" ", "-")
    for beginning, title in _PRODUCTS.items():
        if words.startswith(beginning):
            return title
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A file or folder that is copied into the host's folder.

    Attributes:
        source: Its name in this package.
        target: Where it goes.
    """

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Values in a JSON file; everything else in the file is kept.

    Attributes:
        file: The file.
        variable: The environment variable that may name another file.
        values: Values by their dotted path. A value that is there already is replaced, and comes back on removal.
        items: Lists by their dotted path: each item is added unless it is there.
        present: As `items`, but only if the list exists.
    """

    file: str
    variable: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    items: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    present: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Lines between two marks in a TOML or YAML file; comments and everything else in the file are kept.

    Attributes:
        file: The file.
        text: The lines.
        under: The line that they go under, such as `extensions:`; it is added if it is missing. Without one they go
            to the end of the file.
        replaces: The key there that they replace; it comes back on removal.
    """

    file: str
    text: str
    under: str = ""
    replaces: str = ""


Change = Copy | Keys | Block


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A program that Holdfast can be installed into.

    Attributes:
        title: Its name for people.
        program: Its command.
        folder: The folder of its settings; the files of all changes are relative to it.
        variable: The environment variable that may name another folder.
        is_of_project: Whether the folder is the one of the project, in which the command is run.
        changes: What is changed; at most one entry for each file.
        extras: The extras of Holdfast that it needs.
        note: What the user must do afterwards.
    """

    title: str
    program: str
    folder: str
    variable: str = ""
    is_of_project: bool = False
    changes: tuple[Change, ...]
    extras: tuple[str, ...] = ()
    note: str = ""


def _hooks(events: Mapping[str, int], *, unit: int = 1, end: str = "") -> dict[str, tuple[Any, ...]]:
    """Return the hooks of a host: the events that it runs `holdfast hook` for, and how many seconds each may take."""
    return {
        f"hooks.{event}": (
            {"hooks": [{"type": "command", "command": f"{COMMAND_LINE} hook{end}", "timeout": unit * seconds}]},
        )
        for event, seconds in events.items()
    }


def _shared_files(folder: str) -> tuple[Copy, ...]:
    """Return the files that plugins in JavaScript import, in a folder of the host."""
    return tuple(Copy(source=name, target=f"{folder}/{name}") for name in ("memory.js", "newest.js"))


_SERVER: Final = {"command": PROGRAM, "args": [ARGUMENTS, "mcp"]}
"""The MCP server, as most hosts describe one."""
_PROJECT_SERVER: Final = {"command": PROGRAM, "args": [ARGUMENTS, "mcp", "--project", "${workspaceFolder}"]}
"""The MCP server in settings of a project; editors put its folder in place of the variable."""
_EVENTS: Final = {"SessionStart": 10, "UserPromptSubmit": 10, "PreCompact": 10, "Stop": 10, "SessionEnd": 3}
"""Events of hosts that follow Claude Code. Codex gives SessionEnd no more than 3 seconds.

`holdfast hook` itself takes 2 seconds at most. The host ends it only if the machine does not let it run.
"""

HOSTS: Final[Mapping[str, Host]] = {
    "claude-code": Host(
        title="Claude Code",
        program="claude",
        folder="~/.claude",
        variable="CLAUDE_CONFIG_DIR",
        changes=(Copy(source="claude_code", target="skills/holdfast"),),
        extras=("server", "mcp"),
        note="Claude Code loads the plugin in its next session.",
    ),
    "codex": Host(
        title="Codex",
        program="codex",
        folder="~/.codex",
        variable="CODEX_HOME",
        changes=(
            Keys(file="hooks.json", items=_hooks(_EVENTS)),
            Block(
                file="config.toml",
                text=(
                    f'[mcp_servers.holdfast]\ncommand = "{PROGRAM}"\nargs = ["{ARGUMENTS}", "mcp"]\n'
                    f'env_vars = ["HOLDFAST_HOME"]\n\n{TRUST}'
                ),
            ),
        ),
        extras=("server", "mcp"),
        note="config.toml marks the hooks as trusted: Codex runs no others. Look at them with /hooks.",
    ),
    "cursor": Host(
        title="Cursor",
        program="cursor",
        folder=".",
        is_of_project=True,
        changes=(
            Keys(file=".cursor/mcp.json", values={"mcpServers.holdfast": _PROJECT_SERVER}),
            Copy(source="editors/cursor.mdc", target=".cursor/rules/holdfast.mdc"),
        ),
        extras=("mcp",),
        note="Only this project is set up. mcp.json has paths of this machine: do not commit it.",
    ),
    "gemini": Host(
        title="Gemini CLI",
        program="gemini",
        folder="~/.gemini",
        changes=(
            Keys(
                file="settings.json",
                items=_hooks(
                    {
                        "SessionStart": 10,
                        "BeforeAgent": 10,
                        "BeforeModel": 10,
                        "AfterTool": 10,
                        "AfterAgent": 10,
                        "SessionEnd": 10,
                    },
                    unit=1000,
                    end=GO_ON,
                ),
                values={"mcpServers.holdfast": _SERVER},
            ),
        ),
        extras=("server", "mcp"),
    ),
    "goose": Host(
        title="Goose",
        program="goose",
        folder="~/.config/goose",
        changes=(
            Block(
                file="config.yaml",
                under="extensions:",
                text=(
                    "  holdfast:\n    enabled: true\n    type: stdio\n    name: holdfast\n"
                    f'    cmd: "{PROGRAM}"\n    args: ["{ARGUMENTS}", "mcp"]\n'
                    "    envs: {}\n    timeout: 60\n"
                ),
            ),
        ),
        extras=("mcp",),
        note="Goose has no hooks: for recall into every request, send its requests through `holdfast serve`.",
    ),
    "hermes": Host(
        title="Hermes Agent",
        program="hermes",
        folder="~/.hermes",
        variable="HERMES_HOME",
        changes=(
            Copy(source="hermes/provider.py", target="plugins/holdfast/__init__.py"),
            Copy(source="hermes/plugin.yaml", target="plugins/holdfast/plugin.yaml"),
            Block(file="config.yaml", under="memory:", text="  provider: holdfast", replaces="provider"),
        ),
        note="Hermes loads the provider in its next session; `hermes memory status` shows it.",
    ),
    "openclaw": Host(
        title="OpenClaw",
        program="openclaw",
        folder="~/.openclaw",
        variable="OPENCLAW_STATE_DIR",
        changes=(
            *_shared_files("extensions/holdfast"),
            Copy(source="openclaw", target="extensions/holdfast"),
            Keys(
                file="openclaw.json",
                variable="OPENCLAW_CONFIG_PATH",
                values={"plugins.slots.contextEngine": "holdfast", "plugins.entries.holdfast.enabled": True},
                present={"plugins.allow": ("holdfast",)},
            ),
        ),
        note="Restart the gateway: openclaw gateway restart",
    ),
    "opencode": Host(
        title="OpenCode",
        program="opencode",
        folder="~/.config/opencode",
        variable="OPENCODE_CONFIG_DIR",
        changes=(
            *_shared_files("plugins/holdfast"),
            Copy(source="opencode/holdfast.js", target="plugins/holdfast.js"),
            Keys(
                file="opencode.json",
                variable="OPENCODE_CONFIG",
                values={"mcp.holdfast": {"type": "local", "command": [PROGRAM, ARGUMENTS, "mcp"], "enabled": True}},
            ),
        ),
        extras=("mcp",),
    ),
    "pi": Host(
        title="pi",
        program="pi",
        folder="~/.pi/agent",
        variable="PI_CODING_AGENT_DIR",
        changes=(
            *_shared_files("extensions/holdfast"),
            Copy(source="pi/holdfast.js", target="extensions/holdfast.js"),
        ),
    ),
    "qwen": Host(
        title="Qwen Code",
        program="qwen",
        folder="~/.qwen",
        variable="QWEN_HOME",
        changes=(Keys(file="settings.json", items=_hooks(_EVENTS), values={"mcpServers.holdfast": _SERVER}),),
        extras=("server", "mcp"),
    ),
    "vscode": Host(
        title="VS Code",
        program="code",
        folder=".",
        is_of_project=True,
        changes=(
            Keys(file=".vscode/mcp.json", values={"servers.holdfast": {"type": "stdio", **_PROJECT_SERVER}}),
            Copy(source="editors/vscode.md", target=".github/instructions/holdfast.instructions.md"),
        ),
        extras=("mcp",),
        note="Only this project is set up. mcp.json has paths of this machine: do not commit it.",
    ),
}
"""Every host by its name on the command line."""
