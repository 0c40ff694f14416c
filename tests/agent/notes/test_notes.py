"""Search over notes: kept up to date, by words and by meaning, with every failure said out loud."""

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from holdfast.embed import Choice, Purpose, Space
from holdfast.embed.base import Floats
from holdfast.embed.remote import RemoteEmbedder
from holdfast.errors import EmbeddingError
from holdfast.messages import Message, Text
from holdfast.settings import Embedding
from holdfast_agent.note_files import NoteResults
from holdfast_agent.notes import Notes
from holdfast_agent.settings import AgentSettings, ChatSettings, MemorySearch
from support.embed_models import static_folder
from support.session_files import begin, says

NOW = 1_770_732_000_000
PETS = ("cat", "kitten", "pet", "猫")


class Pets:
    """An embedder that knows pets from everything else, and counts what it is asked."""

    def __init__(self, name: str = "pets", *, broken: bool = False) -> None:
        self.space = Space(name=name, dimension=2, digest=name)
        self.broken = broken
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:
        if self.broken:
            raise EmbeddingError("out of order", provider=self.space.name)
        self.asked += [text for text in texts if kind == "passage"]
        rows = [[1.0, 0.0] if any(pet in text for pet in PETS) else [0.1, 1.0] for text in texts]
        return np.array(rows, np.float32)


@dataclass
class World:
    """A workspace and its notes; time is set by hand."""

    folder: Path
    settings: ChatSettings
    now: int = NOW

    def __post_init__(self) -> None:
        self.root = self.folder / "ws"
        self.root.mkdir(exist_ok=True)
        self.notes = self.open()

    def open(self, **embedders: Pets) -> Notes:
        """Open the index again; `auto` and `hash` are the providers that the settings may name."""
        sessions = self.folder / "sessions"
        notes = Notes(self.root, self.settings, self.folder / "index" / "notes.db", sessions, lambda: self.now)
        if embedders:

            def choose(asked: Embedding) -> Choice:
                embedder = embedders.get(asked.provider)
                return Choice(embedder=embedder, reasons=(f"{asked.provider}: not here",))

            notes.embedders.choose = choose
        return notes

    def write(self, name: str, text: str, *, age: int = 60_000) -> None:
        """Write a note that was changed so many milliseconds ago."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        at = (self.now - age) * 1_000_000
        os.utime(path, ns=(at, at))


def settings(**search: Any) -> ChatSettings:
    """Settings of a search by words, or as given."""
    section = msgspec.convert({"provider": "none", **search}, MemorySearch)
    return ChatSettings(agent=AgentSettings(memory_search=section), embedding=Embedding(provider="none"))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two daily notes, searched by words."""
    made = World(tmp_path, settings())
    made.write("memory/2026-02-09.md", "# Mon\n\n- we deploy with Kamal\n- 数据库是 PostgreSQL\n")
    made.write("memory/2026-02-10.md", "# Tue\n\n- lunch with Anna\n- billing retries five times\n")
    yield made
    made.notes.close()


def paths(found: NoteResults) -> list[str]:
    """Where the hits are."""
    return [hit.path for hit in found.hits]


class TestWords:
    """Search without vectors."""

    def test_a_hit_has_its_place(self, world: World) -> None:
        """Path, lines, words, score and source are told, and that words alone decided."""
        found = world.notes.search("how do we deploy?")
        (hit,) = found.hits
        assert (hit.path, hit.start, hit.end, hit.kind) == ("memory/2026-02-09.md", 1, 4, "memory")
        assert "Kamal" in hit.snippet
        assert 0 < hit.score <= 1
        assert (found.provider, found.mode, found.fallback) == ("none", "words", None)

    def test_chinese(self, world: World) -> None:
        """A question without spaces finds its note."""
        assert paths(world.notes.search("数据库用什么")) == ["memory/2026-02-09.md"]

    def test_nothing_is_found(self, world: World) -> None:
        """A question that no word of stands anywhere has no hits, nor has an empty one."""
        assert world.notes.search("quantum chromodynamics").hits == ()
        assert world.notes.search("  ").hits == ()

    def test_limits(self, world: World) -> None:
        """The most hits and the least score are the caller's, else the settings'."""
        for number in range(9):
            world.write(f"memory/n{number}.md", f"billing is topic {number}")
        assert len(world.notes.search("billing").hits) == 6
        assert len(world.notes.search("billing", max_results=2).hits) == 2
        assert world.notes.search("billing zebra elephant", min_score=0.9).hits == ()
        assert world.notes.search("billing zebra elephant").hits

    def test_the_snippet_holds_what_was_asked(self, world: World) -> None:
        """Of a long stretch the part with the question's words is shown."""
        text = (
            "\n".join(f"- filler number {number} about nothing at all" for number in range(25))
            + "\n- the zebra code is 4711"
        )
        world.write("MEMORY.md", text)
        (hit,) = world.notes.search("zebra code").hits
        assert "4711" in hit.snippet
        assert len(hit.snippet) <= 700


