"""Measurements of Holdfast, and the texts they need in `data/`."""

import json
from pathlib import Path
from typing import Any

__all__ = ["load_lines", "load_texts"]

_DATA = Path(__file__).parent / "data"


def load_texts(name: str) -> Any:
    """Load a JSON file of the data folder."""
    return json.loads((_DATA / f"{name}.json").read_text("utf-8"))


def load_lines(name: str) -> list[str]:
    """Load the lines of a text file of the data folder."""
    return (_DATA / f"{name}.txt").read_text("utf-8").splitlines()
