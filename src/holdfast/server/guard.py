"""Checks that keep web pages and programs of others out."""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final

from starlette.responses import JSONResponse, Response

from holdfast.files import write_private

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""The names under which the server answers. Others are web pages that resolve a name of theirs to this machine."""
_PORT: Final = re.compile(r":\d+\Z")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Activity:
    """Counts open requests and knows when the last one ended, so that an idle server can stop."""

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
    def idle_seconds(self) -> float:
        """How long there has been no request."""
        return 0.0 if self._open else self._clock() - self._last


class Guard:
    """Refuses requests of web pages: those with an Origin, or for another host name than this machine's.

    The pages of the inspector may ask for what is under `/ui/`.

    Args:
        app: The application.
        activity: Counts the requests.
        token: What every request must bring as `Authorization: Bearer TOKEN`; None where the application checks it.
    """

    def __init__(self, app: Any, *, activity: Activity | None = None, token: str | None = None) -> None:
        self._app = app
        self._activity = activity or Activity()
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        self._activity.begin()
        try:
            headers: Mapping[bytes, bytes] = dict(scope["headers"])
            host = _PORT.sub("", headers.get(b"host", b"").decode("latin-1").lower())
            app = self._app
            origin = headers.get(b"origin")
            is_own = origin is None or (scope["path"].startswith("/ui/") and origin == b"http://" + headers[b"host"])
            if not is_own or host not in LOOPBACK:
                app = JSONResponse({"error": "only programs of this machine may ask"}, status_code=403)
            elif self._token and not has_token(headers.get(b"authorization", b"").decode("latin-1"), self._token):
                app = refuse_token()
            elif scope["type"] == "websocket" or headers.get(b"upgrade", b"").lower() == b"websocket":
                app = Response(status_code=426)  # clients then go on without
            await app(scope, receive, send)
        finally:
            self._activity.end()


def has_token(header: str, token: str) -> bool:
    """Whether the header `Authorization` of a request has a token."""
    return hmac.compare_digest(header.removeprefix("Bearer ").encode(), token.encode())


def refuse_token() -> JSONResponse:
    """Make the reply to a request without the token."""
    return JSONResponse({"error": "the token of the server is missing or wrong"}, status_code=401)


def load_token(file: Path) -> str:
    """Read the token in a file; a new one is made where there is none, readable by its owner alone."""
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, secrets.token_urlsafe(32).encode())
    return file.read_text("ascii").strip()
