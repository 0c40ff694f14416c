"""Static embeddings: a table of token vectors, and the mean of a text's tokens. Thousands of passages a second.

A model is a folder in the layout of model2vec or sentence-transformers, or in the installed `wordllama` package.
Nothing is downloaded here; see `holdfast.embed.download`.
"""

from __future__ import annotations

import importlib.util
import json
import math
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from holdfast.embed.base import Embedder, Floats, Purpose, Space, behind_cache, clean, make_digest, unit
from holdfast.embed.tokenizer import ChunkTokenizer, Ints, import_tokenizers, load_tokenizer
from holdfast.errors import EmbeddingError
from holdfast.text import is_unsegmented
from holdfast_memory.distribution import install_command

Array: TypeAlias = npt.NDArray[Any]

WORDLLAMA: Final = "wordllama-l2-supercat-256"
"""The name of the model in the `wordllama` package."""
ENGLISH: Final = "holdfast-english-256"
"""The name of the model that is part of Holdfast (docs/decisions/0006-english-vectors.md)."""
ENGLISH_FOLDER: Final = Path(__file__).parent / "models" / ENGLISH

MAX_TOKENS: Final = 1024
"""A window of 600 characters may have 800 tokens if its script is rare in the tokenizer's vocabulary."""
MAX_CHARS: Final = 4096
MAX_FLOAT32_BYTES: Final = 1 << 26
"""A float16 table is converted to float32 if it takes no more than this; a larger one stays mapped from its file."""

_EXTRA: Final = "local"
_WORDLLAMA_FILES: Final = ("weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json")
_LAYOUTS: Final = ("", "0_StaticEmbedding")
_TABLE_FILES: Final = ("model.safetensors", "model.npz")
_TABLE_NAMES: Final = ("embeddings", "embedding.weight")  # in model2vec, in sentence-transformers
_DTYPES: Final = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I8": "|i1", "BF16": "<u2"}
_MAX_HEADER_BYTES: Final = 100_000_000


class StaticEmbedder:
    """Embeds a text as the mean of its tokens' vectors. The tokenizer is loaded with the first text."""

    def __init__(self, table: Path, tokenizer: Path, *, name: str) -> None:
        import_tokenizers(provider="static", extra=_EXTRA)
        self._tokenizer = tokenizer
        self._vectors = _load_vectors(table)
        digest = make_digest(files=[table, tokenizer])
        self.space = Space(name=name, dimension=self._vectors.table.shape[1], digest=digest)

    @classmethod
    def from_folder(cls, folder: Path) -> StaticEmbedder:
        """Load the model in a folder: `model.safetensors` or `model.npz`, and `tokenizer.json`."""
        table = find_table(folder)
        if table is None:
            raise EmbeddingError(f"{folder} holds no model.safetensors and tokenizer.json", provider="static")
        return cls(table, table.parent / "tokenizer.json", name=folder.resolve().name)

    @classmethod
    def from_wordllama(cls) -> StaticEmbedder:
        """Return the model in the installed `wordllama` package. It is loaded once by a process."""
        files = find_wordllama()
        if files is None:
            raise EmbeddingError(f"{WORDLLAMA} is not installed: {install_command('local')}", provider="static")
        table, tokenizer = files
        return _load_once(table, tokenizer, WORDLLAMA, _read_state(table), _read_state(tokenizer))

    @classmethod
    def english(cls) -> StaticEmbedder:
        """Return the model that is part of Holdfast. It is loaded once by a process."""
        table = ENGLISH_FOLDER / "model.safetensors"
        tokenizer = ENGLISH_FOLDER / "tokenizer.json"
        return _load_once(table, tokenizer, ENGLISH, _read_state(table), _read_state(tokenizer))

    def __repr__(self) -> str:
        return f"StaticEmbedder({self.space.name!r})"

    def token_ids(self, text: str) -> Ints:
        """Return the first 1,024 tokens of a text that have a vector."""
        ids = np.asarray(self._tokenize(clean(text)[:MAX_CHARS]), np.int64)
        return ids[ids < self._vectors.tokens][:MAX_TOKENS]

    @cached_property
    def _tokenize(self) -> ChunkTokenizer:
        """Loaded by the first text: it takes longer than everything else, and not every command embeds one."""
        return ChunkTokenizer(load_tokenizer(self._tokenizer, provider="static", extra=_EXTRA))

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:
        """Return the mean of each text's token vectors, at length 1."""
        table = self._vectors.table
        # Sums of float32 are faster. Conversion pays for many passages; one question should not wait for it.
        if kind == "passage" and table.dtype == np.float16 and 4 * table.size <= MAX_FLOAT32_BYTES:
            self._vectors = replace(self._vectors, table=table.astype(np.float32))
        rows = np.zeros((len(texts), self.space.dimension), np.float32)
        for row, text in zip(rows, texts, strict=True):
            if len(tokens := self.token_ids(text)):
                row[:] = self._vectors.sum(tokens)
        return unit(rows)


