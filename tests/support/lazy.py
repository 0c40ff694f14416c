"""Modules that are imported when they are first used.

Every worker collects all tests, but runs only some: what takes a second to import is imported by those that use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

__all__ = ["Lazy", "skip_without"]


@dataclass(frozen=True)
class Lazy:
    """A module by its name; its attributes are those of the module."""

    module: str

    def __getattr__(self, name: str) -> Any:
        """Import the module, and return what it calls so."""
        if name.startswith("_"):  # pytest looks for fixtures behind everything that is in a module
            raise AttributeError(name)
        return getattr(import_module(self.module), name)


def skip_without(module: str, *, install: str) -> None:
    """Skip all tests of the module that calls this if a package is not installed."""
    if find_spec(module) is None:
        pytest.skip(install, allow_module_level=True)
