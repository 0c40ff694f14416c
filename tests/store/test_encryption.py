"""A store that is encrypted: no readable byte, errors that say the fix, and conversion that survives a kill."""

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest

from holdfast import Engine
from holdfast.errors import EncryptionError, HoldfastError, StorageError
from holdfast.settings import Archive, Secret, Settings
from holdfast.store.base import Select
from holdfast.store.connection import MIGRATIONS, SqliteDatabase, connect, list_errors, migrate, open_file
from holdfast.store.opening import open_store
from holdfast.store.repair import repair
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite_vectors import VECTOR_BLOCK_PASSAGES
from holdfast.store.upkeep import backup, check, reindex, vacuum
from holdfast.testing.rows import HERE, MODEL, make_message, texts, vectors
from support.killed_repair import MOMENTS, kill_repair
from support.stores import KEY, require_sqlcipher

require_sqlcipher()

from holdfast.store import encryption  # noqa: E402 - an extra
from holdfast.store.cipher import open_encrypted  # noqa: E402 - an extra
from holdfast.store.encryption import convert, has_key  # noqa: E402 - an extra

OTHER_KEY = Secret("07" * 32)
WORDS = ("lighthousekeeper", "灯塔看守人", "灯台守")
TEXT = f"The {WORDS[0]} wrote to us. {WORDS[1]}昨天来信了。{WORDS[2]}から手紙が来た。"


def fill(path: Path, *, key: Secret | None, count: int = 40) -> list[str]:
    """Fill a store with messages, and return their texts."""
    written = [f"{TEXT} Number {number}." for number in range(count)]
    with SqliteStore(path, key=key) as store:
        store.add_messages([make_message(text) for text in written])
    return written


def read(path: Path, *, key: Secret | None) -> list[str]:
    """Return the texts of all messages."""
    with SqliteStore(path, key=key) as store:
        return texts(store)


def embed(store: SqliteStore) -> int:
    """Give every passage vectors; return how many have some."""
    missing = store.without_vectors(MODEL, limit=10_000)
    store.add_vectors([vectors(passage.number, range(len(passage.windows))) for passage in missing])
    return store.embedded(MODEL)


def damage(path: Path, *, page: int) -> None:
    """Change one bit of a page."""
    data = bytearray(path.read_bytes())
    data[4096 * (page - 1) + 100] ^= 1
    path.write_bytes(data)


def can_run(path: Path, query: str) -> bool:
    """Return whether all pages that a query needs can be read."""
    with closing(open_file(path, key=KEY)) as connection:
        try:
            connection.execute(query).fetchall()
        except list_errors():
            return False
    return True


def damage_messages(path: Path) -> None:
    """Damage a page with messages, but not that of the last one."""
    intact = path.read_bytes()
    page = 1
    newest = "SELECT body FROM messages ORDER BY id DESC LIMIT 1"
    while can_run(path, "SELECT body FROM messages") or not can_run(path, newest):
        path.write_bytes(intact)
        page += 1
        damage(path, page=page)


def find_words(folder: Path) -> list[str]:
    """Return the files of a folder that have one of the words in any byte, in UTF-8 or UTF-16."""
    found: list[str] = []
    for file in sorted(folder.rglob("*")):
        data = file.read_bytes().lower() if file.is_file() else b""
        for word in WORDS:
            if word.encode() in data or word.encode("utf-16-le") in data:
                found.append(f"{file.name}: {word}")
    return found


