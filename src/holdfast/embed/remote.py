"""Embedding over HTTP: OpenAI, Gemini, Voyage, Mistral, Ollama, and OpenAI-compatible servers.

Text is sent only to a provider that the settings name.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Final
from urllib.parse import quote, urlsplit

import numpy as np

from holdfast.calls import Deadline, RetryPolicy, create_ssl_context, hide_keys, retry, start_thread
from holdfast.embed.base import Floats, Purpose, Space, batches, clean, make_digest, unit
from holdfast.errors import EmbeddingError, MissingExtraError
from holdfast.redaction import redact
from holdfast.settings import Secret
from holdfast.text import head
from holdfast.tokens import count_text

QUERY_SECONDS: Final = 5.0
PASSAGE_SECONDS: Final = 60.0
BATCH_SIZE: Final = 64
MAX_TEXT_TOKENS: Final = 2_000
"""Longer texts are cut: every provider accepts this length, and the vector of a longer text is less specific."""
MAX_RESPONSE_BYTES: Final = 1 << 26

_MAX_EXCERPT_CHARS: Final = 200
_MAX_EXCERPT_BYTES: Final = 1 << 16
_KEY_REFUSED: Final = frozenset({401, 403})
_TOO_MANY_REQUESTS: Final = 429
_SERVER_ERROR: Final = 500

_DATA: Final = json.loads(resources.files("holdfast.embed").joinpath("remote.json").read_text("utf-8"))
"""The providers, the dimensions of models, and what some expect before a query and before a passage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """The API of a provider."""

    url: str = ""
    model: str = ""
    keys: Sequence[str] = ()  # the environment variables that may hold its key; empty if none is needed
    max_texts: int = 2048
    fields: Mapping[str, str] = field(default_factory=dict)  # added to every request
    dimension_field: str = ""  # for shorter vectors than the model's own; empty if they cannot be requested
    kind_field: str = ""  # says what the texts are for; empty if there is none
    kinds: tuple[str, str] = ("", "")  # its values for a query and for passages
    header: tuple[str, str] = ("Authorization", "Bearer ")  # of the key, and what precedes the key in it


PROVIDERS: Final = {name: Provider(**fields) for name, fields in _DATA["providers"].items()}
"""By name, in the order in which `auto` looks for their keys."""


class _UnavailableError(Exception):
    """An attempt failed in a way that another one may cure. The error for the user is in `error`."""

    def __init__(self, error: EmbeddingError, *, retry_after: float = 0.0) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry_after = retry_after


