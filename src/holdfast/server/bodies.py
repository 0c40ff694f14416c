"""Bodies of requests and replies as bytes: they are read, decompressed and parsed within limits.

What the fields of a body mean is not known here: `holdfast.exchange` reads them (`read_body`) and changes them
(`change_body`).

A body of a few kilobytes may decompress to gigabytes. It is decompressed step by step, in a thread, and no further than
the limit. So is what one body contains of another (`gzip, gzip`).
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import import_module
from io import BytesIO
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from starlette.requests import Request

from holdfast.errors import InputError
from holdfast.json_text import decode_json
from holdfast.settings import ServerSettings

if TYPE_CHECKING:
    import httpx2 as httpx  # not if only MCP is served

zstd: Any = None
for _name in ("backports.zstd", "compression.zstd"):  # the extra `zstd`, or Python 3.14
    with suppress(ImportError):
        zstd = import_module(_name)

R = TypeVar("R")

STEP_BYTES: Final = 64 * 2**10
"""Bytes that are decompressed at a time."""
SMALL_BYTES: Final = 256 * 2**10
"""A body up to this size is parsed at once; a larger one in a thread."""
MAX_CODINGS: Final = 3
"""Codings of one body. Each of them multiplies the work."""
MAX_MEMBERS: Final = 10_000
"""Compressed members that a body may be joined from. Each of them costs, also an empty one."""
MAX_VALUES: Final = 2_000_000
"""Values of a JSON body. Each takes a hundred bytes in memory, also if it is two characters long."""
COUNTED_BYTES: Final = 2**20
"""Bytes that are searched for values at a time."""
THREADS: Final = 2
"""Threads for large bodies. They do not take the threads in which sessions work."""


class RefusedBodyError(Exception):
    """A body that is not read. `status` is that of the reply."""

    status = 413


class BodyTooLargeError(RefusedBodyError):
    """A body that is larger than a setting allows.

    Args:
        limit: The limit.
        setting: The setting of the server that has it, if there is one.
    """

    def __init__(self, limit: int, setting: str = "") -> None:
        named = f", the limit of the setting server.{setting}" if setting else ""
        super().__init__(f"it is larger than {limit:,} bytes{named}")


class TooManyBodiesError(RefusedBodyError):
    """A body that has no room next to those of other requests."""

    status = 503

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"open requests have {limit:,} bytes, the limit of the setting server.max_open_bytes: try again later"
        )


# --- decompression -------------------------------------------------------------------


class _Stream(Protocol):
    """Decompresses one member. `rest` is the input that is left, and `is_hungry` whether it needs more of it."""

    rest: bytes
    is_hungry: bool
    is_over: bool

    def step(self, data: bytes) -> bytes:
        """Decompress at most `STEP_BYTES`."""


class _ZlibStream:
    def __init__(self, format: int) -> None:
        self.rest = b""
        self.is_hungry = True
        self.is_over = False
        self._stream = zlib.decompressobj(format)

    def step(self, data: bytes) -> bytes:
        output = self._stream.decompress(data, STEP_BYTES)
        self.is_over = self._stream.eof
        self.rest = self._stream.unused_data if self.is_over else self._stream.unconsumed_tail
        self.is_hungry = not self.rest and len(output) < STEP_BYTES
        return output


class _ZstdStream:
    def __init__(self) -> None:
        self.rest = b""
        self.is_hungry = True
        self.is_over = False
        # RFC 9659: a reader need not support windows larger than this.
        self._stream = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: 23})

    def step(self, data: bytes) -> bytes:
        output: bytes = self._stream.decompress(data, STEP_BYTES)
        self.is_over = self._stream.eof
        self.rest = self._stream.unused_data if self.is_over else b""
        self.is_hungry = self._stream.needs_input
        return output


def _open_stream(coding: str, data: bytes) -> _Stream:
    """Begin a member with its first bytes."""
    if coding == "zstd":
        return _ZstdStream()
    if coding == "gzip":
        return _ZlibStream(zlib.MAX_WBITS | 16)
    has_header = data[0] & 0x0F == zlib.DEFLATED  # some servers send deflate without the header of zlib
    return _ZlibStream(zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)


_ERRORS: Final[tuple[type[Exception], ...]] = (zlib.error,) if zstd is None else (zlib.error, zstd.ZstdError)


class _Layer:
    """Undoes one coding of a body."""

    def __init__(self, coding: str, *, limit: int, setting: str) -> None:
        self._coding = coding
        self._limit = limit
        self._setting = setting
        self._stream: _Stream | None = None
        self._size = 0
        self._members = 0

    @property
    def is_cut(self) -> bool:
        """Whether a body that is over ends inside of a member."""
        return self._stream is not None and not self._stream.is_over

    def decode(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            yield from self._decode_piece(piece)

    def _decode_piece(self, data: bytes) -> Iterator[bytes]:
        while data or not (self._stream is None or self._stream.is_over or self._stream.is_hungry):
            if self._stream is None or self._stream.is_over:
                if self._stream is not None and not data.strip(b"\0"):
                    return  # a member may be padded
                self._members += 1
                if self._members > MAX_MEMBERS:
                    raise InputError(f"the body is joined from more than {MAX_MEMBERS:,} compressed members")
                self._stream = _open_stream(self._coding, data)
            try:
                output = self._stream.step(data)
            except _ERRORS as error:
                raise InputError(f"the body is not compressed with {self._coding}: {error}") from error
            self._size += len(output)
            if self._size > self._limit:
                raise BodyTooLargeError(self._limit, self._setting)
            data = self._stream.rest
            if output:
                yield output


class Decoder:
    """Decompresses a body, piece by piece.

    Args:
        encoding: The header `Content-Encoding`.
        limit: The maximum bytes of output, for each coding.
        setting: The setting of the server that has it, if there is one.

    Raises:
        InputError: It is compressed in a way that cannot be read here.
    """

    def __init__(self, encoding: str, *, limit: int, setting: str = "") -> None:
        names = [name.strip().removeprefix("x-") for name in encoding.lower().split(",")]
        codings = [name for name in names if name not in {"", "identity"}]
        known = {"gzip", "deflate"} if zstd is None else {"gzip", "deflate", "zstd"}
        if not known.issuperset(codings) or len(codings) > MAX_CODINGS:
            raise InputError(f"it is compressed with {encoding}")
        self._layers = [_Layer(coding, limit=limit, setting=setting) for coding in reversed(codings)]

    @property
    def is_identity(self) -> bool:
        """Whether there is nothing to decompress."""
        return not self._layers

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decompress what has come of a body.

        Raises:
            InputError: It is damaged.
            BodyTooLargeError: More comes out than the limit allows.
        """
        # In small pieces: zlib copies the input that it has not used yet at every step.
        pieces: Iterable[bytes] = (data[start : start + STEP_BYTES] for start in range(0, len(data), STEP_BYTES))
        for layer in self._layers:
            pieces = layer.decode(pieces)
        yield from pieces

    def finish(self) -> None:
        """Check that a body is whole.

        Raises:
            InputError: It is not.
        """
        if any(layer.is_cut for layer in self._layers):
            raise InputError("the compressed body is cut off")


