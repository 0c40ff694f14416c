"""Real transcripts of many agents, compacted without a model and with one that says nothing useful."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import transcripts
from holdfast.compaction.audit import audit, find_requirements
from holdfast.compaction.plan import plan_compaction
from holdfast.compaction.summarise import MAX_CALLS
from holdfast.context.edits import apply, tokens
from holdfast.messages import Message
from support.agent_files import OWN, REAL, name
from support.cases import each
from support.compaction import Summariser, compaction, limits, summed_up
from support.conversations import items
from support.external_data import needs_data

LARGEST = 300_000


def talk_of(format_: str, path: Path) -> list[Message]:
    """The messages of a session."""
    read = transcripts.read(path, format=format_)
    return [message for entry in read.entries if not entry.sidechain for message in entry.messages]


def prove(conversation: list[Message], *, window: int) -> None:
    """Compact a session both ways, and check that the result is shorter and holds what it must."""
    settings = compaction(keep_recent_tokens=window // 10)
    session = items(conversation)
    made = plan_compaction(session, settings=settings, budget=limits(window), force=True)
    if made.outcome != "ready":
        return
    for model in (None, Summariser(lambda _number, _prompt: "They worked on something.", context_tokens=window)):
        summary = summed_up(made, model, settings=settings)
        after = apply(session, [made.edit(summary.framed, cost=summary.tokens)])
        assert tokens(after) == made.tokens_kept + summary.tokens < made.tokens_before
        assert summary.calls <= MAX_CALLS
        assert summary.text.startswith("## Last Request") or not made.request
        left = audit(summary.text, find_requirements(made, settings=settings))
        assert not left.request


@each(("format_", "path"), OWN)
def test_our_own_sessions_are_compacted(format_: str, path: Path) -> None:
    """Small sessions of every format become shorter, or there is nothing to do."""
    prove(talk_of(format_, path), window=2_000)


@pytest.mark.nightly
@pytest.mark.variants
@needs_data("transcripts")
@pytest.mark.parametrize(("format_", "path"), REAL, ids=name)
def test_real_sessions_are_compacted(format_: str, path: Path) -> None:
    """Real sessions become shorter, begin with the last request, and lack nothing of it."""
    if path.is_file() and path.stat().st_size > LARGEST:
        pytest.skip("large")
    prove(talk_of(format_, path), window=32_000)
