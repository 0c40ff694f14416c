"""Embedding over HTTP: OpenAI, Gemini, Voyage, Mistral, Ollama, and OpenAI-compatible servers.

Text is sent only to a provider that the settings name.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit

import numpy as np

from holdfast.calls import Deadline, RetryPolicy, create_ssl_context, retry, start_thread
from holdfast.errors import EmbeddingError, MissingExtraError
from holdfast.redact import redact
from holdfast.search.embed.base import Floats, Purpose, Space, batches, clean, text_digest, unit
from holdfast.settings import Secret
from holdfast.text import head
from holdfast.tokens import count_text

__all__ = ["PROVIDERS", "Provider", "RemoteEmbedder"]

QUERY_SECONDS: Final = 5.0
PASSAGE_SECONDS: Final = 60.0
BATCH_SIZE: Final = 64
MAX_TEXT_TOKENS: Final = 2_000
"""Longer texts are cut: every provider accepts as much, and a vector of more text says less about it."""
MAX_RESPONSE_BYTES: Final = 1 << 26

_MAX_EXCERPT_CHARS: Final = 200
_MAX_EXCERPT_BYTES: Final = 1 << 16
_KEY_REFUSED: Final = frozenset({401, 403})
_TOO_MANY_REQUESTS: Final = 429
_SERVER_ERROR: Final = 500

_DIMENSIONS: Final = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
    "gemini-embedding-001": 3072,
    "gemini-embedding-2": 3072,
    "voyage-4-large": 1024,
    "voyage-4": 1024,
    "voyage-4-lite": 1024,
    "voyage-3.5": 1024,
    "voyage-3.5-lite": 1024,
    "voyage-3-large": 1024,
    "voyage-code-3": 1024,
    "mistral-embed": 1024,
    "nomic-embed-text": 768,
    "mxbai-embed-large": 1024,
    "bge-m3": 1024,
    "all-minilm": 384,
    "embeddinggemma": 768,
}
_PREFIXES: Final = {
    "gemini-embedding-2": ("task: search result | query: ", "title: none | text: "),
    "embeddinggemma": ("task: search result | query: ", "title: none | text: "),
    "nomic-embed-text": ("search_query: ", "search_document: "),
    "mxbai-embed-large": ("Represent this sentence for searching relevant passages: ", ""),
}
"""What a model expects before a query and before a passage, where the request has no field for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedRequest:
    """What is requested of a model. `dimension` is None for the model's own."""

    model: str
    texts: Sequence[str]
    kind: Purpose
    dimension: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """The API of a provider.

    Attributes:
        url: The default address; empty where there is none.
        model: The default model; empty where there is none.
        keys: The environment variables that may hold its key; empty where none is needed.
        max_texts: How many texts one request may hold.
        body: Returns the path and the JSON of a request.
        vectors: Returns the vectors of a response, in the order of the texts.
        shortens: Whether shorter vectors than the model's own can be requested.
        header: The header of the key, and what precedes the key in it.
    """

    url: str = ""
    model: str = ""
    keys: tuple[str, ...] = ()
    max_texts: int = 2048
    body: Callable[[EmbedRequest], tuple[str, dict[str, Any]]]
    vectors: Callable[[Any], list[list[float]]]
    shortens: bool = False
    header: tuple[str, str] = ("Authorization", "Bearer ")


def _openai_body(request: EmbedRequest) -> tuple[str, dict[str, Any]]:
    body = {"model": request.model, "input": list(request.texts), "encoding_format": "float"}
    return "/embeddings", body | ({"dimensions": request.dimension} if request.dimension else {})


def _mistral_body(request: EmbedRequest) -> tuple[str, dict[str, Any]]:
    return "/embeddings", {"model": request.model, "input": list(request.texts)}


def _voyage_body(request: EmbedRequest) -> tuple[str, dict[str, Any]]:
    role = "query" if request.kind == "query" else "document"
    body = {"model": request.model, "input": list(request.texts), "input_type": role}
    return "/embeddings", body | ({"output_dimension": request.dimension} if request.dimension else {})


def _gemini_body(request: EmbedRequest) -> tuple[str, dict[str, Any]]:
    extra: dict[str, Any] = {"outputDimensionality": request.dimension} if request.dimension else {}
    if request.model not in _PREFIXES:
        extra["taskType"] = "RETRIEVAL_QUERY" if request.kind == "query" else "RETRIEVAL_DOCUMENT"
    name = f"models/{request.model}"
    requests = [{"model": name, "content": {"parts": [{"text": text}]}, **extra} for text in request.texts]
    return f"/{quote(name)}:batchEmbedContents", {"requests": requests}


