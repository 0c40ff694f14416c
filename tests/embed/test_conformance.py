"""Every embedder of ours passes the suite that any embedder must pass."""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.embed import CachedEmbedder, HashEmbedder, StaticEmbedder
from holdfast.embed.base import Embedder, Floats, Purpose
from holdfast.embed.onnx import OnnxEmbedder
from holdfast.embed.remote import RemoteEmbedder
from holdfast.embed.static import JointEmbedder
from holdfast.settings import Secret
from holdfast.testing.embedder import CHECKS, Check, Maker, check_embedder
from support.embed_models import VECTORS, Reply, endpoint, save_tokenizer, static_folder
from support.onnx_models import save_model

HAS_ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime"))


def spelled(text: str) -> list[float]:
    """A vector of a text, as some server might make it."""
    raw = text.encode()
    return [float(sum(raw) % 977), float(len(raw)), float(raw[0]), 1.0]


def answer(body: Any) -> Any:
    """What OpenAI, Voyage and Mistral, or Gemini, would answer."""
    if "requests" in body:
        return {"embeddings": [{"values": spelled(each["content"]["parts"][0]["text"])} for each in body["requests"]]}
    return {"data": [{"index": place, "embedding": spelled(text)} for place, text in enumerate(body["input"])]}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing stands between a test and its server."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def makers(tmp_path: Path) -> Iterator[Callable[[str], Maker]]:
    """How an embedder of each kind is made: models of a few numbers, and a real server for the providers."""
    with ExitStack() as open_for_long:

        def static(name: str = "first", vectors: Any = VECTORS) -> StaticEmbedder:
            return StaticEmbedder.from_folder(static_folder(tmp_path / name, vectors))

        def onnx() -> OnnxEmbedder:
            folder = tmp_path / "onnx"
            save_model(folder / "model.onnx")
            save_tokenizer(folder / "tokenizer.json")
            return OnnxEmbedder(folder, threads=1)

        def maker(kind: str) -> Maker:
            here: dict[str, Maker] = {
                "hash": HashEmbedder,
                "static": static,
                "cached": lambda: CachedEmbedder(static()),
                "joint": lambda: JointEmbedder([static(), static("second", VECTORS[::-1].copy())]),
                "onnx": onnx,
            }
            if kind in here:
                return here[kind]
            url = open_for_long.enter_context(endpoint(Reply(body=answer))).url
            given: dict[str, Any] = {"model": "tiny", "dimension": 4, "key": Secret("k"), "base_url": url}
            return lambda: RemoteEmbedder(kind, **given)

        yield maker


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "kind",
    [
        "hash",
        "static",
        "cached",
        "joint",
        pytest.param("onnx", marks=pytest.mark.skipif(not HAS_ONNX, reason="onnx and onnxruntime are not installed")),
        "openai",
        "gemini",
        "voyage",
        "mistral",
        "openai-compatible",
    ],
)
def test_an_embedder_passes_every_check(kind: str, check: Check, makers: Callable[[str], Maker]) -> None:
    """Each kind of embedder passes each check."""
    check(makers(kind))


class _Forgetful:
    """An embedder whose rows depend on what stands next to them."""

    space = HashEmbedder().space

    def embed(self, texts: list[str], *, kind: Purpose) -> Floats:
        """Rows that are turned by one place for each text."""
        rows = HashEmbedder().embed(texts, kind=kind)
        return np.roll(rows, len(texts), axis=1)


def test_a_failed_check_is_named() -> None:
    """An embedder that fails a check raises the name of the check and what it requires."""
    broken: Embedder = _Forgetful()  # type: ignore[assignment]  # takes lists alone, which is not what is tried here
    with pytest.raises(AssertionError, match=r"same_text_has_same_row: A text has the same row"):
        check_embedder(lambda: broken)


def test_a_whole_embedder_passes() -> None:
    """The suite as a third party runs it."""
    check_embedder(HashEmbedder)
