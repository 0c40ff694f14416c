"""What the engine promises: facts in every session of their agent and project, notes that name tools that exist."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from holdfast.cli import main
from holdfast.engine import Engine
from holdfast.errors import ModelBusyError
from holdfast.messages import ToolCall
from holdfast.models.base import Prompt
from holdfast.models.scripted import Answer, Scripted, ScriptedReply
from holdfast.settings import Archive, Embedding, Pruning, load
from holdfast_agent.commands import run
from holdfast_agent.notes import Notes
from holdfast_agent.settings import LongTerm
from support.agent_fixture import BASE, AgentFixture, change_agent
from support.conversations import answer, call, reply, results, user
from support.embed_models import static_folder
from support.waiting import UNHURRIED

PORT = "The staging database listens on port 6543."
ZH = "测试数据库的端口是 6543。"


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    """An engine that searches by words."""
    return Engine.open(tmp_path / "memory", settings=BASE, background=False)


@pytest.mark.parametrize(
    ("fact", "question"), [(PORT, "On which port does the staging database listen?"), (ZH, "测试数据库用哪个端口?")]
)
def test_a_fact_is_recalled_in_every_session_of_its_agent_and_project(engine: Engine, fact: str, question: str) -> None:
    """Another agent and another project do not see it; the passages of the first session stay there."""
    engine.session("s1", project="shop").append([user(f"{fact} Oranges are nice."), reply("Noted.")])
    engine.session("s1", project="shop").remember(fact)
    found = engine.session("s2", project="shop").recall(question)
    assert [hit.fact.content for hit in found.facts] == [fact]
    assert found.hits == ()
    window = engine.session("s3", project="shop").assemble([user(question)], limit=50_000)
    assert fact in "\n".join(message.text for message in window.messages)
    assert engine.session("s2", project="other").recall(question).block == ""
    assert engine.session("s2", project="shop", agent="other").recall(question).block == ""


def test_passages_follow_cross_session(tmp_path: Path) -> None:
    """With `archive.cross_session` another session's passages are recalled too."""
    shared = msgspec.structs.replace(BASE, archive=Archive(cross_session=True))
    with Engine.open(tmp_path, settings=shared, background=False) as engine:
        engine.session("s1").append([user(PORT), reply("Noted.")])
        assert engine.session("s2").recall("On which port does the staging database listen?").hits


def test_a_fact_learned_in_another_session_is_superseded(engine: Engine) -> None:
    """What a later session decides takes the place of what an earlier one decided."""
    for session, port in (("s1", 6543), ("s2", 7000)):
        engine.session(session).append([user(f"We moved the staging database to port {port}."), reply("Noted.")])
        engine.session(session).learn()
        engine.work()
    found = engine.session("s3").recall("What is the port of the staging database?")
    assert len(found.facts) == 1
    assert "7000" in found.facts[0].fact.content


def test_a_fact_is_kept_once_for_all_sessions(engine: Engine) -> None:
    """The same fact in another session is the same fact."""
    assert engine.session("s1").remember(PORT).id == engine.session("s2").remember(PORT).id


@pytest.mark.parametrize(
    ("old", "new", "current"),
    [
        ("Decision: use Kafka for the event bus.", "Use NATS instead of Kafka.", 1),
        ("API_PORT=8080", "API_PORT=9090", 1),
        ("We moved the staging database to port 6543.", "We moved the staging database to port 7000.", 1),
        ("The staging database is in Frankfurt.", "The production database is in Dublin.", 2),
    ],
)
def test_a_remembered_correction_supersedes_like_one_in_a_message(
    engine: Engine, old: str, new: str, current: int
) -> None:
    """The old fact is no longer current; facts about something else are."""
    session = engine.session("s1")
    session.remember(old)
    session.remember(new)
    assert [fact.content for fact in session.facts()][-1] == new
    assert len(session.facts()) == current


def test_a_fact_of_the_same_slot_is_superseded(engine: Engine) -> None:
    """Subject and slot name what a fact is about, where its words do not."""
    session = engine.session("s1")
    session.remember("Deploys go to ams1", subject="deploy", slot="region")
    session.remember("From now on everything runs in fra2", subject="deploy", slot="region")
    assert [fact.content for fact in session.facts()] == ["From now on everything runs in fra2"]


def test_a_fact_does_not_hide_the_rest_of_its_message(engine: Engine) -> None:
    """The answer stands next to a fact that was learned, in a message that has left the window."""
    session, conversation = engine.session("s1"), list[Any]()
    asked = "The beta launch code is PURPLE-RHINO. Remember that the beta launch happens on May 5."
    for turn in range(16):
        text = f"Go on with batch {turn}. " + f"record {turn} stored; " * 80 if turn else asked
        conversation += [user(text)]
        session.assemble(conversation, limit=6_000, provider="openai_chat")
        conversation += [reply(f"Batch {turn} is in.")]
    session.learn()
    engine.work()
    conversation += [user("What is the beta launch code?")]
    window = session.assemble(conversation, limit=6_000, provider="openai_chat")
    assert session.facts()
    assert asked not in str(window.messages[1:-1])
    assert "PURPLE-RHINO" in str(window.request("openai_chat"))


