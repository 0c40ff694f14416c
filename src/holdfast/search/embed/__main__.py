"""`python -m holdfast.search.embed FILE` measures the embedder that is taken on this machine.

A text file is cut into passages of 1,000 characters and gives the speed. A file in the form of SQuAD (SQuAD,
CMRC 2018, JSQuAD, KorQuAD) also gives how often the vectors alone put a question's own paragraph in front.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from holdfast.search.embed.base import Embedder
from holdfast.search.embed.choice import choose
from holdfast.settings import Embedding

_PASSAGE: Final = 1_000
_QUESTIONS: Final = 200
_ROUNDS: Final = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print one figure a line."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.search.embed", description="Measure an embedder.")
    parser.add_argument("file", type=Path, help="text, or questions in the form of SQuAD")
    parser.add_argument("--provider", default="auto")
    parser.add_argument("--model")
    given = parser.parse_args(arguments)
    settings = msgspec.convert({"provider": given.provider, "model": given.model}, Embedding)
    began = time.perf_counter()
    choice = choose(settings)
    opened = time.perf_counter() - began
    sys.stdout.writelines(f"{reason}\n" for reason in choice.reasons)
    if choice.embedder is None:
        return 1
    passages, questions = _read(given.file)
    sys.stdout.write(f"opened in {1000 * opened:.0f} ms\n")
    sys.stdout.writelines(f"{line}\n" for line in _figures(choice.embedder, passages, questions))
    return 0


def _read(path: Path) -> tuple[list[str], list[tuple[str, int]]]:
    """Passages, and questions with the number of the passage that answers them."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".json":
        return [text[start : start + _PASSAGE] for start in range(0, len(text), _PASSAGE)], []
    paragraphs = [paragraph for article in json.loads(text)["data"] for paragraph in article["paragraphs"]]
    questions = [(each["question"], place) for place, given in enumerate(paragraphs) for each in given["qas"]]
    return [paragraph["context"] for paragraph in paragraphs], questions


def _figures(embedder: Embedder, passages: list[str], questions: list[tuple[str, int]]) -> Iterator[str]:
    vectors, seconds = _fastest(partial(embedder.embed, passages, kind="passage"))
    length = sum(map(len, passages)) / max(1, len(passages))
    yield f"{len(passages) / seconds:.0f} passages a second ({len(passages)} of {length:.0f} characters)"
    asked = [text for text, _ in questions] or [text[:80] for text in passages]
    # As passages, one by one: questions come from the cache when they are repeated.
    singly = [_fastest(partial(embedder.embed, [text], kind="passage"))[1] for text in asked[:_QUESTIONS]]
    yield f"{1000 * float(np.median(singly)):.2f} ms a question"
    if questions:
        alike = embedder.embed(asked, kind="query") @ vectors.T
        right = np.array([place for _, place in questions])[:, None]
        ranks = (alike > np.take_along_axis(alike, right, axis=1)).sum(axis=1)
        shares = ", ".join(f"R@{depth} {(ranks < depth).mean():.3f}" for depth in (5, 10))
        yield f"{shares} ({len(questions)} questions)"


def _fastest(work: Callable[[], Any]) -> tuple[Any, float]:
    """What the work gives, and the seconds of its fastest round: the others say more of the machine."""
    took: list[float] = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        given = work()
        took.append(time.perf_counter() - began)
    return given, min(took)


if __name__ == "__main__":
    sys.exit(main())
