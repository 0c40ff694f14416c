"""What embeds notes: the provider that the settings name, the one to fall back on, or words alone, said out loud."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from holdfast.errors import EmbeddingError
from holdfast.search.embed import Choice, Embedder, Purpose, RemoteEmbedder, choose
from holdfast.search.embed.base import Floats, behind_cache
from holdfast.search.embed.static import vector_weight
from holdfast.settings import Embedding, Settings

__all__ = ["Fallback", "Vectors", "wanted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """That another provider than the wanted one is in use, and why."""

    wanted: str
    reason: str


def wanted(settings: Settings) -> Embedding:
    """How notes are to be embedded; what `memory_search` leaves open is as for the archive."""
    notes, usual = settings.memory_search, settings.embedding
    provider = usual.provider if notes.provider == "auto" else notes.provider
    base = usual if provider == usual.provider else _another(usual)
    given = {
        "model": notes.local.model_path or notes.model,
        "dimension": notes.output_dimensionality,
        "base_url": notes.remote.base_url,
        "api_key": notes.remote.api_key,
    }
    return replace(base, provider=provider, **{name: value for name, value in given.items() if value is not None})


def _another(usual: Embedding) -> Embedding:
    """The same habits with another provider: neither model nor key of the usual one fit it."""
    return replace(usual, model=None, dimension=None, base_url=None, api_key=None)


def _spare(settings: Settings) -> Embedding:
    return replace(_another(settings.embedding), provider=settings.memory_search.fallback)


@dataclass(slots=True)
class Vectors:
    """The embedder in use. It is opened when it is first needed, and left for the next best when it fails."""

    settings: Settings
    choose: Callable[[Embedding], Choice] = field(default=lambda asked: choose(asked, allow_remote=asked.allow_remote))
    fallback: Fallback | None = None
    _choices: list[Embedding] = field(default_factory=list)
    _embedder: Embedder | None = None
    _provider: str = ""
    _opened: bool = False

    def reset(self) -> None:
        """Try the wanted provider again."""
        self._opened, self.fallback = False, None

    @property
    def provider(self) -> str:
        """Who embeds; `none` where search goes by words."""
        inner = behind_cache(self.embedder)
        if inner is None:
            return "none"
        remote = isinstance(inner, RemoteEmbedder)
        automatic = inner.space.name.partition("/")[0] if remote else "local"
        return automatic if self._provider == "auto" else self._provider

    @property
    def embedder(self) -> Embedder | None:
        """What embeds notes now; None where search goes by words."""
        if not self._opened:
            self._opened = True
            self._choices = [wanted(self.settings), _spare(self.settings)]
            self._next("")
        return self._embedder

    def _next(self, failed: str) -> None:
        """Take the next provider that can be had."""
        self._embedder = None
        while self._embedder is None and self._choices:
            asked = self._choices.pop(0)
            if asked.provider == "none":
                continue
            choice = self.choose(asked)
            self._embedder, self._provider = choice.embedder, asked.provider
            if choice.embedder is None:
                failed = failed or "; ".join(choice.reasons)
        if failed and self.fallback is None:
            self.fallback = Fallback(wanted=wanted(self.settings).provider, reason=failed)

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> tuple[Embedder, Floats] | None:
        """Vectors, and the embedder that made them; None where nobody can make any."""
        while (embedder := self.embedder) is not None:
            try:
                return embedder, embedder.embed(texts, kind=kind)
            except EmbeddingError as error:
                self._next(str(error))
        return None

    def trust(self, query: str) -> float:
        """How far the vector of a question counts, 0 to 1."""
        return vector_weight(self.embedder, query)
