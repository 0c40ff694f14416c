"""What any store must do. Each check is a contract: its docstring says what is promised.

    check_store(open_my_store, folder)

`open_my_store(folder)` opens the store that lies in a folder, again and again, several at once. The checks of
`processes` start other processes: for those it must be a function that can be pickled, at the top of a module.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from holdfast.testing import processes, reading, removing, searching, writing
from holdfast.testing.rows import Check, Opener

__all__ = ["CHECKS", "Check", "Opener", "check_store"]

CHECKS: Final[tuple[Check, ...]] = (
    *writing.CHECKS,
    *reading.CHECKS,
    *searching.CHECKS,
    *removing.CHECKS,
    *processes.CHECKS,
)
"""Every contract of a store."""


def check_store(open_store: Opener, folder: Path) -> None:
    """Hold a store to every contract, each in a folder of its own; the first that is broken raises AssertionError."""
    for check in CHECKS:
        place = folder / check.__name__
        place.mkdir(parents=True, exist_ok=True)
        try:
            check(open_store, place)
        except AssertionError as error:
            raise AssertionError(f"{check.__name__}: {check.__doc__}\n{error}") from error
