"""The tool loop in every wire format: messages without edits are sent as they came, and nothing is lost."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from holdfast import Engine, Window
from holdfast.errors import FormatError
from holdfast.providers import check
from holdfast.settings import Embedding, Recall, Settings
from support.external_data import DATA, needs_data
from support.wire_conversations import TALKS, Talk

LONG_QUESTIONS = Recall(deadline_ms=600_000, query_messages=1, min_query_chars=24, neighbours=0)
NO_QUESTIONS = Recall(min_query_chars=10**6)
"""No block, but trimming: without recall a compaction makes room instead."""
LIMITS = {8_000: NO_QUESTIONS, 32_000: LONG_QUESTIONS, 200_000: NO_QUESTIONS}
"""With recalled blocks at one of them, for one turn in ten: looking for them is most of what a request costs."""
TURNS = {8_000: 40, 32_000: 60, 200_000: 24}
"""Enough for many cuts in the small windows; without cuts the cost of a loop grows with the square of its turns."""

KINDS = ("trimmed", "pruned")

Wire = Mapping[str, Any]


@pytest.fixture
def engine(limit: int, tmp_path: Path) -> Iterator[Engine]:
    """Open an engine over a new memory, by words alone, without a thread."""
    settings = Settings(embedding=Embedding(provider="none"), recall=LIMITS[limit])
    with Engine.open(tmp_path / "memory", settings=settings, background=False) as engine:
        yield engine


def is_same(left: Wire, right: Wire) -> bool:
    """Return whether two messages are the same JSON, keys in the same order."""
    return left is right or json.dumps(left) == json.dumps(right)


def pieces(wires: Sequence[Wire]) -> Sequence[Wire]:
    """Return the messages; for Gemini their parts, because its turns must alternate and a cut joins messages."""
    return [part for wire in wires for part in wire["parts"]] if "parts" in wires[0] else wires


def assert_untouched(window: Window, sent: list[Wire], pruned: set[int], *, cut: bool) -> None:
    """Check that messages without edits are sent as they came, in order."""
    kept = [item.id for item in window.items if not item.block and item.id not in pruned]
    given, rendered = [sent[number - 1] for number in kept], window.render()
    if not cut:
        assert window.report.repairs == ()
        assert len(rendered) == len(sent)
        assert all(is_same(rendered[number - 1], sent[number - 1]) for number in kept)
        return
    if window.provider == "anthropic":  # an instruction must stand before a reply, which the cut may have taken
        given = [wire for wire in given if wire["role"] != "system"]
    left = iter(pieces(rendered))
    assert all(any(is_same(wire, other) for other in left) for wire in pieces(given))


def make_cases() -> Iterator[Any]:
    """Yield all formats in the smallest window, which is cut most often; most formats of larger ones only nightly."""
    for limit in LIMITS:
        for name, conversation in TALKS.items():
            is_quick = limit == min(LIMITS) or (limit, name) in {(32_000, "anthropic"), (200_000, "openai_chat")}
            yield pytest.param(conversation, limit, id=f"{name}-{limit}", marks=() if is_quick else pytest.mark.nightly)


@pytest.mark.variants
@pytest.mark.untraced
@pytest.mark.parametrize(("conversation", "limit"), list(make_cases()))
def test_a_long_tool_loop(conversation: Talk, limit: int, engine: Engine) -> None:
    """Each request is valid, and byte-identical if nothing was edited; everything is archived once and can be found."""
    sent: list[Wire] = []
    words: dict[str, int] = {}
    for number, step in enumerate(conversation.steps(TURNS[limit])):
        if number % 4 < 2 and step.replied:  # all that was said before is archived
            engine.session("s").append(step.wires[: step.replied])
        words |= {found: len(sent) + place + 1 for found, place in (step.results or {}).items()}
        sent += step.wires
        if number % 4 in {1, 2}:  # one request a turn, after the question or after the results
            continue
        window = engine.session("s").assemble(sent, limit=limit)
        edits = engine.session("s").edits()
        gone, pruned = ({number for edit in edits if edit.kind == kind for number in edit.ids} for kind in KINDS)
        assert window.provider == conversation.format or number == 0
        assert window.report.warnings == ()
        assert {*range(1, len(sent) + 1)} - {item.id for item in window.items} <= gone
        assert_untouched(window, sent, pruned, cut=bool(gone))
        if number % 20 == 0:
            assert not check(window.render(conversation.format), conversation.format)
    assert bool(gone) == (limit < 200_000)
    rows = engine.session("s").get(range(1, len(sent) + 9))
    assert [json.dumps(row.message.origin and row.message.origin.data) for row in rows] == list(map(json.dumps, sent))
    for found in list(words)[:: 5 if limit == 8_000 else 25]:
        assert words[found] in {hit.message for hit in engine.session("s").search(found, limit=3)}


class TestFormats:
    """The provider that a window is made for, and the content of the window."""

    @pytest.fixture
    def limit(self) -> int:
        """Return a window in which all of this fits."""
        return 32_000

    CALLED: ClassVar[list[dict[str, Any]]] = [
        {"role": "user", "content": "list"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Listing."},
                {"type": "tool_use", "id": "t1", "name": "ls", "input": {}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "a.py b.py"}]},
    ]

    def test_a_system_message_first_stays_the_system_prompt(self, engine: Engine) -> None:
        """Later blocks may show that the conversation is Anthropic's."""
        prompt = {"role": "system", "content": "You are careful."}
        engine.session("s").assemble([prompt, self.CALLED[0]])
        for format_ in (None, "anthropic"):
            window = engine.session(f"s{format_}").assemble([prompt, *self.CALLED], format=format_)
            assert window.request() == {"system": "You are careful.", "messages": self.CALLED}

    def test_a_request_of_gemini_has_its_system_instruction_next_to_the_contents(self, engine: Engine) -> None:
        """This holds even if the prompt came as a plain message."""
        asked = {"role": "user", "parts": [{"text": "hi"}]}
        window = engine.session("s").assemble([{"role": "system", "content": "You are careful."}, asked])
        instruction = {"parts": [{"text": "You are careful."}]}
        assert window.request("gemini") == {"systemInstruction": instruction, "contents": [asked]}

    def test_a_block_that_is_not_understood_is_carried_and_reported(self, engine: Engine) -> None:
        """It may be alone in a message, next to known blocks, in a result, or in an unknown item."""
        novelty = {"type": "novelty", "data": [1, {"deep": "值"}]}
        plain = {"role": "user", "content": [{"type": "text", "text": "see"}, novelty]}
        inside = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [novelty]}]}
        odd = {"type": "novelty_item", "id": "x"}
        for number, sent in enumerate(([plain], [*self.CALLED[:2], inside], [self.CALLED[0], odd])):
            window = engine.session(f"s{number}").assemble(sent)
            assert window.render() == sent
            assert "novelty" in " ".join(window.report.warnings)

    def test_what_a_provider_has_no_place_for_is_reported(self, engine: Engine) -> None:
        """A block of one provider that another one cannot take is named in the report."""
        cited = {"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "x"}}]}
        window = engine.session("s").assemble(
            [*self.CALLED, {"role": "assistant", "content": "ok"}, cited, self.CALLED[0]]
        )
        for provider in ("openai_chat", "openai_responses", "gemini"):
            other = engine.session(provider).assemble([*self.CALLED, cited], provider=provider)
            assert "left out document" in " ".join(other.report.repairs)
        assert cited in window.render()

    def test_every_method_takes_the_format_of_its_messages(self, engine: Engine) -> None:
        """A named format applies to every message, with or without a mark."""
        plain = [{"role": "user", "content": "hi"}]
        assert engine.session("s").append(plain, format="pi") == [1]
        assert engine.session("s").assemble(plain, format="anthropic").provider == "anthropic"
        assert engine.session("s").count_tokens(plain, format="openai_responses") > 0
        assert engine.session("s").compact(plain, format="gemini", dry_run=True).plan.outcome == "nothing"
        other = engine.session("other")
        for method in (other.append, other.assemble, other.count_tokens, other.compact):
            with pytest.raises(FormatError, match="'bard' is not one of"):
                method(plain, format="bard")

    def test_the_newest_mark_names_the_provider(self, engine: Engine) -> None:
        """A client may change its model: messages of other formats are rendered for the present one."""
        result = {"role": "tool", "tool_call_id": "c1", "content": "done"}
        function = {"name": "ls", "arguments": "{}"}
        called = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        }
        window = engine.session("s").assemble([*self.CALLED, called, result])
        assert window.provider == "openai_chat"
        assert window.render()[-2:] == [called, result]
        assert not check(window.render(), "openai_chat")
        assert window.render("anthropic")[:3] == self.CALLED


@pytest.mark.nightly
@needs_data("transcripts/swarm")
@pytest.mark.parametrize("limit", [32_000])
@pytest.mark.parametrize("path", sorted(DATA.glob("transcripts/swarm/*.gz"))[:1], ids=lambda path: path.name[:30])
def test_real_requests_grow_turn_by_turn(path: Path, limit: int, engine: Engine) -> None:
    """The bodies of a real agent run, request by request: messages without edits are sent as they came."""
    with gzip.open(path, "rt") as file:
        bodies = [json.loads(line)["messages"] for line in file if line.startswith("{")]
    for body in bodies[:40]:
        window = engine.session("s").assemble(body, limit=limit)
        pruned = {number for edit in engine.session("s").edits() if edit.kind == "pruned" for number in edit.ids}
        kept = [item.message for item in window.items if not item.block and item.id not in pruned]
        rendered = set(map(json.dumps, window.render()))
        assert {json.dumps(message.origin.data) for message in kept if message.origin} <= rendered
        assert not check(window.render(), "openai_chat")
