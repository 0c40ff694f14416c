"""What the agent of `holdfast chat` does on its first run, after overflows, and with settings of OpenClaw."""

from __future__ import annotations

import json
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine import Engine
from holdfast.errors import ModelOverflowError
from holdfast.models.base import Prompt
from holdfast.models.scripted import Answer, ScriptedReply
from holdfast.settings import Loaded
from holdfast_agent.settings import ChatSettings, load
from support.agent_fixture import BASE, AgentFixture, Watched, change_agent
from support.chat_shell import FLUSH, Shell


def openclaw(shell: Shell, data: dict[str, Any]) -> None:
    """Write an openclaw.json."""
    place = shell.folder / ".openclaw" / "openclaw.json"
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps(data, ensure_ascii=False))


def read(folder: Path, data: dict[str, Any], **options: Any) -> Loaded[ChatSettings]:
    """The settings of an openclaw.json alone."""
    file = folder / "openclaw.json"
    file.write_text(json.dumps(data))
    return load(files=[file], environ={}, **options)


class TestFirstRun:
    """`BOOTSTRAP.md`."""

    def test_it_is_in_the_prompt_of_the_first_conversation_alone(self, shell: Shell) -> None:
        """Through the whole of it, also after a restart; after `/new` it is not, though the file is there."""
        place = shell.folder / "workspace"
        shell.openclaw(workspace=str(place))
        listed = "- BOOTSTRAP.md: OK"
        assert listed in shell.chat("Hello.\n/context list\n", "Hi.")[1]
        assert listed in shell.chat("And more.\n/context list\n", "Yes.")[1]
        _, shown, _ = shell.chat("/new\nHello.\n/context list\n", "Hi.")
        assert (place / "BOOTSTRAP.md").exists()
        assert "BOOTSTRAP.md" not in shown
        assert "- AGENTS.md: OK" in shown

    def test_the_model_reads_it_once(self, tmp_path: Path) -> None:
        """What the model is sent, in the first conversation and in the second."""
        prompts: list[str] = []

        def answer(prompt: Prompt) -> Answer:
            prompts.append(prompt.messages[0].text)
            return "Hi."

        fixture = AgentFixture(tmp_path)
        (tmp_path / "work").mkdir()
        (tmp_path / "work" / "AGENTS.md").write_text("Be brief.")
        (tmp_path / "work" / "BOOTSTRAP.md").write_text("第一次运行: ask for a name.")
        agent = fixture.agent(answer)
        agent.say("Hello.")
        agent.reset()
        agent.say("Hello again.")
        assert ["第一次运行" in prompt for prompt in prompts if "AGENTS.md" in prompt] == [True, False]
        agent.close()


class TestOverflow:
    """Three failed recoveries."""

    def overflowing(self, *, times: int) -> Any:
        """A model that refuses so many requests of a turn as too long."""
        left = [times]

        def answer(prompt: Prompt) -> Answer:
            last = prompt.messages[-1].text
            if FLUSH in last or prompt.schema:
                return "NO_REPLY"
            if not prompt.tools:
                return "## Goal\nTalk about modules.\n"
            if "Overflow" not in last:
                return "filler words " * 300
            left[0] -= 1
            too_long = ModelOverflowError("prompt is too long", model="m", status=400)
            return too_long if left[0] >= 0 else "It fits now."

        return answer

    def test_a_new_conversation_begins_with_the_digest(self, tmp_path: Path) -> None:
        """The request is answered in it, the old one is kept, and the user gets a notice."""
        fixture = AgentFixture(tmp_path)
        agent = fixture.agent(self.overflowing(times=4))
        for number in range(8):
            agent.say(f"Step {number}: 使用 PostgreSQL. " + "more words " * 300)
        before = agent.session.id
        assert agent.say("Overflow now.").text == "It fits now."
        assert agent.session.id != before
        texts = [message.text for message in agent.history]
        assert "## Last Request" in texts[0]
        assert "PostgreSQL" in texts[0]
        assert texts[1:] == ["Overflow now.", "It fits now."]
        (notice,) = [text for text in fixture.view.notices if "digest of the old one" in text]
        assert "3 windows were refused" in notice
        kept = next(agent.sessions.folder.glob(f"{before}.jsonl.reset.*"))
        assert kept.name in notice
        assert "Step 0" in kept.read_text()
        agent.close()
        again = fixture.agent(self.overflowing(times=4))
        assert [message.text for message in again.history] == texts
        again.close()

    def test_it_is_an_error_if_that_does_not_help(self, tmp_path: Path) -> None:
        """The new conversation is tried once."""
        agent = AgentFixture(tmp_path).agent(self.overflowing(times=99))
        for number in range(8):
            agent.say(f"Step {number}. " + "more words " * 300)
        with pytest.raises(ModelOverflowError, match="windows were refused"):
            agent.say("Overflow now.")
        assert len(list(agent.sessions.folder.glob("*.reset.*"))) == 1
        agent.close()


