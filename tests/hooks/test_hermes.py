"""The memory provider for Hermes Agent, called as Hermes calls it, with a real `holdfast rpc` process.

It was run in Hermes 0.19.0 as well. Hermes needs other versions of packages than the development environment, so that
its base class is written here.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine
from holdfast.hooks.install import Installer
from holdfast.programs import own_command
from holdfast.settings import Settings
from support.waiting import until

BASE = "class MemoryProvider:\n    pass\n"


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Install the provider, and load it as Hermes does."""
    for name, value in {
        "HOLDFAST_HOME": str(tmp_path / "memory"),
        "HOLDFAST_TIMEOUT_MS": "300000",
        "HOLDFAST_EMBEDDING__PROVIDER": "none",  # loading a model takes longer than all else
        "HOLDFAST_RECALL__DEADLINE_MS": "300000",
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "hermes_source" / "agent").mkdir(parents=True)
    (tmp_path / "hermes_source" / "agent" / "memory_provider.py").write_text(BASE)
    monkeypatch.syspath_prepend(str(tmp_path / "hermes_source"))
    monkeypatch.chdir(tmp_path)
    home = {"HERMES_HOME": str(tmp_path / "hermes")}
    Installer("hermes", records=tmp_path / "records", environ=home, command=own_command()).install()
    file = tmp_path / "hermes" / "plugins" / "holdfast" / "__init__.py"
    spec = importlib.util.spec_from_file_location("_hermes_user_memory_holdfast", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    registered: list[Any] = []
    registry = type("Registry", (), {"register_memory_provider": staticmethod(registered.append)})
    module.register(registry)
    yield registered[0]
    registered[0].shutdown()
    for name in [name for name in sys.modules if name == "agent" or name.startswith("agent.")]:
        del sys.modules[name]


def archived(home: Path, session: str, **owner: str) -> list[str]:
    """List the texts of a session in the memory."""
    with Engine.open(home, settings=Settings(), background=False) as engine:
        return [row.message.whole_text for row in engine.session(session, **owner).messages()]


def test_a_turn_is_archived_once_and_recalled_in_another_session(provider: Any, tmp_path: Path) -> None:
    """Tool calls and results are archived too; the system prompt is not."""
    assert provider.is_available()
    provider.initialize("s1", hermes_home=str(tmp_path / "hermes"), platform="cli")
    call = {"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": '{"command": "ls"}'}}
    messages = [
        {"role": "system", "content": "You are Hermes."},
        {"role": "user", "content": "预发布副本的端口是 6543。"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "replica.toml"},
        {"role": "assistant", "content": "Noted."},
    ]
    provider.sync_turn("预发布副本的端口是 6543。", "Noted.", session_id="s1", messages=messages)
    provider.on_pre_compress(messages)
    provider.on_session_switch("s2")
    assert "6543" in provider.prefetch("预发布副本的端口是多少？", session_id="s2")
    provider.shutdown()
    texts = archived(tmp_path / "memory", "s1", project=str(tmp_path))
    assert texts == ["预发布副本的端口是 6543。", 'terminal({"command": "ls"})', "replica.toml", "Noted."]


@pytest.mark.nightly
def test_the_first_question_of_a_session_gets_an_overview(provider: Any, tmp_path: Path) -> None:
    """Hermes sends it again with every later request, so that the second question needs none; a resumed one neither."""
    provider.initialize("s1", hermes_home=str(tmp_path / "hermes"), platform="cli")
    assert "<project-overview>" not in provider.prefetch("请修复导入器。", session_id="s1")
    provider.sync_turn("请修复导入器。", "已经修复，空行会保留。", session_id="s1")
    provider.on_session_switch("s2", reset=True)
    first = provider.prefetch("Good morning.", session_id="s2")
    assert first.count("<project-overview>") == 1
    assert "已经修复，空行会保留。" in first
    provider.sync_turn("Good morning.", "Hello.", session_id="s2")
    assert "<project-overview>" not in provider.prefetch("What is next?", session_id="s2")
    provider.initialize("s1", hermes_home=str(tmp_path / "hermes"), platform="cli")
    assert "<project-overview>" not in provider.prefetch("What is next?")
    provider.initialize("job", hermes_home=str(tmp_path / "hermes"), platform="cli", agent_context="subagent")
    assert "<project-overview>" not in provider.prefetch("What is next?")


@pytest.mark.nightly
def test_the_tools_search_show_and_keep(provider: Any, tmp_path: Path) -> None:
    """A wrong call is an answer for the model, not an exception in Hermes."""
    provider.initialize("s1", hermes_home=str(tmp_path), platform="cli")
    provider.sync_turn("The budget for GPUs is 2,750 euros.", "Noted.")
    assert {schema["name"] for schema in provider.get_tool_schemas()} == {
        "archive_search",
        "archive_get",
        "archive_remember",
    }

    def use(tool: str, **arguments: Any) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(provider.handle_tool_call(tool, arguments))
        return answer

    found = use("archive_search", query="GPU budget")["result"]
    number = int(found[1 : found.index("]")])
    assert "2,750" in use("archive_get", ids=[number], around=1)["result"]
    assert "Kept: GPUs" in use("archive_remember", content="GPUs cost 2,750 euros a month.")["result"]
    assert use("archive_search", query="pancakes and maple syrup")["result"] == "Nothing was found."
    assert "error" in use("archive_get", ids=["x"])
    assert "error" in use("archive_remember", content=" ")


def test_users_of_a_messenger_do_not_share_a_memory(provider: Any, tmp_path: Path) -> None:
    """Neither do tasks of Hermes itself write into it."""
    for user, word in (("u1", "aardvark"), ("u2", "walrus")):
        provider.initialize(f"chat-{user}", platform="telegram", user_id=user)
        provider.sync_turn(f"My favourite animal is the {word}.", "Noted.")
    assert "walrus" in provider.prefetch("What is my favourite animal?")
    assert "aardvark" not in provider.prefetch("What is my favourite animal?")
    provider.initialize("job", platform="cron", agent_context="cron")
    provider.sync_turn("Make the report.", "Done.")
    provider.shutdown()
    assert archived(tmp_path / "memory", "job", agent="main@cron:") == []


def test_hermes_goes_on_without_memory(provider: Any, tmp_path: Path) -> None:
    """The process ends in the middle; the next call starts another."""
    provider.initialize("s1", platform="cli")
    provider.sync_turn("The relay is in Bergen.", "Noted.")
    process = provider._memory._process
    process.kill()
    process.wait()
    until(lambda: "Bergen" in provider.prefetch("Where is the relay?"))
    command = tmp_path / "hermes" / "plugins" / "holdfast" / "__init__.py"
    assert json.dumps(own_command()[0]) in command.read_text()
