"""Metrics of the server in the text format of Prometheus, at `/metrics`.

Labels have a fixed set of values, all of them our own words and statuses of replies: none comes from a client.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from holdfast import __version__
from holdfast.telemetry import Operation

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the buckets of durations, in seconds."""
COUNTERS: Final[Mapping[str, str]] = {
    "holdfast_operations_total": "Operations that ended, by name and outcome.",
    "holdfast_requests_total": "Model requests through the proxy, by wire format and status of the reply.",
    "holdfast_window_tokens_total": "Tokens of the windows that were assembled.",
    "holdfast_whole_tokens_total": "Tokens that these requests would have had with their whole conversations.",
    "holdfast_edits_total": "Edits of windows, by kind.",
    "holdfast_recalled_tokens_total": "Tokens of the blocks that were recalled.",
    "holdfast_recalled_passages_total": "Passages in these blocks.",
    "holdfast_recalled_facts_total": "Facts in these blocks.",
    "holdfast_compacted_tokens_total": "Tokens that compactions have removed.",
    "holdfast_warnings_total": "Warnings in the reports of requests: memory that failed, slow recalls and others.",
}
HISTOGRAM: Final = "holdfast_operation_seconds"

Labels: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Durations:
    """The durations of one operation: how many are below each bound, their number and their sum."""

    below: list[int] = field(default_factory=lambda: [0] * len(BOUNDS))
    count: int = 0
    total: float = 0.0


class Metrics:
    """Counts the operations of the process. It is an observer of `holdfast.telemetry`.

    Args:
        measure: Returns further values, which may go up and down, by name.
    """

    def __init__(self, measure: Callable[[], Mapping[str, float]] = dict) -> None:
        self._measure = measure
        self._lock = Lock()
        self._counts: dict[str, dict[Labels, int]] = {name: defaultdict(int) for name in COUNTERS}
        self._durations: dict[str, _Durations] = defaultdict(_Durations)

    @contextmanager
    def __call__(self, operation: Operation) -> Iterator[None]:
        """Count an operation when it has ended."""
        try:
            yield
        finally:
            with self._lock:
                self._add(operation)

    def _add(self, operation: Operation) -> None:
        name = operation.name
        outcome = "error" if operation.error else "ok"
        self._count("holdfast_operations_total", 1, operation=name, outcome=outcome)
        durations = self._durations[name]
        durations.count += 1
        durations.total += operation.seconds
        for number, bound in enumerate(BOUNDS):
            if operation.seconds <= bound:
                durations.below[number] += 1
        values = operation.values
        if name == "chat":
            status = str(values.get("status", "none"))
            self._count("holdfast_requests_total", 1, format=str(values["format"]), status=status)
        elif name == "assemble":
            self._sum("holdfast_window_tokens_total", operation, "tokens")
            self._sum("holdfast_whole_tokens_total", operation, "whole_tokens")
            self._sum("holdfast_warnings_total", operation, "warnings")
            edits = values.get("edits", ())
            if isinstance(edits, tuple):
                for kind in edits:
                    self._count("holdfast_edits_total", 1, kind=kind)
        elif name == "recall":
            self._sum("holdfast_recalled_tokens_total", operation, "tokens")
            self._sum("holdfast_recalled_passages_total", operation, "passages")
            self._sum("holdfast_recalled_facts_total", operation, "facts")
        else:
            before = values.get("tokens_before", 0)
            after = values.get("tokens_after", 0)
            if isinstance(before, int) and isinstance(after, int):
                self._count("holdfast_compacted_tokens_total", max(0, before - after))

    def _sum(self, name: str, operation: Operation, key: str) -> None:
        value = operation.values.get(key, 0)
        if isinstance(value, int):
            self._count(name, value)

    def _count(self, name: str, number: int, **labels: str) -> None:
        self._counts[name][tuple(labels.items())] += number

    def render(self) -> str:
        """Return all metrics as text."""
        lines = ["# HELP holdfast_info The version.", "# TYPE holdfast_info gauge"]
        lines.append(f'holdfast_info{{version="{__version__}"}} 1')
        for name, value in self._measure().items():
            lines += [f"# TYPE {name} gauge", f"{name} {value:g}"]
        with self._lock:
            for name, meaning in COUNTERS.items():
                lines += [f"# HELP {name} {meaning}", f"# TYPE {name} counter"]
                for labels, count in self._counts[name].items():
                    lines.append(f"{name}{_render_labels(labels)} {count}")
            lines += [f"# HELP {HISTOGRAM} Seconds that operations took.", f"# TYPE {HISTOGRAM} histogram"]
            for operation, durations in self._durations.items():
                lines += _render_durations(operation, durations)
        return "\n".join(lines) + "\n"

    def answer(self, _: Request) -> Response:
        """Answer a request for the metrics."""
        return Response(self.render(), media_type=CONTENT_TYPE)


def _render_durations(operation: str, durations: _Durations) -> Iterator[str]:
    for bound, count in zip(BOUNDS, durations.below, strict=True):
        yield f'{HISTOGRAM}_bucket{{operation="{operation}",le="{bound:g}"}} {count}'
    yield f'{HISTOGRAM}_bucket{{operation="{operation}",le="+Inf"}} {durations.count}'
    yield f'{HISTOGRAM}_sum{{operation="{operation}"}} {durations.total:.6f}'
    yield f'{HISTOGRAM}_count{{operation="{operation}"}} {durations.count}'


def _render_labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{value}"' for key, value in labels) + "}"