class TestBlocks:
    """`blockStreamingDefault`."""

    @pytest.mark.parametrize(("mode", "count"), [("on", 3), ("off", 5)])
    def test_replies_are_shown_block_by_block(self, tmp_path: Path, mode: Any, count: int) -> None:
        """A block ends at a blank line; off, each piece is shown as it comes."""
        pieces = ["One", ".\n", "\n二。\n", "\nThr", "ee."]
        view = Watched()
        settings = change_agent(BASE, block_streaming=mode)
        agent = AgentFixture(tmp_path, settings=settings, view=view).agent(
            [ScriptedReply(text="".join(pieces), pieces=tuple(pieces))]
        )
        assert agent.say("Hello.").text == "".join(pieces)
        assert "".join(view.texts) == "".join(pieces)
        assert len(view.texts) == count
        assert (view.texts[0] == "One.\n\n") is (mode == "on")
        agent.close()


class TestReset:
    """When a conversation starts afresh."""

    def test_triggers_start_a_new_conversation(self, shell: Shell) -> None:
        """`session.resetTriggers`: whole lines, in any case; `/new` works next to them."""
        openclaw(shell, {"session": {"resetTriggers": ["Start over", "重新开始"]}})
        text = "Hello.\nstart over\nHello.\n重新开始\nHello, start over later.\n/new\n"
        code, shown, _ = shell.chat(text, "One.", "Two.", "Three.")
        assert code == 0
        assert shown.count("A new conversation.") == 3
        assert "Three." in shown

    def test_direct_chats_have_their_own_reset(self, tmp_path: Path) -> None:
        """`resetByType.direct`, or `dm`, counts before `session.reset`: the terminal is a direct chat."""
        for name in ("direct", "dm"):
            session = {"reset": {"mode": "daily", "atHour": 4}, "resetByType": {name: {"mode": "never"}}}
            loaded = read(tmp_path, {"session": session})
            reset = loaded.settings.agent.session.reset
            assert (reset.mode, reset.at_hour) == ("never", 4)
            assert loaded.without_effect == ()

    def test_an_hour_alone_resets_daily(self, tmp_path: Path) -> None:
        """OpenClaw resets daily unless another mode is named, so its users set nothing but the hour."""
        reset = read(tmp_path, {"session": {"reset": {"atHour": 5}}}).settings.agent.session.reset
        assert (reset.is_daily, reset.at_hour) == (True, 5)
        assert not read(tmp_path, {"session": {}}).settings.agent.session.reset.is_daily

    def test_settings_without_effect_are_reported_with_the_reason(self, shell: Shell) -> None:
        """One line each, at the start of `holdfast chat`; the settings next to them count."""
        openclaw(
            shell,
            {
                "agents": {
                    "defaults": {
                        "heartbeat": {"every": "30m"},
                        "blockStreamingChunk": {"minChars": 800},
                        "models": {"anthropic/claude-x": {"params": {"cacheControlTtl": "1h"}}},
                        "bootstrapMaxChars": 1234,
                    }
                },
                "session": {
                    "resetByChannel": {"discord": {"mode": "idle"}},
                    "resetByType": {"group": {"mode": "idle"}, "thread": {"mode": "idle"}},
                },
            },
        )
        code, shown, output = shell.chat("Hello.\n/context list\n", "Hi.")
        assert code == 0
        assert "1,234 chars" in shown
        for name in (
            "agents.defaults.heartbeat has no effect: ",
            "agents.defaults.blockStreamingChunk has no effect: ",
            "agents.defaults.models.*.params.cacheControlTtl has no effect: ",
            "session.resetByChannel has no effect: ",
            "session.resetByType.group has no effect: ",
            "session.resetByType.thread has no effect: ",
        ):
            assert sum(line.startswith(name) for line in output.splitlines()) == 1


