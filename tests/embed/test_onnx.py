"""Sentence models in ONNX, with models of a few numbers that are built here."""

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, processors

from holdfast.embed import CachedEmbedder, choose
from holdfast.embed.base import Floats
from holdfast.embed.onnx import OnnxEmbedder, find_onnx_model
from holdfast.errors import EmbeddingError, MissingExtraError
from holdfast.settings import Embedding
from support.embed_models import VECTORS, WORDS, save_tokenizer, static_folder
from support.onnx_models import save_model

MISSING = [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
needs_onnx = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


def save_json(path: Path, value: Any) -> None:
    """Write a file of settings next to a model."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model next to a tokenizer that puts `dog` before every text, as others put [CLS]."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    save_model(folder / "model.onnx")
    save_tokenizer(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="dog $A", special_tokens=[("dog", WORDS.index("dog"))]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def embed(folder: Path, *texts: str, kind: Any = "passage") -> Floats:
    """Embed texts with the model in a folder."""
    return OnnxEmbedder(folder, threads=1).embed(texts, kind=kind)


@needs_onnx
class TestModel:
    """Models that work."""

    def test_the_mean_of_the_tokens(self, folder: Path) -> None:
        """A text is the mean of what the model says of its tokens, special ones included."""
        assert np.allclose(embed(folder, "cat")[0], np.array([1, 1, 0]) / np.sqrt(2))

    def test_the_first_token_is_used_if_the_model_is_set_so(self, folder: Path) -> None:
        """Some models put the meaning into their first token."""
        save_json(folder / "1_Pooling" / "config.json", {"pooling_mode_cls_token": True})
        assert np.allclose(embed(folder, "cat revenue")[0], [0, 1, 0])

    def test_a_model_that_pools_by_itself(self, folder: Path) -> None:
        """Where a model gives the vector of the whole text, that is taken."""
        save_model(folder / "model.onnx", pooled=True)
        assert np.allclose(embed(folder, "cat")[0], np.array([1, 1, 0]) / np.sqrt(2))
        assert np.allclose(embed(folder, "cat cat cat")[0], np.array([1, 1, 0]) / np.sqrt(2))

    def test_every_usual_input(self, folder: Path) -> None:
        """A model gets the inputs it wants, and no others."""
        for inputs in (("input_ids",), ("input_ids", "attention_mask", "token_type_ids")):
            save_model(folder / "model.onnx", inputs=inputs)
            assert embed(folder, "cat").any()

    def test_blank_text_is_zero(self, folder: Path) -> None:
        """A text without content is a row of zeros."""
        rows = embed(folder, "", "cat", "  ", "\ud800")
        assert [bool(row.any()) for row in rows] == [False, True, False, True]

    def test_neighbours_change_nothing(self, folder: Path) -> None:
        """The row of a text is the same alone and among longer ones."""
        assert np.array_equal(embed(folder, "cat")[0], embed(folder, "revenue " * 50, "cat")[1])

    def test_no_text_is_too_long(self, folder: Path) -> None:
        """A model sees as many tokens as it was made for."""
        save_json(folder / "sentence_bert_config.json", {"max_seq_length": 2})
        assert np.array_equal(embed(folder, "cat"), embed(folder, "cat " + "revenue " * 99))

    def test_words_before_questions_and_passages(self, folder: Path) -> None:
        """A model that wants a prompt gets it."""
        save_json(
            folder / "config_sentence_transformers.json", {"prompts": {"query": "kitten ", "document": "revenue "}}
        )
        said = VECTORS[[3, 2, 1]].sum(axis=0)  # dog kitten cat
        assert np.allclose(embed(folder, "cat", kind="query")[0], said / np.linalg.norm(said))
        said = VECTORS[[3, 4, 1]].sum(axis=0)  # dog revenue cat
        assert np.allclose(embed(folder, "cat", kind="passage")[0], said / np.linalg.norm(said))

    def test_settings_next_to_the_model_may_be_broken(self, folder: Path) -> None:
        """Files that say nothing useful leave the usual."""
        for name in ("sentence_bert_config.json", "config_sentence_transformers.json", "1_Pooling/config.json"):
            save_json(folder / name, ["nothing"])
        (folder / "sentence_bert_config.json").write_text("{")
        assert np.allclose(embed(folder, "cat")[0], np.array([1, 1, 0]) / np.sqrt(2))

    def test_the_model_may_lie_in_a_folder_below(self, folder: Path) -> None:
        """`onnx/model.onnx` is where exporters put it."""
        (folder / "onnx").mkdir()
        (folder / "model.onnx").rename(folder / "onnx" / "model.onnx")
        assert embed(folder, "cat").any()

    def test_identity(self, folder: Path) -> None:
        """The space is told by the model, its tokenizer and how its answer is read."""
        plain = OnnxEmbedder(folder).space
        assert (plain.name, plain.dimension) == ("tiny", 3)
        assert plain == OnnxEmbedder(folder).space
        save_json(folder / "1_Pooling" / "config.json", {"pooling_mode_cls_token": True})
        first = OnnxEmbedder(folder).space
        save_model(folder / "model.onnx", pooled=True)
        assert len({plain, first, OnnxEmbedder(folder).space}) == 3
        assert repr(OnnxEmbedder(folder)) == "OnnxEmbedder('tiny')"

    def test_it_is_chosen_for_its_folder(self, folder: Path) -> None:
        """`onnx`, `local` and `auto` know a sentence model; a static table next to it goes first."""
        for provider in ("onnx", "local", "auto"):
            choice = choose(Embedding(provider=provider, model=str(folder)), environ={})
            assert isinstance(choice.embedder, CachedEmbedder)
            assert isinstance(choice.embedder.embedder, OnnxEmbedder)
        static_folder(folder)
        choice = choose(Embedding(provider="local", model=str(folder)), environ={})
        assert repr(choice.embedder) == "CachedEmbedder(StaticEmbedder('tiny'), size=1000)"


@needs_onnx
class TestBroken:
    """Models that do not."""

    def test_a_file_that_is_no_model(self, folder: Path) -> None:
        """Any bytes give an error that names the file."""
        (folder / "model.onnx").write_bytes(b"nope" * 100)
        with pytest.raises(EmbeddingError, match=r"model\.onnx cannot be used"):
            OnnxEmbedder(folder)

    def test_a_model_that_wants_something_else(self, folder: Path) -> None:
        """A model for pictures, say, is told from one for text."""
        save_model(folder / "model.onnx", inputs=("input_ids", "pixels"))
        with pytest.raises(EmbeddingError, match="cannot be run on text"):
            OnnxEmbedder(folder)

    def test_a_token_that_the_model_does_not_know(self, folder: Path) -> None:
        """A tokenizer of another model is found out."""
        save_tokenizer(folder / "tokenizer.json", [*WORDS, *(f"w{number}" for number in range(9))])
        with pytest.raises(EmbeddingError, match="cannot be run on text"):
            OnnxEmbedder(folder).embed(["w8"], kind="query")


def test_an_empty_folder(tmp_path: Path) -> None:
    """A folder without a model says what is missing."""
    assert not find_onnx_model(tmp_path)
    with pytest.raises(EmbeddingError, match=r"holds no model\.onnx and tokenizer\.json"):
        OnnxEmbedder(tmp_path)


def test_without_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package is an error that says how to install it."""
    (tmp_path / "model.onnx").touch()
    save_tokenizer(tmp_path / "tokenizer.json")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'holdfast-memory\[onnx\]'"):
        OnnxEmbedder(tmp_path)
