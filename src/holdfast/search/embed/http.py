"""One request of JSON for JSON: a deadline for all of it, retries, proxies, and errors that say what to do.

The standard library is enough: it knows proxies and certificates, and a fresh connection for each batch costs
little beside the model. What it lacks, as httpx does, is a deadline over name lookup, connection and answer
together; so the request runs in a thread of its own, which is left behind when time is up.
"""

from __future__ import annotations

import json
import queue
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Thread
from typing import Any, Final

from holdfast.errors import EmbeddingError
from holdfast.redact import redact
from holdfast.text import head

__all__ = ["Patience", "Request", "post"]

_LARGEST_ANSWER: Final = 1 << 26
_CHUNK: Final = 1 << 16
_EXCERPT: Final = 200

_OK: Final = range(200, 300)
_MOVED: Final = range(300, 400)
_KEY_REFUSED: Final = (401, 403)
_TOO_MANY: Final = 429
_SERVER_ERROR: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is sent where. The headers may hold a key and are never shown.

    Attributes:
        provider: Whom errors name.
        url: The address.
        headers: What goes along with the body.
        body: The JSON that is sent.
        key: Where the key came from, for the error when it is refused.
    """

    provider: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: Any = field(repr=False)
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How often a request is tried again, after which waits, and by which clock."""

    retries: int = 3
    first_wait: float = 0.5
    longest_wait: float = 8.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random

    def wait(self, tried: int, asked: float) -> float:
        """Seconds before the next try: twice the last, less some chance, and no less than the server asked for."""
        longest = min(self.longest_wait, self.first_wait * (1 << tried))
        return max(asked, longest * (0.5 + self.chance() / 2))


@dataclass(frozen=True, slots=True)
class _Answer:
    """What came back; `status` 0 and the trouble as text if nothing did. `wait` is what the server asked for."""

    status: int
    body: bytes
    wait: float = 0.0
    moved_to: str = ""
    timed_out: bool = False


def post(request: Request, *, seconds: float, patience: Patience) -> Any:
    """The JSON of the answer. Only 429, 5xx and time-outs are tried again, and never past the deadline."""
    ends = patience.clock() + seconds
    tried = 0
    while True:
        answer = _within(request, ends - patience.clock())
        if answer.status in _OK:
            return _decoded(request, answer)
        error = _error(request, answer, seconds)
        wait = patience.wait(tried, answer.wait)
        if not _passing(answer) or tried >= patience.retries or patience.clock() + wait >= ends:
            raise error
        patience.sleep(wait)
        tried += 1


def _passing(answer: _Answer) -> bool:
    return answer.timed_out or answer.status == _TOO_MANY or answer.status >= _SERVER_ERROR


def _decoded(request: Request, answer: _Answer) -> Any:
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        said = _excerpt(request, answer.body)
        raise EmbeddingError(f"the answer is not JSON: {said}", provider=request.provider) from None


def _error(request: Request, answer: _Answer, seconds: float) -> EmbeddingError:
    status = answer.status
    if answer.timed_out:
        message = f"no answer within {seconds:g} s; check the network, or take a model on this machine"
    elif not status:
        message = f"cannot be reached: {_excerpt(request, answer.body)}; check the network and embedding.base_url"
    elif status in _KEY_REFUSED:
        message = f"the key was refused (HTTP {status}); check {request.key}"
    elif status in _MOVED:
        message = f"the endpoint has moved (HTTP {status}) to {head(answer.moved_to, _EXCERPT)}; set embedding.base_url"
    else:
        message = f"HTTP {status}: {_excerpt(request, answer.body)}"
    return EmbeddingError(message, provider=request.provider, status=status or None)


def _excerpt(request: Request, body: bytes) -> str:
    """The beginning of what was said, without the key, whatever the server thinks of repeating it."""
    said = body[:_CHUNK].decode("utf-8", "replace")
    for value in request.headers.values():
        secret = value.removeprefix("Bearer ")
        said = said.replace(secret, "****") if secret else said
    return head(" ".join(redact(said).split()), _EXCERPT) or "nothing"


def _within(request: Request, seconds: float) -> _Answer:
    """The answer, or a time-out when the seconds are over, whatever the network is doing."""
    answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
    Thread(target=lambda: answers.put(_send(request, seconds)), daemon=True, name="holdfast-embed").start()
    try:
        return answers.get(timeout=max(0.001, seconds))
    except queue.Empty:
        return _Answer(0, b"", timed_out=True)


def _send(request: Request, seconds: float) -> _Answer:
    from http.client import HTTPException  # noqa: PLC0415 - a tenth of a second that only remote providers need
    from urllib.error import URLError  # noqa: PLC0415 - as above

    try:
        return _opened(request, seconds)
    except (OSError, HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        return _Answer(0, str(reason or type(error).__name__).encode(), timed_out=isinstance(reason, TimeoutError))


def _opened(request: Request, seconds: float) -> _Answer:
    from urllib import request as web  # noqa: PLC0415 - as above

    class Plain(web.HTTPErrorProcessor):
        """Every answer as it is. A redirection is not followed: a key goes to the address that was set alone."""

        def http_response(self, request: Any, response: Any) -> Any:  # noqa: ARG002 - the signature is given
            return response

        https_response = http_response

    headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "holdfast"}
    said = json.dumps(request.body, ensure_ascii=False).encode()
    post = web.Request(request.url, said, {**headers, **request.headers}, method="POST")  # noqa: S310 - http or https
    ends = time.monotonic() + seconds
    with web.build_opener(Plain).open(post, timeout=seconds) as response:
        body = bytearray()
        while part := response.read1(_CHUNK):
            body += part
            if time.monotonic() > ends or len(body) > _LARGEST_ANSWER:
                raise TimeoutError("the answer does not end")
        given = response.headers
        return _Answer(response.status, bytes(body), _seconds(given.get("Retry-After")), given.get("Location", ""))


def _seconds(text: str | None) -> float:
    """What `Retry-After` says in seconds; its other form, a date, is left to our own waits."""
    return float(text) if text and text.strip().isdecimal() else 0.0
