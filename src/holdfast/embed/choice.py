"""Choose the embedder that the settings ask for, and return why the others are not used."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from holdfast.embed.base import CachedEmbedder, Embedder
from holdfast.embed.download import HUB_MODELS, models_folder
from holdfast.embed.hashed import DIMENSION, HashEmbedder
from holdfast.embed.static import (
    ENGLISH,
    WORDLLAMA,
    JointEmbedder,
    StaticEmbedder,
    find_table,
    find_wordllama,
    is_static_model,
)
from holdfast.embed.wheels import WHEEL_MODELS
from holdfast.errors import EmbeddingError, MissingExtraError
from holdfast.settings import Embedding, Secret

Environ: TypeAlias = Mapping[str, str]
Opener: TypeAlias = Callable[[], Embedder]

_WORDS_ALONE: Final = "search uses words alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The chosen embedder, if any, and a sentence for each that was considered.

    `interim` is the static model that serves while vectors of a slow sentence model are missing, or the model itself.
    """

    embedder: Embedder | None
    reasons: tuple[str, ...]
    interim: Embedder | None = None


def choose(settings: Embedding, *, allow_remote: bool = False, environ: Environ | None = None) -> Choice:
    """Open the embedder that the settings ask for; with `auto` the best one available.

    A missing part is a reason, not an error: search by words still works. `auto` uses the endpoint at
    `embedding.base_url` if one is set, else a model on this machine, else, with `allow_remote`, a provider whose key
    is in the environment. It never uses `hash`, and sends no text that was not allowed.
    """
    variables = os.environ if environ is None else environ
    if settings.provider == "none":
        return Choice(embedder=None, reasons=(f'embedding.provider is "none": {_WORDS_ALONE}',))
    reasons: list[str] = []
    for candidate in _Candidates(settings, variables, allow_remote).list():
        if isinstance(candidate, str):
            reasons.append(candidate)
            continue
        try:
            embedder = candidate()
        except (EmbeddingError, MissingExtraError) as error:
            reasons.append(str(error))
            continue
        space = embedder.space
        reasons.append(f"{space.name} is used: {space.dimension} dimensions")
        if settings.dimension not in {None, space.dimension}:
            reasons.append(f"embedding.dimension = {settings.dimension} is ignored: the model has {space.dimension}")
        interim = _open_interim(settings, embedder)
        if interim is not None:
            reasons.append(f"{interim.space.name} serves while passages have no vectors of {space.name}")
        chosen = CachedEmbedder(embedder, size=settings.cache_entries)
        return Choice(embedder=chosen, reasons=tuple(reasons), interim=interim)
    interim = _open_interim(settings, None)
    if interim is None:
        reasons.append(f"no embedder: {_WORDS_ALONE}")
    else:
        reasons.append(f"{interim.space.name} serves in its place")
    return Choice(embedder=None, reasons=tuple(reasons), interim=interim)


