"""Patterns are text until they are needed: most runs of the program never need most of them."""

import re
from functools import cache

__all__ = ["compiled"]


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """The compiled pattern, compiled once."""
    return re.compile(pattern)
