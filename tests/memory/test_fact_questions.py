"""Facts are found by the questions that they answer, and by nothing less."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast import Engine, InputError
from holdfast.memory import facts
from holdfast.memory.extract import MAX_QUESTIONS, read_questions
from holdfast.memory.transfer import load_jsonl, to_jsonl
from holdfast.settings import Embedding, Settings
from holdfast.store.base import FactRow, Scope, Select
from holdfast.store.sqlite import SqliteStore
from support.fact_scripts import Script, fact, facts_json, learn, rows

HOSTING = fact(
    "The boxes are at Hetzner", questions=("Who is our hosting provider?", "Which company rents us machines?")
)
COURIER = fact("发货单以后都走顺丰", questions=("我们用哪家快递公司?", "包裹由谁运送?"))
OTHERS = [fact(f"The service s{number} listens on port {9000 + number}") for number in range(30)]


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("Which hosting provider are we with?", HOSTING),
        ("包裹交给哪家快递公司?", COURIER),
    ],
)
def test_a_question_in_other_words_finds_the_fact(question: str, found: FactRow) -> None:
    """Neither its content nor its quote has a word of the question."""
    hits = facts.find([*OTHERS, HOSTING, COURIER], question)
    assert [(hit.fact, hit.by_question) for hit in hits] == [(found, True)]


@pytest.mark.parametrize(
    "question",
    ["Which company makes the best coffee?", "Who is our tax adviser?", "我们用哪家咖啡店?", "Rent a car for Friday."],
)
def test_a_single_common_word_finds_nothing(question: str) -> None:
    """A question has to match as a whole, in both directions."""
    assert facts.find([*OTHERS, HOSTING, COURIER], question) == []


def test_a_model_writes_them_down_with_the_fact() -> None:
    """At most three, each once, without secrets, of a bounded length; the rest of the fact is kept in any case."""
    said = rows("We are going with Hetzner for the boxes.")
    given = [
        "Who is our hosting provider?",
        "who is our  hosting provider?",
        7,
        "Is the key AKIAQ3EGRLWM5N7PXJ2K?",
        "x" * 500,
        "",
        "Which company rents us the machines?",
        "Where are our servers?",
        "Who hosts us?",
    ]
    answer = facts_json({"content": "The boxes are at Hetzner", "quote": "going with Hetzner", "questions": given})
    (row,) = learn(said, model=Script(answer)).rows_to_add
    assert row.questions == (
        "Who is our hosting provider?",
        "Which company rents us the machines?",
        "Where are our servers?",
    )


@pytest.mark.parametrize("given", [None, "Who hosts us?", {"a": 1}, 7, [], [None]])
def test_a_model_that_writes_none_still_states_a_fact(given: object) -> None:
    """Weak models leave them out, or return something else."""
    said = rows("We are going with Hetzner for the boxes.")
    item = {"content": "The boxes are at Hetzner", "quote": "going with Hetzner", "questions": given}
    (row,) = learn(said, model=Script(facts_json(item))).rows_to_add
    assert (row.content, row.questions) == ("The boxes are at Hetzner", ())
    assert read_questions(given) == ()


def test_the_prompt_asks_for_them_and_the_schema_has_them() -> None:
    """A provider that enforces the schema gets a list of texts."""
    model = Script('{"facts": []}')
    learn(rows("We are going with Hetzner for the boxes."), model=model)
    (prompt,) = model.asked
    assert prompt.schema is not None
    item = prompt.schema["properties"]["facts"]["items"]
    assert item["properties"]["questions"] == {"type": "array", "items": {"type": "string"}}
    assert "questions" in item["required"]
    assert "questions:" in prompt.messages[0].text


class TestRemembering:
    def test_a_fact_that_is_stated_may_have_them(self, tmp_path: Path) -> None:
        """They are stored, found by, exported and imported again."""
        settings = Settings(embedding=Embedding(provider="none"))
        with Engine.open(tmp_path / "a", settings=settings, background=False) as engine:
            session = engine.session("s")
            kept = session.remember("The boxes are at Hetzner", questions=["Who is our hosting provider?"])
            window = session.assemble([{"role": "user", "content": "Which hosting provider do we have?"}], limit=20_000)
            assert window.report.recalled_facts == (kept.id,)
            with (tmp_path / "export.jsonl").open("w", encoding="utf-8") as file:
                to_jsonl(engine._memory.store, [session.scope], file)
        with Engine.open(tmp_path / "a", settings=settings, background=False) as engine:
            assert engine.session("s").facts() == [kept]
        with Engine.open(tmp_path / "b", settings=settings, background=False) as engine:
            load_jsonl(engine._memory.store, tmp_path / "export.jsonl")
            assert engine.session("s").facts() == [kept]

    def test_wrong_ones_are_refused(self, tmp_path: Path) -> None:
        """A single text would be taken for a list of letters."""
        with Engine.open(tmp_path, settings=Settings(embedding=Embedding(provider="none")), background=False) as engine:
            session = engine.session("s")
            with pytest.raises(InputError, match="give a list of texts"):
                session.remember("The boxes are at Hetzner", questions="Who hosts us?")
            with pytest.raises(InputError, match=f"at most {MAX_QUESTIONS}"):
                session.remember("The boxes are at Hetzner", questions=["a?"] * 4)


def test_facts_of_an_older_version_have_none(tmp_path: Path) -> None:
    """A row without the field is read as before."""
    owner = {"tenant": "local", "project": "", "agent": "main", "session": "s"}
    line: dict[str, object] = {"kind": "fact", "scope": owner}
    line |= {"id": "f", "type": "config", "content": "The boxes are at Hetzner", "evidence": [1]}
    file = tmp_path / "export.jsonl"
    header = json.dumps({"kind": "holdfast-export", "version": 1})
    file.write_text(f"{header}\n{json.dumps(line)}\n", "utf-8")
    with SqliteStore(tmp_path / "store.db") as store:
        load_jsonl(store, file)
        (row,) = store.read_facts(Select(scope=Scope(session="s")))
    assert (row.questions, row.content) == ((), "The boxes are at Hetzner")
