"""Embedders: text as vectors.

    choice = choose(settings.embedding)
    if choice.embedder:
        vectors = choice.embedder.embed(["where do we deploy?"], kind="query")

`docs/embeddings.md` describes each provider and how to install it.
"""

from holdfast.search.embed.base import CachedEmbedder as CachedEmbedder
from holdfast.search.embed.base import Embedder as Embedder
from holdfast.search.embed.base import Purpose as Purpose
from holdfast.search.embed.base import Space as Space
from holdfast.search.embed.choice import Choice as Choice
from holdfast.search.embed.choice import choose as choose
from holdfast.search.embed.download import models_folder as models_folder
from holdfast.search.embed.hashed import HashEmbedder as HashEmbedder
from holdfast.search.embed.static import JointEmbedder as JointEmbedder
from holdfast.search.embed.static import StaticEmbedder as StaticEmbedder
