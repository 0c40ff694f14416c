"""Every error that Holdfast raises on purpose.

One root, so that `except HoldfastError` is enough; each error carries what it is about as data,
and its message says what to do.

    HoldfastError
      + InputError              what was handed in cannot be used as it is
      |   x FormatError           a message list is not in the format it claims, or in none that we know
      |   x TranscriptError       a session file cannot be read
      |   x SettingsError         a setting is unknown, of the wrong type or out of range
      + StorageError            a file of ours could not be read or written; nothing acknowledged was lost
      + MissingExtraError       an optional dependency is not installed
"""

from collections.abc import Sequence
from pathlib import Path

__all__ = [
    "FormatError",
    "HoldfastError",
    "InputError",
    "MissingExtraError",
    "SettingsError",
    "StorageError",
    "TranscriptError",
]


class HoldfastError(Exception):
    """The root of every error that Holdfast raises on purpose."""


class InputError(HoldfastError):
    """What was handed in cannot be used as it is."""


class FormatError(InputError):
    """A message list is not in the format it claims, or in none that we know.

    `where` is the path to the offending value, such as `messages[3].content[0].id`.
    """

    def __init__(self, message: str, *, where: str = "", format: str | None = None) -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.where = where
        self.format = format


class TranscriptError(InputError):
    """A session file cannot be read. `path` names it, `line` the place where that is known."""

    def __init__(self, message: str, *, path: Path | str, line: int | None = None) -> None:
        place = f"{path}:{line}" if line is not None else str(path)
        super().__init__(f"{place}: {message}")
        self.path = Path(path)
        self.line = line


class SettingsError(InputError):
    """A setting is unknown, of the wrong type or out of range.

    `source` is the file, environment variable or call it came from; `key` the dotted setting;
    `nearest` the valid keys that look most like an unknown one.
    """

    def __init__(self, message: str, *, source: str, key: str = "", nearest: Sequence[str] = ()) -> None:
        hint = f" Did you mean {' or '.join(repr(name) for name in nearest)}?" if nearest else ""
        super().__init__(f"{source}: {f'{key}: ' if key else ''}{message}{hint}")
        self.source = source
        self.key = key
        self.nearest = tuple(nearest)


class StorageError(HoldfastError):
    """A file of ours could not be read or written. Nothing that was acknowledged is lost."""

    def __init__(self, message: str, *, path: Path | str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = Path(path)


class MissingExtraError(HoldfastError):
    """An optional dependency is not installed. The message is the line that installs it."""

    def __init__(self, feature: str, *, extra: str) -> None:
        super().__init__(f"{feature} needs an optional part: pip install 'holdfast[{extra}]'")
        self.feature = feature
        self.extra = extra
