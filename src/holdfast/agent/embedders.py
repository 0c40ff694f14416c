"""The embedders of notes and of long-term memories, whose settings may differ from those of the archive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from holdfast.agent.note_files import Fallback
from holdfast.errors import EmbeddingError
from holdfast.search.embed import Choice, Embedder, RemoteEmbedder, choose
from holdfast.search.embed.base import behind_cache
from holdfast.settings import Embedding, Settings

__all__ = ["Embedders", "derive"]

T = TypeVar("T")


def derive(archive: Embedding, provider: str, **own: object) -> Embedding:
    """Return the settings of an embedder; what `own` does not set is as for the archive.

    Another provider than that of the archive does not get its model, key or address.
    """
    unset = {} if provider == archive.provider else dict.fromkeys(("model", "dimension", "base_url", "api_key"))
    given = {name: value for name, value in own.items() if value is not None}
    return msgspec.structs.replace(archive, **{**unset, **given, "provider": provider})


@dataclass(slots=True)
class Embedders:
    """The embedder of notes: the configured one, the fallback if it fails, else none. Opened when first needed."""

    settings: Settings
    choose: Callable[[Embedding], Choice] = field(default=lambda given: choose(given, allow_remote=given.allow_remote))
    fallback: Fallback | None = None
    _choices: list[Embedding] | None = None
    _embedder: Embedder | None = None
    _provider: str = ""

    def reset(self) -> None:
        """Try the configured provider again."""
        self._choices, self.fallback = None, None

    @property
    def provider(self) -> str:
        """The provider in use; `none` if only words are compared."""
        inner = behind_cache(self.current)
        if inner is None:
            return "none"
        automatic = inner.space.name.partition("/")[0] if isinstance(inner, RemoteEmbedder) else "local"
        return automatic if self._provider == "auto" else self._provider

    @property
    def current(self) -> Embedder | None:
        """The embedder in use; None if only words are compared."""
        if self._choices is None:
            notes, archive = self.settings.memory_search, self.settings.embedding
            wanted = derive(
                archive,
                archive.provider if notes.provider == "auto" else notes.provider,
                model=notes.local.model_path or notes.model,
                dimension=notes.output_dimensionality,
                base_url=notes.remote.base_url,
                api_key=notes.remote.api_key,
            )
            spare = derive(msgspec.structs.replace(archive, provider=""), notes.fallback)
            self._choices = [wanted, spare]
            self._open_next(wanted.provider)
        return self._embedder

    def _open_next(self, wanted: str, failure: str = "") -> None:
        """Open the next provider that is available."""
        self._embedder = None
        while self._embedder is None and self._choices:
            given = self._choices.pop(0)
            if given.provider == "none":
                continue
            choice = self.choose(given)
            self._embedder, self._provider = choice.embedder, given.provider
            if choice.embedder is None:
                failure = failure or "; ".join(choice.reasons)
        if failure and self.fallback is None:
            self.fallback = Fallback(wanted=wanted, reason=failure)

    def call(self, use: Callable[[Embedder], T]) -> T | None:
        """Use the embedder; one that fails is replaced by the next. None if there is none."""
        while (embedder := self.current) is not None:
            try:
                return use(embedder)
            except EmbeddingError as error:
                self._open_next(self._provider, str(error))
        return None
