"""What is quoted under a cap."""

import numpy as np
import pytest
from msgspec import structs

from holdfast.search.pack import (
    MAX_EXCERPT_CHARS,
    MIN_EXCERPT_CHARS,
    SHORTEST_EXCERPT_CHARS,
    Quotable,
    Quote,
    excerpt,
    pack,
)
from holdfast.search.passages import windows
from holdfast.search.tables import find_table
from holdfast.tokens import count_text
from support import line_archives
from support.line_archives import ENGLISH

FILLER = "Nothing of interest was said in this sentence at all, and it goes on for a while. "
ANSWER = "The production database listens on port 5433 since the move. "


def candidate(
    text: str, *, room: int = MIN_EXCERPT_CHARS, number: int = 0, good: int | None = None, **more: object
) -> Quotable:
    """A passage whose window `good` is the best; unset, all are equal."""
    spans = windows(text)
    scores = np.full(len(spans), 0.1, np.float32)
    scores[slice(None) if good is None else good] = 1
    headers = ((None, "\n\n[2026-02-10 14:31 user] "),)
    known = Quotable(passage=number, text=text, windows=spans, window_scores=scores, headers=headers, room=room)
    return structs.replace(known, **more)


def packed(candidates: list[Quotable], *, room: float) -> list[Quote]:
    """The quotes of candidates in this order."""
    known = {each.passage: each for each in candidates}
    sizes = [(each.passage, len(each.text), 1.0) for each in candidates]
    return pack(sizes, known.get, room=room, weights={"databas": 1.0, "port": 1.0}, measure=lambda text: len(text) / 3)


def test_a_short_passage_is_quoted_whole() -> None:
    """Up to 400 characters nothing is cut."""
    assert excerpt(candidate("short and good"), {}) == (0, 14)


def test_of_a_long_passage_the_answer_is_quoted() -> None:
    """Whole sentences around the question's words, and not more than needed."""
    text = FILLER * 6 + ANSWER + FILLER * 6
    best = next(place for place, (start, stop) in enumerate(windows(text)) if ANSWER in text[start:stop])
    start, stop = excerpt(candidate(text, good=best), {"databas": 1.0, "port": 1.0})
    assert ANSWER.strip() in text[start:stop]
    assert MIN_EXCERPT_CHARS <= stop - start <= 2 * MIN_EXCERPT_CHARS
    assert text[start] == "N" or text[start] == "T"


def table(rows: int, *, delimiter: str = " | ", edge: str = "| ") -> str:
    """A table of Markdown, or lines with another delimiter, in which row 17 is that of Aarhus."""
    lines = [edge + delimiter.join(("city", "warehouse", "pallets", "manager")) + edge[::-1]]
    if edge:
        lines.append("|---|---|---|---|")
    for row in range(rows):
        city = "Aarhus"
        if row != 17:
            city = f"Town{row}"
        lines.append(edge + delimiter.join((city, f"W{row}", str(100 + row), f"Name{row}")) + edge[::-1])
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text", [table(40), table(40, delimiter=",", edge=""), "Here it is:\n\n" + table(40, delimiter="\t", edge="")]
)
def test_of_a_table_the_row_is_quoted_with_the_names_of_its_columns(text: str) -> None:
    """The names of the columns have more words of the question than the row."""
    weights = {"pallet": 1.0, "warehous": 1.0, "manag": 1.0, "aarhus": 1.0}
    (quote,) = pack([(0, len(text), 1.0)], {0: candidate(text)}.get, room=500, weights=weights, measure=count_text)
    lines = quote.text.splitlines()
    assert "pallets" in lines[0] if "Here" not in text else "pallets" in quote.text
    assert any("Aarhus" in line and "117" in line for line in lines)
    assert "Town39" not in quote.text


def test_a_row_of_one_of_several_tables_has_the_names_of_its_own_columns() -> None:
    """Neither table is most of the text."""
    prices = "\n".join(f"| sku-{number} | {number}.50 |" for number in range(100, 160))
    text = f"| sku | euros |\n|---|---|\n{prices}\n\n| article | francs |\n|---|---|\n{prices.replace('sku', 'art')}"
    best = next(place for place, (start, stop) in enumerate(windows(text)) if "| art-131 |" in text[start:stop])
    weights = {"art-131": 1.0, "131": 1.0}
    known = {0: candidate(text, good=best)}
    (quote,) = pack([(0, len(text), 1.0)], known.get, room=600, weights=weights, measure=count_text)
    assert quote.text.startswith("| article | francs |\n|---|---|\n…\n| art-")
    assert "| art-131 | 131.50 |" in quote.text


