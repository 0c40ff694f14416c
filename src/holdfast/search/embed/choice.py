"""Which embedder is taken, and why the others were not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from holdfast.errors import EmbeddingError, MissingExtraError
from holdfast.search.embed.base import CachedEmbedder, Embedder
from holdfast.search.embed.download import models_folder
from holdfast.search.embed.hashed import DIMENSION, HashEmbedder
from holdfast.search.embed.joint import JointEmbedder
from holdfast.search.embed.static import SHIPPED, Shipped, StaticEmbedder, has_static_weights
from holdfast.settings import Embedding, Secret

__all__ = ["Choice", "choose"]

Environ: TypeAlias = Mapping[str, str]
Make: TypeAlias = Callable[[], Embedder]

_SHIPPED_NAMES: Final = frozenset(shipped.name for shipped in SHIPPED)
TOGETHER: Final = ("wordllama-l2-supercat-256", "potion-base-8M")
_WORDS_ALONE: Final = "search goes by words alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The embedder that is taken, if any, and a sentence for each that was looked at."""

    embedder: Embedder | None
    reasons: tuple[str, ...]


def choose(settings: Embedding, *, allow_remote: bool = False, environ: Environ | None = None) -> Choice:
    """The embedder that the settings ask for; with `auto` the best that is there.

    What is missing is a reason, never an error: search by words goes on. `auto` takes the endpoint at
    `embedding.base_url` where one is set, else a model on this machine, else, with `allow_remote`, a provider
    whose key is in the environment. It never takes `hash`, and sends no text anywhere that was not allowed.
    """
    known = os.environ if environ is None else environ
    if settings.provider == "none":
        return Choice(embedder=None, reasons=(f'embedding.provider is "none": {_WORDS_ALONE}',))
    reasons: list[str] = []
    for make in _candidates(settings, known, allow_remote=allow_remote):
        if isinstance(make, str):
            reasons.append(make)
            continue
        try:
            embedder = make()
        except (EmbeddingError, MissingExtraError) as error:
            reasons.append(str(error))
            continue
        reasons += _taken(embedder, settings)
        return Choice(embedder=CachedEmbedder(embedder, size=settings.cache_entries), reasons=tuple(reasons))
    return Choice(embedder=None, reasons=(*reasons, f"no embedder: {_WORDS_ALONE}"))


def _taken(embedder: Embedder, settings: Embedding) -> Iterator[str]:
    space = embedder.space
    yield f"{space.name} is taken: {space.dimension} dimensions"
    if settings.dimension not in {None, space.dimension}:
        yield f"embedding.dimension = {settings.dimension} is not heeded: the model has {space.dimension}"


def _candidates(settings: Embedding, environ: Environ, *, allow_remote: bool) -> Iterator[Make | str]:
    """What may be taken, best first; a sentence stands for what may not."""
    match settings.provider:
        case "hash":
            yield lambda: HashEmbedder(dimension=settings.dimension or DIMENSION)
        case "static":
            yield from _static(settings.model)
        case "onnx":
            yield lambda: _onnx(_folder(settings.model, "onnx"))
        case "local":
            yield from _local(settings.model)
        case "auto":
            yield from _automatic(settings, environ, allow_remote=allow_remote)
        case provider:
            yield partial(_remote, provider, settings, settings.api_key or _key(provider, environ))


def _automatic(settings: Embedding, environ: Environ, *, allow_remote: bool) -> Iterator[Make | str]:
    if settings.base_url is not None:
        # An address that was set is an answer of its own: keys from elsewhere are never sent to it.
        yield partial(_remote, "openai-compatible", settings, settings.api_key)
        return
    yield from _local(settings.model)
    from holdfast.search.embed.remote import PROVIDERS  # noqa: PLC0415 - only where there is no local model

    for name in PROVIDERS:
        key = _key(name, environ)
        if key and allow_remote:
            yield partial(_remote, name, settings, key)
        elif key:
            yield f'{name}: there is a key, but auto sends no text out; embedding.provider = "{name}" does'


def _local(model: str | None) -> Iterator[Make | str]:
    """A model on this machine, of either kind."""
    if model is None or model in _SHIPPED_NAMES:
        yield from _static(model)
    else:
        yield partial(_from_folder, model)


def _from_folder(model: str) -> Embedder:
    from holdfast.search.embed.onnx import has_onnx_model  # noqa: PLC0415 - most processes use another

    folder = _folder(model, "local")
    is_onnx = has_onnx_model(folder) and not has_static_weights(folder)
    return _onnx(folder) if is_onnx else StaticEmbedder.from_folder(folder)


def _onnx(folder: Path) -> Embedder:
    from holdfast.search.embed.onnx import OnnxEmbedder  # noqa: PLC0415 - as above

    return OnnxEmbedder(folder)


def _static(model: str | None) -> Iterator[Make | str]:
    """The static model in this folder or of this name; without either, those that installed packages carry."""
    known = [shipped for shipped in SHIPPED if model in {None, shipped.name}]
    installed = [shipped for shipped in known if shipped.files()]
    if model is None and len(_together()) == len(TOGETHER):
        yield lambda: JointEmbedder([make() for make in _together()])
    yield from (partial(StaticEmbedder.from_package, shipped) for shipped in installed)
    if not installed:
        yield _not_installed(model, known)


def _not_installed(model: str | None, known: Sequence[Shipped]) -> Make | str:
    """The static model in a folder; where that is not there either, what says how to get it."""
    if model is None:
        return str(MissingExtraError("static vectors", extra="local"))
    if known and not (models_folder() / model).is_dir():
        return partial(StaticEmbedder.from_package, known[0])
    return lambda: StaticEmbedder.from_folder(_folder(model, "static"))


def _together() -> list[Make]:
    """The models that find more together than alone, as far as they are there: installed, or fetched."""
    found: list[Make] = []
    for name in TOGETHER:
        shipped = next((each for each in SHIPPED if each.name == name and each.files()), None)
        if shipped is not None:
            found.append(partial(StaticEmbedder.from_package, shipped))
        elif (models_folder() / name).is_dir():
            found.append(partial(StaticEmbedder.from_folder, models_folder() / name))
    return found


def _folder(model: str | None, provider: str) -> Path:
    """The folder of a model: the name of one that was fetched, or a path.

    A bare name is no path: a folder of that name in the working directory may be somebody else's.
    """
    if model is None:
        raise EmbeddingError("which model? Set embedding.model to its folder", provider=provider)
    path = Path(model).expanduser()
    places = (models_folder() / model, *([path] if len(path.parts) > 1 or model.startswith(".") else []))
    for place in places:
        if place.is_dir():
            return place
    raise EmbeddingError(f"no model at {' or '.join(map(str, places))}", provider=provider)


def _key(provider: str, environ: Environ) -> Secret | None:
    from holdfast.search.embed.remote import PROVIDERS  # noqa: PLC0415 - as above

    return next((Secret(environ[name]) for name in PROVIDERS[provider].keys if environ.get(name)), None)


def _remote(name: str, settings: Embedding, key: Secret | None) -> Embedder:
    from holdfast.search.embed.remote import QUERY_SECONDS, RemoteEmbedder  # noqa: PLC0415 - as above

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