# --- bodies --------------------------------------------------------------------------


class Held:
    """Counts the bytes of bodies that one request keeps in memory. Threads may add to it."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._size = 0

    def add(self, size: int) -> None:
        """Count more bytes.

        Raises:
            TooManyBodiesError: All requests together hold too much.
        """
        self._bodies.count(size)
        self._size += size

    def release(self) -> None:
        """Forget them."""
        self._bodies.count(-self._size)
        self._size = 0


class Bodies:
    """Reads the bodies of requests within the limits of the settings."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="holdfast-bodies")
        self._open = 0
        self._lock = Lock()

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def count(self, size: int) -> None:
        """Count bytes that are held, or no longer held; see `Held`."""
        with self._lock:
            if size > 0 and self._open + size > self._settings.max_open_bytes:
                raise TooManyBodiesError(self._settings.max_open_bytes)
            self._open += size

    @contextmanager
    def hold(self) -> Iterator[Held]:
        """Count the bytes that a request keeps in memory until it is answered."""
        held = Held(self)
        try:
            yield held
        finally:
            held.release()

    async def read(self, request: Request, *, held: Held) -> bytes:
        """Read the body of a request as it was sent; see `read_body`."""
        return await read_body(request, limit=self._settings.max_request_bytes, held=held)

    async def parse(self, content: bytes, encoding: str, read: Callable[[Any], R], *, held: Held) -> R:
        """Decompress and decode a JSON body, and read it with a function; a large one in a thread.

        Raises:
            InputError: It cannot be decompressed, is no object, or has too many values. `read` may raise others.
            RefusedBodyError: It decompresses to too much.
            ValueError: It is not JSON.
        """
        limit = self._settings.max_decompressed_bytes
        decoder = Decoder(encoding, limit=limit, setting="max_decompressed_bytes")

        def work() -> R:
            body = _load_json(_decompress(content, decoder, held=held))
            if not isinstance(body, dict):
                raise InputError("the body is no JSON object")
            return read(body)

        return await self.work(work, size=len(content) if decoder.is_identity else SMALL_BYTES + 1)

    async def work(self, function: Callable[[], R], *, size: int) -> R:
        """Call a function that works on a body of a size; on a large one in a thread, so that others are answered."""
        if size <= SMALL_BYTES:
            return function()
        running = asyncio.get_running_loop().run_in_executor(self._pool, function)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait({running})  # the caller continues with what the function changes
            raise
        finally:
            # An error refers to this frame, and the future to the error. If the frame refers to the future, that is a
            # cycle, which keeps the body until the garbage collector runs.
            del running


