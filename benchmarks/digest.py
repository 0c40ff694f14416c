"""How often a digest states something that was corrected later, and how many statements it keeps.

The sheet (`data/digest.json`) has statements of a user, each with a later sentence that corrects it. Choose limits in
`holdfast/compaction/statements.py` with one half of it, and check them with the other. Each pair is in a conversation
of its own, with 120 messages about other things, which is compacted without a model: once, after the correction, or
twice, so that the first digest has the statement already.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from holdfast import Engine
from holdfast.settings import Embedding, Settings

__all__ = ["HALVES", "Pair", "count_digests", "load_pairs", "measure"]

Half = Literal["choose", "check"]
HALVES: Final[tuple[Half, ...]] = ("choose", "check")
TIMES: Final = {"compacted once": False, "compacted twice": True}
"""Whether there is a digest before the correction."""

_SHEET: Final = Path(__file__).with_name("data") / "digest.json"
_LIMIT: Final = 16_000
_TURNS: Final = 30
"""Turns about other things after the statement, and as many after the correction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A statement and the later one that corrects it, and words of the old and of the new value."""

    half: Half
    first: str
    correction: str
    old: str
    new: str


def load_pairs() -> list[Pair]:
    """Read the sheet."""
    return [Pair(**row) for row in json.loads(_SHEET.read_text("utf-8"))["pairs"]]


def count_digests() -> int:
    """Count the conversations."""
    return len(load_pairs()) * len(TIMES)


def measure(*, progress: Callable[[int, str], None] = lambda *_: None) -> dict[str, Any]:
    """Compact every conversation, and count what the digests state.

    `progress` is called with the number of digests that were made, and the name of the row.
    """
    rows: dict[str, dict[str, Any]] = {}
    stale: list[str] = []
    for half in HALVES:
        pairs = [pair for pair in load_pairs() if pair.half == half]
        for times, has_digest in TIMES.items():
            name = f"{half}, {times}"
            counts: Counter[str] = Counter()
            tokens: list[int] = []
            for pair in pairs:
                text, size = _make_digest(pair, has_digest=has_digest)
                tokens.append(size)
                outcome = judge(pair, text)
                counts[outcome] += 1
                if outcome == "old alone":
                    stale.append(f"{name}: {pair.first}")
                progress(1, name)
            rows[name] = {
                "pairs": len(pairs),
                "new alone": counts["new alone"],
                "old and new": counts["old and new"],
                "old alone": counts["old alone"],
                "neither": counts["neither"],
                "tokens": sum(tokens) / len(tokens),
            }
    return {"digests": rows, "stale": stale}


def judge(pair: Pair, digest: str) -> str:
    """Tell which values a digest has."""
    has_new = pair.new in digest
    if pair.old in digest:
        return "old and new" if has_new else "old alone"
    return "new alone" if has_new else "neither"


def _make_digest(pair: Pair, *, has_digest: bool) -> tuple[str, int]:
    """Return the digest of a conversation with a statement and its correction, and its tokens."""
    history = [*_say("Please get the importer into shape, file by file."), *_say(pair.first), *_work(0)]
    settings = Settings(embedding=Embedding(provider="none"))
    with tempfile.TemporaryDirectory() as folder, Engine.open(folder, settings=settings, background=False) as engine:
        session = engine.session("talk")
        if has_digest:
            session.compact(history, limit=_LIMIT)
        history += [*_say(pair.correction), *_work(_TURNS)]
        summary = session.compact(history, limit=_LIMIT).summary
    if summary is None:
        raise RuntimeError("nothing was compacted")
    return summary.text, summary.tokens


def _say(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}, {"role": "assistant", "content": "OK."}]


def _work(start: int) -> list[dict[str, str]]:
    messages: list[dict[str, str]] = []
    for number in range(start, start + _TURNS):
        found = f"File {number} reads {number * 3} rows and writes them to the table. " * 12
        messages.append({"role": "user", "content": f"Look at file {number} of the importer."})
        messages.append({"role": "assistant", "content": found})
    return messages
