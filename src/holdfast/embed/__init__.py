"""Embedders: text as vectors.

    choice = choose(settings.embedding)
    if choice.embedder:
        vectors = choice.embedder.embed(["where do we deploy?"], kind="query")

`docs/embeddings.md` describes each provider and how to install it.
"""

from holdfast.embed.base import CachedEmbedder as CachedEmbedder
from holdfast.embed.base import Embedder as Embedder
from holdfast.embed.base import Purpose as Purpose
from holdfast.embed.base import Space as Space
from holdfast.embed.choice import Choice as Choice
from holdfast.embed.choice import choose as choose
from holdfast.embed.download import models_folder as models_folder
from holdfast.embed.hashed import HashEmbedder as HashEmbedder
from holdfast.embed.static import JointEmbedder as JointEmbedder
from holdfast.embed.static import StaticEmbedder as StaticEmbedder