class JointEmbedder:
    """Embeds a text by several models: their vectors side by side, so that a cosine is the mean of theirs.

    Models that were trained differently err differently: two small tables together find more than either.
    """

    def __init__(self, embedders: Sequence[Embedder]) -> None:
        if not embedders:
            raise ValueError("a joint embedder needs a model")
        self._embedders = tuple(embedders)
        spaces = [embedder.space for embedder in self._embedders]
        self.space = Space(
            name="+".join(space.name for space in spaces),
            dimension=sum(space.dimension for space in spaces),
            digest=make_digest("joint", *(space.digest for space in spaces)),
        )

    def __repr__(self) -> str:
        return f"JointEmbedder({list(self._embedders)!r})"

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:
        """Return the models' vectors side by side, at length 1. A model without a vector for a text adds nothing."""
        parts = [embedder.embed(texts, kind=kind) for embedder in self._embedders]
        counts = np.stack([part.any(axis=1) for part in parts]).sum(axis=0)
        rows: Floats = np.concatenate(parts, axis=1, dtype=np.float32)
        rows /= np.sqrt(np.maximum(counts, 1))[:, None]
        return rows


def find_static(embedders: Iterable[Embedder]) -> Embedder | None:
    """Return the first embedder whose model is static: it embeds hundreds of texts while a question waits."""
    for embedder in embedders:
        if _is_static(embedder):
            return embedder
    return None


def _is_static(embedder: Embedder | None) -> bool:
    return isinstance(behind_cache(embedder), StaticEmbedder | JointEmbedder)


def vector_weight(embedder: Embedder | None, query: str) -> float:
    """Return how much vectors count for a query, from 0 to 1.

    Static tables know little of scripts without spaces: the weight is the share of letters of other scripts.
    """
    if query.isascii() or not _is_static(embedder):
        return 1.0
    letters = [character for character in query if character.isalpha()]
    return 1 - sum(map(is_unsegmented, letters)) / max(1, len(letters))


# --- files -------------------------------------------------------------------


def find_wordllama() -> tuple[Path, Path] | None:
    """Return the table and the tokenizer in the `wordllama` package, which is not imported; None if it is missing."""
    spec = importlib.util.find_spec("wordllama")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        table, tokenizer = (Path(place, name) for name in _WORDLLAMA_FILES)
        if table.is_file() and tokenizer.is_file():
            return table, tokenizer
    return None


# A program may open an engine for each of its requests: loading the tokenizer, reading both files for the digest and
# converting the table take 120 ms of the processor, and nothing changes the model.
@lru_cache(maxsize=2)
def _load_once(table: Path, tokenizer: Path, name: str, *_states: tuple[int, ...]) -> StaticEmbedder:
    """Load an installed model, again if one of its files was replaced."""
    return StaticEmbedder(table, tokenizer, name=name)


def _read_state(path: Path) -> tuple[int, ...]:
    """Return numbers that differ if a file was replaced."""
    state = path.stat()
    return state.st_ino, state.st_size, state.st_mtime_ns


