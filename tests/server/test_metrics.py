"""Metrics and structured logs of a real server."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import __version__
from holdfast.server.metrics import CONTENT_TYPE, COUNTERS
from holdfast.testing.provider import ScriptedProvider
from support.forked import Holdfast
from support.paths import ROOT
from support.waiting import PATIENCE

NAMES = ("模型-4711", "geheim-session", 'say "x"\n{}')
"""A model, a session and a text that clients choose."""


@contextmanager
def running(home: Path, upstream: str, **variables: str) -> Iterator[str]:
    """Start `holdfast serve` on a free port with settings in its environment, and yield its address."""
    command = ["serve", "--home", str(home), "--port", "0", "--json", "--upstream", upstream]
    environment = {**os.environ, "HOLDFAST_RECALL__DEADLINE_MS": "600000", **variables}
    with (home / "stderr").open("wb") as stderr:
        process = Holdfast[bytes](*command, env=environment, stdout=subprocess.PIPE, stderr=stderr)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def ask(url: str, text: str, *, home: Path) -> int:
    """Send one request of the owner, with names that a client chooses, and return its status."""
    model, session, _ = NAMES
    body = {"model": model, "max_tokens": 50, "messages": [{"role": "user", "content": text}]}
    headers = {
        "x-holdfast-token": (home / "owner.token").read_text(),
        "x-holdfast-session": session,
    }
    reply = httpx.post(f"{url}/v1/messages", json=body, headers=headers, timeout=PATIENCE)
    return reply.status_code


def read_metrics(url: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Read the metrics with the parser of Prometheus's own client."""
    reply = httpx.get(f"{url}/metrics", timeout=PATIENCE)
    assert reply.status_code == 200
    assert reply.headers["content-type"] == CONTENT_TYPE
    assert not any(name in reply.text for name in NAMES)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(reply.text)
        for sample in family.samples
    }


def test_requests_are_counted(tmp_path: Path) -> None:
    """Requests by status, operations and their times, tokens; and nothing that a client chose."""
    with (
        ScriptedProvider(["It is 5433.", "5433 again."]) as provider,
        running(tmp_path, provider.url, HOLDFAST_SERVER__METRICS="true") as url,
    ):
        before = read_metrics(url)
        assert ask(url, f"Which port has {NAMES[2]}?", home=tmp_path) == 200
        assert ask(url, "Which port was it?", home=tmp_path) == 200
        after = read_metrics(url)
    info = frozenset({("version", __version__)})
    assert before == {
        key: value for key, value in before.items() if key[0] in {"holdfast_info", "holdfast_open_requests"}
    }
    assert after["holdfast_info", info] == 1
    assert after["holdfast_open_requests", frozenset()] == 1  # this one
    assert after["holdfast_requests_total", frozenset({("format", "anthropic"), ("status", "200")})] == 2
    assert after["holdfast_operations_total", frozenset({("operation", "assemble"), ("outcome", "ok")})] == 2
    assert after["holdfast_window_tokens_total", frozenset()] > 0
    assert after["holdfast_operation_seconds_count", frozenset({("operation", "chat")})] == 2
    assert after["holdfast_operation_seconds_bucket", frozenset({("operation", "chat"), ("le", "+Inf")})] == 2


def test_there_are_no_metrics_unless_they_are_turned_on(tmp_path: Path) -> None:
    """The answer names the setting, and the provider is not asked."""
    with ScriptedProvider() as provider, running(tmp_path, provider.url) as url:
        reply = httpx.get(f"{url}/metrics", timeout=PATIENCE)
    assert reply.status_code == 404
    assert "HOLDFAST_SERVER__METRICS=true" in reply.text
    assert provider.requests == []


@pytest.mark.parametrize("headers", [{"host": "example.com"}, {"origin": "http://example.com"}])
def test_web_pages_get_no_metrics(tmp_path: Path, headers: dict[str, str]) -> None:
    """As with everything that the server answers."""
    with ScriptedProvider() as provider, running(tmp_path, provider.url, HOLDFAST_SERVER__METRICS="true") as url:
        assert httpx.get(f"{url}/metrics", headers=headers, timeout=PATIENCE).status_code == 403


def test_the_log_may_be_lines_of_json(tmp_path: Path) -> None:
    """One for each operation, with its values and without text of the conversation."""
    with (
        ScriptedProvider(["It is 5433."]) as provider,
        running(tmp_path, provider.url, HOLDFAST_SERVER__LOG_FORMAT="json") as url,
    ):
        assert ask(url, f"Which port has {NAMES[2]}?", home=tmp_path) == 200
    lines: list[dict[str, Any]] = [json.loads(line) for line in (tmp_path / "stderr").read_text().splitlines()]
    operations = {line["message"]: line for line in lines if line["logger"] == "holdfast.operations"}
    assert operations["chat"]["status"] == 200
    assert operations["chat"]["model"] == NAMES[0]
    assert operations["chat"]["level"] == "info"
    assert operations["assemble"]["session"] == NAMES[1]
    assert operations["assemble"]["milliseconds"] > 0
    assert not any("Which port" in json.dumps(line) for line in lines)


def test_the_dashboard_uses_metrics_that_exist() -> None:
    """Every expression of it names one, and every counter is in it."""
    dashboard = json.loads((ROOT / "examples" / "grafana" / "holdfast.json").read_text("utf-8"))
    used = json.dumps(dashboard)
    names = {*COUNTERS, "holdfast_operation_seconds", "holdfast_open_requests", "holdfast_info"}
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            assert any(name in target["expr"] for name in names), target["expr"]
    assert [name for name in COUNTERS if name not in used] == []
