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

from holdfast.bench.datasets import Conversation, Question
from holdfast.memory import block
from holdfast.search.embed.hashed import HashEmbedder
from holdfast.text import STOP_WORDS
from holdfast.tokens import count_text

__all__ = ["Baseline", "plain_bm25", "seed_formula"]

Place: TypeAlias = tuple[int, int]
Baseline: TypeAlias = Callable[[Question, int], tuple[list[Place], dict[Place, int], str]]
"""A question and a cap to places by rank, quoted characters by place, and the block."""

_TOKEN: Final = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+)|\\w+")
_DAY: Final = 86400.0


class _Bm25:
    """BM25 in memory, over whole turns."""

    def __init__(self, texts: Sequence[Counter[str]], *, k1: float) -> None:
        self._k1 = k1
        self._lengths = np.array([sum(counts.values()) for counts in texts], np.float64)
        self._postings: dict[str, tuple[list[int], list[int]]] = {}
        for number, counts in enumerate(texts):
            for term, count in counts.items():
                documents, frequencies = self._postings.setdefault(term, ([], []))
                documents.append(number)
                frequencies.append(count)

    def __call__(self, asked: Counter[str]) -> npt.NDArray[np.float64]:
        total = len(self._lengths)
        scores = np.zeros(total)
        average = max(1e-9, float(self._lengths.mean())) if total else 1.0
        for term, weight in asked.items():
            documents, counts = (np.array(values) for values in self._postings.get(term, ([], [])))
            if len(documents):
                idf = math.log(1 + (total - len(documents) + 0.5) / (len(documents) + 0.5))
                norm = self._k1 * (0.25 + 0.75 * self._lengths[documents] / average)
                scores[documents] += weight * idf * counts * (self._k1 + 1) / (counts + norm)
        return scores


class _Turns:
    """All turns of a conversation in one list, and how they are quoted whole under a cap."""

    def __init__(self, conversation: Conversation, limit: int | None) -> None:
        self.places: list[Place] = []
        self.texts: list[str] = []
        self.details: list[block.Detail] = []
        self.dates: list[datetime | None] = []
        for number, session in enumerate(conversation.sessions[:limit]):
            moment = 0 if session.date is None else int(session.date.timestamp() * 1000)
            for place, turn in enumerate(session.turns):
                self.places.append((number, place))
                self.texts.append(turn.text)
                self.dates.append(session.date)
                self.details.append(block.Detail(role=turn.speaker or turn.role, time=moment, text=turn.text))

    def answer(self, order: Sequence[int], cap: int) -> tuple[list[Place], dict[Place, int], str]:
        room = cap - count_text(block.render([], [block.Detail(role="", time=0, text="")]))
        chosen: list[int] = []
        for number in order:
            cost = count_text(f"{block.header(self.details[number])}{self.texts[number]}\n\n")
            if cost <= room:
                chosen.append(number)
                room -= cost
        quoted = {self.places[number]: len(self.texts[number]) for number in chosen}
        text = block.render([], [self.details[number] for number in sorted(chosen)])
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


def plain_bm25(conversation: Conversation, limit: int | None = None) -> Baseline:
    """BM25 (k1 1.5, b .75) over whole turns, quoted whole."""
    turns = _Turns(conversation, limit)
    names = [detail.role for detail in turns.details]
    score = _Bm25([_plain_terms(f"{name} {text}") for name, text in zip(names, turns.texts, strict=True)], k1=1.5)

    def ask(question: Question, cap: int) -> tuple[list[Place], dict[Place, int], str]:
        scores = score(_plain_terms(question.text))
        order = [int(number) for number in np.argsort(-scores, kind="stable")[:400] if scores[number] > 0]
        return turns.answer(order, cap)

    return ask


def seed_formula(conversation: Conversation, limit: int | None = None) -> Baseline:
    """The original plugin: 0.7 hash vector + 0.3 BM25 of the best hit, decayed by age, each hit quoted whole."""
    turns = _Turns(conversation, limit)
    score = _Bm25([_seed_terms(text) for text in turns.texts], k1=1.2)
    embedder = HashEmbedder()
    vectors = embedder.embed([text[:2000] for text in turns.texts], kind="passage")

    def ask(question: Question, cap: int) -> tuple[list[Place], dict[Place, int], str]:
        words = score(_seed_terms(question.text))
        alike = vectors @ embedder.embed([question.text], kind="query")[0]
        limit_each = 2 * max(8, math.ceil(cap / 500))
        words = _top(words, limit_each)
        alike = _top(alike.astype(np.float64), limit_each)
        days = np.array([_age(question, date) for date in turns.dates])
        scores = (0.7 * alike + 0.3 * words / max(1e-9, words.max(initial=0))) * 0.995**days
        passed = scores / np.maximum(1e-9, 0.7 * (alike > 0) + 0.3 * (words > 0)) >= 0.7  # noqa: PLR2004 - the seed's minimum
        order = [int(number) for number in np.argsort(-scores, kind="stable") if scores[number] > 0 and passed[number]]
        return turns.answer(order, cap)

    return ask


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
