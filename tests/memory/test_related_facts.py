"""Facts are found in other words than those of the question, unless the window shows them or nothing is asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from holdfast import Engine
from holdfast.calls import NO_DEADLINE, Deadline
from holdfast.embed.base import Floats, Purpose
from holdfast.embed.hashed import HashEmbedder
from holdfast.embed.static import StaticEmbedder, find_static, find_wordllama
from holdfast.memory.query import RecallQuery
from holdfast.memory.recall_facts import choose_facts
from holdfast.memory.related_facts import MAX_RELATED, find_related_facts
from holdfast.settings import Embedding, Recall, Settings
from holdfast.store.base import FactRow, Scope
from support.embed_models import VECTORS, static_folder

FACTS = (
    "The first response time for gold customers is 2 hours.",
    "Customer Okafor only accepts phone calls after 15:00.",
    "The message broker is NATS.",
    "夜班值班电话是 6188。",
    "Refunds above 300 euro need approval by Marta.",
)

VAGUE = "The load balancer drops idle connections after 350 seconds."
IN_OTHER_WORDS = "Why do quiet sockets die after a while?"


def make_rows(contents: Sequence[str]) -> list[FactRow]:
    """Make a fact of each text."""
    scope = Scope(session="s")
    return [
        FactRow(id=f"f{number}", scope=scope, type="decision", content=content, time=number)
        for number, content in enumerate(contents)
    ]


@pytest.mark.parametrize(
    ("question", "content"),
    [
        ("When can I ring Okafor?", FACTS[1]),
        ("Tell me about Okafor", FACTS[1]),
        ("Which queue do we have?", FACTS[2]),
        ("夜里打哪个号码？", FACTS[3]),
        ("How soon do premium clients get a reply?", FACTS[0]),
    ],
)
def test_a_question_finds_a_fact_by_related_words(question: str, content: str) -> None:
    """One name, or a word of the same meaning, is enough."""
    found = find_related_facts(make_rows(FACTS), question, limit=3)
    assert content in [hit.fact.content for hit in found]


def test_a_question_about_something_else_finds_nothing() -> None:
    """No word of it is related to a word of a fact."""
    assert find_related_facts(make_rows(FACTS), "Why do cats purr?", limit=10) == []


def test_the_best_fact_excludes_those_that_match_much_less() -> None:
    """A fact in the words of the question is recalled without others that share one of them."""
    rows = make_rows([*FACTS, "Customers are invoiced in March.", "Gold is traded on Mondays."])
    found = find_related_facts(rows, "What is the first response time for gold customers?", limit=10)
    assert [hit.fact.content for hit in found] == [FACTS[0]]


needs_wordllama = pytest.mark.skipif(find_wordllama() is None, reason="the package wordllama is not installed")


@needs_wordllama
@pytest.mark.parametrize(
    ("question", "content"),
    [
        ("Up to when may a buyer send goods back?", "The refund window is 28 days from delivery."),
        ("Why do quiet sockets die after a while?", "The load balancer drops idle connections after 350 seconds."),
        ("新版本给一小部分用户试用多久？", "灰度发布先放百分之五的流量，观察四十分钟。"),
    ],
)
def test_a_question_finds_a_fact_by_its_vector(question: str, content: str) -> None:
    """No word of the one is related to a word of the other."""
    rows = make_rows([*FACTS, content])
    assert content not in [hit.fact.content for hit in find_related_facts(rows, question, limit=25)]
    found = find_related_facts(rows, question, limit=25, embedder=StaticEmbedder.from_wordllama())
    assert content in [hit.fact.content for hit in found]


@needs_wordllama
@pytest.mark.parametrize("question", ["zzqq", "What is zzqq?", "qxv blorf"])
def test_a_question_without_a_known_word_finds_nothing(question: str) -> None:
    """The pieces of an unknown word are similar to some fact, but say nothing about it."""
    rows = make_rows([*FACTS, "午餐改成两荤一素。"])
    assert find_related_facts(rows, question, limit=25, embedder=StaticEmbedder.from_wordllama()) == []


@needs_wordllama
def test_the_only_fact_is_found_by_its_vector() -> None:
    """There is no other to compare it with."""
    rows = make_rows(["The refund window is 28 days from delivery."])
    question = "Up to when may a buyer send goods back?"
    assert find_related_facts(rows, question, limit=25, embedder=StaticEmbedder.from_wordllama())


@needs_wordllama
def test_few_facts_are_recalled_however_many_match_a_little() -> None:
    """One hundred of them would hide the one that was asked for."""
    rooms = [f"Room {number} is cleaned on Mondays." for number in range(30)]
    rows = make_rows([*rooms, *[f"Invoice {number} was paid by the bank." for number in range(60)]])
    question = "How often is somebody sweeping the floor?"
    found = find_related_facts(rows, question, limit=25, embedder=StaticEmbedder.from_wordllama())
    assert len(found) == MAX_RELATED


class Refusing(HashEmbedder):
    """An embedder that must not be asked."""

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:
        """Fail."""
        raise AssertionError(f"{len(texts)} texts were embedded as {kind}")


@needs_wordllama
def test_only_static_models_embed_facts_during_a_recall() -> None:
    """A sentence model takes milliseconds for each of them, and a service costs money."""
    static = StaticEmbedder.from_wordllama()
    assert find_static([HashEmbedder()]) is None
    rows = make_rows([*FACTS, VAGUE])
    query = RecallQuery(texts=(IN_OTHER_WORDS,), scope=Scope(session="new"), cap=1000)
    found = choose_facts(rows, query, embedders=[Refusing(), static])
    assert VAGUE in [hit.fact.content for hit in found.hits]
    assert VAGUE not in [hit.fact.content for hit in choose_facts(rows, query, embedders=[Refusing()]).hits]


@needs_wordllama
def test_of_many_facts_the_newest_are_compared_by_vector() -> None:
    """As many as there is time for: here one hundred."""
    others = [f"Invoice {number} was paid by the bank." for number in range(250)]
    static = StaticEmbedder.from_wordllama()
    over = Deadline.after(0)
    found = find_related_facts(make_rows([VAGUE, *others]), IN_OTHER_WORDS, limit=5, embedder=static, deadline=over)
    assert VAGUE not in [hit.fact.content for hit in found]
    for rows, deadline in ((make_rows([*others, VAGUE]), over), (make_rows([VAGUE, *others]), NO_DEADLINE)):
        found = find_related_facts(rows, IN_OTHER_WORDS, limit=5, embedder=static, deadline=deadline)
        assert [hit.fact.content for hit in found] == [VAGUE]


@needs_wordllama
def test_a_new_session_knows_a_fact_by_its_vector(tmp_path: Path) -> None:
    """Through the public path."""
    settings = Settings(embedding=Embedding(provider="static"), recall=Recall(overview_tokens=0))
    with Engine.open(tmp_path, settings=settings, background=False) as engine:
        for fact in (*FACTS, VAGUE):
            engine.session("told").remember(fact)
        window = engine.session("new").assemble([{"role": "user", "content": IN_OTHER_WORDS}], limit=8_000)
        assert VAGUE in window.messages[-1].text


def test_a_model_that_cannot_embed_leaves_the_facts_that_words_find(tmp_path: Path) -> None:
    """The report says what was left out."""
    folder = static_folder(tmp_path / "model", VECTORS)
    (folder / "tokenizer.json").write_text("garbage")
    settings = Settings(embedding=Embedding(provider="static", model=str(folder)), recall=Recall(overview_tokens=0))
    with Engine.open(tmp_path / "memory", settings=settings, background=False) as engine:
        for fact in FACTS:
            engine.session("told").remember(fact)
        window = engine.session("new").assemble([{"role": "user", "content": "Which queue do we have?"}], limit=8_000)
        assert "NATS" in window.messages[-1].text
        assert any("by words alone" in warning for warning in window.report.warnings)


def open_engine(folder: Path, *, overview_tokens: int = 0, eagerness: Literal["normal", "shy"] = "normal") -> Engine:
    """Open an engine in which the facts are stored."""
    recall = Recall(overview_tokens=overview_tokens, eagerness=eagerness)
    settings = Settings(embedding=Embedding(provider="none"), recall=recall)
    engine = Engine.open(folder, settings=settings, background=False)
    for fact in FACTS:
        engine.session("told").remember(fact)
    return engine


def test_a_new_session_knows_a_fact_that_it_is_asked_for_in_other_words(tmp_path: Path) -> None:
    """Through the public path, with default settings but for the overview, which would show all of them."""
    with open_engine(tmp_path) as engine:
        window = engine.session("new").assemble([{"role": "user", "content": "Which queue do we have?"}], limit=8_000)
        assert "NATS" in window.messages[-1].text
        assert window.report.recalled_facts


def test_a_fact_that_the_window_shows_is_not_repeated(tmp_path: Path) -> None:
    """The overview has it, and the report says so."""
    with open_engine(tmp_path, overview_tokens=400) as engine:
        question = {"role": "user", "content": "When can I ring Okafor?"}
        window = engine.session("new").assemble([question], limit=8_000)
        assert "Okafor only accepts" in window.overview
        assert window.report.recalled_facts == ()
        assert window.report.recall_reason == "the best match is already in the window"


@pytest.mark.parametrize("text", ["I put the letter to Okafor into the queue.", "请把信放进队列。"])
def test_a_statement_recalls_no_related_facts(tmp_path: Path, text: str) -> None:
    """Nothing is asked."""
    with open_engine(tmp_path) as engine:
        window = engine.session("new").assemble([{"role": "user", "content": text}], limit=8_000)
        assert window.report.recalled_facts == ()


def test_shy_recall_finds_facts_by_their_own_words_only(tmp_path: Path) -> None:
    """The setting says so."""
    with open_engine(tmp_path, eagerness="shy") as engine:
        question = {"role": "user", "content": "Which queue do we have?"}
        window = engine.session("new").assemble([question], limit=8_000)
        assert window.report.recalled_facts == ()


@pytest.mark.parametrize("query", ["crane capacity", "crane weight limit", "capacity of the crane"])
def test_a_search_in_a_few_words_finds_a_fact_as_a_question_does(query: str, tmp_path: Path) -> None:
    """A model that calls a tool seldom writes a question."""
    settings = Settings(recall=Recall(deadline_ms=600_000))
    with Engine.open(tmp_path, settings=settings, background=False) as engine:
        session = engine.session("s")
        fact = session.remember("The harbour crane lifts 40 tonnes.")
        assert [hit.fact.id for hit in session.recall(query).facts] == [fact.id]
