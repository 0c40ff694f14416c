"""Texts encoded by chunks have the tokens of the whole text; tokenizers that do not allow it encode whole texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from holdfast.embed import tokenizer
from holdfast.embed.base import clean
from holdfast.embed.static import ENGLISH, ENGLISH_FOLDER, WORDLLAMA, find_wordllama
from holdfast.embed.tokenizer import TEXTS_BEFORE_CHUNKS, ChunkTokenizer, find_chunk_rules, load_tokenizer
from support.cases import each
from support.strategies import examples

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


def definition(tokenizer: Tokenizer) -> dict[str, Any]:
    """What stands in the tokenizer's file."""
    read: dict[str, Any] = json.loads(tokenizer.to_str())
    return read


def chunked(source: Tokenizer) -> ChunkTokenizer:
    """A tokenizer that must allow chunks."""
    made = ChunkTokenizer(source)
    assert made.chunk_rules is not None
    return made


def check_same(made: ChunkTokenizer, text: str) -> None:
    """The tokens by chunks are those of the whole text."""
    assert list(made.encode_by_chunks(text)) == list(made.encode(text))


def installed() -> dict[str, Path]:
    """The tokenizers of the models on this machine."""
    english = {ENGLISH: ENGLISH_FOLDER / "tokenizer.json"}
    files = find_wordllama()
    return english | ({WORDLLAMA: files[1]} if files else {})


TINY = {
    "pieces": pieces(),
    "pieces without bytes": pieces(byte_fallback=False),
    "pieces that keep every unknown": pieces(byte_fallback=False, fuse_unk=False),
    "bert": bert(),
    "bert with accents": bert(strip_accents=False, lowercase=False),
    "bert with controls": bert(clean_text=False),
}


class TestSame:
    """The tokens are those of the whole text."""

    @pytest.mark.parametrize("name", TINY)
    def test_any_text_of_any_tokenizer(self, name: str) -> None:
        """Whatever stands in a text, cutting it changes nothing, the first time and later."""
        made = chunked(TINY[name])

        @given(text=TEXTS)
        @settings(max_examples=examples(100))
        def check(text: str) -> None:
            check_same(made, text)
            check_same(made, text)

        check()

    @pytest.mark.parametrize("name", [ENGLISH, WORDLLAMA])
    def test_any_text_of_a_real_tokenizer(self, name: str) -> None:
        """The tokenizers of the default models allow chunks, and nothing changes for them either."""
        path = installed().get(name)
        if path is None:
            pytest.skip(f"the model {name} is not installed")
        made = chunked(Tokenizer.from_file(str(path)))

        @given(text=TEXTS)
        @settings(max_examples=examples(150))
        def check(text: str) -> None:
            check_same(made, text)

        check()

    @pytest.mark.parametrize("text", ["", "x <s>y", "ab [SEP] ab", "<unk>", "a a.b c"])
    @pytest.mark.parametrize("name", ["pieces", "bert"])
    def test_special_tokens_keep_a_text_whole(self, name: str, text: str) -> None:
        """A special token in a text changes what stands next to it, so such a text is not cut."""
        made = chunked(TINY[name])
        check_same(made, text)
        assert not made._cache

    def test_a_special_token_over_two_chunks(self) -> None:
        """Two chunks that would be a special token if they were joined are encoded on their own."""
        made = chunked(bert(special=["a.b"]))
        check_same(made, "a .b")
        assert list(made.encode_by_chunks("a b"))

    def test_spaces_and_their_sign_are_one(self) -> None:
        """A text may hold the sign for a space; it merges as a space does."""
        made = chunked(TINY["pieces"])
        for text in ("a▁ b", "a ▁b", "▁▁a", " ▁", "a ", "  a", "a  ", "▁"):
            check_same(made, text)


class TestCache:
    """What is cached."""

    def test_known_chunks_are_not_encoded_again(self) -> None:
        """A text of known chunks adds nothing to the cache, in whatever order they stand."""
        made = chunked(TINY["pieces"])
        made.encode_by_chunks("ab, c 12\n ab")
        known = dict(made._cache)
        check_same(made, "ab 12, c, ab\n")
        assert made._cache == known

    @pytest.mark.parametrize(("name", "long"), [("bert", "x" * 41), ("pieces", "😀" * 11)])
    def test_long_chunks_are_not_cached(self, name: str, long: str) -> None:
        """What rarely repeats, or has many tokens, is encoded each time."""
        made = chunked(TINY[name])
        for _ in range(2):
            check_same(made, f"ab,{long}\nab")
        assert made._cache
        assert all(long not in chunk for chunk in made._cache)

    def test_the_cache_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However many words are seen, few are kept, and the tokens stay right."""
        monkeypatch.setattr(tokenizer, "MAX_CACHED_CHUNKS", 10)
        made = chunked(TINY["bert"])
        for at in range(200):
            check_same(made, f"ab. {at} {at + 1}, {at % 7}")
            assert len(made._cache) <= 10

    def test_threads_may_share_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Threads that fill and empty the cache at once get the same tokens as one alone."""
        monkeypatch.setattr(tokenizer, "MAX_CACHED_CHUNKS", 20)
        made = chunked(TINY["pieces"])
        texts = [f"ab {at % 90}. c{at % 7} ba" for at in range(1500)]
        with ThreadPoolExecutor(4) as pool:
            tokens = [list(ids) for ids in pool.map(made.encode_by_chunks, texts)]
        assert tokens == [made.encode(text) for text in texts]


def changed(tokenizer: Tokenizer, part: str, **fields: Any) -> dict[str, Any]:
    """A tokenizer's definition with one part of it changed."""
    read = definition(tokenizer)
    read[part] = (read[part] or {}) | fields
    return read


class TestWhole:
    """Tokenizers whose texts stay whole."""

    @each("piece", ["a▁", "a1", "1a", "▁1", "a.", ".a", "\n\n", "▁\n", "中a", "中中", "▁中"])
    def test_pieces_over_a_cut(self, piece: str) -> None:
        """One piece that reaches over a place where texts would be cut is enough."""
        assert find_chunk_rules(definition(pieces())) is not None
        assert find_chunk_rules(definition(pieces([*MERGED, piece]))) is None

    def test_merges_in_either_spelling(self) -> None:
        """Older files write a merge as one string."""
        for merged, allowed in ((MERGED, True), ([*MERGED, "a▁"], False)):
            read = definition(pieces(merged))
            read["model"]["merges"] = [" ".join(pair) for pair in read["model"]["merges"]]
            assert (find_chunk_rules(read) is not None) == allowed

    @each(
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
        assert find_chunk_rules(read) is None

    def test_texts_of_other_tokenizers_are_encoded_whole(self) -> None:
        """Without rules the tokens are those of the whole text."""
        made = ChunkTokenizer(pieces([*MERGED, "a▁"]))
        assert made.chunk_rules is None
        check_same(made, "a a b")


def test_the_first_texts_and_the_later_ones_have_the_same_tokens(tmp_path: Path) -> None:
    """The first texts are encoded whole, the later ones by chunks."""
    pieces().save(str(tmp_path / "tokenizer.json"))
    made = ChunkTokenizer(load_tokenizer(tmp_path / "tokenizer.json", provider="static", extra="local"))
    texts = ["ab, c 12\n", "x é”a  b", "<s>ab", ""]
    first = [list(made(text)) for text in texts]
    assert "_cache" not in made.__dict__
    for _ in range(TEXTS_BEFORE_CHUNKS):
        made("ab")
    assert [list(made(text)) for text in texts] == first
    assert first[0]
    assert made._cache
