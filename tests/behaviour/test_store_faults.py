"""A store that is damaged, deleted, read-only or newer, through the engine and the command line."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from holdfast.cli import holdfast
from holdfast.engine import Engine
from holdfast.errors import HoldfastError, StorageError
from holdfast.settings import Compaction, Embedding, Settings
from holdfast.store.base import Scope
from holdfast.store.connection import MIGRATIONS
from holdfast.store.opening import STORE_NAME
from holdfast.text import plural
from support.forked import run_holdfast
from support.full_disk import largest_file
from support.paths import TESTS
from support.waiting import UNHURRIED

QUIET = Settings(
    embedding=Embedding(provider="none"),
    recall=UNHURRIED,
    compaction=Compaction(reserve_tokens=0, reserve_tokens_floor=0),
)
LIMIT = 4_000
WORDS = ("The staging database listens on port 6543.", "订单服务的预发布环境用端口 7001。", "Deploy on Fridays only.")
QUESTION = "Which port does the staging database listen on?"


def make_message(role: str, text: str) -> dict[str, Any]:
    """Return a message as a client sends it."""
    return {"role": role, "content": text}


def long_talk(*, turns: int = 10) -> list[dict[str, Any]]:
    """Return a conversation most of which does not fit into the limit."""
    conversation = [make_message("user", words) for words in WORDS]
    for turn in range(turns):
        conversation += [
            make_message("assistant", f"change{turn} " * 200),
            make_message("user", f"Step {turn}: refactor module {turn}."),
        ]
    return conversation


def open_engine(home: Path) -> Engine:
    """Open an engine by words alone, without a background thread."""
    return Engine.open(home, settings=QUIET, background=False)


def sql(home: Path, statement: str, *values: object) -> list[Any]:
    """Run a statement on the database, bypassing the store."""
    with closing(sqlite3.connect(home / STORE_NAME, isolation_level=None)) as connection:
        return connection.execute(statement, values).fetchall()


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a memory with messages, facts, edits, reports and a job."""
    folder = tmp_path_factory.mktemp("faults") / "memory"
    with open_engine(folder) as engine:
        engine.session("s").assemble(long_talk(), limit=LIMIT)
        engine.session("s").remember("The API listens on port 8443")
        engine.session("s").learn()
    return folder


@pytest.fixture
def home(memory: Path, tmp_path: Path) -> Path:
    """Return a copy of it."""
    return shutil.copytree(memory, tmp_path / "memory")


