"""Text as vectors: what is there, which one is taken and why.

    choice = choose(settings.embedding)
    if choice.embedder:
        vectors = choice.embedder.embed(["where do we deploy?"], kind="query")

`docs/embeddings.md` says what each provider is and how to get it.
"""

from holdfast.search.embed.base import CachedEmbedder, Embedder, Purpose, Space
from holdfast.search.embed.choice import Choice, choose
from holdfast.search.embed.download import download, models_folder
from holdfast.search.embed.hashed import HashEmbedder
from holdfast.search.embed.onnx import OnnxEmbedder
from holdfast.search.embed.remote import RemoteEmbedder
from holdfast.search.embed.static import SHIPPED, Shipped, StaticEmbedder

__all__ = [
    "SHIPPED",
    "CachedEmbedder",
    "Choice",
    "Embedder",
    "HashEmbedder",
    "OnnxEmbedder",
    "Purpose",
    "RemoteEmbedder",
    "Shipped",
    "Space",
    "StaticEmbedder",
    "choose",
    "download",
    "models_folder",
]
