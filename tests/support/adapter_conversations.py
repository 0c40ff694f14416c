"""A long conversation with tools for the tests of adapters: what the model answers, and what must hold afterwards."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from holdfast import Session, Settings, providers
from holdfast.messages import Message, ToolCall
from holdfast.settings.schema import Compaction, Embedding, Pruning, QualityGuard
from holdfast.store.base import Select
from holdfast.testing.provider import ScriptedProvider, ScriptedReply, Step, wire_of_path
from support.waiting import UNHURRIED

TURNS = int(os.environ.get("HOLDFAST_ADAPTER_TURNS", "12"))
"""Turns of a long conversation; `make frameworks` runs 200."""
IS_FULL = "HOLDFAST_ADAPTER_TURNS" in os.environ
LIMIT = 8_000 if IS_FULL else 7_000
"""Tokens of the window; a smaller one is compacted after fewer turns."""
BOXES = 40 if IS_FULL else 70
"""Boxes on most shelves; more of them fill the window in fewer turns."""
PLANTED = "The door code of the Tromsø office is 7741-K."
QUESTION = "What is the door code of the Tromsø office?"
SETTINGS = Settings(
    embedding=Embedding(provider="none"),
    compaction=Compaction(quality_guard=QualityGuard(enabled=False)),
    pruning=Pruning(mode="adaptive"),
    recall=UNHURRIED,
)
LONG_SHELF = 4
"""The shelf whose content is long enough to be pruned."""
SUMMARY = """## Last Request
Look a shelf up.
## Goal
Know what is on the shelves.
## Constraints & Preferences
(none)
## Progress
### Done
Many shelves were looked up.
### In Progress
(none)
### Blocked
(none)
## Key Decisions
(none)
## Next Steps
Look the next shelf up.
## Critical Context
(none)"""
TOOL = {
    "name": "lookup",
    "description": "Look a shelf up.",
    "parameters": {"type": "object", "properties": {"shelf": {"type": "integer"}}, "required": ["shelf"]},
}


def lookup(shelf: int) -> str:
    """Look a shelf up."""
    boxes = 450 if shelf == LONG_SHELF else BOXES
    return f"Shelf {shelf}: " + " ".join(f"box-{shelf}-{number}" for number in range(boxes))


def question(turn: int) -> str:
    """What the user says in a turn; the last one asks for what the third one said."""
    if turn == 2:
        return f"Please note: {PLANTED}"
    return QUESTION if turn == TURNS - 1 else f"第{turn}轮: what is on shelf {turn}?"


@dataclass
class Librarian:
    """Answers requests of any format: a call for a question, words for a result, a summary where there are no tools."""

    format: str
    calls: int = 0
    summaries: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, body: dict[str, Any]) -> Step:
        """Answer a request."""
        if not body.get("tools"):
            self.summaries.append(body)
            return ScriptedReply(text=SUMMARY)
        newest = providers.read_request(body, format=self.format)[-1]
        if newest.results or not newest.text.startswith("第"):
            return ScriptedReply(text=f"Noted, {self.calls}.")
        self.calls += 1
        shelf = int(newest.text.partition("on shelf ")[2].partition("?")[0])
        return ScriptedReply(calls=(ToolCall(id=f"call_{self.calls}", name="lookup", arguments={"shelf": shelf}),))


def archived(session: Session) -> list[Message]:
    """Everything that the archive has of a session."""
    return [row.message for row in session._memory.store.read_messages(Select(scope=session.scope))]


def check_talk(
    server: ScriptedProvider, session: Session, librarian: Librarian, *, turns: int = TURNS, is_pruned: bool = True
) -> None:
    """Check what must hold after a conversation of so many turns.

    `is_pruned` says whether the long result is pruned before a compaction takes it out of the window.
    """
    assert server.check() == []
    rows = [message for message in archived(session) if message.role != "system"]
    calls = [call.arguments for message in rows for call in message.calls]
    shelves = [turn for turn in range(turns) if "on shelf" in question(turn)]
    assert calls == [{"shelf": shelf} for shelf in shelves]
    results = [result.text for message in rows for result in message.results]
    assert results == [lookup(shelf) for shelf in shelves]
    words = [message.text for message in rows if message.role == "user"]
    assert words == [question(turn) for turn in range(turns)]
    replies = [message.text for message in rows if message.role == "assistant" and not message.calls]
    assert len(replies) == turns
    reports = session.timeline()
    assert all(report.total_tokens <= LIMIT for report in reports)
    kinds = {change.kind for report in reports for change in report.changes}
    assert {"compacted", "recalled"} <= kinds
    if is_pruned:
        assert "pruned" in kinds
    assert librarian.summaries, "the framework's model writes the summaries"
    windows = [providers.read_request(body, format=librarian.format) for body in server.bodies if body.get("tools")]
    sent = [result.text for window in windows for message in window for result in message.results]
    long = [text for text in sent if text.startswith(f"Shelf {LONG_SHELF}:")]
    assert long[0] == lookup(LONG_SHELF), "the newest result is whole"
    if is_pruned:
        assert len(long[-1]) < len(long[0]), "an old result is pruned in what the provider gets"
    texts = [message.text for message in windows[-1]]
    assert any("7741-K" in text for text in texts), "what the third turn said is recalled in the last one"
    assert {wire.format for request in server.requests if (wire := wire_of_path(request.path))} == {librarian.format}
    largest = max(report.total_tokens for report in reports)
    print(  # noqa: T201 - the figures of `make frameworks`
        f"{turns} turns, {len(server.requests)} requests checked by the rules of {librarian.format}: 0 invalid; "
        f"{len(reports)} windows, the largest {largest:,} of {LIMIT:,} tokens: 0 over; "
        f"{len(librarian.summaries)} summaries; {len(rows)} messages archived; the fact of turn 3 recalled in the last"
    )
