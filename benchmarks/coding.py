"""Two sheets of questions over real sessions of coding agents, checked by hand, and 40 questions that are off topic.

Recall was tuned with the first sheet in view; the second was written over other sessions before anything was searched
for in them. A sheet (`data/coding.json`) names the file and message that answers a question, and a pattern of the
answer. All sessions are one archive, and every question is asked of all of them.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.archive_rows import make_rows
from benchmarks.recall import embed_all
from holdfast import transcripts
from holdfast.embed.base import Embedder
from holdfast.errors import InputError
from holdfast.memory.query import RecallQuery
from holdfast.memory.recall import Recall, recall
from holdfast.store.base import Scope
from holdfast.store.sqlite import SqliteStore

__all__ = ["Sheet", "load_sheet", "measure", "open_archive"]

_DATA: Final = Path(__file__).with_name("data")


@dataclass(frozen=True, slots=True)
class Sheet:
    """The digests of the files, questions with the patterns of their answers, and questions that are off topic."""

    files: dict[str, str]
    questions: list[tuple[str, str]]
    off_topic: list[str]


def load_sheet(name: str = "coding") -> Sheet:
    """Read a sheet; off-topic questions are those of the first."""
    data, first = (json.loads((_DATA / f"{one}.json").read_text("utf-8")) for one in (name, "coding"))
    return Sheet(data["files"], [(one["question"], one["answer"]) for one in data["questions"]], first["off_topic"])


@contextmanager
def open_archive(folder: Path, sheet: Sheet, *, embedder: Embedder | None) -> Iterator[SqliteStore]:
    """Archive the sessions that the sheet names, each as a session of its own."""
    with tempfile.TemporaryDirectory() as temporary, SqliteStore(Path(temporary) / "bench.db") as store:
        for name, digest in sheet.files.items():
            file = folder / name
            if not file.is_file() or not hashlib.sha256(file.read_bytes()).hexdigest().startswith(digest):
                raise InputError(f"{file}: not the file that the questions were written for")
            store.add_messages(make_rows(transcripts.read(file).messages, scope=Scope(session=name)))
        if embedder is not None:
            embed_all(store, embedder)
        yield store


def measure(folder: Path, *, embedder: Embedder | None, name: str = "coding") -> dict[str, Any]:
    """Count the questions whose answer is in the block, and the unrelated ones that get one."""
    sheet = load_sheet(name)
    with open_archive(folder, sheet, embedder=embedder) as store:

        def ask(question: str) -> Recall:
            query = RecallQuery(texts=(question,), scope=Scope(session="ask"), across=True)
            return recall(store, query, embedder=embedder)

        answers = [(question, pattern, ask(question)) for question, pattern in sheet.questions]
        unrelated = [(question, ask(question)) for question in sheet.off_topic]
    missed = [question for question, pattern, found in answers if not re.search(pattern, found.block)]
    return {
        "questions": len(answers),
        "found": len(answers) - len(missed),
        "with_block": sum(bool(found.block) for *_, found in answers),
        "tokens": round(sum(found.tokens for *_, found in answers) / len(answers), 1),
        "off_topic": len(unrelated),
        "off_topic_with_block": sum(bool(found.block) for _, found in unrelated),
        "missed": missed,
        "injected": [question for question, found in unrelated if found.block],
    }