class TestAgents:
    """`agents.list`."""

    DATA: dict[str, Any] = {  # noqa: RUF012 - never changed
        "agents": {
            "defaults": {"contextTokens": 100_000, "bootstrapMaxChars": 5_000, "compaction": {"mode": "safeguard"}},
            "list": [
                {"id": "main", "default": True, "name": "Main"},
                {
                    "id": "Coder",
                    "identity": {"name": "C"},
                    "bootstrapMaxChars": 777,
                    "model": {"primary": "x/y"},
                    "compaction": {"keepRecentTokens": 9_000},
                },
            ],
        }
    }

    def test_an_agent_overrides_the_defaults(self, tmp_path: Path) -> None:
        """What it does not say stays as for all; the origin names the entry."""
        loaded = read(tmp_path, self.DATA, agent_id="coder")
        known = loaded.settings
        assert (known.model.name, known.model.context_tokens) == ("x/y", 100_000)
        assert (known.compaction.mode, known.compaction.keep_recent_tokens) == ("safeguard", 9_000)
        assert "agents.list 'coder'" in loaded.origins["model.name"]
        assert "agents.list" not in loaded.ignored
        for other in (None, "main", "nobody"):
            assert read(tmp_path, self.DATA, agent_id=other).settings.agent.workspace.bootstrap_max_chars == 5_000

    def test_chat_takes_it_by_its_name(self, shell: Shell) -> None:
        """`holdfast chat --agent coder`."""
        openclaw(shell, {"agents": {**self.DATA["agents"], "defaults": {"bootstrapMaxChars": 5_000}}})
        assert "5,000 chars" in shell.chat("Hi.\n/context list\n", "Hi.")[1]
        assert "777 chars" in shell.chat("Hi.\n/context list\n", "Hi.", options=["--agent", "coder"])[1]


class TestPlugins:
    """`plugins.entries` and `plugins.slots`."""

    def test_both_the_slot_and_the_entry_switch_memory_context_on(self, tmp_path: Path) -> None:
        """The slot alone leaves it off; an entry whose plugin is not in the slot does not count, and is reported."""
        entry = {"memory-context": {"config": {"hardCapTokens": 500}}}
        both = read(tmp_path, {"plugins": {"slots": {"memory": "memory-context"}, "entries": entry}})
        assert (both.settings.recall.enabled, both.settings.recall.hard_cap_tokens) == (True, 500)
        alone = read(tmp_path, {"plugins": {"slots": {"memory": "memory-context"}}})
        assert not alone.settings.recall.enabled
        other = read(tmp_path, {"plugins": {"slots": {"memory": "memory-core"}, "entries": entry}})
        assert (other.settings.recall.enabled, other.settings.recall.hard_cap_tokens) == (True, 4_000)
        assert "memory-core" in other.ignored["plugins.entries.memory-context.config.hardCapTokens"]

    @pytest.mark.parametrize(
        ("plugin", "key"),
        [
            ("memory-context", "recall"),
            ("memory-lancedb", "agent.long_term"),
            ("memory-core", "agent.memory_search"),
        ],
    )
    def test_enabled_false_switches_a_plugin_off(self, tmp_path: Path, plugin: str, key: str) -> None:
        """Each of the three memory plugins."""
        loaded = read(tmp_path, {"plugins": {"entries": {plugin: {"enabled": False}}}})
        assert not attrgetter(key)(loaded.settings).enabled
        assert [name for name, origin in loaded.origins.items() if origin != "default"] == [f"{key}.enabled"]

    def test_without_memory_core_there_is_no_memory_search(self, shell: Shell) -> None:
        """The tool goes, those of the other plugin stay."""
        openclaw(shell, {"plugins": {"entries": {"memory-core": {"enabled": False}}}})
        tools = shell.chat("Hi.\n/context list\n", "Hi.")[1].partition("Tools: ")[2]
        assert "memory_recall" in tools
        assert "memory_search" not in tools

    @pytest.mark.parametrize(
        ("slot", "has_tools"),
        [("memory-core", True), ("memory-lancedb", True), ("memory-context", False), ("none", False)],
    )
    def test_the_slot_decides_about_the_memory_tools(self, shell: Shell, slot: str, has_tools: bool) -> None:  # noqa: FBT001
        """Only the two plugins that have tools offer them."""
        openclaw(shell, {"plugins": {"slots": {"memory": slot}}})
        tools = shell.chat("Hi.\n/context list\n", "Hi.")[1].partition("Tools: ")[2]
        assert ("memory_search" in tools, "memory_recall" in tools) == (has_tools, has_tools)

    def test_the_users_own_file_overrides_the_slot(self, tmp_path: Path) -> None:
        """What `holdfast.toml` says counts before what an `openclaw.json` implies."""
        own = tmp_path / "holdfast.toml"
        own.write_text("[agent.long_term]\nenabled = true\n")
        other = tmp_path / "openclaw.json"
        other.write_text(json.dumps({"plugins": {"slots": {"memory": "none"}}}))
        loaded = load(files=[own, other], environ={})
        assert loaded.settings.agent.long_term.enabled
        assert not loaded.settings.agent.memory_search.enabled
        assert loaded.origins["recall.enabled"] == f"{other}: plugins.slots.memory"


