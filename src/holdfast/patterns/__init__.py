"""Tables of patterns and words are TOML files next to this one, loaded by name when they are first needed.

A line break and the indent after it are not part of a pattern. `@{name}` stands for a pattern of the table `fragments`.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Final

__all__ = ["NO_ABBREVIATION", "compile_once", "load"]

NO_ABBREVIATION: Final = r"(?<!\b[DM]r\.)(?<!\bM[sx]\.)(?<!\bvs\.)(?<!\bMrs\.)(?<!\bProf\.)(?<!\b(?:e\.g|i\.e|z\.B)\.)"
"""A pattern that matches after any full stop but that of an abbreviation: "Dr. Lind" is no end of a sentence."""


@cache
def load(name: str) -> dict[str, Any]:
    """Return the tables of a file, the fragments in patterns filled in."""
    import tomllib  # noqa: PLC0415 - most commands need no table

    tables = tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text("utf-8"))
    fragments: dict[str, str] = {}

    def expand(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: expand(item) for key, item in value.items()}
        if isinstance(value, list):
            return [expand(item) for item in value]
        return re.sub(r"@\{(\w+)\}", lambda match: fragments[match[1]], re.sub(r"(?:\A|\n) +", "", value))

    for key, pattern in tables.pop("fragments", {}).items():
        fragments[key] = expand(pattern)
    return {key: expand(table) for key, table in tables.items()}


@cache
def compile_once(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern when it is first used: most runs never need most of them."""
    return re.compile(pattern, flags)
