"""What the settings make of a question: every one that can be set has an effect."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.embed import Choice
from holdfast.memory.memory import Memory
from holdfast.memory.query import RecallQuery, build_query, select_texts
from holdfast.memory.recall import Recall
from holdfast.messages import Message, Text
from holdfast.settings import Settings
from holdfast.store.base import Scope
from holdfast.store.sqlite import SqliteStore

SCOPE = Scope(session="s")
NOW = 1_770_733_860_000
DAY = 86_400_000


def settings(**sections: Any) -> Settings:
    """Settings that differ from the defaults in these sections."""
    return msgspec.convert(sections, Settings)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """A session of a port that changed, over a year, and of other things."""
    with SqliteStore(tmp_path / "holdfast.db") as store:
        memory = Memory(store=store, settings=Settings(), choice=Choice(embedder=None, reasons=()))
        messages = [
            (NOW - 365 * DAY, "The port is 8080 for the gateway."),
            (NOW - 200 * DAY, "Well, that was a long and winding evening."),
            (NOW - 100 * DAY, "The port is 9090 for the gateway."),
            (NOW - 3 * DAY, "The port is 7070 for the gateway."),
            (NOW - DAY, "Here is something about lunch and dinner."),
        ]
        memory.ingest(
            [Message(role="user", parts=(Text(text=text),), timestamp=time) for time, text in messages], scope=SCOPE
        )
        for number in range(12):
            memory.remember(f"The gateway of port area {number} has gate {number}", scope=SCOPE)
        yield store


def recalled(
    store: SqliteStore, text: str = "port of the gateway", *, automatic: bool = True, **sections: Any
) -> Recall:
    """What is recalled with these settings, by words alone."""
    choice = Choice(embedder=None, reasons=())
    memory = Memory(store=store, settings=settings(**sections), choice=choice, clock=lambda: NOW)
    memory.timer = lambda: 0.0  # a busy machine is not too late
    return memory.recall((text,), scope=SCOPE, automatic=automatic)


def test_a_request_is_made_by_the_settings() -> None:
    """Cap, sessions, shares, limits, order and deadline are theirs, and the caller's word counts more."""
    given = settings(
        recall={
            "hard_cap_tokens": 500,
            "knowledge_share": 0.5,
            "max_facts": 3,
            "min_query_chars": 7,
            "neighbours": 1,
            "deadline_ms": 100,
        },
        archive={"cross_session": True, "max_segments": 9, "eviction_days": 30},
        search={"fusion": "rrf"},
    )
    request = build_query(given, ["x"], scope=SCOPE, now=NOW, automatic=True)
    assert (request.cap, request.across, request.knowledge_share, request.max_facts) == (500, True, 0.5, 3)
    assert (request.min_chars, request.neighbours, request.seconds) == (7, 1, 0.1)
    assert (request.newest, request.days) == (9, 30)
    assert request.order.fusion == "rrf"
    asked = build_query(given, ["x"], scope=SCOPE, cap=40, across=False)
    assert (asked.cap, asked.across, asked.seconds, asked.min_chars) == (40, False, None, 7)


def test_the_defaults_are_those_of_a_request() -> None:
    """A query of the default settings is a query with default values, but for the shortest question."""
    made, plain = build_query(Settings(), (), scope=SCOPE), RecallQuery(texts=(), scope=SCOPE)
    assert [field.name for field in fields(RecallQuery) if getattr(made, field.name) != getattr(plain, field.name)] == [
        "min_chars"
    ]


def test_the_cap_and_the_number_of_facts(store: SqliteStore) -> None:
    """`recall.hard_cap_tokens` bounds the block, `recall.max_facts` the facts in it, `knowledge_share` their room."""
    assert recalled(store, recall={"hard_cap_tokens": 120}).tokens <= 120
    assert len(recalled(store).facts) == 10
    assert len(recalled(store, recall={"max_facts": 2}).facts) == 2
    assert recalled(store, recall={"knowledge_share": 0}).facts == ()


