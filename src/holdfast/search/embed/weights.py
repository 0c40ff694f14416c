"""Tables of token vectors on disk: safetensors and npz, read with numpy alone."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from holdfast.errors import EmbeddingError
from holdfast.search.embed.base import Floats

__all__ = ["Ints", "Weights", "read_tensors", "read_weights", "table_of"]

Ints: TypeAlias = npt.NDArray[np.int64]
Array: TypeAlias = npt.NDArray[Any]

_TYPES: Final = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I8": "|i1", "BF16": "<u2"}
_TABLES: Final = ("embeddings", "embedding.weight")
"""What model2vec and sentence-transformers call the table."""
_LONGEST_HEADER: Final = 100_000_000
_PLANE: Final = 2
_WIDENED: Final = 1 << 26
"""Bytes that a table may have as float32 to be widened; a larger one stays mapped where it lies."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Vectors of tokens.

    Attributes:
        table: One vector a row.
        rows: Which row a token has; None where a token's number is its row.
        scale: How much each token counts; None where all count the same.
    """

    table: Array = field(repr=False)
    rows: Ints | None = field(default=None, repr=False)
    scale: Floats | None = field(default=None, repr=False)

    @property
    def tokens(self) -> int:
        """How many tokens have a vector."""
        return len(self.table if self.rows is None else self.rows)

    def widened(self) -> Weights:
        """The same vectors as float32, which sums many texts faster; themselves where that would take much memory."""
        small = self.table.dtype == np.float16 and 4 * self.table.size <= _WIDENED
        return replace(self, table=self.table.astype(np.float32)) if small else self

    def total(self, tokens: Ints) -> Floats:
        """The sum of the vectors of some tokens. One text at a time: that stays in the processor's cache."""
        vectors = self.table.take(tokens if self.rows is None else self.rows[tokens], axis=0)
        wide = np.asarray(vectors, np.float32)
        total: Floats = wide.sum(axis=0) if self.scale is None else self.scale[tokens] @ wide
        return total


def read_weights(path: Path) -> Weights:
    """The weights in a `.safetensors`, `.npz` or `.npy` file; what is wrong with them is an `EmbeddingError`."""
    tensors = read_tensors(path)
    table = table_of(tensors)
    if table is None:
        raise _unusable(path, f"no table of vectors: it holds {', '.join(sorted(tensors)[:8]) or 'nothing'}")
    rows = _rows(path, tensors.get("mapping"), len(table))
    scale = _scale(path, tensors.get("weights"), len(table if rows is None else rows))
    return Weights(table, rows, scale)


def _rows(path: Path, mapping: Array | None, height: int) -> Ints | None:
    if mapping is None:
        return None
    rows: Ints = mapping.astype(np.int64)
    if rows.ndim != 1 or not 0 <= rows.min(initial=0) <= rows.max(initial=0) < height:
        raise _unusable(path, "mapping points outside of the table")
    return rows


def _scale(path: Path, weights: Array | None, tokens: int) -> Floats | None:
    if weights is None:
        return None
    if weights.shape != (tokens,):
        raise _unusable(path, f"weights of the shape {weights.shape} for {tokens} tokens")
    scale: Floats = weights.astype(np.float32)
    return scale


def table_of(tensors: Mapping[str, Array]) -> Array | None:
    """The table of vectors among the arrays of a file, if there is one."""
    table = next((tensors[name] for name in _TABLES if name in tensors), None)
    return table if table is not None and table.ndim == _PLANE and table.size else None


def read_tensors(path: Path) -> dict[str, Array]:
    """Every array in a `.safetensors` or `.npz` file; a `.npy` file is a table alone."""
    try:
        if path.suffix == ".npy":
            return {_TABLES[0]: np.load(path, mmap_mode="r", allow_pickle=False)}
        return _npz(path) if path.suffix == ".npz" else _safetensors(path)
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError, RecursionError, zipfile.BadZipFile) as error:
        raise _unusable(path, str(error) or type(error).__name__) from error


def _unusable(path: Path, why: str) -> EmbeddingError:
    return EmbeddingError(f"{path} cannot be used: {why}. Fetch the model again.", provider="static")


def _npz(path: Path) -> dict[str, Array]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _safetensors(path: Path) -> dict[str, Array]:
    """A u64 for the length of the header, the header in JSON, then the arrays, mapped where they lie."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _LONGEST_HEADER:
            raise ValueError("not a safetensors file")
        header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise TypeError("not a safetensors file")
    whole = np.memmap(path, np.uint8, "r", offset=0)[8 + length :]
    return {name: _tensor(whole, entry) for name, entry in header.items() if name != "__metadata__"}


def _tensor(whole: npt.NDArray[np.uint8], entry: Mapping[str, Any]) -> Array:
    start, stop = entry["data_offsets"]
    kind = np.dtype(_TYPES[entry["dtype"]])
    if not 0 <= start <= stop <= len(whole) or stop - start != math.prod(entry["shape"]) * kind.itemsize:
        raise ValueError("the file is cut short")
    array: Array = np.frombuffer(whole[start:stop], kind).reshape(entry["shape"])
    if entry["dtype"] == "BF16":  # the upper half of a float32
        array = (array.astype("<u4") << 16).view("<f4")
    return array
