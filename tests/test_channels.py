"""Messages as hosts of chat channels send them: archived as they came, searched and asked without their envelopes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Engine
from holdfast.settings import Embedding, Settings
from holdfast.store.base import Select
from waiting import UNHURRIED

STAMP = "Sun 2026-02-15 18:49 GMT+8"
SAID = [
    f"[WeChat 张三 {STAMP}] 预发布服务器的端口是 8443。",
    f"[Feishu ou_7d8a6e6df762 +2m {STAMP}] ou_7d8a6e6df762: Deploys go to Frankfurt on Tuesdays.",
    "System: [2026-02-15 18:49:21 GMT+8] Feishu[default] DM from ou_123: The backup runs at three.",
    f"[Telegram Anna (@anna) id:123456789 {STAMP}] <media:audio>",
    "<media:audio>\nInvoices are sent on Mondays.",
]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """A memory in which these messages are."""
    settings = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
    with Engine.open(tmp_path, settings=settings, background=False) as opened:
        opened.session("s").append([{"role": "user", "content": text} for text in SAID])
        yield opened


def test_the_archive_has_them_as_they_came(engine: Engine) -> None:
    """Byte for byte."""
    assert [row.message.text for row in engine.session("s").get()] == SAID


def test_the_index_has_the_words_alone(engine: Engine) -> None:
    """No passage has a part of an envelope, and a message that is nothing else has none."""
    session = engine.session("s")
    passages = engine.memory.store.read_passages(Select(scope=session.scope))
    assert [passage.text for passage in passages] == [
        "预发布服务器的端口是 8443。",
        "Deploys go to Frankfurt on Tuesdays.",
        "The backup runs at three.",
        "Invoices are sent on Mondays.",
    ]
    for word in ("WeChat", "张三", "Feishu", "ou_7d8a6e6df762", "Telegram", "audio", "2026-02-15"):
        assert session.search(word) == []


def test_a_question_is_asked_without_its_envelope(engine: Engine) -> None:
    """By `assemble`, `recall` and `search`: what names the channel and the sender finds nothing of its own."""
    engine.session("other").append([{"role": "user", "content": "张三 prefers WeChat to Feishu, id:123456789."}])
    plain = engine.session("s").recall("Where do deploys go?", across=True)
    framed = engine.session("s").recall(f"[WeChat 张三 id:123456789 {STAMP}] Where do deploys go?", across=True)
    assert [hit.text for hit in framed.hits] == [hit.text for hit in plain.hits]
    assert SAID[1].partition("762: ")[2] in framed.block
    found = engine.session("s").search(f"[WeChat 张三 {STAMP}] backup")
    assert [hit.text for hit in found] == [hit.text for hit in engine.session("s").search("backup")]
    window = engine.session("new").assemble(
        [{"role": "user", "content": f"[WeChat 张三 id:123456789 {STAMP}] <media:audio>"}], limit=8_000
    )
    assert window.report.recalled == ()


def test_a_search_for_an_envelope_alone_is_taken_as_it_is(engine: Engine) -> None:
    """Who looks for a placeholder gets an answer, not an error."""
    assert engine.session("s").search("<media:audio>") == []