def test_the_weighted_formula_is_reachable(tmp_path: Path) -> None:
    """`search.fusion` with its weights, decay, least score and variety, in both forms of the file."""
    search = {"fusion": "weighted", "vectorWeight": 0.6, "bm25Weight": 0.4, "timeDecay": 0.9}
    context = {"autoRecallMinScore": 0.5, "search": {**search, "mmr": {"enabled": True, "lambda": 0.3}}}
    for data in (
        {"agents": {"defaults": {"memoryContext": context}}},
        {"plugins": {"slots": {"memory": "memory-context"}, "entries": {"memory-context": {"config": context}}}},
    ):
        known = read(tmp_path, data).settings
        assert (known.search.fusion, known.search.vector_weight, known.search.bm25_weight) == ("weighted", 0.6, 0.4)
        assert (known.search.time_decay, known.recall.min_score) == (0.9, 0.5)
        assert (known.search.mmr.enabled, known.search.mmr.relevance_weight) == (True, 0.3)


@pytest.mark.parametrize(
    ("context", "named"),
    [
        ({"autoRecallMinScore": 0.9}, "autoRecallMinScore = 0.9"),
        ({"search": {"vectorWeight": 0.6, "bm25Weight": 0.4}}, "search.vectorWeight = 0.6"),
        ({"search": {"timeDecay": 0.9}}, "search.timeDecay = 0.9"),
    ],
)
def test_settings_of_the_weighted_formula_alone_are_named(shell: Shell, context: dict[str, Any], named: str) -> None:
    """They have no effect on the measured order: `holdfast chat` and every report say so, with the fix."""
    openclaw(shell, {"agents": {"defaults": {"memoryContext": context}}})
    assert f"{named} has no effect" in shell.chat("Hello.\n", "Hi.")[2]
    home = shell.folder / "memory"
    with Engine.open(home, background=False) as engine:
        report = engine.session("s").assemble([{"role": "user", "content": "Hello."}]).report
    assert any(named in warning and 'search.fusion = "weighted"' in warning for warning in report.warnings)
    weighted = {**context, "search": {**context.get("search", {}), "fusion": "weighted"}}
    openclaw(shell, {"agents": {"defaults": {"memoryContext": weighted}}})
    with Engine.open(home, background=False) as engine:
        report = engine.session("s").assemble([{"role": "user", "content": "Hello."}]).report
    assert not any("has no effect" in warning for warning in report.warnings)
