"""Real transcripts of many agents, cut to three sizes for five providers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import transcripts
from holdfast.context.budget import budget
from holdfast.context.edits import Edit, apply, tokens
from holdfast.context.plan import place, recall_room
from holdfast.context.validate import validate
from holdfast.errors import WindowTooSmallError
from holdfast.messages import Message
from holdfast.providers import FORMATS, check
from holdfast.settings import Pruning, Settings
from holdfast.tokens import count_messages
from support.agent_files import OWN, REAL
from support.cases import each
from support.conversations import items, messages_of, plan
from support.external_data import needs_data

pytestmark = pytest.mark.untraced  # long conversations run the same lines again

LIMITS = (4_000, 16_000, 64_000)
STOPS = 6
MAX_QUICK_BYTES = 200_000
BLOCK = '<recalled-context source="holdfast">\n\n<detail>\n[user] 证书\n</detail>\n\n</recalled-context>'


def requests(conversation: Sequence[Message]) -> Iterator[int]:
    """Where a request could have been made: the user has spoken, or tools have answered."""
    waiting = [stop for stop in range(1, len(conversation) + 1) if conversation[stop - 1].role in {"user", "tool"}]
    step = max(1, len(waiting) // STOPS)
    yield from waiting[step - 1 :: step]


def windows(conversation: Sequence[Message], limit: int, *, settings: Settings) -> Iterator[list[Message]]:
    """The windows of a session, request by request."""
    limits = budget(settings, window=limit)
    all_items = items(conversation)
    edits: list[Edit] = []
    for stop in requests(conversation):
        try:
            planned = plan(all_items[:stop], edits, budget=limits, settings=settings)
        except WindowTooSmallError:
            continue
        edits += planned.edits
        room = recall_room(planned.items, limits, position="tail")
        block = place(planned.items, BLOCK, position="tail") if room >= 100 else None
        edits += [block] if block else []
        placed = apply(planned.items, [block] if block else [])
        assert tokens(placed) <= limits.ceiling
        yield messages_of(placed)


def prove(conversation: Sequence[Message]) -> int:
    """Cut a session to every size, and check what would be sent to every provider."""
    made = 0
    proven: list[list[Message]] = []
    for limit in LIMITS:  # from the smallest: a window that is the same again is not over a larger limit
        for mode in ("off", "adaptive"):
            for said in windows(conversation, limit, settings=Settings(pruning=Pruning(mode=mode))):
                if said in proven:
                    continue
                proven.append(said)
                for provider in FORMATS:
                    done = validate(said, provider)
                    assert check(done.wire, provider) == []
                    assert not done.violations
                    assert count_messages(done.messages) <= limit
                    made += 1
    return made


@each(("format_", "path"), OWN)
def test_our_own_samples_make_valid_windows(format_: str, path: Path) -> None:
    """Of every agent whose files are read."""
    prove(transcripts.read(path, format=format_).messages)


def make_cases() -> Iterator[Any]:
    """Yield all real sessions; the large ones only nightly."""
    for format_, path in REAL:
        is_large = path.is_file() and path.stat().st_size > MAX_QUICK_BYTES
        yield pytest.param(format_, path, id=f"{format_}-{path.name}", marks=pytest.mark.nightly if is_large else ())


@pytest.mark.variants
@needs_data("transcripts")
@pytest.mark.parametrize(("format_", "path"), list(make_cases()))
def test_real_sessions_make_valid_windows(format_: str, path: Path) -> None:
    """None invalid, none over its limit, none that needed the blunt repair."""
    assert prove(transcripts.read(path, format=format_).messages) > 0
