"""A window never exceeds the limit by the count of a real tokenizer, whatever tools print."""

from __future__ import annotations

import random
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.token_texts import LINES
from benchmarks.tokens import installed
from holdfast import Engine
from holdfast.messages import Message, Text, Usage
from holdfast.settings import Embedding, ModelSettings, Settings, Tokens
from holdfast.tokens import count_messages, counter
from support.conversations import answer, call, reply, results, user

pytestmark = pytest.mark.untraced  # long conversations run the same lines again

LIMIT = 128_000
KINDS = ("hex", "base64", "CSV of numbers", "UUIDs", "hexdump", "logs with timestamps")
GPT = "openai/gpt-5"


def talk_about(kind: str, *, seed: int = 5) -> list[Message]:
    """Return a session in which 15 tools print 12,000 characters each of one kind of text."""
    rng = random.Random(seed)  # noqa: S311 - the same dumps every time
    conversation = [user("Look at the dumps.")]
    for number in range(15):
        lines: list[str] = []
        while sum(map(len, lines)) < 12_000:
            lines.append(LINES[kind](rng))
        conversation += [reply("Next.", call(f"c{number}")), results(answer(f"c{number}", "\n".join(lines)))]
        conversation += [reply(f"Dump {number} is read."), user(f"Go on with dump {number + 1}.")]
    return conversation


def engine_at(path: Path, *, model: str | None = None, tokens: Tokens | None = None) -> Engine:
    """Open an engine without vectors."""
    settings = Settings(
        embedding=Embedding(provider="none"), model=ModelSettings(name=model), tokens=tokens or Tokens()
    )
    return Engine.open(path, settings=settings, background=False)


@pytest.mark.skipif(not find_spec("bpe_openai"), reason="bpe-openai is not installed")
@pytest.mark.parametrize(
    ("kind", "model"),
    [
        *((kind, None) for kind in KINDS),
        (KINDS[0], GPT),
        *(pytest.param(kind, GPT, marks=pytest.mark.nightly) for kind in KINDS[1:]),
    ],
)
def test_a_history_of_tool_output_fits_by_real_tokenizers(tmp_path: Path, kind: str, model: str | None) -> None:
    """The session grows turn by turn; the last windows are cut, and each is counted again."""
    whole = talk_about(kind)
    limit = 48_000  # all kinds of text are trimmed, by either estimate
    with engine_at(tmp_path, model=model) as engine:
        windows = [engine.session("s").assemble(whole[:end], limit=limit) for end in (1, 21, 41, 61)]
    assert any(change.kind == "trimmed" for window in windows for change in window.report.changes)
    for name in ("o200k_base", "qwen3.6") if model is None else ("o200k_base",):
        sent = count_messages(windows[-1].messages, count=installed()[name])
        assert sent <= limit - 20_000, (name, sent)


def grown(engine: Engine, sizes: list[int], *, factor: float, session: str = "s") -> list[tuple[float, bool]]:
    """Play turns for which the provider reports `factor` times the estimate; return its scale, and if it is known."""
    conversation = [user("Begin.")]
    seen: list[tuple[float, bool]] = []
    for size in sizes:
        conversation.append(user("some words and 12 numbers " * size))
        report = engine.session(session).assemble(conversation, limit=LIMIT).report
        seen.append((report.token_scale, report.is_calibrated))
        usage = Usage(input=100, cache_read=int(report.total_tokens * factor) - 100, output=7)
        conversation.append(Message(role="assistant", parts=(Text(text="I see."),), usage=usage))
    return seen


def test_a_margin_is_kept_until_the_provider_reports(tmp_path: Path) -> None:
    """Then the ratio of its last report is used, rounded up to 5 %, and the report says which it is."""
    with engine_at(tmp_path) as engine:
        assert grown(engine, [2_000, 100, 100], factor=1.32) == [(1.05, False), (1.35, True), (1.35, True)]
        assert grown(engine, [2_000, 100], factor=0.5, session="low") == [(1.05, False), (1.0, True)]
        assert grown(engine, [2_000, 100], factor=9.0, session="high") == [(1.05, False), (2.0, True)]
    with engine_at(tmp_path) as engine:  # the next process goes on with it
        report = engine.session("s").assemble([user("Hello again.")], limit=LIMIT).report
        assert (report.token_scale, report.is_calibrated) == (1.35, True)
        assert engine.session("s").token_scale() == 1.35


def test_a_small_request_or_zero_usage_does_not_calibrate(tmp_path: Path) -> None:
    """Text that clients add to each request outweighs a short conversation."""
    with engine_at(tmp_path) as engine:
        assert grown(engine, [10, 10], factor=40.0) == [(1.05, False)] * 2
        conversation = [user("words " * 20_000)]
        engine.session("zero usage").assemble(conversation, limit=LIMIT)
        conversation += [Message(role="assistant", parts=(Text(text="x"),), usage=Usage()), user("Go on.")]
        assert not engine.session("zero usage").assemble(conversation, limit=LIMIT).report.is_calibrated


def test_usage_that_comes_with_an_ingested_reply_counts(tmp_path: Path) -> None:
    """The history that a client sends need not have it."""
    with engine_at(tmp_path) as engine:
        conversation = [user("words and numbers 1 2 3 " * 5_000)]
        sent = engine.session("s").assemble(conversation, limit=LIMIT).report.total_tokens
        usage = Usage(input=int(sent * 1.5), output=5)
        engine.session("s").append([Message(role="assistant", parts=(Text(text="I see."),), usage=usage)])
        conversation += [reply("I see."), user("Go on.")]
        assert engine.session("s").assemble(conversation, limit=LIMIT).report.token_scale == 1.5


def test_usage_of_an_openai_reply_that_is_appended_counts(tmp_path: Path) -> None:
    """It is next to the message in the JSON of the reply."""
    with engine_at(tmp_path) as engine:
        conversation = [{"role": "user", "content": "words and numbers 1 2 3 " * 5_000}]
        sent = engine.session("s").assemble(conversation, limit=LIMIT).report.total_tokens
        message = {"role": "assistant", "content": "I see."}
        usage = {"prompt_tokens": int(sent * 1.5), "completion_tokens": 5}
        engine.session("s").append([{"choices": [{"message": message}], "usage": usage}])
        conversation += [message, {"role": "user", "content": "Go on."}]
        assert engine.session("s").assemble(conversation, limit=LIMIT).report.token_scale == 1.5


def test_a_higher_scale_makes_a_smaller_window(tmp_path: Path) -> None:
    """It fits by the provider's count, not only by the estimate."""
    with engine_at(tmp_path) as engine:
        conversation = [user("Begin.")]
        limit = LIMIT // 16
        sent = 0
        for number in range(18):
            conversation += [user(f"{number} " + "plain words in a row " * 62)]
            report = engine.session("s").assemble(conversation, limit=limit).report
            sent = int(report.total_tokens * 1.4)
            assert sent <= limit
            conversation += [Message(role="assistant", parts=(Text(text="I see."),), usage=Usage(input=sent))]
        assert sent > limit // 2


def test_a_real_counter_needs_no_margin_and_the_older_rule_can_be_chosen(tmp_path: Path) -> None:
    """The margin is for estimates."""
    conversation = [user("a sentence of some length")]
    with engine_at(tmp_path, tokens=Tokens(counter="thirds", margin=0.2)) as engine:
        report = engine.session("s").assemble(conversation, limit=LIMIT).report
        assert report.token_scale == 1.2
        assert report.total_tokens == count_messages(conversation, count=counter("thirds"))
