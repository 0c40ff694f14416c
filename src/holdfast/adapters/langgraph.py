"""Long-term memory for LangGraph: `create_agent(..., store=HoldfastStore(engine))`, or `graph.compile(store=...)`.

Items are documents of the archive: searched by words and, if the engine has an embedder, by meaning.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from holdfast.adapters._history import require_extra, sync_engine

with require_extra("langgraph"):
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        get_text_at_path,
        validate_op_namespace,
    )

from holdfast.aio import AsyncEngine
from holdfast.engine import Engine
from holdfast.messages import Message, Text
from holdfast.redaction import redact_value
from holdfast.store.base import Record, Scope, Select

ITEM: Final = "langgraph.item"
"""The kind of the records of items: the value, when it was made, and the numbers of the messages that have its text."""
MIN_HITS: Final = 50
"""Passages that a search asks for at first; an item may have several, and those of earlier values are left out."""
COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


class HoldfastStore(BaseStore):
    """A store of LangGraph in a Holdfast memory, sync and async. Secrets in values are masked, as in the archive.

    The items belong to the agent `store`, apart from conversations. The archive has the earlier texts of an item that
    is put again until it is deleted. Items do not expire.

    Args:
        engine: The memory.
        tenant: The tenant that the memory belongs to, if several users share one store.
        project: The project that the items belong to.
        agent: The agent that they belong to.
    """

    def __init__(
        self, engine: Engine | AsyncEngine, *, tenant: str = "local", project: str = "", agent: str = "store"
    ) -> None:
        self._engine = sync_engine(engine)
        self._memory = self._engine._memory
        self._owner = {"tenant": tenant, "project": project, "agent": agent}

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations in order."""
        return [self._execute(op) for op in ops]

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations in order."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _execute(self, op: Op) -> Result:
        validate_op_namespace(op)
        match op:
            case GetOp():
                items = (
                    Item(value=row.data["value"], key=row.key, namespace=_namespace(row), **_times(row))
                    for row in self._records(op.namespace, op.key)
                )
                return next(items, None)
            case PutOp():
                self._write(op)
                return None
            case SearchOp():
                return self._search(op)
            case ListNamespacesOp():
                matching = {
                    namespace[: op.max_depth]
                    for namespace in map(_namespace, self._all_records())
                    if all(_matches(condition, namespace) for condition in op.match_conditions or ())
                }
                return sorted(matching)[op.offset : op.offset + op.limit]

    def _scope(self, namespace: tuple[str, ...]) -> Scope:
        return Scope(**self._owner, session=".".join(namespace))  # a label contains no period

    def _records(self, namespace: tuple[str, ...], key: str) -> list[Record]:
        return self._memory.store.read_records(Select(scope=self._scope(namespace)), kind=ITEM, keys=[key])

    def _write(self, op: PutOp) -> None:
        memory, scope = self._memory, self._scope(op.namespace)
        old = next(iter(self._records(op.namespace, op.key)), None)
        earlier: list[int] = list(old.data["messages"]) if old is not None else []
        if op.value is None:
            memory.store.remove_records(Select(scope=scope), kind=ITEM, keys=[op.key])
            if earlier:
                memory.forget(scope=scope, ids=earlier, across=True)
            return
        time, text = memory.clock(), _text(op)
        new = [Message(role="user", parts=(Text(text=text),))] if text else []
        # Each text is a session of its own: a message that matches raises the score of those next to it.
        place = replace(scope, session=f"{scope.session}..{op.key}..{memory.new_id()}")
        value = redact_value(dict(op.value)) if memory.settings.archive.redaction else dict(op.value)
        numbers = [*earlier, *memory.ingest(new, scope=place)]
        created = old.data["created"] if old is not None else time
        data = {"value": value, "created": created, "messages": numbers, "is_indexed": bool(new)}
        memory.store.add_records([Record(scope=scope, kind=ITEM, key=op.key, data=data, time=time)])
        self._engine._notify()

    def _search(self, op: SearchOp) -> list[SearchItem]:
        rows = [row for row in self._all_records() if _has_prefix(row, op.namespace_prefix) and _passes(row, op)]
        query, end = (op.query or "").strip(), op.offset + op.limit
        if not (query and rows):
            return [_search_item(row, None) for row in rows[op.offset : end]]
        newest = {row.data["messages"][-1]: row for row in rows if row.data["is_indexed"]}
        hits = self._hits(query, min_hits=max(MIN_HITS, 4 * end))
        best = islice((hit for hit in hits if hit[0] in newest), op.offset, end)
        return [_search_item(newest[message], score) for message, score in best]

    def _hits(self, query: str, *, min_hits: int) -> Iterator[tuple[int, float]]:
        """Yield the messages that match a question and their scores, best first; ask for more as long as they last."""
        known, limit = dict[int, float](), min_hits
        while True:
            hits = self._memory.search(query, scope=self._scope(()), across=True, limit=limit)
            for hit in hits:
                if hit.message not in known:
                    known[hit.message] = hit.score
                    yield hit.message, hit.score
            if len(hits) < limit:
                return
            limit *= 4

    def _all_records(self) -> list[Record]:
        return self._memory.store.read_records(Select(scope=self._scope(()), across=True), kind=ITEM)


def _text(op: PutOp) -> str:
    """Return the text of an item that is searched: that of the paths in `index`, by default of the whole value."""
    if op.index is False:
        return ""
    if op.index is not None:
        return "\n".join(text for path in op.index for text in get_text_at_path(op.value, path))
    return "\n".join(_texts(op.value))


def _texts(value: Any, name: str = "") -> Iterator[str]:
    """Yield a line for each value in a JSON value, with its name."""
    match value:
        case Mapping():
            for key, item in value.items():
                yield from _texts(item, str(key))
        case list() | tuple():
            for item in value:
                yield from _texts(item, name)
        case _:
            yield f"{name}: {value}" if name else str(value)


def _namespace(row: Record) -> tuple[str, ...]:
    return tuple(row.scope.session.split("."))


def _search_item(row: Record, score: float | None) -> SearchItem:
    return SearchItem(_namespace(row), row.key, row.data["value"], score=score, **_times(row))


def _times(row: Record) -> dict[str, datetime]:
    created, updated = (datetime.fromtimestamp(time / 1_000, UTC) for time in (row.data["created"], row.time))
    return {"created_at": created, "updated_at": updated}


def _has_prefix(row: Record, prefix: tuple[str, ...]) -> bool:
    return _namespace(row)[: len(prefix)] == prefix


def _passes(row: Record, op: SearchOp) -> bool:
    """Return whether a value has what the filter asks for."""
    return all(_compare(row.data["value"].get(key), wanted) for key, wanted in (op.filter or {}).items())


def _compare(value: Any, wanted: Any) -> bool:
    if not isinstance(wanted, Mapping) or not any(str(name).startswith("$") for name in wanted):
        return bool(value == wanted)
    if unknown := wanted.keys() - COMPARISONS.keys():
        raise ValueError(f"filter: {', '.join(sorted(unknown))}: use {', '.join(COMPARISONS)}")
    ordered = {name: other for name, other in wanted.items() if name not in {"$eq", "$ne"}}
    if ordered and value is None:
        return False
    return all(COMPARISONS[name](value, other) for name, other in wanted.items())


def _matches(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    path = condition.path
    if len(namespace) < len(path):
        return False
    labels = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in {"*", label} for wanted, label in zip(path, labels, strict=True))