def test_no_file_of_a_session_has_a_readable_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the store nor a file next to it, while it is open or after it is closed."""
    monkeypatch.setenv("MY_KEY", KEY.reveal())
    settings = Settings(archive=Archive(encryption_key="env:MY_KEY"))
    with Engine.open(tmp_path / "memory", settings=settings) as engine:
        session = engine.session(f"about the {WORDS[0]}", project=WORDS[1])
        session.remember(f"The {WORDS[0]} is called {WORDS[1]}")
        messages = [{"role": "user", "content": f"{TEXT} {number}"} for number in range(30)]
        session.assemble(messages, limit=4000)
        assert WORDS[0] in str(session.recall(f"What did the {WORDS[0]} write?"))
        assert find_words(tmp_path) == []
    assert [file.name for file in (tmp_path / "memory").iterdir() if file.suffix == ".db"] == ["holdfast.db"]
    assert find_words(tmp_path) == []
    plain = tmp_path / "plain"
    with Engine.open(plain) as engine:
        engine.session("s").remember(f"The {WORDS[0]} is called {WORDS[1]}")
    assert find_words(plain), "the search finds what is readable"


def test_vectors_have_no_copy_next_to_an_encrypted_store(tmp_path: Path) -> None:
    """Vectors are read from the store itself, also after it was rewritten."""
    path = tmp_path / "store.db"
    fill(path, key=KEY, count=VECTOR_BLOCK_PASSAGES)  # a block is copied when it is complete
    with SqliteStore(path, key=KEY, copied_blocks=1) as store:
        assert embed(store) == VECTOR_BLOCK_PASSAGES
        assert store._writer.last_number("vector_blocks") == 1
        store.remove_messages(Select(scope=HERE, ids=(1,)))
    vacuum(path, key=KEY)
    assert [file.name for file in tmp_path.iterdir() if "vectors" in file.name] == []


def test_a_new_store_is_for_its_owner_alone(tmp_path: Path) -> None:
    """The file has the mode of a plain store, and the mark of an encrypted one."""
    path = tmp_path / "deep" / "store.db"
    fill(path, key=KEY)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes().startswith(b"Holdfast")


def test_a_link_to_a_store_that_does_not_exist_creates_it_there(tmp_path: Path) -> None:
    """As an encrypted store for its owner alone, which can be told from other files."""
    target = tmp_path / "disk" / "store.db"
    link = tmp_path / "store.db"
    target.parent.mkdir()
    link.symlink_to(target)
    fill(link, key=KEY, count=1)
    assert has_key(target)
    assert target.stat().st_mode & 0o777 == 0o600
    assert link.is_symlink()
    with pytest.raises(EncryptionError, match="is encrypted"):
        SqliteStore(link)


def test_a_store_is_created_on_a_disk_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a USB stick. No part of it is left."""

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "store.db"
    written = fill(path, key=KEY, count=2)
    assert has_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read(path, key=KEY) == written
    assert list(tmp_path.iterdir()) == [path]


def test_only_a_plain_store_is_mapped_into_memory(tmp_path: Path) -> None:
    """Pages of an encrypted one are decrypted first, and not read from a map."""
    sizes: list[int] = []
    for name, key in (("plain.db", None), ("encrypted.db", KEY)):
        fill(tmp_path / name, key=key, count=1)
        with closing(connect(tmp_path / name, wait=0, key=key)) as connection:
            sizes.append(int(connection.execute("PRAGMA mmap_size").fetchone()[0]))
    assert sizes[0] > 0
    assert sizes[1] == 0


def test_many_can_create_a_store_at_once(tmp_path: Path) -> None:
    """All of them use the file of the first, with its salt."""
    path = tmp_path / "store.db"
    begin = Barrier(8)

    def add(number: int) -> None:
        begin.wait()
        with SqliteStore(path, key=KEY) as store:
            store.add_messages([make_message(f"number {number}")])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(8)))
    assert sorted(read(path, key=KEY)) == [f"number {number}" for number in range(8)]
    assert [file.name for file in tmp_path.iterdir()] == ["store.db"]


# --- keys and settings that do not match the file ---------------------------------------


