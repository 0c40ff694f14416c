"""What Holdfast is compared with: plain BM25 over whole turns, and the formula of the original plugin."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from benchmarks.datasets import Conversation, Question
from holdfast.embed.base import Embedder
from holdfast.embed.hashed import HashEmbedder
from holdfast.memory import block
from holdfast.memory.block import UNKEPT
from holdfast.text import STOP_WORDS
from holdfast.tokens import count_text

__all__ = ["Baseline", "plain_bm25", "seed_formula"]

Place: TypeAlias = tuple[int, int]
Baseline: TypeAlias = Callable[[Question, int], tuple[list[Place], dict[Place, int], str]]
"""A question and a cap to places by rank, quoted characters by place, and the block."""

_UNSPACED: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_TOKEN: Final = re.compile(f"([{_UNSPACED}]+)|[^\\W{_UNSPACED}]+")
_DAY: Final = 86400.0
_LEAST: Final = 0.6
"""The plugin's least score, by the weights of the channels that found a hit."""


class _Bm25:
    """BM25 in memory, over whole turns; asked of the first so many of them, it knows of no other."""

    def __init__(self, texts: Sequence[Counter[str]], *, k1: float) -> None:
        self._k1 = k1
        self._lengths = np.array([sum(counts.values()) for counts in texts], np.float64)
        postings: dict[str, tuple[list[int], list[int]]] = {}
        for number, counts in enumerate(texts):
            for term, count in counts.items():
                documents, frequencies = postings.setdefault(term, ([], []))
                documents.append(number)
                frequencies.append(count)
        self._postings = {term: (np.array(first), np.array(second)) for term, (first, second) in postings.items()}

    def __call__(self, asked: Counter[str], total: int) -> npt.NDArray[np.float64]:
        scores = np.zeros(total)
        lengths = self._lengths[:total]
        average = max(1e-9, float(lengths.mean())) if total else 1.0
        for term, weight in asked.items():
            if term not in self._postings:
                continue
            documents, counts = self._postings[term]
            seen = int(np.searchsorted(documents, total))
            documents, counts = documents[:seen], counts[:seen]
            idf = math.log(1 + (total - seen + 0.5) / (seen + 0.5))
            norm = self._k1 * (0.25 + 0.75 * lengths[documents] / average)
            scores[documents] += weight * idf * counts * (self._k1 + 1) / (counts + norm)
        return scores


class _Turns:
    """All turns of a conversation in one list, and how they are quoted whole under a cap."""

    def __init__(self, conversation: Conversation) -> None:
        self.places: list[Place] = []
        self.texts: list[str] = []
        self.details: list[block.Detail] = []
        self.dates: list[datetime | None] = []
        self._ends = np.cumsum([0, *(len(session.turns) for session in conversation.sessions)]).tolist()
        for number, session in enumerate(conversation.sessions):
            moment = 0 if session.date is None else int(session.date.timestamp() * 1000)
            for place, turn in enumerate(session.turns):
                self.places.append((number, place))
                self.texts.append(turn.text)
                self.dates.append(session.date)
                self.details.append(block.Detail(role=turn.speaker or turn.role, time=moment, text=turn.text))

    def seen(self, question: Question) -> int:
        """How many turns a question may see."""
        return int(self._ends[-1 if question.limit is None else question.limit])

    def answer(self, order: Sequence[int], cap: int) -> tuple[list[Place], dict[Place, int], str]:
        room = cap - count_text(block.render([], [block.Detail(role="", time=0, text="")], UNKEPT))
        chosen: list[int] = []
        for number in order:
            detail = self.details[number]
            _, header = block.headers(detail.role, detail.time, detail.session, "full")[0]
            cost = count_text(f"{header}{self.texts[number]}")
            if cost <= room:
                chosen.append(number)
                room -= cost
        quoted = {self.places[number]: len(self.texts[number]) for number in chosen}
        text = block.render([], [self.details[number] for number in sorted(chosen)], UNKEPT, style="full")
        return [self.places[number] for number in order[:10]], quoted, text