def test_what_a_text_says_against_a_part_of_it_is_quoted_with_that_part() -> None:
    """Without it, the excerpt would say that the proposal holds."""
    text = f"# Proposal (rejected)\n\n{FILLER * 6}{ANSWER}{FILLER * 6}"
    best = next(place for place, (start, stop) in enumerate(windows(text)) if ANSWER in text[start:stop])
    (quote,) = packed([candidate(text, good=best)], room=300)
    assert quote.text.startswith("# Proposal (rejected)\n…\n")
    assert ANSWER.strip() in quote.text


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("| city | 2023 |\n|---|---|\n| Oslo | 7 |\n| Bonn | 8 |", "| city | 2023 |\n|---|---|\n"),
        (" id | metal \n----+-------\n  1 | iron  \n  2 | zinc  ", " id | metal \n----+-------\n"),
        ("metal,q1,q2\niron,1,2\nzinc,3,4\nlead,5,6", "metal,q1,q2\n"),
        ("Starting workers, loading config, opening sockets\na, b, c\nd, e, f\ng, h, i", None),
        ("from app import alpha, beta, gamma\nx = f(a, b, c)\ny = f(d, e, f)\nz = g(1, 2, 3)", None),
        ("Zora,Lund,sales\nMina,Bonn,it\nOle,Oslo,hr\nKim,Lyon,it", None),
    ],
)
def test_only_the_names_of_columns_are_the_head_of_a_table(text: str, head: str | None) -> None:
    """Sentences, code and rows without names are none."""
    table = find_table(text)
    assert head == (None if table is None else text[table.start : table.rows])


def test_a_number_behind_a_known_text_is_quoted() -> None:
    """It may be another value."""
    fact = "Remember that the code of the gate is 1122."
    both = f"{fact} Wait, no, 2211."
    rest = f"{fact} Thanks for that."
    for text, count in ((both, 1), (rest, 0)):
        found = pack(
            [(0, len(text), 1.0)], {0: candidate(text)}.get, room=500, weights={}, measure=count_text, known=[fact]
        )
        assert len(found) == count


def test_of_a_log_the_lines_around_the_answer_are_quoted() -> None:
    """Where windows are a few lines, more of them are examined, so that an excerpt is as long as any other."""
    text = line_archives.outputs("logs", ENGLISH[:1], count=1)[0]
    line = ENGLISH[0].line
    best = next(place for place, (start, stop) in enumerate(windows(text)) if line in text[start:stop])
    start, stop = excerpt(candidate(text, good=best), {"port": 1.0, "ledger": 1.0})
    assert line in text[start:stop]
    assert stop - start >= MIN_EXCERPT_CHARS


def test_the_best_get_more_room() -> None:
    """An excerpt of one of the best passages is longer, and still has an end."""
    text = FILLER * 6 + ANSWER + FILLER * 6
    start, stop = excerpt(candidate(text, room=MAX_EXCERPT_CHARS, good=1), {"port": 1.0})
    assert MIN_EXCERPT_CHARS < stop - start <= MAX_EXCERPT_CHARS + 60


def test_chinese_sentences_are_cut_at_their_ends() -> None:
    """Sentences need no spaces."""
    text = (
        "这句话没有什么内容，只是为了占一点地方而写的。" * 20
        + "数据库端口是五四三三。"
        + "后面也没有什么内容可说。" * 20
    )
    start, stop = excerpt(candidate(text), {"端口": 2.0})
    assert text[stop - 1] == "。"
    assert start == 0 or text[start - 1] == "。"


def test_quotes_stay_within_the_room() -> None:
    """What does not fit is passed over, what fits behind it is taken."""
    found = packed(
        [candidate("a" * 300, number=1), candidate("b" * 390, number=2), candidate("c" * 30, number=3)], room=150
    )
    assert [quote.passage for quote in found] == [1, 3]
    assert sum(quote.tokens for quote in found) <= 150


def test_a_sentence_is_quoted_if_no_longer_excerpt_fits() -> None:
    """The last tokens go to a sentence of the next passage, and not to a short text that ranks far below it."""
    text = FILLER * 6 + ANSWER + FILLER * 6
    best = next(place for place, (start, stop) in enumerate(windows(text)) if ANSWER in text[start:stop])
    weak = candidate("read: path: logs/turn-17.log", number=2)
    quotes = packed(
        [candidate("a" * 300), candidate(text, number=1, good=best, min_room=SHORTEST_EXCERPT_CHARS), weak], room=175
    )
    assert [quote.passage for quote in quotes] == [0, 1]
    assert ANSWER.strip() in quotes[1].text


