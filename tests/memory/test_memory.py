"""An open memory: vectors in steps, what is missing told, deadlines kept."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from holdfast.embed import CachedEmbedder, Choice, HashEmbedder, StaticEmbedder
from holdfast.embed.base import Embedder, Floats, Purpose, Space
from holdfast.embed.remote import RemoteEmbedder
from holdfast.errors import EmbeddingError, StorageError
from holdfast.memory.memory import Memory
from holdfast.memory.query import Shown
from holdfast.messages import Message, Text
from holdfast.settings import Archive, Recall, Settings
from holdfast.store.base import Scope
from holdfast.store.opening import store_file
from holdfast.store.sqlite import SqliteStore
from support.embed_models import Reply, endpoint, static_folder
from support.waiting import PATIENCE, UNHURRIED

SCOPE = Scope(session="s")


class Counting:
    """A hash embedder of a name of its own that may stop in the middle, and counts what it was given."""

    def __init__(self, name: str, *, most: int | None = None) -> None:
        self.space = Space(name=name, dimension=16, digest=name)
        self.given: list[str] = []
        self._most = most

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:
        """As the hash embedder, until it has had enough."""
        self.given += texts
        if self._most is not None and len(self.given) > self._most:
            raise EmbeddingError("the provider is gone", provider=self.space.name)
        return HashEmbedder(dimension=16).embed(texts, kind=kind)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[Embedder | None], Memory]]:
    """The memory of 600 short messages, with any embedder."""
    with SqliteStore(tmp_path / "holdfast.db") as store:
        first = Memory(store=store, settings=Settings(), choice=Choice(embedder=None, reasons=("nothing here",)))
        messages = [f"message {number} about topic{number} and port {8000 + number}" for number in range(600)]
        first.ingest([Message(role="user", parts=(Text(text=text),), id=text[:12]) for text in messages], scope=SCOPE)

        def with_embedder(embedder: Embedder | None) -> Memory:
            reasons = ("nothing here",) if embedder is None else ("taken",)
            return Memory(store=store, settings=Settings(), choice=Choice(embedder=embedder, reasons=reasons))

        yield with_embedder


def test_a_question_in_a_project_without_passages_loads_no_model(tmp_path: Path) -> None:
    """The first prompt of a new project waits for nothing that it does not need; the second session does need it."""
    embedder = Counting("one")
    with SqliteStore(tmp_path / "holdfast.db") as store:
        choice = Choice(embedder=embedder, reasons=("taken",))
        memory = Memory(store=store, settings=Settings(recall=UNHURRIED), choice=choice)
        asked = "Which port does the importer use?"
        numbers = memory.ingest([Message(role="user", parts=(Text(text=asked),), id="1")], scope=SCOPE)
        memory.recall([asked], scope=SCOPE, automatic=True, shown=Shown(messages=set(numbers)))
        assert embedder.given == []
        memory.recall([asked], scope=Scope(session="t"), automatic=True, across=True)
        assert asked in embedder.given


def test_vectors_are_made_in_steps(opened: Callable[[Embedder | None], Memory]) -> None:
    """A worker embeds a little at a time, and can tell how much is left."""
    memory = opened(Counting("one"))
    assert memory.waiting() == 600
    assert memory.embed(limit=100) == 100
    assert memory.waiting() == 500
    assert memory.embed() == 500
    assert (memory.waiting(), memory.embed(limit=100), memory.missing()) == (0, 0, ())


def test_a_new_model_starts_over_and_continues_where_it_stopped(opened: Callable[[Embedder | None], Memory]) -> None:
    """After a change of the model all is embedded again, in batches that last: a failure costs one of them."""
    opened(Counting("one")).embed()
    broken = opened(Counting("two", most=300))
    with pytest.raises(EmbeddingError, match="the provider is gone"):
        broken.embed()
    left = broken.waiting()
    assert 0 < left < 600
    again = Counting("two")
    assert opened(again).embed() == left == len(again.given)
    assert opened(Counting("one")).waiting() == 0


def test_words_find_everything_while_vectors_are_made(opened: Callable[[Embedder | None], Memory]) -> None:
    """With a few vectors of a new model, search goes by words alone and says so; with most of them it does not."""
    memory = opened(Counting("one"))
    for step, by_words in ((0, True), (100, True), (400, False)):
        memory.embed(limit=step)
        found = memory.recall(("what about topic599 and its port",), scope=SCOPE)
        assert "topic599" in found.block
        assert any("by words alone" in note for note in found.warnings) == (by_words and step > 0)
    assert memory.missing() == (
        "100 passages have no vectors of one yet and are found by their words: `holdfast reindex`",
    )


def test_a_missing_embedder_is_in_every_answer(opened: Callable[[Embedder | None], Memory]) -> None:
    """Blocks, silence, statistics: each says that there are no vectors."""
    memory = opened(None)
    for text in ("topic5 port", "quantum chromodynamics for children"):
        assert memory.recall((text,), scope=SCOPE).warnings == ("nothing here",)
    assert memory.stats().warnings == memory.missing() == ("nothing here",)
    assert (memory.waiting(), memory.embed()) == (0, 0)


def test_loading_the_model_does_not_count(opened: Callable[[Embedder | None], Memory]) -> None:
    """The first question of a process is answered though its model takes longer to load than the deadline."""
    moment = 0.0

    class Slow(Counting):
        def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:
            nonlocal moment
            moment += 10.0 if kind == "query" and not moment else 0.0
            return super().embed(texts, kind=kind)

    memory = opened(Slow("one"))
    memory.timer = lambda: moment
    assert "topic5" in memory.recall(("topic5 port",), scope=SCOPE, automatic=True).block


def test_what_takes_too_long_is_left_out(opened: Callable[[Embedder | None], Memory]) -> None:
    """After four times `recall.deadline_ms` there is no block, and the reason says so; who asks by name waits."""
    memory = opened(Counting("one"))
    ticks = iter(range(1000))
    memory.timer = lambda: float(next(ticks))
    late = memory.recall(("topic5 port",), scope=SCOPE, automatic=True)
    assert (late.block, late.hits) == ("", ())
    assert late.reason == "it took longer than 1000 ms (4 times recall.deadline_ms)"
    assert late.warnings == (f"nothing was recalled: {late.reason}",)  # a warning of the report
    assert memory.recall(("topic5 port",), scope=SCOPE).block


def test_loading_the_index_is_not_charged_to_a_question(opened: Callable[[Embedder | None], Memory]) -> None:
    """The first question with a deadline finds the index loaded, once."""
    memory = opened(Counting("one"))
    memory.embed()
    assert memory.recall(("topic5 port",), scope=SCOPE, automatic=True).reason == ""
    assert memory.recall(("topic5 port",), scope=SCOPE).block


def test_a_provider_that_fails_costs_the_vectors_alone(opened: Callable[[Embedder | None], Memory]) -> None:
    """Search continues by words, and the note says what the provider said."""
    found = opened(Counting("gone", most=0))
    recalled = found.recall(("topic5 port",), scope=SCOPE)
    assert "topic5" in recalled.block
    assert recalled.warnings == ("gone: the provider is gone: by words alone",)
    assert found.search("topic5", scope=SCOPE)


def test_a_slow_provider_is_not_waited_for(
    opened: Callable[[Embedder | None], Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the deadline the question goes by words; the vector is there the next time it is asked."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    answering, asked = Event(), Event()

    def answer(body: dict[str, list[str]]) -> object:
        asked.set()
        answering.wait(PATIENCE)
        return {"data": [{"embedding": [1.0, 0.0]} for _ in body["input"]]}

    with endpoint(Reply(body=answer)) as server:
        remote = RemoteEmbedder("openai-compatible", model="slow", dimension=2, base_url=server.url, query_seconds=60)
        memory = opened(CachedEmbedder(remote))
        memory.timer = lambda: 0.0
        found = memory.recall(("topic5 port",), scope=SCOPE, automatic=True)
        assert "topic5" in found.block
        assert found.warnings == ("openai-compatible/slow did not answer in 175 ms: by words alone",)
        assert asked.wait(PATIENCE)
        answering.set()
        assert np.allclose(memory.choice.embedder.embed(["topic5 port"], kind="query"), [[1, 0]])  # type: ignore[union-attr]
        again = memory.with_settings(Settings(recall=UNHURRIED))  # on a busy machine even what is known takes time
        assert not again.recall(("topic5 port",), scope=SCOPE, automatic=True).warnings


def test_a_memory_is_prepared_without_calls_of_a_provider(opened: Callable[[Embedder | None], Memory]) -> None:
    """A local embedder is loaded; a remote one is not asked, since nobody asked anything."""
    local = Counting("one")
    opened(local).prepare(SCOPE, across=True)
    assert local.given == ["-"]
    with endpoint(Reply(body={"data": [{"embedding": [1.0, 0.0]}]})) as server:
        remote = RemoteEmbedder("openai-compatible", model="any", dimension=2, base_url=server.url)
        opened(CachedEmbedder(remote)).prepare(SCOPE, across=True)
        assert not server.seen


def test_nothing_is_prepared_if_recall_is_off(opened: Callable[[Embedder | None], Memory]) -> None:
    """No question can be asked then."""
    local = Counting("one")
    opened(local).with_settings(Settings(recall=Recall(enabled=False))).prepare(SCOPE, across=True)
    assert local.given == []


def test_spaces_do_not_meet(opened: Callable[[Embedder | None], Memory], tmp_path: Path) -> None:
    """I12: a question of one model is never compared with the vectors of another, whatever they share."""
    opened(Counting("one")).embed()
    static = StaticEmbedder.from_folder(static_folder(tmp_path / "model"))
    for embedder in (Counting("two"), static):
        memory = opened(embedder)
        hits = memory.search("topic5", scope=SCOPE)
        assert hits
        assert all(hit.parts.cosine == 0 for hit in hits)


@pytest.mark.parametrize(
    ("path", "archive", "expected"),
    [(None, "a", "a/holdfast.db"), ("b", "a", "b/holdfast.db"), ("c.db", None, "c.db"), (None, "d.db", "d.db")],
)
def test_where_a_memory_rests(path: str | None, archive: str | None, expected: str) -> None:
    """A path that is named counts more than the settings; a folder holds a file of our name."""
    assert store_file(path, settings=Settings(archive=Archive(path=archive))) == Path(expected)


def test_without_either_the_usual_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """`$HOLDFAST_HOME` is where memory rests unless told otherwise."""
    monkeypatch.setenv("HOLDFAST_HOME", "/srv/memory")
    assert store_file(None, settings=Settings()) == Path("/srv/memory/holdfast.db")


@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("postgresq://me:geheim@db/memory", "no such address: that of a memory on a server begins with postgresql://"),
        ("postgresql://me:geheim@db/memory", "only files will do here"),
    ],
)
def test_an_address_in_place_of_a_path_is_refused(address: str, advice: str) -> None:
    """A misspelt one is told from one that cannot be used here. The password is not repeated."""
    with pytest.raises(StorageError, match=advice) as caught:
        store_file(address, settings=Settings())
    assert "geheim" not in str(caught.value)