def test_a_wrong_key_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The error names the setting, shows no key, and nothing else is printed."""
    path = tmp_path / "store.db"
    fill(path, key=KEY)
    before = path.read_bytes()
    with pytest.raises(EncryptionError, match="is not the key of this store") as caught:
        SqliteStore(path, key=OTHER_KEY)
    assert OTHER_KEY.reveal() not in str(caught.value)
    with pytest.raises(EncryptionError):
        check(path, key=OTHER_KEY)
    with pytest.raises(EncryptionError):
        repair(path, key=OTHER_KEY)
    assert path.read_bytes() == before
    assert capfd.readouterr().err == ""


def test_an_encrypted_store_without_the_setting_names_it(tmp_path: Path) -> None:
    """Opening, checking and repairing do not take it for a damaged file."""
    path = tmp_path / "store.db"
    fill(path, key=KEY)
    with pytest.raises(EncryptionError, match=r"Set archive\.encryption_key"):
        SqliteStore(path)
    with pytest.raises(EncryptionError):
        check(path)
    before = path.read_bytes()
    with pytest.raises(EncryptionError):
        repair(path)
    assert path.read_bytes() == before


def test_a_plain_store_with_the_setting_names_the_command(tmp_path: Path) -> None:
    """It is not encrypted in passing, and stays as it is."""
    path = tmp_path / "store.db"
    written = fill(path, key=None)
    with pytest.raises(EncryptionError, match="`holdfast encrypt`"):
        SqliteStore(path, key=KEY)
    assert read(path, key=None) == written


@pytest.mark.parametrize(
    ("stored", "others", "problem"),
    [
        (None, [KEY], "is not encrypted"),
        (KEY, [None, OTHER_KEY], "is encrypted|is not the key of this store"),
    ],
)
def test_a_refused_opening_does_not_disturb_one_that_is_open(
    stored: Secret | None, others: list[Secret | None], problem: str, tmp_path: Path
) -> None:
    """Two libraries in one process do not know each other's locks: the log of the other would be deleted."""
    path = tmp_path / "store.db"
    with SqliteStore(path, key=stored) as store:
        store.add_messages([make_message("before")])
        files = sorted(tmp_path.iterdir())
        for other in others:
            with pytest.raises(EncryptionError, match=problem):
                SqliteStore(path, key=other)
        assert sorted(tmp_path.iterdir()) == files
        store.add_messages([make_message("之后")])
    assert read(path, key=stored) == ["before", "之后"]


def test_an_empty_file_is_not_encrypted_by_accident(tmp_path: Path) -> None:
    """Two processes could give it two salts."""
    path = tmp_path / "store.db"
    path.touch()
    with pytest.raises(EncryptionError, match="Delete it"):
        SqliteStore(path, key=KEY)


def test_a_memory_context_folder_is_refused(tmp_path: Path) -> None:
    """Its files are shared with another program."""
    (tmp_path / "segments.jsonl").touch()
    with pytest.raises(EncryptionError, match="cannot be encrypted"):
        open_store(tmp_path, key=KEY)


