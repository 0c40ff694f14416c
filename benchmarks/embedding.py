"""How fast an embedder is, and how often its vectors alone rank a question's own paragraph first."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from holdfast.embed.base import Embedder, behind_cache

__all__ = ["measure"]

_PASSAGE_CHARS: Final = 1_000
_MAX_QUESTIONS: Final = 200
_ROUNDS: Final = 3


def measure(embedder: Embedder, path: Path) -> dict[str, Any]:
    """Measure an embedder on a text file, or on questions in the format of SQuAD (CMRC 2018, JSQuAD, KorQuAD)."""
    passages, questions = _read(path)
    embedder = behind_cache(embedder) or embedder  # the rounds repeat the texts
    start = time.process_time()
    vectors, seconds = _fastest(partial(embedder.embed, passages, kind="passage"))
    processor_seconds = (time.process_time() - start) / _ROUNDS
    queries = [text for text, _ in questions] or [text[:80] for text in passages]
    times = [_fastest(partial(embedder.embed, [text], kind="passage"))[1] for text in queries[:_MAX_QUESTIONS]]
    figures: dict[str, Any] = {
        "passages": len(passages),
        "passages_per_second": len(passages) / seconds,
        "processor_ms_per_passage": 1000 * processor_seconds / len(passages),
        "query_ms": 1000 * float(np.median(times)),
    }
    if questions:
        cosines = embedder.embed(queries, kind="query") @ vectors.T
        own = np.array([place for _, place in questions])[:, None]
        ranks = (cosines > np.take_along_axis(cosines, own, axis=1)).sum(axis=1)
        figures |= {f"r{depth}": float((ranks < depth).mean()) for depth in (5, 10)} | {"questions": len(questions)}
    return figures


def _read(path: Path) -> tuple[list[str], list[tuple[str, int]]]:
    """Read passages, and questions with the number of the passage that answers them."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".json":
        return [text[start : start + _PASSAGE_CHARS] for start in range(0, len(text), _PASSAGE_CHARS)], []
    paragraphs = [paragraph for article in json.loads(text)["data"] for paragraph in article["paragraphs"]]
    questions = [(row["question"], place) for place, paragraph in enumerate(paragraphs) for row in paragraph["qas"]]
    return [paragraph["context"] for paragraph in paragraphs], questions


def _fastest(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a call, and the seconds of its fastest round: the others measure the machine."""
    seconds: list[float] = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
    return result, min(seconds)
