"""How much of what a question needs is in the recalled block, against plain BM25 and the original plugin's formula.

An archive grows session by session. A question that may see only the first sessions is asked when they are there.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from benchmarks.baselines import Baseline, plain_bm25, seed_formula
from benchmarks.datasets import ANY_TURN, Conversation, Question, Turn
from holdfast.embed.base import Embedder, Floats, Purpose, Space
from holdfast.embed.hashed import HashEmbedder
from holdfast.errors import InputError
from holdfast.memory.embedding import vector_rows
from holdfast.memory.passage_search import search
from holdfast.memory.query import RecallQuery
from holdfast.memory.recall import Recall, recall
from holdfast.messages import Message, Text
from holdfast.search.relevance import ALWAYS, NORMAL, Eagerness
from holdfast.store.base import MessageRow, Scope, Store
from holdfast.store.cutting import cut
from holdfast.store.sqlite import SqliteStore
from holdfast.text import terms
from holdfast.tokens import count_text

__all__ = ["Archive", "Quality", "by_limit", "count_quoted", "find_evidence", "measure", "measure_offtopic", "split"]

Place = tuple[int, int]

Fill: TypeAlias = Literal["adaptive", "full"]

CAPS: Final = (500, 1000, 2000, 4000)
UNRELATED_PARTS: Final = 10
"""A conversation gets every tenth of the unrelated questions; if a set has fewer than ten, they share all of them."""
ENOUGH: Final = 300
"""Characters of an evidence turn that the block must hold, or all of it where it is shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """What a system reaches on a data set.

    `r5`, `r10`: share of the evidence among the first 5 and 10 passages. `r_cap`: share of it in the block.
    `all_cap`: share of the questions whose evidence is all there. `coverage`: share of the answer's words. `tokens`:
    mean size of a block. `found_per_1000`: pieces of evidence in 1,000 tokens of blocks.
    """

    r5: float
    r10: float
    r_cap: float
    all_cap: float
    coverage: float
    tokens: float
    found_per_1000: float
    query_ms_p50: float
    query_ms_p95: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What a system gave for a question: places in order of rank, quoted characters by place, and the words.

    `milliseconds` are those of the processor.
    """

    ranked: list[Place]
    quoted: dict[Place, int]
    text: str
    milliseconds: float


Asked: TypeAlias = tuple[Question, Conversation, Answer]


class Archive:
    """A conversation in a store of its own (a file, unless one is given), and where each archived message came from.

    Questions are asked with `embedder`; passages get their vectors from `indexer`, unset from the same.
    """

    def __init__(
        self,
        conversation: Conversation,
        folder: Path,
        *,
        embedder: Embedder | None,
        indexer: Embedder | None = None,
        store: Store | None = None,
    ) -> None:
        self.conversation = conversation
        self.embedder = embedder
        self._indexer = indexer or embedder
        self.store = store or SqliteStore(folder / "bench.db")
        self.places: dict[int, Place] = {}
        self._sessions = 0

    def grow(self, sessions: int) -> None:
        """Archive the sessions up to this many, each in a scope of its own, and embed them."""
        for number in range(self._sessions, sessions):
            session = self.conversation.sessions[number]
            moment = _ms(session.date)
            scope = Scope(session=f"{number}")
            ids = self.store.add_messages(
                [_row(turn, scope=scope, moment=moment, nonce=f"{place}") for place, turn in enumerate(session.turns)]
            )
            self.places.update((row_id, (number, place)) for place, row_id in enumerate(ids))
        self._sessions = max(self._sessions, sessions)
        if self._indexer is not None:
            embed_all(self.store, self._indexer)

    def request(
        self, question: Question, *, cap: int, eagerness: Eagerness = NORMAL, fill: Fill = "adaptive"
    ) -> RecallQuery:
        """A question to all sessions, asked from one of its own."""
        return RecallQuery(
            texts=(question.text,),
            scope=Scope(session="ask"),
            across=True,
            cap=cap,
            now=_ms(question.date),
            eagerness=eagerness,
            fill=fill,
        )

    def count_unrelated(self, texts: Sequence[str], *, cap: int) -> list[int]:
        """Count the tokens of the blocks for questions that have nothing to do with the conversation."""
        scope = Scope(session="ask")
        counts: list[int] = []
        for text in texts:
            query = RecallQuery(texts=(text,), scope=scope, across=True, cap=cap)
            counts.append(recall(self.store, query, embedder=self.embedder).tokens)
        return counts


def _row(turn: Turn, *, scope: Scope, moment: int | None, nonce: str) -> MessageRow:
    message = Message(
        role="user" if turn.role == "user" else "assistant",
        parts=(Text(text=turn.text),),
        timestamp=moment,
        name=turn.speaker or None,
    )
    passages = tuple(cut(turn.text, speaker=turn.speaker))
    return MessageRow(scope=scope, message=message, nonce=nonce, passages=passages)


def embed_all(store: Store, embedder: Embedder, *, batch: int = 512) -> None:
    """Give every passage its vectors."""
    while missing := store.without_vectors(embedder.space, limit=batch):
        store.add_vectors(vector_rows(missing, embedder))


class Remembering:
    """An embedder that embeds the same text once: haystacks share most of their sessions."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._rows: dict[str, Floats] = {}

    @property
    def space(self) -> Space:
        """That of the embedder behind."""
        return self._embedder.space

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:
        """As the embedder behind does."""
        if kind == "query":
            return self._embedder.embed(texts, kind=kind)
        new = [text for text in dict.fromkeys(texts) if text not in self._rows]
        self._rows.update(zip(new, self._embedder.embed(new, kind=kind), strict=True))
        return np.array([self._rows[text] for text in texts], np.float32).reshape(len(texts), self.space.dimension)


