"""Identify the sender of a model request, so that no sender gets the memory of another.

The owner sends the owner's token. Every other sender is identified by the credential that the request carries for its
provider: a keyed digest of it is part of the scope. Names that a request contains, of a session, a project or an agent,
select within that scope. The credential itself is neither stored nor logged.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from holdfast.engine import Engine
from holdfast.errors import StorageError
from holdfast.memory.keys import open_keys
from holdfast.memory.memory import CALLER_MARK
from holdfast.store.base import Scope

TOKEN_HEADER: Final = "x-holdfast-token"  # noqa: S105 - a name
"""The header in which a client of the owner sends the owner's token."""
NOBODY: Final = "nobody"
"""The name of callers without a credential."""
_KEY_KIND: Final = "identity key"
_DIGEST_CHARS: Final = 16
_CREDENTIAL_ENDS: Final = ("assertion", "auth", "jwt", "key", "sig", "signature", "token")
"""Suffixes of the names of headers and parameters with credentials: `x-api-key`, `X-AuthToken`, `access_token`."""
_CREDENTIAL_WORDS: Final = (
    "accesskey",
    "accesstoken",
    "apikey",
    "apitoken",
    "authentication",
    "authorization",
    "authtoken",
    "bearer",
    "credential",
    "password",
    "secret",
)
"""Words that mark a credential anywhere in a name, written with or without separators: `x-api-key-v2`."""
_OTHER_WORDS: Final = frozenset({"cache", "csrf", "idempotency", "xsrf"})
_OTHER_PREFIXES: Final = ("proxy-", "sec-", "x-holdfast-")
"""Words and beginnings of names that end like that of a credential and are none, or none for the provider."""
MAX_NAMES: Final = 1_000
"""Names of headers and parameters for which it is known whether they are those of a credential."""
_SCHEMES: Final = frozenset({"basic", "bearer", "token"})
_SHORT_LIVED: Final = ("sk-ant-oat", "ya29.")
"""Prefixes of access tokens that a login replaces after some hours."""
_JWT: Final = re.compile(r"eyJ[\w-]+\.([\w-]+)\.[\w-]*", re.ASCII)
SHORT_LIVED_WARNING: Final = (
    "this login is replaced after some hours, and its memory is then another: send the token that `holdfast token`"
    f' prints as {TOKEN_HEADER}, or set server.identity = "one-person"'
)
WRONG_TOKEN_WARNING: Final = (
    f"{TOKEN_HEADER} is not the owner's token of this memory: `holdfast token` prints it. The memory of the key is used"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The sender of a request.

    Attributes:
        name: `k-` and a digest of the credential, or `nobody`; empty for the owner.
        warning: Why the next request of the same person may get another identity; empty if it does not.
    """

    name: str = ""
    warning: str = ""

    def scope(self, headers: Mapping[str, str]) -> Scope:
        """Return the project and the agent of a request.

        Only the owner names an agent of another caller, or a folder as the project: its settings are the owner's.
        """
        project = headers.get("x-holdfast-project", "")
        agent = headers.get("x-holdfast-agent") or Scope().agent
        if not self.name:
            return Scope(project=project, agent=agent)
        return Scope(project=f"{self.name}:{project}" if project else "", agent=f"{agent}{CALLER_MARK}{self.name}")


class Callers:
    """Recognises who sends a request.

    Args:
        engine: The memory; it keeps the key of the digests.
        owner_token: The token that a client of the owner sends; empty if nobody has one.
    """

    def __init__(self, engine: Engine, *, owner_token: str = "") -> None:
        self._engine = engine
        self._owner_token = owner_token
        self._key = b""
        self._substitute = secrets.token_bytes(32)

    @property
    def key(self) -> bytes:
        """The key of the digests.

        If the store fails, a key of this process alone takes its place: callers stay apart, and find nothing.
        """
        if not self._key:
            store = self._engine._memory.store
            try:
                keys = self._engine._ask_memory(lambda: open_keys(store, kind=_KEY_KIND, size=32), scope=Scope())
            except StorageError:
                return self._substitute
            self._key = keys[0]
        return self._key

    def identify(self, request: Request, body: Mapping[str, Any]) -> Caller:
        """Return who sends a request."""
        warning = ""
        token = request.headers.get(TOKEN_HEADER)
        if token is not None:
            if self._owner_token and hmac.compare_digest(token.strip().encode(), self._owner_token.encode()):
                return Caller()
            warning = WRONG_TOKEN_WARNING
        settings = self._engine.settings.server
        if settings.identity == "one-person":
            return Caller()
        credentials = find_credentials(request)
        name = self._name(credentials, _end_user(body))
        if name in settings.owner_keys:
            return Caller()
        if not warning and any(map(_is_short_lived, credentials)):
            warning = SHORT_LIVED_WARNING
        return Caller(name=name, warning=warning)

    def _name(self, credentials: list[str], user: str) -> str:
        if not credentials and not user:
            return NOBODY
        what = json.dumps([credentials, user]).encode()
        return f"k-{hmac.digest(self.key, what, 'sha256').hex()[:_DIGEST_CHARS]}"


def find_credentials(request: Request) -> list[str]:
    """Return the credentials that a request carries for its provider, each once, sorted.

    All of them count, because it depends on the provider which one is used. Cookies count if there is nothing else:
    those that a server sets to balance its load change with every reply.
    """
    found = set(_header_credentials(request)) | set(_query_credentials(request))
    found.discard("")
    if not found:
        found = {value for value in request.headers.getlist("cookie") if value}
    return sorted(found)


def _header_credentials(request: Request) -> Iterator[str]:
    for name, value in request.headers.items():
        if not _is_credential_name(name):
            continue
        scheme, _, rest = value.strip().partition(" ")
        if scheme.lower() in _SCHEMES:
            yield rest.strip()
        else:
            yield value.strip()


def _query_credentials(request: Request) -> Iterator[str]:
    for name, value in parse_qsl(request.scope["query_string"].decode("latin-1")):
        if _is_credential_name(name):
            yield value


@lru_cache(MAX_NAMES)  # clients send the same few names with every request
def _is_credential_name(name: str) -> bool:
    words = re.split(r"[-_.]", name.lower())
    if name.lower().startswith(_OTHER_PREFIXES) or not _OTHER_WORDS.isdisjoint(words):
        return False
    letters = "".join(words)
    return letters.endswith(_CREDENTIAL_ENDS) or any(word in letters for word in _CREDENTIAL_WORDS)


def _end_user(body: Mapping[str, Any]) -> str:
    """Return the end user that a program with one key for all of its users names; empty if it names none."""
    for name in ("safety_identifier", "user"):
        value = body.get(name)
        if isinstance(value, str) and value:
            return value
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, Mapping) else None
    if not isinstance(user, str) or "session" in user:  # of Claude Code: it names a session
        return ""
    return user


def _is_short_lived(credential: str) -> bool:
    """Return whether a credential is one that a login replaces after some hours."""
    if credential.startswith(_SHORT_LIVED):
        return True
    token = _JWT.fullmatch(credential)
    if token is None:
        return False
    payload = token[1]
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return False
    return isinstance(claims, dict) and "exp" in claims