class TestUpToDate:
    """The index follows the files."""

    def test_changes_count_before_the_next_search(self, world: World) -> None:
        """New, changed and deleted notes are seen at once."""
        assert world.notes.start() == ["memory/2026-02-09.md", "memory/2026-02-10.md"]
        world.write("memory/2026-02-09.md", "we deploy with Dokku", age=5)
        (hit,) = world.notes.search("deploy").hits
        assert "Dokku" in hit.snippet
        (world.root / "memory" / "2026-02-09.md").unlink()
        assert world.notes.search("deploy").hits == ()
        assert world.notes.sync() == []

    def test_a_touched_note_is_not_cut_again(self, world: World) -> None:
        """The time changes, the words do not: nothing changed."""
        world.notes.start()
        world.write("memory/2026-02-10.md", "# Tue\n\n- lunch with Anna\n- billing retries five times\n", age=1)
        assert world.notes.sync() == []
        assert world.notes.memory.stats().messages == 2

    def test_watching_waits_until_a_note_is_quiet(self, world: World) -> None:
        """A file that was written just now is taken in when it has rested."""
        world.write("MEMORY.md", "fresh", age=100)
        assert "MEMORY.md" not in world.notes.poll()
        world.now += 2_000
        assert world.notes.poll() == ["MEMORY.md"]

    @pytest.mark.parametrize("switch", ["watch", "on_session_start", "on_search"])
    def test_each_look_has_its_switch(self, tmp_path: Path, switch: str) -> None:
        """Switched off, that look sees nothing; the others still do."""
        world = World(tmp_path, settings(sync={switch: False}))
        world.write("MEMORY.md", "zebra")
        looks = {"watch": world.notes.poll, "on_session_start": world.notes.start}
        if switch == "on_search":
            assert world.notes.search("zebra").hits == ()
            assert world.notes.start()
        else:
            assert looks[switch]() == []
        assert world.notes.search("zebra").hits
        world.notes.close()

    def test_two_processes_share_an_index(self, world: World) -> None:
        """What one has indexed the other finds, and both see the same files."""
        with world.open() as other:
            world.notes.start()
            assert other.sync() == []
            world.write("MEMORY.md", "zebra", age=1)
            assert paths(world.notes.search("zebra")) == ["MEMORY.md"]
            assert paths(other.search("zebra")) == ["MEMORY.md"]

    def test_threads_share_notes(self, world: World) -> None:
        """Searches at the same time all find what is there."""
        hits: list[int] = []
        threads = [
            threading.Thread(target=lambda: hits.append(len(world.notes.search("deploy").hits))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert hits == [1] * 8

    def test_other_chunks_are_another_index(self, world: World) -> None:
        """When the size of chunks changes, everything is cut again."""
        world.notes.start()
        world.notes.close()
        world.settings = settings(chunking={"tokens": 5, "overlap": 1})
        with world.open() as notes:
            assert len(notes.start()) == 2
            assert notes.search("deploy").hits[0].start == 3

    def test_a_note_that_cannot_be_read(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """The others are searched, and the problem is told."""

        def refuse(_path: Path) -> bytes:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "read_bytes", refuse)
        assert world.notes.search("deploy").warnings == (
            "memory/2026-02-09.md: Permission denied",
            "memory/2026-02-10.md: Permission denied",
        )


class TestDamage:
    """An index is only an index."""

    def test_a_damaged_index_is_made_anew(self, world: World) -> None:
        """What is no database is thrown away, and everything is found again."""
        world.notes.close()
        world.notes.file.parent.mkdir(exist_ok=True)
        world.notes.file.write_bytes(b"no database at all" * 100)
        found = world.notes.search("deploy")
        assert paths(found) == ["memory/2026-02-09.md"]
        assert "built again" in found.warnings[0]

    def test_a_place_that_cannot_be_used(self, world: World) -> None:
        """Without a disk the index is temporary, and says so."""
        world.notes.close()
        (world.folder / "index").rmdir() if (world.folder / "index").exists() else None
        (world.folder / "index").write_text("a file", "utf-8")
        found = world.notes.search("deploy")
        assert paths(found) == ["memory/2026-02-09.md"]
        assert "is temporary" in found.warnings[0]

    def test_a_folder_in_its_place(self, world: World) -> None:
        """What SQLite cannot open is no reason to fail either."""
        world.notes.close()
        world.notes.file.mkdir(parents=True)
        assert "is temporary" in world.notes.search("deploy").warnings[0]

    def test_an_index_that_cannot_be_written(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """A file that may only be read is left alone; a temporary index answers, and says so."""
        world.notes.start()
        world.notes.close()
        monkeypatch.setattr(os, "access", lambda *_, **__: False)
        found = world.notes.search("deploy")
        assert paths(found) == ["memory/2026-02-09.md"]
        assert "is temporary" in found.warnings[0]

    def test_an_older_index_is_made_anew(self, world: World) -> None:
        """A database with other tables is no index of ours."""
        world.notes.file.parent.mkdir()
        with closing(sqlite3.connect(world.notes.file)) as connection:
            connection.execute("CREATE TABLE chunks(text TEXT)")
        assert paths(world.notes.search("deploy")) == ["memory/2026-02-09.md"]


class TestMeaning:
    """Search with vectors."""

    def test_a_script_that_the_model_does_not_know(self, tmp_path: Path) -> None:
        """A static table says nothing about Chinese; there words decide, though the vectors are there."""
        model = str(static_folder(tmp_path / "model"))
        world = World(tmp_path, settings(provider="static", local={"model_path": model}))
        world.write("MEMORY.md", "revenue of the quarter")
        world.write("memory/x.md", "数据库是 PostgreSQL")
        with world.open() as notes:
            found = notes.search("数据库")
            assert (paths(found)[0], found.hits[0].score, found.mode) == ("memory/x.md", 1.0, "hybrid")
            assert paths(notes.search("quarter")) == ["MEMORY.md"]
            assert notes.search("4711 !?").hits == ()

    def test_what_is_taken_automatically_has_a_name(self, tmp_path: Path) -> None:
        """With `auto` the result says whether text stayed here or who got it."""
        world = World(tmp_path, settings(provider="auto"))
        world.settings = msgspec.structs.replace(world.settings, embedding=Embedding(provider="auto"))
        remote = RemoteEmbedder("ollama", model="nomic-embed-text", base_url="http://localhost:1")
        choices = {"local": Choice(embedder=Pets(), reasons=()), "ollama": Choice(embedder=remote, reasons=())}
        for name, choice in choices.items():
            notes = world.open()
            notes.embedders.choose = lambda _: choice  # noqa: B023 - used before the next one
            assert notes.embedders.provider == name
            notes.close()

    def test_other_words_find_a_note(self, tmp_path: Path) -> None:
        """Words and vectors together find what shares no word; the provider is named."""
        world = World(tmp_path, settings(provider="hash"))
        world.write("MEMORY.md", "Momo is a kitten")
        world.write("memory/x.md", "billing retries five times")
        with world.open(hash=Pets()) as notes:
            found = notes.search("what pet is there")
            assert paths(found) == ["MEMORY.md"]
            assert (found.provider, found.model, found.mode) == ("hash", "pets", "hybrid")

    def test_an_exact_word_beats_the_least_score(self, tmp_path: Path) -> None:
        """A note that holds all of the question's words is a hit though its vector is unlike."""
        world = World(tmp_path, settings(provider="hash", query={"min_score": 0.9}))
        world.write("MEMORY.md", "error E4711 means retry")
        with world.open(hash=Pets()) as notes:
            assert paths(notes.search("E4711")) == ["MEMORY.md"]

    def test_vectors_alone(self, tmp_path: Path) -> None:
        """Without hybrid search words do not count."""
        world = World(tmp_path, settings(provider="hash", query={"hybrid": {"enabled": False}}))
        world.write("MEMORY.md", "Momo is a kitten")
        world.write("memory/pet.md", "billing pet-free zone".replace("pet", "p-e-t"))
        with world.open(hash=Pets()) as notes:
            found = notes.search("the pet")
            assert (paths(found), found.mode) == (["MEMORY.md"], "vectors")

    def test_nothing_is_embedded_twice(self, tmp_path: Path) -> None:
        """An edit embeds the chunk that changed; what comes back from the cache costs nothing."""
        world = World(tmp_path, settings(provider="hash", chunking={"tokens": 10, "overlap": 0}))
        lines = [f"line number {number} of this note says a thing" for number in range(5)]
        world.write("MEMORY.md", "\n".join(lines))
        pets = Pets()
        with world.open(hash=pets) as notes:
            notes.start()
            assert len(pets.asked) == 5
            before = len(pets.asked)
            world.write("MEMORY.md", "\n".join([*lines[:4], "changed"]), age=9)
            notes.start()
            assert pets.asked[before:] == ["changed"]
            world.write("MEMORY.md", "\n".join(lines), age=8)
            notes.start()
            assert len(pets.asked) == before + 1

    def test_without_a_cache_old_vectors_go(self, tmp_path: Path) -> None:
        """Switched off, only what is in a note now has a vector."""
        world = World(tmp_path, settings(provider="hash", cache={"enabled": False}))
        pets = Pets()
        with world.open(hash=pets) as notes:
            for number, text in enumerate(("first", "second", "first")):
                world.write("MEMORY.md", text, age=9 - number)
                notes.start()
        assert pets.asked == ["first", "second", "first"]

    def test_a_provider_that_fails_is_replaced_out_loud(self, tmp_path: Path) -> None:
        """The fallback takes over in its own space, and the result says from whom and why."""
        world = World(tmp_path, settings(provider="openai", fallback="hash"))
        world.write("MEMORY.md", "Momo is a kitten")
        with world.open(openai=Pets("remote", broken=True), hash=Pets()) as notes:
            found = notes.search("any pet")
            assert paths(found) == ["MEMORY.md"]
            assert found.provider == "hash"
            assert found.fallback is not None
            assert (found.fallback.wanted, found.fallback.reason) == ("openai", "remote: out of order")

    def test_without_a_fallback_words_are_used(self, tmp_path: Path) -> None:
        """Search by words is always there; after a restart the provider is tried again."""
        world = World(tmp_path, settings(provider="openai"))
        world.write("MEMORY.md", "Momo is a kitten")
        remote = Pets("remote", broken=True)
        with world.open(openai=remote) as notes:
            found = notes.search("kitten")
            assert (paths(found), found.provider, found.mode) == (["MEMORY.md"], "none", "words")
            assert found.fallback is not None
            remote.broken = False
            notes.start()
            assert notes.search("any pet").provider == "openai"

    def test_a_provider_that_is_not_there(self, tmp_path: Path) -> None:
        """What cannot be had is said with its reasons."""
        world = World(tmp_path, settings(provider="voyage"))
        world.write("MEMORY.md", "Momo is a kitten")
        with world.open(hash=Pets()) as notes:
            found = notes.search("kitten")
            assert found.fallback is not None
            assert found.fallback.reason == "voyage: not here"
            assert paths(found) == ["MEMORY.md"]

    def test_two_models_never_meet(self, tmp_path: Path) -> None:
        """With another model everything is embedded again, in its own space."""
        world = World(tmp_path, settings(provider="hash"))
        world.write("MEMORY.md", "Momo is a kitten")
        first, second = Pets("one"), Pets("two")
        with world.open(hash=first) as notes:
            notes.start()
        with world.open(hash=second) as notes:
            assert paths(notes.search("any pet")) == ["MEMORY.md"]
        assert first.asked == second.asked == ["Momo is a kitten"]

    def test_another_backend_is_not_there(self, tmp_path: Path) -> None:
        """Whoever asks for QMD is told that our own index was searched."""
        qmd = settings(backend="qmd")
        world = World(tmp_path, qmd)
        world.write("MEMORY.md", "zebra")
        found = world.notes.search("zebra")
        assert paths(found) == ["MEMORY.md"]
        assert "qmd" in found.warnings[0]
        world.notes.close()


class TestOrder:
    """Variety and age."""

    def test_dated_notes_lose_with_age(self, tmp_path: Path) -> None:
        """With decay the newer of two equal notes wins; notes without a date do not age."""
        decay = {"query": {"min_score": 0, "hybrid": {"temporal_decay": {"enabled": True, "half_life_days": 1}}}}
        world = World(tmp_path, settings(extra_paths=["docs"], **decay))
        for name in ("memory/2026-02-01.md", "memory/2026-02-10-call.md", "memory/9999-99-99.md", "MEMORY.md"):
            world.write(name, "billing retries")
        world.write("docs/old.md", "billing retries", age=86_400_000)
        found = {hit.path: hit.score for hit in world.notes.search("billing retries").hits}
        assert found["MEMORY.md"] == found["memory/9999-99-99.md"] == 1
        assert found["memory/2026-02-10-call.md"] > found["docs/old.md"] > found["memory/2026-02-01.md"]
        assert found["docs/old.md"] == pytest.approx(0.5, abs=0.01)
        world.notes.close()

    def test_variety(self, tmp_path: Path) -> None:
        """With re-ranking, what says the same again stands behind what says something else."""
        mmr = {"query": {"min_score": 0, "hybrid": {"mmr": {"enabled": True, "relevance_weight": 0.3}}}}
        world = World(tmp_path, settings(**mmr))
        world.write("memory/a.md", "billing retries five times a day")
        world.write("memory/b.md", "billing retries five times a day!")
        world.write("memory/c.md", "the retries of uploads are three, see wiki")
        assert paths(world.notes.search("billing retries"))[1] == "memory/c.md"
        world.notes.close()


def test_a_word_in_common_is_not_enough(tmp_path: Path) -> None:
    """Where nothing fits the question, one common word of many is no reason to list a note."""
    world = World(tmp_path, settings())
    world.write("memory/2026-05-01.md", "The office in Tromsø has a new door.\n")
    assert world.notes.search("office door").hits
    assert not world.notes.search("which restaurant near the office serves vegetarian pancakes on Sunday mornings").hits
    world.notes.close()


class TestSessions:
    """Past conversations as a source."""

    def test_they_are_found_on_request(self, tmp_path: Path) -> None:
        """With both switches a session is searched, cited by its file and lines."""
        on = settings(sources=["memory", "sessions"], experimental={"session_memory": True})
        for known, count in (
            (on, 1),
            (settings(sources=["memory", "sessions"]), 0),
            (settings(sources=["sessions"]), 0),
        ):
            world = World(tmp_path, known)
            folder = tmp_path / "sessions"
            if not folder.exists():
                begin(folder, "s.jsonl").append_message(says("the zebra code is 4711"))
            hits = world.notes.search("zebra").hits
            assert len(hits) == count
            if hits:
                assert (hits[0].path, hits[0].start, hits[0].kind) == ("sessions/s.jsonl", 2, "sessions")
            world.notes.close()

    def test_the_question_that_is_being_answered_is_no_hit(self, tmp_path: Path) -> None:
        """It has every word of the search, and says nothing; once it is answered, it may be found."""
        on = settings(sources=["sessions"], experimental={"session_memory": True})
        world = World(tmp_path, on)
        session = begin(tmp_path / "sessions", "s.jsonl")
        session.append_message(says("the zebra code is 4711"))
        session.append_message(says("And which zebra code is it?"))
        assert "And which" not in world.notes.search("which zebra code").hits[0].snippet
        session.append_message(Message(role="assistant", parts=(Text(text="It is 4711."),)))
        world.notes.sync(whole=True)
        assert "And which" in world.notes.search("which zebra code").hits[0].snippet
        world.notes.close()

    def test_a_session_is_read_again_after_enough_messages(self, tmp_path: Path) -> None:
        """A few words more wait; fifty lines, many bytes, or the next start of a session do not."""
        on = settings(sources=["sessions"], experimental={"session_memory": True})
        world = World(tmp_path, on)
        session = begin(tmp_path / "sessions", "s.jsonl")
        session.append_message(says("the zebra code is 4711"))
        world.notes.start()
        session.append_message(says("the giraffe code is 4712"))
        assert world.notes.search("giraffe").hits == ()
        assert world.notes.start() == ["sessions/s.jsonl"]
        for number in range(50):
            session.append_message(says(f"word {number}"))
        session.append_message(says("the lion code is 4713"))
        assert world.notes.search("lion").hits
        session.append_message(says("tiger " + "x" * 100_000))
        assert world.notes.search("tiger").hits
        world.notes.close()
