"""Messages and facts that are excluded from recall."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast import Engine
from holdfast.cli import holdfast
from holdfast.server.rpc import Rpc
from holdfast.settings import Settings
from support.waiting import UNHURRIED

QUESTION = "Which port does the billing replica listen on?"


def command(*arguments: str, home: Path, code: int = 0) -> Any:
    """Run a command and return its JSON."""
    done = CliRunner().invoke(holdfast, [*arguments, "--home", str(home), "--json"])
    assert done.exit_code == code or isinstance(done.exception, Exception), done.output
    return json.loads(done.stdout) if code == 0 else done.exception


def test_what_is_excluded_is_not_recalled_until_it_is_brought_back(tmp_path: Path) -> None:
    """Search, get and facts still find it, marked; a window and a block do not quote it."""
    with Engine.open(tmp_path, settings=Settings(recall=UNHURRIED), background=False) as engine:
        session = engine.session("s1", project="shop")
        (number,) = session.append([{"role": "user", "content": "The billing replica listens on port 5433."}])
        fact = session.remember("The billing replica of the shop uses port 6544.")
        assert "5433" in session.recall(QUESTION).block
        assert session.exclude([number], facts=[fact.id]) == 2
        assert session.recall(QUESTION).block == ""
        window = session.assemble([{"role": "user", "content": QUESTION}])
        assert "5433" not in str(window.request())
        assert number in [hit.message for hit in session.search("billing replica")]
        assert session.get([number])[0].excluded
        assert session.exclusions().facts == {fact.id}
        assert [row.id for row in session.facts()] == [fact.id]
        assert session.exclude([number], excluded=False) == 1
        block = session.recall(QUESTION).block
        assert "5433" in block
        assert "6544" not in block


def test_an_export_keeps_what_is_excluded(tmp_path: Path) -> None:
    """An import into another memory does not recall it either."""
    with Engine.open(tmp_path / "a", settings=Settings(), background=False) as engine:
        numbers = engine.session("s1").append(
            [{"role": "user", "content": "The billing replica listens on port 5433."}]
        )
        engine.session("s1").exclude(numbers)
    command("export", str(tmp_path / "all.jsonl"), home=tmp_path / "a")
    command("import", str(tmp_path / "all.jsonl"), home=tmp_path / "b")
    assert command("recall", QUESTION, home=tmp_path / "b")["block"] == ""
    assert command("search", QUESTION, home=tmp_path / "b")[0]["excluded"]


@pytest.mark.parametrize("form", ["jsonl", "folder"])
def test_an_export_keeps_which_facts_are_excluded(form: str, tmp_path: Path) -> None:
    """And which hold though they contradict each other."""
    with Engine.open(tmp_path / "a", settings=Settings(), background=False) as engine:
        session = engine.session("s1")
        numbers = session.append([{"role": "user", "content": "The billing replica listens on port 5433."}])
        hidden = session.remember("The billing replica of the shop uses port 6544.")
        ports = [session.remember(f"The cache of the shop listens on port {port}.") for port in (7001, 7002)]
        session.exclude(numbers, facts=[hidden.id])
        session.keep_all_facts([fact.id for fact in ports])
        pairs = session.exclusions().pairs
        assert pairs == {frozenset(fact.id for fact in ports)}
    command("export", str(tmp_path / "all"), "--to", form, home=tmp_path / "a")
    command("import", str(tmp_path / "all"), home=tmp_path / "b")
    with Engine.open(tmp_path / "b", settings=Settings(), background=False) as engine:
        found = engine.session("s1").exclusions()
        assert found.facts == {hidden.id}
        assert len(found.messages) == 1
        assert found.pairs == pairs
        assert "6544" not in engine.session("s1").recall(QUESTION).block


def test_a_fact_is_left_out_with_the_message_that_says_it(tmp_path: Path) -> None:
    """It has the same words: in a block and in the overview they would come back."""
    with Engine.open(tmp_path, settings=Settings(recall=UNHURRIED), background=False) as engine:
        session = engine.session("s1", project="shop")
        text = "Remember that the code of the cellar door is 4711-B."
        session.append([{"role": "user", "content": text}, {"role": "assistant", "content": "Noted."}])
        session.learn()
        engine.work()
        assert [fact.content for fact in session.facts()] == [text]
        number = session.messages()[0].id
        session.exclude([number])
        assert [row["excluded"] for row in Rpc(engine).call("facts", {"session": "s1", "project": "shop"})] == [True]
        question = [{"role": "user", "content": "What is the code of the cellar door?"}]
        assert "4711" not in str(engine.session("s2", project="shop").assemble(question).request())
        session.exclude([number], excluded=False)
        assert "4711" in str(engine.session("s3", project="shop").assemble(question).request())


def test_the_command_and_the_call(tmp_path: Path) -> None:
    """Both exclude and bring back; what is not found is an error."""
    with Engine.open(tmp_path, settings=Settings(), background=False) as engine:
        (number,) = engine.session("s1").append(
            [{"role": "user", "content": "The billing replica listens on port 5433."}]
        )
        fact = engine.session("s1").remember("The billing replica of the shop uses port 6544.")
        call = {"method": "exclude", "params": {"session": "s1", "ids": [number]}}
        assert json.loads(Rpc(engine).answer(json.dumps(call)))["result"] == {"changed": 1}
        found = Rpc(engine).call("search", {"session": "s1", "query": "billing"})
        assert [hit["excluded"] for hit in found] == [True]
        assert [row["excluded"] for row in Rpc(engine).call("facts", {"session": "s1"})] == [False]
        assert Rpc(engine).call("get", {"session": "s1", "ids": [number]})[0]["excluded"]
    undone = {"changed": 1, "excluded": False, "missing": []}
    assert command("exclude", str(number), "--undo", home=tmp_path) == undone
    assert command("exclude", fact.id[:8], home=tmp_path)["changed"] == 1
    block = command("recall", QUESTION, home=tmp_path)["block"]
    assert "5433" in block
    assert "6544" not in block
    assert command("facts", home=tmp_path)[0]["excluded"]
    assert not command("get", str(number), home=tmp_path)[0]["excluded"]
    assert "not found" in str(command("exclude", "99", home=tmp_path, code=1))


def test_commands_that_read_create_no_memory(tmp_path: Path) -> None:
    """They find nothing, or say that there is none."""
    for arguments in (["search", "x"], ["facts"]):
        assert command(*arguments, home=tmp_path / "none") == []
    for arguments in (["get", "1"], ["timeline", "--session", "s"]):
        assert "no memory at" in str(command(*arguments, home=tmp_path / "none", code=1))
    assert not (tmp_path / "none").exists()


def test_a_session_that_does_not_exist_cannot_be_forgotten(tmp_path: Path) -> None:
    """The error names it."""
    with Engine.open(tmp_path, settings=Settings(), background=False) as engine:
        engine.session("s1").append([{"role": "user", "content": "hello there"}])
    assert "nosuch" in str(command("forget", "--session", "nosuch", "--yes", home=tmp_path, code=1))
    assert command("forget", "--session", "s1", "--yes", home=tmp_path)["forgotten"] == 1


def test_what_was_brought_back_stays_so_after_an_import(tmp_path: Path) -> None:
    """The export is older than that."""
    with Engine.open(tmp_path / "a", settings=Settings(recall=UNHURRIED), background=False) as engine:
        session = engine.session("s1")
        numbers = session.append([{"role": "user", "content": "The billing replica listens on port 5433."}])
        fact = session.remember("The billing replica of the shop uses port 6544.")
        session.exclude(numbers, facts=[fact.id])
    command("export", str(tmp_path / "all.jsonl"), home=tmp_path / "a")
    with Engine.open(tmp_path / "a", settings=Settings(recall=UNHURRIED), background=False) as engine:
        engine.session("s1").exclude(numbers, facts=[fact.id], excluded=False)
    command("import", str(tmp_path / "all.jsonl"), home=tmp_path / "a")
    with Engine.open(tmp_path / "a", settings=Settings(recall=UNHURRIED), background=False) as engine:
        found = engine.session("s1").exclusions()
        assert (found.messages, found.facts) == (frozenset(), frozenset())


def test_a_fact_that_was_brought_back_is_not_hidden_by_its_message(tmp_path: Path) -> None:
    """Somebody has asked for the fact."""
    with Engine.open(tmp_path, settings=Settings(recall=UNHURRIED), background=False) as engine:
        session = engine.session("s1", project="shop")
        session.append([{"role": "user", "content": "Remember that the code of the cellar door is 4711-B."}])
        session.learn()
        engine.work()
        session.exclude([session.messages()[0].id])
        (fact,) = session.facts()
        session.exclude((), facts=[fact.id], excluded=False)
        question = [{"role": "user", "content": "What is the code of the cellar door?"}]
        assert "4711" in str(engine.session("s2", project="shop").assemble(question).request())


def test_what_is_remembered_again_is_recalled_again(tmp_path: Path) -> None:
    """Whoever asks for that knows that it is excluded, or has forgotten it."""
    with Engine.open(tmp_path, settings=Settings(recall=UNHURRIED), background=False) as engine:
        session = engine.session("s1", project="shop")
        fact = session.remember("The code of the cellar door is 4711-B.")
        session.exclude((), facts=[fact.id])
        assert session.recall("What is the code of the cellar door?").block == ""
        assert session.remember("The code of the cellar door is 4711-B.").id == fact.id
        assert "4711" in session.recall("What is the code of the cellar door?").block
