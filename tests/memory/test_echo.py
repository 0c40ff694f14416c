"""Recalled blocks that come back changed: they are known again, and no one's own words go with them."""

import html
import json
import textwrap
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from benchmarks.archive_rows import make_rows
from holdfast.memory.block import CLOSE, OPEN, Detail, Fact, Marks, find_blocks, render, strip_message, strip_text
from holdfast.messages import Message, Text, ToolResult
from holdfast.store.base import Scope
from support.cases import each
from support.conversations import MARKS

MOMENT = 1_770_733_860_000
BLOCK = render(
    [Fact(type="decision", text="Use the canary for payment")],
    [
        Detail(role="user", time=MOMENT, text="canary one\n\nwith </detail> and <recalled-context> in it"),
        Detail(role="assistant", time=MOMENT + 60_000, text='canary two "quoted" & more'),
    ],
    MARKS,
)
TAG = BLOCK.partition("\n")[0]
END = BLOCK.rpartition("\n")[2]
MARK = "[Tool result trimmed: kept the beginning and the end of 9000 characters. Archive id 7]"


def quoted(text: str) -> str:
    """As a mail program quotes."""
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def wrapped(text: str) -> str:
    """As a program breaks long lines, also at hyphens."""
    return "\n".join(textwrap.fill(line, 16) for line in text.split("\n"))


DISGUISES: dict[str, Callable[[str], str]] = {
    "indented": lambda text: textwrap.indent(text, "    "),
    "indented by tabs": lambda text: textwrap.indent(text, "\t"),
    "quoted": quoted,
    "quoted twice": lambda text: quoted(quoted(text)),
    "wrapped": wrapped,
    "wrapped and quoted": lambda text: quoted(wrapped(text)),
    "escaped for HTML": html.escape,
    "escaped twice": lambda text: html.escape(html.escape(text)),
    "escaped and quoted": lambda text: quoted(html.escape(text)),
    "inside JSON": lambda text: json.dumps(text)[1:-1],
    "inside JSON that is safe in HTML": lambda text: (
        json.dumps(text)[1:-1].replace("<", "\\u003c").replace(">", "\\u003e")
    ),
    "other line ends": lambda text: text.replace("\n", "\r\n"),
    "capitals": str.upper,
}


@each("disguise", DISGUISES.values())
def test_a_block_is_known_in_every_disguise(disguise: Callable[[str], str]) -> None:
    """Indented, quoted, wrapped or escaped, before, after or between words: it goes, and the words stay."""
    block = disguise(BLOCK)
    for before, after in (("", "my question\nof two lines"), ("my question", ""), ("one", "two\n\nthree")):
        text = "\n\n".join(piece for piece in (before, block, after) if piece)
        assert strip_text(text, MARKS) == "\n\n".join(piece for piece in (before, after) if piece)


@pytest.mark.parametrize("disguise", DISGUISES.values(), ids=DISGUISES)
@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_a_clipped_block_goes_to_the_end(disguise: Callable[[str], str], part: float) -> None:
    """Without its closing tag, a block reaches to the end of the text; what stands before it stays."""
    block = disguise(BLOCK)
    stripped = strip_text(f"my question\n\n{block[: int(len(block) * part)]}", MARKS)
    assert stripped == "my question"


@each("cut", range(len(TAG), len(BLOCK), 7))
def test_wherever_the_end_was_clipped(cut: int) -> None:
    """Once the first part has begun, nothing of a clipped block is left."""
    assert strip_text(f"mine\n\n{BLOCK[:cut]}", MARKS) == "mine"


