"""Public data sets and real transcripts, for those who have them. `scripts/fetch_test_data.py` fetches what it can."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from support.paths import ROOT

__all__ = ["DATA", "needs_data", "require_data"]

DATA: Final = Path(os.environ.get("HOLDFAST_TEST_DATA") or ROOT.parent / "shared" / "data")


def needs_data(path: str) -> pytest.MarkDecorator:
    """Skip a test if a file or folder of the data is missing."""
    return pytest.mark.skipif(not (DATA / path).exists(), reason=_missing(path))


def require_data(path: str) -> Path:
    """Return where a file or folder of the data is; skip the test if it is missing."""
    if not (DATA / path).exists():
        pytest.skip(_missing(path))
    return DATA / path


def _missing(path: str) -> str:
    return f"{DATA / path} is missing: see HOLDFAST_TEST_DATA in CONTRIBUTING.md"