def is_static_model(folder: Path) -> bool:
    """Return whether a folder holds a static model. A sentence model has the same file names and other arrays."""
    table = find_table(folder)
    return table is not None and _get_table(_load_arrays(table)) is not None


def find_table(folder: Path) -> Path | None:
    """Return the file that may hold the table of a static model, if a tokenizer is next to it."""
    paths = [folder / layout / name for layout in _LAYOUTS for name in _TABLE_FILES]
    return next((path for path in paths if path.is_file() and (path.parent / "tokenizer.json").is_file()), None)


@dataclass(frozen=True, slots=True)
class _TokenVectors:
    """The vectors of tokens: a table, the row of each token (None: its number), and its weight (None: all the same)."""

    table: Array = field(repr=False)
    rows: Ints | None = field(default=None, repr=False)
    scale: Floats | None = field(default=None, repr=False)

    @property
    def tokens(self) -> int:
        """The number of tokens that have a vector."""
        return len(self.table if self.rows is None else self.rows)

    def sum(self, tokens: Ints) -> Floats:
        """Return the sum of the vectors of a text's tokens. One text at a time stays in the processor's cache."""
        vectors = self.table.take(tokens if self.rows is None else self.rows[tokens], axis=0)
        wide = np.asarray(vectors, np.float32)
        total: Floats = wide.sum(axis=0) if self.scale is None else self.scale[tokens] @ wide
        return total


def _load_vectors(path: Path) -> _TokenVectors:
    arrays = _load_arrays(path)
    table = _get_table(arrays)
    if table is None:
        raise _unusable(path, f"no table of vectors: it holds {', '.join(sorted(arrays)[:8]) or 'nothing'}")
    rows = arrays["mapping"].astype(np.int64) if "mapping" in arrays else None
    if rows is not None and (rows.ndim != 1 or not 0 <= rows.min(initial=0) <= rows.max(initial=0) < len(table)):
        raise _unusable(path, "mapping points outside of the table")
    scale = arrays["weights"].astype(np.float32) if "weights" in arrays else None
    vectors = _TokenVectors(table, rows, scale)
    if scale is not None and scale.shape != (vectors.tokens,):
        raise _unusable(path, f"weights of the shape {scale.shape} for {vectors.tokens} tokens")
    return vectors


def _get_table(arrays: Mapping[str, Array]) -> Array | None:
    table = next((arrays[name] for name in _TABLE_NAMES if name in arrays), None)
    return table if table is not None and table.ndim == 2 and table.size else None  # noqa: PLR2004 - rows, columns


def _load_arrays(path: Path) -> dict[str, Array]:
    try:
        if path.suffix == ".npz":
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        return _map_safetensors(path)
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError, RecursionError, zipfile.BadZipFile) as error:
        raise _unusable(path, str(error) or type(error).__name__) from error


def _unusable(path: Path, reason: str) -> EmbeddingError:
    return EmbeddingError(f"{path} cannot be used: {reason}. Download the model again.", provider="static")


def _map_safetensors(path: Path) -> dict[str, Array]:
    """Map the arrays of a safetensors file: a u64 for the header's length, the header in JSON, the arrays.

    The `safetensors` package would copy them, which takes half a gigabyte for a large table.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length)) if length <= _MAX_HEADER_BYTES else None
    if not isinstance(header, dict):
        raise TypeError("not a safetensors file")
    header.pop("__metadata__", None)
    data = np.memmap(path, np.uint8, "r", offset=0)[8 + length :]
    arrays: dict[str, Array] = {}
    for name, entry in header.items():
        (start, stop), dtype = entry["data_offsets"], np.dtype(_DTYPES[entry["dtype"]])
        if not 0 <= start <= stop <= len(data) or stop - start != math.prod(entry["shape"]) * dtype.itemsize:
            raise ValueError("the file is cut short")
        array: Array = np.frombuffer(data[start:stop], dtype).reshape(entry["shape"])
        # BF16 is the upper half of a float32.
        arrays[name] = (array.astype("<u4") << 16).view("<f4") if entry["dtype"] == "BF16" else array
    return arrays