def _openai_vectors(response: Any) -> list[list[float]]:
    rows = sorted(enumerate(response["data"]), key=lambda row: row[1].get("index", row[0]))
    return [row["embedding"] for _, row in rows]


def _gemini_vectors(response: Any) -> list[list[float]]:
    return [row["values"] for row in response["embeddings"]]


PROVIDERS: Final = {
    "openai": Provider(
        url="https://api.openai.com/v1",
        model="text-embedding-3-small",
        keys=("OPENAI_API_KEY",),
        body=_openai_body,
        vectors=_openai_vectors,
        shortens=True,
    ),
    "gemini": Provider(
        url="https://generativelanguage.googleapis.com/v1beta",
        model="gemini-embedding-001",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        max_texts=100,
        body=_gemini_body,
        vectors=_gemini_vectors,
        shortens=True,
        header=("x-goog-api-key", ""),
    ),
    "voyage": Provider(
        url="https://api.voyageai.com/v1",
        model="voyage-4-large",
        keys=("VOYAGE_API_KEY",),
        max_texts=1000,
        body=_voyage_body,
        vectors=_openai_vectors,
        shortens=True,
    ),
    "mistral": Provider(
        url="https://api.mistral.ai/v1",
        model="mistral-embed",
        keys=("MISTRAL_API_KEY",),
        max_texts=256,
        body=_mistral_body,
        vectors=_openai_vectors,
    ),
    "ollama": Provider(
        url="http://localhost:11434/v1", model="nomic-embed-text", body=_openai_body, vectors=_openai_vectors
    ),
    "openai-compatible": Provider(body=_openai_body, vectors=_openai_vectors),
}
"""By name, in the order in which `auto` looks for their keys."""


class _UnavailableError(Exception):
    """An attempt failed in a way that another one may cure. The error for the user is in `error`."""

    def __init__(self, error: EmbeddingError, *, retry_after: float = 0.0) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry_after = retry_after


