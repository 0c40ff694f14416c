"""Folders of the repository."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
TESTS: Final = ROOT / "tests"
FIXTURES: Final = TESTS / "fixtures"