async def read_body(
    request: Request, *, limit: int, setting: str = "max_request_bytes", held: Held | None = None
) -> bytes:
    """Read the body of a request, and no more than a limit.

    Raises:
        RefusedBodyError: It is larger.
        ClientDisconnect: The client left.
    """
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length) > limit:
        raise BodyTooLargeError(limit, setting)
    buffer = BytesIO()
    async for chunk in request.stream():
        if buffer.tell() + len(chunk) > limit:
            raise BodyTooLargeError(limit, setting)
        if held is not None:
            held.add(len(chunk))
        buffer.write(chunk)
    return buffer.getvalue()


async def read_reply(sent: httpx.Response, *, limit: int) -> bytes:
    """Read the whole body of a reply, decompressed.

    Raises:
        InputError: It cannot be decompressed.
        BodyTooLargeError: It is larger than the limit.
    """
    decoder = Decoder(sent.headers.get("content-encoding", ""), limit=limit)
    content = bytearray()
    async for chunk in sent.aiter_raw():
        for piece in decoder.feed(chunk):
            content += piece
            if len(content) > limit:
                raise BodyTooLargeError(limit)
    return bytes(content)


def _decompress(content: bytes, decoder: Decoder, *, held: Held) -> bytes | bytearray:
    if decoder.is_identity:
        return content
    output = bytearray()
    for piece in decoder.feed(content):
        held.add(len(piece))
        output += piece
    decoder.finish()
    return output


def _load_json(content: bytes | bytearray) -> Any:
    if _count_values(content) > MAX_VALUES:
        raise InputError(f"the body may have more than {MAX_VALUES:,} values")
    return decode_json(content)


def _count_values(content: bytes | bytearray) -> int:
    """Count the marks before values. Those inside of strings count too, which real requests have room for.

    It stops above the limit, and goes in steps: other threads wait for each.
    """
    values = 0
    if len(content) > MAX_VALUES:
        for start in range(0, len(content), COUNTED_BYTES):
            piece = content[start : start + COUNTED_BYTES]
            values += len(piece) - len(piece.translate(None, b",[{"))
            if values > MAX_VALUES:
                break
    return values
