"""`memory_search` and `memory_get` as the model sees them."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.messages import ToolCall, ToolResult
from holdfast.settings import Embedding
from holdfast_agent.notes import Notes
from holdfast_agent.settings import ChatSettings, MemorySearch
from holdfast_agent.toolbox import Toolbox
from holdfast_agent.tools import cite, note_tools
from support.agent_fixture import change_agent
from support.session_files import begin, says

WORDS = ChatSettings(embedding=Embedding(provider="none"))


def use(notes: Notes, name: str, **arguments: Any) -> ToolResult:
    """Call a tool."""
    return Toolbox(functions=note_tools(notes)).run(ToolCall(id="c", name=name, arguments=arguments))


def open_notes(folder: Path, settings: ChatSettings = WORDS) -> Notes:
    """A workspace with a note."""
    (folder / "ws" / "memory").mkdir(parents=True, exist_ok=True)
    text = "# Tue\n\n- we deploy with Kamal\n- 数据库是 PostgreSQL\n"
    (folder / "ws" / "memory" / "2026-02-10.md").write_text(text, "utf-8")
    return Notes(folder / "ws", settings, folder / "notes.db", folder / "sessions")


class TestSearch:
    """`memory_search`."""

    def test_the_answer(self, tmp_path: Path) -> None:
        """Results, provider, model, fallback, citations and mode, as the original tool gives them."""
        with open_notes(tmp_path) as notes:
            answer = json.loads(use(notes, "memory_search", query="deploy", maxResults=1).text)
        (hit,) = answer.pop("results")
        assert list(hit) == ["path", "startLine", "endLine", "score", "snippet", "source", "citation"]
        assert (hit["path"], hit["startLine"], hit["endLine"]) == ("memory/2026-02-10.md", 1, 4)
        assert hit["snippet"].endswith("\n\nSource: memory/2026-02-10.md#L1-L4")
        assert answer == {"provider": "none", "model": "", "fallback": None, "citations": "auto", "mode": "words"}

    @pytest.mark.parametrize(("mode", "cited"), [("auto", True), ("on", True), ("off", False)])
    def test_citations(self, tmp_path: Path, mode: str, cited: bool) -> None:  # noqa: FBT001 - a table
        """They are added to hits unless switched off."""
        known = change_agent(WORDS, memory_search=msgspec.convert({"citations": mode}, MemorySearch))
        with open_notes(tmp_path, known) as notes:
            text = use(notes, "memory_search", query="数据库", minScore=0).text
        assert ("#L1-L4" in text) is cited
        assert ("Source:" in text) is cited

    def test_a_fallback_is_shown(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Who was wanted and why he was not taken is in the answer."""
        monkeypatch.delenv("VOYAGE_API_KEY", raising=False)
        known = change_agent(WORDS, memory_search=MemorySearch(provider="voyage", fallback="hash"))
        with open_notes(tmp_path, known) as notes:
            answer = json.loads(use(notes, "memory_search", query="deploy").text)
        assert answer["provider"] == "hash"
        assert answer["fallback"]["from"] == "voyage"
        assert "VOYAGE_API_KEY" in answer["fallback"]["reason"]

    def test_a_failure_is_an_answer_too(self, tmp_path: Path) -> None:
        """A search that cannot be made says so in the form of the original tool, and what to do."""
        with open_notes(tmp_path) as notes:
            notes.start()
            notes.memory.close()
            result = use(notes, "memory_search", query="deploy")
            answer = json.loads(result.text)
            assert result.is_error
            assert (answer["results"], answer["disabled"], answer["unavailable"]) == ([], True, True)
            assert set(answer) == {"results", "disabled", "unavailable", "error", "warning", "action"}

    def test_skipped_files_are_reported(self, tmp_path: Path) -> None:
        """A damaged index is made again, and the answer warns."""
        (tmp_path / "notes.db").write_bytes(b"damage" * 1000)
        with open_notes(tmp_path) as notes:
            assert "built again" in json.loads(use(notes, "memory_search", query="deploy").text)["warning"]

    def test_where_something_stands(self) -> None:
        """One line is cited alone, several as a range."""
        assert cite("a.md", 5, 5) == "a.md#L5"
        assert cite("a.md", 5, 9) == "a.md#L5-L9"


class TestGet:
    """`memory_get`."""

    def get(self, notes: Notes, **arguments: Any) -> str:
        """The text of an answer."""
        answer = json.loads(use(notes, "memory_get", **arguments).text)
        assert answer["path"] == arguments["path"]
        text = answer["text"]
        assert isinstance(text, str)
        return text

    def test_some_lines(self, tmp_path: Path) -> None:
        """From a line on, so many; all of a short note without; nothing of a missing one."""
        with open_notes(tmp_path) as notes:
            path = "memory/2026-02-10.md"
            assert self.get(notes, path=path, **{"from": 3, "lines": 1}) == "- we deploy with Kamal"
            assert self.get(notes, path=path).startswith("# Tue\n\n- we")
            assert self.get(notes, path=path, **{"from": 99}) == ""
            assert self.get(notes, path="memory/none.md") == ""
            assert self.get(notes, path="MEMORY.md") == ""

    def test_a_long_note_continues_with_an_offset(self, tmp_path: Path) -> None:
        """After 120 lines, or 12,000 characters, the answer says where to continue; one giant line is cut."""
        with open_notes(tmp_path) as notes:
            (notes.root / "MEMORY.md").write_text("\n".join(f"line {n}" for n in range(1, 301)), "utf-8")
            assert self.get(notes, path="MEMORY.md").endswith("line 120\n\n[more follows: from=121 continues]")
            (notes.root / "memory.md").write_text("\n".join(["y" * 5_000] * 5), "utf-8")
            assert self.get(notes, path="memory.md", lines=5).endswith("[more follows: from=3 continues]")
            (notes.root / "memory" / "z.md").write_text("z" * 50_000, "utf-8")
            assert len(self.get(notes, path="memory/z.md")) == 12_000

    @pytest.mark.parametrize("path", ["AGENTS.md", "memory/x.txt", "memory/../AGENTS.md", "../x.md", "/etc/passwd"])
    def test_only_notes(self, tmp_path: Path, path: str) -> None:
        """Other files of the workspace, and everything outside, are refused."""
        with open_notes(tmp_path) as notes:
            (notes.root / "AGENTS.md").write_text("rules", "utf-8")
            assert use(notes, "memory_get", path=path).is_error

    def test_further_paths(self, tmp_path: Path) -> None:
        """What the settings add can be read as well, files and folders."""
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "guide.md").write_text("guide", "utf-8")
        (tmp_path / "plan.md").write_text("plan", "utf-8")
        extra = MemorySearch(extra_paths=("../docs", str(tmp_path / "plan.md")))
        with open_notes(tmp_path, change_agent(WORDS, memory_search=extra)) as notes:
            assert self.get(notes, path=str(tmp_path / "docs" / "guide.md")) == "guide"
            assert self.get(notes, path="../plan.md") == "plan"

    def test_a_past_session(self, tmp_path: Path) -> None:
        """A session is shown as talk, by its lines; outside of their folder there is none."""
        begin(tmp_path / "sessions", "s.jsonl").append_message(says("hello 世界"))
        known = change_agent(WORDS, memory_search=MemorySearch(sources=("memory", "sessions")))
        with open_notes(tmp_path, known) as notes:
            assert self.get(notes, path="sessions/s.jsonl", **{"from": 2}) == "User: hello 世界"
            assert self.get(notes, path="sessions/none.jsonl") == ""
            assert use(notes, "memory_get", path="sessions/../../x.jsonl").is_error
