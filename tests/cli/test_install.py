"""`holdfast install` and `holdfast uninstall`."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from io import StringIO
from pathlib import Path
from typing import Any

import anyio
import json5
import pytest
from click.testing import CliRunner, Result
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from holdfast.cli import holdfast
from holdfast.errors import HoldfastError, InputError
from holdfast.hooks.hosts import HOSTS, Block, Host, Keys
from holdfast.hooks.install import Installer
from holdfast.programs import own_command
from holdfast.settings import load

COMMAND = ("/bin/python", "-E")
OPENCLAW = b"""{
    // mine
    agents: { defaults: { model: "x/m1" } },
    plugins: { allow: ["other"], slots: { contextEngine: "legacy" } },
}"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an empty home folder the user's."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder)  # some hosts are installed into a project
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "memory"))
    for host in HOSTS.values():
        if host.variable:
            monkeypatch.delenv(host.variable, raising=False)
    return folder


def run(*arguments: str) -> Result:
    """Run a command that succeeds."""
    result = CliRunner().invoke(holdfast, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def snapshot(folder: Path) -> dict[str, str]:
    """Return every file and folder below a folder, with a digest of each file."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


class TestEveryHost:
    @pytest.mark.parametrize("name", list(HOSTS))
    def test_a_removal_restores_an_empty_home(self, home: Path, name: str) -> None:
        run("install", name)
        assert snapshot(home)
        run("uninstall", name)
        assert snapshot(home) == {}

    @pytest.mark.parametrize("name", list(HOSTS))
    def test_a_second_installation_changes_nothing(self, home: Path, name: str) -> None:
        run("install", name)
        first = snapshot(home)
        again = json.loads(run("install", name, "--json").output)
        assert {change["action"] for change in again["changes"]} == {"keep"}
        assert snapshot(home) == first

    @pytest.mark.parametrize("name", list(HOSTS))
    def test_a_dry_run_changes_nothing(self, home: Path, name: str) -> None:
        planned = json.loads(run("install", name, "--dry-run", "--json").output)
        assert {change["action"] for change in planned["changes"]} == {"create"}
        assert snapshot(home) == {}

    def test_a_dry_run_shows_what_is_written(self, home: Path) -> None:
        """Line by line, and nothing of what the file has around it."""
        settings = home / ".gemini" / "settings.json"
        settings.parent.mkdir()
        settings.write_text('{\n  "apiKey": "sk-of-mine",\n  "theme": "dark"\n}\n')
        shown = run("install", "gemini", "--dry-run").output
        assert '  +    "holdfast": {' in shown or '+  "mcpServers": {' in shown
        assert "sk-of-mine" not in shown
        planned = json.loads(run("install", "gemini", "--dry-run", "--json").output)
        assert any("hooks" in change["diff"] for change in planned["changes"])
        assert all("diff" not in change for change in json.loads(run("install", "gemini", "--json").output)["changes"])

    @pytest.mark.usefixtures("home")
    def test_missing_packages_are_the_last_word(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without them the host runs without memory, so nothing may say that all is well."""
        monkeypatch.setitem(sys.modules, "mcp", None)  # as if it was not installed
        last = run("install", "claude-code").output.strip().splitlines()[-1]
        assert "it does not work yet" in last
        assert "[mcp]" in last
        shown = " ".join(CliRunner().invoke(holdfast, ["doctor"]).output.split())
        assert "installed into Claude Code, and packages are missing" in shown

    def test_an_agent_that_is_not_there_is_named(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its files are written all the same: it may be installed later."""
        monkeypatch.setenv("PATH", "")
        for _ in range(2):
            shown = CliRunner().invoke(holdfast, ["install", "claude-code"]).stderr
            assert "note: Claude Code was not found on this machine" in shown
            run("uninstall", "claude-code")
            assert not (home / ".claude").exists()

    @pytest.mark.usefixtures("home")
    def test_the_list_of_agents_is_wrapped_below_its_notes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In a terminal of 60 columns."""
        screen = StringIO()
        monkeypatch.setattr(screen, "isatty", lambda: True)
        monkeypatch.setattr("sys.stdout", screen)
        monkeypatch.setenv("COLUMNS", "60")
        monkeypatch.setenv("PATH", "")
        holdfast(["install"], standalone_mode=False)
        lines = screen.getvalue().splitlines()
        (first,) = [number for number, line in enumerate(lines) if line.startswith("claude-code ")]
        assert lines[first].index("Claude Code was") == 28
        assert lines[first + 1] == " " * 28 + "this machine"

    def test_an_agent_without_memory_is_called_not_installed(self) -> None:
        """In the list and in JSON."""
        assert re.search(r"^gemini +not installed ", run("install").output, re.MULTILINE)
        states = {row["host"]: row["state"] for row in json.loads(run("install", "--json").output)}
        assert set(states.values()) == {"not installed"}

    @pytest.mark.variants
    @pytest.mark.parametrize("name", list(HOSTS))
    def test_doctor_names_the_state(self, home: Path, name: str) -> None:
        run("install", name)
        found = json.loads(CliRunner().invoke(holdfast, ["doctor", "--json"]).output)["findings"]
        assert f"installed into {HOSTS[name].title}" in {one["what"] for one in found}
        copied = next(path for path in home.rglob("*") if path.is_file())
        copied.unlink()
        states = {row["host"]: row["state"] for row in json.loads(run("install", "--json").output)}
        assert states[name] in {"outdated", "not installed"}


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("name", HOSTS)
def test_an_installation_says_what_a_new_session_remembers(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """In one line, with the setting that changes it."""
    (note,) = [note for note in json.loads(run("install", name, "--json").stdout)["notes"] if "remember" in note]
    assert note.startswith(f"a new session of {HOSTS[name].title} remembers the earlier sessions of its project")
    assert "cross_session = false" in note
    assert "import" not in note
    monkeypatch.setenv("HOLDFAST_ARCHIVE__CROSS_SESSION", "false")
    (note,) = [note for note in json.loads(run("install", name, "--json").stdout)["notes"] if "remember" in note]
    assert "do not remember each other" in note


@pytest.mark.parametrize("name", ["claude-code", "hermes", "vscode"])
def test_an_installation_says_how_earlier_sessions_are_remembered(home: Path, name: str) -> None:
    """If the agent has left some where they are found. The chats of VS Code are not read."""
    (home / ".claude" / "projects").mkdir(parents=True)
    (home / ".hermes").mkdir()
    (home / ".hermes" / "state.db").touch()
    (note,) = [note for note in json.loads(run("install", name, "--json").stdout)["notes"] if "remembers" in note]
    assert ("before the installation after `holdfast import --discover`" in note) is (name != "vscode")


def test_a_removal_says_where_memory_stays(home: Path) -> None:
    """And how to erase it; without a memory there is nothing to say."""
    assert json.loads(run("uninstall", "pi", "--json").stdout)["notes"] == []
    run("remember", "The port is 5433.")
    (note,) = json.loads(run("uninstall", "pi", "--json").stdout)["notes"]
    file = home.parent / "memory" / "holdfast.db"
    assert note.startswith(f"memory stays in {file}: ")
    assert f"deleting {file}* all of it" in note


class TestJson:
    def write(self, home: Path, data: bytes = OPENCLAW) -> Path:
        file = home / ".openclaw" / "openclaw.json"
        file.parent.mkdir()
        file.write_bytes(data)
        return file

    def test_what_is_there_is_kept(self, home: Path) -> None:
        file = self.write(home)
        run("install", "openclaw")
        data = json5.loads(file.read_text())
        assert data["agents"] == {"defaults": {"model": "x/m1"}}
        assert data["plugins"]["slots"]["contextEngine"] == "holdfast"
        assert data["plugins"]["allow"] == ["other", "holdfast"]

    def test_a_removal_restores_the_file_byte_for_byte(self, home: Path) -> None:
        file = self.write(home)
        before = snapshot(home)
        run("install", "openclaw")
        run("uninstall", "openclaw")
        assert snapshot(home) == before
        assert file.read_bytes() == OPENCLAW

    def test_a_file_that_the_host_wrote_again_is_restored_byte_for_byte(self, home: Path) -> None:
        file = self.write(home)
        run("install", "openclaw")
        file.write_text(json.dumps(json5.loads(file.read_text()), indent=1, sort_keys=True))
        run("uninstall", "openclaw")
        assert file.read_bytes() == OPENCLAW

    def test_what_the_host_changed_since_is_kept(self, home: Path) -> None:
        file = self.write(home)
        run("install", "openclaw")
        data = json5.loads(file.read_text())
        data["meta"] = {"version": 1}
        data["plugins"]["entries"]["another"] = {"enabled": True}
        file.write_text(json.dumps(data))
        run("uninstall", "openclaw")
        after = json.loads(file.read_bytes())
        assert after["meta"] == {"version": 1}
        assert after["plugins"] == {
            "allow": ["other"],
            "slots": {"contextEngine": "legacy"},
            "entries": {"another": {"enabled": True}},
        }

    def test_a_removal_works_without_the_record_of_the_installation(self, home: Path, tmp_path: Path) -> None:
        file = self.write(home, b'{"a": 1}')
        run("install", "openclaw")
        for record in (tmp_path / "memory").rglob("installed.json"):
            record.unlink()
        run("uninstall", "openclaw")
        assert json.loads(file.read_bytes()) == {"a": 1}
        assert not [path for path in (home / ".openclaw").rglob("*") if path.is_file() and path != file]

    def test_a_damaged_file_is_not_changed(self, home: Path) -> None:
        file = self.write(home, b'{"a": ')
        result = CliRunner().invoke(holdfast, ["install", "openclaw"])
        assert isinstance(result.exception, InputError)
        assert file.read_bytes() == b'{"a": '
        assert sorted(snapshot(home)) == [".openclaw", ".openclaw/openclaw.json"]

    def test_files_keep_their_mode(self, home: Path) -> None:
        file = self.write(home)
        file.chmod(0o640)
        run("install", "openclaw")
        assert file.stat().st_mode & 0o777 == 0o640


class TestCommand:
    def test_the_command_is_written_with_its_path(self, home: Path) -> None:
        run("install", "pi")
        text = (home / ".pi/agent/extensions/holdfast/memory.js").read_text()
        assert f"const COMMAND = {json.dumps(own_command())};" in text
        run("install", "claude-code")
        data = json.loads((home / ".claude/skills/holdfast/.mcp.json").read_bytes())
        assert Path(data["mcpServers"]["memory"]["command"]).is_absolute()

    @pytest.mark.skipif(os.name == "nt", reason="Gemini CLI runs hooks with another shell there")
    def test_gemini_is_told_of_no_failure_if_the_program_is_gone(self, tmp_path: Path) -> None:
        """It refuses a prompt whose hook fails."""
        gone = [str(tmp_path / "gone"), "-P", "-m", "holdfast"]
        installer = Installer("gemini", records=tmp_path / "records", environ={"HOME": str(tmp_path)}, command=gone)
        (change,) = installer.plan()
        assert change.after is not None
        for groups in json.loads(change.after)["hooks"].values():
            command = groups[0]["hooks"][0]["command"]
            assert subprocess.run(["bash", "-c", command], capture_output=True, check=True).stdout == b""

    def test_the_official_client_starts_what_was_installed_into_goose(self, home: Path) -> None:
        """As Goose does: the command and the arguments of its settings."""
        file = home / ".config/goose/config.yaml"
        file.parent.mkdir(parents=True)
        file.write_text("extensions:\n  developer:\n    enabled: true\n")
        run("install", "goose")
        lines = dict(line.strip().split(": ", 1) for line in file.read_text().splitlines() if ": " in line)
        command, arguments = json.loads(lines["cmd"]), json.loads(lines["args"])
        assert [command, *arguments] == own_command("mcp")
        started = StdioServerParameters(command=command, args=arguments, env={"HOME": str(home)})

        async def use() -> list[str]:
            async with stdio_client(started) as streams, ClientSession(*streams) as client:
                await client.initialize()
                return [tool.name for tool in (await client.list_tools()).tools]

        assert "memory_search" in anyio.run(use)


def test_codex_trusts_the_hooks_by_their_places(home: Path) -> None:
    """A hook of the user comes first in the list, and stays as it is."""
    folder = home / ".codex"
    folder.mkdir()
    mine = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "beep"}]}]}}
    (folder / "hooks.json").write_text(json.dumps(mine))
    for _ in range(2):  # the second run changes nothing
        run("install", "codex")
        hooks = json.loads((folder / "hooks.json").read_text())["hooks"]
        trusted = tomllib.loads((folder / "config.toml").read_text())["hooks"]["state"]
        assert hooks["Stop"][0] == mine["hooks"]["Stop"][0]
        assert set(trusted) == {
            *(
                f"{folder / 'hooks.json'}:{event}:0:0"
                for event in ("session_start", "user_prompt_submit", "pre_compact")
            ),
            *(f"{folder / 'hooks.json'}:{place}" for place in ("session_end:0:0", "stop:1:0")),
        }
        hook = json.dumps(hooks["Stop"][1]["hooks"][0]["command"])
        known = f'{{"event_name":"stop","hooks":[{{"async":false,"command":{hook},"timeout":10,"type":"command"}}]}}'
        digest = hashlib.sha256(known.encode()).hexdigest()
        assert trusted[f"{folder / 'hooks.json'}:stop:1:0"]["trusted_hash"] == f"sha256:{digest}"
    run("uninstall", "codex")
    assert (json.loads((folder / "hooks.json").read_text()), sorted(folder.iterdir())) == (
        mine,
        [folder / "hooks.json"],
    )


