"""How full windows are, how often they are cut, and what their input costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import bench
from benchmarks.windows import WAYS, Figures, Sent, make_loop, measure
from holdfast.cli.replay import find_requests
from holdfast.messages import Message, Text
from holdfast.tokens import count_messages

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def loop() -> list[Message]:
    """The conversation of an agent, several times as long as its window."""
    return make_loop(requests=60)


def send(*texts: str, tokens: int = 10) -> Sent:
    """A valid request with a system prompt."""
    messages = [{"role": "system", "content": "careful"}, *({"role": "user", "content": text} for text in texts)]
    return Sent(request={"messages": messages}, tokens=tokens, is_valid=True)


class TestFigures:
    def test_a_system_prompt_is_no_part_of_the_conversation_that_was_kept(self) -> None:
        """The first request of a conversation has nothing to keep."""
        figures = Figures(100)
        figures.add(send("one"), whole=10, reply=1)
        figures.add(send("one", "two"), whole=20, reply=1)
        figures.add(send("two"), whole=30, reply=1)
        assert (figures.cost.breaks, figures.kept_none) == (1, 1)

    def test_a_reply_that_is_longer_than_the_room_left_is_counted(self) -> None:
        """The same for requests that are over the limit, and those that were not sent."""
        figures = Figures(100)
        figures.add(send("one", tokens=60), whole=60, reply=41)
        figures.add(send("one", tokens=60), whole=60, reply=40)
        figures.add(send("one", tokens=101), whole=200, reply=1)
        figures.add(None, whole=300, reply=1)
        assert (figures.short, figures.over, figures.failed) == (2, 1, 1)
        assert figures.used == [1.01]

    def test_input_that_openai_writes_costs_its_plain_price(self) -> None:
        """Anthropic takes a quarter more."""
        figures = Figures(100)
        figures.add(send("one"), whole=10, reply=1)
        row = figures.to_json()
        assert row["price_anthropic"] == pytest.approx(1.25 * row["price_openai_chat"], abs=1)


class TestWays:
    def test_every_way_gets_every_request(self, loop: list[Message]) -> None:
        """Only Holdfast sends all of them without losing the cache with each."""
        assert count_messages(loop) > 24_000
        found = measure([loop], limit=8_000, provider="openai_chat")
        rows = {name: figures.to_json() for name, figures in found.items()}
        total = sum(1 for _ in find_requests(loop))
        assert {row["requests"] + row["failed"] for row in rows.values()} == {total}
        assert {row["invalid"] + row["over"] for row in rows.values()} == {0}
        assert rows["append only"]["failed"] > 0
        assert rows["holdfast"]["failed"] == rows["drop the oldest"]["failed"] == 0
        assert rows["holdfast"]["breaks"] < rows["drop the oldest"]["breaks"]
        assert rows["holdfast"]["price_anthropic"] < rows["drop the oldest"]["price_anthropic"]
        assert rows["holdfast"]["pruned"] > 0

    def test_a_message_that_does_not_fit_fails(self) -> None:
        """Also if the oldest are dropped."""
        huge = [Message(role="user", parts=(Text(text="word " * 20_000),))]
        found = measure([huge], limit=8_000, provider="anthropic", ways=WAYS)
        assert {figures.failed for figures in found.values()} == {1}


def test_the_conversation_is_the_same_each_time() -> None:
    """It has about as many requests as were asked for."""
    assert make_loop(requests=30) == make_loop(requests=30) != make_loop(requests=30, seed=2)
    assert 30 <= sum(1 for _ in find_requests(make_loop(requests=30))) <= 32


def test_figures_are_printed_for_programs_and_for_people(tmp_path: Path) -> None:
    """A folder that is not there is skipped, and the output says so."""
    command = ["windows", "--limit", "8000", "--requests", "6"]
    found = json.loads(CliRunner().invoke(bench, [*command, "--json"], catch_exceptions=False).stdout)
    assert [row["way"] for row in found["rows"]] == list(WAYS)
    shown = CliRunner().invoke(bench, [*command, str(tmp_path / "absent")], catch_exceptions=False).output
    assert "absent: no transcript, skipped" in shown
