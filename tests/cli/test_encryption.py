"""`holdfast encrypt` and `holdfast decrypt`, and the other commands with an encrypted memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.settings import Secret
from support.command import Done, run_command
from support.forked import Holdfast
from support.keyrings import use_own_keyring
from support.stores import add_unreadable_job, require_sqlcipher

require_sqlcipher()

KEY = "5eed" * 16
OTHER_KEY = "07" * 32
SETTING = "HOLDFAST_ARCHIVE__ENCRYPTION_KEY"


class _Machine:
    """A home with a memory, and the commands that are run with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {"HOME": str(folder), "HOLDFAST_HOME": str(folder / "memory"), "OLD": KEY, "NEW": OTHER_KEY}
        self.environ["THIRD"] = "ab" * 32
        self.file = folder / "memory" / "holdfast.db"
        self.shown = ""

    def run(self, *arguments: str, key: str | None = None) -> Done:
        setting = {} if key is None else {SETTING: key}
        done = run_command(*arguments, folder=self.folder, environ={**self.environ, **setting})
        self.shown += done.stdout + done.stderr
        return done

    def search(self, key: str | None) -> str:
        """Return what a search finds, or the error."""
        done = self.run("search", "lighthouse", key=key)
        return done.stdout if done.returncode == 0 else done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> _Machine:
    """A machine whose memory has one fact and one message, and is not encrypted."""
    machine = _Machine(tmp_path)
    transcript = tmp_path / "session.jsonl"
    lines = [{"role": "user", "content": "The lighthouse 灯塔 has 199 steps."}]
    transcript.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    assert machine.run("import", str(transcript)).returncode == 0
    return machine


def test_a_memory_is_encrypted_gets_another_key_and_is_decrypted(machine: _Machine) -> None:
    """In between, each command says what does not match; no key is ever shown."""
    assert "`holdfast encrypt`" in machine.search("env:OLD")
    done = machine.run("encrypt", "--json", key="env:OLD")
    assert json.loads(done.stdout) == {
        "path": str(machine.file),
        "encrypted": True,
        "key_changed": False,
        "readable_copies": [],
        "copies_with_earlier_key": [],
    }
    assert "灯塔".encode() not in machine.file.read_bytes()
    assert "199 steps" in machine.search("env:OLD")
    assert "Set archive.encryption_key" in machine.search(None)
    assert "not the key of this store" in machine.search("env:NEW")

    assert "--old-key" in machine.run("encrypt", key="env:NEW").stderr
    done = machine.run("encrypt", "--old-key", "env:OLD", key="env:NEW")
    assert (done.returncode, done.stdout) == (0, f"{machine.file} is encrypted with the new key.\n")
    assert "199 steps" in machine.search("env:NEW")

    done = machine.run("decrypt", key="env:NEW")
    assert done.returncode == 0
    assert "Remove archive.encryption_key" in done.stdout
    assert "199 steps" in machine.search(None)
    assert KEY not in machine.shown
    assert OTHER_KEY not in machine.shown


def test_every_command_for_upkeep_works(machine: _Machine) -> None:
    """Also `doctor`, which names the place of the key and not the words of a command."""
    machine.run("encrypt", key="env:OLD")
    for arguments in (
        ["doctor"],
        ["doctor", "--repair"],
        ["reindex"],
        ["vacuum"],
        ["backup", str(machine.folder / "copy.db")],
        ["migrate", str(machine.file), str(machine.folder / "moved.db")],
        ["stats"],
        ["remember", "The keeper is called Ada"],
    ):
        done = machine.run(*arguments, key=f"command:echo {KEY}")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "echo" not in done.stdout + done.stderr
    for name in ("copy.db", "moved.db", "memory/holdfast.db"):
        assert (machine.folder / name).read_bytes().startswith(b"Holdfast")
    assert "the key from the command" in machine.shown
    assert KEY not in machine.shown


def test_doctor_names_a_key_that_does_not_match(machine: _Machine) -> None:
    """It does not take the store for a damaged one."""
    machine.run("encrypt", key="env:OLD")
    before = machine.file.read_bytes()
    for key in (None, "env:NEW", "env:MISSING"):
        done = machine.run("doctor", "--repair", key=key)
        assert done.returncode == 1
        assert "damaged file" not in done.stdout
        assert "✓ encrypted" not in done.stdout
    assert machine.file.read_bytes() == before
    assert "Set archive.encryption_key" in machine.run("doctor").stdout


