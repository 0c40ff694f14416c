"""The agent's folder: its files in every prompt, their caps, and the first run."""

from pathlib import Path

import msgspec
import pytest

from holdfast.errors import StorageError
from holdfast.models.base import Tool
from holdfast_agent.settings import AgentSettings, MemorySearch, Workspace
from holdfast_agent.workspace import FILES, bounds_of, context_files, prepare, system_prompt, truncate
from support.cases import each

NOW = 1_770_768_000_000
"""2026-02-11T00:00:00Z."""


def settings(**workspace: object) -> AgentSettings:
    """Settings with a workspace section."""
    return AgentSettings(timezone="UTC", workspace=msgspec.convert(workspace, Workspace))


def fill(root: Path, **files: str) -> Path:
    """A workspace with these files."""
    for name, text in files.items():
        (root / f"{name}.md").write_text(text, "utf-8")
    return root


class TestFirstRun:
    """What is written into a new workspace."""

    def test_a_new_workspace_gets_every_file(self, tmp_path: Path) -> None:
        """All files are made, the greeting of the first run among them, and a folder for notes."""
        root = tmp_path / "new" / "ws"
        assert prepare(root, settings()) == [*FILES, "BOOTSTRAP.md"]
        assert (root / "memory").is_dir()
        assert all((root / name).read_text("utf-8").startswith(f"# {name}") for name in FILES)

    def test_what_is_there_is_never_written_over(self, tmp_path: Path) -> None:
        """A workspace that has a file gets the others, not the greeting; a second time it gets nothing."""
        fill(tmp_path, AGENTS="mine")
        (tmp_path / "SOUL.md").symlink_to("nowhere")
        assert prepare(tmp_path, settings()) == ["TOOLS.md", "IDENTITY.md", "USER.md", "HEARTBEAT.md"]
        assert (tmp_path / "AGENTS.md").read_text("utf-8") == "mine"
        assert prepare(tmp_path, settings()) == []
        assert not (tmp_path / "BOOTSTRAP.md").exists()

    @pytest.mark.parametrize("off", [{"skip_bootstrap": True}, {"access": "ro"}, {"access": "none"}])
    def test_nothing_is_written_without_leave(self, tmp_path: Path, off: dict[str, object]) -> None:
        """Switched off, only the folder is made; without write access, not even that."""
        assert prepare(tmp_path / "ws", settings(**off)) == []
        assert not list((tmp_path / "ws").glob("*"))
        assert (tmp_path / "ws").exists() is ("skip_bootstrap" in off)

    def test_a_folder_that_cannot_be_written(self, tmp_path: Path) -> None:
        """The error says which folder it is; the agent shows it and continues."""
        (tmp_path / "file").touch()
        with pytest.raises(StorageError, match="ws: cannot be written"):
            prepare(tmp_path / "file" / "ws", settings())