@pytest.fixture
def call(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command on that memory."""
    monkeypatch.setenv("HOME", str(home.parent))
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    monkeypatch.setenv("HOLDFAST_EMBEDDING__PROVIDER", "none")
    monkeypatch.chdir(home.parent)

    def call(*arguments: str | Path) -> Result:
        command: click.Command = holdfast
        return CliRunner().invoke(command, [*map(str, arguments)])

    return call


def flip(home: Path, number: int, bit: int) -> None:
    """Change one bit of an archived message."""
    ((body,),) = sql(home, "SELECT body FROM messages WHERE id = ?", number)
    changed = bytearray(body)
    changed[bit // 8 % len(changed)] ^= 1 << bit % 8
    sql(home, "UPDATE messages SET body = ? WHERE id = ?", bytes(changed), number)


class TestABitThatFlipped:
    def test_a_flipped_message_is_an_error_and_never_other_words(self, home: Path) -> None:
        """For any flipped bit of an archived message, reading that message is a typed error with the fix."""
        ((body,),) = sql(home, "SELECT body FROM messages WHERE id = 1")
        with open_engine(home) as engine:
            for bit in random.Random(1).sample(range(8 * len(body)), 100):  # noqa: S311 - any will do
                flip(home, 1, bit)
                with pytest.raises(StorageError, match=r"message 1 is damaged.*doctor --repair"):
                    engine.session("s").get([1])
                flip(home, 1, bit)
            assert engine.session("s").get([1])[0].message.text == WORDS[0]

    def test_it_can_be_forgotten(self, home: Path) -> None:
        """A message that can no longer be read is forgotten like any other, and then it is no gap."""
        flip(home, 1, 8 * 40)
        with open_engine(home) as engine:
            engine.session("s").search("staging database port 6543")
            assert engine.stats().warnings
            assert engine.session("s").forget(ids=[1]) == 1
            engine.session("s").search("staging database port 6543")
            assert [note for note in engine.stats().warnings if "damaged" in note] == []

    def test_search_and_recall_leave_it_out_with_a_warning(self, home: Path) -> None:
        """A flipped message is no longer found, the others are; the report of the next request names the gap."""
        conversation = [*long_talk(), make_message("assistant", "done"), make_message("user", QUESTION)]
        with open_engine(home) as engine:
            assert "6543" in str(engine.session("s").assemble(conversation, limit=LIMIT).render()[-1])
        flip(home, 1, 8 * 40)
        with open_engine(home) as engine:
            assert 1 not in [hit.message for hit in engine.session("s").search("staging database port 6543")]
            assert engine.session("s").search("端口 7001")[0].message == 2
            assert any("message 1 is damaged" in note for note in engine.session("s").recall(QUESTION).warnings)
            assert any("message 1 is damaged" in note for note in engine.stats().warnings)
            report = engine.session("s").assemble(long_talk(), limit=LIMIT).report
            assert [warning for warning in report.warnings if "message 1 is damaged" in warning]
            assert engine.session("t", agent="other").assemble(long_talk(), limit=LIMIT).report.warnings == ()

    def test_commands_leave_it_out_and_say_so(self, home: Path, call: Callable[..., Result], tmp_path: Path) -> None:
        """Search prints the rest and names the gap; an export lacks only that message, and exits with 1."""
        flip(home, 1, 8 * 40)
        found = call("search", "staging database port 6543 预发布 端口 7001")
        assert (found.exit_code, "7001" in found.stdout, "6543" in found.stdout) == (0, True, False)
        assert "message 1 is damaged" in found.stderr
        done = call("export", tmp_path / "out.jsonl", "--json")
        assert (done.exit_code, len(json.loads(done.stdout)["gaps"])) == (1, 1)
        exported = (tmp_path / "out.jsonl").read_text()
        assert "7001" in exported
        assert "6543" not in exported
        assert len(exported.splitlines()) == 1 + 22 + 1  # the header, every other message, the fact
        one = call("get", "1")
        assert isinstance(one.exception, StorageError)

    def test_doctor_finds_all_of_them_and_repair_keeps_the_rest(self, home: Path, call: Callable[..., Result]) -> None:
        """Every flipped message is named by the doctor; a repair keeps all others."""
        numbers = [1, *range(5, 23)]
        for number in numbers:
            flip(home, number, 8 * 30 + number)
        output = call("doctor")
        assert output.exit_code == 1
        assert [number for number in numbers if f"message {number} cannot be read" not in output.output] == []
        assert "message 2 cannot be read" not in output.output
        call("doctor", "--repair")
        assert call("doctor").exit_code == 0
        assert sql(home, "SELECT count(*) FROM messages") == [(23 - len(numbers),)]

    def test_a_repair_names_the_numbers_of_lost_messages(self, home: Path, call: Callable[..., Result]) -> None:
        """They are listed as ranges, in text and JSON, without forgotten ones; before it, advice is given once."""
        call("forget", "2", "--yes")
        sql(home, "DELETE FROM messages WHERE id IN (7, 10, 11, 12, 23)")
        flip(home, 5, 300)
        output = call("doctor", "--repair", "--json").output
        expected = "the messages with these numbers, unless they were forgotten before: 7, 10-12, 23"
        assert f"Lost: message 5 cannot be read; {expected}" in output
        (home / STORE_NAME).write_bytes(b"SQLite format 3\0" + bytes(5_000))
        lines = [line for line in call("doctor").output.splitlines() if STORE_NAME in line]
        assert "empty" not in "".join(lines)
        assert "".join(lines).count("doctor --repair") == 1

    @pytest.mark.parametrize("table", ["facts", "records", "jobs"])
    def test_documents_have_checksums_too(self, home: Path, table: str, call: Callable[..., Result]) -> None:
        """A fact, an edit or a job with a changed letter is left out, and the doctor names it."""
        for key, data in sql(home, f"SELECT rowid, data FROM {table}"):  # noqa: S608 - our own tables
            sql(home, f"UPDATE {table} SET data = ? WHERE rowid = ?", data[:-3] + b"?" + data[-2:], key)  # noqa: S608
        with open_engine(home) as engine:
            assert engine.session("s").facts() == [] or table != "facts"
            assert engine.session("s").edits() == () or table != "records"
            assert engine.work() == 0 or table != "jobs"
            assert any(f"{table[:-1]} 1 is damaged" in note for note in engine.stats().warnings)
        shown = call("doctor").output
        assert f"{table[:-1]} 1 cannot be read (" in shown
        owner = "session s" if table == "facts" else r"\w+ of session s"
        assert re.search(rf"{table[:-1]} \d+ cannot be read \({owner}\)", shown)

    def test_lost_records_are_counted(self, home: Path, call: Callable[..., Result]) -> None:
        """By the doctor before a repair, and by the repair."""
        ((page,),) = sql(home, "SELECT rootpage FROM sqlite_master WHERE name = 'jobs'")
        ((count,),) = sql(home, "SELECT count(*) FROM jobs")
        data = bytearray((home / STORE_NAME).read_bytes())
        data[(page - 1) * 4096 : page * 4096] = b"\xff" * 4096
        (home / STORE_NAME).write_bytes(data)
        lost = f"{plural(count, 'job')} ("
        found = call("doctor")
        assert found.exit_code == 1
        assert f"lost whether the store is repaired or not: {lost}" in found.output
        assert f"Lost: {lost}" in call("doctor", "--repair").output
        assert "lost whether" not in call("doctor").output

    def test_an_older_version_of_a_fact_does_not_come_back(self, home: Path) -> None:
        """If the newest version of a fact is damaged, the version before it is not used instead."""
        with open_engine(home) as engine:
            scope = Scope(session="s")
            engine._memory.remember("Deploys go to Frankfurt", scope=scope, subject="deploy", slot="region")
            engine._memory.remember("Deploys go to Dublin", scope=scope, subject="deploy", slot="region")
        ((version, data),) = sql(home, "SELECT version, data FROM facts ORDER BY version DESC LIMIT 1")
        sql(home, "UPDATE facts SET data = ? WHERE version = ?", data[:-1], version)
        with open_engine(home) as engine:
            known = [fact.content for fact in engine.session("s").facts()]
            assert known == ["The API listens on port 8443", "Deploys go to Dublin"]


def use_everything() -> Iterator[Callable[[Engine], object]]:
    """Return each operation of an engine as a function."""
    conversation = [*long_talk(), make_message("assistant", "done"), make_message("user", QUESTION)]
    yield lambda engine: engine.session("s").assemble(conversation, limit=LIMIT)
    yield lambda engine: engine.session("s").assemble(long_talk(), limit=2 * LIMIT)
    yield lambda engine: engine.session("s").search(QUESTION)
    yield lambda engine: engine.session("s").recall(QUESTION)
    yield lambda engine: engine.session("s").get([1, 2], around=2)
    yield lambda engine: engine.session("s").facts()
    yield lambda engine: engine.session("s").edits()
    yield lambda engine: engine.session("s").timeline()
    yield lambda engine: engine.session("s").count_tokens()
    yield lambda engine: engine.stats()
    yield lambda engine: engine.session("s").compact(long_talk(), limit=LIMIT, dry_run=True)
    yield lambda engine: engine.session("s").append([make_message("user", "One thing more.")])
    yield lambda engine: engine.session("s").pin([1])
    yield lambda engine: engine.session("s").undo_trim()
    yield lambda engine: engine.work()
    yield lambda engine: engine.session("s").forget(ids=[2])


COLUMNS = [
    ("scopes", "tenant, project, agent, session"),
    ("messages", "scope, digest, nonce, flags, body"),
    ("passages", "message, scope, time, previous, human, speaker, alive, start, windows, text"),
    ("pending", "terms"),
    ("facts", "scope, id, data"),
    ("records", "scope, kind, key, time, data"),
    ("jobs", "scope, kind, time, data"),
    ("counters", "value"),
]
VALUES = {"text": "'x'", "bytes": "x'7b7d'", "number": "-7"}


class TestARowThatIsSomethingElse:
    @pytest.mark.variants
    @pytest.mark.parametrize("value", ["text", "bytes", pytest.param("number", marks=pytest.mark.nightly)])
    @pytest.mark.parametrize(("table", "columns"), COLUMNS, ids=[table for table, _ in COLUMNS])
    def test_nothing_but_our_own_errors(self, home: Path, table: str, columns: str, value: str) -> None:
        """With any value in a column, every call returns or raises a typed error, and assembling never fails."""
        for column in columns.split(", "):
            copy = home.with_name(f"{table}-{column}")
            copy.mkdir()
            (copy / STORE_NAME).write_bytes((home / STORE_NAME).read_bytes())
            sql(copy, f"UPDATE OR IGNORE {table} SET {column} = {VALUES[value]}")  # noqa: S608 - our own tables
            with open_engine(copy) as engine:
                for use in use_everything():
                    try:
                        use(engine)
                    except HoldfastError:
                        continue
                window = engine.session("s").assemble([make_message("user", QUESTION)], limit=LIMIT)
                assert QUESTION in str(window.render())


class TestADeletedStore:
    @pytest.mark.parametrize("gone", [STORE_NAME, f"{STORE_NAME}-wal"])
    def test_the_next_write_is_not_acknowledged(self, home: Path, gone: str) -> None:
        """A write to a deleted file is a typed error; requests continue, and the report says so."""
        with open_engine(home) as engine:
            (home / gone).unlink()
            with pytest.raises(StorageError, match=r"deleted, moved or replaced.*start this program again"):
                engine.session("s").append([make_message("user", "Is this kept?")])
            window = engine.session("s").assemble([*long_talk(turns=1), make_message("user", QUESTION)], limit=LIMIT)
            assert QUESTION in str(window.render())
            assert any("deleted, moved or replaced" in warning for warning in window.report.warnings)

    def test_one_that_was_put_in_its_place_is_noticed(self, home: Path, tmp_path: Path) -> None:
        """A file that replaces the store while it is open is not used as the store."""
        with open_engine(tmp_path / "other") as other:
            other.session("s").append([make_message("user", "Somebody else's.")])
        with open_engine(home) as engine:
            (tmp_path / "other" / STORE_NAME).replace(home / STORE_NAME)
            with pytest.raises(StorageError, match="replaced"):
                engine.session("s").remember("This is important")

    def test_the_next_to_open_begins_anew_and_archives_everything(self, home: Path) -> None:
        """After the memory was deleted, the next engine gets an empty one and archives the whole conversation."""
        with open_engine(home) as engine:
            for file in home.iterdir():
                file.unlink()
            engine.session("s").assemble(long_talk(turns=2), limit=LIMIT)
        with open_engine(home) as engine:
            engine.session("s").assemble(long_talk(turns=2), limit=LIMIT)
            assert engine.stats().messages == 7


class TestANewerSchema:
    def test_a_process_that_is_older_writes_nothing(self, home: Path) -> None:
        """After another process upgraded the tables, an older one no longer reads or writes, and says so."""
        code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], isolation_level=None).execute(sys.argv[2])"
        bump = f"PRAGMA user_version = {len(MIGRATIONS) + 1}"
        with open_engine(home) as engine:
            subprocess.run([sys.executable, "-I", "-c", code, str(home / STORE_NAME), bump], check=True)
            before = sql(home, "SELECT count(*) FROM messages")
            for attempt in (
                lambda: engine.session("s").append([make_message("user", "From the old one.")]),
                lambda: engine.session("s").forget(ids=[1]),
                lambda: engine.session("s").search(QUESTION),
            ):
                with pytest.raises(StorageError, match=r"newer Holdfast.*pip install --upgrade holdfast-memory"):
                    attempt()
            window = engine.session("s").assemble([*long_talk(turns=1), make_message("user", QUESTION)], limit=LIMIT)
            assert any("newer Holdfast" in warning for warning in window.report.warnings)
        assert sql(home, "SELECT count(*) FROM messages") == before


READ_ONLY = """
import json, sys
from pathlib import Path
from click.testing import CliRunner
from holdfast.cli import holdfast
from holdfast.engine import Engine
from holdfast.errors import StorageError
from holdfast.settings import Embedding, Settings
from support.unprivileged import drop_privileges

drop_privileges()
home, target, question = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
seen = {}
with Engine.open(home, settings=Settings(embedding=Embedding(provider="none"))) as engine:
    session = engine.session("s")
    seen["search"] = [hit.text for hit in session.search(question)]
    seen["recall"] = session.recall(question).block
    seen["get"] = session.get([2])[0].message.text
    seen["facts"] = [fact.content for fact in session.facts()]
    window = session.assemble([{"role": "user", "content": question}], limit=40_000)
    seen["window"], seen["warnings"] = str(window.render()), list(window.report.warnings)
    long = [{"role": "user", "content": f"{number}: " + "word " * 100} for number in range(100)]
    window = session.assemble([*long, {"role": "user", "content": question}], limit=4_000)
    seen["long"], seen["tokens"] = str(window.render()), window.report.total_tokens
    for name, write in {
        "ingest": lambda: session.append([{"role": "user", "content": "more"}]),
        "forget": lambda: session.forget(ids=[1]),
    }.items():
        try:
            write()
        except StorageError as error:
            seen[name] = str(error)
for name, arguments in {
    "cli search": ["search", question],
    "cli get": ["get", "2"],
    "cli facts": ["facts"],
    "cli stats": ["stats"],
    "cli timeline": ["timeline", "--session", "s"],
    "cli export": ["export", str(target)],
    "cli doctor": ["doctor"],
    "cli remember": ["remember", "More of it"],
}.items():
    done = CliRunner().invoke(holdfast, arguments, env={"HOLDFAST_HOME": str(home)})
    seen[name] = [done.exit_code, done.output + str(done.exception or "")]
print(json.dumps(seen))
"""


class TestAReadOnlyStore:
    @pytest.fixture
    def see(self, tmp_path: Path) -> Callable[[Path], dict[str, Any]]:
        """Return what a process sees that may read a memory but not write it."""

        def see(home: Path) -> dict[str, Any]:
            before = {file.name: file.read_bytes() for file in home.iterdir()}
            modes = {place: place.stat().st_mode for place in (*home.iterdir(), home)}
            for place in modes:
                place.chmod(0o555 if place.is_dir() else 0o444)
            try:
                seen = run_unprivileged(READ_ONLY, str(home), str(tmp_path / "out.jsonl"), QUESTION, home=tmp_path)
            finally:
                for place, mode in modes.items():
                    place.chmod(mode)
            assert {file.name: file.read_bytes() for file in home.iterdir()} == before
            return seen

        return see

    def check(self, seen: dict[str, Any], exported: Path) -> None:
        assert any("6543" in text for text in seen["search"])
        assert "6543" in seen["recall"]
        assert seen["get"] == WORDS[1]
        assert seen["facts"] == ["The API listens on port 8443"]
        assert QUESTION in seen["window"]
        assert QUESTION in seen["long"]
        assert 1_000 < seen["tokens"] <= 4_000
        assert any("read-only" in warning for warning in seen["warnings"])
        assert not any(warning.startswith("background") for warning in seen["warnings"])
        assert "read-only" in seen["ingest"]
        assert "read-only" in seen["forget"]
        for name in ("search", "get", "facts", "stats", "export", "doctor"):
            assert seen[f"cli {name}"][0] == 0, seen[f"cli {name}"]
        assert "is read-only, so nothing can be archived" in seen["cli doctor"][1]
        assert seen["cli remember"][0] == 1
        assert "read-only" in seen["cli remember"][1]
        assert WORDS[0] in exported.read_text()

    def test_one_that_was_closed_is_read(self, home: Path, see: Callable[..., Any], tmp_path: Path) -> None:
        """A store on a read-only disk is searched, shown and exported; writes are errors, requests go through."""
        seen = see(home)
        self.check(seen, tmp_path / "out.jsonl")
        assert seen["cli timeline"][0] == 0

    def test_one_that_another_process_writes_is_read(self, home: Path, see: Callable[..., Any], tmp_path: Path) -> None:
        """A read-only process sees what another process wrote that still has the store open."""
        with open_engine(home) as engine:
            engine.session("s").append([make_message("user", "The staging database is called 6543-blue now.")])
            seen = see(home)
        self.check(seen, tmp_path / "out.jsonl")
        assert any("6543-blue" in text for text in seen["search"])

    def test_one_that_was_not_closed_is_read_with_its_log(
        self, tmp_path: Path, see: Callable[..., Any], home: Path
    ) -> None:
        """What a crash left in the log is read too, although nothing can be written next to it."""
        copy = tmp_path / "copy"
        copy.mkdir()
        with open_engine(home) as engine:
            engine.session("s").append([make_message("user", "The staging database is called 6543-blue now.")])
            for ending in ("", "-wal"):
                (copy / f"{STORE_NAME}{ending}").write_bytes((home / f"{STORE_NAME}{ending}").read_bytes())
        seen = see(copy)
        self.check(seen, tmp_path / "out.jsonl")
        assert any("6543-blue" in text for text in seen["search"])

    def test_a_folder_is_read(
        self, home: Path, see: Callable[..., Any], call: Callable[..., Result], tmp_path: Path
    ) -> None:
        """A memory-context folder that cannot be written is read too."""
        assert call("export", "--to", "folder", home.with_name("folder")).exit_code == 0
        self.check(see(home.with_name("folder")), tmp_path / "out.jsonl")

    def test_one_of_the_first_schema_is_read_as_it_is(
        self, see: Callable[..., Any], tmp_path: Path, home: Path
    ) -> None:
        """A store without checksums that cannot be upgraded is read anyway."""
        as_first_schema(home)
        self.check(see(home), tmp_path / "out.jsonl")


NO_ENTRY = """
import json, sys
from pathlib import Path
from click.testing import CliRunner
from holdfast.cli import holdfast
from holdfast.engine import Engine
from holdfast.errors import StorageError
from support.unprivileged import drop_privileges

drop_privileges()
seen = {}
try:
    Engine.open(Path(sys.argv[1]))
except StorageError as error:
    seen["open"] = [1, str(error)]
for command in ("stats", "remember More", "doctor", "doctor --repair", "backup copy.db", "chat --model echo"):
    done = CliRunner().invoke(holdfast, command.split(), env={"HOLDFAST_HOME": sys.argv[1]})
    seen[command] = [done.exit_code, done.output + repr(done.exception)]
print(json.dumps(seen))
"""


def run_unprivileged(code: str, *arguments: str, home: Path) -> dict[str, Any]:
    """Run code in a process to which file modes apply, and return what it prints."""
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "HOME": str(home), "HOLDFAST_EMBEDDING__PROVIDER": "none"}
    done = run_holdfast(*arguments, code=code, env=environment, cwd=home, check=False)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def test_a_home_that_cannot_be_entered_is_an_error_with_the_fix(home: Path, tmp_path: Path) -> None:
    """It may belong to another user: neither the engine nor a command prints a traceback."""
    home.chmod(0)
    try:
        seen = run_unprivileged(NO_ENTRY, str(home), home=tmp_path)
    finally:
        home.chmod(0o700)
    assert len(seen) == 7
    for name, (code, text) in seen.items():
        assert code == 1, (name, text)
        assert "Permission denied. Make the folder yours, or name another" in text, (name, text)
        assert "PermissionError" not in text, (name, text)


def test_doctor_names_a_disk_that_is_almost_full(tmp_path: Path, call: Callable[..., Result]) -> None:
    """It does so before a write fails."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, check=False).returncode:
        pytest.skip("a small disk needs root, and a place where disks can be mounted")
    try:
        done = call("doctor", "--home", place)
    finally:
        subprocess.run(["umount", str(place)], check=True)
    assert f"{place}: only 2 MB of the disk are free: make room" in done.output


@pytest.mark.variants
@pytest.mark.parametrize(
    "arguments",
    [("export",), ("export", "--to", "markdown"), ("export", "--to", "folder"), ("backup",)],
    ids=["jsonl", "markdown", "folder", "backup"],
)
def test_a_copy_that_finds_no_room_leaves_nothing_behind(
    home: Path, call: Callable[..., Result], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """A typed error says so, and the same command works once there is room."""
    target = tmp_path / "copy"
    with open_engine(home) as engine:
        words = random.Random(0).randbytes(100_000).hex()  # noqa: S311 - any will do
        engine.session("s").append([make_message("user", words)])
    with largest_file(64_000):
        done = call(*arguments, target)
    assert isinstance(done.exception, StorageError), done.exception
    assert [place.name for place in tmp_path.iterdir()] == [home.name]
    assert call(*arguments, target).exit_code == 0


def as_first_schema(home: Path) -> None:
    """Convert a store to the first schema: short text and documents without checksums."""
    with closing(sqlite3.connect(home / STORE_NAME)) as connection:
        from holdfast.store.codec import text_bytes, unpack_text  # noqa: PLC0415 - white-box

        def plain(data: bytes | None) -> bytes | None:
            return b"\0" + data[5:] if data is not None and data[:1] == b"\6" else data

        connection.create_function("plain", 1, plain)
        connection.create_function("bare", 1, lambda data: text_bytes(unpack_text(data)))
        connection.execute("UPDATE messages SET body = plain(body)")
        connection.execute("UPDATE passages SET text = plain(text)")
        for table in ("facts", "records", "jobs"):
            connection.execute(f"UPDATE {table} SET data = bare(data)")  # noqa: S608 - our own tables
        connection.execute("DROP INDEX forgotten_words")
        connection.execute("DROP INDEX jobs_of_kind")
        for table in ("usage", "turns"):
            connection.execute(f"DROP TABLE {table}")
        for column in ("words", "nonce"):
            connection.execute(f"ALTER TABLE forgotten DROP COLUMN {column}")
        connection.execute("PRAGMA user_version = 1")
        connection.commit()
        connection.execute("VACUUM")
        connection.execute("PRAGMA journal_mode = DELETE")


class TestAnOlderStore:
    def test_it_is_upgraded_and_keeps_everything(self, home: Path, call: Callable[..., Result]) -> None:
        """A store of the first schema opens, has every message, fact, edit and report, and then finds flipped bits."""

        def contents() -> object:
            with open_engine(home) as engine:
                rows = engine.session("s").get(range(1, 24))
                return (
                    [row.message for row in rows],
                    engine.session("s").facts(),
                    engine.session("s").edits(),
                    (engine.session("s").timeline()),
                )

        before = contents()
        as_first_schema(home)
        assert call("doctor").exit_code == 0
        assert contents() == before
        assert sql(home, "PRAGMA user_version") == [(len(MIGRATIONS),)]
        flip(home, 1, 8 * 40)
        assert "message 1 cannot be read" in call("doctor").output

    def test_a_row_that_was_damaged_before_does_not_stop_the_upgrade(self, home: Path) -> None:
        """Rows that the older version could not read are gaps afterwards; all others are there."""
        as_first_schema(home)
        sql(home, "UPDATE messages SET body = x'00ff80' WHERE id = 1")
        sql(home, "UPDATE messages SET body = 'text' WHERE id = 2")
        sql(home, "UPDATE facts SET data = x'7b'")
        with open_engine(home) as engine:
            assert engine.session("s").get([3])[0].message.text == WORDS[2]
            assert engine.session("s").facts() == []
            with pytest.raises(StorageError, match=r"message 1 is damaged.*message 2 is damaged"):
                engine.session("s").get([1, 2])
