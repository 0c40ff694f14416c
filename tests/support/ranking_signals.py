"""A few passages as ranking sees them, made where a test needs them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.index.bm25 import Corpus, Term, score
from holdfast.index.candidates import select_candidates
from holdfast.index.columns import Columns
from holdfast.index.postings import NO_OCCURRENCES, Postings, gather, term_ids
from holdfast.index.vectors import Centering
from holdfast.search.fuse import Signals
from holdfast.text import terms
from support.passage_rows import PassageRow, append

DAY = 86_400_000


@dataclass(frozen=True)
class Said:
    """One passage of one window."""

    text: str
    session: int = 0
    human: bool = True
    time: int = 0


def signals(
    passages: Sequence[Said],
    question: str,
    *,
    hidden: Sequence[int] = (),
    cosine: Sequence[float] | None = None,
    centre: Centering | None = None,
    limit: int = 10_000,
    **more: Any,
) -> Signals:
    """What is known of the passages for a question; `cosine` is that of each, `hidden` may not be ranked."""
    columns, windows, found = Columns(), list[int](), list[int]()
    last: dict[int, int] = {}
    for number, said in enumerate(passages):
        words = terms(said.text)
        windows += [number] * len(words)
        found += term_ids(words).tolist()
        row = PassageRow(
            message=number + 1,
            scope=said.session,
            time=said.time,
            previous=last.get(said.session, -1),
            human=said.human,
            size=len(said.text),
            window_lengths=(len(words),),
        )
        last[said.session] = append(columns, row)
    lists = gather(np.array(windows, np.uint32), np.array(found, np.int64)).by_term()
    eligible = np.ones(len(passages), np.bool_)
    eligible[list(hidden)] = False
    asked = Counter(terms(question))
    numbers = term_ids(list(asked)).tolist()
    found_lists = Postings.of([[lists.get(number, NO_OCCURRENCES)] for number in numbers], columns)
    asked_for = list(map(Term, found_lists, map(float, asked.values())))
    candidates = select_candidates(
        columns,
        score(asked_for, Corpus.of(columns, eligible)),
        visible=np.ones(len(passages), np.bool_),
        eligible=eligible,
        cosine=None if cosine is None else np.array(cosine, np.float32),
        centre=centre,
        limit=limit,
        neighbours=3,
    )
    return Signals(candidates=candidates, **more)
