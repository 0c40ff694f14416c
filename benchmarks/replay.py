"""Searches that are made once and kept, so that ranking, gate and packing can be tried again in seconds.

A case is a question, what the store found for it, and whether the archive can answer it. `Replay` is the store of one
case: it returns what was found, and `recall` runs as it does over any other store.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from benchmarks.datasets import Conversation, Question
from benchmarks.recall import CAPS, Archive, Place, Remembering, by_limit, count_quoted, find_evidence
from holdfast.embed.base import Embedder
from holdfast.memory.query import RecallQuery
from holdfast.memory.recall import Recall, recall
from holdfast.search.arrays import Floats, Ints
from holdfast.search.candidates import Candidates
from holdfast.search.fuse import Order, Recipe
from holdfast.search.relevance import ALWAYS, SHY
from holdfast.store.base import PassageText, Scope, SearchQuery, Select, Store

__all__ = [
    "Case",
    "Replay",
    "choose_others",
    "load_cases",
    "measure",
    "measure_ingredients",
    "record",
    "save_cases",
]

_SKIPPED: Final = "score_windows"
_NEUTRAL: Final[dict[str, Any]] = {
    "vector": 0.0,
    "together": 0.0,
    "human": 1.0,
    "near": 0.0,
    "far": 0.0,
    "session": 0.0,
    "date": 0.0,
    "brevity": 0.0,
    "plenty": 0.0,
    "best": 0,
}
"""The values of the recipe that leave one ingredient out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A question and what the store found for it.

    Attributes:
        question: The question.
        query: What is asked of memory.
        conversation: The archive.
        places: Where each archived message came from.
        passages: The texts of all passages of the archive, by number.
        signals: The arrays of the candidates.
        words: BM25 of all windows of the candidates.
        cosines: Their cosines; None without vectors.
        kind: `own`, `near` (a question of another archive of the same set) or `far` (of another set).
    """

    question: Question
    query: RecallQuery
    conversation: Conversation
    places: Mapping[int, Place]
    passages: Mapping[int, PassageText]
    signals: Mapping[str, Any]
    words: Floats
    cosines: Floats | None
    kind: str

    def candidates(self) -> Candidates:
        """Return the candidates as the store returned them."""
        counts = self.signals["windows"]
        firsts = np.cumsum(counts) - counts

        def score_windows(places: Ints) -> tuple[Floats, Floats | None]:
            chosen = counts[places]
            starts = np.cumsum(chosen) - chosen
            windows = np.arange(chosen.sum()) + np.repeat(firsts[places] - starts, chosen)
            return self.words[windows], None if self.cosines is None else self.cosines[windows]

        return Candidates(**self.signals, score_windows=score_windows)


class Replay:
    """The store of one case."""

    def __init__(self, case: Case) -> None:
        self._case = case

    def search(self, _: SearchQuery) -> Candidates:
        """Return what the first search found, also for the search for corrections of that."""
        return self._case.candidates()

    def read_passages(self, select: Select) -> list[PassageText]:
        """Return the texts of passages."""
        return [self._case.passages[number] for number in sorted(select.ids or ())]

    def read_records(self, _: Select, **__: object) -> list[Any]:
        """Return nothing: nothing is excluded."""
        return []

    def read_messages(self, _: Select) -> list[Any]:
        """Return nothing: sessions are not listed."""
        return []

    def read_sessions(self, _: Scope, **__: object) -> list[Any]:
        """Return nothing: sessions are not listed."""
        return []

    def read_facts(self, _: Select) -> list[Any]:
        """Return nothing: there are no facts."""
        return []

    @property
    def store(self) -> Store:
        """The same as a store."""
        return cast("Store", self)


class _Recorder:
    """A store that records what its first search found. Later ones look for corrections of that."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.found: Candidates | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def search(self, query: SearchQuery) -> Candidates:
        found = self._store.search(query)
        if self.found is None:
            self.found = found
        return found


def record(
    conversations: Sequence[Conversation],
    *,
    embedder: Embedder | None,
    stride: int = 1,
    others: Mapping[str, Callable[[int], Iterable[Question]]] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Case]:
    """Ask every `stride`th question of its own archive, and the questions of `others`, by kind, of each whole archive.

    Each of `others` takes the number of a conversation.
    """
    indexer = None if embedder is None else Remembering(embedder)
    asked = 0
    for number, conversation in enumerate(conversations):
        wanted: list[tuple[int, list[Question]]] = []
        for limit, questions in by_limit(conversation):
            chosen = [one for place, one in enumerate(questions, asked) if place % stride == 0]
            asked += len(questions)
            if chosen:
                wanted.append((limit, chosen))
        with tempfile.TemporaryDirectory() as folder:
            held = Archive(conversation, Path(folder), embedder=embedder, indexer=indexer)
            passages: dict[int, PassageText] = {}
            for limit, questions in wanted:
                held.grow(limit)
                for question in questions:
                    yield _ask(held, question, passages, "own")
                    progress(1)
            for kind, choose in (others or {}).items():
                held.grow(len(conversation.sessions))
                for question in choose(number):
                    yield _ask(held, question, passages, kind)
                    progress(1)
            whole = Select(scope=held.request(Question(text="", evidence=frozenset()), cap=1).scope, across=True)
            passages.update((row.number, row) for row in held.store.read_passages(whole))
            held.store.close()


