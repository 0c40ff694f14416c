"""Find the key of an encrypted store: in the keyring of the system, in an environment variable, or by a command.

The settings say only where it is. A key is 64 hexadecimal digits, used as it is: no password is stretched, so that
opening a store takes no longer, and nothing that a person can remember has to withstand guessing.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.errors import MissingExtraError, SettingsError
from holdfast.programs import find_program, search_path
from holdfast.settings.schema import Secret

if TYPE_CHECKING:
    import types

KEY: Final = re.compile(r"[0-9a-fA-F]{64}")
"""The form of a key."""
_KEY_BYTES: Final = 32
_SETTING: Final = "archive.encryption_key"
_SERVICE: Final = "holdfast"
"""The name of the service in the keyring. NAME of `keyring:NAME` is the name of the user."""
_TIMEOUT_SECONDS: Final = 60
"""How long a command may take: a password manager may ask the user to unlock it."""
_MAKE_KEY: Final = "for a new store, `openssl rand -hex 32` makes one"


class _NoKeyError(Exception):
    """There is no key; the message says why."""


def find_key(source: str | None, *, setting: str = _SETTING) -> Secret | None:
    """Return the key that a setting names: `keyring:NAME`, `env:NAME` or `command:...`. None if it is unset.

    No error contains what was found, or what a command wrote. It names the setting, or the option of a command.

    Raises:
        SettingsError: There is no key, or what was found is none.
        MissingExtraError: The keyring needs a package that is not installed.
    """
    if source is None:
        return None
    with _name_setting(setting):
        key = _read_source(source).strip()
        if KEY.fullmatch(key) is None:
            raise _NoKeyError(
                f"{describe_source(source)} gives {len(key)} characters, and a key is 64 hexadecimal digits"
            )
    return Secret(key.lower())


@contextmanager
def _name_setting(setting: str) -> Iterator[None]:
    """Raise that there is no key as an error of a setting."""
    try:
        yield
    except _NoKeyError as error:
        raise SettingsError(str(error), source="the key of the store", key=setting) from error.__cause__


def _read_source(source: str) -> str:
    kind, _, name = source.partition(":")
    if kind == "keyring":
        return _read_keyring(name)
    if kind == "env":
        return _read_variable(name)
    if kind == "command":
        return _run_command(name)
    raise _NoKeyError("name where the key is, never the key itself: keyring:NAME, env:NAME or command:...")


def describe_source(source: str) -> str:
    """Return where a key is, without the words of a command: they may hold a password."""
    return "the command" if source.startswith("command:") else source


def create_key(source: str) -> bool:
    """Put a new key into the keyring, if the source is the keyring and has none; return whether it was made."""
    kind, _, name = source.partition(":")
    if kind != "keyring":
        return False
    keyring = _load_keyring()
    with _name_setting(_SETTING):
        try:
            if keyring.get_password(_SERVICE, name) is not None:
                return False
            keyring.set_password(_SERVICE, name, secrets.token_hex(_KEY_BYTES))
        except keyring.errors.KeyringError as error:
            raise _explain_keyring(error) from error
    return True


def _load_keyring() -> types.ModuleType:
    try:
        import keyring  # noqa: PLC0415 - an extra
        import keyring.errors  # noqa: PLC0415 - as above
    except ImportError as error:
        raise MissingExtraError("a key in the keyring", extra="encrypted") from error
    return keyring


def _read_keyring(name: str) -> str:
    keyring = _load_keyring()
    try:
        found: str | None = keyring.get_password(_SERVICE, name)
    except keyring.errors.KeyringError as error:
        raise _explain_keyring(error) from error
    if found is None:
        raise _NoKeyError(
            f"the keyring has no key of service {_SERVICE!r} and user {name!r}. If the store is new or not encrypted"
            " yet, `holdfast encrypt` makes one. If it is encrypted, put its key back: nothing can be read without it."
        )
    return found


def _explain_keyring(error: Exception) -> _NoKeyError:
    return _NoKeyError(
        f"the keyring cannot be used ({type(error).__name__}): unlock it, or use env:NAME or command:... on a machine"
        " without one"
    )


def _read_variable(name: str) -> str:
    found = os.environ.get(name)
    if not found:
        raise _NoKeyError(f"the environment variable {name} is not set: set it to the key of the store ({_MAKE_KEY})")
    return found


def _run_command(text: str) -> str:
    """Run a command without a shell, and return what it prints. A program of the working directory is not found."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise _NoKeyError(f"the command cannot be read: {error}") from error
    if not words:
        raise _NoKeyError("the command is empty: name a program that prints the key")
    program = find_program(words[0], environ=os.environ, project=Path.cwd())
    if program is None:
        raise _NoKeyError(f"the command's program {words[0]!r} is not in PATH: install it, or name its full path")
    try:
        done = subprocess.run(  # noqa: S603 - the user's own settings name it
            [program, *words[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # it may contain anything
            env={**os.environ, "PATH": search_path(os.environ, project=Path.cwd())},
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _NoKeyError(
            f"the command took longer than {_TIMEOUT_SECONDS} seconds: run it yourself to see why"
        ) from None
    except OSError as error:
        raise _NoKeyError(f"the command failed ({type(error).__name__}): run it yourself to see why") from None
    if done.returncode != 0:
        raise _NoKeyError(f"the command failed with exit code {done.returncode}: run it yourself to see why")
    return done.stdout.decode("utf-8", "replace")
