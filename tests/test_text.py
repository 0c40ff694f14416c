"""Terms, cuts and digests of text."""

from __future__ import annotations

import threading
import unicodedata

import pytest

from holdfast.text import (
    clip,
    digest,
    head,
    is_unsegmented,
    percent,
    repeats_itself,
    shorten_number,
    tail,
    term_spans,
    terms,
)
from support.cases import each

FAMILY = "👨‍👩‍👧"


class TestWords:
    """Words of scripts that put spaces between them."""

    def test_words_are_stemmed_and_stop_words_left_out(self) -> None:
        """A question finds a passage that bends its words otherwise."""
        assert terms("The servers were connecting") == ["server", "connect"]
        assert terms("Which server is connected?") == ["server", "connect"]

    def test_words_count_as_often_as_they_occur(self) -> None:
        """Ranking needs to know how often."""
        assert terms("cache, cache; Cache") == ["cach"] * 3

    @each(
        ("one", "other"),
        [
            ("HTTP", "http"),
            ("Straße", "STRASSE"),
            ("ΟΔΟΣ", "οδος"),
            ("ｓｅｒｖｅｒ", "server"),
            ("ﬁle", "file"),
            ("café", "cafe"),
            ("cafe\u0301", "café"),
            ("ДАННЫЕ", "данные"),
            ("हिन्दी", "हिन्दी"),
        ],
    )
    def test_case_width_and_accents_do_not_count(self, one: str, other: str) -> None:
        """Both spellings have the same terms."""
        assert terms(one) == terms(other) != []

    def test_other_alphabets_have_words_too(self) -> None:
        """Cyrillic is stemmed; marks do not break a word of Arabic, Hebrew or Hindi."""
        assert terms("серверами") == terms("сервера")
        assert len(terms("हिन्दी में")) == 2
        assert len(terms("שָׁלוֹם مَرْحَبًا")) == 2

    @each("sign", ["\u2014", "\u2026", "\u201c", "\u2192", "\U0001f600", "\u200d", "\ud800", "\u00a0", "\x1f"])
    def test_signs_separate_words_and_are_no_terms(self, sign: str) -> None:
        """A dash, a quote or an emoji counts as a blank, in any script."""
        for left, right in (("caches", "a.b-c/"), ("caf\u00e9", "./x"), ("\u8bc1\u4e66", "\u5230\u671f")):
            assert terms(f"{left}{sign}{right}") == terms(left) + terms(right) == terms(f"{left} {right}")

    def test_separators_count_inside_of_words_only(self) -> None:
        """A full stop at the end of a sentence is no part of its last word."""
        assert terms("-see src/a_b.py.") == terms("see src/a_b.py") == ["see", "src/a_b.py", "src", "py"]
        assert terms("x1..y2 .-x1-/y2") == terms("x1 y2 x1 y2")

    def test_separators_alone_are_no_terms(self) -> None:
        """Rules and underlines say nothing."""
        assert terms("_ __ --- ... /// .-/_ ` ~ 。、「」・") == []

    def test_every_thread_may_ask(self) -> None:
        """Stemmers have inner state, so each thread has its own."""
        found: list[list[str]] = []
        threads = [threading.Thread(target=lambda: found.append(terms("runners running"))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert found == [["runner", "run"]] * 4


class TestIdentifiers:
    """Names in code."""

    @each(
        ("token", "found"),
        [
            ("putUserName", ("putusername", "put", "user", "name")),
            ("HTTPServer2", ("httpserver2", "http", "server")),
            ("verify_webhook_signature", ("verify_webhook_signature", "verifi", "webhook", "signatur")),
            ("src/app/main.py", ("src/app/main.py", "src", "app", "main", "py")),
            ("re-run", ("re-run", "run")),
            ("sha256", ("sha256", "sha", "256")),
            ("__init__", ("__init__", "init")),
            ("v1.2.3", ("v1.2.3",)),
            ("x", ("x",)),
            ("_", ()),
            ("the", ()),
        ],
    )
    def test_a_name_counts_whole_and_in_parts(self, token: str, found: tuple[str, ...]) -> None:
        """Split at case, underscore, dot, slash, dash and digits."""
        assert tuple(terms(token)) == found

    def test_a_name_of_many_words_is_split_as_well(self) -> None:
        """Long names are what people search for."""
        name = "createUserAccountFromInvitationAndSendWelcomeMessageNow"

        assert {"user", "account", "invit", "welcom", "messag"} <= set(terms(name))

    def test_hashes_are_not_broken_into_crumbs(self) -> None:
        """An id is found whole, and by its dashed groups."""
        assert tuple(terms("3f2a9b1c4d5e6f7a8b9c0d1e2f3a4b5c6d7e8f90")) == ("3f2a9b1c4d5e6f7a8b9c0d1e2f3a4b5c6d7e8f90",)
        assert tuple(terms("550e8400-e29b-41d4-a716-446655440000")) == (
            "550e8400-e29b-41d4-a716-446655440000",
            "550e8400",
            "e29b",
            "41d4",
            "a716",
            "446655440000",
        )

    def test_what_is_too_long_is_found_by_its_beginning(self) -> None:
        """A digest of 128 characters can be searched for, and a path by its parts."""
        long = "0f" * 64

        assert tuple(terms(long)) == (long[:64],)
        assert tuple(terms("/".join(["folder"] * 20))) == ("folder",) * 20

    def test_separators_of_full_width_separate(self) -> None:
        """Identifiers written in a Japanese text are the same identifiers."""
        assert terms("ｓｒｃ／ｍａｉｎ．ｐｙ") == terms("src/main.py")


class TestCharacters:
    """Scripts that are searched by characters and pairs."""

    def test_characters_and_pairs(self) -> None:
        """In the order in which they stand."""
        assert terms("签名验证") == ["签", "签名", "名", "名验", "验", "验证", "证"]
        assert terms("修复bug了") == ["修", "修复", "复", "bug", "了"]

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("ｶﾞｷﾞ", "ガギ"),
            ("か\u3099", "が"),
            (unicodedata.normalize("NFD", "한글"), "한글"),
            ("㍿", "株式会社"),
            ("㈱", "株"),
            ("\ufa19", "神"),
            ("⼈", "人"),
        ],
    )
    def test_variants_of_width_and_composition_do_not_count(self, one: str, other: str) -> None:
        """Half-width kana, decomposed Hangul, squared and compatibility characters."""
        assert terms(one) == terms(other)

    @pytest.mark.parametrize(
        "name", ["CJK UNIFIED", "CJK COMPATIBILITY IDEO", "HIRAGANA LETTER", "KATAKANA LETTER", "HANGUL"]
    )
    def test_every_character_can_be_found(self, name: str) -> None:
        """Each has a term, alone and inside a word."""
        points = (*range(0x1100, 0x3400), *range(0x3400, 0xFB00, 7), *range(0x20000, 0x2FA20, 97))
        letters = [chr(point) for point in points]
        asked = [letter for letter in letters if unicodedata.name(letter, "").startswith(name) and letter.isalpha()]

        lost = [letter for letter in asked if not terms(letter) or not set(terms(letter)) <= set(terms(f"x{letter}y"))]

        assert asked
        assert lost == []

    def test_which_characters_these_are(self) -> None:
        """Han, kana, Hangul and the scripts of South-East Asia; not what stands between words."""
        assert all(is_unsegmented(character) for character in "漢かカ한ไใ々ー")
        assert not any(is_unsegmented(character) for character in "aäя1_。・ 　")
        assert not is_unsegmented("")