@pytest.mark.parametrize(
    ("arguments", "key", "reason"),
    [
        (["encrypt"], None, "set archive.encryption_key first"),
        (["encrypt"], "env:MISSING", "MISSING is not set"),
        (["encrypt", "--old-key", "env:OLD"], "env:NEW", "is not encrypted"),
        (["encrypt", "--home", "postgresql://nowhere/x"], "env:OLD", "on a server"),
        (["decrypt"], "env:OLD", "is not encrypted"),
        (["decrypt"], None, "name where the key is"),
        (["decrypt", "--home", "elsewhere"], "env:OLD", "no memory at"),
    ],
)
def test_what_cannot_be_done_is_refused(machine: _Machine, arguments: list[str], key: str | None, reason: str) -> None:
    """The memory stays as it was."""
    before = machine.file.read_bytes()
    done = machine.run(*arguments, key=key)
    assert done.returncode == 1
    assert reason in done.stderr
    assert machine.file.read_bytes() == before


def test_the_key_itself_is_refused_as_a_place(machine: _Machine) -> None:
    """It is not repeated in the error."""
    machine.run("encrypt", key="env:OLD")
    done = machine.run("decrypt", "--key", KEY)
    assert done.returncode == 1
    assert "never the key itself" in done.stderr
    assert KEY not in machine.shown


@pytest.mark.parametrize(
    ("arguments", "key", "reason"),
    [
        (["encrypt", "--old-key", "env:NEW"], "env:THIRD", "the key that --old-key names is not the key of this store"),
        (["decrypt", "--key", "env:NEW"], "env:OLD", "the key that --key names is not the key of this store"),
        (["decrypt"], "env:NEW", "the key that archive.encryption_key names is not the key of this store"),
        (["encrypt", "--old-key", "env:NEW"], "env:OLD", "has the key that archive.encryption_key names already"),
        (["encrypt", "--old-key", "env:MISSING"], "env:NEW", "--old-key: the environment variable MISSING is not set"),
        (["decrypt", "--key", "env:MISSING"], None, "--key: the environment variable MISSING is not set"),
        (["decrypt"], "env:MISSING", "archive.encryption_key: the environment variable MISSING is not set"),
    ],
)
def test_a_key_that_does_not_match_is_named_by_its_option(
    machine: _Machine, arguments: list[str], key: str | None, reason: str
) -> None:
    """Also if the key was changed before, such as by a run that was killed at its end."""
    machine.run("encrypt", key="env:OLD")
    before = machine.file.read_bytes()
    done = machine.run(*arguments, key=key)
    assert done.returncode == 1
    assert reason in done.stderr
    assert machine.file.read_bytes() == before


def test_decrypting_a_plain_store_does_not_name_a_setting_that_is_not_set(machine: _Machine) -> None:
    """If it is set, it has to be removed."""
    assert "Remove archive.encryption_key" in machine.run("decrypt", "--key", "env:OLD", key="env:OLD").stderr
    done = machine.run("decrypt", "--key", "env:OLD")
    assert "is not encrypted" in done.stderr
    assert "archive.encryption_key" not in done.stderr


def test_a_memory_that_does_not_exist_yet_is_created_encrypted(tmp_path: Path) -> None:
    """`holdfast encrypt` says so."""
    machine = _Machine(tmp_path)
    assert "will be encrypted" in machine.run("encrypt", key="env:OLD").stdout
    assert machine.run("remember", "灯塔 is Chinese for lighthouse", key="env:OLD").returncode == 0
    assert machine.file.read_bytes().startswith(b"Holdfast")


def test_a_damaged_copy_that_stays_readable_is_named(machine: _Machine) -> None:
    """A repair of the plain store has kept it."""
    add_unreadable_job(machine.file)
    machine.run("doctor", "--repair")
    done = machine.run("encrypt", key="env:OLD")
    assert "These copies of it are not: " in done.stdout
    assert "holdfast.db.damaged." in done.stdout


