"""Facts at rest: what holds, what held, what took whose place, and what a question finds."""

from __future__ import annotations

from dataclasses import replace

from holdfast.memory import facts
from holdfast.memory.facts import asks_for, kind_of, normalise_slot, same_subject, split_slot
from holdfast.store.base import FactRow
from support.cases import each
from support.fact_scripts import NOW, fact, learn, rows


def test_a_value_that_came_back_holds_again() -> None:
    """A value that went and came back holds now; at the moment in between the other one did."""
    known: list[FactRow] = []
    for number, port in enumerate((8080, 9090, 8080), 1):
        known += learn(rows(f"API_PORT={port}", first=number), known=known).rows_to_add
    assert [row.content[-4:] for row in known] == ["8080", "9090", "8080", "8080", "9090"]
    assert [row.content for row in facts.current(known)] == ["API_PORT=8080"]
    assert [row.content for row in facts.as_of(known, time=known[1].time)] == ["API_PORT=9090"]


def test_a_fact_that_holds_again_has_one_version() -> None:
    """What had replaced it is forgotten. If it is only replaced itself, both are listed."""
    older = fact("The API port is 8080.")
    newer = fact("The API port is 9090.")
    replaced = facts.supersede(older, newer, time=NOW + 5)
    again = replace(older, time=NOW + 9)
    assert [row.superseded_by for row in facts.list_versions([older, replaced, again])] == [None]
    assert [row.superseded_by for row in facts.list_versions([older, newer, replaced])] == [newer.id, None]
    assert len(facts.list_versions([older, newer, replaced, again])) == 3


def test_a_question_finds_the_fact_it_asks_for() -> None:
    """Also where they share no word but the subject's, and not where only the property is the same."""
    moved = fact("Tomas took over the onboarding docs from Priya.", subject="the onboarding docs", slot="owner")
    other = fact("Alice owns the search index.", subject="the search index", slot="owner")
    (hit,) = facts.find([moved, other], "Who is the owner of the onboarding docs?")
    assert hit.fact is moved
    home = fact("I moved to Leipzig.", subject="user", slot="home")
    assert [hit.fact for hit in facts.find([home], "Where do I live?")] == [home]
    assert facts.find([home], "Where do they live?") == []


def test_pinned_facts_come_first_whatever_is_asked() -> None:
    """A pinned fact is shown before all others."""
    pinned = fact("Be brief.", pinned=True)
    port = fact("The API port is 8080.", subject="API", slot="port")
    assert [hit.fact for hit in facts.find([port, pinned], "Which port does the API use?")] == [pinned, port]


def test_a_retired_fact_is_hidden_and_still_in_the_history() -> None:
    """It does not hold any more; it did before."""
    port = fact("The API port is 8080.")
    gone = facts.retire(port, time=NOW + 5)
    assert facts.current([port, gone]) == []
    assert facts.as_of([port, gone], time=NOW) == [port]


@each(
    ("left", "right", "same"),
    [
        ("the API", "API", True),
        ("prod API", "the production API", True),
        ("API of staging", "staging API", True),
        ("staging API", "API", False),
        ("API client", "API", False),
        ("支付服务的", "支付 服务", True),
        ("测试环境的网关", "网关", False),
        ("ＡＰＩ", "api", True),
    ],
)
def test_subjects_are_compared_by_all_their_words(left: str, right: str, *, same: bool) -> None:
    """Order, articles, width and usual short forms do not matter; every other word does."""
    assert same_subject(left, right) is same


def test_slots_have_one_name() -> None:
    """What people and models call a property ends in one slot."""
    assert split_slot("port of the API") == ("the API", "port")
    assert split_slot("支付服务的新端口") == ("支付服务", "port")
    assert split_slot("the weather") is None
    assert (normalise_slot("Due_Date"), normalise_slot("端口"), normalise_slot("colour")) == (
        "deadline",
        "port",
        "colour",
    )
    assert asks_for("API 的端口是多少？", subject="API", slot="port")
    assert not asks_for("API?", subject="API", slot="")


@each(
    ("value", "kind"),
    [
        ("https://a.test/x", "url"),
        ("/var/log", "path"),
        ("config/a.yaml", "path"),
        ("1.2.3-rc1", "version"),
        ("8080", "number"),
        ("25 MB", "number"),
        ("2026-05-02", "date"),
        ("Monday", "date"),
        ("May 31", "date"),
        ("下周三", "date"),
        ("凌晨2点", "date"),
        ("Frankfurt", "words"),
        ("1." * 5_000 + "!", "words"),
    ],
)
def test_a_value_has_a_sort(value: str, kind: str) -> None:
    """Addresses, paths, versions, numbers, dates and words are distinguished, in time however long they are."""
    assert kind_of(value) == kind