def test_what_cannot_fit_is_not_even_read() -> None:
    """A passage too long for what is left costs nothing."""
    read: list[int] = []
    pack(
        [(1, 5000, 1.0), (2, 20, 1.0)],
        read.append,
        room=20,
        weights={},
        measure=count_text,
    )
    assert read == [2]


def test_a_passage_that_is_gone_is_passed_over() -> None:
    """Forgotten between ranking and reading: nothing is quoted of it."""
    assert pack([(1, 10, 1.0)], lambda _: None, room=100, weights={}, measure=count_text) == []


def test_passages_of_one_time_share_a_header() -> None:
    """The second passage in a group is charged the next shorter header, and the third one the shortest."""
    texts = ("the red fox", "the old oak", "the tall pine")
    headers = (("day", "\n\n[2026-02-10 14:31 user] "), ("minute", "\n[14:31 user] "), (None, "\n[user] "))
    later = (headers[0], ("later", headers[1][1]), headers[2])
    found = packed(
        [
            candidate(text, number=number, headers=each)
            for number, (text, each) in enumerate(zip(texts, (headers, later, later), strict=True))
        ],
        room=200,
    )
    costs = [len(quote.text) + len(each) for quote, (_, each) in zip(found, headers, strict=True)]
    assert [quote.tokens for quote in found] == [cost / 3 for cost in costs]


def test_the_same_text_is_quoted_once() -> None:
    """Boilerplate, what a longer quote contains, and what is hardly more than another quote are left out."""
    report = "The nightly build of the harbour service has finished without any error at all"
    texts = ("Waiting.", "waiting", report, f"{report}.", f"Note: {report}.", "port 80", "port 8080")
    found = packed([candidate(text, number=number) for number, text in enumerate(texts)], room=900)
    assert [quote.text for quote in found] == ["Waiting.", report, "port 80", "port 8080"]


def test_half_of_a_text_is_enough_to_repeat_it() -> None:
    """A text is left out where a quote is half of it, wherever the half is, and quoted where the quote is less."""
    text = "".join(map(str, range(100, 154)))
    starts = range(len(text) // 2 + 1)
    halves, less = ([text[start:][:size] for start in starts] for size in (len(text) // 2, len(text) // 2 - 1))
    for known, expected in [*((half, 1) for half in halves), *((part, 2) for part in less)]:
        assert len(packed([candidate(known), candidate(text, number=1)], room=900)) == expected, known
        assert len(packed([candidate(text), candidate(known, number=1)], room=900)) == 1, known


def test_a_person_may_say_the_same_in_another_session() -> None:
    """When it was said again is worth knowing; a tool's output is not."""
    text = "We deploy to Frankfurt on Tuesdays, after the tests of the night"
    sessions = (1, 1, 2, None)
    found = packed([candidate(text, number=place, said_in=where) for place, where in enumerate(sessions)], room=900)
    assert [quote.passage for quote in found] == [0, 2]


def test_an_adaptive_block_ends_where_scores_are_low() -> None:
    """The more is quoted, the better a passage must be; a full block takes what fits."""
    texts = [f"{word * 45}" for word in ("alpha ", "beta ", "gamma ", "delta ", "omega ")]
    known = {number: candidate(text, number=number) for number, text in enumerate(texts)}
    scores = (1.0, 0.6, 0.24, 0.21, 0.1)
    order = [(number, len(texts[number]), score) for number, score in enumerate(scores)]

    def quote(*, adaptive: bool) -> list[int]:
        found = pack(order, known.get, room=4000, weights={}, measure=lambda text: len(text) / 3, adaptive=adaptive)
        return [each.passage for each in found]

    assert quote(adaptive=False) == [0, 1, 2, 3, 4]
    assert quote(adaptive=True) == [0, 1, 2]


def test_a_list_is_quoted_with_what_announces_it() -> None:
    """An excerpt of one of the best passages does not end before the list that it announces."""
    items = "".join(f"- step {number}: restart the {name} service\n" for number, name in enumerate("abcdefgh"))
    text = FILLER * 9 + "To move the production database to another port, take these steps:\n" + items + FILLER * 9
    best = next(place for place, (start, stop) in enumerate(windows(text)) if "take these" in text[start:stop])
    start, stop = excerpt(candidate(text, room=MAX_EXCERPT_CHARS, good=best), {"databas": 1.0, "port": 1.0})
    assert items.strip() in text[start:stop]


def test_no_room_no_quotes() -> None:
    """Under a dozen tokens there is nothing to say."""
    assert packed([candidate("tiny")], room=11) == []
