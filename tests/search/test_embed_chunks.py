"""Texts cut into chunks have the tokens of the whole, and tokenizers that do not allow it are left alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from holdfast.search.embed import SHIPPED, chunks
from holdfast.search.embed.base import clean
from holdfast.search.embed.chunks import Tokenize, by_chunks, chunking
from holdfast.search.embed.download import models_folder
from holdfast.search.embed.pieces import TEXTS_BEFORE_CHUNKS, tokenizer_ids

SPECIAL = ["<unk>", "<s>", "[SEP]", "a.b"]
LETTERS = ["\n", "▁", "a", "b", "c", "B", ".", ",", "\r", "'", "1", "2", "é", "”", "中", "か", "な"]
MERGED = ["▁▁", "▁a", "ab", "▁ab", "▁▁b", "bc", "▁.", "..", ".,", ".\r", "12", "21", ".”", "”a", "aé", "かな", "▁か"]
NASTY = [
    *("a", "ab", "abc", "B", "é", "e\u0301", "\u0338", "İ", "ß", "Σ", "ﬁ", "naïve", "don’t", "”", "«", "²", "①"),
    *(" ", "  ", "   ", "\n", "\r\n", "\n\n", "\t", "\x0b", "\x0c", "\x00", "\x1c", "\x7f", "\x85", "\xa0", "\u3000"),
    *(".", "..", "...", ",", "'", "-", "_", "();", "});\r", "<", ">", "[", "]", "~", "|", "\\", "^", "`"),
    *("1", "12", "2024", "٣", "中", "中文", "㐀", "﨑", "𠀀", "か", "かな", "カ", "한국", "ไทย", "हिन्दी", "😀"),
    *("▁", "▁▁", "<0x0A>", "<s>", "</s>", "<unk>", "[SEP]", "[UNK]", "[CLS]", "SEP", "a.b", "\ufffd", "\ufeff"),
    *("\ud83d\ude00", "\ud800", "\u200b", "\u200d", "\u202e", "x" * 45, "y" * 120, "aGVsbG8gd29ybGQ=" * 4),
]
ANY = st.text(alphabet=st.characters(exclude_categories=()), max_size=30)
TEXTS = st.lists(st.sampled_from(NASTY) | ANY, max_size=25).map("".join).map(clean)


def pieces(merged: Sequence[str] = MERGED, *, letters: Sequence[str] = LETTERS, **options: Any) -> Tokenizer:
    """A tokenizer that merges whole texts, as Llama's does."""
    made: dict[str, tuple[str, str]] = {}
    known = [*SPECIAL[:2], *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    for piece in merged:
        cut = max(at for at in range(1, len(piece)) if piece[:at] in known or at == 1)
        known += [part for part in (piece[:cut], piece[cut:], piece) if part not in known]
        made[piece] = piece[:cut], piece[cut:]
    options = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True} | options
    tokenizer = Tokenizer(models.BPE({piece: at for at, piece in enumerate(known)}, list(made.values()), **options))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def bert(*, special: Sequence[str] = SPECIAL, marks: str = ".,'<>[]()", **options: Any) -> Tokenizer:
    """A tokenizer that cuts words as Bert's does."""
    parts = ["<unk>", *"abcdefghijklmnopqrstuvwxyz0123456789é中文か한", "ab", "x" * 20, "İ", "😀"]
    known = dict.fromkeys([*parts, *marks, *(f"##{part}" for part in [*parts, "\u0301", "\u0338"])])
    model = models.WordPiece({piece: at for at, piece in enumerate(known)}, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(**options)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(list(special))
    return tokenizer


def plain(tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    """The tokens of whole texts without the unknown one."""
    unknown = tokenizer.token_to_id(tokenizer.model.unk_token)
    return lambda text: [at for at in tokenizer.encode(text, add_special_tokens=False).ids if at != unknown]


def definition(tokenizer: Tokenizer) -> dict[str, Any]:
    """What stands in the tokenizer's file."""
    read: dict[str, Any] = json.loads(tokenizer.to_str())
    return read


class Counted:
    """Whole texts' tokens, and how often they were asked for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.encode = plain(tokenizer)
        self.texts: list[str] = []

    def __call__(self, text: str) -> list[int]:
        self.texts.append(text)
        return self.encode(text)


def cut(tokenizer: Tokenizer) -> tuple[Callable[[str], list[int]], Tokenize]:
    """A tokenizer's tokens of whole texts, and by chunks, which it must allow."""
    encode = plain(tokenizer)
    chunked = by_chunks(encode, definition(tokenizer))
    assert chunked is not encode
    return encode, chunked


def installed() -> dict[str, Path]:
    """The tokenizers of the models on this machine."""
    found = {shipped.name: files[1] for shipped in SHIPPED if (files := shipped.files()) and files[1].suffix == ".json"}
    folders = {path.parent.name: path for path in models_folder().glob("potion-base-*/tokenizer.json")}
    return folders | found


TINY = {
    "pieces": pieces(),
    "pieces without bytes": pieces(byte_fallback=False),
    "pieces that keep every unknown": pieces(byte_fallback=False, fuse_unk=False),
    "bert": bert(),
    "bert with accents": bert(strip_accents=False, lowercase=False),
    "bert with controls": bert(clean_text=False),
}


class TestSame:
    """The tokens are those of the whole."""

    @pytest.mark.parametrize("name", TINY)
    def test_any_text_of_any_tokenizer(self, name: str) -> None:
        """Whatever stands in a text, cutting it changes nothing, at first sight or later."""
        encode, chunked = cut(TINY[name])

        @given(text=TEXTS)
        @settings(max_examples=100)
        def check(text: str) -> None:
            assert list(chunked(text)) == encode(text)
            assert list(chunked(text)) == encode(text)

        check()

    @pytest.mark.parametrize("name", ["wordllama-l2-supercat-256", "potion-base-8M"])
    def test_any_text_of_a_real_tokenizer(self, name: str) -> None:
        """The models that are in use allow it, and nothing changes for them either."""
        path = installed().get(name)
        if path is None:
            pytest.skip(f"the model {name} is not installed")
        encode, chunked = cut(Tokenizer.from_file(str(path)))

        @given(text=TEXTS)
        @settings(max_examples=150)
        def check(text: str) -> None:
            assert list(chunked(text)) == encode(text)

        check()

    @pytest.mark.parametrize("text", ["", "x <s>y", "ab [SEP] ab", "<unk>", "a a.b c"])
    @pytest.mark.parametrize("name", ["pieces", "bert"])
    def test_special_tokens_keep_a_text_whole(self, name: str, text: str) -> None:
        """A special token in a text changes what stands beside it, so such a text is not cut."""
        encode = Counted(TINY[name])
        chunked = by_chunks(encode, definition(TINY[name]))
        assert list(chunked(text)) == encode.encode(text)
        assert encode.texts[-1] == text

    def test_a_special_token_that_marks_would_make(self) -> None:
        """Chunks that would become a special token with the mark between them are encoded as they stand."""
        encode, chunked = cut(bert(special=[".a.b"]))
        assert list(chunked("a b")) == encode("a b") != []

    def test_blanks_and_their_sign_are_one(self) -> None:
        """A text may hold the sign for a blank; it merges as a blank does."""
        encode, chunked = cut(TINY["pieces"])
        for text in ("a▁ b", "a ▁b", "▁▁a", " ▁", "a ", "  a", "a  ", "▁"):
            assert list(chunked(text)) == encode(text)


class TestMemory:
    """What is remembered."""

    def test_known_chunks_are_not_encoded_again(self) -> None:
        """A text of known chunks costs no encoding, in whatever order they stand."""
        encode = Counted(TINY["pieces"])
        chunked = by_chunks(encode, definition(TINY["pieces"]))
        chunked("ab, c 12")
        encode.texts.clear()
        assert list(chunked("ab 12, c, ab\n")) == encode.encode("ab 12, c, ab\n")
        assert encode.texts == []

    @pytest.mark.parametrize(("name", "long"), [("bert", "x" * 41), ("pieces", "😀" * 11)])
    def test_long_chunks_are_not_remembered(self, name: str, long: str) -> None:
        """What hardly comes again, or has many tokens, is encoded each time."""
        encode = Counted(TINY[name])
        chunked = by_chunks(encode, definition(TINY[name]))
        for _ in range(2):
            encode.texts.clear()
            assert list(chunked(f"ab,{long}\nab")) == encode.encode(f"ab,{long}\nab")
            assert len(encode.texts) == 1
        assert len(encode.texts[0]) <= len(long) + 2

    def test_only_so_much_is_remembered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However many words are seen, few are kept, and the tokens stay right."""
        monkeypatch.setattr(chunks, "CHUNKS_REMEMBERED", 10)
        encode, chunked = cut(TINY["bert"])
        for at in range(200):
            text = f"ab. {at} {at + 1}, {at % 7}"
            assert list(chunked(text)) == encode(text)
            assert len(chunked._known) < 10 + 6  # type: ignore[attr-defined]

    def test_threads_may_share_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Threads that learn and forget at once find the same as one alone."""
        monkeypatch.setattr(chunks, "CHUNKS_REMEMBERED", 20)
        encode, chunked = cut(TINY["pieces"])
        texts = [f"ab {at % 90}. c{at % 7} ba" for at in range(1500)]
        with ThreadPoolExecutor(4) as pool:
            found = [list(ids) for ids in pool.map(chunked, texts)]
        assert found == [encode(text) for text in texts]


def changed(tokenizer: Tokenizer, part: str, **fields: Any) -> dict[str, Any]:
    """A tokenizer's definition with one part of it changed."""
    read = definition(tokenizer)
    read[part] = (read[part] or {}) | fields
    return read


class TestRefused:
    """Tokenizers whose texts stay whole."""

    @pytest.mark.parametrize("piece", ["a▁", "a1", "1a", "▁1", "a.", ".a", "\n\n", "▁\n", "中a", "中中", "▁中"])
    def test_pieces_over_a_cut(self, piece: str) -> None:
        """One piece that reaches over a place where texts would be cut is enough."""
        assert chunking(definition(pieces())) is not None
        assert chunking(definition(pieces([*MERGED, piece]))) is None

    def test_merges_in_either_spelling(self) -> None:
        """Older files write a merge as one string."""
        for merged, allowed in ((MERGED, True), ([*MERGED, "a▁"], False)):
            read = definition(pieces(merged))
            read["model"]["merges"] = [" ".join(pair) for pair in read["model"]["merges"]]
            assert (chunking(read) is not None) == allowed

    @pytest.mark.parametrize(
        "read",
        [
            changed(pieces(), "model", dropout=0.1),
            changed(pieces(), "model", ignore_merges=True),
            changed(pieces(), "model", continuing_subword_prefix="##"),
            changed(pieces(), "model", unk_token=None),
            changed(pieces(), "model", type="Unigram"),
            changed(pieces(), "normalizer", type="NFKC"),
            changed(pieces(), "pre_tokenizer", type="Metaspace"),
            changed(bert(), "normalizer", handle_chinese_chars=False),
            changed(bert(), "normalizer", type="Lowercase"),
            changed(bert(), "pre_tokenizer", type="Whitespace"),
            changed(bert(), "model", type="WordLevel"),
            definition(bert()) | {"normalizer": None},
            definition(bert()) | {"added_tokens": [{"content": "x", "normalized": True}]},
        ],
    )
    def test_anything_unusual(self, read: dict[str, Any]) -> None:
        """What is not known to be exact is not done."""
        assert chunking(read) is None
        encode = plain(pieces())
        assert by_chunks(encode, read) is encode

    def test_a_mark_that_is_unknown(self) -> None:
        """Chunks cannot be told apart by a character that has no token."""
        for tokenizer in (bert(marks=","), pieces(letters=LETTERS[1:], byte_fallback=False)):
            encode = plain(tokenizer)
            assert chunking(definition(tokenizer)) is not None
            assert by_chunks(encode, definition(tokenizer)) is encode


def test_a_file_is_read_by_chunks_in_time(tmp_path: Path) -> None:
    """The first texts of a tokenizer and the later ones have the same tokens."""
    pieces().save(str(tmp_path / "tokenizer.json"))
    tokenize = tokenizer_ids(tmp_path / "tokenizer.json", extra="local")
    texts = ["ab, c 12\n", "x é”a  b", "<s>ab", ""]
    first = [list(tokenize(text)) for text in texts]
    for _ in range(TEXTS_BEFORE_CHUNKS):
        tokenize("ab")
    assert [list(tokenize(text)) for text in texts] == first
    assert first[0]
