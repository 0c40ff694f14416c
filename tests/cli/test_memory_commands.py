"""The commands of memory in one process: transfer, what is missing, what is refused."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from benchmarks.archive_rows import make_rows
from holdfast import Engine
from holdfast.cli import holdfast
from holdfast.cli.memory import put_newest_first
from holdfast.cli.output import count_columns
from holdfast.embed.static import find_wordllama
from holdfast.memory.passage_search import Hit
from holdfast.messages import Message, Text
from holdfast.search.fuse import Parts
from holdfast.settings import Settings
from holdfast.settings.loading import user_settings_file
from holdfast.store.base import PassageText, Scope, Select
from holdfast.store.sqlite import SqliteStore
from support import line_archives
from support.embed_models import save_tokenizer
from support.onnx_models import save_model
from support.stores import add_unreadable_job

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "webhook.jsonl"
IMPORTED = """18 messages of 1 session, 18 of them new.
1 archived session was not read for facts: `holdfast learn` reads it.
"""
Run = Callable[..., Any]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command in a home of its own, with hash vectors."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "memory"))
    monkeypatch.setenv("HOLDFAST_EMBEDDING__PROVIDER", "hash")
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "OPENCLAW_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str | Path, **environment: str) -> Result:
        command: click.Command = holdfast
        return CliRunner().invoke(command, [*map(str, arguments)], env=environment)

    return call


@pytest.fixture
def data(call: Callable[..., Result]) -> Run:
    """What a command prints with --json."""

    def data(*arguments: str | Path, **environment: str) -> Any:
        done = call(*arguments, "--json", **environment)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    return data


class TestFormat:
    """`holdfast import --format`."""

    def test_a_file_that_is_not_recognised_is_read_in_a_format_that_is_named(
        self, call: Callable[..., Result], data: Run, tmp_path: Path
    ) -> None:
        """The error without one names the option."""
        file = tmp_path / "chat.log"
        file.write_text('{"role": "user", "content": "The port is 8443."}\n')
        refused = call("import", file)
        assert refused.exit_code == 1
        assert "`--format NAME` names the format of a file" in str(refused.exception)
        assert data("import", file, "--format", "message_list")["new"] == 1
        assert data("import", file, "--format", "message_list")["new"] == 0
        assert "8443" in data("search", "port")[0]["text"]

    def test_a_format_that_does_not_exist_is_refused_with_all_that_do(
        self, call: Callable[..., Result], tmp_path: Path
    ) -> None:
        """So that the next attempt succeeds."""
        (tmp_path / "chat.log").write_text("")
        refused = call("import", tmp_path / "chat.log", "--format", "claude")
        assert "claude_code" in str(refused.exception)

    def test_a_format_needs_files(self, call: Callable[..., Result]) -> None:
        """The sessions of this machine have formats of their own."""
        refused = call("import", "--discover", "--format", "codex")
        assert refused.exit_code == 2
        assert "name the files" in refused.output


class TestTransfer:
    def test_a_folder_goes_out_and_comes_back(self, data: Run, tmp_path: Path) -> None:
        """An export as a folder can be imported elsewhere; again nothing is new."""
        data("import", EXAMPLE)
        data("remember", "The API listens on port 8443")
        assert data("export", "--to", "folder", tmp_path / "out")["rows"] == 19
        elsewhere = {"HOLDFAST_HOME": str(tmp_path / "elsewhere")}
        assert data("import", tmp_path / "out", **elsewhere)["new"] == 18
        assert data("import", tmp_path / "out", **elsewhere)["new"] == 0
        assert data("import", tmp_path / "out")["new"] == 0
        assert data("facts", **elsewhere)[0]["content"] == "The API listens on port 8443"
        assert "时间容差" in data("search", "时间容差放在哪里", **elsewhere)[0]["text"]

    @pytest.mark.parametrize("form", ["jsonl", "folder"])
    def test_an_import_of_an_export_says_what_was_in_it(
        self, data: Run, call: Callable[..., Result], form: str, tmp_path: Path
    ) -> None:
        """Messages and facts, and how many of them are new."""
        data("import", EXAMPLE, "--no-vectors")
        data("remember", "The API listens on port 8443")
        data("export", "--to", form, tmp_path / "out")
        done = call("import", tmp_path / "out", "--no-vectors", HOLDFAST_HOME=str(tmp_path / "elsewhere"))
        assert done.stdout == "19 rows of 1 export (messages and versions of facts): 18 new messages and 1 new fact.\n"

    def test_an_import_of_a_memory_is_one_error(self, data: Run, call: Callable[..., Result], tmp_path: Path) -> None:
        """It says how a memory is used, and nothing else."""
        data("remember", "The API listens on port 8443")
        data("backup", tmp_path / "bk.db")
        done = call("import", tmp_path / "bk.db")
        assert (done.stdout, done.stderr) == ("", "")
        assert "bk.db: a memory, not a transcript" in str(done.exception)

    def test_the_plugins_own_folder_is_discovered(self, data: Run, tmp_path: Path) -> None:
        """`~/.openclaw/memory/context` is imported by --discover, wherever the state of OpenClaw lies."""
        for home, name in ((tmp_path / ".openclaw", "default"), (tmp_path / "moved", "moved")):
            context = home / "memory" / "context"
            context.mkdir(parents=True)
            line = {"id": name, "sessionId": name, "timestamp": 1, "role": "user", "content": f"the {name} harbour"}
            (context / "segments.jsonl").write_text(json.dumps(line) + "\n{damaged\n", "utf-8")
        nowhere = data("import", "--discover", HOME=str(tmp_path / "nowhere"))
        assert nowhere["problems"] == [f"no known agent has sessions in {tmp_path / 'nowhere'}: name files or folders"]
        found = data("import", "--discover")
        assert (found["new"], len(found["problems"])) == (1, 1)
        assert data("import", "--discover")["new"] == 0
        assert data("search", "harbour")[0]["text"] == "the default harbour"
        assert data("import", "--discover", OPENCLAW_STATE_DIR=str(tmp_path / "moved"))["new"] == 1

    def test_lines_and_documents(self, data: Run, call: Callable[..., Result], tmp_path: Path) -> None:
        """An export is a new file, for programs or for people; an old one is not written over."""
        data("import", EXAMPLE)
        assert data("export", tmp_path / "all.jsonl")["rows"] == 18
        assert data("export", "--to", "markdown", tmp_path / "all.md")["rows"] == 18
        assert call("export", tmp_path / "all.jsonl").exit_code == 1
        elsewhere = {"HOLDFAST_HOME": str(tmp_path / "elsewhere")}
        assert data("import", tmp_path / "all.jsonl", **elsewhere)["new"] == 18


class TestMissing:
    def test_a_search_embeds_the_few_passages_that_are_left(self, data: Run, call: Callable[..., Result]) -> None:
        """A program that ends soon after it stored something leaves some. Static vectors of them take no time."""
        if find_wordllama() is None:  # the package is not imported: other tests put one of their own into its place
            pytest.skip("the extra local is not installed")
        static = {"HOLDFAST_EMBEDDING__PROVIDER": "static"}
        data("import", "--no-vectors", EXAMPLE, **static)
        assert "18 passages have no vectors" in call("stats", **static).stdout
        assert "no vectors" not in call("search", "signature", **static).stderr
        assert "no vectors" not in call("stats", **static).stdout

    def test_a_sentence_model_is_left_to_the_background(
        self, data: Run, call: Callable[..., Result], tmp_path: Path
    ) -> None:
        """An import makes static vectors. Every command says in one line which vectors serve; `reindex` makes all."""
        for name in ("onnx", "onnxruntime"):
            pytest.importorskip(name, reason="an extra is not installed")
        if find_wordllama() is None:
            pytest.skip("the extra local is not installed")
        save_model(tmp_path / "tiny" / "model.onnx")
        save_tokenizer(tmp_path / "tiny" / "tokenizer.json")
        onnx = {"HOLDFAST_EMBEDDING__PROVIDER": "onnx", "HOLDFAST_EMBEDDING__MODEL": str(tmp_path / "tiny")}
        data("import", EXAMPLE, **onnx)
        models = "wordllama-l2-supercat-256+holdfast-english-256"
        line = f"vectors of {models} serve; those of tiny for 18 of 18 passages are still to come"
        assert line in call("stats", **onnx).stdout
        assert f"search: {line}" in call("doctor", **onnx).stdout
        assert line in call("search", "signature", **onnx).stderr
        assert data("reindex", **onnx)["embedded"] == 18
        for command in (("stats",), ("doctor",), ("search", "signature")):
            assert "still to come" not in call(*command, **onnx).output

    def test_passages_without_vectors_are_reported_and_embedded(self, data: Run, call: Callable[..., Result]) -> None:
        """Search, recall, stats and doctor say how much waits; `reindex` embeds it."""
        data("import", "--no-vectors", EXAMPLE)
        for command in (("search", "signature"), ("recall", "signature tolerance")):
            assert "18 passages have no vectors of hash yet" in call(*command).stderr
        assert "18 passages have no vectors" in call("stats").stdout
        assert "search: 18 passages have no vectors of hash yet" in call("doctor").stdout
        assert data("reindex", "--no-vectors")["embedded"] == 0
        assert data("reindex") == {"passages": 18, "embedded": 18, "warnings": []}
        assert "have no vectors" not in call("stats").stdout
        assert "no vectors" not in call("doctor").stdout + call("search", "signature").stderr
        assert call("reindex").stdout == "18 passages indexed, 0 embedded.\n"

    def test_without_an_embedder_everything_warns_of_it(self, data: Run, call: Callable[..., Result]) -> None:
        """The reason is in every answer, and search continues by words."""
        none = {"HOLDFAST_EMBEDDING__PROVIDER": "none"}
        reason = 'embedding.provider is "none": search uses words alone'
        assert reason in data("import", EXAMPLE, **none)["warnings"]
        assert data("recall", "signature tolerance", **none)["warnings"] == [reason]
        assert reason in call("search", "signature", **none).stderr
        assert data("stats", **none)["warnings"] == [reason]
        assert f"embedding: {reason}" in call("doctor", **none).stdout
        assert reason in call("reindex", **none).stderr


class TestPlaces:
    def test_every_command_finds_the_archive_of_the_settings(
        self, data: Run, call: Callable[..., Result], tmp_path: Path
    ) -> None:
        """`archive.path` counts for those that open a memory and for those that look after its file."""
        there = {"HOLDFAST_ARCHIVE__PATH": str(tmp_path / "there")}
        data("import", EXAMPLE, **there)
        assert (tmp_path / "there" / "holdfast.db").exists()
        assert not (tmp_path / "memory").exists()
        assert data("backup", tmp_path / "copy.db", **there)["bytes"] > 0
        assert data("vacuum", **there)["after"] > 0
        assert f"{tmp_path / 'there' / 'holdfast.db'}: 18 messages" in call("doctor", **there).stdout

    @pytest.mark.parametrize("command", ["context", "timeline"])
    def test_an_address_stays_an_address(self, call: Callable[..., Result], command: str) -> None:
        """A command that takes a file too connects to the server that `--home` names."""
        done = call(command, "--session", "s1", "--home", "postgresql://127.0.0.1:9/db")
        assert "postgresql://127.0.0.1:9/db" in str(done.exception)

    @pytest.mark.parametrize("command", ["context", "timeline"])
    def test_a_session_without_requests_is_not_called_imported_if_there_is_none(
        self, data: Run, call: Callable[..., Result], command: str
    ) -> None:
        """One that does not exist is distinguished from one that was only archived."""
        data("import", EXAMPLE, "--session", "导入", "--no-vectors")
        missing = str(call(command, "--session", "没有").exception)
        assert missing == "no session of tenant local is called 没有: `holdfast sessions` lists those of all tenants"
        imported = str(call(command, "--session", "导入").exception)
        assert imported.startswith("no request of session 导入 is stored: its messages were imported")
        assert "Name its transcript instead" in imported

    def test_settings_that_a_project_may_not_set_are_reported(
        self, call: Callable[..., Result], tmp_path: Path
    ) -> None:
        """Doctor names what is ignored in the file of the working directory, and why."""
        (tmp_path / "holdfast.toml").write_text("[archive]\nredaction = false\n[recall]\nposition = 'head'\n", "utf-8")
        shown = call("doctor").stdout
        assert "holdfast.toml is not trusted, so these settings in it are ignored: archive.redaction" in shown
        assert "settings from holdfast.toml" in shown

    def test_doctor_says_where_it_looked_for_settings(self, call: Callable[..., Result], tmp_path: Path) -> None:
        """Without a settings file, a reader learns where to write one."""
        shown = call("doctor", HOLDFAST_EMBEDDING__PROVIDER="").stdout
        assert "settings from the defaults; no settings file was found at " in shown
        assert str(user_settings_file()) in shown
        assert str(tmp_path / "holdfast.toml") in shown

    def test_doctor_names_the_variables_that_set_something(self, call: Callable[..., Result]) -> None:
        """A setting of the environment is not called a default."""
        shown = call("doctor", HOLDFAST_RECALL__EAGERNESS="shy").stdout
        assert (
            "settings from HOLDFAST_EMBEDDING__PROVIDER, HOLDFAST_RECALL__EAGERNESS; no settings file was found at "
            in shown
        )

    def test_settings_of_other_programs_are_distinguished(self, call: Callable[..., Result], tmp_path: Path) -> None:
        """What belongs to OpenClaw alone is left alone, and said to be."""
        file = tmp_path / ".openclaw" / "openclaw.json"
        file.parent.mkdir()
        file.write_text('{"gateway": {"port": 1}}', "utf-8")
        assert "settings of other programs that were ignored: gateway" in call("doctor").stdout

    def test_recall_obeys_the_settings(self, data: Run, tmp_path: Path) -> None:
        """The block of the command is the one that the settings ask for."""
        shutil.copy(EXAMPLE, tmp_path / "session.jsonl")
        data("import", tmp_path / "session.jsonl")
        few = data("recall", "signature tolerance", HOLDFAST_RECALL__HARD_CAP_TOKENS="200")
        assert 0 < few["tokens"] <= 200
        assert data("recall", "signature tolerance", "--cap", "100")["tokens"] <= 100


class TestAsking:
    def test_messages_by_number(self, data: Run, call: Callable[..., Result]) -> None:
        """Archived messages are printed whole, with their neighbours; a number that is not there is exit code 1."""
        data("import", EXAMPLE)
        assert [row["number"] for row in data("get", "3", "--around", "1")] == [2, 3, 4]
        assert "#3 " in call("get", "3").stdout
        missing = call("get", "3", "999")
        assert (missing.exit_code, "not found: #999;" in str(missing.exception)) == (1, True)

    def test_a_reply_that_broke_off_is_marked(self, data: Run, call: Callable[..., Result], tmp_path: Path) -> None:
        """To people and to programs, next to that it is not recalled."""
        broken = Message(role="assistant", parts=(Text(text="Port 54"),), stop="aborted")
        with Engine.open(tmp_path / "memory", settings=Settings()) as engine:
            engine.session("s1").append([broken, Message(role="user", parts=(Text(text="Which port?"),))])
        data("exclude", "1")
        assert [(row["stop"], row["excluded"]) for row in data("get", "1", "2")] == [("aborted", True), (None, False)]
        first, second = (call("get", number).stdout.splitlines()[0] for number in ("1", "2"))
        assert first.startswith("#1 (not recalled) assistant")
        assert first.endswith("tokens  broken off")
        assert "broken" not in second

    def test_hits_are_shown_to_people(self, data: Run, call: Callable[..., Result]) -> None:
        """Snippets with their number, and with --explain what each score is made of."""
        data("import", EXAMPLE)
        shown = call("search", "signature tolerance", "--explain", "--limit", "1").stdout
        assert shown.startswith("#")
        assert "keyword" in shown
        none = {"HOLDFAST_EMBEDDING__PROVIDER": "none"}
        assert call("search", "zzzzqqqq", **none).stderr.endswith("Nothing found: no passage matches.\n")
        assert "<recalled-context" in call("recall", "--block", "signature tolerance of the carrier").stdout
        assert "Nothing recalled: no stored fact or passage matches the question" in call("recall", "zzzzqqqq").stderr

    def test_a_passage_without_any_word_of_the_query_has_no_percentage(
        self, tmp_path: Path, call: Callable[..., Result]
    ) -> None:
        """It is the nearest by vector, whatever that is worth."""
        with Engine.open(tmp_path / "memory", background=False) as engine:
            said = ("The aircraft fell from the sky.", "The gauge of pump 4 has crashed.")
            engine.session("s1").append([Message(role="user", parts=(Text(text=text),)) for text in said])
        static = {"HOLDFAST_EMBEDDING__PROVIDER": "auto"}
        headings = re.findall(r"^#\d+ .*$", call("search", "crashed", **static).stdout, re.MULTILINE)
        assert [line.split("  ")[3] for line in headings] == ["100%", "similar"]

    def test_a_fact_with_one_word_of_a_query_is_listed(self, data: Run) -> None:
        """A person who looks for facts may not know their words."""
        data("remember", "The travel budget is 2,200 euros.")
        assert len(data("facts", "travel money")) == 1
        assert not data("facts", "hotel money")

    def test_facts_come_and_go(self, data: Run, call: Callable[..., Result]) -> None:
        """Facts are kept, found by a question, listed, and forgotten by the beginning of their id."""
        assert "no memory at" in call("facts").stderr
        data("forget", data("remember", "To be forgotten.")["id"], "--yes")
        assert "No facts" in call("facts").stderr
        assert "[config] The port is 8443" in call("remember", "The port is 8443", "--type", "config").stdout
        data("remember", "Lunch is at noon")
        assert [fact["content"] for fact in data("facts", "which port")] == ["The port is 8443"]
        assert len(call("facts").stdout.splitlines()) == 2
        name = data("facts", "which port")[0]["id"]
        assert call("forget", name[:8], "--yes").stdout == "Forgot 1 fact (1 row in all).\n"
        assert len(data("facts")) == 1

    def test_facts_have_a_project_and_a_history(self, data: Run, call: Callable[..., Result]) -> None:
        """Whose a fact is, and on request what it replaced, until when."""
        about = ("--type", "config", "--subject", "api", "--slot", "port", "--project", "店")
        older, newer = (data("remember", f"The API listens on port {port}", *about) for port in (8080, 8443))
        assert call("facts").stdout.endswith("[config] The API listens on port 8443 (project 店)\n")
        first, second = call("facts", "--history").stdout.splitlines()
        assert first.startswith(older["id"][:8])
        assert first.endswith(f", replaced by {newer['id'][:8]})")
        assert second in call("facts").stdout
        listed = data("facts", "which port", "--history")
        assert {row["content"][-4:]: row["until"] for row in listed} == {"8080": newer["time"], "8443": None}
        assert {row["superseded_by"] for row in listed} == {newer["id"], None}

    def test_facts_that_contradict_each_other_are_listed(self, data: Run, call: Callable[..., Result]) -> None:
        """In groups, oldest first, as text and as JSON."""
        data("remember", "Lunch is at noon")
        assert call("facts", "--conflicts").stderr == "No conflicts: the facts do not contradict each other.\n"
        first = data("remember", "The API is written in Go")
        second = data("remember", "The API is written in Rust")
        head, *lines = call("facts", "--conflicts").stdout.splitlines()
        assert head == "2 facts contradict each other:"
        assert [line.split()[0] for line in lines] == [first["id"][:8], second["id"][:8]]
        (conflict,) = data("facts", "--conflicts")
        assert [fact["content"] for fact in conflict["facts"]] == [first["content"], second["content"]]
        assert (conflict["subject"], conflict["slot"], conflict["is_possible"]) == ("", "", False)
        assert call("facts", "go", "--conflicts").exit_code == 2

    def test_one_of_two_facts_that_contradict_each_other_is_kept(self, data: Run, call: Callable[..., Result]) -> None:
        """By the id that the list shows; the history has the other."""
        first = data("remember", "The API is written in Go")
        second = data("remember", "The API is written in Rust")
        shown = call("facts", "--conflicts").stdout.splitlines()[1].split()[0]
        assert call("keep", shown[:4]).exit_code == 1
        assert data("keep", shown) == {"replaced": [second["id"]]}
        assert [row["id"] for row in data("facts")] == [first["id"]]
        assert len(data("facts", "--history")) == 2
        assert "no fact contradicts" in str(call("keep", shown).exception)

    def test_two_facts_that_contradict_each_other_both_hold(self, data: Run, call: Callable[..., Result]) -> None:
        """By the beginnings of their ids; they are no longer listed."""
        ids = [data("remember", f"The API is written in {name}")["id"] for name in ("Go", "Rust")]
        assert call("keep", *(one[:8] for one in ids)).stdout == "2 facts hold next to each other.\n"
        assert data("facts", "--conflicts") == []
        assert [row["id"] for row in data("facts")] == ids

    def test_numbers_of_nothing_are_named(self, data: Run, call: Callable[..., Result]) -> None:
        """What exists is forgotten or excluded, and the exit code says that something does not."""
        data("import", EXAMPLE)
        excluded = call("exclude", "5", "888888")
        assert (excluded.exit_code, excluded.stdout) == (1, "1 message will not be recalled.\n")
        forgotten = call("forget", "5", "888888", "--yes")
        assert (forgotten.exit_code, forgotten.stdout) == (1, "Forgot 1 message (1 row in all).\n")
        assert "not found: #888888;" in str(excluded.exception)
        assert "not found: #888888;" in str(forgotten.exception)
        for command in (("forget", "888888"), ("exclude", "888888")):  # neither asks
            only = call(*command)
            assert (only.stdout, only.stderr) == ("", "")
            assert "not found: #888888;" in str(only.exception)
            assert json.loads(call(*command, "--json").stdout)["missing"] == [888888]
        assert data("stats")["messages"] == 17

    def test_forget_shows_what_it_would_erase_before_it_asks(self, data: Run) -> None:
        """A number alone does not say which message it is; what is long or has control characters is shown safely."""
        data("import", EXAMPLE)
        fact = data("remember", "部署只在周二\x1b[2J进行。" + "很长" * 200)["id"]
        asked = CliRunner().invoke(holdfast, ["forget", "1", fact], input="n\n")
        message, remembered, question = asked.stderr.splitlines()[:3]
        assert message.startswith("#1  user  The carrier webhook accepts unsigned calls.")
        assert remembered.startswith("fact  部署只在周二")
        assert "\x1b" not in asked.stderr
        assert count_columns(remembered) <= 100
        assert question.startswith("Forget 1 message and 1 fact for good?")
        assert data("stats")["messages"] == 18

    def test_forget_shows_only_some_of_many_messages(self, data: Run) -> None:
        """The rest is counted."""
        data("import", EXAMPLE)
        asked = CliRunner().invoke(holdfast, ["forget", *map(str, range(1, 13))], input="n\n")
        assert "#8  " in asked.stderr
        assert "\n… 4 more\n" in asked.stderr

    def test_a_session_is_forgotten_whole(self, data: Run, call: Callable[..., Result]) -> None:
        """It asks first; without ids or a session it does not know what to forget."""
        session = data("import", EXAMPLE, "--session", "mine") and "mine"
        assert CliRunner().invoke(holdfast, ["forget", "--session", session], input="n\n").exit_code == 1
        ended = CliRunner().invoke(holdfast, ["forget", "--session", session], input="")
        assert ended.stderr.startswith("Carrier webhook signatures\nForget all of session mine for good?")
        assert ended.exit_code == 1
        assert data("stats")["messages"] == 18
        assert "18 messages, " in call("stats").stdout
        assert "1 session, " in call("stats").stdout
        assert data("forget", "--session", session, "--yes")["forgotten"] == 18
        assert call("forget").exit_code == 2
        assert call("forget", "neither", "--yes").exit_code == 1


class TestUpkeep:
    def test_copies_and_room(self, data: Run, call: Callable[..., Result], tmp_path: Path) -> None:
        """A backup is a new file; vacuum says what it gave back; a place that cannot be made is an error."""
        data("import", EXAMPLE)
        assert call("backup", tmp_path / "copy.db").stdout.startswith(str(tmp_path / "copy.db"))
        assert "->" in call("vacuum").stdout
        assert "18 rows in" in call("export", tmp_path / "out.jsonl").stderr
        assert call("export", tmp_path / "no" / "where.jsonl").exit_code == 1

    def test_imports_print_what_they_did(self, call: Callable[..., Result], tmp_path: Path) -> None:
        """Messages and sessions are counted, what cannot be read is told, and nothing to import is a wrong call."""
        (tmp_path / "half.jsonl").write_text('{"type":"session","version":3,"id":"x","timestamp":"?"}\n{"ty', "utf-8")
        assert call("import", EXAMPLE).stdout == IMPORTED
        assert call("import").exit_code == 2

    def test_doctor_looks_at_folders_and_mends_files(
        self, data: Run, call: Callable[..., Result], tmp_path: Path
    ) -> None:
        """A memory-context folder is counted and its damaged lines named; `--repair` rebuilds a file."""
        data("import", EXAMPLE)
        assert "nothing is damaged, so nothing was repaired" in call("doctor", "--repair").stdout
        add_unreadable_job(tmp_path / "memory" / "holdfast.db")
        assert call("doctor").exit_code == 1
        done = call("doctor", "--repair")
        assert done.exit_code == 0
        assert "Lost: job 1 cannot be read" in done.stdout
        data("export", "--to", "folder", tmp_path / "context")
        with (tmp_path / "context" / "segments.jsonl").open("a", encoding="utf-8") as file:
            file.write("{damaged\n")
        shown = call("doctor", "--home", tmp_path / "context").stdout
        assert f"{tmp_path / 'context'}: 18 messages" in shown
        assert "segments.jsonl:" in shown
        assert data("reindex", "--home", tmp_path / "context")["embedded"] == 0
        assert json.loads(call("doctor", "--json").stdout)["findings"]


class TestNothingInSilence:
    def test_files_that_are_no_session_are_named(self, data: Run, call: Callable[..., Result], tmp_path: Path) -> None:
        """Beside a session, every file that is none is counted, and named with --json."""
        folder = tmp_path / "mixed"
        folder.mkdir()
        shutil.copy(EXAMPLE, folder / "session.jsonl")
        for name in ("notes.txt", "picture.png", "空.jsonl", "other.json"):
            (folder / name).write_text('{"a": 1}\n' if name != "空.jsonl" else "", "utf-8")
        output = call("import", folder)
        assert output.stdout == IMPORTED
        assert "4 files without a session of a known agent:" in output.stderr
        assert {Path(path).name for path in data("import", folder)["skipped"]} == {
            *("notes.txt", "picture.png", "空.jsonl", "other.json")
        }

    def test_a_session_without_a_message_is_reported(self, call: Callable[..., Result], tmp_path: Path) -> None:
        """No messages is said with the file and the number of records."""
        file = tmp_path / "s.jsonl"
        file.write_text('{"type":"session","version":3,"id":"x","timestamp":"2026-01-01T00:00:00Z","cwd":"/w"}\n')
        done = call("import", file)
        assert "0 messages of 1 session" in done.stdout
        assert "s.jsonl: no message in 1 records (pi)" in done.stderr


class TestReindex:
    def test_an_archive_of_an_earlier_version_gains_windows_of_lines(
        self, data: Run, call: Callable[..., Result], tmp_path: Path
    ) -> None:
        """A log that was cut into paragraphs is cut into lines as a new one is; until then `doctor` says so."""
        text = line_archives.outputs("logs", line_archives.ENGLISH[:1], count=1)[0]
        scope, message = Scope(session="s"), Message(role="user", parts=(Text(text=text),))
        windows = {}
        for name in ("memory", "fresh"):
            path = tmp_path / name / "holdfast.db"
            path.parent.mkdir()
            with SqliteStore(path) as store:
                (row,) = make_rows([message], scope=scope)
                store.add_messages(
                    [replace(row, passages=tuple(map(cut_whole, row.passages))) if name == "memory" else row]
                )
        with closing(sqlite3.connect(tmp_path / "memory" / "holdfast.db")) as connection:
            connection.execute("DELETE FROM counters WHERE name = 'cutting'")  # it was not kept then
            connection.commit()
        note = "passages are cut as an earlier version did: run `holdfast reindex`"
        assert note in call("doctor").stdout
        for name in ("memory", "fresh"):
            assert data("reindex", HOLDFAST_HOME=str(tmp_path / name))["passages"] == 2
            with SqliteStore(tmp_path / name / "holdfast.db") as store:
                windows[name] = [row.windows for row in store.read_passages(Select(scope=scope))]
        assert windows["memory"] == windows["fresh"]
        assert sum(map(len, windows["memory"])) > len(text) // 300
        assert note not in call("doctor").stdout
        found = data("recall", line_archives.ENGLISH[0].question, "--session", "s")
        assert line_archives.ENGLISH[0].answer in found["block"]


def cut_whole(passage: PassageText) -> PassageText:
    """A passage as one window, with the terms of all."""
    terms = tuple(term for window in passage.terms for term in window)
    return replace(passage, windows=((0, len(passage.text)),), terms=(terms,))


class TestOverview:
    def test_it_is_what_a_new_session_gets(self, call: Callable[..., Result], data: Run) -> None:
        """Of all projects, or of one."""
        call("import", EXAMPLE, "--no-vectors")
        call("remember", "Always answer in British English.")
        printed = call("overview").stdout
        found = data("overview")
        assert printed.strip() == found["text"]
        assert "Always answer in British English." in printed
        assert [row["session"] for row in found["sessions"]]
        assert found["sessions"][0]["title"] in printed
        assert 0 < found["tokens"] <= 400
        assert data("overview", "--cap", "60")["tokens"] <= 60

    def test_without_facts_and_sessions_a_note_says_so(self, call: Callable[..., Result]) -> None:
        """And if the setting turns it off."""
        call("remember", "Always answer in British English.", "--project", "shop")
        assert "no session matches --project" in call("overview", "--project", "blog").stderr
        assert "is 0" in call("overview", HOLDFAST_RECALL__OVERVIEW_TOKENS="0").stderr

    def test_a_cap_that_is_too_small_is_said(self, call: Callable[..., Result], data: Run) -> None:
        """With the tokens that are needed."""
        call("remember", "Always answer in British English.")
        needed = data("overview", "--cap", "20")["needed"]
        assert data("overview", "--cap", str(needed))["text"]
        assert not data("overview", "--cap", str(needed - 1))["text"]
        assert f"20 tokens are too few; at least {needed} are needed" in call("overview", "--cap", "20").stderr
        by_setting = call("overview", HOLDFAST_RECALL__OVERVIEW_TOKENS="20").stderr
        assert f"20 tokens (recall.overview_tokens) are too few; at least {needed}" in by_setting

    def test_recall_prints_the_sessions_that_are_asked_for(self, call: Callable[..., Result], data: Run) -> None:
        """A question about past sessions has no word of its answer."""
        call("import", EXAMPLE, "--no-vectors")
        assert "session" in call("recall", "What was our last session about?").stdout
        assert data("recall", "What was our last session about?")["sessions"]


def test_recall_prints_a_time_without_sessions(call: Callable[..., Result]) -> None:
    """There is nothing to count but its tokens."""
    call("remember", "Always answer in British English.")
    done = call("recall", "What did we do on 3 March 2019?")
    assert done.stdout.startswith("No sessions on 2019-03-03.")
    assert done.stderr.splitlines()[-1].endswith(" tokens.")
    assert not done.stderr.splitlines()[-1].startswith(",")


def test_recall_prints_the_newer_statement_first_and_marks_the_older_one(
    call: Callable[..., Result], data: Run, tmp_path: Path
) -> None:
    """As the block does, which has the oldest first."""
    with Engine.open(tmp_path / "memory", background=False) as engine:
        for text in ("Backups go to the bucket lf-cold.", "Backups now go to the bucket lf-deep."):
            engine.session("s").append([{"role": "user", "content": text}, {"role": "assistant", "content": "OK."}])
        engine.work()
    shown = call("recall", "Where do backups go?").stdout
    assert shown.index("lf-deep") < shown.index("lf-cold. (may be outdated: see the later statement)")
    old, new = [hit for hit in data("recall", "Where do backups go?")["hits"] if "bucket" in hit["text"]]
    assert old["superseded"] == "wholly"
    assert old["replaced_by"] == [new["message"]]
    assert new["superseded"] == "no"


def test_messages_that_replace_each_other_are_printed_by_their_scores() -> None:
    """Recall finds none, but a block of a later version may say so of two of them, or of one and itself."""
    nothing = Parts(keyword=0, vector=0, share=0, cosine=0, neighbours=0, session=0, date=0, decay=1)
    first = Hit(message=1, passage=1, text="", speaker="user", time=1, score=0.9, parts=nothing, replaced_by=(1, 2))
    second = replace(first, message=2, passage=2, score=0.5, replaced_by=(1,))
    third = replace(first, message=3, passage=3, score=0.7, replaced_by=())
    assert put_newest_first([third, second, first]) == [second, first, third]
