"""The recall benchmark: what it prints, and that it judges rightly."""

from pathlib import Path

import pytest

from benchmarks.datasets import ANY_TURN, Conversation, Question, Session, Turn, load
from benchmarks.recall import by_limit, measure
from holdfast.embed.static import StaticEmbedder
from support.embed_models import static_folder

FILES = Path(__file__).resolve().parents[1] / "fixtures" / "benchmarks"
FIGURES = {"r5", "r10", "r_cap", "all_cap", "coverage", "tokens", "found_per_1000", "query_ms_p50", "query_ms_p95"}


def test_all_systems_are_measured_in_the_same_run() -> None:
    """Ours, graded, ungraded and full, plain BM25 and the original formula, each with the same figures and caps."""
    ticks: list[int] = []
    unrelated = ["What is the capital of Burkina Faso?"]
    found = measure(
        load("locomo", FILES / "locomo.json"),
        embedder=None,
        unrelated=unrelated,
        about_oneself=["My zipper is stuck. Any tricks?"],
        progress=ticks.append,
    )
    assert found["questions"] == len(ticks) == 3
    assert found["cap"] == 4000
    assert found["unrelated_tokens"] == found["about_oneself_tokens"] == 0
    assert set(found["systems"]) == {"holdfast", "ungraded", "full", "bm25", "seed"}
    assert all(list(shares) == ["500", "1000", "2000", "4000"] for shares in found["by_cap"].values())
    assert all(set(figures) == FIGURES for figures in found["systems"].values())
    ours = found["systems"]["holdfast"]
    assert ours["r_cap"] == ours["all_cap"] == 1


@pytest.mark.parametrize(
    ("name", "path"),
    [("longmemeval-s", "longmemeval_oracle.json"), ("beam", "beam"), ("realmem", "realmem"), ("squad", "squad.json")],
)
def test_every_kind_of_data_is_measured(name: str, path: str) -> None:
    """Small archives are answered completely."""
    assert measure(load(name, FILES / path), embedder=None)["systems"]["holdfast"]["r_cap"] == 1


def test_vectors_are_used_if_there_are_some(tmp_path: Path) -> None:
    """With an embedder a question finds what has none of its words."""
    turns = (Turn("user", "the quarter"), Turn("user", "a kitten"))
    conversation = Conversation((Session(None, turns),), (Question(text="revenue", evidence=frozenset({(0, 0)})),))
    embedder = StaticEmbedder.from_folder(static_folder(tmp_path / "model"))
    assert measure([conversation], embedder=None)["systems"]["holdfast"]["r5"] == 0
    assert measure([conversation], embedder=embedder)["systems"]["holdfast"]["r5"] == 1


def test_half_of_a_turn_is_not_the_turn() -> None:
    """Evidence counts when the block holds 300 characters of it, or all of it."""
    long = "the port is 8080 and so on and on. " * 40
    conversation = Conversation(
        (Session(None, (Turn("assistant", long),)),), (Question(text="port", evidence=frozenset({(0, 0)})),)
    )
    assert measure([conversation], embedder=None, cap=4000)["systems"]["holdfast"]["r_cap"] == 1
    assert measure([conversation], embedder=None, cap=60)["systems"]["holdfast"]["r_cap"] == 0


def test_a_session_counts_by_any_of_its_turns() -> None:
    """Where only the session is known, one of its turns is enough."""
    turns = (Turn("user", "hello there"), Turn("user", "the port is 8080"))
    conversation = Conversation(
        (Session(None, turns),), (Question(text="port", evidence=frozenset({(0, ANY_TURN)}), answer="8080"),)
    )
    ours = measure([conversation], embedder=None)["systems"]["holdfast"]
    assert ours["r5"] == ours["coverage"] == 1


def test_later_sessions_are_out_of_sight() -> None:
    """A question with a limit is asked before the later sessions are archived."""
    sessions = (Session(None, (Turn("user", "lunch"),)), Session(None, (Turn("user", "the port is 8080"),)))
    early = Question(text="port", evidence=frozenset({(1, 0)}), limit=1)
    late = Question(text="port", evidence=frozenset({(1, 0)}))
    conversation = Conversation(sessions, (late, early))
    assert [limit for limit, _ in by_limit(conversation)] == [1, 2]
    systems = measure([conversation], embedder=None)["systems"]
    assert {name: figures["r5"] for name, figures in systems.items()} == dict.fromkeys(systems, 0.5)
