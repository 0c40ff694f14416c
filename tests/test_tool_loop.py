"""The tool loop in every wire format, from one plain message on: what goes out is what came in, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine, Window
from holdfast.context.verify import check
from holdfast.settings import Embedding, Settings
from waiting import UNHURRIED
from wire_talk import TALKS, Talk

QUIET = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
TURNS = 300
LIMITS = (8_000, 32_000, 200_000)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """An engine over a memory of its own, by words alone, without a thread."""
    with Engine.open(tmp_path / "memory", settings=QUIET, background=False) as opened:
        yield opened


def unedited(window: Window, pruned: set[int]) -> list[int]:
    """The numbers of the messages in a window that no edit changed."""
    return [item.id for item in window.items if item.id and not item.block and item.id not in pruned]


def assert_untouched(window: Window, sent: list[dict[str, Any]], pruned: set[int]) -> None:
    """Check that what no edit changed goes out as it came in, in its order."""
    given = [json.dumps(sent[number - 1]) for number in unedited(window, pruned)]
    rendered = iter([json.dumps(wire) for wire in window.render()])
    missing = [wire for wire in given if wire not in rendered]  # each is looked for after the one before it
    assert not missing


def edited(engine: Engine) -> tuple[set[int], set[int]]:
    """The messages that were shortened so far, and those that left."""
    edits = engine.edits(session="s")
    pruned = {number for edit in edits if edit.kind == "pruned" for number in edit.ids}
    return pruned, {number for edit in edits if edit.kind == "trimmed" for number in edit.ids}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("talk", TALKS.values(), ids=TALKS.keys())
def test_a_tool_loop_of_300_turns(talk: Talk, limit: int, engine: Engine) -> None:
    """Each request is valid and byte-identical where nothing was edited; all is archived once and can be found."""
    sent: list[dict[str, Any]] = []
    words: dict[str, int] = {}
    for number, step in enumerate(talk.steps(TURNS)):
        if number % 4 < 2 and step.replied:
            engine.ingest(step.wires[: step.replied], session="s")
        words |= {found: len(sent) + place + 1 for found, place in (step.results or {}).items()}
        sent += step.wires
        if number % 4 in {1, 2}:
            continue
        window = engine.assemble(sent, session="s", limit=limit)
        pruned, trimmed = edited(engine)
        assert window.provider == talk.format or number < 1
        assert window.report.warnings == ()
        assert {*range(1, len(sent) + 1)} - {item.id for item in window.items} <= trimmed
        assert_untouched(window, sent, pruned)
        if number % 20 == 0:
            assert not check(window.render(talk.format), talk.format)
    rows = engine.get(range(1, len(sent) + 9), session="s")
    assert [json.dumps(row.message.origin and row.message.origin.data) for row in rows] == list(map(json.dumps, sent))
    for found in list(words)[:: 1 if limit == LIMITS[0] else 25]:
        assert words[found] in {hit.message for hit in engine.search(found, session="s", limit=3)}
