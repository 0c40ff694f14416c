"""Remembers between two hooks that memory fails: after two failures in a row it is not asked for a while.

A host waits for this, so nothing slow is imported here.
"""

from __future__ import annotations

import json
import os
import time

TYPE_CHECKING = False  # `typing` takes longer to import than this takes
if TYPE_CHECKING:
    from typing import Final


def read_seconds(variable: str, *, default: float) -> float:
    """Return the seconds that an environment variable sets in milliseconds."""
    try:
        return float(os.environ.get(variable) or 1000 * default) / 1000
    except ValueError:  # not a number
        return default


FILE: Final = "hooks.json"
MAX_FAILURES: Final = 2
"""Failures in a row after which memory is not asked for a while."""
PAUSE_SECONDS: Final = read_seconds("HOLDFAST_PAUSE_MS", default=60.0)
"""How long it is not asked. Then one hook tries again."""


class Breaker:
    """The failures of the hooks of a memory.

    Args:
        home: The folder of the memory.
    """

    def __init__(self, home: str) -> None:
        self._path = os.path.join(home, FILE)
        self.failures = 0
        self._failed_at = 0.0
        try:
            with open(self._path, "rb") as file:
                data = json.load(file)
            self.failures = int(data["failures"])
            self._failed_at = float(data["failed_at"])
        except (OSError, ValueError, TypeError, KeyError):  # no failure, or none that can be read
            pass

    @property
    def is_open(self) -> bool:
        """Whether memory is not asked now. A clock that was set back does not make this last."""
        return self.failures >= MAX_FAILURES and 0 <= time.time() - self._failed_at < PAUSE_SECONDS

    def fail(self) -> None:
        """Count a failure.

        Raises:
            OSError: It cannot be stored.
        """
        self.failures += 1
        self._failed_at = time.time()
        part = f"{self._path}.{os.getpid()}"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps({"failures": self.failures, "failed_at": self._failed_at}).encode())
        os.replace(part, self._path)

    def recover(self) -> None:
        """Forget the failures."""
        if self.failures:
            self.failures = 0
            try:
                os.unlink(self._path)
            except OSError:  # another hook was faster
                pass