class RemoteEmbedder:
    """Embeds by requests to a provider. Threads may share it.

    Args:
        provider: One of `PROVIDERS`.
        model: The provider's model name; by default the provider's usual model.
        dimension: The length of the vectors; by default the model's own.
        key: The API key.
        base_url: The address; by default the provider's.
        batch_size: The number of texts in a request, at most.
        query_seconds: The time for a query with all of its retries.
        passage_seconds: The time for a batch of passages with all of its retries.
        policy: How often a request is tried, and the waits in between.

    Raises:
        EmbeddingError: A setting is missing or wrong.
        MissingExtraError: The HTTP client is not installed.
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
        self._prefixes = dict(zip(("query", "passage"), _PREFIXES.get(_family(self._model), ("", "")), strict=True))
        own_dimension = _DIMENSIONS.get(_family(self._model))
        self._requested_dimension = dimension if self._provider.shortens and dimension != own_dimension else None
        self._space = self._make_space(dimension or own_dimension)

    def _make_space(self, dimension: int | None) -> Space:
        if not self._model:
            raise self._error("no model: set embedding.model")
        if urlsplit(self._url).scheme not in {"http", "https"}:
            raise self._error("no address: set embedding.base_url, such as http://localhost:8080/v1")
        if dimension is None:
            raise self._error(f"the dimension of {self._model} is not known: set embedding.dimension")
        digest = text_digest(self._name, self._model, str(dimension), *self._prefixes.values())
        return Space(name=f"{self._name}/{self._model}", dimension=dimension, digest=digest)

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

    @property
    def space(self) -> Space:
        """Identified by provider, model and dimension, since the weights cannot be seen."""
        return self._space

    def __repr__(self) -> str:
        return f"RemoteEmbedder({self._name!r}, model={self._model!r})"

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:
        """Request the vectors of all texts that are not blank, in batches."""
        cleaned = [clean(text) for text in texts]
        places = [place for place, text in enumerate(cleaned) if text]
        inputs = [self._prefixes[kind] + _truncate(cleaned[place]) for place in places]
        rows = np.zeros((len(texts), self._space.dimension), np.float32)
        vectors = [self._embed_batch(batch, kind) for batch in batches(inputs, size=self._batch_size)]
        if vectors:
            rows[places] = np.concatenate(vectors)
        return unit(rows)

    def _embed_batch(self, texts: Sequence[str], kind: Purpose) -> Floats:
        request = EmbedRequest(model=self._model, texts=texts, kind=kind, dimension=self._requested_dimension)
        path, body = self._provider.body(request)
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
        """Send one request and return the body of the response.

        httpx has no time-out for a whole request, and none at all for name resolution. So the request runs on a
        thread, which is abandoned when the time is over.
        """
        import httpx2  # noqa: PLC0415 - an extra, and slow to import

        call = start_thread(lambda: self._send(url, content, deadline), name="holdfast-embed")
        try:
            response, body = call.result(timeout=deadline.left)
        except (TimeoutError, httpx2.TimeoutException):
            message = f"no answer within {deadline.seconds:g} s; check the network, or use a model on this machine"
            raise _UnavailableError(self._error(message)) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            reason = self._excerpt(str(error).encode() or type(error).__name__.encode())
            message = f"cannot be reached: {reason}; check the network and embedding.base_url"
            raise self._error(message) from None
        if response.is_success:
            return body
        status_error = self._status_error(response, body)
        if response.status_code == _TOO_MANY_REQUESTS or response.status_code >= _SERVER_ERROR:
            raise _UnavailableError(status_error, retry_after=_retry_after(response.headers.get("Retry-After", "")))
        raise status_error

    def _send(self, url: str, content: bytes, deadline: Deadline) -> tuple[Any, bytes]:
        import httpx2  # noqa: PLC0415 - as above

        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "holdfast"}
        # Redirects are not followed: the key is sent only to the address in the settings.
        with (
            httpx2.Client(timeout=deadline.left, verify=create_ssl_context()) as client,
            client.stream("POST", url, content=content, headers={**headers, **self._headers}) as response,
        ):
            body = bytearray()
            for part in response.iter_bytes():
                body += part
                if deadline.is_over or len(body) > MAX_RESPONSE_BYTES:
                    raise httpx2.ReadTimeout("the response does not end")
            return response, bytes(body)

    def _status_error(self, response: Any, body: bytes) -> EmbeddingError:
        status = response.status_code
        if status in _KEY_REFUSED:
            names = " or ".join((*self._provider.keys[:1], "embedding.api_key"))
            message = f"the key was refused (HTTP {status}); check {names}"
        elif response.is_redirect:
            location = head(response.headers.get("Location", ""), _MAX_EXCERPT_CHARS)
            message = f"the endpoint has moved (HTTP {status}) to {location}; set embedding.base_url"
        else:
            message = f"HTTP {status}: {self._excerpt(body)}"
        return EmbeddingError(message, provider=self._name, status=status)

    def _excerpt(self, body: bytes) -> str:
        """Return the beginning of a response, with the key and other secrets masked."""
        text = body[:_MAX_EXCERPT_BYTES].decode("utf-8", "replace")
        for value in self._headers.values():
            text = text.replace(value.removeprefix(self._provider.header[1]), "****")
        return head(" ".join(redact(text).split()), _MAX_EXCERPT_CHARS) or "nothing"

    def _read_vectors(self, response: Any, count: int) -> Floats:
        """Return the vectors of a response, if they are as many and as long as they must be."""
        try:
            vectors = self._provider.vectors(response)
            lengths = {len(vector) for vector in vectors}
            if len(vectors) != count:
                raise self._error(f"{len(vectors)} vectors for {count} texts")
            if lengths != {self._space.dimension}:
                actual = ", ".join(map(str, sorted(lengths)))
                raise self._error(
                    f"vectors of {actual} values instead of {self._space.dimension}; set embedding.dimension"
                )
            rows = np.array(vectors, np.float32)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise self._error("the response holds no vectors") from None
        if not np.isfinite(rows).all():
            raise self._error("the response holds vectors that are not made of numbers")
        return rows

    def _error(self, message: str) -> EmbeddingError:
        return EmbeddingError(message, provider=self._name)


def _family(model: str) -> str:
    """Return the model name without the tag for its size or version."""
    return model.partition(":")[0]


def _truncate(text: str) -> str:
    tokens = count_text(text)
    return text if tokens <= MAX_TEXT_TOKENS else text[: len(text) * MAX_TEXT_TOKENS // tokens]


def _retry_after(value: str) -> float:
    """Return the seconds in a `Retry-After` header; 0 for its other form, a date."""
    return float(value) if value.strip().isdecimal() else 0.0