def _plain_terms(text: str) -> Counter[str]:
    """Lower case, stop words out, pairs of characters for scripts without spaces."""
    found: Counter[str] = Counter()
    for match in _TOKEN.finditer(text.lower()):
        run = match.group(1)
        if run:
            found.update(run[i : i + 2] for i in range(max(1, len(run) - 1)))
        elif match.group() not in STOP_WORDS:
            found[match.group()] += 1
    return found


def plain_bm25(conversation: Conversation) -> Baseline:
    """BM25 (k1 1.5, b .75) over whole turns, quoted whole."""
    turns = _Turns(conversation)
    names = [detail.role for detail in turns.details]
    score = _Bm25([_plain_terms(f"{name} {text}") for name, text in zip(names, turns.texts, strict=True)], k1=1.5)

    def ask(question: Question, cap: int) -> tuple[list[Place], dict[Place, int], str]:
        scores = score(_plain_terms(question.text), turns.seen(question))
        order = [int(number) for number in np.argsort(-scores, kind="stable")[:400] if scores[number] > 0]
        return turns.answer(order, cap)

    return ask


def seed_formula(conversation: Conversation, *, embedder: Embedder | None = None) -> Baseline:
    """The original plugin: 0.7 hash vector + 0.3 BM25 of the best hit, decayed by age, its neighbours along with it."""
    turns = _Turns(conversation)
    score = _Bm25([_seed_terms(text) for text in turns.texts], k1=1.2)
    hashed = embedder or HashEmbedder()
    vectors = hashed.embed([text[:2000] for text in turns.texts], kind="passage")

    def ask(question: Question, cap: int) -> tuple[list[Place], dict[Place, int], str]:
        most, seen = max(8, math.ceil(cap / 500)), turns.seen(question)
        words = _top(score(_seed_terms(question.text), seen), 2 * most)
        asked = hashed.embed([question.text], kind="query")[0]
        alike = _top((vectors[:seen] @ asked).astype(np.float64), 2 * most)
        days = np.array([_age(question, date) for date in turns.dates[:seen]])
        scores = (0.7 * alike + 0.3 * words / max(1e-9, words.max(initial=0))) * 0.995**days
        channels = np.maximum(1e-9, 0.7 * (alike > 0) + 0.3 * (words > 0))
        hits = [number for number in _falling(scores) if scores[number] / channels[number] >= _LEAST][:most]
        return turns.answer(_falling(_with_neighbours(scores, hits)), cap)

    return ask


def _with_neighbours(scores: npt.NDArray[np.float64], hits: Sequence[int]) -> npt.NDArray[np.float64]:
    """The hits, and the two turns before and after each: less the further away, the best of what they are given."""
    spread = np.zeros_like(scores)
    for hit in hits:
        for distance in range(-2, 3):
            near = hit + distance
            if 0 <= near < len(scores):
                spread[near] = max(spread[near], scores[hit] * (1 - 0.15 * abs(distance)))
    return spread


def _falling(scores: npt.NDArray[np.float64]) -> list[int]:
    return [number for number in np.argsort(-scores, kind="stable").tolist() if scores[number] > 0]


def _seed_terms(text: str) -> Counter[str]:
    """Words as they stand, Chinese characters one by one and in pairs; kana and Hangul runs are one word each."""
    found: Counter[str] = Counter()
    for token in re.findall(
        "[\u3000-\u303f\u3400-\u4dbf\u4e00-\u9fff]+|[^\\W_\u3000-\u303f\u3400-\u9fff]+", text.lower()
    ):
        if "\u3000" <= token[0] <= "\u9fff" and not ("\u3040" <= token[0] <= "\u30ff"):
            found.update(token)
            found.update(token[i : i + 2] for i in range(len(token) - 1))
        else:
            found[token] += 1
    return found


def _top(scores: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    kept = np.zeros_like(scores)
    best = np.argsort(-scores, kind="stable")[:count]
    kept[best] = np.maximum(scores[best], 0)
    return kept


def _age(question: Question, date: datetime | None) -> float:
    if date is None or question.date is None:
        return 0.0
    return max(0.0, (question.date - date).total_seconds() / _DAY)
