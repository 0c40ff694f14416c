"""Give up what lets root write where no one may, so that file modes count for the process and what it starts."""

from __future__ import annotations

import ctypes
import os
import struct
import sys

__all__ = ["drop_privileges"]

_VERSION = 0x20080522
"""The third version of Linux' capability sets."""
_SET_SECURE_BITS = 28
"""The option of `prctl`."""
_NO_ROOT = 1
"""Programs that root starts get no capabilities."""


def drop_privileges() -> None:
    """Drop every capability where the process is root; others have none to drop."""
    if os.geteuid() == 0:
        assert sys.platform == "linux", "root can only be bound by file modes on Linux"
        library = ctypes.CDLL(None)
        library.prctl(_SET_SECURE_BITS, _NO_ROOT)  # not allowed in every container
        assert library.capset(struct.pack("<Ii", _VERSION, 0), bytes(24)) == 0
