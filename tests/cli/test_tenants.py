"""The commands on a memory of several tenants: `sessions` names them, and `--tenant` reaches each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast import Engine
from holdfast.cli import holdfast
from holdfast.errors import InputError
from holdfast.settings import Embedding, Settings

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "webhook.jsonl"
Call = Callable[..., Result]
NONE = Settings(embedding=Embedding(provider="none"))
ASKED = (("search", "staging port"), ("recall", "staging port"), ("facts",), ("facts", "--conflicts"), ("overview",))


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run a command on a memory where the session `loop` belongs to the tenant `acme`, and `own` to `local`."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "memory"))
    monkeypatch.setenv("HOLDFAST_EMBEDDING__PROVIDER", "none")
    monkeypatch.chdir(tmp_path)
    with Engine.open(tmp_path / "memory", settings=NONE, background=False) as engine:
        for tenant, name, port in (("local", "own", 1111), ("acme", "loop", 8443)):
            messages = [{"role": "user", "content": f"From now on the staging server uses port {port}."}]
            engine.session(name, tenant=tenant).assemble(messages, limit=8000)
    return lambda *arguments: CliRunner().invoke(holdfast, [*map(str, arguments)])


def read(call: Call, *arguments: str | Path) -> Any:
    """Return what a command prints with --json."""
    done = call(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_sessions_name_their_tenant(call: Call) -> None:
    """The list has a column where a tenant is not the usual one, and JSON always has the field."""
    assert {row["session"]: row["tenant"] for row in read(call, "sessions")["sessions"]} == {
        "own": "local",
        "loop": "acme",
    }
    assert "tenant" in call("sessions").stdout
    assert call("forget", "--session", "loop", "--tenant", "acme", "--yes").exit_code == 0
    assert "tenant" not in call("sessions").stdout


def test_a_tenant_without_rows_is_named(call: Call) -> None:
    """With those that have some: adapters may have chosen one."""
    for command in ASKED:
        done = call(*command, "--tenant", "没有")
        assert "the tenant 没有 has nothing in this memory; --tenant names another: acme, local" in done.stderr


def test_a_session_that_is_not_there_is_an_error(call: Call) -> None:
    """A name with a typing error finds nothing, and the question is not why; so does an agent's, in text and JSON."""
    for command in ASKED:
        done = call(*command, "--agent", "nobody")
        assert "no session matches --project and --agent; `holdfast sessions` lists" in done.stderr
        if command == ("overview",):  # it is of a project
            continue
        for options in ((), ("--json",)):
            done = call(*command, "--session", "onw", *options)
            assert isinstance(done.exception, InputError)
            assert "no session of tenant local is called onw: `holdfast sessions` lists" in str(done.exception)
    for command in (("recall", "staging port"), ("overview",)):
        reason = read(call, *command, "--agent", "nobody")["reason"]
        assert reason.startswith("no session matches --project and --agent")


def test_a_question_without_an_answer_names_the_other_tenants(call: Call) -> None:
    """The answer may be there: programs choose a tenant, commands read `local`."""
    for command in (("recall", "Norway?"), ("search", "Norway"), ("facts",), ("facts", "Norway")):
        done = call(*command)
        assert done.exit_code == 0
        assert "Only tenant local was read; --tenant names another: acme." in done.stderr


def test_many_tenants_are_counted(call: Call) -> None:
    """A server may have thousands."""
    for number in range(10):
        assert call("remember", "The API is slow", "--tenant", f"team{number}").exit_code == 0
    assert "--tenant names another: acme, team0, " in (done := call("search", "Norway")).stderr
    assert done.stderr.endswith("team6 and 3 more.\n")


def test_a_tenant_is_read(call: Call, tmp_path: Path) -> None:
    """Every command that reads finds rows of the named tenant only, and says whose they are."""
    acme = ("--tenant", "acme")
    for command in (("search", "staging port"), ("get", "--session", "loop")):
        (row,) = read(call, *command, *acme)
        assert (row["tenant"], row["session"]) == ("acme", "loop")
    assert [row["session"] for row in read(call, "search", "staging port")] == ["own"]
    assert "8443" in read(call, "recall", "Which port has the staging server?", *acme)["block"]
    assert read(call, "timeline", "--session", "loop", *acme)[0]["tenant"] == "acme"
    assert read(call, "context", "--session", "loop", *acme)["tenant"] == "acme"
    assert call("compact", "--session", "loop", "--dry-run", *acme).exit_code == 0
    read(call, "export", tmp_path / "out", *acme)
    assert "8443" in (exported := (tmp_path / "out").read_text("utf-8"))
    assert "1111" not in exported


def test_an_export_names_the_tenants_that_are_not_in_it(call: Call, tmp_path: Path) -> None:
    """And how they are exported."""
    done = call("export", tmp_path / "own.jsonl")
    assert "Other tenants are not in it: acme. --tenant NAME exports one." in done.stderr
    assert read(call, "export", tmp_path / "acme.jsonl", "--tenant", "acme")["other_tenants"] == ["local"]
    assert call("forget", "--session", "loop", "--tenant", "acme", "--yes").exit_code == 0
    assert "Other tenants" not in call("export", tmp_path / "all.jsonl").stderr


def test_a_tenant_is_changed(call: Call) -> None:
    """Every command that writes changes rows of the named tenant only."""
    acme = ("--tenant", "acme")
    read(call, "remember", "The port is 8443", *acme)
    assert [row["tenant"] for row in read(call, "facts", *acme)] == ["acme"]
    assert read(call, "facts") == []
    assert read(call, "learn", *acme)["facts"] == 1
    ((number, excluded),) = [(row["number"], row["excluded"]) for row in read(call, "get", "--session", "loop", *acme)]
    assert not excluded
    assert read(call, "exclude", str(number), *acme)["changed"] == 1
    assert read(call, "import", EXAMPLE, "--session", "new", *acme)["new"]
    assert read(call, "forget", str(number), "--yes", *acme)["forgotten"] == 2  # with the fact of `learn`
    left = {(row["tenant"], row["session"]) for row in read(call, "sessions")["sessions"]}
    assert left == {("local", "own"), ("acme", "new")}


def test_a_session_of_another_tenant_is_not_found(call: Call) -> None:
    """The error names the tenant that was searched."""
    for command in (("forget", "--yes"), ("get",)):
        done = call(*command, "--session", "loop")
        assert done.exit_code == 1
        assert "no session of tenant local is called loop" in str(done.exception) + done.output


def test_owners_of_the_same_imported_folder_have_separate_facts(call: Call, tmp_path: Path) -> None:
    """The ids of facts come from the folder: what one owner retires still holds for the other."""
    folder = tmp_path / "context"
    folder.mkdir()
    (folder / "segments.jsonl").touch()
    fact = {"id": "11111111-aaaa", "type": "decision", "content": "The port is 8443.", "timestamp": 1_000}
    (folder / "knowledge.jsonl").write_text(json.dumps(fact) + "\n")
    for project in ("one", "two"):
        assert call("import", folder, "--project", project).exit_code == 0
    assert {row["project"] for row in read(call, "facts")} == {"one", "two"}
    assert call("forget", "11111111", "--project", "one", "--yes").exit_code == 0
    assert [row["project"] for row in read(call, "facts")] == ["two"]
