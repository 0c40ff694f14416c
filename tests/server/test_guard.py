"""Requests that the server refuses before it looks at them."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

import pytest

from support.waiting import PATIENCE

from .conftest import Pair


def ask(url: str, *lines: str) -> bytes:
    """Send the head of a request line by line, as it is, and return the status line of the answer."""
    place = urlsplit(url)
    assert place.hostname
    assert place.port
    with socket.create_connection((place.hostname, place.port), timeout=PATIENCE) as connection:
        connection.sendall("".join(f"{line}\r\n" for line in [*lines, "Connection: close", ""]).encode())
        return connection.makefile("rb").readline().strip()


@pytest.mark.parametrize("path", ["/ui/", "/ui/act", "/v1/messages", "/holdfast/rpc"])
@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
def test_a_request_without_a_host_is_a_bad_request(shared_pair: Pair, version: str, path: str) -> None:
    """Also one with an origin."""
    for fields in ([], [f"Origin: {shared_pair.url}"], ["Origin: null"]):
        assert ask(shared_pair.url, f"GET {path} {version}", *fields) == b"HTTP/1.1 400 Bad Request"
    assert shared_pair.upstream.seen == []


@pytest.mark.parametrize(
    "fields",
    [
        ["Host: 127.0.0.1", "Host: evil.example"],
        ["Host: evil.example", "Host: 127.0.0.1"],
    ],
)
def test_a_request_with_two_hosts_is_a_bad_request(shared_pair: Pair, fields: Sequence[str]) -> None:
    """Neither of them counts."""
    assert ask(shared_pair.url, "GET /v1/models HTTP/1.1", *fields) == b"HTTP/1.1 400 Bad Request"
    assert shared_pair.upstream.seen == []


@pytest.mark.parametrize(
    "fields",
    [
        ["Host: evil.example"],
        ["Host: 127.0.0.1.evil.example"],
        ["Host: 127.0.0.1", "Origin: http://evil.example"],
        ["Host: 127.0.0.1", "Origin: http://127.0.0.1"],
        ["Host: 127.0.0.1", "Origin: null"],
        ["Host: 127.0.0.1", "Sec-Fetch-Site: cross-site"],
        ["Host: 127.0.0.1", "Sec-Fetch-Site: same-site"],
        ["Host: 127.0.0.1", "Sec-Fetch-Site: none", "Sec-Fetch-Site: cross-site"],
        ["Host: 127.0.0.1", "Sec-Fetch-Site: none", "Sec-Fetch-Site: none"],
        ["Host: 127.0.0.1", "Sec-Fetch-Site: same-origin, cross-site"],
        ["Host: 127.0.0.1", "Sec-Fetch-Site:"],
    ],
)
def test_a_web_page_is_refused(shared_pair: Pair, fields: Sequence[str]) -> None:
    """Also one of another port of this machine, and a picture, for which browsers send no Origin."""
    assert ask(shared_pair.url, "GET /v1/models HTTP/1.1", *fields) == b"HTTP/1.1 403 Forbidden"
    assert shared_pair.upstream.seen == []


def test_a_program_of_this_machine_is_served(shared_pair: Pair) -> None:
    """By any name of this machine."""
    for host in ("127.0.0.1", "localhost:8790", "[::1]:8790"):
        assert ask(shared_pair.url, "GET /v1/models HTTP/1.1", f"Host: {host}") == b"HTTP/1.1 200 OK"
    assert len(shared_pair.upstream.seen) == 3