def test_a_forgotten_fact_is_gone_from_every_session(engine: Engine) -> None:
    """Blocks of other sessions that quote it go with it, whether it or its whole session is forgotten."""
    question = "On which port does the staging database listen?"
    for whole in (False, True):
        fact = engine.session("s1").remember(PORT)
        other = engine.session(f"s2-{whole}")  # a question that was sent without a block gets none later
        assert PORT in str([message.text for message in other.assemble([user(question)]).messages])
        if whole:
            engine.session("s1").forget()
        else:
            engine.session("s1").forget_facts([fact.id])
        assert "6543" not in str(other.edits())
        assert PORT not in str([message.text for message in other.assemble([user(question)]).messages])


def test_facts_of_a_folder_are_recalled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`holdfast import FOLDER` of a memory-context folder: its facts are recalled in any session."""
    folder = tmp_path / "memory-context"
    folder.mkdir()
    line = {"id": "k1", "type": "config", "content": PORT, "timestamp": 1_790_000_000_000}
    (folder / "knowledge.jsonl").write_text(json.dumps(line) + "\n")
    (folder / "segments.jsonl").write_text("")
    with pytest.raises(SystemExit) as left:
        main(["import", str(folder), "--home", str(tmp_path / "memory")])
    assert not left.value.code, capsys.readouterr().err
    with Engine.open(tmp_path / "memory", settings=BASE, background=False) as engine:
        assert PORT in engine.session("any").recall("On which port does the staging database listen?").block


class TestChat:
    """The agent."""

    def test_a_fact_outlives_new(self, tmp_path: Path) -> None:
        """After `/new` the next question has the fact in its window."""
        agent = AgentFixture(tmp_path).agent(lambda _: "Yes.")
        agent.say("Hello.")
        run(agent, f"/memory add {PORT}")
        run(agent, "/new")
        agent.say("On which port does the staging database listen?")
        assert isinstance(agent.model, Scripted)
        assert PORT in "\n".join(message.text for message in agent.model.prompts[-1].messages)

    def test_the_tools_find_facts(self, tmp_path: Path) -> None:
        """`memory_recall` and `memory_search` give facts of every session."""
        agent = AgentFixture(tmp_path).agent(lambda _: "Yes.")
        agent.notes = Notes(agent.root, agent.settings, agent.sessions.notes_file, sessions=agent.sessions.folder)
        run(agent, f"/memory add {PORT}")
        run(agent, "/new")
        for name in ("memory_recall", "memory_search"):
            call = ToolCall(id="c", name=name, arguments={"query": "staging database port"})
            assert PORT in agent.tools.run(call).text

    def test_an_extraction_that_failed_is_shown(self, tmp_path: Path) -> None:
        """With the next turn, if the model fails three times in a row; what is left is read later."""

        def answer(prompt: Prompt) -> Answer:
            if prompt.schema:
                raise ModelBusyError("overloaded", model="scripted/test")
            return "## Goal\nTalk.\n" if not prompt.tools else "Yes. " + "more words " * 300

        fixture = AgentFixture(tmp_path)
        agent = fixture.agent(answer)
        for number in range(8):
            agent.say(f"Step {number}. " + "more words " * 300)
        agent.compact()
        start = agent.engine._memory.clock()
        for minutes in (0, 2, 5):
            agent.engine._memory.clock = partial(int, start + 60_000 * minutes)
            agent.engine.work()
        agent.say("And now?")
        text = "\n".join(fixture.view.notices)
        assert "Fact extraction failed 3 times (scripted/test: overloaded)" in text

    def test_auto_recall_off_leaves_memories_to_the_tool(self, tmp_path: Path) -> None:
        """A long-term memory is recalled by itself only with `long_term.auto_recall`."""
        for on in (True, False):
            settings = change_agent(BASE, long_term=LongTerm(auto_recall=on))
            fixture = AgentFixture(tmp_path, settings=settings)
            agent = fixture.agent(lambda _: "Yes.")
            agent.memories.store(PORT)
            agent.say("On which port does the staging database listen?")
            assert isinstance(agent.model, Scripted)
            assert (PORT in "\n".join(message.text for message in agent.model.prompts[-1].messages)) is on
            run(agent, "/new")
            agent.close()

    def test_a_memory_that_vectors_find_is_recalled(self, tmp_path: Path) -> None:
        """A question without a word of the memory recalls it: "pet" is near "cat" by the model's vectors."""
        words = ("[UNK]", "cat", "whiskers", "name", "pet", "weather")
        vectors = [[0, 0, 0.01], [1, 0, 0], [0.2, 0, 0], [0, 0.1, 0], [1, 0.1, 0], [0, 0, 1]]
        import numpy as np  # noqa: PLC0415 - for this alone

        folder = static_folder(tmp_path / "model", np.array(vectors, np.float32), words=words)
        asked = msgspec.structs.replace(BASE, embedding=Embedding(provider="local", model=str(folder)))
        fixture = AgentFixture(tmp_path, settings=asked)

        def answer(prompt: Prompt) -> Answer:
            if "Remember" in prompt.messages[-1].text:
                given = {"text": "My cat is called Whiskers"}
                return ScriptedReply(calls=(ToolCall(id="m", name="memory_store", arguments=given),))
            return "Yes."

        agent = fixture.agent(answer)
        agent.say("Remember it.")
        run(agent, "/new")
        agent.say("What is the name of my pet?")
        assert isinstance(agent.model, Scripted)
        assert "My cat is called Whiskers" in "\n".join(m.text for m in agent.model.prompts[-1].messages)
        run(agent, "/new")
        agent.say("How is the weather?")
        assert "Whiskers" not in "\n".join(m.text for m in agent.model.prompts[-1].messages)


