"""Every error that Holdfast raises on purpose.

All have one root, so that `except HoldfastError` is enough. Each error has its details as attributes, and its message
includes the fix. They are InputError (FormatError, TranscriptError, SettingsError), EmbeddingError, WindowError
(InvalidWindowError, WindowTooSmallError), ModelError (ModelOverflowError, ModelBusyError, ModelTimeoutError,
ModelRefusedError, ModelBudgetError, ModelCancelledError), CompactionError, StorageError (EncryptionError,
ConflictError, UnavailableError), MissingExtraError and ClosedError.
"""

import copyreg
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from holdfast_memory.distribution import install_command


class HoldfastError(Exception):
    """The root of every error that Holdfast raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the constructors, which take more than `args` holds.
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class InputError(HoldfastError):
    """The input cannot be used."""


class FormatError(InputError):
    """A message list is not in the given format, or not in any known format.

    `where` is the path to the offending value, such as `messages[3].content[0].id`.
    """

    def __init__(self, message: str, *, where: str = "", format: str | None = None) -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.where = where
        self.format = format


class ClosedError(HoldfastError):
    """An engine, or a session of it, was used after it was closed."""

    def __init__(self) -> None:
        super().__init__("the engine is closed: open another one with Engine.open, and close it after its last use")


class TranscriptError(InputError):
    """A session file cannot be read. `path` is the file, `line` the line if it is known."""

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
    """Text could not be embedded; search by words still works.

    `provider` is the embedding provider; `status` the HTTP status of a remote one.
    """

    def __init__(self, message: str, *, provider: str, status: int | None = None) -> None:
        super().__init__(f"{provider}: {message}")
        self.provider = provider
        self.status = status


class WindowError(HoldfastError):
    """No window can be sent. Every message is in the archive."""


class InvalidWindowError(WindowError):
    """A window breaks a rule of its provider and could not be repaired. `violations` are the rules and places."""

    def __init__(self, provider: str, violations: Sequence[object]) -> None:
        reasons = "; ".join(map(str, violations))
        super().__init__(f"{provider} would refuse this window: {reasons:.500}")
        self.provider = provider
        self.violations = tuple(violations)


SPACE_ADVICE: Final = (
    "use a larger window, protect fewer messages (trim.protected_recent), unpin some, "
    "or prune tool results (pruning.mode)"
)


class WindowTooSmallError(WindowError):
    """The messages that must stay in a window have `needed` tokens, more than the `room` for messages in it.

    `limit` is the size of the window, as the caller gave it; tools and the reply take the rest. The messages that must
    stay are the system prompt, the summary, pinned messages, and those that the next reply answers.
    """

    def __init__(self, *, needed: int, limit: int, room: int) -> None:
        if room > 0:
            left = f"{room:,} of {limit:,} for messages"
            advice = "use a larger window, send a shorter message, or unpin messages"
        else:
            left = f"no room for messages in a window of {limit:,}"
            advice = "use a larger window, offer fewer tools, or reserve less for the reply"
        super().__init__(
            f"what must stay in the window takes {needed:,} tokens, but the tools and the reply leave {left}: {advice}"
        )
        self.needed = needed
        self.limit = limit
        self.room = max(0, room)


class ModelError(HoldfastError):
    """A model gave no usable reply. `model` names it, `status` is the provider's HTTP status."""

    def __init__(self, message: str, *, model: str = "", status: int | None = None) -> None:
        super().__init__(f"{model}: {message}" if model else message)
        self.model = model
        self.status = status


class ModelOverflowError(ModelError):
    """The request does not fit the model's window.

    `limit` is the size of the window and `requested` that of the request, if the provider states them;
    `tries` is how often a smaller request was tried.
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
    """The provider cannot reply now: rate limit, overload or network failure. A retry may help.

    `retry_after` is how many seconds the provider asks to wait, if it states that.
    """

    def __init__(
        self, message: str, *, model: str = "", status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message, model=model, status=status)
        self.retry_after = retry_after


class ModelTimeoutError(ModelError):
    """The timeout was exceeded."""


class ModelRefusedError(ModelError):
    """The key, the address or the request is refused: a retry will not help."""


class ModelBudgetError(ModelError):
    """A limit of the settings for model calls in the background is reached. The work waits, and is done later."""


class ModelCancelledError(ModelError):
    """The request was cancelled."""


class CompactionError(HoldfastError):
    """History could not be shortened; it is unchanged."""


class StorageError(HoldfastError):
    """Holdfast could not read or write one of its files. No acknowledged write is lost."""

    def __init__(self, message: str, *, path: Path | str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = Path(path)


class EncryptionError(StorageError):
    """The key of an encrypted store is missing or wrong; or only one of the store and the settings is encrypted.

    Nothing was changed.
    """


class ConflictError(StorageError):
    """Another process wrote the same record first. Nothing was written: read it again and retry."""


class UnavailableError(StorageError):
    """The database server does not answer now, or not in time: a retry may help.

    Nothing was changed, unless the connection was lost after the server had committed. A repeated append stores a
    message once. `can_retry` is whether the same call may succeed at once, as after a lost connection.
    """

    def __init__(self, message: str, *, path: Path | str, can_retry: bool = False) -> None:
        super().__init__(message, path=path)
        self.can_retry = can_retry


class MissingExtraError(HoldfastError):
    """An optional dependency is not installed. The message contains the command that installs it."""

    def __init__(self, feature: str, *, extra: str) -> None:
        super().__init__(f"{feature} needs an optional dependency: {install_command(extra)}")
        self.feature = feature
        self.extra = extra
