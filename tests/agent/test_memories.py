"""Long-term memories: kept for every session, found, forgotten for good."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.embed import Choice, Purpose, Space
from holdfast.embed.base import Floats
from holdfast.engine import Engine
from holdfast.errors import EmbeddingError
from holdfast.memory.facts import LONG_TERM
from holdfast.messages import ToolCall
from holdfast.settings import Embedding
from holdfast.store.base import Select
from holdfast_agent.memories import Memories
from holdfast_agent.settings import AgentSettings, ChatSettings, LongTerm
from holdfast_agent.toolbox import Toolbox
from holdfast_agent.tools import memory_tools
from support.agent_fixture import AgentFixture, change_agent


@pytest.fixture
def memories(tmp_path: Path) -> Iterator[Memories]:
    """The memories of an agent that searches by words."""
    settings = ChatSettings(
        embedding=Embedding(provider="none"), agent=AgentSettings(long_term=LongTerm(auto_capture=True))
    )
    with Engine.open(tmp_path, settings=settings) as engine:
        yield Memories(engine, settings)


def use(memories: Memories, name: str, **arguments: Any) -> str:
    """What a tool says."""
    return Toolbox(functions=memory_tools(memories)).run(ToolCall(id="c", name=name, arguments=arguments)).text


def change(memories: Memories, **switches: Any) -> Memories:
    """Open the same memories with other switches."""
    long_term = msgspec.structs.replace(memories.settings.agent.long_term, **switches)
    return Memories(memories.engine, change_agent(memories.settings, long_term=long_term))


class TestTools:
    """What the model sees."""

    def test_stored_and_recalled(self, memories: Memories) -> None:
        """A memory is found by its words, with its category and how well it fits."""
        text = "Anna prefers tea in the morning"
        assert use(memories, "memory_store", text=text, category="preference") == f'Stored: "{text}"'
        use(memories, "memory_store", text="数据库用 PostgreSQL", category="decision")
        assert (
            use(memories, "memory_recall", query="what tea?") == f"Found 1 memories:\n\n1. [preference] {text} (100%)"
        )
        assert "[decision] 数据库用 PostgreSQL" in use(memories, "memory_recall", query="数据库")
        assert use(memories, "memory_recall", query="weather") == "No relevant memories found."

    def test_the_same_words_are_kept_once(self, memories: Memories) -> None:
        """Case and punctuation make no new memory; a "not" does."""
        use(memories, "memory_store", text="We deploy on Fridays.")
        again = use(memories, "memory_store", text="we deploy on fridays")
        assert again == 'Similar memory already exists: "We deploy on Fridays."'
        assert use(memories, "memory_store", text="We do not deploy on Fridays.").startswith("Stored")
        assert len(memories.rows()) == 2

    def test_nothing_cannot_be_stored(self, memories: Memories) -> None:
        """Blank text is an error that includes the fix."""
        assert "give the fact in a sentence" in use(memories, "memory_store", text="  ")

    def test_a_long_text_is_shown_short(self, memories: Memories) -> None:
        """The answer names the beginning; all of it is kept."""
        assert use(memories, "memory_store", text="word " * 50).endswith('..."')
        assert len(memories.rows()[0].content) > 200

    def test_forgotten_by_words(self, memories: Memories) -> None:
        """One memory that the words tell for sure goes at once; of several the ids are shown."""
        use(memories, "memory_store", text="The cat is called Momo")
        use(memories, "memory_store", text="The dog is called Rex")
        shown = use(memories, "memory_forget", query="called")
        assert shown.startswith("Found 2 candidates. Specify memoryId:\n- [")
        assert use(memories, "memory_forget", query="the cat Momo") == 'Forgotten: "The cat is called Momo"'
        assert use(memories, "memory_forget", query="the cat Momo") == "No matching memories found."
        assert [each.content for each in memories.rows()] == ["The dog is called Rex"]

    def test_forgotten_by_id(self, memories: Memories) -> None:
        """An id, or the beginning of one that no other has, is enough."""
        for text in ("The cat is called Momo", "The dog is called Rex"):
            memories.store(text)
        first, second = memories.rows()
        assert use(memories, "memory_forget", memoryId=first.id) == f"Memory {first.id} forgotten."
        assert "there is no memory" in use(memories, "memory_forget", memoryId=first.id)
        assert use(memories, "memory_forget", memoryId=second.id[:8]) == f"Memory {second.id} forgotten."
        assert use(memories, "memory_forget").endswith("Provide query or memoryId.")

    def test_an_id_that_is_not_clear(self, memories: Memories) -> None:
        """The beginning that several share forgets none of them."""
        for text in ("one thing to keep", "another thing to keep"):
            memories.store(text)
        memories.engine._memory.new_id = lambda: memories.rows()[0].id[:8] + "-twin"
        memories.store("a third thing to keep")
        assert use(memories, "memory_forget", memoryId=memories.rows()[0].id[:8]).startswith("Found 2 candidates")
        assert len(memories.rows()) == 3


class TestKeeping:
    """Where memories live."""

    def test_details_are_kept(self, memories: Memories) -> None:
        """The category is the subject of the fact; the importance is recorded, within its bounds."""
        use(memories, "memory_store", text="The vault code is on the fridge", importance=7, category="entity")
        (kept,) = memories.rows()
        (record,) = memories.memory.store.read_records(Select(scope=memories.scope), kind=LONG_TERM)
        assert (kept.subject, record.data["importance"]) == ("entity", 1.0)

    def test_they_belong_to_the_agent(self, memories: Memories) -> None:
        """Every session of the agent sees them, no other agent does, and other facts are not among them."""
        memories.store("The cat is called Momo")
        memories.engine.session("s1").remember("a fact of one session")
        assert len(memories.rows()) == 1
        assert Memories(memories.engine, memories.settings, "other").rows() == []
        assert any(fact.content == "The cat is called Momo" for fact in memories.engine.session("s9").facts())

    def test_secrets_are_masked(self, memories: Memories) -> None:
        """A key that is to be remembered is not."""
        kept, _ = memories.store("remember my key ghp_R7tKx2mQ9vLp4WzN8cYb3HdJ6fGsA1eUoT5i")
        assert "ghp_R7tKx2" not in kept.content

    def test_facts_that_others_put_there_are_memories_too(self, memories: Memories) -> None:
        """A fact of the agent without a category has the usual one."""
        memories.engine._memory.remember("kept by hand, of no session", scope=memories.scope)
        assert "[other] kept by hand" in use(memories, "memory_recall", query="kept by hand")


class Near:
    """An embedder to which everything about pets is alike; it may be out of order."""

    space = Space(name="near", dimension=2, digest="0")

    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:  # noqa: ARG002 - one for both
        import numpy as np  # noqa: PLC0415 - for this alone

        if self.broken:
            raise EmbeddingError("out of order", provider="near")
        return np.array([[1.0, 0.0] if "cat" in text or "pet" in text else [0.0, 1.0] for text in texts], np.float32)


class TestByMeaning:
    """Memories with vectors."""

    def test_other_words_find_a_memory(self, memories: Memories) -> None:
        """What is alike is found without a shared word; what is not, is not."""
        memories.engine._memory.choice = Choice(embedder=Near(), reasons=())
        memories.store("Momo is a cat")
        assert [each.score for each in memories.recall("any pets?")] == [1.0]
        assert memories.recall("weather") == []
        assert Memories(memories.engine, memories.settings, "other").recall("any pets?") == []

    def test_an_embedder_out_of_order_leaves_the_words(self, memories: Memories) -> None:
        """Search by words continues."""
        memories.engine._memory.choice = Choice(embedder=Near(broken=True), reasons=())
        memories.store("Momo is a cat")
        assert len(memories.recall("Momo")) == 1


class TestByThemselves:
    """Capture and recall without a tool call."""

    def test_captured(self, memories: Memories) -> None:
        """What a user says to remember is kept once; what was new is returned."""
        messages = ["Remember that the cat is called Momo", "what's up?"]
        assert [kept.content for kept in memories.capture(messages)] == [messages[0]]
        assert memories.capture(messages) == []

    @pytest.mark.parametrize("off", [{"auto_capture": False}, {"enabled": False}])
    def test_not_captured_without_leave(self, memories: Memories, off: dict[str, bool]) -> None:
        """Either switch turns it off."""
        assert change(memories, **off).capture(["Remember that the cat is called Momo"]) == []

    def test_those_that_may_be_recalled(self, memories: Memories) -> None:
        """The best three, best first."""
        for number in range(5):
            memories.store(f"cat number {number} likes fish")
        found = memories.recall_facts("which cat likes fish?")
        assert len(found) == 3
        assert all("likes fish" in row.content for row in found)

    def test_no_more_than_is_allowed(self, memories: Memories) -> None:
        """What does not fit is left out; too short a prompt, or the switch, gives none."""
        memories.store("fish " * 30)
        assert memories.recall_facts("fish fish fish")
        assert memories.recall_facts("fish") == []
        assert change(memories, recall_max_chars=100).recall_facts("fish fish fish") == []
        assert change(memories, auto_recall=False, recall_max_chars=1_000).recall_facts("fish fish fish") == []


def test_a_forgotten_memory_is_not_quoted_in_any_project(tmp_path: Path) -> None:
    """Memories belong to no project: the recall block of a conversation in the project of its folder goes as well."""
    agent = AgentFixture(tmp_path).agent(["Momo."])
    memory, _ = agent.memories.store("The cat of the user is called Momo")
    agent.say("What is the cat of the user called?")
    assert agent.session.scope.project == str(tmp_path / "work")
    assert "called Momo" in str(agent.session.edits())
    assert agent.memories.forget(memory.id)
    assert "called Momo" not in str(agent.session.edits())
    assert agent.session.facts() == []
    agent.close()
