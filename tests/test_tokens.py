"""How many tokens."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from holdfast.errors import InputError, MissingExtraError
from holdfast.messages import (
    Image,
    Message,
    Opaque,
    Part,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from holdfast.tokens import (
    FILE_CHARACTERS,
    IMAGE_TOKENS,
    MESSAGE_TOKENS,
    TOOL_TOKENS,
    count_json,
    count_message,
    count_messages,
    count_part,
    count_text,
    count_thirds,
    counter,
)
from support.cases import each


def words(text: str) -> int:
    """A counter that can be checked by eye."""
    return len(text.split())


class TestCountText:
    """The estimate, and the older rule."""

    @each(
        ("text", "least", "most"),
        [
            ("", 0, 0),
            ("a", 1, 2),
            ("The meeting was moved to Thursday.", 7, 10),
            ("签名验证失败", 5, 9),
            ("がカー", 3, 4),
            ("한국어", 3, 4),
            ("👍", 1, 4),
            ("\ud800", 1, 3),
            ("修复 bug", 3, 5),
            ("9f86d081884c7d659a2feaa0c55ad015", 19, 40),
            ("1715000123456", 5, 15),
        ],
    )
    def test_it_is_near_what_tokenizers_count(self, text: str, least: int, most: int) -> None:
        """Words, scripts, hexadecimal and digits each have weights of their own."""
        assert least <= count_text(text, family="gpt") <= most
        assert least <= count_text(text) <= most

    def test_a_long_text_is_weighed_in_steps(self) -> None:
        """The count does not depend on where a step ends."""
        text = "a line of words, 12345\n" * 100_000
        assert abs(count_text(text) - 100_000 * count_text(text[:23]) * 0.9) < 0.15 * count_text(text)
        assert count_text(text) <= 100_000 * count_text(text[:23])

    @each(
        ("text", "tokens"),
        [
            ("", 0),
            ("a", 1),
            ("abc", 1),
            ("abcd", 2),
            ("naïve café", 4),
            ("“quoted” – words", 6),
            ("签名验证失败", 6),
            ("がカー", 3),
            ("한국어", 3),
            ("ＡＢＣ", 3),
            ("、。「」", 4),
            ("𠀀", 2),
            ("привет", 4),
            ("👍", 2),
            ("\ud800", 1),
            ("修复 bug", 4),
        ],
    )
    def test_thirds_charge_a_third_of_a_token_for_each_latin_letter_and_a_whole_one_for_cjk(
        self, text: str, tokens: int
    ) -> None:
        """Other scripts count by their bytes in UTF-8."""
        assert count_thirds(text) == tokens
        assert counter("thirds")(text) == tokens


class TestCountParts:
    """Messages, and what they are made of."""

    @each(
        ("part", "tokens"),
        [
            (Text(text="one two"), 2),
            (Thinking(text="one two", signature="long"), 2),
            (RedactedThinking(data="one"), 1),
            (ToolCall(id="c", name="run it", arguments="ls -la"), TOOL_TOKENS + 2 + 2),
            (ToolCall(id="c", name="run", arguments={"a": "b c"}), TOOL_TOKENS + 1 + 2),
            (ToolResult(call_id="c", content=(Text(text="a b"), Image())), TOOL_TOKENS + 2 + IMAGE_TOKENS),
            (Image(data="x" * 10_000_000), IMAGE_TOKENS),
            (Opaque(kind="k", data={"a": "b c"}), 2),
        ],
    )
    def test_each_kind_of_part_has_its_rule(self, part: Part, tokens: int) -> None:
        """By the counter in force; an image costs the same whatever its bytes are."""
        assert count_part(part, count=words) == tokens

    def test_a_conversation_is_the_sum_of_its_messages(self) -> None:
        """Each costs something next to its parts."""
        message = Message(role="user", parts=(Text(text="one two"), Text(text="three")))

        assert count_message(message, count=words) == MESSAGE_TOKENS + 3
        assert count_messages([message, message], count=words) == 2 * (MESSAGE_TOKENS + 3)
        assert count_messages([]) == 0
        assert count_message(Message(role="user", parts=())) == MESSAGE_TOKENS

    def test_json_is_counted_as_a_provider_writes_it(self) -> None:
        """Without spaces, and CJK as itself, not as escapes."""
        assert count_json({"a": [1, None]}, count=len) == len('{"a":[1,null]}')
        assert count_json("签", count=len) == 3

    @pytest.mark.parametrize(
        "wrap",
        [
            lambda data: {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": data},
            },
            lambda data: {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{data}"}},
            lambda data: {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
            lambda data: {"type": "list", "items": [{"data": data}]},
        ],
    )
    def test_a_file_inside_of_an_opaque_part_counts_as_a_file(self, wrap: Callable[[str], Any]) -> None:
        """A document's bytes are not its words."""
        data = "QUJD" * 30_000

        counted = count_part(Opaque(kind="document", data=wrap(data)))

        assert len(data) // FILE_CHARACTERS <= counted < len(data) // FILE_CHARACTERS + 100

    @pytest.mark.parametrize(
        "part",
        [
            ToolCall(id="c", name="write", arguments={"data": "word " * 20_000}),
            ToolCall(id="c", name="write", arguments={"data": "QUJD" * 25_000}),
            Opaque(kind="note", data={"data": "word " * 20_000}),
            Opaque(kind="search", data={"encrypted_content": "QUJD" * 25_000}),
        ],
    )
    def test_words_are_words_under_any_key(self, part: Part) -> None:
        """A tool that takes `data`, or text that is no file, is not counted short."""
        assert count_part(part) >= 100_000 // 5


