"""Sentence models in ONNX, run in this process by onnxruntime.

A model is a folder as sentence-transformers exports it: `model.onnx` (or `onnx/model.onnx`), `tokenizer.json`, and
optional files that define the pooling, the maximum length and the prompts.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from holdfast.embed.base import Floats, Purpose, Space, clean, make_digest, unit
from holdfast.embed.tokenizer import load_tokenizer
from holdfast.errors import EmbeddingError, MissingExtraError

_MODEL_FILES: Final = ("model.onnx", "onnx/model.onnx")
_EXTRA: Final = "onnx"
_DEFAULT_MAX_TOKENS: Final = 512
_CHARS_PER_TOKEN: Final = 8
_POOLED_OUTPUT: Final = "sentence_embedding"
_TOKENS_AND_VALUES: Final = 3  # (texts, tokens, values); a model with its own pooling gives (texts, values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How texts are prepared for a model, and how its output is pooled."""

    pooling: Literal["mean", "cls"] = "mean"
    tokens: int = _DEFAULT_MAX_TOKENS
    before_query: str = ""
    before_passage: str = ""

    @classmethod
    def read(cls, folder: Path) -> Recipe:
        """Read the files next to a model; anything that they leave out has its default."""
        pooling = _read_json(folder / "1_Pooling" / "config.json")
        length = _read_json(folder / "sentence_bert_config.json").get("max_seq_length")
        prompts = _read_json(folder / "config_sentence_transformers.json").get("prompts")
        prompts = prompts if isinstance(prompts, dict) else {}
        return cls(
            pooling="cls" if pooling.get("pooling_mode_cls_token") else "mean",
            tokens=length if isinstance(length, int) and length > 0 else _DEFAULT_MAX_TOKENS,
            before_query=str(prompts.get("query", "")),
            before_passage=str(prompts.get("passage", prompts.get("document", ""))),
        )


class OnnxEmbedder:
    """Embeds with a sentence model from a folder: hundreds of times slower than static vectors, and more accurate."""

    def __init__(self, folder: Path, *, threads: int = 1) -> None:
        """Load a model. `threads` is the number of threads it may use; 0 leaves it to onnxruntime.

        More threads take more processor time: they wait for each other by spinning (docs/embeddings.md).
        """
        model = find_onnx_model(folder)
        if model is None:
            raise EmbeddingError(f"{folder} holds no model.onnx and tokenizer.json", provider="onnx")
        self._recipe = Recipe.read(folder)
        self._tokenizer = load_tokenizer(folder / "tokenizer.json", provider="onnx", extra=_EXTRA)
        self._tokenizer.enable_truncation(self._recipe.tokens)
        try:
            runtime = importlib.import_module("onnxruntime")
        except ImportError:
            raise MissingExtraError("the embedding provider onnx", extra=_EXTRA) from None
        state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
        names = ("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoSuchFile", "NotImplemented")
        self._errors = (KeyError, state.RuntimeException, *(getattr(state, name) for name in names))
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        try:
            self._session = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        except self._errors as error:
            message = f"{model} cannot be used: {error}. Download the model again."
            raise EmbeddingError(message, provider="onnx") from error
        self._inputs = {each.name for each in self._session.get_inputs()}
        outputs = [each.name for each in self._session.get_outputs()]
        self._output = _POOLED_OUTPUT if _POOLED_OUTPUT in outputs else outputs[0]
        files = [*sorted(model.parent.glob(f"{model.name}*")), folder / "tokenizer.json"]
        self.space = Space(
            name=folder.resolve().name,
            dimension=len(self._vector("a")),
            digest=make_digest(repr(self._recipe), files=files),
        )

    def __repr__(self) -> str:
        return f"OnnxEmbedder({self.space.name!r})"

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:
        """Embed one text at a time: batches gain nothing on a CPU, and would change the last digits."""
        before = self._recipe.before_query if kind == "query" else self._recipe.before_passage
        rows = np.zeros((len(texts), self.space.dimension), np.float32)
        for row, text in zip(rows, texts, strict=True):
            if cleaned := clean(text):
                row[:] = self._vector((before + cleaned)[: _CHARS_PER_TOKEN * self._recipe.tokens])
        return unit(rows)

    def _vector(self, text: str) -> Floats:
        encoded = self._tokenizer.encode(text)
        mask = np.array([encoded.attention_mask], np.int64)
        inputs = {
            "input_ids": np.array([encoded.ids], np.int64),
            "attention_mask": mask,
            "token_type_ids": np.array([encoded.type_ids], np.int64),
        }
        try:
            (output,) = self._session.run([self._output], {name: inputs[name] for name in self._inputs})
        except self._errors as error:
            raise EmbeddingError(f"the model cannot be run on text: {error}", provider="onnx") from error
        vectors = np.asarray(output, np.float32)
        if vectors.ndim < _TOKENS_AND_VALUES:
            return vectors.reshape(-1)
        pooled: Floats = vectors[0, 0]
        if self._recipe.pooling == "mean":
            pooled = mask[0].astype(np.float32) @ vectors[0] / np.float32(max(1, mask.sum()))
        return pooled


def find_onnx_model(folder: Path) -> Path | None:
    """Return the file of the sentence model in a folder; None if there is none."""
    if not (folder / "tokenizer.json").is_file():
        return None
    return next((folder / place for place in _MODEL_FILES if (folder / place).is_file()), None)


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
