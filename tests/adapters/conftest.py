"""A memory and a model server for the tests of adapters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter_talk import SETTINGS
from holdfast import Engine

pytest_plugins = ["holdfast.testing.fixtures"]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """A memory that searches by words, without a thread and without a model."""
    with Engine.open(tmp_path / "memory", settings=SETTINGS, background=False) as opened:
        yield opened