@pytest.mark.parametrize(
    "mark", [MARK, "...", "…", "[1,204 characters omitted]", "<response clipped>", "[省略 300 字]"]
)
def test_what_follows_a_mark_of_omission_is_kept(mark: str) -> None:
    """Where head and tail of a text were kept, the tail is not a part of the block that the head broke off in."""
    head = BLOCK[: len(BLOCK) // 2]
    assert strip_text(f"mine\n\n{head}\n{mark}\nalso mine", MARKS) == f"mine\n\n{mark}\nalso mine"
    tail = BLOCK[len(BLOCK) // 2 :]
    assert strip_text(f"mine\n{mark}\n{tail}\n\nalso mine", MARKS) == f"mine\n{mark}\n\nalso mine"


def test_a_block_without_its_beginning_goes_too() -> None:
    """What a text begins with, up to the end of a block, is what is left of the block."""
    assert strip_text(f"{BLOCK[200:]}\n\nmine", MARKS) == "mine"


def test_a_clipped_block_ends_where_the_next_begins() -> None:
    """A block that was clipped before another one takes nothing but itself."""
    assert strip_text(f"one\n\n{BLOCK[:120]}\n\n{BLOCK}\n\ntwo", MARKS) == "one\n\ntwo"
    escaped = html.escape(BLOCK)
    assert strip_text(f"one\n\n{escaped[:160]}\n\n{BLOCK}\n\ntwo", MARKS) == "one\n\ntwo"
    assert strip_text(f"{BLOCK}\n\none\n\n{BLOCK[150:]}\n\ntwo", MARKS) == "two"


@each(
    "text",
    [
        "what is <recalled-context>? and </recalled-context>?",
        f"the tag {OPEN}> opens it",
        f"it is closed by {CLOSE}>.",
        f"{OPEN}>\n\n<detail>\n[user] mine\n</detail>\n\n{CLOSE}>",
        BLOCK.replace("mark=", "name="),
        render([], [Detail(role="user", time=MOMENT, text="of another memory")], Marks((b"another",))),
        "<recalled-context>\nsomething of mine\n</recalled-context>",
        "&lt;recalled-context&gt; is how it looks escaped",
        "the recalled-context tag, a <detail> and <knowledge>",
        "> recalled-context",
    ],
)
def test_words_about_blocks_are_left_alone(text: str) -> None:
    """Who only speaks of tags keeps every word."""
    assert strip_text(text, MARKS) is text


@each("disguise", DISGUISES.values())
def test_no_tool_result_brings_a_block_back(disguise: Callable[[str], str]) -> None:
    """A log of requests that a tool printed is archived without the blocks in it."""
    text = f'{{"role": "user", "text": "{disguise(BLOCK)}"}}'
    result = ToolResult(call_id="c", content=(Text(text=text),))
    stripped = strip_message(Message(role="tool", parts=(result,)), MARKS)
    assert stripped == Message(role="tool", parts=(replace(result, content=(Text(text=strip_text(text, MARKS)),)),))
    (row,) = make_rows([Message(role="tool", parts=(result,))], scope=Scope(), redact=False, marks=MARKS)
    assert "canary" not in repr(row).lower()
    assert '"role": "user"' in row.message.results[0].text


@pytest.mark.variants
@pytest.mark.parametrize(
    "text",
    [
        "<recalled-context>" * 20_000,
        TAG * 8_000,
        f"{TAG}\n<detail>" * 10_000,
        f"</detail>\n{END}" * 10_000,
        "</detail>" + "\n" * 100_000 + END,
        "<recalled-" + "\n> " * 50_000 + "context>",
        "&" + "amp;" * 100_000 + "lt;recalled-context",
        "\\" * 200_000 + "u003crecalled-context",
        f"{TAG}\n<detail>\n" + "[[[[ omitted" * 20_000,
        f"{html.escape(TAG)}{TAG}" * 4_000,
        OPEN * 20_000,
        f"{OPEN} mark=" * 20_000,
        f'{OPEN} mark="{"a > " * 200_000}',
    ],
)
def test_hostile_text_takes_linear_time(text: str) -> None:
    """Whatever is repeated, blocks are looked for once; what is found lies in the text, in order, apart."""
    found = find_blocks(text, MARKS)
    assert all(0 <= start < stop <= len(text) for start, stop in found)
    assert all(first[1] < second[0] for first, second in pairwise(found))
