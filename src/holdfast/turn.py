"""One request on its way: the clock of its steps, and what went wrong and was passed over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from holdfast.errors import HoldfastError, WindowError
from holdfast.memory.recall import Recall

__all__ = ["Turn"]


@dataclass(slots=True)
class Turn:
    """What is known of a request while it is made.

    Attributes:
        milliseconds: How long each step took.
        warnings: What went wrong and was passed over.
        recall: What memory said.
    """

    milliseconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    recall: Recall = field(default_factory=Recall)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.milliseconds[name] = round((time.perf_counter() - start) * 1000, 3)

    @contextmanager
    def guard(self, name: str) -> Iterator[None]:
        """Time a step in which memory may fail: the request goes on, and the report says so."""
        with self.step(name):
            try:
                yield
            except WindowError:
                raise
            except HoldfastError as error:
                self.warnings.append(f"{name}: {error}")
