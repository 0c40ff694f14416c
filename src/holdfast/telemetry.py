"""Observe operations: how often, how long, with what result. Without an observer that costs 4 µs.

    with observe("recall", session="s1") as operation:
        ...
        operation.set(tokens=420)

The engine and the proxy call `observe`. Observers are `holdfast.otel`, and the metrics and the log of `holdfast serve`.
Values are numbers and short names of ours, ids of sessions and names of models; never text of a conversation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Final, Literal, TypeAlias

Name: TypeAlias = Literal["assemble", "recall", "compact", "chat"]
"""An operation: a window is assembled, memory is recalled, a history is compacted, a model request is proxied."""
Value: TypeAlias = str | int | float | tuple[str, ...]
MAX_NAME_CHARS: Final = 100
"""Longer names of sessions and models, which clients choose, are cut."""


class Operation:
    """An operation while it runs, and after it.

    Attributes:
        name: Its name.
        values: What is known of it so far.
        seconds: How long it took; 0 while it runs.
        error: The name of the error that ended it; empty if none did.
    """

    __slots__ = ("error", "name", "seconds", "values")

    def __init__(self, name: Name, values: dict[str, Value]) -> None:
        self.name = name
        self.values = values
        self.seconds = 0.0
        self.error = ""

    def set(self, **values: Value) -> None:
        """Add values."""
        self.values.update(values)


Observer: TypeAlias = Callable[[Operation], AbstractContextManager[object]]
"""Returns a context that is entered before an operation, and left when its `seconds` and `error` are known."""

_observers: list[Observer] = []


def register_observer(observer: Observer) -> None:
    """Let an observer see all operations of this process from now on."""
    _observers.append(observer)


@contextmanager
def add_observer(observer: Observer) -> Iterator[None]:
    """Let an observer see all operations of this process while the block runs."""
    register_observer(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


@contextmanager
def observe(name: Name, **values: Value) -> Iterator[Operation]:
    """Observe an operation."""
    operation = Operation(name, values)
    if not _observers:
        yield operation
        return
    with ExitStack() as stack:
        for observer in tuple(_observers):
            stack.enter_context(observer(operation))
        start = time.perf_counter()
        try:
            yield operation
        except BaseException as error:
            operation.error = type(error).__name__
            raise
        finally:
            operation.seconds = time.perf_counter() - start
            _cut_names(operation)


def _cut_names(operation: Operation) -> None:
    for key, value in operation.values.items():
        if isinstance(value, str):
            operation.values[key] = value[:MAX_NAME_CHARS]
