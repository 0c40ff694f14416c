"""Scripts on disk: a JSON object on each line, one for each reply."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec

from holdfast.errors import (
    InputError,
    ModelBusyError,
    ModelError,
    ModelOverflowError,
    ModelRefusedError,
    ModelTimeoutError,
)
from holdfast.messages import ToolCall, Usage
from holdfast.models.steps import Hang, Said, Step

__all__ = ["read_script"]

Trouble = Literal["overflow", "busy", "timeout", "refused"]


class _Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, msgspec.Raw] | str = {}
    id: str = ""


class _Usage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What may stand on a line."""

    text: str = ""
    pieces: tuple[str, ...] = ()
    thinking: str = ""
    signature: str | None = None
    calls: tuple[_Call, ...] = ()
    usage: _Usage | None = None
    stop: str = ""
    delay: float = 0.0
    repeat: bool = False
    hang: bool = False
    error: Trouble | None = None
    message: str = ""
    retry_after: float | None = None


_DECODER: Final = msgspec.json.Decoder(_Line)


def read_script(path: Path) -> list[Step]:
    """The steps of a script; blank lines and lines that begin with `#` are left out.

    Raises:
        InputError: The file cannot be read, or a line is none of a script.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: the script cannot be read: {error}") from error
    return [
        _step(line, number, path)
        for number, line in enumerate(lines, start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]


def _step(line: str, number: int, path: Path) -> Step:
    try:
        told = _DECODER.decode(line)
    except msgspec.MsgspecError as error:
        raise InputError(f"{path}:{number}: not a line of a script: {error}") from error
    if told.hang:
        return Hang()
    if told.error is not None:
        return _trouble(told, told.error)
    return Said(
        text=told.text,
        pieces=told.pieces,
        thinking=told.thinking,
        signature=told.signature,
        calls=tuple(_call(call, f"call_{number}_{index}") for index, call in enumerate(told.calls, start=1)),
        usage=None if told.usage is None else Usage(**msgspec.structs.asdict(told.usage)),
        stop=told.stop,
        delay=told.delay,
        repeat=told.repeat,
    )


def _call(call: _Call, call_id: str) -> ToolCall:
    arguments = call.arguments
    if not isinstance(arguments, str):
        arguments = {key: msgspec.json.decode(value) for key, value in arguments.items()}
    return ToolCall(id=call.id or call_id, name=call.name, arguments=arguments)


def _trouble(told: _Line, kind: Trouble) -> ModelError:
    words = told.message or f"the script says {kind}"
    if kind == "busy":
        return ModelBusyError(words, retry_after=told.retry_after)
    return _KINDS[kind](words)


_KINDS: Final[dict[Trouble, Callable[[str], ModelError]]] = {
    "overflow": ModelOverflowError,
    "timeout": ModelTimeoutError,
    "refused": ModelRefusedError,
}
