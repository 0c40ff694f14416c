"""Addresses in messages."""

import pytest

from holdfast.calls import hide_keys


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://localhost:11434/v1", "http://localhost:11434/v1"),
        ("https://me:canary@host:9/v1?key=canary#canary", "https://host:9/v1"),
        ("http://me:can/ary@host/v1", "http://host/v1"),
        ("https://me:canary@端口.example/v1", "https://端口.example/v1"),
        ("localhost:1/v1?key=canary", "localhost:1/v1"),
    ],
)
def test_an_address_is_shown_without_its_keys(url: str, shown: str) -> None:
    """A login may be in front of the host, and a key in the query."""
    assert hide_keys(url) == shown
