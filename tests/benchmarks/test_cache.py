"""What input tokens cost, with a provider's cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import bench
from benchmarks.cache import BASELINE, POLICIES, READ, WRITE, Cost, Policy, beginning, measure
from holdfast import transcripts
from holdfast.cli.demo import session_lines
from holdfast.cli.replay import find_requests
from holdfast.messages import Message
from holdfast.tokens import count_text

pytestmark = pytest.mark.nightly


def request(*texts: str, system: str = "") -> dict[str, Any]:
    """A request of so many messages."""
    return {"system": system, "messages": [{"role": "user", "content": text} for text in texts]}


def size(text: str) -> int:
    """What such a message costs."""
    return count_text(json.dumps({"role": "user", "content": text}))


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> list[Message]:
    """The first days of the long session."""
    file = tmp_path_factory.mktemp("talk") / "long.jsonl"
    file.write_text("\n".join(session_lines()[:72]), "utf-8")
    return list(transcripts.read(file).messages)


class TestCost:
    def test_what_is_shared_with_the_beginning_of_the_last_request_is_read(self) -> None:
        """The rest is written, and the first request is written whole."""
        cost = Cost()
        cost.add(request("one", "two"))
        cost.add(request("one", "two", "three"))
        assert cost.read == size("one") + size("two")
        assert cost.written == size("one") + size("two") + size("three")
        assert cost.price == READ * cost.read + WRITE * cost.written
        assert cost.price == pytest.approx(cost.ideal)
        assert cost.breaks == 0

    def test_a_changed_message_breaks_the_cache_from_there_on(self) -> None:
        """What follows it is written again, though nothing else changed; a changed system prompt breaks all."""
        cost = Cost()
        cost.add(request("one", "two", "three", system="a"))
        cost.add(request("one", "TWO", "three", system="a"))
        assert cost.read == count_text('"a"') + size("one")
        assert cost.breaks == 1
        cost.add(request("one", "TWO", "three", system="b"))
        assert cost.read == count_text('"a"') + size("one")
        assert cost.breaks == 2

    def test_another_conversation_finds_nothing_in_the_cache(self) -> None:
        """Its first request is written whole."""
        cost = Cost()
        cost.add(request("one"))
        cost.restart()
        cost.add(request("one"))
        assert (cost.read, cost.breaks) == (0, 0)


class TestMeasure:
    @pytest.mark.nightly
    def test_recorded_edits_keep_the_cache(self, talk: list[Message]) -> None:
        """Every policy costs less when its edits are recorded, and the tail less than the head."""
        found = measure([talk], limit=9_000, reserve=1_500)
        assert list(found) == [policy.name for policy in POLICIES]
        for recall in ("none", "head", "tail"):
            assert found[f"{recall}+sticky"]["price"] < found[recall]["price"]
        assert found["tail+sticky"]["price"] < found["head+sticky"]["price"]
        assert found[BASELINE]["of_append_only"] == 1.0

    def test_progress_is_reported_for_every_request(self, talk: list[Message]) -> None:
        """As often as there are requests."""
        few = beginning(talk, 5)
        seen: list[int] = []
        measure([few], limit=32_000, policies=[Policy(recall=None, sticky=False)], progress=seen.append)
        assert sum(seen) == sum(1 for _ in find_requests(few)) == 5

    def test_a_window_that_does_not_fit_costs_nothing(self, talk: list[Message]) -> None:
        """It is not sent, with recorded edits or without."""
        huge = [*talk[:1], Message(role="assistant", parts=talk[0].parts), _long(talk[0])]
        policies = [Policy(recall="tail", sticky=False), Policy(recall="tail", sticky=True)]
        found = measure([huge], limit=4_000, policies=policies)
        assert {row["requests"] for row in found.values()} == {1}


def test_the_beginning_of_a_conversation_is_cut_at_a_request(talk: list[Message]) -> None:
    """More requests than there are is all of it."""
    assert beginning(talk, None) is talk
    assert beginning(talk, 10_000) is talk
    assert sum(1 for _ in find_requests(beginning(talk, 7))) == 7


def _long(message: Message) -> Message:
    return Message(role="user", parts=message.parts * 200)


def test_the_ratio_and_every_policy_are_printed(tmp_path: Path) -> None:
    """For programs and for people."""
    file = tmp_path / "long.jsonl"
    file.write_text("\n".join(session_lines()[:84]), "utf-8")
    command = ["cache", str(file), "--limit", "12000", "--requests"]
    found = json.loads(CliRunner().invoke(bench, [*command, "5", "--json"], catch_exceptions=False).stdout)
    assert found["ratio"] == found["policies"]["tail+sticky"]["of_append_only"]
    assert len(found["policies"]) == 6
    shown = CliRunner().invoke(bench, [*command, "3"], catch_exceptions=False).output
    assert "times an append-only conversation" in shown
