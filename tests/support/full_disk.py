"""A disk that is full."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

resource = pytest.importorskip("resource", reason="file size limits are a Unix matter")


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """A file may not grow beyond `size` bytes: writes are cut short there, as on a disk that fills up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