def test_a_short_question_recalls_nothing(store: SqliteStore) -> None:
    """`recall.min_query_chars` counts for every recall, asked for by name or not."""
    found = recalled(store, "port", recall={"min_query_chars": 5})
    assert (found.block, found.reason) == ("", "a question of less than 5 characters recalls nothing")
    assert recalled(store, "port", recall={"min_query_chars": 4}).block
    assert not recalled(store, "port", automatic=False, recall={"min_query_chars": 5}).block


def test_the_index_can_be_bounded_and_the_archive_is_not(store: SqliteStore) -> None:
    """`archive.eviction_days` and `archive.max_segments` say what is searched; everything is still there to get."""

    def ports(**archive: int) -> set[str]:
        hits = recalled(store, archive=archive, recall={"max_facts": 0, "knowledge_share": 0}).hits
        return {hit.text.split()[3] for hit in hits if "port" in hit.text}

    assert ports() == {"8080", "9090", "7070"}
    assert ports(eviction_days=0) == {"8080", "9090", "7070"}
    assert ports(eviction_days=120) == {"9090", "7070"}
    assert ports(max_segments=2) == {"7070"}
    assert ports(max_segments=100, eviction_days=10) == {"7070"}
    memory = Memory(
        store=store, settings=settings(archive={"max_segments": 1}), choice=Choice(embedder=None, reasons=())
    )
    assert len(memory.get([1, 2, 3, 4, 5], scope=SCOPE)) == 5
    assert [hit.text for hit in memory.search("port gateway", scope=SCOPE)] == []


def test_messages_without_a_time_are_never_too_old(tmp_path: Path) -> None:
    """Without a time nothing can be said to be old."""
    with SqliteStore(tmp_path / "a.db") as store:
        memory = Memory(
            store=store, settings=settings(archive={"eviction_days": 1}), choice=Choice(embedder=None, reasons=())
        )
        memory.ingest([Message(role="user", parts=(Text(text="the port is 8080"),))], scope=SCOPE)
        assert memory.search("port", scope=SCOPE)


def test_neighbours_come_along_as_far_as_allowed(store: SqliteStore) -> None:
    """`recall.neighbours` says how far: a passage with none of the words comes with the one next to it, or not."""

    def texts(fusion: str, neighbours: int, question: str = "8080") -> list[str]:
        found = recalled(
            store,
            question,
            search={"fusion": fusion},
            recall={"neighbours": neighbours, "min_score": 0, "max_facts": 0, "fill": "full"},
        )
        return [hit.text.split()[0] for hit in found.hits]

    # By default "8080" also recalls the ports that took its place.
    assert texts("recipe", 0, "winding evening") == ["Well,"]
    # The last one is the newest port: that next to the match was replaced.
    assert texts("recipe", 1, "winding evening") == ["The", "Well,", "The", "The"]
    assert texts("recipe", 2, "winding evening") == ["The", "Well,", "The", "The"]
    for fusion in ("weighted", "rrf"):
        assert texts(fusion, 0) == ["The"]
        assert texts(fusion, 1) == ["The", "Well,"]
        assert texts(fusion, 2) == ["The", "Well,", "The"]
    assert texts("weighted", 4)[-1] == "Here"


def test_the_least_score_counts_with_weights(store: SqliteStore) -> None:
    """`recall.min_score` and `search.time_decay` belong to the weighted order."""
    search = {"fusion": "weighted", "time_decay": 0.99}
    assert not recalled(store, "8080", search=search, recall={"max_facts": 0}).hits
    assert recalled(store, "8080", search=search, recall={"min_score": 0, "max_facts": 0}).hits
    assert recalled(store, "8080", search={"fusion": "weighted", "time_decay": 1}, recall={"max_facts": 0}).hits


def test_the_question_is_the_last_message() -> None:
    """The newest message asks; what came before helps while that says too little, and no more than is allowed."""
    messages = ["yes", "and now?", "  ", "where do we deploy the gateway service tomorrow", "hello"]
    assert select_texts(messages, max_texts=3) == ("where do we deploy the gateway service tomorrow", "and now?", "yes")
    assert select_texts(messages, max_texts=2) == ("and now?", "yes")
    assert select_texts(["where do we deploy the gateway service tomorrow", "hello"], max_texts=3) == (
        "where do we deploy the gateway service tomorrow",
    )
    assert select_texts([], max_texts=3) == ()
