"""Spans and metrics for OpenTelemetry, through its SDK."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import Engine, Settings
from holdfast.errors import WindowTooSmallError
from holdfast.otel import OpenTelemetry
from holdfast.settings import Embedding
from holdfast.telemetry import add_observer, observe
from support.waiting import UNHURRIED

SETTINGS = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
SECRET_WORDS = ("8841-tulip", "金库", "vault")


@dataclass(frozen=True)
class Exported:
    """What the SDK has received."""

    exporter: Any
    reader: Any

    def find_spans(self, name: str) -> list[ReadableSpan]:
        """Return the finished spans with a name."""
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def find_points(self, name: str) -> list[Any]:
        """Return the data points of a metric."""
        data = self.reader.get_metrics_data()
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def exported() -> Iterator[Exported]:
    """Observe with providers of the SDK that keep everything in memory."""
    exporter = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    reader = InMemoryMetricReader()
    meters = MeterProvider(metric_readers=[reader])
    with add_observer(OpenTelemetry(tracer_provider=tracers, meter_provider=meters)):
        yield Exported(exporter, reader)
    meters.shutdown()


def make_conversation() -> list[dict[str, str]]:
    """Return a conversation that does not fit, with a fact at its beginning and a question about it at its end."""
    conversation = [{"role": "user", "content": "The vault code 金库 is 8841-tulip."}]
    for number in range(30):
        conversation.append({"role": "assistant", "content": f"Ledger {number} is fine."})
        conversation.append({"role": "user", "content": f"Look at ledger {number}. " + f"wharf{number} " * 60})
    return [*conversation, {"role": "user", "content": "Which vault code is it?"}]


def test_a_turn_is_a_span_with_its_recall_below_it(exported: Exported, tmp_path: Path) -> None:
    """Also though both work in threads of their own."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        window = engine.session("s1").assemble(make_conversation(), limit=4_000, model="claude-opus-4-5")
    (turn,) = exported.find_spans("holdfast.assemble")
    (recall,) = exported.find_spans("holdfast.recall")
    assert turn.attributes is not None
    assert recall.attributes is not None
    assert turn.attributes["gen_ai.conversation.id"] == "s1"
    assert turn.attributes["gen_ai.request.model"] == "claude-opus-4-5"
    assert turn.attributes["holdfast.tokens"] == window.report.total_tokens
    assert turn.attributes["holdfast.whole_tokens"] == window.report.whole_tokens
    assert turn.attributes["holdfast.edits"] == tuple(change.kind for change in window.report.changes)
    assert recall.attributes["holdfast.recall.passages"] == len(window.report.recalled)
    assert recall.parent is not None
    assert turn.context is not None
    assert recall.parent.span_id == turn.context.span_id


def test_the_tokens_of_turns_are_metrics(exported: Exported, tmp_path: Path) -> None:
    """With how many were saved, and how long operations took; without ids of sessions."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        report = engine.session("s1").assemble(make_conversation(), limit=4_000).report
    (tokens,) = exported.find_points("holdfast.window.tokens")
    (saved,) = exported.find_points("holdfast.window.saved_tokens")
    names = {point.attributes["gen_ai.operation.name"] for point in exported.find_points("holdfast.operation.duration")}
    assert tokens.sum == report.total_tokens
    assert saved.value == report.whole_tokens - report.total_tokens
    assert names == {"assemble", "recall"}
    assert not any("s1" in point.attributes.values() for point in exported.find_points("holdfast.operation.duration"))


def test_a_model_request_has_the_names_of_the_conventions(exported: Exported) -> None:
    """What is measured is the time until its reply begins, which is not the duration of the whole operation."""
    with observe("chat", format="anthropic", provider="anthropic") as operation:
        operation.set(session="s1", model="claude-opus-4-5", status=200)
    (span,) = exported.find_spans("chat claude-opus-4-5")
    (point,) = exported.find_points("gen_ai.client.operation.time_to_first_chunk")
    assert span.attributes is not None
    assert span.attributes["gen_ai.provider.name"] == "anthropic"
    assert point.attributes["gen_ai.request.model"] == "claude-opus-4-5"
    assert point.count == 1


def test_a_compaction_is_a_span(exported: Exported, tmp_path: Path) -> None:
    """With the tokens before and after it, and how the summary was made."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        done = engine.session("s1").compact(make_conversation(), limit=4_000)
    (span,) = exported.find_spans("holdfast.compact")
    assert span.attributes is not None
    assert span.attributes["holdfast.compaction.tokens_before"] == done.tokens_before
    assert span.attributes["holdfast.compaction.tokens_after"] == done.tokens_after


def test_an_error_is_named_and_not_quoted(exported: Exported, tmp_path: Path) -> None:
    """Its message could have text of the conversation."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine, pytest.raises(WindowTooSmallError):
        engine.session("s1").assemble([{"role": "user", "content": "vault " * 20_000}], limit=2_000)
    (span,) = exported.find_spans("holdfast.assemble")
    assert span.attributes is not None
    assert span.attributes["error.type"] == "WindowTooSmallError"
    assert not span.events
    assert not span.status.is_ok


def test_no_text_of_a_conversation_is_exported(exported: Exported, tmp_path: Path) -> None:
    """Attributes are numbers, ids and names."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        engine.session("s1").assemble(make_conversation(), limit=4_000)
        engine.session("s1").compact(make_conversation(), limit=4_000)
    spans = [span.to_json() for span in exported.exporter.get_finished_spans()]
    everything = "".join(spans) + str(exported.reader.get_metrics_data())
    assert spans
    assert not any(word in everything for word in SECRET_WORDS)


AUTOMATIC = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
from holdfast import Engine
for folder in ("one", "two"):
    with Engine.open(folder, background=False) as engine:
        engine.session("s").assemble([{"role": "user", "content": "hello"}], limit=4_000)
print([span.name for span in exporter.get_finished_spans()].count("holdfast.assemble"))
"""

UNUSED = """
import sys
from holdfast import Engine
with Engine.open("memory", background=False) as engine:
    engine.session("s").assemble([{"role": "user", "content": "hello"}], limit=4_000)
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


@pytest.mark.parametrize(("code", "printed"), [(AUTOMATIC, "2\n"), (UNUSED, "[]\n")])
def test_an_engine_uses_the_sdk_of_its_program(code: str, printed: str, tmp_path: Path) -> None:
    """Each turn is one span, however many engines there are. A program without the SDK does not load it."""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == printed


def test_a_summary_by_a_model_is_a_span_with_its_calls(exported: Exported, tmp_path: Path) -> None:
    """And with the way in which the summary was made."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        done = engine.session("s1").compact(
            make_conversation(), limit=4_000, model=lambda _: "## Goal\nFind the code of the vault.\n"
        )
    (span,) = exported.find_spans("holdfast.compact")
    assert span.attributes is not None
    assert done.summary is not None
    assert span.attributes["holdfast.compaction.model_calls"] == done.summary.calls >= 1
    assert span.attributes["holdfast.compaction.way"] == done.summary.rung
