"""Checks that keep web pages and programs of others out, and paths and credentials of the server in."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import time
import unicodedata
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import JSONResponse, Response

from holdfast.files import create_private
from holdfast.server.bodies import RefusedBodyError, read_body

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""The names under which the server answers. Others are web pages that resolve a name of theirs to this machine."""
_PORT: Final = re.compile(r":\d+\Z")
RESERVED: Final = ("holdfast", "ui")
"""Prefixes of the first path segment that belong to this server: these requests never go to a provider."""
MAX_DECODINGS: Final = 8
"""Maximum number of times that a text is percent-decoded. No client encodes one more often."""
OWN_HEADERS: Final = b"x-holdfast-"
"""Prefix of the headers that are for this server and not for the provider."""
OWNER_TOKEN_FILE: Final = "owner.token"  # noqa: S105 - a name
"""The file in the folder of a memory that has the owner's token: with it, a model request is one of the owner."""
TOKEN_MARK: Final = "holdfast_"  # noqa: S105 - not a token
"""Prefix of the tokens and keys of Holdfast, by which those of another server are recognised too."""
MIN_TOKEN_CHARS: Final = len(TOKEN_MARK) + 43
_TOKEN: Final = re.compile(rf"{TOKEN_MARK}[\w-]{{43,}}", re.ASCII)
MAX_BASE64_LAYERS: Final = 2
"""Maximum number of times that a text is decoded from base64 to look for a token."""
_NOT_BASE64: Final = re.compile(r"[^\w+/-]", re.ASCII)
_CODE_POINT: Final = re.compile("%u([0-9a-f]{4})", re.IGNORECASE)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Activity:
    """Counts open requests and records when the last one ended, so that an idle server can stop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open = 0
        self._last = clock()

    def begin(self) -> None:
        """Count a request."""
        self._open += 1

    def end(self) -> None:
        """Count its end."""
        self._open -= 1
        self._last = self._clock()

    @property
    def open_requests(self) -> int:
        """The requests that are answered now."""
        return self._open

    @property
    def idle_seconds(self) -> float:
        """The time since the last request."""
        return 0.0 if self._open else self._clock() - self._last


class Guard:
    """Refuses requests of web pages, and those for another host name than this machine's.

    The pages of the inspector may ask for what is under `/ui/`.

    Args:
        app: The application.
        activity: Counts the requests.
        token: The token that every request must send as `Authorization: Bearer TOKEN`; None if the application checks
            it.
        max_bytes: The size of a request, which is read before the application gets it; None if the application
            limits it.
    """

    def __init__(
        self,
        app: Any,
        *,
        activity: Activity | None = None,
        token: str | None = None,
        max_bytes: int | None = None,
    ) -> None:
        self._app = app
        self._activity = activity or Activity()
        self._token = token
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        self._activity.begin()
        try:
            app = self._choose(scope)
            if self._max_bytes is not None and app is self._app:
                app = await _read_first(app, Request(scope, receive), limit=self._max_bytes)
            await app(scope, receive, send)
        finally:
            self._activity.end()

    def _choose(self, scope: Scope) -> Any:
        """Return the application, or the answer that refuses a request."""
        if _has_controls(scope["raw_path"]):
            return JSONResponse({"error": "a path must have no control characters"}, status_code=400)
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            return JSONResponse({"error": "a request must have one Host header"}, status_code=400)
        host = _PORT.sub("", hosts[0].lower())
        is_here = host in LOOPBACK or _is_unix_socket(scope)
        if not is_here or not _is_own_page(scope["path"], headers):
            return JSONResponse({"error": "only programs of this machine may ask"}, status_code=403)
        if self._token and not has_token(headers.get("authorization", ""), self._token):
            return refuse_token()
        if scope["type"] == "websocket" or headers.get("upgrade", "").lower() == "websocket":
            return Response(status_code=426)  # clients then continue without
        return self._app


def _is_unix_socket(scope: Scope) -> bool:
    """Return whether a request came over a Unix socket, which no web page can open: clients name any host there."""
    server = scope.get("server")
    return server is not None and server[1] is None


async def _read_first(app: Any, request: Request, *, limit: int) -> Any:
    """Read the body of a request, and return an application that gets it whole, or the answer that refuses it."""
    try:
        content = await read_body(request, limit=limit)
    except RefusedBodyError as error:
        return JSONResponse({"error": f"the request was refused: {error}"}, status_code=error.status)
    except ClientDisconnect:
        return Response(status_code=400)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        waiting: list[MutableMapping[str, Any]] = [{"type": "http.request", "body": content, "more_body": False}]

        async def receive_read() -> MutableMapping[str, Any]:
            return waiting.pop() if waiting else await receive()

        await app(scope, receive_read, send)

    return answer


def _is_own_page(path: str, headers: Headers) -> bool:
    """Return whether a request comes from no web page, or from one of the inspector."""
    if path.startswith("/ui/"):  # a link to it may be anywhere: the key is in the address
        return all(origin == f"http://{headers['host']}" for origin in headers.getlist("origin"))
    # Browsers send no Origin with a picture, a script or a link. For them another port of this machine is "same-site".
    # No browser sends two of these headers.
    sites = headers.getlist("sec-fetch-site")
    return "origin" not in headers and sites in ([], ["none"], ["same-origin"])


def _has_controls(path: bytes) -> bool:
    """Return whether a path has control characters, plain or encoded, which programs drop or treat as the end."""
    decoded = _decode_percent(path.decode("utf-8", "replace"))
    return decoded is not None and any(unicodedata.category(char) == "Cc" for char in decoded)


def is_reserved(path: bytes) -> bool:
    """Return whether a path is one of this server, in any spelling: encoded, in capitals, with dots or spaces."""
    decoded = _decode_percent(path.decode("utf-8", "replace"))
    if decoded is None:
        return True
    named: list[str] = []
    resolved: list[str] = []
    for part in re.split(r"[/\\]+", unicodedata.normalize("NFKC", decoded).casefold()):
        name = _drop_invisible(part.partition(";")[0])
        if name == "..":
            resolved = resolved[:-1]
        elif name not in {"", "."}:
            named.append(name)
            resolved.append(name)
    return any(names[0].startswith(RESERVED) for names in (named, resolved) if names)


def _decode_percent(text: str) -> str | None:
    """Decode `%68` and `%u0068` until neither is left; None if a text is encoded more often than any client does."""
    for _ in range(MAX_DECODINGS):
        decoded = unquote(_CODE_POINT.sub(lambda match: chr(int(match[1], 16)), text))
        if decoded == text:
            return text
        text = decoded
    return None


def _drop_invisible(text: str) -> str:
    return "".join(char for char in text if char.isprintable() and not char.isspace())


def make_token() -> str:
    """Make a new token."""
    return TOKEN_MARK + secrets.token_urlsafe(32)


def derive(token: str, purpose: str) -> str:
    """Derive a key for one purpose from the token of the server."""
    return TOKEN_MARK + hmac.new(token.encode(), purpose.encode(), hashlib.sha256).hexdigest()


def carries_own_token(request: HTTPConnection) -> bool:
    """Return whether a provider would get a token or key of Holdfast, of this server or another, with a request.

    All headers are checked except those for this server, which are not forwarded. Which of them are credentials
    depends on the provider.
    """
    texts = [request.scope["raw_path"], request.scope["query_string"]]
    texts += [value for name, value in request.headers.raw if not name.lower().startswith(OWN_HEADERS)]
    return any(_contains_token(text.decode("latin-1")) for text in texts)


def _contains_token(text: str, *, layers: int = MAX_BASE64_LAYERS) -> bool:
    """Return whether a text contains a token: plain, percent-encoded or in base64, also one in the other."""
    plain = _decode_percent(text)
    if plain is None or _TOKEN.search(plain):
        return True
    if layers == 0:
        return False
    return any(_contains_token(decoded, layers=layers - 1) for decoded in _decode_base64(plain))


def _decode_base64(text: str) -> Iterator[str]:
    """Yield what a text may mean in base64, of either alphabet, padded or not, alone or after other text.

    Characters outside of the alphabet are left out, as decoders do. Four characters make three bytes, and the first
    four may start anywhere after a prefix such as `Basic`: each of the four positions is tried.
    """
    digits = _NOT_BASE64.sub("", text).replace("-", "+").replace("_", "/")
    if len(digits) < MIN_TOKEN_CHARS:
        return
    for start in range(4):
        padded = digits[start:] + "AAA"  # zeros
        whole = len(padded) // 4 * 4
        yield base64.b64decode(padded[:whole]).decode("latin-1")


def has_token(header: str, token: str) -> bool:
    """Return whether the header `Authorization` of a request has a token."""
    return hmac.compare_digest(header.removeprefix("Bearer ").encode(), token.encode())


def refuse_token() -> JSONResponse:
    """Make the reply to a request without the token."""
    return JSONResponse({"error": "the token of the server is missing or wrong"}, status_code=401)


def load_token(file: Path) -> str:
    """Read the token in a file; if there is none, a new one is made, readable by its owner alone."""
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        create_private(file, make_token().encode())
    return file.read_text("ascii").strip()