class TestSpans:
    """Where terms stand."""

    def test_words_and_characters_are_placed(self) -> None:
        """For highlighting what was found."""
        assert list(term_spans("the Server 签名")) == [
            (4, 10, ("server",)),
            (11, 12, ("签",)),
            (11, 13, ("签名",)),
            (12, 13, ("名",)),
        ]

    def test_a_variant_keeps_its_place(self) -> None:
        """Two half-width characters that are read as one have one place."""
        assert list(term_spans("xｶﾞ㍿")) == [
            (0, 1, ("x",)),
            (1, 3, ("ガ",)),
            (1, 4, ("ガ株",)),
            (3, 4, ("株",)),
            (3, 4, ("株式",)),
            (3, 4, ("式",)),
            (3, 4, ("式会",)),
            (3, 4, ("会",)),
            (3, 4, ("会社",)),
            (3, 4, ("社",)),
        ]


class TestHostileInput:
    """Text that is made to hurt. Quadratic work on so much would not come back."""

    @pytest.mark.variants
    @pytest.mark.parametrize(
        "unit",
        [
            "_",
            ".",
            "-",
            "/",
            "a.",
            "ab/",
            "a_",
            "A",
            "Aa",
            "1a",
            "._-/",
            "漢",
            "ｶﾞ",
            "\u0301",
            "e\u0301",
            "क्",
            "ㄱ",
            "\ud800",
            "`",
            "```\n",
        ],
    )
    @pytest.mark.untraced
    def test_much_of_one_thing_is_worked_through(self, unit: str) -> None:
        """Terms, cuts and clips take time in proportion."""
        text = unit * (250_000 // len(unit))

        assert len(terms(text)) <= 2 * len(text)

        part = text[:200_000]
        assert len(head(part, 120_001)) <= 120_001
        assert len(tail(part, 120_001)) <= 120_001
        assert len(clip(part, head=50_001, tail=50_001)) <= len(part)

    def test_long_tokens_are_not_remembered(self) -> None:
        """Memory is kept for words, not for blobs."""
        before = expand_cache_size()
        for size in range(100):
            terms("x" * (100_000 + size))

        assert expand_cache_size() == before

    def test_a_full_memory_of_words_starts_anew(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However many words there are, few are remembered, and all have their terms."""
        monkeypatch.setattr("holdfast.text._MAX_CACHED", 10)
        words = [f"zq{number}x" for number in range(50)]

        assert terms(" ".join(words)) == [term for word in words for term in terms(word)]
        assert expand_cache_size() <= 10


def expand_cache_size() -> int:
    """How many tokens are remembered."""
    from holdfast import text  # noqa: PLC0415

    return len(text._EXPANSIONS)


class TestHeadAndTail:
    """Cutting at one end."""

    @each(
        ("text", "limit", "first", "last"),
        [
            ("hello", 2, "he", "lo"),
            ("hello", 0, "", ""),
            ("hello", -3, "", ""),
            ("hello", 99, "hello", "hello"),
            ("", 3, "", ""),
            ("签名验证", 3, "签名验", "名验证"),
            ("a\r\nb", 2, "a", "b"),
            ("e\u0301e\u0301", 3, "e\u0301", "e\u0301"),
            (f"{FAMILY}!{FAMILY}", 7, f"{FAMILY}!", f"!{FAMILY}"),
            (f"{FAMILY}!{FAMILY}", 4, "", ""),
            ("🇩🇪🇫🇷", 3, "🇩🇪", "🇫🇷"),
            ("\u06001\u06001", 3, "\u06001", "\u06001"),
        ],
    )
    def test_what_is_read_as_one_character_is_not_cut(self, text: str, limit: int, first: str, last: str) -> None:
        """Emoji of several parts, flags, accents, line ends."""
        assert (head(text, limit), tail(text, limit)) == (first, last)

    def test_flags_are_counted_from_the_start(self) -> None:
        """In a long row of flags, which two letters make one depends on all before them."""
        flags = "🇩🇪" * 500

        assert head(flags, 601) == "🇩🇪" * 300
        assert tail(flags, 601) == "🇩🇪" * 300

    def test_a_character_longer_than_the_limit_is_left_out(self) -> None:
        """Half of it would be worse than nothing."""
        assert head("e" + "\u0301" * 5000, 4000) == ""
        assert tail("e" + "\u0301" * 5000, 4000) == ""


class TestClip:
    """Cutting out the middle."""

    def test_both_ends_stay(self) -> None:
        """With a marker between them."""
        assert clip("a" * 50 + "b" * 50, head=3, tail=2) == "aaa\n...\nbb"
        assert clip("a" * 50, head=3, tail=0, marker="[…]") == "aaa[…]"

    def test_what_would_not_get_shorter_stays_whole(self) -> None:
        """A clip never costs more than it saves."""
        assert clip("abcdefghij", head=3, tail=2) == "abcdefghij"
        fenced = "```\n" + "x" * 12
        assert clip(fenced, head=5, tail=4, marker="…") == fenced

    def test_an_open_fence_is_closed_and_opened_again(self) -> None:
        """What follows a cut is not taken for code, and code stays code."""
        text = "Look:\n```python\n" + "x = 1\n" * 50 + "```\nDone.\n"

        clipped = clip(text, head=30, tail=24)

        assert clipped == "Look:\n```python\nx = 1\nx = 1\nx \n```\n...\n```\n1\nx = 1\nx = 1\n```\nDone.\n"

    def test_a_cut_outside_of_code_adds_nothing(self) -> None:
        """Only open fences are closed."""
        text = "```\na\n```\n" + "words " * 50

        assert clip(text, head=20, tail=6) == text[:20] + "\n...\n" + "words "

    @pytest.mark.parametrize(
        "inside",
        ["```js\nnot the end\n", "~~~\nnot the end\n", "``\n", "    ```\n"],
    )
    def test_only_a_fence_of_its_own_kind_closes_one(self, inside: str) -> None:
        """As Markdown has it: same character, as long, nothing behind it, not indented as code."""
        clipped = clip("````\n" + inside + "x" * 100, head=40, tail=10)

        assert "\n````\n...\n````\n" in clipped

    def test_a_fence_is_not_cut_through(self) -> None:
        """Half a fence is none; the cut moves to before or behind its line."""
        text = "a\n```python\n" + "x" * 80 + "\n```\nz"

        assert clip(text, head=4, tail=4) == "a\n\n...\nz"

    def test_half_a_line_does_not_turn_into_a_fence(self) -> None:
        """Backticks that stood inside of a line do not begin one after the cut, nor end one before it."""
        assert clip("x" * 100 + "```py\nz", head=2, tail=7) == "xx\n...\nz"
        assert clip("```a`" + "x" * 100, head=4, tail=1) == "```a\n```\n...\nx"

    def test_three_backticks_in_a_line_of_words_are_no_fence(self) -> None:
        """Inline code may be written with three, too."""
        text = "```a``` is code\n" + "x" * 100

        assert clip(text, head=20, tail=5) == text[:20] + "\n...\n" + "xxxxx"


class TestDigest:
    """A digest of text."""

    def test_it_never_changes(self) -> None:
        """Stores are keyed by it; half surrogates have one, too."""
        assert digest("") == "e3b0c44298fc1c149afbf4c8996fb924"
        assert digest("签名") == "3da7c413d5c52fa4c9d4b6252724296f"
        assert digest("\ud800") != digest("\udc00")


@pytest.mark.parametrize(
    "text",
    [
        '{"facts": [' + '{"content": "The port is 6543."}, ' * 20,
        "The user asked for the port. " + "It's a classic riddle, it doesn't work. " * 12 + "It's a cl",
        '{"questions": ["a"],' + "\n" * 400,
        "用户想知道端口。" + "数据库的端口是七三二一。" * 20,
        "データベースのポートを確認します。" * 15,
    ],
)
def test_a_text_that_repeats_its_end_is_found(text: str) -> None:
    """A weak model that found no end says the same until it is stopped."""
    assert repeats_itself(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It works.\n" * 2,
        "\n".join(f"- module {number} is tested, and its port is {8000 + number}" for number in range(40)),
        "。".join(f"模块{number}已经测试，端口是{8000 + number}" for number in range(40)),
        "## Goal\n(none)\n## Progress\n(none)\n## Key Decisions\n(none)\n## Next Steps\n(none)\n",
    ],
)
def test_a_list_of_similar_lines_does_not_repeat_itself(text: str) -> None:
    """Each line says something else."""
    assert not repeats_itself(text)


@each(
    ("number", "shown"),
    [
        (0, "0"),
        (999, "999"),
        (999.6, "1k"),
        (1_000, "1k"),
        (9_500, "9.5k"),
        (9_960, "10k"),
        (182_400, "182k"),
        (999_600, "1M"),
        (-1_234_567, "-1.2M"),
        (2e9, "2G"),
    ],
)
def test_a_number_is_shortened_in_one_way(number: float, shown: str) -> None:
    """In commands, in the chat and in the inspector."""
    assert shorten_number(number) == shown


def test_a_percentage_has_no_space() -> None:
    """Nor does one of nothing divide by zero."""
    assert [percent(3, 4), percent(0.456, 1), percent(1, 0)] == ["75%", "46%", "0%"]