@pytest.fixture
def tokenizer_file(tmp_path: Path) -> Path:
    """A tokenizer that knows two words."""
    tokenizer = Tokenizer(WordLevel({"hello": 0, "world": 1, "[UNK]": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture
def without_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which no tokenizer is installed."""
    found = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name in {"tiktoken", "tokenizers"}:
            raise ImportError(name)
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)


class TestCounter:
    """Counters by name."""

    def test_the_estimate_is_the_default(self) -> None:
        """It needs nothing."""
        assert counter() is counter("estimate") is counter("estimate:any") is count_text

    @pytest.mark.parametrize(
        ("model", "family"),
        [
            ("openai/gpt-5.1", "gpt"),
            ("gpt-4o-mini", "gpt"),
            ("openai/o3", "gpt"),
            ("gpt-4", "any"),
            ("claude-opus-4-5", "any"),
            ("qwen/qwen3-coder", "any"),
            (None, "any"),
        ],
    )
    def test_the_estimate_follows_the_model(self, model: str | None, family: str) -> None:
        """A model whose tokenizer is not known gets the most that any needs."""
        assert counter("estimate", model=model) is counter(f"estimate:{family}")

    @pytest.mark.parametrize("name", ["", "gpt", "tokenizers", "tokenizers:"])
    def test_an_unknown_counter_is_refused(self, name: str) -> None:
        """The error lists the counters there are."""
        with pytest.raises(InputError, match="thirds, tiktoken:ENCODING, tokenizers:FILE"):
            counter(name)

    def test_a_tokenizer_file_is_used(self, tokenizer_file: Path) -> None:
        """Real tokens, half surrogates or not."""
        count = counter(f"tokenizers:{tokenizer_file}")

        assert [count(text) for text in ("", "hello world", "hello \ud800 there")] == [0, 2, 3]

    @pytest.mark.parametrize("content", [None, b"\xff\xfe", b"not json", b"[]", b'{"version": "1.0"}'])
    def test_a_file_that_is_no_tokenizer_is_refused(self, tmp_path: Path, content: bytes | None) -> None:
        """The error names the file."""
        path = tmp_path / "t.json"
        if content is not None:
            path.write_bytes(content)

        with pytest.raises(InputError, match=r"t\.json"):
            counter(f"tokenizers:{path}")

    @pytest.mark.usefixtures("without_extras")
    @pytest.mark.parametrize("extra", ["tiktoken", "tokenizers"])
    def test_a_missing_extra_is_an_error_with_the_command(self, extra: str) -> None:
        """The line to type is in the error."""
        with pytest.raises(MissingExtraError, match=rf"pip install 'holdfast-memory\[{extra}\]'"):
            counter(f"{extra}:x")

    def test_an_encoding_that_tiktoken_does_not_know_is_refused(self) -> None:
        """Its own errors do not get through."""
        with pytest.raises(InputError, match="no encoding 'klingon_base'"):
            counter("tiktoken:klingon_base")

    def test_tables_that_cannot_be_fetched_are_an_error_of_ours(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without a network, the one who asked is told, not shown a trace of sockets."""
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))

        with pytest.raises(InputError, match="gpt2"):
            counter("tiktoken:gpt2")

    def test_tiktoken_counts_real_tokens(self) -> None:
        """Where its tables are at hand."""
        try:
            count = counter("tiktoken:o200k_base")
        except InputError as error:
            pytest.skip(f"the tables of tiktoken cannot be had here: {error}")

        assert [count(text) for text in ("", "hello world", "<|endoftext|> \ud800")][:2] == [0, 2]


def test_the_counter_of_a_file_reads_it_once(tokenizer_file: Path) -> None:
    """A counter continues counting when its file is gone."""
    count = counter(f"tokenizers:{tokenizer_file}")
    assert "hello" in json.loads(tokenizer_file.read_text())["model"]["vocab"]
    tokenizer_file.unlink()

    assert count("hello") == 1
