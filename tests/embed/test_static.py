"""Static vectors from folders and packages, and what is said about those that cannot be used."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from holdfast.embed import StaticEmbedder
from holdfast.embed.base import Floats
from holdfast.embed.static import WORDLLAMA, find_wordllama, is_static_model
from holdfast.errors import EmbeddingError, MissingExtraError
from support.embed_models import VECTORS, WORDS, save_safetensors, save_tokenizer, static_folder, wordllama_package


def embed(embedder: StaticEmbedder, *texts: str) -> Floats:
    """Embed passages."""
    return embedder.embed(texts, kind="passage")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small model."""
    return static_folder(tmp_path / "tiny")


class TestFolder:
    """Models in folders."""

    def test_a_text_is_the_mean_of_its_words(self, folder: Path) -> None:
        """The row of a text is the direction of the sum of its tokens' vectors."""
        row = embed(StaticEmbedder.from_folder(folder), "Cat dog")[0]
        assert np.allclose(row, np.array([1, 1, 0]) / np.sqrt(2))

    def test_alike_is_near(self, folder: Path) -> None:
        """Texts about one thing are nearer to each other than to another thing, in any language."""
        cat, kitten, revenue, neko = embed(StaticEmbedder.from_folder(folder), "cat", "kitten", "revenue quarter", "猫")
        assert cat @ kitten > 0.9 > cat @ revenue
        assert cat @ neko > 0.9

    @pytest.mark.parametrize("text", ["", "  \n", "unknown words", "\ud800"])
    def test_text_without_known_words_is_zero(self, folder: Path, text: str) -> None:
        """Blank text is zero, and so is text of which no token has a meaning; the unknown token has none."""
        assert not embed(StaticEmbedder.from_folder(folder), text).any()

    def test_unknown_words_do_not_count(self, folder: Path) -> None:
        """A word that is not known changes nothing."""
        plain, mixed = embed(StaticEmbedder.from_folder(folder), "cat", "cat xyzzy")
        assert np.array_equal(plain, mixed)

    def test_no_texts_give_no_rows(self, folder: Path) -> None:
        """The shape is right for nothing, too."""
        assert embed(StaticEmbedder.from_folder(folder)).shape == (0, 3)

    def test_only_the_first_tokens_count(self, folder: Path) -> None:
        """After 1,024 tokens a text has said enough."""
        embedder = StaticEmbedder.from_folder(folder)
        assert len(embedder.token_ids("猫 " * 5000)) == 1024
        assert np.array_equal(embed(embedder, "cat " * 1024), embed(embedder, "cat " * 1024 + "dog " * 9000))

    def test_a_token_without_a_vector_is_left_out(self, tmp_path: Path) -> None:
        """A tokenizer may know more words than there are vectors."""
        embedder = StaticEmbedder.from_folder(static_folder(tmp_path / "short", VECTORS[:3]))
        assert not embed(embedder, "revenue").any()
        assert embed(embedder, "cat revenue").any()

    def test_the_layout_of_sentence_transformers(self, tmp_path: Path) -> None:
        """The table may lie in a folder below, under another name."""
        below = tmp_path / "model" / "0_StaticEmbedding"
        below.mkdir(parents=True)
        save_safetensors(below / "model.safetensors", {"embedding.weight": VECTORS})
        save_tokenizer(below / "tokenizer.json")
        embedder = StaticEmbedder.from_folder(tmp_path / "model")
        assert embedder.space.name == "model"
        assert embed(embedder, "cat").any()

    def test_an_npz_file_will_do(self, tmp_path: Path) -> None:
        """The arrays may lie in numpy's own format."""
        np.savez(tmp_path / "model.npz", embeddings=VECTORS)
        save_tokenizer(tmp_path / "tokenizer.json")
        assert embed(StaticEmbedder.from_folder(tmp_path), "cat").any()

    def test_a_tokenizer_with_a_number_for_unknown(self, folder: Path) -> None:
        """Unigram tokenizers name the unknown token by its number."""
        pieces = [(word, -1.0) for word in WORDS]
        Tokenizer(models.Unigram(pieces, unk_id=0)).save(str(folder / "tokenizer.json"))
        embedder = StaticEmbedder.from_folder(folder)
        assert not embed(embedder, "zzz").any()
        assert embed(embedder, "catzzz").any()

    def test_it_shows_its_model(self, folder: Path) -> None:
        """The model's name is enough to know it by."""
        assert repr(StaticEmbedder.from_folder(folder)) == "StaticEmbedder('tiny')"


