"""Requirements that every embedder meets, whatever the text."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.embed import CachedEmbedder, Embedder, HashEmbedder, StaticEmbedder
from holdfast.embed.base import batches
from holdfast.embed.remote import RemoteEmbedder
from holdfast.embed.static import _load_vectors
from holdfast.errors import EmbeddingError
from support.embed_models import VECTORS, WORDS, Endpoint, Reply, endpoint, static_folder
from support.strategies import examples

unhurried = settings(
    deadline=None,
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

ANY = st.text(alphabet=st.characters(exclude_categories=()), max_size=40)
SAID = st.lists(st.sampled_from([*WORDS, "Cat", "😀", "한국", "\ud800", "\ud83d\ude00", "\x00", "…"])).map(" ".join)
TEXTS = st.lists(ANY | SAID, max_size=6)


def spelled(text: str) -> list[float]:
    """Return the vector of a text, in a form that some server might use."""
    raw = text.encode()
    return [float(sum(raw)), float(len(raw)), float(raw[0]), 1.0]


@pytest.fixture(scope="module")
def server() -> Iterator[Endpoint]:
    """Start an endpoint with the API of OpenAI."""
    answer = Reply(body=lambda body: {"data": [{"embedding": spelled(text)} for text in body["input"]]})
    with endpoint(answer) as server:
        yield server


@pytest.fixture(scope="module")
def embedders(server: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> list[Embedder]:
    """Return one embedder of each kind that runs everywhere."""
    static = StaticEmbedder.from_folder(static_folder(tmp_path_factory.mktemp("static") / "tiny"))
    remote = RemoteEmbedder("openai-compatible", model="m", dimension=4, base_url=server.url, batch_size=3)
    return [HashEmbedder(), static, remote, CachedEmbedder(static, size=2)]


@given(texts=TEXTS)
@unhurried
def test_one_row_of_length_one_or_zero(texts: list[str], embedders: list[Embedder]) -> None:
    """Any text, in any script, broken or not, gives a row of length 1 or of zeros; a blank text gives zeros."""
    for embedder in embedders:
        rows = embedder.embed(texts, kind="passage")
        assert rows.dtype == np.float32
        assert rows.shape == (len(texts), embedder.space.dimension)
        for text, row in zip(texts, rows, strict=True):
            assert np.isclose(np.linalg.norm(row), 1, atol=1e-5) or not row.any()
            assert text.strip() or not row.any()


@given(texts=TEXTS, seed=st.randoms(use_true_random=False))
@unhurried
def test_a_text_has_one_row(texts: list[str], seed: Random, embedders: list[Embedder]) -> None:
    """The same text has the same row, bit for bit: again, alone, and in any order."""
    order = list(range(len(texts)))
    seed.shuffle(order)
    for embedder in embedders:
        rows = embedder.embed(texts, kind="query")
        assert np.array_equal(rows, embedder.embed(texts, kind="query"))
        assert np.array_equal(rows[order], embedder.embed([texts[place] for place in order], kind="query"))
        for text, row in zip(texts[:1], rows, strict=False):
            assert np.array_equal(row, embedder.embed([text], kind="query")[0])


@given(place=st.tuples(st.integers(0, len(VECTORS) - 1), st.integers(0, 2)), by=st.sampled_from([0.001, 1.0, -2.0]))
@settings(deadline=None, max_examples=examples(20))
def test_other_weights_are_another_space(place: tuple[int, int], by: float) -> None:
    """Changing any one weight changes the identity of the space."""
    changed = VECTORS.copy()
    changed[place] += by
    with tempfile.TemporaryDirectory() as name:
        one = StaticEmbedder.from_folder(static_folder(Path(name) / "a" / "m"))
        two = StaticEmbedder.from_folder(static_folder(Path(name) / "b" / "m", changed))
    assert one.space != two.space
    assert one.space.name == two.space.name


@given(texts=st.lists(ANY, max_size=30), size=st.integers(1, 8), tokens=st.integers(1, 50))
def test_batches_lose_nothing(texts: list[str], size: int, tokens: int) -> None:
    """All batches together are the texts, in order; none is empty or too large."""
    groups = [list(group) for group in batches(texts, size=size, tokens=tokens)]
    assert [text for group in groups for text in group] == texts
    assert all(1 <= len(group) <= size for group in groups)


HEADERS = st.recursive(
    st.none() | st.integers() | st.sampled_from(["F32", "BF16", "I8"]) | st.lists(st.integers(-9, 99), max_size=3),
    lambda below: st.dictionaries(
        st.sampled_from(["embeddings", "mapping", "weights", "dtype", "shape", "data_offsets"]), below, max_size=4
    ),
    max_leaves=9,
)


@given(header=HEADERS.map(json.dumps).map(str.encode) | st.binary(max_size=60), tail=st.binary(max_size=40))
@settings(deadline=None, max_examples=examples(150))
def test_no_file_does_worse_than_an_error(header: bytes, tail: bytes) -> None:
    """Any file in place of the weights is read, or it is an `EmbeddingError`."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "model.safetensors")
        path.write_bytes(len(header).to_bytes(8, "little") + header + tail)
        with contextlib.suppress(EmbeddingError):
            assert _load_vectors(path).table.size
