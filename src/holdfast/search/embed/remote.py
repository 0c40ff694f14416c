"""Embedding over HTTP: OpenAI, Gemini, Voyage, Mistral, Ollama, and whatever speaks as OpenAI does.

Text leaves this machine only for a provider that the settings name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit

import numpy as np

from holdfast.errors import EmbeddingError
from holdfast.search.embed.base import Floats, Purpose, Space, batches, clean, text_digest, unit
from holdfast.search.embed.http import Patience, Request, post
from holdfast.settings import Secret
from holdfast.tokens import count_text

__all__ = ["PROVIDERS", "Provider", "RemoteEmbedder"]

QUERY_SECONDS: Final = 5.0
PASSAGE_SECONDS: Final = 60.0
BATCH_SIZE: Final = 64
LONGEST_TOKENS: Final = 2_000
"""What is longer is cut: every provider takes as much, and a vector of more says less."""

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
"""What models want before a question and before a passage, where that is not said in a field of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What is asked of a model. `dimension` is None where its own is wanted."""

    model: str
    texts: Sequence[str]
    kind: Purpose
    dimension: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """How an endpoint is spoken to.

    Attributes:
        url: Its usual address; empty where there is none.
        model: Its usual model; empty where there is none.
        keys: The environment variables that may hold its key; empty where none is needed.
        most: How many texts one request may hold.
        body: Path and JSON of a request.
        vectors: The vectors in an answer, in the order of the texts.
        shortens: Whether shorter vectors than the model's own can be asked for.
        header: The header of the key, and what stands before it.
    """

    url: str = ""
    model: str = ""
    keys: tuple[str, ...] = ()
    most: int = 2048
    body: Callable[[Ask], tuple[str, dict[str, Any]]]
    vectors: Callable[[Any], list[list[float]]]
    shortens: bool = False
    header: tuple[str, str] = ("Authorization", "Bearer ")


def _openai_body(ask: Ask) -> tuple[str, dict[str, Any]]:
    body = {"model": ask.model, "input": list(ask.texts), "encoding_format": "float"}
    return "/embeddings", body | ({"dimensions": ask.dimension} if ask.dimension else {})


def _mistral_body(ask: Ask) -> tuple[str, dict[str, Any]]:
    return "/embeddings", {"model": ask.model, "input": list(ask.texts)}


def _voyage_body(ask: Ask) -> tuple[str, dict[str, Any]]:
    role = "query" if ask.kind == "query" else "document"
    body = {"model": ask.model, "input": list(ask.texts), "input_type": role}
    return "/embeddings", body | ({"output_dimension": ask.dimension} if ask.dimension else {})


def _gemini_body(ask: Ask) -> tuple[str, dict[str, Any]]:
    extra: dict[str, Any] = {"outputDimensionality": ask.dimension} if ask.dimension else {}
    if ask.model not in _PREFIXES:
        extra["taskType"] = "RETRIEVAL_QUERY" if ask.kind == "query" else "RETRIEVAL_DOCUMENT"
    name = f"models/{ask.model}"
    requests = [{"model": name, "content": {"parts": [{"text": text}]}, **extra} for text in ask.texts]
    return f"/{quote(name)}:batchEmbedContents", {"requests": requests}


def _openai_vectors(answer: Any) -> list[list[float]]:
    rows = sorted(enumerate(answer["data"]), key=lambda row: row[1].get("index", row[0]))
    return [row["embedding"] for _, row in rows]


def _gemini_vectors(answer: Any) -> list[list[float]]:
    return [row["values"] for row in answer["embeddings"]]


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
        most=100,
        body=_gemini_body,
        vectors=_gemini_vectors,
        shortens=True,
        header=("x-goog-api-key", ""),
    ),
    "voyage": Provider(
        url="https://api.voyageai.com/v1",
        model="voyage-4-large",
        keys=("VOYAGE_API_KEY",),
        most=1000,
        body=_voyage_body,
        vectors=_openai_vectors,
        shortens=True,
    ),
    "mistral": Provider(
        url="https://api.mistral.ai/v1",
        model="mistral-embed",
        keys=("MISTRAL_API_KEY",),
        most=256,
        body=_mistral_body,
        vectors=_openai_vectors,
    ),
    "ollama": Provider(
        url="http://localhost:11434/v1", model="nomic-embed-text", body=_openai_body, vectors=_openai_vectors
    ),
    "openai-compatible": Provider(body=_openai_body, vectors=_openai_vectors),
}
"""In the order in which `auto` looks for their keys."""


class RemoteEmbedder:
    """Embeds by asking a provider. Threads may share it."""

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
        patience: Patience | None = None,
    ) -> None:
        """The seconds are those of one request with all of its retries."""
        self._name = provider
        self._provider = PROVIDERS[provider]
        self._model = model or self._provider.model
        self._url = (base_url or self._provider.url).rstrip("/")
        self._headers = self._authorised(key)
        self._size = min(batch_size, self._provider.most)
        self._seconds = {"query": query_seconds, "passage": passage_seconds}
        self._patience = patience or Patience()
        self._prefixes = dict(zip(("query", "passage"), _PREFIXES.get(_family(self._model), ("", "")), strict=True))
        own = _DIMENSIONS.get(_family(self._model))
        self._asked = dimension if self._provider.shortens and dimension != own else None
        self._space = self._identity(dimension or own)

    def _identity(self, dimension: int | None) -> Space:
        if not self._model:
            raise self._error("which model? Set embedding.model")
        if urlsplit(self._url).scheme not in {"http", "https"}:
            raise self._error("which address? Set embedding.base_url, such as http://localhost:8080/v1")
        if dimension is None:
            raise self._error(f"how long are the vectors of {self._model}? Set embedding.dimension")
        digest = text_digest(self._name, self._model, str(dimension), *self._prefixes.values())
        return Space(name=f"{self._name}/{self._model}", dimension=dimension, digest=digest)

    def _authorised(self, key: Secret | None) -> dict[str, str]:
        if key is None:
            if self._provider.keys:
                raise self._error(f"no key: set {self._provider.keys[0]} or embedding.api_key")
            return {}
        value = key.reveal().strip()
        if not (value.isascii() and value.isprintable()):
            raise self._error("the key holds characters that no key has; copy it again")
        name, before = self._provider.header
        return {name: before + value}

    @property
    def space(self) -> Space:
        """Told by provider, model and dimension: the weights are not ours to see."""
        return self._space

    def __repr__(self) -> str:
        return f"RemoteEmbedder({self._name!r}, model={self._model!r})"

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:
        """Ask for the vectors of all texts that say something, as many at once as a request may hold."""
        said = [clean(text) for text in texts]
        places = [place for place, text in enumerate(said) if text]
        given = [self._prefixes[kind] + _clipped(said[place]) for place in places]
        rows = np.zeros((len(texts), self._space.dimension), np.float32)
        vectors = [self._ask(batch, kind) for batch in batches(given, size=self._size)]
        if vectors:
            rows[places] = np.concatenate(vectors)
        return unit(rows)

    def _ask(self, texts: Sequence[str], kind: Purpose) -> Floats:
        ask = Ask(model=self._model, texts=texts, kind=kind, dimension=self._asked)
        path, body = self._provider.body(ask)
        key = " or ".join((*self._provider.keys[:1], "embedding.api_key"))
        request = Request(provider=self._name, url=self._url + path, headers=self._headers, body=body, key=key)
        answer = post(request, seconds=self._seconds[kind], patience=self._patience)
        return self._checked(answer, len(texts))

    def _checked(self, answer: Any, wanted: int) -> Floats:
        """The vectors of an answer, if they are as many and as long as they must be."""
        try:
            vectors = self._provider.vectors(answer)
            lengths = {len(vector) for vector in vectors}
            if len(vectors) != wanted:
                raise self._error(f"{len(vectors)} vectors for {wanted} texts")
            if lengths != {self._space.dimension}:
                found = ", ".join(map(str, sorted(lengths)))
                raise self._error(
                    f"vectors of {found} values instead of {self._space.dimension}; set embedding.dimension"
                )
            rows = np.array(vectors, np.float32)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise self._error("the answer holds no vectors") from None
        if not np.isfinite(rows).all():
            raise self._error("the answer holds vectors that are not made of numbers")
        return rows

    def _error(self, message: str) -> EmbeddingError:
        return EmbeddingError(message, provider=self._name)


def _family(model: str) -> str:
    """The model without the tag that says which size or version of it."""
    return model.partition(":")[0]


def _clipped(text: str) -> str:
    tokens = count_text(text)
    return text if tokens <= LONGEST_TOKENS else text[: len(text) * LONGEST_TOKENS // tokens]
