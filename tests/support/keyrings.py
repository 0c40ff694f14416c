"""A keyring that is in the memory of a test, in place of that of the system."""

from collections.abc import Iterator
from contextlib import contextmanager

import keyring
from keyring.backend import KeyringBackend

__all__ = ["MemoryKeyring", "use_own_keyring"]


class MemoryKeyring(KeyringBackend):
    """A keyring of this process."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        """Return a password; None if there is none."""
        return self.found.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        """Store a password."""
        self.found[service, username] = password


@contextmanager
def use_own_keyring() -> Iterator[MemoryKeyring]:
    """Use an empty keyring in a block."""
    before = keyring.get_keyring()
    ours = MemoryKeyring()
    keyring.set_keyring(ours)
    try:
        yield ours
    finally:
        keyring.set_keyring(before)