def test_a_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that would have no effect is an error."""
    monkeypatch.setenv("MY_KEY", KEY.reveal())
    settings = Settings(archive=Archive(path="postgresql://nowhere/x", encryption_key="env:MY_KEY"))
    with pytest.raises(HoldfastError, match="only SQLite files are encrypted"):
        Engine.open(settings=settings)


# --- upkeep ---------------------------------------------------------------------------


def test_a_backup_has_the_same_key(tmp_path: Path) -> None:
    """The copy is encrypted too."""
    path = tmp_path / "store.db"
    written = fill(path, key=KEY)
    backup(path, tmp_path / "copy.db", key=KEY)
    assert has_key(tmp_path / "copy.db")
    assert read(tmp_path / "copy.db", key=KEY) == written
    assert find_words(tmp_path) == []


def test_an_encrypted_store_is_checked_and_indexed_again(tmp_path: Path) -> None:
    """Also if it cannot be written."""
    path = tmp_path / "store.db"
    fill(path, key=KEY)
    assert reindex(path, key=KEY) == 40
    assert check(path, key=KEY).sound
    with SqliteStore(path, key=KEY) as store:
        assert store.counts()["bytes"] == path.stat().st_size
    path.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        assert check(path, key=KEY).counts["messages"] == 40
    finally:
        tmp_path.chmod(0o700)


def test_a_damaged_page_does_not_hide_the_others(tmp_path: Path) -> None:
    """What is on them is read and written on, over new connections."""
    path = tmp_path / "store.db"
    written = fill(path, key=KEY, count=400)
    vacuum(path, key=KEY)
    damage_messages(path)
    with SqliteStore(path, key=KEY) as store:
        for _ in range(2):
            with pytest.raises(StorageError, match="--repair"):
                texts(store)
            (last,) = store.read_messages(Select(scope=HERE, ids=(400,)))
            assert last.message.text == written[-1]
            assert store.add_messages([make_message("one more")])
        assert store.read_messages(Select(scope=HERE, ids=(401,)))


def test_damaged_rows_are_still_listed_after_a_damaged_page(tmp_path: Path) -> None:
    """The connection that read them is replaced when it meets the page."""
    path = tmp_path / "store.db"
    fill(path, key=KEY, count=400)
    with closing(open_file(path, key=KEY)) as connection:
        connection.execute("UPDATE messages SET body = X'00' WHERE id = 400")
    vacuum(path, key=KEY)
    damage_messages(path)
    with SqliteStore(path, key=KEY) as store:
        assert store.read_messages(Select(scope=HERE, ids=(400,))) == []
        (gap,) = store.gaps
        assert gap.id == 400
        with pytest.raises(StorageError, match="--repair"):
            texts(store)
        assert gap in store.gaps


def test_a_repair_keeps_what_is_outside_of_a_damaged_page(tmp_path: Path) -> None:
    """One changed bit makes a page unreadable, and no other."""
    path = tmp_path / "store.db"
    written = fill(path, key=KEY, count=400)
    vacuum(path, key=KEY)
    damage_messages(path)
    assert not check(path, key=KEY).sound
    repaired = repair(path, key=KEY)
    kept = read(path, key=KEY)
    assert set(kept) <= set(written)
    assert 300 < len(kept) == repaired.kept["messages"] < 400
    assert any("the messages with these numbers" in lost for lost in repaired.lost)
    assert check(path, key=KEY).sound
    assert find_words(tmp_path) == []


def test_a_repair_keeps_what_is_between_two_damaged_pages(tmp_path: Path) -> None:
    """Messages in the middle can be reached from neither end."""
    path = tmp_path / "store.db"
    fill(path, key=KEY, count=400)
    vacuum(path, key=KEY)
    intact = path.read_bytes()
    broken: list[int] = []
    for page in range(2, len(intact) // 4096 + 1):
        damage(path, page=page)
        ends = "SELECT body FROM messages WHERE id IN (1, 200, 400)"
        if can_run(path, ends) and not can_run(path, "SELECT body FROM messages"):
            broken.append(page)
        path.write_bytes(intact)
    damage(path, page=broken[0])
    damage(path, page=broken[-1])
    repair(path, key=KEY)
    kept = read(path, key=KEY)
    assert 300 < len(kept) < 400
    assert f"{TEXT} Number 199." in kept


def test_a_repair_keeps_out_what_is_forgotten(tmp_path: Path) -> None:
    """It is not archived again, and its number is not given again."""
    path = tmp_path / "store.db"
    written = fill(path, key=KEY)
    with SqliteStore(path, key=KEY) as store:
        store.remove_messages(Select(scope=HERE, ids=(3, 40)))
    repair(path, key=KEY)
    with SqliteStore(path, key=KEY) as store:
        assert store.add_messages([make_message(written[2])]) == [0]
        assert store.add_messages([make_message("something new")]) == [41]


def test_a_store_whose_list_of_tables_is_damaged_is_not_replaced(tmp_path: Path) -> None:
    """The error says that a backup is needed."""
    path = tmp_path / "store.db"
    fill(path, key=KEY)
    vacuum(path, key=KEY)
    intact = path.read_bytes()
    page = 1
    while can_run(path, "SELECT sql FROM sqlite_master"):
        path.write_bytes(intact)
        page += 1
        damage(path, page=page)
    before = path.read_bytes()
    with pytest.raises(StorageError, match="Restore a backup"):
        repair(path, key=KEY)
    assert path.read_bytes() == before


# --- conversion -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"), [(None, KEY), (KEY, None), (KEY, OTHER_KEY)], ids=["encrypt", "decrypt", "change the key"]
)
def test_a_conversion_keeps_everything(old: Secret | None, new: Secret | None, tmp_path: Path) -> None:
    """Messages, vectors, numbers, and what was forgotten."""
    path = tmp_path / "store.db"
    written = fill(path, key=old)
    with SqliteStore(path, key=old, copied_blocks=1) as store:
        store.remove_messages(Select(scope=HERE, ids=(3,)))
        embed(store)
    convert(path, old=old, new=new)
    del written[2]
    assert read(path, key=new) == written
    with SqliteStore(path, key=new) as store:
        assert store.embedded(MODEL) == len(written)
        # A number is not given twice, and what was forgotten stays forgotten.
        assert store.add_messages([make_message("one more")]) == [41]
    assert check(path, key=new).sound
    assert has_key(path) == (new is not None)
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(file.name for file in tmp_path.iterdir()) == ["store.db"]
    assert bool(find_words(tmp_path)) == (new is None)
    with pytest.raises(EncryptionError):
        SqliteStore(path, key=old)


def test_copies_of_vectors_are_deleted_when_a_store_is_encrypted(tmp_path: Path) -> None:
    """They could be read without the key."""
    path = tmp_path / "store.db"
    fill(path, key=None, count=VECTOR_BLOCK_PASSAGES)  # a block is copied when it is complete
    with SqliteStore(path, copied_blocks=1) as store:
        embed(store)
    assert any("vectors" in file.name for file in tmp_path.iterdir())
    convert(path, old=None, new=KEY)
    assert [file.name for file in tmp_path.iterdir()] == ["store.db"]


@pytest.mark.variants(first=True)
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
@MOMENTS
def test_what_a_killed_repair_has_left_is_deleted_when_a_store_is_encrypted(tmp_path: Path, moment: str) -> None:
    """It would be a readable copy of the store."""
    path = tmp_path / "store.db"
    fill(path, key=None)
    assert kill_repair(path, moment=moment)
    convert(path, old=None, new=KEY)
    assert sorted(tmp_path.rglob("*")) == [path]


def test_a_conversion_that_fails_leaves_no_copy(tmp_path: Path) -> None:
    """That of a store which is decrypted would be readable."""
    path = tmp_path / "store.db"
    fill(path, key=KEY, count=400)
    vacuum(path, key=KEY)
    damage_messages(path)
    with pytest.raises(StorageError, match="doctor --repair"):
        convert(path, old=KEY, new=None)
    assert [file.name for file in tmp_path.iterdir()] == ["store.db"]
    assert has_key(path)


def test_a_copy_that_lacks_a_row_is_refused(tmp_path: Path) -> None:
    """Even if it is a database in order. Here another program changes it after it is written."""
    path = tmp_path / "store.db"
    part = tmp_path / "store.db.converted"
    fill(path, key=None)

    def lose_row(statement: str) -> None:
        if "integrity_check" in statement:
            with closing(open_file(part, key=KEY)) as other:
                other.execute("DELETE FROM messages WHERE id = 7")

    with closing(open_encrypted(path, key=None, methods=SqliteDatabase)) as source:
        source.set_trace_callback(lose_row)
        with pytest.raises(StorageError, match="the copy of messages is not complete"):
            encryption._copy(source, part, source_path=path, key=KEY)


def test_the_old_file_is_overwritten(tmp_path: Path) -> None:
    """Also if a second name keeps it."""
    path = tmp_path / "store.db"
    fill(path, key=None)
    os.link(path, tmp_path / "other-name")
    convert(path, old=None, new=KEY)
    assert set((tmp_path / "other-name").read_bytes()) == {0}


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """The file that it leads to is replaced."""
    path = tmp_path / "store.db"
    written = fill(path, key=None)
    link = tmp_path / "link.db"
    link.symlink_to(path)
    convert(link, old=None, new=KEY)
    assert link.is_symlink()
    assert read(link, key=KEY) == written


@pytest.mark.parametrize(("stored", "old"), [(KEY, None), (KEY, OTHER_KEY), (None, KEY)])
def test_a_conversion_with_the_wrong_key_changes_nothing(
    stored: Secret | None, old: Secret | None, tmp_path: Path
) -> None:
    """Nor is a copy left."""
    path = tmp_path / "store.db"
    written = fill(path, key=stored)
    with pytest.raises(EncryptionError):
        convert(path, old=old, new=OTHER_KEY)
    assert read(path, key=stored) == written
    assert [file.name for file in tmp_path.iterdir()] == ["store.db"]


def test_a_store_of_an_earlier_version_is_converted_and_upgraded(tmp_path: Path) -> None:
    """It is upgraded when it is opened, as always."""
    path = tmp_path / "store.db"
    with closing(connect(path, wait=1)) as connection:
        migrate(connection, path=path, migrations=MIGRATIONS[:1])
    convert(path, old=None, new=KEY)
    written = fill(path, key=KEY)
    assert read(path, key=KEY) == written
    assert check(path, key=KEY).sound


def test_the_database_of_another_program_is_not_converted(tmp_path: Path) -> None:
    """It stays byte for byte."""
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs(x)")
    before = path.read_bytes()
    with pytest.raises(StorageError, match="not a Holdfast store"):
        convert(path, old=None, new=KEY)
    assert path.read_bytes() == before


OPEN_STORE = """
import sys
from holdfast.store.sqlite import SqliteStore
with SqliteStore(sys.argv[1]) as store:
    print("open", flush=True)
    sys.stdin.read()