def measure(
    conversations: Sequence[Conversation],
    *,
    embedder: Embedder | None,
    cap: int = 4000,
    caps: Sequence[int] = CAPS,
    unrelated: Sequence[str] = (),
    about_oneself: Sequence[str] = (),
    progress: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Ask every question of every conversation; the JSON that `python -m benchmarks recall` prints.

    `holdfast` is the block of a default installation. `ungraded` may take the whole cap for every question, and `full`
    is filled to the cap. `by_cap` is `r_cap` of full blocks. A part of the `unrelated` questions is asked of each
    conversation, and of those that a person asks `about_oneself`, which have nothing to do with it either.
    """
    asked: dict[str, list[Asked]] = {"holdfast": [], "ungraded": [], "full": [], "bm25": [], "seed": []}
    not_needed: list[int] = []
    of_oneself: list[int] = []
    at: dict[str, dict[int, list[float]]] = {name: {each: [] for each in caps} for name in ("full", "bm25", "seed")}
    indexer = None if embedder is None else Remembering(embedder)
    hashed = Remembering(HashEmbedder())
    parts = min(UNRELATED_PARTS, len(conversations))
    for number, conversation in enumerate(conversations):
        with tempfile.TemporaryDirectory() as folder:
            held = Archive(conversation, Path(folder), embedder=embedder, indexer=indexer)
            systems: dict[str, Callable[[Question, int], Answer]] = {
                "holdfast": partial(_ask, held, eagerness=NORMAL, fill="adaptive"),
                "ungraded": partial(_ask, held, eagerness=ALWAYS, fill="adaptive"),
                "full": partial(_ask, held, eagerness=ALWAYS, fill="full"),
                "bm25": partial(_ask_baseline, plain_bm25(conversation)),
                "seed": partial(_ask_baseline, seed_formula(conversation, embedder=hashed)),
            }
            for limit, questions in by_limit(conversation):
                held.grow(limit)
                for question in questions:
                    for name, ask in systems.items():
                        asked[name].append((question, conversation, ask(question, cap)))
                        for each, shares in at.get(name, {}).items():
                            answer = asked[name][-1][2] if each == cap else ask(question, each)
                            shares.append(_shares(question, conversation, answer)[2])
                    progress(1)
            not_needed += held.count_unrelated(unrelated[number % parts :: parts], cap=cap)
            of_oneself += held.count_unrelated(about_oneself[number % parts :: parts], cap=cap)
            held.store.close()
    return {
        "questions": len(asked["holdfast"]),
        "cap": cap,
        "systems": {name: asdict(_quality(rows)) for name, rows in asked.items()},
        "by_cap": {
            name: {f"{each}": round(float(np.mean(shares)), 4) for each, shares in found.items()}
            for name, found in at.items()
        },
        "unrelated_tokens": _mean(not_needed),
        "about_oneself_tokens": _mean(of_oneself),
    }


def _mean(sizes: Sequence[int]) -> float | None:
    if not sizes:
        return None
    return round(float(np.mean(sizes)), 1)


def by_limit(conversation: Conversation) -> list[tuple[int, list[Question]]]:
    """Questions that may search the same sessions together, those that may search the fewest first."""
    groups: dict[int, list[Question]] = {}
    for question in conversation.questions:
        limit = len(conversation.sessions) if question.limit is None else question.limit
        groups.setdefault(limit, []).append(question)
    return sorted(groups.items())


def _ask(held: Archive, question: Question, cap: int, *, eagerness: Eagerness, fill: Fill) -> Answer:
    request = held.request(question, cap=cap, eagerness=eagerness, fill=fill)
    ranked = search(held.store, request, embedder=held.embedder, limit=10)
    start = time.process_time()
    found = recall(held.store, request, embedder=held.embedder)
    spent = (time.process_time() - start) * 1000
    order = list(dict.fromkeys(held.places[hit.message] for hit in ranked))
    return Answer(order, count_quoted(found, held.places), found.block, spent)


def count_quoted(found: Recall, places: Mapping[int, Place]) -> dict[Place, int]:
    """Count the characters of each turn that a block quotes."""
    quoted: dict[Place, int] = {}
    for hit in found.hits:
        place = places[hit.message]
        quoted[place] = quoted.get(place, 0) + len(hit.text)
    return quoted


def _ask_baseline(baseline: Baseline, question: Question, cap: int) -> Answer:
    start = time.process_time()
    ranked, quoted, text = baseline(question, cap)
    return Answer(ranked, quoted, text, (time.process_time() - start) * 1000)


def _quality(rows: Sequence[Asked]) -> Quality:
    shares = [_shares(*row) for row in rows]
    covered = [share for question, _, answer in rows if (share := _coverage(question, answer)) is not None]
    times = [answer.milliseconds for _, _, answer in rows]
    means = [float(np.mean(column)) for column in zip(*shares, strict=True)]
    tokens = [count_text(answer.text) for _, _, answer in rows]
    evidence = sum(share[2] * len(question.evidence) for share, (question, _, _) in zip(shares, rows, strict=True))
    return Quality(
        r5=round(means[0], 4),
        r10=round(means[1], 4),
        r_cap=round(means[2], 4),
        all_cap=round(means[3], 4),
        coverage=round(float(np.mean(covered)), 4) if covered else 0.0,
        tokens=round(float(np.mean(tokens)), 1),
        found_per_1000=round(1000 * evidence / max(1, sum(tokens)), 3),
        query_ms_p50=round(float(np.percentile(times, 50)), 2),
        query_ms_p95=round(float(np.percentile(times, 95)), 2),
    )


def find_evidence(question: Question, conversation: Conversation, quoted: Mapping[Place, int]) -> list[bool]:
    """Tell for each piece of evidence whether enough of it is quoted."""
    return _found(
        question, {place for place, size in quoted.items() if size >= min(ENOUGH, _size(conversation, place))}
    )


def _shares(question: Question, conversation: Conversation, answer: Answer) -> tuple[float, float, float, float]:
    in_cap = find_evidence(question, conversation, answer.quoted)
    return (
        sum(_found(question, set(answer.ranked[:5]))) / len(question.evidence),
        sum(_found(question, set(answer.ranked[:10]))) / len(question.evidence),
        sum(in_cap) / len(in_cap),
        float(all(in_cap)),
    )


def _found(question: Question, places: set[Place]) -> list[bool]:
    sessions = {session for session, _ in places}
    return [
        evidence[0] in sessions if evidence[1] == ANY_TURN else evidence in places for evidence in question.evidence
    ]


def _size(conversation: Conversation, place: Place) -> int:
    return len(conversation.sessions[place[0]].turns[place[1]].text.strip())


def _coverage(question: Question, answer: Answer) -> float | None:
    wanted = set(terms(question.answer))
    return len(wanted & set(terms(answer.text))) / len(wanted) if wanted else None


def _ms(date: datetime | None) -> int | None:
    return None if date is None else int(date.timestamp() * 1000)


# --- questions that are off topic ------------------------------------------------


def measure_offtopic(
    conversations: Sequence[Conversation],
    *,
    embedder: Embedder | None,
    unrelated: Sequence[Question] = (),
    cap: int = 4000,
    progress: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Ask questions that an archive can and cannot answer; the JSON that `python -m benchmarks offtopic` prints.

    `kept` is the share of questions that get a block from their own conversation, `injected_near` that of those that
    get one from another conversation of the same data set, `injected_offtopic` that of `unrelated` questions; each with
    the mean tokens of all. Where there is one conversation only, its halves are the two.
    """
    if len(conversations) == 1:
        conversations = split(conversations[0])
    if len(conversations) < 2:
        raise InputError("off-topic questions need a data set of at least two conversations")
    asked: dict[str, list[int]] = {"kept": [], "injected_near": [], "injected_offtopic": []}
    for number, conversation in enumerate(conversations):
        others = [replace(question, limit=None) for question in conversations[number - 1].questions]
        with _archive(conversation, embedder) as held:
            for limit, questions in by_limit(conversation):
                held.grow(limit)
                for question in questions:
                    asked["kept"].append(_block_tokens(held, question, cap))
                    progress(1)
            held.grow(len(conversation.sessions))
            asked["injected_near"] += [_block_tokens(held, question, cap) for question in others]
            # Every unrelated question is asked of some conversation, and of each there are at least 40.
            step = max(1, min(len(conversations), len(unrelated) // 40))
            asked["injected_offtopic"] += [
                _block_tokens(held, question, cap) for question in unrelated[number % step :: step]
            ]
    found: dict[str, Any] = {"questions": len(asked["kept"])}
    found |= {name: round(float(np.mean(np.array(sizes) > 0)), 4) for name, sizes in asked.items() if sizes}
    return found | {f"{name}_tokens": round(float(np.mean(sizes)), 1) for name, sizes in asked.items() if sizes}


def split(conversation: Conversation) -> list[Conversation]:
    """Return the first and the last sessions of a conversation, each with the questions that it alone answers."""
    middle = len(conversation.sessions) // 2
    first = [question for question in conversation.questions if all(place[0] < middle for place in question.evidence)]
    last = [
        replace(question, evidence=frozenset((session - middle, turn) for session, turn in question.evidence))
        for question in conversation.questions
        if all(place[0] >= middle for place in question.evidence)
    ]
    halves = ((conversation.sessions[:middle], first), (conversation.sessions[middle:], last))
    return [
        Conversation(sessions, tuple(replace(question, limit=None) for question in questions))
        for sessions, questions in halves
        if questions
    ]


def shorten(conversations: Iterable[Conversation], *, turns: int, most: int = 100) -> list[Conversation]:
    """Return an archive of a few turns for each of some questions: those up to a little behind its first evidence."""
    asked = [(conversation, question) for conversation in conversations for question in conversation.questions]
    return [_shorten(*pair, turns=turns) for pair in asked[:: -(-len(asked) // most)]]


def _shorten(conversation: Conversation, question: Question, *, turns: int) -> Conversation:
    first = min(question.evidence)
    places = [(number, place) for number, one in enumerate(conversation.sessions) for place in range(len(one.turns))]
    end = places.index((first[0], max(0, first[1]))) + 1 + turns // 4
    kept = set(places[max(0, end - turns) : max(end, turns)])
    sessions = [
        replace(one, turns=tuple(turn for place, turn in enumerate(one.turns) if (number, place) in kept))
        for number, one in enumerate(conversation.sessions)
    ]
    return Conversation(tuple(sessions), (replace(question, limit=None),))


@contextmanager
def _archive(conversation: Conversation, embedder: Embedder | None) -> Iterator[Archive]:
    with tempfile.TemporaryDirectory() as folder:
        held = Archive(conversation, Path(folder), embedder=embedder)
        try:
            yield held
        finally:
            held.store.close()


def _block_tokens(held: Archive, question: Question, cap: int) -> int:
    return recall(held.store, held.request(question, cap=cap), embedder=held.embedder).tokens