def _open_interim(settings: Embedding, chosen: Embedder | None) -> Embedder | None:
    """Open the static model that serves until a sentence model has embedded the archive; None if there is none."""
    if settings.model is None and settings.provider != "onnx":  # a sentence model is used only if it is named
        return None
    from holdfast.embed.onnx import OnnxEmbedder  # noqa: PLC0415 - most processes use another

    is_sentence_model = isinstance(chosen, OnnxEmbedder)
    if chosen is None:
        is_sentence_model = settings.provider == "onnx" or settings.model in WHEEL_MODELS
    if not is_sentence_model:
        return None
    for candidate in _Candidates.list_installed():
        if isinstance(candidate, str):
            continue
        with suppress(EmbeddingError, MissingExtraError):
            return CachedEmbedder(candidate(), size=settings.cache_entries)
    return None


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The embedders that the settings and the environment allow."""

    settings: Embedding
    environ: Environ
    allow_remote: bool

    def list(self) -> Iterator[Opener | str]:
        """Yield what may be used, best first; a string is the reason that something may not."""
        settings, model = self.settings, self.settings.model
        match settings.provider:
            case "hash":
                yield lambda: HashEmbedder(dimension=settings.dimension or DIMENSION)
            case "onnx":
                from holdfast.embed.onnx import OnnxEmbedder  # noqa: PLC0415 - most processes use another

                yield lambda: OnnxEmbedder(_find_folder(model, "onnx"))
            case "auto" if settings.base_url is not None:
                # Keys from the environment are never sent to an address from the settings.
                yield partial(_open_remote, "openai-compatible", settings, settings.api_key)
            case "static" | "local" | "auto":
                yield from [partial(self.open_local, model)] if model else self.list_installed()
                if settings.provider == "auto":
                    yield from self.list_remote()
            case provider:
                yield partial(_open_remote, provider, settings, settings.api_key or self.find_key(provider))

    def list_remote(self) -> Iterator[Opener | str]:
        from holdfast.embed.remote import PROVIDERS  # noqa: PLC0415 - only if there is no local model

        for name in PROVIDERS:
            key = self.find_key(name)
            if key and self.allow_remote:
                yield partial(_open_remote, name, self.settings, key)
            elif key:
                yield f'{name}: a key is set, but auto sends no text out; set embedding.provider = "{name}" to use it'

    def find_key(self, provider: str) -> Secret | None:
        from holdfast.embed.remote import PROVIDERS  # noqa: PLC0415 - as above

        return next((Secret(self.environ[name]) for name in PROVIDERS[provider].keys if self.environ.get(name)), None)

    @staticmethod
    def list_installed() -> Iterator[Opener | str]:
        """Yield the static models that are here, best first."""
        if find_wordllama():  # the two find more together than alone
            yield lambda: JointEmbedder([StaticEmbedder.from_wordllama(), StaticEmbedder.english()])
        yield StaticEmbedder.english

    def open_local(self, model: str) -> Embedder:
        """Open the model of this name or in this folder, of either kind unless the provider is `static`."""
        from holdfast.embed.onnx import OnnxEmbedder, find_onnx_model  # noqa: PLC0415 - as above

        is_downloaded = find_model(model) is not None
        if model == ENGLISH:
            return StaticEmbedder.english()
        if model == WORDLLAMA and (find_wordllama() or not is_downloaded):
            return StaticEmbedder.from_wordllama()
        if model in {*HUB_MODELS, *WHEEL_MODELS} and not is_downloaded:
            raise EmbeddingError(f"{model} is not downloaded: run `holdfast models get {model}`", provider="local")
        folder = _find_folder(model, "static" if self.settings.provider == "static" else "local")
        is_onnx = self.settings.provider != "static" and find_onnx_model(folder) and not is_static_model(folder)
        return OnnxEmbedder(folder) if is_onnx else StaticEmbedder.from_folder(folder)


def find_model(name: str) -> Path | None:
    """Return the folder of a downloaded model; None if files of it are missing."""
    from holdfast.embed.onnx import find_onnx_model  # noqa: PLC0415 - as above

    folder = models_folder() / name
    return folder if find_table(folder) or find_onnx_model(folder) else None


def _find_folder(model: str | None, provider: str) -> Path:
    """Return the folder of a model: of a downloaded one by its name, or a path, which a bare name is not."""
    if model is None:
        raise EmbeddingError("no model: set embedding.model to its folder", provider=provider)
    path = Path(model).expanduser()
    places = (models_folder() / model, *([path] if len(path.parts) > 1 or model.startswith(".") else []))
    for place in places:
        if place.is_dir():
            return place
    raise EmbeddingError(f"no model at {' or '.join(map(str, places))}", provider=provider)


def _open_remote(name: str, settings: Embedding, key: Secret | None) -> Embedder:
    from holdfast.embed.remote import QUERY_SECONDS, RemoteEmbedder  # noqa: PLC0415 - as above

    return RemoteEmbedder(
        name,
        model=settings.model,
        dimension=settings.dimension,
        key=key,
        base_url=settings.base_url,
        batch_size=settings.batch_size,
        query_seconds=min(QUERY_SECONDS, settings.timeout_seconds),
        passage_seconds=settings.timeout_seconds,
    )