class TestBlocks:
    TOML = '# mine\nmodel = "m1"  # a comment\n\n[mcp_servers.other]\ncommand = "x"\n'
    PART = Block(
        file="config.toml", text='[mcp_servers.holdfast]\ncommand = "{program}"\nargs = ["{arguments}", "mcp"]'
    )

    def installer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *parts: Block) -> Installer:
        host = Host(title="Texts", program="texts", folder=str(tmp_path / "texts"), changes=parts)
        monkeypatch.setitem(HOSTS, "texts", host)
        return Installer("texts", records=tmp_path / "records", environ={}, command=COMMAND)

    def test_comments_are_kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        one = self.installer(tmp_path, monkeypatch, self.PART)
        file = tmp_path / "texts" / "config.toml"
        file.parent.mkdir()
        file.write_text(self.TOML)
        one.install()
        text = file.read_text()
        assert text.startswith(self.TOML)
        assert tomllib.loads(text)["mcp_servers"]["holdfast"] == {"command": "/bin/python", "args": ["-E", "mcp"]}
        one.uninstall()
        assert file.read_text() == self.TOML

    def test_what_was_added_since_stays(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        one = self.installer(tmp_path, monkeypatch, self.PART)
        file = tmp_path / "texts" / "config.toml"
        file.parent.mkdir()
        file.write_text(self.TOML)
        one.install()
        file.write_text(file.read_text() + "[later]\n")
        assert {change.action for change in one.install()} == {"keep"}
        one.uninstall()
        assert file.read_text() == self.TOML + "[later]\n"

    def test_a_table_of_the_same_name_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        one = self.installer(tmp_path, monkeypatch, self.PART)
        file = tmp_path / "texts" / "config.toml"
        file.parent.mkdir()
        file.write_text('[mcp_servers.holdfast]\ncommand = "mine"\n')
        with pytest.raises(InputError, match="remove them first"):
            one.install()

    @pytest.mark.parametrize("text", ["", "extensions:\n  developer: {}\nother: 1\n", "other: 1"])
    def test_lines_go_under_a_key(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
        part = Block(file="config.yaml", text='  holdfast:\n    cmd: "{program}"', under="extensions:")
        one = self.installer(tmp_path, monkeypatch, part)
        file = tmp_path / "texts" / "config.yaml"
        file.parent.mkdir()
        file.write_text(text)
        one.install()
        lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
        assert lines[lines.index("extensions:") + 1 :][:2] == ["  holdfast:", '    cmd: "/bin/python"']
        assert {change.action for change in one.install()} == {"keep"}
        one.uninstall()
        assert file.read_text() == text


class TestItems:
    def test_items_are_added_once_to_a_list(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        added: dict[str, Any] = {"hooks": [{"command": "{command line} hook"}]}
        part = Keys(file="hooks.json", items={"hooks.Stop": (added,)})
        host = Host(title="Texts", program="texts", folder=str(tmp_path / "texts"), changes=(part,))
        monkeypatch.setitem(HOSTS, "texts", host)
        one = Installer("texts", records=tmp_path / "records", environ={}, command=COMMAND)
        file = tmp_path / "texts" / "hooks.json"
        file.parent.mkdir()
        file.write_text('{"hooks": {"Stop": [{"mine": 1}]}}')
        one.install()
        filled = {"hooks": [{"command": "/bin/python -E hook"}]}
        assert json.loads(file.read_bytes())["hooks"]["Stop"] == [{"mine": 1}, filled]
        file.write_text(json.dumps({**json.loads(file.read_bytes()), "more": 1}))
        assert {change.action for change in one.install()} == {"keep"}
        one.uninstall()
        assert json.loads(file.read_bytes()) == {"hooks": {"Stop": [{"mine": 1}]}, "more": 1}

    @pytest.mark.parametrize("name", ["codex", "gemini", "qwen"])
    @pytest.mark.usefixtures("home")
    def test_the_hooks_of_an_installation_elsewhere_are_replaced(self, tmp_path: Path, name: str) -> None:
        """Its path may be gone, or be another program by now. What the user has in the same lists stays."""
        elsewhere = ["/old place/bin/python", "-E", "-P", "-m", "holdfast"]
        mine = {"hooks": [{"type": "command", "command": "beep"}]}
        moved = Installer(name, records=tmp_path / "memory" / "hosts", environ={}, command=elsewhere)
        moved.folder.mkdir(parents=True)
        file = moved.folder / ("hooks.json" if name == "codex" else "settings.json")
        file.write_text(json.dumps({"hooks": {"SessionEnd": [mine]}}))
        moved.install()
        assert "/old place" in file.read_text()
        run("install", name)
        hooks = json.loads(file.read_text())["hooks"]
        assert "/old place" not in file.read_text()
        assert hooks["SessionEnd"].pop(0) == mine
        assert {len(groups) for groups in hooks.values()} == {1}
        if name == "codex":
            trusted = tomllib.loads((moved.folder / "config.toml").read_text())["hooks"]["state"]
            assert f"{file}:session_end:1:0" in trusted
            assert f"{file}:stop:0:0" in trusted
        run("uninstall", name)
        assert json.loads(file.read_text()) == {"hooks": {"SessionEnd": [mine]}}


class TestLearning:
    def test_a_model_for_hosts_is_written_to_the_users_settings(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The rest of the file is kept, also if it has such a table; `none` removes what was written."""
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
        file = home / "config" / "holdfast" / "holdfast.toml"
        file.parent.mkdir(parents=True)
        before = "# mine\n[knowledge]\nallow_delete = true\n\n[recall]\nmax_facts = 5\n"
        file.write_text(before, "utf-8")
        done = run("install", "codex", "--learn", "echo")
        assert "all agents that use this memory" in done.output
        assert load(files=[file]).settings.knowledge.host_model == "echo"
        assert load(files=[file]).settings.recall.max_facts == 5
        run("install", "codex", "--learn", "ollama/qwen3")
        assert load(files=[file]).settings.knowledge.host_model == "ollama/qwen3"
        run("install", "codex", "--learn", "none")
        assert file.read_text("utf-8") == before

    def test_a_first_settings_file_is_made(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without --learn there is none; a dry run writes nothing."""
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
        file = home / "config" / "holdfast" / "holdfast.toml"
        run("install", "codex")
        run("install", "codex", "--learn", "echo", "--dry-run")
        run("install", "codex", "--learn", "none")
        assert not file.exists()
        run("install", "codex", "--learn", "echo")
        assert load(files=[file]).settings.knowledge.host_model == "echo"
        assert file.stat().st_mode & 0o077 == 0

    @pytest.mark.parametrize("name", ["", " "])
    def test_a_model_needs_a_name(self, home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        """An empty one is an error, and changes nothing."""
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
        before = snapshot(home)
        done = CliRunner().invoke(holdfast, ["install", "claude-code", "--learn", name])
        assert done.exit_code == 2
        assert "--learn: name a model" in done.output
        assert snapshot(home) == before

    def test_what_the_user_wrote_is_not_changed(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nor is a model that no one knows written, or anything of the host changed then."""
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
        file = home / "config" / "holdfast" / "holdfast.toml"
        file.parent.mkdir(parents=True)
        for text in ('[knowledge]\nhost_model = "echo"\n', 'knowledge.host_model = "echo"\n'):
            file.write_text(text, "utf-8")
            before = snapshot(home)
            for model in ("ollama/qwen3", "none"):
                with pytest.raises(InputError, match="change it there"):
                    run("install", "codex", "--learn", model)
            with pytest.raises(HoldfastError):
                run("install", "codex", "--learn", "nobody")
            assert snapshot(home) == before