OFFERED = [
    (),
    ({"name": "bash", "input_schema": {"type": "object"}},),
    ({"name": "archive_get", "input_schema": {"type": "object"}},),
    ({"type": "function", "function": {"name": "mcp__holdfast__archive_get", "parameters": {"type": "object"}}},),
]


@pytest.mark.variants
@pytest.mark.parametrize("tools", OFFERED)
@pytest.mark.parametrize("mode", ["aggressive", "adaptive"])
def test_a_pruned_result_names_a_tool_only_if_there_is_one(
    tmp_path: Path, mode: Literal["aggressive", "adaptive"], tools: Sequence[Mapping[str, Any]]
) -> None:
    """Cleared or shortened, the note names `archive_get` where the request has it, as the host calls it."""
    settings = msgspec.structs.replace(BASE, pruning=Pruning(mode=mode, min_prunable_tool_chars=0))
    names = [tool.get("function", tool)["name"] for tool in tools]
    messages = [user("Run them all.")]
    with Engine.open(tmp_path, settings=settings, background=False) as engine:
        for number in range(12):
            messages += [
                reply("", call(f"c{number}")),
                results(answer(f"c{number}", f"line {number} of output\n" * 600)),
            ]
            window = engine.session("s").assemble([*messages, reply("Next.")], limit=60_000, tools=tools)
    shown = "\n".join(result.text for message in window.messages for result in message.results)
    assert "holdfast id" in shown
    assert ("brings it back" in shown) is any(name.endswith("archive_get") for name in names)
    assert ("mcp__holdfast__archive_get brings" in shown) is ("mcp__holdfast__archive_get" in names)


def test_the_agent_has_the_tool_that_its_window_names(tmp_path: Path) -> None:
    """In chat a cleared result names `archive_get`, and the tool shows it whole."""
    settings = msgspec.structs.replace(BASE, pruning=Pruning(mode="aggressive", keep_last_assistants=1))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "big.txt").write_text("a line of the file\n" * 300)
    read = ScriptedReply(calls=(ToolCall(id="r", name="read", arguments={"path": "big.txt"}),))
    agent = AgentFixture(tmp_path, settings=settings).agent([read, "Read.", "Fine.", "Good."])
    for words in ("Read it.", "And?", "So?"):
        agent.say(words)
    shown = "\n".join(r.text for m in agent.last_window().messages for r in m.results)
    number = shown.partition("holdfast id ")[2].partition(":")[0]
    assert "archive_get brings it back" in shown
    found = agent.tools.run(ToolCall(id="g", name="archive_get", arguments={"id": int(number)})).text
    assert "a line of the file" in found


def test_no_memory_plugin_means_no_recall(tmp_path: Path) -> None:
    """`plugins.slots.memory: "none"` of openclaw.json turns recall off, and the report gives the reason."""
    file = tmp_path / "openclaw.json"
    for slot, recalled in (("memory-core", True), ("none", False)):
        file.write_text(json.dumps({"plugins": {"slots": {"memory": slot}}}))
        unhurried = {"deadline_ms": UNHURRIED.deadline_ms}
        known = load(files=[file], environ={}, embedding={"provider": "none"}, recall=unhurried).settings
        with Engine.open(tmp_path / slot, settings=known, background=False) as engine:
            engine.session("s1").remember(PORT)
            window = engine.session("s2").assemble([user("On which port does the staging database listen?")])
        assert (PORT in str([message.text for message in window.messages])) is recalled
