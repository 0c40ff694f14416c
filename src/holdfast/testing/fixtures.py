"""Fixtures for pytest. In your `conftest.py`: `pytest_plugins = ["holdfast.testing.fixtures"]`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing.provider import ScriptedProvider


@pytest.fixture
def model_server() -> Iterator[ScriptedProvider]:
    """A model server on this machine that follows a script: `model_server.set_script(["Hello!"])`."""
    with ScriptedProvider() as server:
        yield server
