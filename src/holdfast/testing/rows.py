"""Open a store under test, and make rows for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from holdfast import providers
from holdfast.embed.base import Space
from holdfast.index.vectors import quantise
from holdfast.messages import Image, Message, Opaque, Role, Text, Thinking, ToolCall, ToolResult, Usage
from holdfast.search.candidates import Candidates
from holdfast.store.base import FactRow, Job, MessageRow, Record, Scope, SearchQuery, Select, Store, VectorRow
from holdfast.store.cutting import cut
from holdfast.text import terms

HERE: Final = Scope(project="atlas", session="s1")
MODEL: Final = Space(name="model", dimension=8, digest="d1")
LIMIT: Final = 10_000
"""More candidates than any check has passages."""

Opener: TypeAlias = Callable[[Path], Store]
"""Opens the store in a folder."""
Check: TypeAlias = Callable[[Opener, Path], None]
"""One requirement of a store; raises AssertionError if it is not met."""


def use_store(open_store: Opener, folder: Path) -> closing[Store]:
    """Open a store and close it at the end of the block."""
    return closing(open_store(folder))


@contextmanager
def expect_error(error: type[Exception], otherwise: str) -> Iterator[None]:
    """Fail if the block does not raise the error."""
    try:
        yield
    except error:
        return
    raise AssertionError(otherwise)


def word(kind: str, number: int) -> str:
    """Return a word for a number; no part of it is in the word for another number."""
    return f"{kind}x" + "".join("bcdfghjkmz"[int(digit)] for digit in str(number))


def make_message(
    text: str, *, scope: Scope = HERE, role: Role = "user", nonce: str = "", time: int | None = None
) -> MessageRow:
    """Return a message with one text and its passages."""
    message = Message(role=role, parts=(Text(text=text),), timestamp=time)
    return MessageRow(scope=scope, message=message, nonce=nonce, passages=tuple(cut(text)))


def fact(name: str, content: str, *, scope: Scope = HERE) -> FactRow:
    """Return a version of a fact."""
    return FactRow(scope=scope, id=name, type="decision", content=content)


def vectors(passage: int, seeds: Iterable[int], *, space: Space = MODEL) -> VectorRow:
    """Return the vectors of a passage, one for each seed; the same seed gives the same vector."""
    rows = [np.random.default_rng(seed).normal(size=space.dimension) for seed in seeds]
    return VectorRow(space=space, passage=passage, vectors=quantise(np.array(rows, np.float32)))


def make_query(
    text: str = "",
    *,
    scope: Scope = HERE,
    across: bool = False,
    seed: int | None = None,
    space: Space = MODEL,
    limit: int = LIMIT,
) -> SearchQuery:
    """Return a query with the words of a text and the vector of a seed; `limit` is the number of candidates."""
    vector = None
    if seed is not None:
        vector = np.random.default_rng(seed).normal(size=space.dimension).astype(np.float32)
    weights = dict.fromkeys(terms(text), 1.0)
    return SearchQuery(scope=scope, terms=weights, across=across, vector=vector, space=space, limit=limit)


def find_messages(found: Candidates) -> list[int]:
    """Return the numbers of the messages that contain one of the terms, in the order in which they were archived."""
    return list(dict.fromkeys(found.messages[found.keyword > 0].tolist()))


def texts(store: Store, *, scope: Scope = HERE, across: bool = False) -> list[str]:
    """Return the text of every message of a scope, oldest first."""
    return [row.message.text for row in store.read_messages(Select(scope=scope, across=across))]


def readers(store: Store) -> list[Callable[[Select], Sequence[object]]]:
    """Return the methods that read rows."""
    return [store.read_messages, store.read_passages, store.read_facts, store.read_records, store.read_jobs]


def add_canaries(store: Store, names: str = "ab") -> dict[Scope, str]:
    """Add rows of every kind to every combination of scope names; return the word that is only in the rows of each."""
    canaries: dict[Scope, str] = {}
    for tenant, project, agent, session in product(names, repeat=4):
        scope = Scope(tenant=tenant, project=project, agent=agent, session=session)
        canary = "canary" + "".join(f"x{ord(letter)}" for letter in f"{tenant}|{project}|{agent}|{session}")
        store.add_messages([make_message(f"the shared word and {canary}", scope=scope)])
        store.add_facts([fact("shared-id", canary, scope=scope)])
        store.add_records([Record(scope=scope, kind="shared", key="shared", data={"text": canary})])
        store.add_jobs([Job(scope=scope, kind="shared", data={"text": canary})])
        canaries[scope] = canary
        found = store.read_passages(Select(scope=scope))
        store.add_vectors([vectors(passage.number, [1] * len(passage.windows)) for passage in found])
    return canaries


def is_visible(row: Scope, reader: Scope, *, across: bool) -> bool:
    """Return whether a reader may see a row."""
    return row == reader or (across and replace(row, session=reader.session) == reader)


def files_containing(folder: Path, text: str) -> list[str]:
    """Return the names of the files under a folder that contain a text."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if text.encode() in path.read_bytes()]


def sample_messages() -> list[Message]:
    """Return messages with every kind of part, and messages as providers write them."""
    call = ToolCall(id="c1", name="read", arguments={"path": "a.py", "lines": [1, 2.5, None, True]})
    result = ToolResult(call_id="c1", content=(Text(text="def a(): ..."), Image(data="aGk=", media_type="image/png")))
    wire = [
        {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "ls", "input": {"b": 1, "a": 1.0}}]},
    ]
    edited = providers.read(wire, format="anthropic")[0]
    return [
        Message(role="system", parts=(Text(text="You are an agent."),)),
        Message(role="user", parts=(Text(text="改用蓝色 \ud83d half \0 nul 🦀"),), id="e-\udc00", timestamp=10**30),
        Message(
            role="assistant",
            parts=(Thinking(text="hm", signature="sig"), Text(text=""), call),
            usage=Usage(input=3, output=4),
            model="m",
            stop="tool_use",
            timestamp=-5,
        ),
        Message(role="tool", parts=(result, Opaque(kind="x", data={"deep": [{"er": None}]}))),
        Message(role="tool", parts=(ToolResult(call_id="c2", is_error=True, name="read"),)),
        *providers.read(wire, format="anthropic"),
        replace(edited, parts=(*edited.parts, Text(text="added"))),
        Message(role="user", parts=()),
    ]
