"""Static vectors serve until a sentence model has embedded the archive, and vectors of two models never meet."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine, Settings, Window
from holdfast.embed import CachedEmbedder, Choice, choose, models_folder
from holdfast.embed.base import Embedder, Floats, Purpose, Space
from holdfast.embed.onnx import find_onnx_model
from holdfast.embed.static import ENGLISH, WORDLLAMA, find_wordllama
from holdfast.errors import EmbeddingError
from holdfast.memory.memory import Memory
from holdfast.memory.passage_search import covers
from holdfast.search.candidates import Candidates
from holdfast.settings import Embedding
from holdfast.store.base import SearchQuery, Select
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.processes import acknowledged_until_killed, child
from support.embed_models import save_tokenizer
from support.onnx_models import save_model
from support.waiting import UNHURRIED, until

MISSING = [name for name in ("onnx", "onnxruntime", "wordllama") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

MINILM = "all-MiniLM-L6-v2"
STATIC = f"{WORDLLAMA}+{ENGLISH}"
TURNS = 60
FACT = {"role": "user", "content": "Our kitten sleeps on the red sofa."}
QUESTIONS = (
    "On which piece of furniture does the cat sleep at night?",
    "What does the cat lie on when it sleeps?",
    "Which piece of furniture does our cat like to sleep on?",
)


def grow() -> list[dict[str, Any]]:
    """Return a conversation that does not fit into a small window: a fact, talk about ledgers, and a question."""
    conversation = [FACT, {"role": "assistant", "content": "Noted."}]
    for number in range(TURNS):
        conversation.append({"role": "user", "content": f"Look at ledger {number}. " + f"wharf{number} " * 40})
        conversation.append({"role": "assistant", "content": f"Ledger {number} is fine."})
    return conversation


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A sentence model of a few words."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    save_model(folder / "model.onnx")
    save_tokenizer(folder / "tokenizer.json")
    return folder


class RecordingStore(SqliteStore):
    """A store that records the space of each search."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.spaces: list[str] = []

    def search(self, query: SearchQuery, /) -> Candidates:
        if query.space is not None and query.terms:
            self.spaces.append(query.space.name)
        return super().search(query)


