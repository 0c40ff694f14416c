"""`holdfast ui` as a process: it serves the inspector, and finds a server that runs already."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from urllib.parse import urljoin

import httpx2 as httpx

from support.forked import Holdfast, run_holdfast
from support.waiting import PATIENCE


def assert_nothing_is_forwarded(client: httpx.Client, url: str) -> None:
    """Check that there is no proxy: the root leads to the inspector, and everything else is not found."""
    root = client.get(url, follow_redirects=False)
    assert root.status_code == 307
    assert urljoin(url, root.headers["location"]) == urljoin(url, "/ui/")
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi."}]}
    paths = ["v1/messages", "v1/chat/completions", "v1/responses", "v1/messages/count_tokens", "v1/models", "x"]
    for path in paths:
        assert client.post(urljoin(url, path), json=body).status_code == 404
        assert client.get(urljoin(url, path)).status_code == 404


def test_the_command_serves_the_inspector(tmp_path: Path) -> None:
    """With the checks, settings and notes of this place. A second call opens the first one's server in the browser."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "MEMORY.md").write_text("The port is 7654.")
    own = {"HOLDFAST_HOME": str(tmp_path / "memory"), "HOLDFAST_AGENT__WORKSPACE__PATH": str(tmp_path / "work")}
    environ = {**os.environ, **own, "HOLDFAST_EMBEDDING__PROVIDER": "none", "BROWSER": "echo %s"}
    with Holdfast[bytes]("ui", "--no-open", "--json", stdout=subprocess.PIPE, env=environ) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            with httpx.Client(timeout=PATIENCE, follow_redirects=True) as client:
                assert "No session is stored yet" in client.get(url).text
                assert_nothing_is_forwarded(client, urljoin(url, "/"))
                checks = client.get(urljoin(url, "checks")).text
                assert "HOLDFAST_AGENT__WORKSPACE__PATH" in checks
                assert "SQLite" in checks
                assert "The port is 7654." in client.get(urljoin(url, "notes")).text
            again = run_holdfast("ui", env=environ)
            assert again.stdout.split() == [url, url]  # printed, and given to the browser
        finally:
            process.terminate()