def choose_others(
    conversations: Sequence[Conversation], unrelated: Sequence[Question], *, near: int = 200
) -> dict[str, Callable[[int], Iterable[Question]]]:
    """Ask each unrelated question of one conversation, and about so many of the conversation before: see `record`."""
    total = sum(len(conversation.questions) for conversation in conversations) if len(conversations) > 1 else 0

    def choose_near(number: int) -> Iterator[Question]:
        for place, question in enumerate(conversations[number - 1].questions, number):
            if total and place % max(1, total // near) == 0:
                yield replace(question, limit=None)

    return {"near": choose_near, "far": lambda number: unrelated[number :: len(conversations)]}


def measure(
    cases: Sequence[Case], *, embedder: Embedder | None, progress: Callable[[int], None] = lambda _: None
) -> dict[str, float]:
    """Replay cases: shares of evidence and of questions with a block.

    `R` and `tokens` are those of adaptive blocks, `R_500` and so on of full ones, all without grading; `own`, `near`
    and `far` are the mean tokens of graded blocks.
    """
    figures: dict[str, list[float]] = {}
    for case in cases:
        figures.setdefault(case.kind, []).append(float(_recall(case, embedder).tokens))
        if case.kind == "own":
            for name, value in _measure_blocks(case, embedder, CAPS).items():
                figures.setdefault(name, []).append(value)
        progress(1)
    return {"questions": len(figures.get("own", ())), **{name: float(np.mean(row)) for name, row in figures.items()}}


def measure_ingredients(cases: Sequence[Case], *, embedder: Embedder | None) -> dict[str, dict[str, float]]:
    """Replay the questions that their archive can answer with the recipe, and without each of its ingredients."""
    own = [case for case in cases if case.kind == "own"]
    recipes = {"all": Recipe()} | {
        f"without {name}": replace(Recipe(), **{name: value}) for name, value in _NEUTRAL.items()
    }
    found = {}
    for title, recipe in recipes.items():
        order = Order(recipe=recipe)
        rows = [_measure_blocks(case, embedder, CAPS[-1:], order=order) for case in own]
        found[title] = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    return found


def _measure_blocks(case: Case, embedder: Embedder | None, caps: Sequence[int], **changes: Any) -> dict[str, float]:
    """Return the tokens of the adaptive block, and the share of the evidence in it and in full ones of some sizes."""
    found = {"R": _recall(case, embedder, eagerness=ALWAYS, **changes)}
    figures = {"tokens": float(found["R"].tokens)}
    found |= {f"R_{cap}": _recall(case, embedder, eagerness=ALWAYS, cap=cap, fill="full", **changes) for cap in caps}
    for name, block in found.items():
        held = find_evidence(case.question, case.conversation, count_quoted(block, case.places))
        figures[name] = sum(held) / len(held)
    return figures


def _recall(case: Case, embedder: Embedder | None, **changes: Any) -> Recall:
    return recall(Replay(case).store, replace(case.query, **changes), embedder=embedder)


def _ask(held: Archive, question: Question, passages: dict[int, PassageText], kind: str) -> Case:
    query = held.request(question, cap=4000)
    recorder = _Recorder(held.store)
    recall(cast("Store", recorder), replace(query, eagerness=SHY), embedder=held.embedder)
    found = recorder.found
    if found is None:
        raise RuntimeError("nothing was searched")
    words, cosines = found.score_windows(np.arange(len(found)))
    signals = {each.name: getattr(found, each.name) for each in fields(Candidates) if each.name != _SKIPPED}
    return Case(
        question=question,
        query=query,
        conversation=held.conversation,
        places=held.places,
        passages=passages,
        signals=signals,
        words=words,
        cosines=cosines,
        kind=kind,
    )


def save_cases(cases: Sequence[Case], path: Path) -> None:
    """Write cases to a file."""
    with path.open("wb") as file:
        pickle.dump(list(cases), file, protocol=pickle.HIGHEST_PROTOCOL)


def load_cases(path: Path) -> list[Case]:
    """Read cases that `save_cases` wrote."""
    with path.open("rb") as file:
        return list(pickle.load(file))  # noqa: S301 - written by the line above