class RemoteEmbedder:
    """Embeds by requests to one of `PROVIDERS`. Threads may share it.

    The model, the dimension and the address are by default the provider's. The seconds are for a query, or a batch of
    passages, with all of its retries.
    """

    def __init__(
        self,
        provider: str,
        *,
        model: str | None = None,
        dimension: int | None = None,
        key: Secret | None = None,
        base_url: str | None = None,
        batch_size: int = BATCH_SIZE,
        query_seconds: float = QUERY_SECONDS,
        passage_seconds: float = PASSAGE_SECONDS,
        policy: RetryPolicy | None = None,
    ) -> None:
        if importlib.util.find_spec("httpx2") is None:
            raise MissingExtraError(f"the embedding provider {provider}", extra="remote")
        self._name = provider
        self._provider = PROVIDERS[provider]
        self._model = model or self._provider.model
        self._url = (base_url or self._provider.url).rstrip("/")
        self._headers = self._make_headers(key)
        self._batch_size = min(batch_size, self._provider.max_texts)
        self._seconds = {"query": query_seconds, "passage": passage_seconds}
        self._policy = policy or RetryPolicy()
        family = self._model.partition(":")[0]  # without the tag for its size or version
        self._has_prefixes = family in _DATA["prefixes"]
        self._prefixes = dict(zip(("query", "passage"), _DATA["prefixes"].get(family, ("", "")), strict=True))
        own_dimension = _DATA["dimensions"].get(family)
        self._dimension = dimension if dimension != own_dimension else None
        dimension = dimension or own_dimension
        if not self._model:
            raise self._error("no model: set embedding.model")
        if urlsplit(self._url).scheme not in {"http", "https"}:
            raise self._error("no address: set embedding.base_url, such as http://localhost:8080/v1")
        if dimension is None:
            raise self._error(f"the dimension of {self._model} is not known: set embedding.dimension")
        digest = make_digest(self._name, self._model, str(dimension), *self._prefixes.values())
        self.space = Space(name=f"{self._name}/{self._model}", dimension=dimension, digest=digest)

    def _make_headers(self, key: Secret | None) -> dict[str, str]:
        if key is None:
            if self._provider.keys:
                raise self._error(f"no key: set {self._provider.keys[0]} or embedding.api_key")
            return {}
        value = key.reveal().strip()
        if not (value.isascii() and value.isprintable()):
            raise self._error("the key has characters that are not allowed in a key; copy it again")
        name, prefix = self._provider.header
        return {name: prefix + value}

    def __repr__(self) -> str:
        return f"RemoteEmbedder({self._name!r}, model={self._model!r})"

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:
        """Request the vectors of all texts that are not blank, in batches."""
        cleaned = [clean(text) for text in texts]
        places = [place for place, text in enumerate(cleaned) if text]
        inputs: list[str] = []
        for place in places:
            text, tokens = cleaned[place], max(MAX_TEXT_TOKENS, count_text(cleaned[place]))
            inputs.append(self._prefixes[kind] + text[: len(text) * MAX_TEXT_TOKENS // tokens])
        rows = np.zeros((len(texts), self.space.dimension), np.float32)
        vectors = [self._embed_batch(batch, kind) for batch in batches(inputs, size=self._batch_size)]
        if vectors:
            rows[places] = np.concatenate(vectors)
        return unit(rows)

    def _embed_batch(self, texts: Sequence[str], kind: Purpose) -> Floats:
        provider, path, name = self._provider, "/embeddings", f"models/{self._model}"
        fields: dict[str, Any] = dict(provider.fields)
        if provider.dimension_field and self._dimension:
            fields[provider.dimension_field] = self._dimension
        if provider.kind_field and not self._has_prefixes:
            fields[provider.kind_field] = provider.kinds[kind == "passage"]
        body: dict[str, Any] = {"model": self._model, "input": list(texts), **fields}
        if self._name == "gemini":
            path = f"/{quote(name)}:batchEmbedContents"
            body = {"requests": [{"model": name, "content": {"parts": [{"text": text}]}, **fields} for text in texts]}
        content = json.dumps(body, ensure_ascii=False).encode()
        deadline = Deadline.after(self._seconds[kind])
        try:
            response = retry(
                lambda: self._post(self._url + path, content, deadline),
                errors=(_UnavailableError,),
                policy=self._policy,
                deadline=deadline,
            )
        except _UnavailableError as error:
            raise error.error from None
        try:
            return self._read_vectors(json.loads(response), len(texts))
        except (ValueError, RecursionError):
            raise self._error(f"the response is not JSON: {self._excerpt(response)}") from None

    def _post(self, url: str, content: bytes, deadline: Deadline) -> bytes:
        """Send one request and return the body of the response."""
        import httpx2  # noqa: PLC0415 - an extra, and slow to import

        # httpx has no time-out for a whole request or for name resolution: a late thread is abandoned.
        call = start_thread(lambda: self._send(url, content, deadline), name="holdfast-embed")
        try:
            response, body = call.result(timeout=deadline.remaining)
        except (TimeoutError, httpx2.TimeoutException):
            message = (
                f"no answer within {deadline.seconds:g} s from {hide_keys(url)}; check the network, or use a model on"
                " this machine"
            )
            raise _UnavailableError(self._error(message)) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            reason = self._excerpt(str(error).encode() or type(error).__name__.encode())
            message = f"{hide_keys(url)} cannot be reached: {reason}; check the network and embedding.base_url"
            raise self._error(message) from None
        if response.is_success:
            return body
        status = response.status_code
        if status in _KEY_REFUSED:
            names = " or ".join((*self._provider.keys[:1], "embedding.api_key"))
            message = f"the key was refused (HTTP {status}); check {names}"
        elif response.is_redirect:
            location = head(response.headers.get("Location", ""), _MAX_EXCERPT_CHARS)
            message = f"the endpoint has moved (HTTP {status}) to {location}; set embedding.base_url"
        else:
            message = f"HTTP {status}: {self._excerpt(body)}"
        status_error = EmbeddingError(message, provider=self._name, status=status)
        if status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR:
            wait = response.headers.get("Retry-After", "").strip()
            raise _UnavailableError(status_error, retry_after=float(wait) if wait.isdecimal() else 0.0)
        raise status_error

    def _send(self, url: str, content: bytes, deadline: Deadline) -> tuple[Any, bytes]:
        import httpx2  # noqa: PLC0415 - as above

        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "holdfast"}
        # Redirects are not followed: the key is sent only to the address in the settings.
        with (
            httpx2.Client(timeout=deadline.remaining, verify=create_ssl_context()) as client,
            client.stream("POST", url, content=content, headers={**headers, **self._headers}) as response,
        ):
            body = bytearray()
            for part in response.iter_bytes():
                body += part
                if deadline.is_over or len(body) > MAX_RESPONSE_BYTES:
                    raise httpx2.ReadTimeout("the response does not end")
            return response, bytes(body)

    def _excerpt(self, body: bytes) -> str:
        """Return the beginning of a response, with the key and other secrets masked."""
        text = body[:_MAX_EXCERPT_BYTES].decode("utf-8", "replace")
        for value in self._headers.values():
            text = text.replace(value.removeprefix(self._provider.header[1]), "****")
        return head(" ".join(redact(text).split()), _MAX_EXCERPT_CHARS) or "nothing"

    def _read_vectors(self, response: Any, count: int) -> Floats:
        """Return the vectors of a response, if they are as many and as long as they must be."""
        try:
            if self._name == "gemini":
                vectors = [row["values"] for row in response["embeddings"]]
            else:
                ordered = sorted(enumerate(response["data"]), key=lambda row: row[1].get("index", row[0]))
                vectors = [row["embedding"] for _, row in ordered]
            lengths = {len(vector) for vector in vectors}
            if len(vectors) != count:
                raise self._error(f"{len(vectors)} vectors for {count} texts")
            if lengths != {self.space.dimension}:
                actual = ", ".join(map(str, sorted(lengths)))
                raise self._error(
                    f"vectors of {actual} values instead of {self.space.dimension}; set embedding.dimension"
                )
            rows = np.array(vectors, np.float32)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise self._error("the response holds no vectors") from None
        if not np.isfinite(rows).all():
            raise self._error("the response holds vectors that are not made of numbers")
        return rows

    def _error(self, message: str) -> EmbeddingError:
        return EmbeddingError(message, provider=self._name)
