"""The whole box: which tools there are, `bash`, and the archive."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from holdfast.engine import Engine
from holdfast.messages import Message, Text, ToolCall, ToolResult
from holdfast.settings import Embedding
from holdfast_agent.memories import Memories
from holdfast_agent.notes import Notes
from holdfast_agent.paths import Bounds
from holdfast_agent.settings import ChatSettings, LongTerm, MemorySearch, Workspace
from holdfast_agent.toolbox import Action, Toolbox
from holdfast_agent.tools import agent_tools
from support.agent_fixture import change_agent
from support.waiting import time_is_over_with, when

WORDS = Embedding(provider="none")


@dataclass
class World:
    """An agent's engine, workspace and tools, with a user who answers as told."""

    folder: Path
    settings: ChatSettings = field(default_factory=lambda: ChatSettings(embedding=WORDS))
    says: bool = True
    asked: list[Action] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "ws").mkdir()
        self.engine = Engine.open(self.folder / "memory", settings=self.settings)
        self.notes = Notes(self.folder / "ws", self.settings, self.folder / "notes.db")

    def close(self) -> None:
        self.engine.close()
        self.notes.close()

    def confirm(self, action: Action) -> bool:
        self.asked.append(action)
        return self.says

    def box(self, **changes: Any) -> Toolbox:
        given = {
            "bounds": Bounds(root=self.folder / "ws"),
            "notes": self.notes,
            "confirm": self.confirm,
            "memories": Memories(self.engine, self.settings),
        }
        return agent_tools(self.engine.session("s1"), settings=self.settings, **{**given, **changes})

    def use(self, name: str, **arguments: Any) -> ToolResult:
        number = len(self.asked)
        return self.box().run(ToolCall(id=f"c{number}", name=name, arguments=arguments))


@pytest.fixture
def world(tmp_path: Path) -> Any:
    """An agent with everything allowed."""
    made = World(tmp_path)
    yield made
    made.close()


ALL = [
    "read",
    "write",
    "edit",
    "bash",
    "memory_search",
    "memory_get",
    "memory_recall",
    "memory_store",
    "memory_forget",
    "archive_get",
]


class TestWhichTools:
    """What the settings let an agent do."""

    def test_all_of_them(self, world: World) -> None:
        """By default both families of memory tools are there."""
        assert [tool.name for tool in world.box().tools()] == ALL

    @pytest.mark.parametrize(
        ("change", "gone"),
        [
            ({"workspace": Workspace(access="ro")}, {"bash"}),
            ({"workspace": Workspace(access="none")}, {"read", "write", "edit", "bash", "memory_search", "memory_get"}),
            ({"memory_search": MemorySearch(enabled=False)}, {"memory_search", "memory_get"}),
            ({"long_term": LongTerm(enabled=False)}, {"memory_recall", "memory_store", "memory_forget"}),
        ],
    )
    def test_settings_take_tools_away(self, tmp_path: Path, change: dict[str, Any], gone: set[str]) -> None:
        """Without access, or with a switch off, the tools that need it are not offered."""
        world = World(tmp_path, change_agent(ChatSettings(embedding=WORDS), **change))
        assert {tool.name for tool in world.box().tools()} == set(ALL) - gone
        world.close()

    def test_without_a_user_to_ask_nothing_is_run_or_written(self, world: World) -> None:
        """No one to confirm, no commands and no changes."""
        offered = {tool.name for tool in world.box(confirm=None).tools()}
        assert offered == set(ALL) - {"bash", "write", "edit"}


class TestBash:
    """Commands."""

    def test_it_asks_and_runs(self, world: World) -> None:
        """The user sees the command first; the result holds what it printed."""
        assert world.use("bash", command="echo 你好").text == "你好"
        assert world.asked == [Action(kind="run", text="echo 你好")]

    def test_a_refused_command_does_not_run(self, world: World) -> None:
        """A no is told to the model, and nothing happens."""
        world.says = False
        result = world.use("bash", command="touch made")
        assert result.is_error
        assert "refused" in result.text
        assert not (world.folder / "ws" / "made").exists()

    def test_failures_are_listed(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """Exit status, silence, the end of time and an empty command are each said."""
        assert world.use("bash", command="echo no; exit 3").text == "no\n[exit status 3]"
        assert world.use("bash", command="true").text == "(no output)"
        assert world.use("bash", command="  ").is_error
        time_is_over_with(world.folder / "ws" / "ready", monkeypatch)
        late = world.use("bash", command="echo a; touch ready; sleep 300", timeout=200)
        assert late.is_error
        assert late.text.startswith("a\n[stopped after 200 s")

    def test_a_second_is_the_least(self, world: World) -> None:
        """A command is stopped after a second at the earliest, whatever was asked for."""
        assert "[stopped after 1 s" in world.use("bash", command="sleep 60", timeout=0.1).text

    def test_a_running_command_is_called_off(self, world: World) -> None:
        """The event reaches the command."""
        cancel = Event()
        asked = ToolCall(id="c", name="bash", arguments={"command": "touch ready; sleep 300"})
        with when((world.folder / "ws" / "ready").exists, cancel.set):
            result = world.box().run(asked, cancel=cancel)
        assert result.text == "(no output)\n[cancelled by the user]"

    def test_long_output_is_in_the_archive_whole(self, world: World) -> None:
        """The model sees both ends; archive_get gives back all of it, part by part."""
        shown = world.use("bash", command="seq 1 30000").text
        number = json.loads(shown.partition("archive_get ")[2].partition(" shows")[0])["id"]
        whole = "\n".join(map(str, range(1, 30_001)))
        assert len(shown) < 17_000
        read, offset = "", 0
        while len(read) < len(whole):
            text = world.use("archive_get", id=number, offset=offset).text
            read += text.partition("\n")[2].rpartition("\n\n[")[0] or text.partition("\n")[2]
            offset = len(read)
        assert read == whole


class TestArchive:
    """What left the window."""

    def test_a_message_comes_back_whole(self, world: World) -> None:
        """Who said it, when, and the words."""
        message = Message(role="user", parts=(Text(text="部署到 Hetzner"),), timestamp=1_770_732_000_000)
        (number,) = world.engine.session("s0").append([message])
        expected = f"[archived message {number}, said by user, 2026-02-10 14:00]\n部署到 Hetzner"
        assert world.use("archive_get", id=number).text == expected

    def test_a_number_that_is_not_there(self, world: World) -> None:
        """The error says which numbers to use."""
        assert "the archive has no message 99" in world.use("archive_get", id=99).text

    def test_another_agents_archive_is_out_of_sight(self, world: World) -> None:
        """A number of another agent's message is as good as none."""
        message = Message(role="user", parts=(Text(text="a private matter of the other"),))
        (number,) = world.engine.session("s0", agent="other").append([message])
        assert world.use("archive_get", id=number).is_error
