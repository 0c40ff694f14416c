"""Messages as hosts of chat channels send them: archived unchanged, searched and asked without their envelopes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from holdfast import Engine
from holdfast.cli import holdfast
from holdfast.memory.memory import Memory
from holdfast.messages import Message, Text
from holdfast.settings import Embedding, Settings, load
from holdfast.store.base import MessageRow, Select, Store
from holdfast.store.cutting import plain_cut
from support import postgres_server
from support.stores import SCOPE
from support.waiting import UNHURRIED

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
    """Open a memory with these messages."""
    settings = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
    with Engine.open(tmp_path, settings=settings, background=False) as engine:
        engine.session("s").append([{"role": "user", "content": text} for text in SAID])
        yield engine


def test_the_archive_has_them_as_they_came(engine: Engine) -> None:
    """They are stored byte for byte."""
    assert [row.message.text for row in engine.session("s").messages()] == SAID


def test_the_index_has_the_words_alone(engine: Engine) -> None:
    """No passage has a part of an envelope, and a message that is only an envelope has none."""
    session = engine.session("s")
    passages = engine._memory.store.read_passages(Select(scope=session.scope))
    assert [passage.text for passage in passages] == [
        "预发布服务器的端口是 8443。",
        "Deploys go to Frankfurt on Tuesdays.",
        "The backup runs at three.",
        "Invoices are sent on Mondays.",
    ]
    for word in ("WeChat", "张三", "Feishu", "ou_7d8a6e6df762", "Telegram", "audio", "2026-02-15"):
        assert session.search(word) == []


def test_a_question_is_asked_without_its_envelope(engine: Engine) -> None:
    """For `assemble`, `recall` and `search`, the names of the channel and the sender find nothing."""
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
    """A search for a placeholder gets an answer, not an error."""
    assert engine.session("s").search("<media:audio>") == []


# --- stores of earlier versions, which indexed the envelopes ------------------------------

SHORTER = " ".join(f"Line {number} of the minutes is about invoices." for number in range(95))
"""A text that is one passage, and two with an envelope."""
LONGER = " ".join(f"Line {number} of the log is about deliveries." for number in range(230))
OTHERS = ["Ports are listed in the wiki.", f"[WeChat 张三 {STAMP}] {SHORTER}", f"[WeChat 张三 {STAMP}] {LONGER}"]


def make_old_store(store: Store) -> None:
    """Archive messages with passages that have the envelopes; the last message is not indexed."""
    rows: list[MessageRow] = []
    for text in [*SAID, *OTHERS, "The audit is in June."]:
        message = Message(role="user", parts=(Text(text=text),), timestamp=len(rows))
        passages = () if text.startswith("The audit") else tuple(plain_cut(message))
        rows.append(MessageRow(scope=SCOPE, message=message, nonce=f"at:{len(rows)}", passages=passages))
    store.add_messages(rows)


@pytest.fixture(params=["sqlite", "postgres"])
def old_home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the folder or address of a memory of an earlier version, with vectors of all of it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOLDFAST_EMBEDDING__PROVIDER", "hash")
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "memory"))
    monkeypatch.setenv("HOLDFAST_POSTGRES__SCHEMA", postgres_server.schema_of(tmp_path))
    home = str(tmp_path / "memory") if request.param == "sqlite" else postgres_server.start()
    with open_home(home) as memory:
        make_old_store(memory.store)
        while memory.embed():
            pass
    return home


def open_home(home: str) -> Memory:
    """Open a memory with the settings that commands have."""
    return Memory.open(home, settings=load().settings)


def run_reindex(home: str) -> dict[str, Any]:
    """Run `holdfast reindex`, and return what it prints."""
    command: click.Command = holdfast
    done = CliRunner().invoke(command, ["reindex", "--json", "--home", home])
    assert done.exit_code == 0, done.output
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


@pytest.mark.variants(first=True)
def test_reindex_removes_the_envelopes_of_an_old_store(old_home: str, tmp_path: Path) -> None:
    """Afterwards each message has the passages that it would get if it were archived now."""
    settings = Settings(embedding=Embedding(provider="hash"), recall=UNHURRIED)
    with Memory.open(tmp_path / "new", settings=settings) as new:
        new.ingest([row.message for row in read_all(old_home)], scope=SCOPE)
        expected = passages_by_message(new.store)
    with open_home(old_home) as memory:
        assert passages_by_message(memory.store) != expected
        assert len(expected[OTHERS[1]]) == 1
        assert len(passages_by_message(memory.store)[OTHERS[1]]) == 2
        # A process that has read the index before sees the new one.
        assert memory.search("Feishu", scope=SCOPE)
        run_reindex(old_home)
        assert passages_by_message(memory.store) == expected
        for word in ("WeChat", "张三", "Feishu", "ou_7d8a6e6df762", "Telegram", "audio"):
            found = memory.search(word, scope=SCOPE)
            assert all(hit.parts.keyword == 0 for hit in found), word  # hash vectors find what is similar
        for question, answer in (("端口", "8443"), ("Frankfurt", "Tuesdays"), ("audit", "June"), ("wiki", "Ports")):
            assert answer in memory.search(question, scope=SCOPE)[0].text
    with Engine.open(old_home, settings=load().settings, background=False) as engine:
        assert engine._memory.waiting() == 0
        block = engine.session("new").recall("When is the audit?", across=True).block
        assert "The audit is in June." in block
    assert [row.message.text for row in read_all(old_home)] == [*SAID, *OTHERS, "The audit is in June."]


@pytest.mark.variants(first=True)
def test_reindex_again_changes_nothing(old_home: str) -> None:
    """No passage is made or embedded twice, and the store is sound."""
    run_reindex(old_home)
    with open_home(old_home) as memory:
        before = memory.store.read_passages(Select(scope=SCOPE))
    again = run_reindex(old_home)
    assert again["embedded"] == 0
    with open_home(old_home) as memory:
        assert memory.store.read_passages(Select(scope=SCOPE)) == before
    command: click.Command = holdfast
    checked = CliRunner().invoke(command, ["doctor", "--home", old_home])
    assert checked.exit_code == 0, checked.output


@pytest.mark.variants(first=True)
def test_what_reindex_cut_again_can_be_forgotten(old_home: str) -> None:
    """All of its passages are removed, including those that are no longer used."""
    run_reindex(old_home)
    with open_home(old_home) as memory:
        numbers = [row.id for row in memory.store.read_messages(Select(scope=SCOPE))]
        assert memory.store.remove_messages(Select(scope=SCOPE, ids=tuple(numbers[:-1]))) == len(numbers) - 1
        (left,) = memory.store.read_passages(Select(scope=SCOPE))
        assert left.text == "The audit is in June."
        assert memory.search("invoices", scope=SCOPE) == []
        assert memory.search("audit", scope=SCOPE)


def read_all(home: str) -> list[MessageRow]:
    """Read the archived messages of a memory."""
    with open_home(home) as memory:
        return memory.store.read_messages(Select(scope=SCOPE))


def passages_by_message(store: Store) -> dict[str, list[tuple[int, str, tuple[tuple[int, int], ...]]]]:
    """Return the passages of each message: where they begin, their text and their windows."""
    texts = {row.id: row.message.text for row in store.read_messages(Select(scope=SCOPE))}
    found: dict[str, list[tuple[int, str, tuple[tuple[int, int], ...]]]] = {}
    for passage in store.read_passages(Select(scope=SCOPE)):
        found.setdefault(texts[passage.message], []).append((passage.start, passage.text, passage.windows))
    return {text: sorted(passages) for text, passages in found.items()}
