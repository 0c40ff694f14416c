"""Embedders: text as vectors.

    choice = choose(settings.embedding)
    if choice.embedder:
        vectors = choice.embedder.embed(["where do we deploy?"], kind="query")

`docs/embeddings.md` describes each provider and how to install it. Names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from holdfast.search.embed.base import CachedEmbedder, Embedder, Purpose, Space
    from holdfast.search.embed.choice import Choice, choose
    from holdfast.search.embed.download import HUB_MODELS, models_folder
    from holdfast.search.embed.hashed import HashEmbedder
    from holdfast.search.embed.onnx import OnnxEmbedder
    from holdfast.search.embed.remote import RemoteEmbedder
    from holdfast.search.embed.static import JointEmbedder, StaticEmbedder

__all__ = [
    "HUB_MODELS",
    "CachedEmbedder",
    "Choice",
    "Embedder",
    "HashEmbedder",
    "JointEmbedder",
    "OnnxEmbedder",
    "Purpose",
    "RemoteEmbedder",
    "Space",
    "StaticEmbedder",
    "choose",
    "models_folder",
]

_MODULES: Final = {
    "base": ("CachedEmbedder", "Embedder", "Purpose", "Space"),
    "choice": ("Choice", "choose"),
    "download": ("HUB_MODELS", "models_folder"),
    "hashed": ("HashEmbedder",),
    "onnx": ("OnnxEmbedder",),
    "remote": ("RemoteEmbedder",),
    "static": ("JointEmbedder", "StaticEmbedder"),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'holdfast.search.embed' has no attribute {name!r}")
    return getattr(import_module(f"holdfast.search.embed.{_MODULE_OF[name]}"), name)
