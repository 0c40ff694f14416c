"""Prompts are files next to this one, loaded by name."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from string import Template

__all__ = ["load"]


def load(name: str, **fields: str) -> str:
    """Return the prompt of this name with its `$fields` filled in. Filled-in text is not searched for fields again."""
    return Template(_text(name)).substitute(fields)


@cache
def _text(name: str) -> str:
    return Path(__file__).with_name(f"{name}.md").read_text("utf-8").strip()