class TestFiles:
    """What of the files goes into the prompt."""

    def test_order_and_status(self, tmp_path: Path) -> None:
        """Files stand in a fixed order; missing ones are named, empty ones left out."""
        fill(tmp_path, USER="用户", AGENTS="rules\n\n", SOUL=" \n ", MEMORY="long", BOOTSTRAP="hello")
        found = {file.name: (file.status, file.text) for file in context_files(tmp_path, settings(), first_run=True)}
        assert list(found) == [*FILES, "BOOTSTRAP.md", "MEMORY.md"]
        assert found["AGENTS.md"] == ("ok", "rules")
        assert found["SOUL.md"] == ("empty", "")
        assert found["TOOLS.md"] == ("missing", f"[MISSING] Expected at: {tmp_path / 'TOOLS.md'}")
        assert found["USER.md"] == ("ok", "用户")

    def test_the_greeting_is_for_the_first_run_only(self, tmp_path: Path) -> None:
        """Later runs do not see BOOTSTRAP.md, and no one misses it."""
        fill(tmp_path, BOOTSTRAP="hello")
        assert "BOOTSTRAP.md" not in [file.name for file in context_files(tmp_path, settings(), first_run=False)]

    def test_both_spellings_of_long_term_notes(self, tmp_path: Path) -> None:
        """MEMORY.md and memory.md are both there if they are two files, and once if they are one."""
        fill(tmp_path, MEMORY="upper", memory="lower")
        assert [file.text for file in context_files(tmp_path, settings())][-2:] == ["upper", "lower"]
        (tmp_path / "memory.md").unlink()
        (tmp_path / "memory.md").hardlink_to(tmp_path / "MEMORY.md")
        assert [file.name for file in context_files(tmp_path, settings())][-1] == "MEMORY.md"

    def test_a_long_file_keeps_its_ends(self, tmp_path: Path) -> None:
        """Head and tail stay with a marker between them, never over the limit."""
        fill(tmp_path, AGENTS="开头" + "x" * 30_000 + "结尾")
        file = context_files(tmp_path, settings())[0]
        assert (file.status, file.raw_chars) == ("truncated", 30_004)
        assert file.text.startswith("开头xxx")
        assert file.text.endswith("xxx结尾")
        assert "[...truncated, read AGENTS.md for full content...]" in file.text
        assert len(file.text) <= 20_000
        kept = len(file.text.replace("\n", "")) - len("[...truncated, read AGENTS.md for full content...]")
        assert f"of {file.raw_chars})…" in file.text
        assert kept > 19_000

    @each("limit", [0, 1, 63, 64, 100, 150, 200, 1_000])
    def test_no_limit_is_ever_passed(self, limit: int) -> None:
        """Whatever the limit, what is kept is within it."""
        assert len(truncate("文字 text " * 500, name="AGENTS.md", limit=limit)) <= limit

    def test_all_together_are_capped(self, tmp_path: Path) -> None:
        """When the total is used up the rest is skipped, and the prompt says so."""
        fill(tmp_path, AGENTS="a" * 900, SOUL="s" * 900, TOOLS="t" * 900)
        known = settings(bootstrap_total_max_chars=1_200)
        files = context_files(tmp_path, known)
        assert [file.status for file in files[:3]] == ["ok", "truncated", "skipped"]
        assert sum(len(file.text) for file in files) <= 1_200
        assert "No room was left for TOOLS.md" in system_prompt(tmp_path, settings=known, now=NOW)

    def test_a_link_out_of_the_workspace_is_not_followed(self, tmp_path: Path) -> None:
        """A workspace that someone else made cannot put other files of the user into a prompt."""
        root = tmp_path / "ws"
        root.mkdir()
        (tmp_path / "secret").write_text("secret", "utf-8")
        (root / "AGENTS.md").symlink_to(tmp_path / "secret")
        (root / "SOUL.md").mkdir()
        files = context_files(root, settings())
        assert [file.status for file in files[:2]] == ["unreadable", "unreadable"]
        assert "secret'" not in system_prompt(root, settings=settings(), now=NOW)

    def test_no_access_no_files(self, tmp_path: Path) -> None:
        """Without access to the workspace nothing of it is shown, and its path is not named."""
        fill(tmp_path, AGENTS="rules")
        known = settings(access="none")
        assert context_files(tmp_path, known) == ()
        assert str(tmp_path) not in system_prompt(tmp_path, settings=known, now=NOW)


class TestPrompt:
    """The system prompt."""

    TOOLS = (
        Tool(name="read", description="Reads.", parameters={}),
        Tool(name="memory_search", description="Searches.", parameters={}),
    )

    def test_it_lists_what_there_is(self, tmp_path: Path) -> None:
        """Tools, how to recall, the day's note, the date and the files are in it."""
        fill(tmp_path, SOUL="Be kind.", AGENTS="Rules with $dollars and {braces}.")
        prompt = system_prompt(tmp_path, settings=settings(), now=NOW, tools=self.TOOLS)
        for part in (
            "- read: Reads.",
            "## Memory Recall",
            "path#L5-L9",
            "`memory/2026-02-11.md`",
            "Wednesday, 2026-02-11",
            "# Project Context\n\nThe following project context files have been loaded:\nSOUL.md says",
            f"## {tmp_path / 'AGENTS.md'}\n\nRules with $dollars and {{braces}}.",
            "NO_REPLY",
            "HEARTBEAT_OK",
        ):
            assert part in prompt

    def test_it_changes_with_the_day_and_with_nothing_else(self, tmp_path: Path) -> None:
        """Within a day the prompt is the same, so that the provider's cache holds; a changed file counts at once."""
        fill(tmp_path, AGENTS="one")
        first = system_prompt(tmp_path, settings=settings(), now=NOW)
        assert system_prompt(tmp_path, settings=settings(), now=NOW + 80_000_000) == first
        assert system_prompt(tmp_path, settings=settings(), now=NOW + 90_000_000) != first
        fill(tmp_path, AGENTS="two")
        assert "two" in system_prompt(tmp_path, settings=settings(), now=NOW)

    def test_parts_go_with_what_they_speak_of(self, tmp_path: Path) -> None:
        """Without search no word of it, without citations none of them, read-only no notes."""
        quiet = AgentSettings(
            timezone="UTC", memory_search=MemorySearch(citations="off"), workspace=Workspace(access="ro")
        )
        prompt = system_prompt(tmp_path, settings=quiet, now=NOW, tools=self.TOOLS)
        assert "path#L5" not in prompt
        assert "(read-only)" in prompt
        assert "## Notes" not in prompt
        assert "Memory Recall" not in system_prompt(tmp_path, settings=quiet, now=NOW, tools=self.TOOLS[:1])

    def test_a_workspace_that_is_not_there(self, tmp_path: Path) -> None:
        """The prompt names what is missing instead of failing."""
        assert system_prompt(tmp_path / "none", settings=settings(), now=NOW).count("[MISSING]") == len(FILES)


def test_bounds_follow_access(tmp_path: Path) -> None:
    """Only `rw` may write."""
    assert bounds_of(tmp_path, settings()).writable
    assert not bounds_of(tmp_path, settings(access="ro")).writable