"""


def test_a_store_that_another_process_has_open_is_not_converted(tmp_path: Path) -> None:
    """It can be converted once the process has ended."""
    path = tmp_path / "store.db"
    written = fill(path, key=None)
    with subprocess.Popen(
        [sys.executable, "-c", OPEN_STORE, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline().strip() == b"open"
        with pytest.raises(StorageError, match="another program has it open"):
            convert(path, old=None, new=KEY, wait=0.1)
        other.communicate()
    assert read(path, key=None) == written
    convert(path, old=None, new=KEY)
    assert read(path, key=KEY) == written


CONVERT_AND_DIE = """
import os, resource, shutil, signal, sys
from pathlib import Path
from holdfast.settings import Secret
from holdfast.store.encryption import convert

path, old, new = Path(sys.argv[1]), *(Secret(key) if key else None for key in sys.argv[2:4])
sizes = [int(size) for size in sys.argv[4:]]
calls = 0
last = 0

def count(event, arguments):
    global calls
    if event == "open" or event.startswith("os."):
        calls += 1
        if calls == last:
            os.kill(os.getpid(), signal.SIGKILL)

def run(name, *, size=None):
    folder = path.parent / name
    folder.mkdir()
    copy = shutil.copyfile(path, folder / "store.db")
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    if size is None:
        sys.addaudithook(count)
    else:  # the system ends the process when a file would become larger
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    convert(copy, old=old, new=new)
    os._exit(0)

