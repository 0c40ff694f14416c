"""Embedders: text as vectors.

    choice = choose(settings.embedding)
    if choice.embedder:
        vectors = choice.embedder.embed(["where do we deploy?"], kind="query")

`docs/embeddings.md` describes each provider and how to install it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.search.embed.base import CachedEmbedder, Embedder, Purpose, Space
from holdfast.search.embed.choice import Choice, choose
from holdfast.search.embed.download import HUB_MODELS, models_folder
from holdfast.search.embed.hashed import HashEmbedder
from holdfast.search.embed.static import JointEmbedder, StaticEmbedder

if TYPE_CHECKING:
    from holdfast.search.embed.onnx import OnnxEmbedder
    from holdfast.search.embed.remote import RemoteEmbedder

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


def __getattr__(name: str) -> Any:
    """Load the embedders that most processes do not use when they are first named."""
    module = {"OnnxEmbedder": "onnx", "RemoteEmbedder": "remote"}.get(name)
    if module is None:
        raise AttributeError(f"module 'holdfast.search.embed' has no attribute {name!r}")
    return getattr(import_module(f"holdfast.search.embed.{module}"), name)
