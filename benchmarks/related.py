"""Make the table of related English words in `holdfast/search/related.txt` from the vectors of a static model.

The words are the whole words in the vocabulary of the model. Vectors are taken relative to their mean.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from holdfast.embed.static import StaticEmbedder
from holdfast.text import terms

__all__ = ["find_related", "format_table"]

MIN_COSINE: Final = 0.45
MAX_RELATED: Final = 8
_MIN_CHARS: Final = 3
_BATCH: Final = 1000
_APART: Final = """
    monday tuesday wednesday thursday friday saturday sunday january february march april may june july august september
    october november december one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty
    sixty seventy eighty ninety hundred thousand million billion first second third fourth fifth sixth seventh eighth
    ninth tenth north south east west
"""
"""Words whose neighbours mean something else: Tuesday is no answer about Monday."""


def find_related(folder: Path) -> dict[str, dict[str, float]]:
    """Return the nearest terms of each term in the vocabulary of the model in a folder, with their cosines."""
    apart = set(terms(_APART))
    vocabulary = json.loads((folder / "tokenizer.json").read_bytes())["model"]["vocab"]
    words = [word for word in vocabulary if re.fullmatch("[a-z]{3,}", word)]
    named = {word: found[0] for word in words if len(found := terms(word)) == 1}
    words = [word for word, term in named.items() if len(term) >= _MIN_CHARS and term not in apart]
    vectors = StaticEmbedder.from_folder(folder).embed(words, kind="passage")
    vectors = vectors - vectors.mean(axis=0)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6)
    related: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for start in range(0, len(words), _BATCH):
        cosines = vectors[start : start + _BATCH] @ vectors.T
        for row, other in np.argwhere(cosines >= MIN_COSINE).tolist():
            term, near, cosine = named[words[start + row]], named[words[other]], float(cosines[row, other])
            if near != term and cosine > related[term].get(near, 0.0):
                related[term][near] = cosine
    return {
        term: dict(sorted(row.items(), key=lambda item: -item[1])[:MAX_RELATED]) for term, row in related.items() if row
    }


def format_table(related: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield the lines of the table, with cosines in percent."""
    for term, row in sorted(related.items()):
        yield " ".join([term, *(f"{word} {round(100 * cosine)}" for word, cosine in row.items())])
