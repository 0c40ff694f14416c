"""Every error that Holdfast raises on purpose.

One root, so that `except HoldfastError` is enough; each error carries what it is about as data,
and its message says what to do.

    HoldfastError
      + InputError              what was handed in cannot be used as it is
      |   x FormatError           a message list is not in the format it claims, or in none that we know
      |   x TranscriptError       a session file cannot be read
      |   x SettingsError         a setting is unknown, of the wrong type or out of range
      + EmbeddingError          text could not be turned into vectors; search by words goes on
      + WindowError             no window can be sent as things stand
      |   x InvalidWindowError    it breaks a rule of its provider that no repair could mend
      |   x WindowTooSmallError   what must stay in it does not fit
      + ModelError              a model gave no answer that can be used
      |   x ModelOverflowError    the request does not fit its window
      |   x ModelBusyError        rate limit, overload, network: another try may help
      |   x ModelTimeoutError     it took longer than it was given
      |   x ModelRefusedError     key, address or request is refused: another try will not help
      |   x ModelCancelledError   it was called off
      + CompactionError         history could not be made shorter; it is as it was
      + StorageError            a file of ours could not be read or written; nothing acknowledged was lost
      |   x ConflictError         another process wrote the same record first: read again, then try again
      + MissingExtraError       an optional dependency is not installed
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "CompactionError",
    "ConflictError",
    "EmbeddingError",
    "FormatError",
    "HoldfastError",
    "InputError",
    "InvalidWindowError",
    "MissingExtraError",
    "ModelBusyError",
    "ModelCancelledError",
    "ModelError",
    "ModelOverflowError",
    "ModelRefusedError",
    "ModelTimeoutError",
    "SettingsError",
    "StorageError",
    "TranscriptError",
    "WindowError",
    "WindowTooSmallError",
]


class HoldfastError(Exception):
    """The root of every error that Holdfast raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The way back out of another process: constructors take more than the message that `args` holds.
        return _restored, (type(self), self.args, vars(self))


def _restored(kind: type[HoldfastError], args: tuple[object, ...], fields: dict[str, object]) -> HoldfastError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


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


class EmbeddingError(HoldfastError):
    """Text could not be turned into vectors; search by words goes on.

    `provider` is who was to embed; `status` the HTTP status of a remote one's refusal.
    """

    def __init__(self, message: str, *, provider: str, status: int | None = None) -> None:
        super().__init__(f"{provider}: {message}")
        self.provider = provider
        self.status = status


class WindowError(HoldfastError):
    """No window can be sent as things stand. Every message is in the archive."""


class InvalidWindowError(WindowError):
    """A window breaks a rule of its provider that no repair could mend. `violations` are the rules and places."""

    def __init__(self, provider: str, violations: Sequence[object]) -> None:
        found = "; ".join(map(str, violations))
        super().__init__(f"{provider} would refuse this window: {found:.500}")
        self.provider = provider
        self.violations = tuple(violations)


class WindowTooSmallError(WindowError):
    """What must stay in the window takes `needed` tokens, but `limit` is all there is for it."""

    def __init__(self, *, needed: int, limit: int) -> None:
        super().__init__(
            f"what must stay in the window takes {needed:,} tokens, the limit is {limit:,}: use a larger window, "
            "protect fewer messages (trim.protected_recent), unpin some, or prune tool results (pruning.mode)"
        )
        self.needed = needed
        self.limit = limit


class ModelError(HoldfastError):
    """A model gave no answer that can be used. `model` names it, `status` is the provider's HTTP status."""

    def __init__(self, message: str, *, model: str = "", status: int | None = None) -> None:
        super().__init__(f"{model}: {message}" if model else message)
        self.model = model
        self.status = status


class ModelOverflowError(ModelError):
    """The request does not fit the model's window.

    `limit` is how many tokens the window holds and `requested` how many were asked for, where the provider says so;
    `tries` is how often a smaller request was tried before this was given up.
    """

    def __init__(
        self,
        message: str,
        *,
        model: str = "",
        status: int | None = None,
        limit: int | None = None,
        requested: int | None = None,
        tries: int = 0,
    ) -> None:
        super().__init__(message, model=model, status=status)
        self.limit = limit
        self.requested = requested
        self.tries = tries


class ModelBusyError(ModelError):
    """The provider cannot answer now: a rate limit, an overload, trouble with the network. Another try may help.

    `retry_after` is how many seconds the provider asks to wait, if it says so.
    """

    def __init__(
        self, message: str, *, model: str = "", status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message, model=model, status=status)
        self.retry_after = retry_after


class ModelTimeoutError(ModelError):
    """The answer took longer than it was given."""


class ModelRefusedError(ModelError):
    """The key, the address or the request is refused: another try will not help."""


class ModelCancelledError(ModelError):
    """The request was called off."""


class CompactionError(HoldfastError):
    """History could not be made shorter; it is as it was."""


class StorageError(HoldfastError):
    """A file of ours could not be read or written. Nothing that was acknowledged is lost."""

    def __init__(self, message: str, *, path: Path | str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = Path(path)


class ConflictError(StorageError):
    """Another process wrote the same record first. Nothing was written: read again, then try again."""


class MissingExtraError(HoldfastError):
    """An optional dependency is not installed. The message is the line that installs it."""

    def __init__(self, feature: str, *, extra: str) -> None:
        super().__init__(f"{feature} needs an optional part: pip install 'holdfast[{extra}]'")
        self.feature = feature
        self.extra = extra
