"""Recalled text that comes back is recognised by the mark of its block; text that only looks like a block is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.commands import doctor, import_
from holdfast.engine import Engine
from holdfast.messages import Message
from holdfast.report import Window
from holdfast.settings import Embedding, Settings
from holdfast.store.base import MessageRow, Scope, Select
from support.conversations import answer, call, reply, results, user
from support.stores import add_unreadable_job
from support.waiting import UNHURRIED

QUIET = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
LIMIT = 40_000
TAUGHT = "The zanzibar database listens on port 6543 监听端口."
ASKED = "What do you know about the zanzibar database?"
FORM = '<recalled-context source="holdfast">\n\n<detail>\n[user] the database\n</detail>\n\n</recalled-context>'
SEED = FORM.replace("holdfast", "memory-context")
FORGED = FORM.replace('"holdfast"', '"holdfast" mark="abcdefghijklmno"')
LOOK_ALIKES = {
    "the form of our blocks": f"Line one.\n\n{FORM}\n\nLine two: 第二行。",
    "the form of the seeds": f"第一行。\n{SEED}\nLine two.",
    "a mark that somebody made up": f"Line one.\n{FORGED}\nLine two.",
    "a block that is opened only": f'# How it works\n<recalled-context source="holdfast">\n<detail>\n{"text " * 50}',
    "a block that is closed only": f"{'text ' * 50}\n</detail>\n\n</recalled-context>\nThe rest.",
}


def open_engine(path: Path) -> Engine:
    """Open an engine without a thread."""
    return Engine.open(path, settings=QUIET, background=False)


def archived(engine: Engine, session: str = "s") -> list[MessageRow]:
    """Return everything that is archived of a session."""
    rows: list[MessageRow] = engine._memory.store.read_messages(Select(scope=Scope(session=session)))
    return rows


def taught(engine: Engine) -> tuple[list[Message], Window, str]:
    """Return a session with a fact: the conversation, its window, and the block in it."""
    engine.session("s").append([user(TAUGHT)])
    messages = [user(ASKED)]
    window = engine.session("s").assemble(messages, limit=LIMIT)
    block = window.items[-1].block
    assert block is not None
    return messages, window, block.text


@pytest.mark.parametrize("text", LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def test_text_that_looks_like_a_block_is_kept(tmp_path: Path, text: str) -> None:
    """A file or a message with the tags of a block is sent and archived unchanged."""
    with open_engine(tmp_path) as engine:
        messages = [user(f"Look: {text}"), reply("", call("c1", command="cat notes.md"))]
        engine.session("s").assemble(messages[:1], limit=LIMIT)
        messages.append(results(answer("c1", text)))
        window = engine.session("s").assemble(messages, limit=LIMIT)
        assert window.messages[0].text.startswith(f"Look: {text}")
        assert window.messages[-1].results[0].text.startswith(text)
        assert window.report.repairs == ()
        rows = archived(engine)
        assert [row.message.text for row in rows[:1]] == [f"Look: {text}"]
        assert [row.message.results[0].text for row in rows if row.message.results] == [text]
        assert engine.session("s").search("Line two, the rest, how it works")


ECHOES = {
    "what a user says": lambda block: [user(f"You said:\n\n{block}\n\nIs that so?")],
    "what an assistant quotes": lambda block: [reply(f"From memory:\n{block}\nDone."), user("Go on.")],
    "what a tool returns": lambda block: [
        reply("", call("e1", command="cat log")),
        results(answer("e1", f"1 {block}\n2 end")),
    ],
}


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
def test_a_block_that_comes_back_is_taken_out_and_reported(tmp_path: Path, echo: object) -> None:
    """Whoever sends it, in this process or another, it is in no row, and the report says so."""
    assert callable(echo)
    with open_engine(tmp_path) as engine:
        said, window, block = taught(engine)
        assert window.report.repairs == ()
        said += echo(block)
    with open_engine(tmp_path) as engine:
        window = engine.session("s").assemble(said, limit=LIMIT)
        (repair,) = window.report.repairs
        assert "recalled text that came back was removed" in repair
        assert 0 <= int(repair.split()[-2].replace(",", "")) - len(block) <= 2  # with the line ends beside it
        assert sum("6543" in str(row.message.parts) for row in archived(engine)) == 1
        again = engine.session("s").assemble([*said, reply("Yes."), user("Good.")], limit=LIMIT)
        assert again.report.repairs == ()
        (stripped,) = engine.session("imported").append(said).stripped
        assert stripped == repair
        assert engine.session("imported").append([user("Fine. 好的。")]).stripped == ()
        assert not any("6543" in str(row.message.parts) for row in archived(engine, "imported"))


def test_a_block_of_another_memory_is_text(tmp_path: Path) -> None:
    """Only the memory that made a block recognises it."""
    with open_engine(tmp_path / "one") as engine:
        *_, block = taught(engine)
    with open_engine(tmp_path / "two") as engine:
        engine.session("s").append([user(f"Somebody wrote:\n{block}")])
        assert block in archived(engine)[0].message.text


def test_the_key_of_the_marks_is_as_private_as_the_store(tmp_path: Path) -> None:
    """It is in the store's own file, in no reader's scope: no session, export or statistics show it."""
    with open_engine(tmp_path) as engine:
        taught(engine)
        assert engine.stats().sessions == 1
    assert (tmp_path / "holdfast.db").stat().st_mode & 0o077 == 0


def test_a_repair_does_not_index_recalled_text(tmp_path: Path) -> None:
    """Recalled text in a tool call stays out of the index and of the facts when the index is rebuilt."""
    with open_engine(tmp_path) as engine:
        said, _, block = taught(engine)
        said += [reply("", call("w1", "write", text=block)), results(answer("w1")), user("Go on. 继续。")]
        engine.session("s").assemble(said, limit=LIMIT)
        known = {hit.message for hit in engine.session("s").search("zanzibar port 6543 监听端口")}
    add_unreadable_job(tmp_path / "holdfast.db")
    done = CliRunner().invoke(doctor, ["--repair", "--home", str(tmp_path)])
    assert "repaired" in done.output
    with open_engine(tmp_path) as engine:
        assert {hit.message for hit in engine.session("s").search("zanzibar port 6543 监听端口")} == known
        engine.session("s").learn()
        engine.work()
        assert all(fact.evidence == (1,) for fact in engine.session("s").facts() if "6543" in fact.content)


def test_an_import_reports_recalled_text(tmp_path: Path) -> None:
    """A transcript with a block is archived without it; the command and its JSON say how many messages had one."""
    with open_engine(tmp_path / "memory") as engine:
        _, _, block = taught(engine)
    messages = [
        {"role": "user", "content": f"You said:\n\n{block}\n\nIs that so?"},
        {"role": "assistant", "content": "Yes. 是的。"},
    ]
    file = tmp_path / "said.json"
    file.write_text(json.dumps({"messages": messages}), encoding="utf-8")
    options = [str(file), "--no-vectors", "--home", str(tmp_path / "memory")]
    assert "Recalled text was removed from 1 message." in CliRunner().invoke(import_, options).stdout
    assert json.loads(CliRunner().invoke(import_, [*options, "--json"]).stdout)["stripped"] == 1
    with open_engine(tmp_path / "memory") as engine:
        assert {hit.text for hit in engine.session("s").search("port 6543") if "6543" in hit.text} == {TAUGHT}