class TestTypes:
    """Tables of all kinds."""

    @pytest.mark.parametrize(
        ("kind", "name"), [(np.float32, "F32"), (np.float16, "F16"), (np.float64, "F64"), (np.int8, "I8")]
    )
    def test_every_type_of_table(self, tmp_path: Path, kind: Any, name: str) -> None:
        """Vectors of any precision point the same way, as far as it reaches."""
        folder = static_folder(tmp_path / name, (VECTORS * 10).astype(kind))
        got = embed(StaticEmbedder.from_folder(folder), "cat dog", "你 好")
        wanted = embed(StaticEmbedder.from_folder(static_folder(tmp_path / "plain")), "cat dog", "你 好")
        assert np.allclose(got, wanted, atol=1e-3)

    def test_the_upper_half_of_float32(self, tmp_path: Path) -> None:
        """BF16, which numpy does not know, is read as what it is."""
        folder = static_folder(tmp_path / "brain")
        halves = (VECTORS.view(np.uint32) >> 16).astype(np.uint16)
        save_safetensors(folder / "model.safetensors", {"embeddings": halves}, names={"embeddings": "BF16"})
        assert np.allclose(embed(StaticEmbedder.from_folder(folder), "kitten")[0], [0.98, 0.196, 0], atol=1e-2)

    def test_mapping_and_weights(self, tmp_path: Path) -> None:
        """Tokens may share a vector, and may count more or less."""
        folder = static_folder(tmp_path / "shared")
        arrays = {
            "embeddings": np.array([[1, 0], [0, 1]], np.int8),
            "mapping": np.array([0, 0, 0, 1, 1, 1, 0, 0, 1]),
            "weights": np.array([1, 3, 1, 4, 1, 1, 1, 1, 1], np.float32),
        }
        save_safetensors(folder / "model.safetensors", arrays)
        assert np.allclose(embed(StaticEmbedder.from_folder(folder), "cat dog")[0], [0.6, 0.8])


class TestIdentity:
    """What a model is known by."""

    def test_same_files_same_space(self, tmp_path: Path) -> None:
        """The same model in another place is the same space."""
        one, two = (StaticEmbedder.from_folder(static_folder(tmp_path / place / "tiny")) for place in "ab")
        assert one.space == two.space
        assert (one.space.name, one.space.dimension, len(one.space.digest)) == ("tiny", 3, 32)

    def test_other_weights_other_space(self, tmp_path: Path) -> None:
        """A model of the same name and dimension with other weights is another space."""
        one = StaticEmbedder.from_folder(static_folder(tmp_path / "a" / "tiny"))
        two = StaticEmbedder.from_folder(static_folder(tmp_path / "b" / "tiny", VECTORS + 1))
        assert one.space != two.space

    def test_other_tokenizer_other_space(self, tmp_path: Path) -> None:
        """The same weights read with another tokenizer are another space."""
        one = StaticEmbedder.from_folder(static_folder(tmp_path / "a" / "tiny"))
        two = StaticEmbedder.from_folder(static_folder(tmp_path / "b" / "tiny", words=WORDS[::-1]))
        assert one.space != two.space


def broken(folder: Path, why: str) -> None:
    """The model in a folder is refused, and the error gives the reason."""
    with pytest.raises(EmbeddingError, match=why) as caught:
        StaticEmbedder.from_folder(folder)
    assert caught.value.provider == "static"


