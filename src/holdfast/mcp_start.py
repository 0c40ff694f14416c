"""Answers the first requests of an MCP client while `holdfast mcp` is still loading.

The SDK and the engine take a second to load, and hosts send their first model request without the tools of a server
that is not ready by then. What a client asks for at its start has a fixed answer: `mcp_answers.json` has those that
the SDK gives, and `scripts/write_mcp_answers.py` writes it. Every request is passed on all the same, so that the SDK
knows the client; its answer to one that was answered here is dropped. Once it has answered anything, it answers
everything.

Loading begins with the first request that has no such answer, or a little later: most sessions that answer one question
call no tool, and the host itself is starting at that moment.
"""

from __future__ import annotations

import json
import os
import sys
from threading import Event, Lock, Thread

TYPE_CHECKING = False  # a client waits for these imports
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import IO, Any, Final

ANSWERS: Final = "mcp_answers.json"
_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
"""The field of `_meta` that names the version in requests of clients that do not initialise."""
_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
_LISTEN: Final = "subscriptions/listen"
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_CHANGES: Final = frozenset({"toolsListChanged", "promptsListChanged", "resourcesListChanged"})
"""What a client may listen to. None of the lists ever changes."""
_SERVER: Final = "io.modelcontextprotocol/serverInfo"
LOAD_SECONDS: Final = 5.0
"""When loading begins if nothing needs it before, so that the first call of a tool does not wait for it."""
_END: Final = b"\0"
"""Follows the last answer on the pipe from the SDK, whose other end stays open."""


class EarlyAnswers:
    """Knows the answers to the requests that a client makes at its start.

    Args:
        answers: The results by method, for clients that initialise and for each version of those that do not.
        version: The version of Holdfast, which is part of some.
    """

    def __init__(self, answers: Mapping[str, Any], *, version: str) -> None:
        self._answers = answers
        self._version = version
        self._is_initialized = False

    def find(self, request: Any) -> dict[str, Any] | None:
        """Return the answer to a request; None if only the SDK knows it."""
        if not isinstance(request, dict) or not isinstance(request.get("id"), int | str):
            return None
        method = request.get("method")
        params = request.get("params") or {}
        if not isinstance(params, dict) or params.get("cursor"):
            return None
        meta = params.get("_meta")
        named = meta.get(_VERSION) if isinstance(meta, dict) else None
        if method == "initialize":
            self._is_initialized = params.get("protocolVersion") in self._answers["handshake_versions"]
        if named is None and not self._is_initialized:
            return None
        if method == _LISTEN and str(named) in self._answers:
            return _acknowledge(request["id"], params.get("notifications"))
        known = self._answers["handshake"] if named is None else self._answers.get(str(named), {})
        if method not in known:
            return None
        result = dict(known[method])
        if method == "initialize":
            result["protocolVersion"] = params["protocolVersion"]
        about = result.get("serverInfo") or result.get("_meta", {}).get(_SERVER)
        if about is not None:
            about["version"] = self._version
        return {"jsonrpc": "2.0", "id": request["id"], "result": result}


def _acknowledge(number: int | str, wanted: Any) -> dict[str, Any] | None:
    """Return what a client gets that listens to changes; the request itself stays open."""
    if not isinstance(wanted, dict) or not set(wanted) <= _CHANGES:
        return None
    if not wanted or not all(value is True for value in wanted.values()):
        return None
    params = {"_meta": {_SUBSCRIPTION: number}, "notifications": wanted}
    return {"jsonrpc": "2.0", "method": _ACKNOWLEDGED, "params": params}


class Relay:
    """Passes lines between the client and the SDK, and answers some before the SDK does."""

    def __init__(self, early: EarlyAnswers, *, client_input: IO[bytes], client_output: IO[bytes]) -> None:
        self._early = early
        self._client_input = client_input
        self._client_output = client_output
        self._lock = Lock()
        self._answered: set[object] = set()
        self._is_ready = False
        self.is_over = False
        """Whether the client has ended, and nothing but early answers was needed."""
        self.is_needed = Event()
        """Is set once the SDK has something to do."""

    def pass_requests(self, to_sdk: IO[bytes]) -> None:
        """Pass on what the client sends, until it ends."""
        try:
            with to_sdk:
                for line in self._client_input:
                    self._answer_early(line)
                    to_sdk.write(line)
                    to_sdk.flush()
        except OSError:  # the client or the server has ended
            pass
        self.is_over = not self.is_needed.is_set()
        self.is_needed.set()

    def _answer_early(self, line: bytes) -> None:
        with self._lock:
            request = _parse(line)
            answer = None if self._is_ready else self._early.find(request)
            if answer is None:
                is_notification = isinstance(request, dict) and "id" not in request
                if not is_notification:
                    self.is_needed.set()
            else:
                self._answered.add(_identify(answer))
                self._client_output.write(json.dumps(answer).encode() + b"\n")
                self._client_output.flush()

    def pass_answers(self, from_sdk: IO[bytes]) -> None:
        """Pass on what the SDK sends, without what was answered before."""
        try:
            for line in from_sdk:
                if line.startswith(_END):
                    return
                self._pass_answer(line)
        except OSError:  # the client has ended
            return

    def _pass_answer(self, line: bytes) -> None:
        with self._lock:
            self._is_ready = True
            answer = _identify(_parse(line)) if self._answered else None
            if answer in self._answered:
                self._answered.discard(answer)
                return
            self._client_output.write(line)
            self._client_output.flush()


def _identify(answer: Any) -> object:
    """Return what distinguishes an answer from others; None for what is not the answer to a request."""
    if not isinstance(answer, dict):
        return None
    if answer.get("method") == _ACKNOWLEDGED:
        return (_ACKNOWLEDGED, answer["params"]["_meta"][_SUBSCRIPTION])
    return None if "method" in answer else answer.get("id")


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:  # the SDK says so
        return None


def answer_early() -> None:
    """Put a relay between the client and this process, and wait until the server is needed."""
    import atexit  # noqa: PLC0415 - only for this

    from holdfast import __version__  # noqa: PLC0415 - as above

    with open(os.path.join(os.path.dirname(__file__), ANSWERS), "rb") as file:
        early = EarlyAnswers(json.load(file), version=__version__)
    client_input = os.fdopen(os.dup(0), "rb")
    client_output = os.fdopen(os.dup(1), "wb")
    sdk_input, to_sdk = os.pipe()
    from_sdk, sdk_output = os.pipe()
    os.dup2(sdk_input, 0)
    os.dup2(sdk_output, 1)
    relay = Relay(early, client_input=client_input, client_output=client_output)
    answers = Thread(target=relay.pass_answers, args=(os.fdopen(from_sdk, "rb"),), daemon=True)
    requests = Thread(target=relay.pass_requests, args=(os.fdopen(to_sdk, "wb"),), daemon=True)

    def finish() -> None:
        sys.stdout.flush()
        os.write(sdk_output, _END + b"\n")
        answers.join()

    answers.start()
    requests.start()
    relay.is_needed.wait(LOAD_SECONDS)
    if relay.is_over:
        os._exit(0)
    atexit.register(finish)
