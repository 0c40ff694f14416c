"""One line in the middle of a log, a table or code is recalled by a plain question, with vectors as without."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import Engine, transcripts
from holdfast.messages import Message, Text, ToolResult
from holdfast.search.relevance import NORMAL
from holdfast.settings import load
from support import line_archives as lines
from support.external_data import require_data
from support.line_archives import CHINESE, ENGLISH, OFF_TOPIC, Planted

pytestmark = pytest.mark.untraced  # long conversations run the same lines again

PROVIDERS = ("auto", "none")
"""The vectors that come with the extra `local`, and words alone."""


@contextmanager
def open_engine(home: Path, provider: str) -> Iterator[Engine]:
    """The memory in a folder, by these vectors."""
    settings = load(files=(), environ={}, embedding={"provider": provider}).settings
    with Engine.open(home, settings=settings, background=False) as engine:
        assert (engine._memory.embedder is None) == (provider == "none")
        yield engine


def archive(home: Path, texts: Sequence[str]) -> None:
    """Archive messages, and give them their vectors."""
    with open_engine(home, "auto") as engine:
        engine.session("s").append([{"role": "user", "content": text} for text in texts])
        engine.work()


def missed(home: Path, provider: str, facts: Sequence[Planted]) -> list[str]:
    """The questions whose answers are not in the block."""
    with open_engine(home, provider) as engine:
        return _missed(engine, facts)


def _missed(engine: Engine, facts: Sequence[Planted]) -> list[str]:
    return [fact.question for fact in facts if fact.answer not in engine.session("s").recall(fact.question).block]


def _too_large(engine: Engine) -> list[str]:
    """The questions about something else that get more than a few lines."""
    session = engine.session("s")
    return [question for question in OFF_TOPIC if session.recall(question).tokens > 2 * NORMAL.min_tokens]


def check(home: Path, facts: Sequence[Planted]) -> None:
    """Every fact is recalled, and a few lines for what is off topic; with vectors as without."""
    for provider in PROVIDERS:
        with open_engine(home, provider) as engine:
            assert (_missed(engine, facts), _too_large(engine)) == ([], [])


@pytest.mark.variants
@pytest.mark.parametrize("kind", lines.KINDS)
def test_a_line_among_50_messages_is_recalled(tmp_path: Path, kind: str) -> None:
    """12 of 12 facts in 50 messages of 5,000 characters, and a few lines for a question about something else."""
    facts = CHINESE if kind == "chinese" else ENGLISH
    archive(tmp_path, lines.outputs(kind, facts, count=50))
    check(tmp_path, facts)


@pytest.mark.variants(first=True)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_search_finds_every_word_of_it_first(tmp_path: Path, provider: str) -> None:
    """Though the vectors of other messages are nearer to the question."""
    text = "INFO artefact build-7731 checksum c0ffee77 published by zanzibar，校验和已更新"
    conversation: list[dict[str, object]] = []
    for turn in range(40):
        log = [f"INFO worker-{line % 9} processed batch {turn * 997 + line} in {line} ms" for line in range(160)]
        log[80] = text if turn == 8 else log[80]
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        conversation += [
            {"role": "user", "content": f"Turn {turn}: please continue with step {turn} of the build migration."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{turn}", "content": "\n".join(log)},
        ]
    with open_engine(tmp_path, "auto") as engine:
        engine.session("s").append(conversation)
        engine.work()
    with open_engine(tmp_path, provider) as engine:
        for question in ("build-7731", "checksum build-7731", "zanzibar", "校验和"):
            assert text in engine.session("s").search(question)[0].text, question


@pytest.mark.nightly
def test_a_line_among_1500_messages_is_recalled(tmp_path: Path) -> None:
    """The same among 1,500 messages of all kinds, English and Chinese. Those without a fact are short."""
    facts = (*ENGLISH, *CHINESE)
    archive(tmp_path, lines.outputs("mixed", facts, count=1_500, around=800))
    check(tmp_path, facts)


@pytest.mark.nightly
@pytest.mark.parametrize("path", ["transcripts/pi/large-session.jsonl", "transcripts/claude_code/cca-db68d083.jsonl"])
def test_a_line_of_tool_output_in_a_real_session_is_recalled(tmp_path: Path, path: str) -> None:
    """Facts that stand in the middle of what a tool gave back in a real session come back."""
    facts = list(ENGLISH)
    messages = [
        planted(message, facts.pop().line) if facts and has_long_result(message) else message
        for message in transcripts.read(require_data(path)).messages
    ]
    assert not facts
    with open_engine(tmp_path, "auto") as engine:
        engine.session("s").append(messages)
        engine.work()
    for provider in PROVIDERS:
        assert missed(tmp_path, provider, ENGLISH) == []


def has_long_result(message: Message) -> bool:
    """Return whether a message holds what a tool gave back, and enough of it."""
    return any(len(result.text) > 1_000 and len(result.content) == 1 for result in message.results)


def planted(message: Message, line: str) -> Message:
    """A message with one more line in the middle of what a tool gave back."""
    (result,) = message.results
    said = result.text.split("\n")
    middle = len(said) // 2
    text = "\n".join([*said[:middle], line, *said[middle:]])
    return replace(message, parts=(ToolResult(call_id=result.call_id, content=(Text(text=text),)),))