for size in sizes:
    assert run(f"size {size}", size=size) == signal.SIGXFSZ
last = 1
while run(f"step {last}") == signal.SIGKILL:
    last += 1
print(last)
"""


@pytest.mark.variants(first=True)
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
@pytest.mark.parametrize(("old", "new"), [(None, KEY), (KEY, None)], ids=["encrypt", "decrypt"])
def test_a_kill_during_a_conversion_leaves_one_usable_store(
    old: Secret | None, new: Secret | None, tmp_path: Path
) -> None:
    """Before each step that opens, renames or deletes a file, and while the copy is written."""
    path = tmp_path / "store.db"
    written = fill(path, key=old)
    keys = [key.reveal() if key else "" for key in (old, new)]
    sizes = [int(path.stat().st_size * share) for share in (0.5, 0.9)]
    command = [sys.executable, "-c", CONVERT_AND_DIE, str(path), *keys, *map(str, sizes)]
    single = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # a process that has threads cannot be forked safely
    last = int(subprocess.run(command, check=True, capture_output=True, env=single).stdout)
    for size in sizes:
        killed = tmp_path / f"size {size}" / "store.db"
        copy = killed.with_name("store.db.converted")
        assert copy.exists()
        assert read(killed, key=old) == written
        other = shutil.copytree(killed.parent, tmp_path / f"size {size}, forgotten") / "store.db"
        with SqliteStore(other, key=old) as store:
            store.remove_messages(Select(scope=HERE, ids=(1,)))
        assert [file.name for file in other.parent.iterdir()] == ["store.db"], "it may contain what is forgotten"
        convert(killed, old=old, new=new)  # removes what is left of the copy
        assert read(killed, key=new) == written
        assert [file.name for file in killed.parent.iterdir()] == ["store.db"]
    outcomes: list[bool] = []
    for step in range(1, last + 1):
        killed = tmp_path / f"step {step}" / "store.db"
        is_converted = has_key(killed) == (new is not None)
        assert read(killed, key=new if is_converted else old) == written
        outcomes.append(is_converted)
    assert outcomes == sorted(outcomes)
    assert {False, True} == set(outcomes)
