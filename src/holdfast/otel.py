"""Spans and metrics for OpenTelemetry, with the names of its GenAI conventions.

An engine that is opened in a program which uses the OpenTelemetry SDK sends them to the providers of that program.
Nothing is imported otherwise. To choose other providers:

    with add_observer(OpenTelemetry(tracer_provider=..., meter_provider=...)):
        ...
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Final

from holdfast.telemetry import Name, Operation, Value, register_observer

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

_ATTRIBUTES: Final[Mapping[str, str]] = {
    "session": "gen_ai.conversation.id",
    "model": "gen_ai.request.model",
    "provider": "gen_ai.provider.name",
    "format": "holdfast.format",
    "status": "http.response.status_code",
    "tokens": "holdfast.tokens",
    "whole_tokens": "holdfast.whole_tokens",
    "limit": "holdfast.limit",
    "edits": "holdfast.edits",
    "warnings": "holdfast.warnings",
    "failures": "holdfast.failures",
    "passages": "holdfast.recall.passages",
    "facts": "holdfast.recall.facts",
    "confidence": "holdfast.recall.confidence",
    "tokens_before": "holdfast.compaction.tokens_before",
    "tokens_after": "holdfast.compaction.tokens_after",
    "calls": "holdfast.compaction.model_calls",
    "way": "holdfast.compaction.way",
}
"""The attribute of a span for each value of an operation."""
_METRIC_ATTRIBUTES: Final = ("provider", "model", "status")
"""The values that are attributes of metrics too. Ids of sessions are not: each would be a series of its own."""
_TOKENS: Final[Mapping[Name, str]] = {
    "assemble": "holdfast.window.tokens",
    "recall": "holdfast.recall.tokens",
    "compact": "holdfast.compaction.tokens",
}
"""The metric for the tokens of an operation's result."""


def install() -> None:
    """Send the operations of this process to its OpenTelemetry SDK, if the program has loaded that."""
    if "opentelemetry.sdk" in sys.modules:
        _register_once()


@cache
def _register_once() -> None:
    register_observer(OpenTelemetry())


class OpenTelemetry:
    """An observer that makes a span of each operation, and adds it to metrics.

    Args:
        tracer_provider: Where spans go; by default the one of the process.
        meter_provider: Where metrics go; by default the one of the process.
    """

    def __init__(
        self, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        from opentelemetry import metrics, trace  # noqa: PLC0415 - an extra

        self._kinds: Mapping[Name, trace.SpanKind] = {"chat": trace.SpanKind.CLIENT}
        self._internal = trace.SpanKind.INTERNAL
        self._failed = trace.Status(trace.StatusCode.ERROR)
        self._tracer = trace.get_tracer("holdfast", tracer_provider=tracer_provider)
        meter = metrics.get_meter("holdfast", meter_provider=meter_provider)
        self._first_chunk_seconds = meter.create_histogram(
            "gen_ai.client.operation.time_to_first_chunk",
            unit="s",
            description="Time until the reply to a model request began.",
        )
        self._seconds = meter.create_histogram(
            "holdfast.operation.duration", unit="s", description="Time of an operation."
        )
        self._tokens = {
            name: meter.create_histogram(metric, unit="{token}", description=f"Tokens of the result of {name}.")
            for name, metric in _TOKENS.items()
        }
        self._saved = meter.create_counter(
            "holdfast.window.saved_tokens",
            unit="{token}",
            description="Tokens that were not sent, compared with sending the whole conversation.",
        )
        self._edits = meter.create_counter("holdfast.edits", unit="{edit}", description="Edits of windows, by kind.")

    @contextmanager
    def __call__(self, operation: Operation) -> Iterator[None]:
        """Make the span of an operation. Nothing of an error but its name is recorded: its message may quote text."""
        kind = self._kinds.get(operation.name, self._internal)
        with self._tracer.start_as_current_span(
            f"holdfast.{operation.name}", kind=kind, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield
            finally:
                if operation.name == "chat":
                    model = operation.values.get("model", "")
                    span.update_name(f"chat {model}" if model else "chat")
                attributes = {_ATTRIBUTES[key]: value for key, value in operation.values.items() if value != ""}
                span.set_attributes({"gen_ai.operation.name": operation.name, **attributes})
                error = _find_error(operation)
                if error:
                    span.set_status(self._failed)
                    span.set_attribute("error.type", error)
                self._measure(operation, error)

    def _measure(self, operation: Operation, error: str) -> None:
        values = operation.values
        attributes: dict[str, Value] = {"gen_ai.operation.name": operation.name}
        for key in _METRIC_ATTRIBUTES:
            if values.get(key, "") != "":
                attributes[_ATTRIBUTES[key]] = values[key]
        if error:
            attributes["error.type"] = error
        if operation.name == "chat":
            self._first_chunk_seconds.record(operation.seconds, attributes)
            return
        self._seconds.record(operation.seconds, attributes)
        tokens = values.get("tokens")
        if isinstance(tokens, int):
            self._tokens[operation.name].record(tokens, attributes)
        whole = values.get("whole_tokens")
        if isinstance(whole, int) and isinstance(tokens, int):
            self._saved.add(max(0, whole - tokens), attributes)
        edits = values.get("edits")
        if isinstance(edits, tuple):
            for edit in edits:
                self._edits.add(1, {**attributes, "holdfast.edit.kind": edit})


def _find_error(operation: Operation) -> str:
    """Return what went wrong, as the conventions name it: the error, or the status of a reply."""
    status = operation.values.get("status")
    if not operation.error and isinstance(status, int) and status >= 400:  # noqa: PLR2004 - an HTTP error
        return str(status)
    return operation.error