def test_a_damaged_copy_that_is_encrypted_is_not_called_readable(machine: _Machine) -> None:
    """It has the key that the store had before."""
    machine.run("encrypt", key="env:OLD")
    add_unreadable_job(machine.file, key=Secret(KEY))
    machine.run("doctor", "--repair", key="env:OLD")
    done = machine.run("encrypt", "--old-key", "env:OLD", key="env:NEW")
    assert "These copies of it have another key: " in done.stdout
    assert "are not" not in done.stdout


def test_backups_next_to_the_store_are_named(machine: _Machine) -> None:
    """Whatever their names are, but not files of other programs, and not those that have the key."""
    for name in ("COPY.db", "holdfast.db.bak", "以前"):
        machine.run("backup", str(machine.file.with_name(name)))
    machine.file.with_name("other.db").write_bytes(b"SQLite format 3\x00" + bytes(100))
    done = machine.run("encrypt", "--json", key="env:OLD")
    names = [Path(copy).name for copy in json.loads(done.stdout)["readable_copies"]]
    assert names == ["COPY.db", "holdfast.db.bak", "以前"]
    for name in names:
        machine.file.with_name(name).unlink()
    machine.run("backup", str(machine.file.with_name("COPY.db")), key="env:OLD")
    done = machine.run("encrypt", "--old-key", "env:OLD", "--json", key="env:NEW")
    result = json.loads(done.stdout)
    assert (result["key_changed"], result["readable_copies"]) == (True, [])
    assert [Path(copy).name for copy in result["copies_with_earlier_key"]] == ["COPY.db"]
    machine.file.with_name("COPY.db").rename(machine.file)
    assert "holdfast encrypt --old-key PLACE" in machine.search("env:NEW")


@pytest.mark.parametrize("key", [None, "env:OLD"], ids=["plain", "encrypted"])
@pytest.mark.parametrize("place", ["copy.db", "memory"])
def test_a_memory_is_not_taken_for_a_transcript(machine: _Machine, key: str | None, place: str) -> None:
    """The error says how a memory or a backup of it is used."""
    if key is not None:
        machine.run("encrypt", key=key)
    assert machine.run("backup", str(machine.folder / "copy.db"), key=key).returncode == 0
    done = machine.run("import", place, "--home", str(machine.folder / "other"), key=key)
    assert done.returncode == 1
    assert f"{place}: a memory, not a transcript" in done.stderr
    assert f"--home {place}" in done.stderr
    assert "`holdfast migrate" in done.stderr


def test_a_replay_into_a_memory_uses_the_key(machine: _Machine) -> None:
    """A new memory is encrypted, and one that is encrypted can be used."""
    home = machine.folder / "other"
    for _ in range(2):
        done = machine.run("context", str(machine.folder / "session.jsonl"), "--home", str(home), key="env:OLD")
        assert done.returncode == 0, done.stderr
        assert (home / "holdfast.db").read_bytes().startswith(b"Holdfast")


def test_the_keyring_gets_a_key_and_keeps_it(machine: _Machine) -> None:
    """Without the key nothing can be read, and no other is made for a store that is encrypted."""
    with use_own_keyring() as keyring:
        assert "makes one" in machine.search("keyring:mine")
        assert "Keep a copy" in machine.run("encrypt", key="keyring:mine").stderr
        assert "199 steps" in machine.search("keyring:mine")
        (key,) = keyring.found.values()
        keyring.found.clear()
        assert "put its key back" in machine.search("keyring:mine")
        assert machine.run("encrypt", key="keyring:mine").returncode == 1
        assert keyring.found == {}
    assert key not in machine.shown


@pytest.mark.skipif(sys.platform == "win32", reason="the server is ended by a signal")
def test_a_memory_whose_server_runs_is_not_converted(machine: _Machine) -> None:
    """The error names the process."""
    arguments = ("serve", "--port", "0", "--json")
    with Holdfast[bytes](*arguments, env=machine.environ, cwd=machine.folder, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline()
        done = machine.run("encrypt", key="env:OLD")
        server.terminate()
    assert done.returncode == 1
    assert f"process {server.pid}" in done.stderr
    assert machine.run("encrypt", key="env:OLD").returncode == 0