class TestBroken:
    """Models that cannot be used."""

    def test_an_empty_folder(self, tmp_path: Path) -> None:
        """A folder without a model says what is missing."""
        broken(tmp_path, r"holds no model\.safetensors and tokenizer\.json")

    def test_a_file_that_is_cut_short(self, folder: Path) -> None:
        """Half of a download is not taken for a model."""
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-4])
        broken(folder, "cut short")

    @pytest.mark.parametrize("raw", [b"", b"nope", b"\xff" * 64, (5).to_bytes(8, "little") + b"[1,2]", b"\0" * 8])
    def test_a_file_that_is_something_else(self, folder: Path, raw: bytes) -> None:
        """Any bytes at all give an error that names the file."""
        (folder / "model.safetensors").write_bytes(raw)
        broken(folder, "cannot be used")

    @pytest.mark.parametrize(
        "entry",
        [
            {"dtype": "F8", "shape": [1], "data_offsets": [0, 1]},
            {"dtype": "F32", "shape": [-1, 3], "data_offsets": [0, 12]},
            {"dtype": "F32", "shape": [1, 3], "data_offsets": [12, 0]},
            {"dtype": "F32", "shape": "x", "data_offsets": [0, 12]},
            {"dtype": "F32", "data_offsets": [0, 12]},
            {"dtype": "F32", "shape": [1, 3]},
            7,
        ],
    )
    def test_a_header_that_lies(self, folder: Path, entry: Any) -> None:
        """An array that is not where the header says is an error, not a crash."""
        head = json.dumps({"embeddings": entry}).encode()
        (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + bytes(12))
        broken(folder, "cannot be used")

    @pytest.mark.parametrize(
        ("arrays", "why"),
        [
            ({"encoder.weight": VECTORS}, r"no table of vectors: it holds encoder\.weight"),
            ({"embeddings": VECTORS[0]}, "no table of vectors"),
            ({"embeddings": VECTORS[:0]}, "no table of vectors"),
            ({"embeddings": VECTORS, "mapping": np.array([99])}, "mapping points outside"),
            ({"embeddings": VECTORS, "mapping": np.array([-1])}, "mapping points outside"),
            ({"embeddings": VECTORS, "weights": np.ones(2, np.float32)}, "weights of the shape"),
        ],
    )
    def test_arrays_that_do_not_fit(self, folder: Path, arrays: dict[str, Any], why: str) -> None:
        """Arrays of the wrong kind are named."""
        save_safetensors(folder / "model.safetensors", arrays)
        broken(folder, why)

    def test_a_broken_npz(self, tmp_path: Path) -> None:
        """A broken archive is an error as well, and nothing in one is ever run."""
        save_tokenizer(tmp_path / "tokenizer.json")
        (tmp_path / "model.npz").write_bytes(b"PK\x03\x04 nope")
        broken(tmp_path, "cannot be used")
        np.savez(tmp_path / "model.npz", embeddings=np.array([{}], object))
        broken(tmp_path, "cannot be used")

    def test_a_broken_tokenizer(self, folder: Path) -> None:
        """A tokenizer that cannot be read is named by the first text."""
        (folder / "tokenizer.json").write_text("{}")
        embedder = StaticEmbedder.from_folder(folder)
        with pytest.raises(EmbeddingError, match=r"tokenizer\.json cannot be used"):
            embed(embedder, "cat")

    def test_numbers_that_are_none(self, tmp_path: Path) -> None:
        """A vector that is not made of numbers is similar to nothing."""
        vectors = VECTORS.copy()
        vectors[1] = np.nan
        rows = embed(StaticEmbedder.from_folder(static_folder(tmp_path / "nan", vectors)), "cat", "dog")
        assert not rows[0].any()
        assert rows[1].any()

    def test_without_the_tokenizers_package(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A missing package is an error that says how to install it."""
        monkeypatch.setitem(sys.modules, "tokenizers", None)
        with pytest.raises(MissingExtraError, match=r"pip install 'holdfast-memory\[local\]'"):
            StaticEmbedder.from_folder(folder)


def test_a_sentence_model_is_not_taken_for_a_static_one(folder: Path) -> None:
    """The two have the same files; the arrays in them tell."""
    assert is_static_model(folder)
    save_safetensors(folder / "model.safetensors", {"encoder.layer.0.weight": VECTORS})
    assert not is_static_model(folder)


class TestWordllama:
    """The model in the `wordllama` package."""

    def test_weights_inside_the_package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The package is read without being imported."""
        table, tokenizer = wordllama_package(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        assert find_wordllama() == (table, tokenizer)
        embedder = StaticEmbedder.from_wordllama()
        assert embedder.space.name == WORDLLAMA
        assert embed(embedder, "cat").any()

    def test_the_package_is_loaded_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every engine of a process uses the same model."""
        wordllama_package(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        assert StaticEmbedder.from_wordllama() is StaticEmbedder.from_wordllama()

    def test_another_version_of_the_package_is_loaded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A model that was replaced while a program runs has a space of its own."""
        table, _ = wordllama_package(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        before = StaticEmbedder.from_wordllama()
        other = tmp_path / "other.safetensors"
        save_safetensors(other, {"embedding.weight": (VECTORS + 1).astype(np.float16)})
        other.replace(table)
        after = StaticEmbedder.from_wordllama()
        assert before.space != after.space
        assert not np.array_equal(embed(before, "cat"), embed(after, "cat"))

    def test_a_package_without_its_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A package of that name with other contents is not used; the error says what to install."""
        table, _ = wordllama_package(tmp_path)
        table.unlink()
        monkeypatch.syspath_prepend(tmp_path)
        assert find_wordllama() is None
        with pytest.raises(EmbeddingError, match=r"is not installed: pip install 'holdfast-memory\[local\]'"):
            StaticEmbedder.from_wordllama()


@pytest.mark.skipif(importlib.util.find_spec("wordllama") is None, reason="the package wordllama is not installed")
def test_real_weights_relate_words_by_meaning() -> None:
    """The weights in wordllama put a question nearest to the passage that answers it, and stay unimported."""
    embedder = StaticEmbedder.from_wordllama()
    passages = [
        "We deploy to Frankfurt since the latency was too high.",
        "My kitten sleeps on the sofa all day.",
        "Revenue rose by four percent in the last quarter.",
    ]
    questions = ["which region do the servers run in", "where does the cat nap", "how much did sales grow"]
    near = embed(embedder, *questions) @ embed(embedder, *passages).T
    assert near.argmax(axis=1).tolist() == [0, 1, 2]
    assert embedder.space.dimension == 256
    assert "wordllama" not in sys.modules


class TestEnglish:
    """The model that is part of Holdfast."""

    def test_it_relates_words_of_one_meaning(self) -> None:
        """Questions in other words find what they ask for."""
        passages = [
            "We keep backups for 35 days, then they are deleted.",
            "The broker is RabbitMQ, since the team knows it.",
            "Sign-in uses one-time codes by mail.",
            "My kitten sleeps on the sofa all day.",
        ]
        questions = [
            "how far into the past can we restore the database",
            "which message queue do we run",
            "how do users authenticate",
            "where does the cat nap",
        ]
        near = embed(StaticEmbedder.english(), *questions) @ embed(StaticEmbedder.english(), *passages).T
        assert near.argmax(axis=1).tolist() == [0, 1, 2, 3]

    def test_text_of_other_scripts_has_no_vector(self) -> None:
        """Vectors of pieces that were not trained would be noise next to those of the other model."""
        vectors = embed(
            StaticEmbedder.english(), "备份保留三十五天。", "バックアップは三十五日間です。", "백업", "日志 backup"
        )
        assert vectors.any(axis=1).tolist() == [False, False, False, True]

    def test_it_is_loaded_once(self) -> None:
        """Programs open an engine for each of their requests."""
        assert StaticEmbedder.english() is StaticEmbedder.english()