class Opener:
    """Opens memories of one file, and closes all of them."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.settings = Settings(embedding=Embedding(provider="onnx", model=str(model)), recall=UNHURRIED)
        self._folder = folder
        self._engines: list[Engine] = []

    def __call__(self, *, choice: Choice | None = None, background: bool = False) -> Engine:
        if choice is None:
            choice = choose(self.settings.embedding, environ={})
        memory = Memory(store=RecordingStore(self._folder / "store.db"), settings=self.settings, choice=choice)
        engine = Engine(memory, background=background)
        self._engines.append(engine)
        return engine

    def close(self) -> None:
        """Close every engine."""
        for engine in self._engines:
            engine.close()


@pytest.fixture
def opened(tmp_path: Path, model: Path) -> Iterator[Opener]:
    """Return a function that opens an engine over the same memory again."""
    opener = Opener(tmp_path, model)
    yield opener
    opener.close()


def archive(engine: Engine) -> int:
    """Archive the conversation, without a question; return the number of passages."""
    engine.session("s").assemble(grow(), limit=6_000, recall=False)
    return engine.stats().passages


def ask(engine: Engine, number: int = 0) -> tuple[Window, list[str]]:
    """Ask in other words than those of the fact; return the window, and the spaces that were searched in order."""
    store = engine._memory.store
    assert isinstance(store, RecordingStore)
    store.spaces.clear()
    question = {"role": "user", "content": QUESTIONS[number]}
    window = engine.session("s").assemble([*grow(), question], limit=6_000)
    return window, list(dict.fromkeys(store.spaces))


def vectors_used(window: Window) -> bool:
    """Return whether a vector contributed to what is recalled."""
    return any(hit.parts.vector > 0 for hit in window.report.recalled)


def test_static_vectors_serve_until_the_better_ones_cover_the_archive(opened: Opener) -> None:
    """A search is by the vectors of one model, and the report names the one that serves."""
    engine = opened()
    passages = archive(engine)
    memory = engine._memory
    assert memory.embed(is_quick=True) == passages
    window, spaces = ask(engine)
    assert vectors_used(window)
    assert spaces == ["tiny", STATIC]
    assert any(f"by vectors of {STATIC}" in warning for warning in window.report.warnings)

    memory.embed(limit=passages // 2)
    window, spaces = ask(engine, 1)
    assert spaces == ["tiny", STATIC]
    assert vectors_used(window)

    memory.embed()
    window, spaces = ask(engine, 2)
    assert spaces == ["tiny"]
    assert vectors_used(window)
    assert not any("vectors of" in warning for warning in window.report.warnings)


def test_new_messages_do_not_end_the_use_of_better_vectors(opened: Opener) -> None:
    """The messages of a turn have none when the next question is asked."""
    engine = opened()
    archive(engine)
    engine._memory.embed()
    turn = [{"role": "user", "content": f"Look at pier {number}."} for number in range(5)]
    engine.session("s").append(turn)
    assert engine._memory.waiting() > 0
    _, spaces = ask(engine)
    assert spaces == ["tiny"]


@pytest.mark.parametrize(
    ("embedded", "total", "is_enough"),
    [(0, 0, True), (14, 30, False), (15, 30, True), (33, 50, False), (34, 50, True), (79, 100, False), (80, 100, True)],
)
def test_a_fifth_of_the_windows_or_those_of_a_turn_may_lack_better_vectors(
    *, embedded: int, total: int, is_enough: bool
) -> None:
    """But not more than have one."""
    assert covers(embedded, total, has_next=True) is is_enough


def test_forgotten_messages_do_not_end_the_use_of_better_vectors(opened: Opener) -> None:
    """They have no vectors any more, and do not count as messages that wait for one."""
    engine = opened()
    archive(engine)
    memory = engine._memory
    memory.embed()
    scope = engine.session("s").scope
    rows = memory.store.read_messages(Select(scope=scope))
    ledgers = [row.id for row in rows if row.message.text.startswith("Look at ledger")]
    assert memory.forget(scope=scope, ids=ledgers) == TURNS
    recalled = memory.recall(QUESTIONS[:1], scope=scope)
    assert not any("vectors of" in warning for warning in recalled.warnings)
    assert any(hit.parts.vector > 0 for hit in recalled.hits)


def test_one_line_says_which_vectors_serve(opened: Opener) -> None:
    """Also in the figures of the memory; nothing once all passages have the better vectors."""
    engine = opened()
    passages = archive(engine)
    memory = engine._memory
    memory.embed(is_quick=True)
    (line,) = memory.missing()
    assert line == (
        f"vectors of {STATIC} serve; those of tiny for {passages} of {passages} passages are still to come:"
        " in the background, or now by `holdfast reindex`"
    )
    assert engine.stats().vectors == line
    memory.embed(limit=passages - 3)
    assert memory.missing()[0].startswith(f"vectors of tiny serve; those of tiny for 3 of {passages} passages")
    memory.embed()
    assert (memory.missing(), engine.stats().vectors) == ((), "")


def test_work_that_was_interrupted_goes_on(opened: Opener) -> None:
    """What one process has stored is not made again by the next, whichever of the two models it was made by."""
    first = opened()
    passages = archive(first)
    assert first._memory.embed(limit=passages + 50) == passages + 50
    second = opened()._memory
    assert second.waiting() == passages - 50
    assert second.embed() == passages - 50
    assert first._memory.embed() == 0


def _embed_in_steps(folder: Path, model: Path, reports: Connection) -> None:
    """Embed a few passages at a time, and report how many have been embedded."""
    memory = Opener(folder, model)()._memory
    done = 0
    while step := memory.embed(limit=7):
        done += step
        reports.send(done)


def test_a_process_that_is_killed_loses_no_vector_that_it_reported(opened: Opener, model: Path, tmp_path: Path) -> None:
    """With static vectors alone or with a part of the better ones, the next process searches and goes on."""
    engine = opened()
    passages = archive(engine)
    for number, after in enumerate((3, 8)):
        with child(_embed_in_steps, tmp_path, model) as (process, reports):
            acknowledged_until_killed(reports, process, after=after)
        memory = opened()._memory
        left = sum(memory.waiting(embedder) for embedder in memory.embedders)
        assert left <= 2 * passages - 7 * after
        assert ask(opened(), number)[1][0] == "tiny"
    opened()._memory.embed()
    window, spaces = ask(opened(), 2)
    assert spaces == ["tiny"]
    assert vectors_used(window)


def test_two_processes_share_the_work(opened: Opener) -> None:
    """The background of each embeds; static vectors come first, and in the end both spaces are complete."""
    one = opened(background=True)
    two = opened(background=True)
    archive(one)
    two.session("other").append([FACT])
    memories = [one._memory, two._memory]
    until(lambda: not any(memory.waiting() for memory in memories))
    for memory in memories:
        assert [memory.waiting(embedder) for embedder in memory.embedders] == [0, 0]


class _Failing:
    """An embedder whose model cannot be run."""

    space = Space(name="failing", dimension=3, digest="0")

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:  # noqa: ARG002 - of the protocol
        """Fail."""
        raise EmbeddingError("the model cannot be run", provider="onnx")


def test_a_model_that_fails_leaves_search_by_static_vectors(opened: Opener) -> None:
    """Passages are embedded by the static model first, and the report says why the other one is not used."""
    failing: Embedder = _Failing()
    interim = choose(opened.settings.embedding, environ={}).interim
    engine = opened(choice=Choice(embedder=CachedEmbedder(failing), reasons=(), interim=interim))
    archive(engine)
    with pytest.raises(EmbeddingError):
        engine._memory.embed()
    window, spaces = ask(engine)
    assert vectors_used(window)
    assert spaces == [STATIC]
    assert any(f"the model cannot be run: by vectors of {STATIC}" in one for one in window.report.warnings)


def test_a_deleted_model_leaves_search_by_static_vectors(opened: Opener, model: Path, tmp_path: Path) -> None:
    """Its own vectors are kept, and used as soon as the model is back."""
    engine = opened()
    archive(engine)
    engine._memory.embed()
    shutil.move(model, tmp_path / "away")
    without = opened()
    window, spaces = ask(without)
    assert vectors_used(window)
    assert spaces == [STATIC]
    assert any(f"{STATIC} serves in its place" in warning for warning in window.report.warnings)
    assert f"{STATIC} serves in its place" in without._memory.missing()
    shutil.move(tmp_path / "away", model)
    again = opened()
    assert ask(again, 1)[1] == ["tiny"]


def test_another_setting_finds_its_vectors(opened: Opener) -> None:
    """Static vectors that were made next to those of a sentence model are there when the model is not wanted."""
    engine = opened()
    archive(engine)
    engine._memory.embed()
    static = choose(Embedding(provider="static"), environ={})
    assert opened(choice=static)._memory.waiting() == 0


def test_only_a_sentence_model_has_one_that_serves_meanwhile(tmp_path: Path) -> None:
    """A static model is at work at once, and a model of unknown kind that is missing is not replaced."""
    for settings in (Embedding(provider="static"), Embedding(provider="hash"), Embedding(model=str(tmp_path / "none"))):
        assert choose(settings, environ={}).interim is None
    missing = choose(Embedding(model=MINILM), environ={})
    if missing.embedder is None:
        assert missing.interim is not None


@pytest.mark.nightly
def test_the_real_model(opened: Opener) -> None:
    """A fact in other words is found by static vectors at first, and by those of the sentence model later."""
    if find_onnx_model(models_folder() / MINILM) is None or find_wordllama() is None:
        pytest.skip(f"{MINILM} is not downloaded: holdfast models get {MINILM}")
    choice = choose(Embedding(model=MINILM), environ={})
    engine = opened(choice=choice)
    archive(engine)
    engine._memory.embed(is_quick=True)
    window, _ = ask(engine)
    assert vectors_used(window)
    engine._memory.embed()
    window, spaces = ask(engine, 1)
    assert spaces == [MINILM]
    assert any("kitten" in hit.text for hit in window.report.recalled)
