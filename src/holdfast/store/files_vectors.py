"""The vector files of a memory-context folder: one for each embedding model, `vectors.bin` for the first.

The format says nothing about the model, only how long its vectors are. So each file that we write is noted in
`holdfast.jsonl` with its digest and its space. A file that is not noted was written by the plugin: it is used
where its vectors turn out to be hash vectors, and left alone otherwise. Vectors of different models never meet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from holdfast.search.embed.base import Space, unit
from holdfast.search.embed.hashed import HashEmbedder
from holdfast.search.vectors import Bytes, quantise
from holdfast.store import vmem
from holdfast.store.vmem import Floats
from holdfast.transcripts import journal

__all__ = ["VECTORS", "file_of", "files", "note", "rows_of_message", "set_rows", "space_of"]

VECTORS: Final = "vectors.bin"
_SAMPLE: Final = 8
_TOLERANCE: Final = 1e-3


def space_of(path: Path, noted: Mapping[tuple[str, str], Space], texts: Iterable[tuple[str, str]]) -> Space | None:
    """The space of a vector file; None where it cannot be told. `texts` are ids and texts to try it with."""
    with journal.storage(path):
        data = path.read_bytes() if path.exists() else b""
    if known := noted.get((path.name, hashlib.sha256(data).hexdigest())):
        return known
    found = vmem.decode(data)
    return None if found is None else _recognised(found, texts)


def _recognised(found: vmem.Vectors, texts: Iterable[tuple[str, str]]) -> Space | None:
    """The space of hash vectors, where these are some."""
    sample: list[tuple[str, str]] = []
    for name, text in texts:
        if name in found.rows:
            sample.append((name, text))
        if len(sample) == _SAMPLE:
            break
    if not sample or not found.dimension:
        return None
    embedder = HashEmbedder(dimension=found.dimension)
    expected = embedder.embed([text for _, text in sample], kind="passage")
    held = np.stack([found.rows[name] for name, _ in sample])
    return embedder.space if bool(np.allclose(held, expected, atol=_TOLERANCE)) else None


def files(folder: Path) -> list[Path]:
    """Every vector file of a folder."""
    return [path for path in (folder / VECTORS, *sorted(folder.glob("holdfast-vectors-*.bin"))) if path.exists()]


def file_of(folder: Path, space: Space, *, first: Space | None) -> Path:
    """The file for the vectors of a space: the plugin's own where that is free or of this space."""
    path = folder / VECTORS
    if not path.exists() or first == space:
        return path
    mark = hashlib.sha256(f"{space.name}\0{space.dimension}\0{space.digest}".encode()).hexdigest()[:12]
    return folder / f"holdfast-vectors-{mark}.bin"


def note(path: Path, space: Space, rows: Mapping[str, Floats]) -> dict[str, Any]:
    """The line that says which space a file is of; written before the file, so that a crash leaves both known."""
    digest = hashlib.sha256()
    for piece in vmem.encode(rows, dimension=space.dimension):
        digest.update(piece)
    return {
        "kind": "vectors",
        "file": path.name,
        "space": [space.name, space.dimension, space.digest],
        "sha256": digest.hexdigest(),
    }


def rows_of_message(rows: Mapping[str, Floats], name: str, *, windows: int) -> Bytes | None:
    """The vectors of a message's windows: each its own where they are there, else that of the whole message."""
    own = [rows.get(f"{name}#{place}") for place in range(windows)]
    if windows > 1 and any(row is not None for row in own):
        return quantise(np.stack([_or_zeros(row, rows) for row in own]))
    return quantise(np.stack([rows[name]] * windows)) if name in rows else None


def _or_zeros(row: Floats | None, rows: Mapping[str, Floats]) -> Floats:
    return row if row is not None else np.zeros(len(next(iter(rows.values()))), np.float32)


def set_rows(
    rows: dict[str, Floats], name: str, vectors: Mapping[int, Sequence[float] | Floats], *, windows: int
) -> None:
    """Set the vectors of some windows of a message; the whole message gets their mean, which the plugin looks at."""
    if windows == 1:
        rows[name] = unit(np.array([vectors[0]], np.float32))[0]
        return
    for place, vector in vectors.items():
        rows[f"{name}#{place}"] = unit(np.array([vector], np.float32))[0]
    own = [rows[f"{name}#{place}"] for place in range(windows) if f"{name}#{place}" in rows]
    rows[name] = unit(np.mean(own, axis=0, keepdims=True))[0]
