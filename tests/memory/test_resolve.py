"""What becomes of a fact: by subject, slot and evidence, and by nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.memory import facts
from holdfast.memory.facts import Decision, Draft, make_row, resolve
from holdfast.store.base import FactRow, Scope
from support.fact_scripts import NOW, SCOPE, fact

PORT = fact("The API port is 8080.", subject="API", slot="port", evidence=(1,))
NEW = Draft(
    type="config",
    content="The API port is 9090.",
    subject="the API",
    slot="port",
    value="9090",
    evidence=(2,),
    time=NOW + 1,
)


def decide(draft: Draft, *known: FactRow) -> Decision:
    """The decision about a draft."""
    return resolve(draft, scope=SCOPE, known=known)


def test_the_same_slot_gives_way() -> None:
    """A newer value of the same property takes the place of the older one; both rows say so."""
    decision = decide(NEW, PORT)
    assert decision.action == "SUPERSEDE"
    new, old = decision.rows
    assert (old.id, old.superseded_by, new.content) == (PORT.id, new.id, NEW.content)
    assert facts.current([PORT, *decision.rows]) == [new]
    assert facts.as_of([PORT, *decision.rows], time=NOW) == [PORT]


@pytest.mark.parametrize(
    "change",
    [
        {"subject": "staging API"},
        {"subject": "API client"},
        {"slot": "timeout"},
        {"additive": True},
        {"value": "the default"},
        {"old": "7070"},
        {"doubtful": True},
    ],
)
def test_anything_else_stays_next_to_it(change: dict[str, object]) -> None:
    """Another subject or slot, one more, another sort of value, another old value, or doubt: nothing is replaced."""
    decision = decide(replace(NEW, **change), PORT)  # type: ignore[arg-type]
    assert decision.action == "ADD"
    assert all(made.superseded_by is None for made in decision.rows)


def test_an_older_statement_changes_nothing() -> None:
    """What was said before the known fact, by time or by place in the archive, is not news."""
    assert decide(replace(NEW, time=NOW - 1), PORT).reason == "older than what is known"
    assert decide(replace(NEW, evidence=(1,)), PORT).action == "NONE"


def test_the_same_value_is_known_already() -> None:
    """Other words for the same value add nothing; words that hold all of the old ones and more update it."""
    same = replace(NEW, content="The API is on port 8080.", value="8080")
    assert decide(same, PORT).action == "NONE"
    decision = decide(replace(same, content="The API port is 8080 and speaks HTTP."), PORT)
    assert decision.action == "UPDATE"
    (update,) = decision.rows
    assert (update.id, update.evidence) == (PORT.id, (1, 2))
    assert decide(replace(same, content="The API port is 8080 and more."), replace(PORT, pinned=True)).action == "NONE"


def test_a_pinned_fact_is_not_retired() -> None:
    """What someone pinned stays until someone unpins it."""
    decision = decide(NEW, replace(PORT, pinned=True))
    assert (decision.action, decision.rivals) == ("ADD", (PORT.id,))


def test_of_several_values_only_a_named_one_gives_way() -> None:
    """Where a property has two values, a third replaces the one that it names as over, or none."""
    second = replace(PORT, id="second", content="The API port is 8081.")
    assert decide(NEW, PORT, second).reason == "unclear"
    decision = decide(replace(NEW, old="8081"), PORT, second)
    assert [made.id for made in decision.rows if made.superseded_by] == ["second"]


def test_a_value_may_come_back() -> None:
    """A fact that was replaced holds again when it is said again, and not when it is only read again."""
    first = make_row(replace(NEW, content=PORT.content, value="8080", evidence=(1,), time=NOW), scope=SCOPE)
    known = [first, *decide(NEW, first).rows]
    again = replace(NEW, content=PORT.content, value="8080", evidence=(1,), time=NOW)
    assert decide(again, *known).action == "NONE"
    later = replace(again, evidence=(3,), time=NOW + 9)
    known += decide(later, *known).rows
    assert [found.id for found in facts.current(known)] == [first.id]


def test_a_deleted_fact_stays_deleted() -> None:
    """Reading the same words again does not bring back what was taken out."""
    kept = make_row(NEW, scope=SCOPE)
    assert decide(replace(NEW, evidence=(9,)), kept, facts.retire(kept, time=NOW)).action == "NONE"


def test_remarks_are_compared_by_their_words() -> None:
    """The same remark is kept once; one about the same subject in nearly the same words is unclear."""
    remark = Draft(type="decision", content="Always run the linter.", time=NOW)
    assert decide(remark, fact("always run the linter", type="decision")).action == "NONE"
    near = Draft(type="issue", content="The parser fails on empty input files.", subject="parser", time=NOW)
    decision = decide(near, fact("The parser fails on empty input.", type="issue", subject="parser"))
    assert (decision.action, decision.reason, len(decision.rivals)) == ("ADD", "unclear", 1)


def test_an_id_is_made_of_scope_subject_slot_and_words() -> None:
    """The same fact always has the same id, however wide or spaced its letters are; another scope has another."""
    wide = replace(NEW, content="The  API port is ９０９０.")
    assert make_row(NEW, scope=SCOPE).id == make_row(wide, scope=SCOPE).id
    assert make_row(NEW, scope=SCOPE).id != make_row(NEW, scope=Scope(session="other")).id
    assert make_row(NEW, scope=SCOPE).id != make_row(replace(NEW, slot="timeout"), scope=SCOPE).id
