"""Long-term memories in a store of their own, and with an embedder of their own."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.errors import StorageError
from holdfast.messages import ToolCall
from holdfast.models.scripted import Scripted, ScriptedReply
from holdfast.settings import Embedding, Secret
from holdfast_agent.commands import run
from holdfast_agent.memories import Memories, embedding_settings
from holdfast_agent.settings import AgentSettings, ChatSettings, LongTerm, LongTermEmbedding, load
from support.agent_fixture import BASE, AgentFixture, change_agent
from support.embed_models import Endpoint, Reply, endpoint

KEY = "sk-canary-0123456789abcdef"
MOMO = "The cat of the user is called Momo"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing stands between a test and its server."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def settings(**long_term: Any) -> ChatSettings:
    """Settings of an agent whose archive is searched by words."""
    return change_agent(BASE, long_term=LongTerm(**long_term))


def open_memories(engine: Engine, agent: str = "main") -> Memories:
    """Open the memories of an agent, with the settings that the engine was opened with."""
    assert isinstance(engine.settings, ChatSettings)
    return Memories(engine, engine.settings, agent)


@pytest.fixture
def memories(tmp_path: Path) -> Iterator[Memories]:
    """The memories of an agent, in a folder of their own."""
    with Engine.open(tmp_path / "home", settings=settings(db_path=str(tmp_path / "own")), background=False) as engine:
        kept = open_memories(engine)
        yield kept
        kept.close()


@pytest.fixture
def fixture(tmp_path: Path) -> AgentFixture:
    """An agent that keeps its memories apart from the engine."""
    return AgentFixture(tmp_path, settings=settings(db_path=str(tmp_path / "own")))


def holds(folder: Path, text: str) -> bool:
    """Return whether any file in a folder has these words in it."""
    return any(text.encode() in file.read_bytes() for file in folder.rglob("*") if file.is_file())


class TestStore:
    def test_it_is_opened_when_it_is_needed(self, memories: Memories, tmp_path: Path) -> None:
        """No file is made before the first use, and none is held after the last."""
        assert not (tmp_path / "own").exists()
        memories.store(MOMO)
        assert (tmp_path / "own" / "holdfast.db").is_file()
        assert memories.memory is not memories.engine._memory
        memories.close()
        memories.close()
        assert [each.content for each in memories.rows()] == [MOMO]

    def test_the_archive_does_not_contain_it(self, memories: Memories, tmp_path: Path) -> None:
        """Memories rest there and nowhere else, with all that is known of them."""
        memories.store(MOMO, category="entity", importance=0.9)
        assert memories.engine.session("s").facts() == []
        assert not holds(tmp_path / "home", "Momo")
        (found,) = memories.recall("the cat Momo")
        assert (found.fact.content, found.fact.subject) == (MOMO, "entity")

    def test_other_agents_and_processes_share_it(self, memories: Memories) -> None:
        """Another engine finds what this one kept; another agent does not."""
        memories.store(MOMO)
        again = open_memories(memories.engine)
        assert [each.content for each in again.rows()] == [MOMO]
        again.close()
        other = open_memories(memories.engine, "other")
        assert other.rows() == []
        other.close()

    def test_threads_open_it_once(self, memories: Memories) -> None:
        """However many ask at the same time."""
        with ThreadPoolExecutor(8) as pool:
            opened = list(pool.map(lambda _: memories.memory, range(32)))
        assert len({id(each) for each in opened}) == 1

    def test_secrets_are_masked(self, memories: Memories, tmp_path: Path) -> None:
        """As everywhere."""
        memories.store("remember my key ghp_R7tKx2mQ9vLp4WzN8cYb3HdJ6fGsA1eUoT5i")
        memories.close()
        assert not holds(tmp_path / "own", "ghp_R7tKx2")

    @pytest.mark.parametrize("name", ["home", "home/holdfast.db"])
    def test_the_archive_itself_may_be_named(self, tmp_path: Path, name: str) -> None:
        """It is not opened twice, and closing the memories leaves it open."""
        with Engine.open(
            tmp_path / "home", settings=settings(db_path=str(tmp_path / name)), background=False
        ) as engine:
            kept = open_memories(engine)
            assert kept.memory is engine._memory
            kept.close()
            kept.store(MOMO)
            assert [fact.content for fact in engine.session("s").facts()] == [MOMO]

    def test_a_place_that_is_none(self, tmp_path: Path) -> None:
        """An address is refused in words, and no folder of that name is made."""
        known = settings(db_path="s3://bucket/memories")
        with (
            Engine.open(tmp_path, settings=known, background=False) as engine,
            pytest.raises(StorageError, match=r"long_term\.db_path must be a folder"),
        ):
            open_memories(engine).rows()
        assert not Path("s3:").exists()


class TestAgent:
    def test_kept_recalled_shown_and_forgotten(self, fixture: AgentFixture) -> None:
        """Across conversations, as if they were in the archive; what is forgotten is in no file any more."""
        store = ScriptedReply(calls=(ToolCall(id="c", name="memory_store", arguments={"text": MOMO}),))
        agent = fixture.agent([store, "Noted.", "As you know."])
        agent.say("Please keep in mind what the pet is called.")
        agent.reset()
        agent.say("What is the cat of the user called?")
        assert isinstance(agent.model, Scripted)
        assert "called Momo" in agent.model.prompts[-1].messages[-1].text
        assert "called Momo" in str(agent.session.edits())
        line = run(agent, "/memory show").text.splitlines()[-1]
        assert line.startswith(f"- [config] {MOMO}  (")
        status = run(agent, "/status").text.splitlines()[-1]
        assert status == f"Long-term: 1 memories · by words alone · {fixture.folder / 'own' / 'holdfast.db'}"
        name = line.rsplit("(", 1)[1].rstrip(")")
        assert run(agent, f"/memory forget {name}").text == "Forgotten: 1."
        assert "Nothing is called" in run(agent, f"/memory forget {name}").text
        assert run(agent, "/memory show").text.endswith("No facts yet.")
        assert "called Momo" not in str(agent.session.edits())
        agent.close()
        assert not holds(fixture.folder / "own", "called Momo")

    def test_user_messages_are_captured_there(self, fixture: AgentFixture) -> None:
        """With `auto_capture` on."""
        long_term = msgspec.structs.replace(fixture.settings.agent.long_term, auto_capture=True)
        fixture.settings = change_agent(fixture.settings, long_term=long_term)
        agent = fixture.agent(["Noted."])
        agent.say("Remember that the cat is called Momo.")
        assert [each.content for each in agent.memories.rows()] == ["Remember that the cat is called Momo."]
        agent.close()
        assert holds(fixture.folder / "own", "called Momo")

    def test_a_store_that_fails_stops_nothing(self, fixture: AgentFixture) -> None:
        """The user gets a notice, the conversation continues, and the facts of the archive are shown all the same."""
        (fixture.folder / "own").write_text("in the way")
        agent = fixture.agent(["Hello!"])
        run(agent, "/memory add Deploys are on Fridays.")
        assert agent.say("Hello there.").text == "Hello!"
        assert any(notice.startswith("Memory failed") for notice in fixture.view.notices)
        assert "Deploys are on Fridays." in run(agent, "/memory show").text
        assert "Model: scripted/test" in run(agent, "/status").text
        assert "Nothing is called x" in run(agent, "/memory forget x").text
        agent.close()

    @pytest.mark.parametrize("off", [{}, {"enabled": False, "db_path": "own"}])
    def test_what_is_not_set_or_off_is_not_spoken_of(self, tmp_path: Path, off: dict[str, Any]) -> None:
        """By default memories are in the archive, which is told already; without leave nothing is opened."""
        agent = AgentFixture(tmp_path, settings=settings(**off)).agent([])
        assert "Long-term" not in run(agent, "/status").text
        assert run(agent, "/memory show").text.endswith("No facts yet.")
        assert agent.memories.memory is agent.engine._memory
        agent.close()


class TestWanted:
    USUAL = Embedding(provider="voyage", model="v", api_key=Secret("usual"), dimension=8, batch_size=3)

    def asked(self, usual: Embedding, **given: Any) -> Embedding:
        """What such settings ask for."""
        agent = AgentSettings(long_term=LongTerm(embedding=LongTermEmbedding(**given)))
        return embedding_settings(ChatSettings(embedding=usual, agent=agent))

    def test_what_is_left_open_is_as_usual(self) -> None:
        """One change changes nothing else."""
        found = self.asked(self.USUAL, model="w", dimensions=4)
        assert found == msgspec.structs.replace(self.USUAL, model="w", dimension=4)

    def test_another_provider_gets_nothing_of_the_usual_one(self) -> None:
        """Neither its key nor its model nor its address; habits stay."""
        found = self.asked(msgspec.structs.replace(self.USUAL, base_url="http://h"), provider="openai")
        assert found == Embedding(provider="openai", batch_size=3)

    def test_a_key_alone_is_for_openai(self) -> None:
        """As in the plugin; unless a provider or an address is set, whose key it is then."""
        assert self.asked(Embedding(), api_key=Secret("k")).provider == "openai"
        assert self.asked(self.USUAL, api_key=Secret("k")).provider == "voyage"
        assert self.asked(Embedding(), api_key=Secret("k"), base_url="http://h").provider == "auto"
        assert self.asked(Embedding(), api_key=Secret("k"), provider="auto").provider == "auto"
        assert self.asked(Embedding(), model="m").provider == "auto"


def pets(body: Any) -> Any:
    """Vectors in which cats and pets are the same."""
    rows = [[1.0, 0.0] if "cat" in text or "pet" in text else [0.0, 1.0] for text in body["input"]]
    return {"data": [{"index": place, "embedding": row} for place, row in enumerate(rows)]}


class TestEmbedder:
    def opened(self, folder: Path, server: Endpoint) -> Engine:
        """An engine whose memories are embedded by the server, with a key from the environment."""
        own = {"provider": "openai", "model": "m", "api_key": "${PET_KEY}", "base_url": server.url, "dimensions": 2}
        agent = {"long_term": {"embedding": own}}
        known = load(environ={"PET_KEY": KEY}, embedding={"provider": "none"}, agent=agent).settings
        return Engine.open(folder, settings=known, background=False)

    def test_memories_are_found_by_it(self, tmp_path: Path) -> None:
        """Other words find a memory, each text is sent once, and the archive is embedded by no one."""
        with endpoint(Reply(body=pets)) as server, self.opened(tmp_path, server) as engine:
            kept = open_memories(engine)
            kept.store("Momo is a cat")
            assert server.seen == []
            assert [each.fact.content for each in kept.recall("any pets?")] == ["Momo is a cat"]
            assert kept.recall("weather") == []
            assert [seen.body["input"] for seen in server.seen] == [["any pets?", "Momo is a cat"], ["weather"]]
            assert server.seen[0].headers["Authorization"] == f"Bearer {KEY}"
            assert (server.seen[0].body["model"], server.seen[0].body["dimensions"]) == ("m", 2)
            assert engine._memory.embedder is None
            assert kept.failure == ""

    def test_one_that_fails_is_reported_once(self, tmp_path: Path) -> None:
        """Words find what they can, and the user hears why it is no more."""
        fixture = AgentFixture(tmp_path)
        with endpoint(Reply(status=401)) as server:
            own = LongTermEmbedding(provider="openai", api_key=Secret(KEY), base_url=server.url, dimensions=2)
            fixture.settings = settings(embedding=own)
            agent = fixture.agent(["Momo.", "Still Momo."])
            agent.memories.store(MOMO)
            agent.say("What is the cat of the user called?")
            agent.say("What is the cat of the user called, again?")
        (notice,) = fixture.view.notices
        assert notice.startswith("Long-term memories are found by their words alone:")
        assert KEY not in notice
        assert isinstance(agent.model, Scripted)
        assert "called Momo" in agent.model.prompts[0].messages[-1].text
        agent.close()

    def test_one_that_is_missing_is_reported(self, tmp_path: Path) -> None:
        """A model that no one has leaves the words, and gives the reason; `none` was asked for, and is no trouble."""
        lost = LongTermEmbedding(provider="onnx", model=str(tmp_path / "none"))
        for embedding, has_failed in ((lost, True), (LongTermEmbedding(provider="none"), False)):
            with Engine.open(tmp_path, settings=settings(embedding=embedding), background=False) as engine:
                kept = open_memories(engine)
                kept.store(MOMO)
                assert len(kept.recall("the cat Momo")) == 1
                assert ("no model at" in kept.failure, bool(kept.failure)) == (has_failed, has_failed)

    def test_no_remote_provider_is_used_by_default(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A key in the environment is no leave to send memories anywhere."""
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        known = settings(embedding=LongTermEmbedding(dimensions=8))
        known = msgspec.structs.replace(known, embedding=Embedding(provider="auto", model=str(tmp_path / "none")))
        with Engine.open(tmp_path, settings=known, background=False) as engine:
            assert open_memories(engine).choice.embedder is None
