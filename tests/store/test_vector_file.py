"""The copy of vectors next to a file: the same answers with it, without it, and whatever happens to it."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any

import pytest

from holdfast.store.base import Select
from holdfast.store.connection import connect
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite_vectors import VECTOR_BLOCK_PASSAGES
from holdfast.store.upkeep import reindex
from holdfast.store.vector_file import open_copy, write_copy
from holdfast.testing.processes import acknowledged_until_killed, child
from holdfast.testing.rows import HERE, MODEL, make_message, make_query, vectors

TOTAL = VECTOR_BLOCK_PASSAGES + 10
SEEDS = (1, 7, 3000, TOTAL - 1)
BLOCKS = "SELECT id, first, 0 FROM vector_blocks"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a block of vectors, some more, and a copy of the block."""
    path = tmp_path_factory.mktemp("made") / "store.db"
    with SqliteStore(path, copied_blocks=1) as store:
        store.add_messages([make_message(f"passage {n}") for n in range(TOTAL)])
        store.add_vectors([vectors(n, [n]) for n in range(TOTAL)])
    return path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    """The same store in a folder of its own."""
    for file in made.parent.iterdir():
        shutil.copy(file, tmp_path)
    return tmp_path / made.name


def copy_of(path: Path) -> Path:
    """The copy of the vectors of the only space."""
    return path.with_name(f"{path.name}-vectors-1")


def answers(path: Path) -> list[list[float]]:
    """What a new process finds."""
    with SqliteStore(path) as store:
        return [ask(store, seed) for seed in SEEDS]


def ask(store: SqliteStore, seed: int) -> list[float]:
    """The passage that is most like a vector, and all cosines."""
    found = store.search(make_query(seed=seed))
    assert found.cosine is not None
    return [int(found.passages[found.cosine.argmax()]), *found.cosine.tolist()]


def without(path: Path) -> list[list[float]]:
    """What a new process finds without a copy."""
    copy_of(path).rename(path.with_name("elsewhere"))
    found = answers(path)
    path.with_name("elsewhere").rename(copy_of(path))
    return found


def test_the_copy_is_used_and_private(path: Path) -> None:
    """Answers are the same with it, its vectors are those that are compared, and no one else may read it."""
    assert copy_of(path).stat().st_mode & 0o777 == 0o600
    assert [int(found[0]) for found in answers(path)] == list(SEEDS)
    assert answers(path) == without(path)
    with copy_of(path).open("r+b") as file:
        file.write(bytes(8 * 2000))
    assert [found[0] == seed for found, seed in zip(answers(path), SEEDS, strict=True)] == [False, False, True, True]


def test_what_others_add_is_found(path: Path) -> None:
    """A process that has mapped the copy sees new vectors and changed ones; the copy is not written to."""
    before = copy_of(path).read_bytes()
    with SqliteStore(path) as reader, SqliteStore(path) as writer:
        assert ask(reader, 7)[0] == 7
        writer.add_messages([make_message("one more")])
        writer.add_vectors([vectors(TOTAL, [TOTAL]), vectors(7, [777_777])])
        for store in (reader, writer):
            assert (ask(store, TOTAL)[0], ask(store, 777_777)[0], ask(store, 3000)[0]) == (TOTAL, 7, 3000)
    assert copy_of(path).read_bytes() == before
    assert answers(path) == without(path)


def test_a_change_to_a_block_makes_a_new_copy(path: Path) -> None:
    """Where a block has changed, the copy is written again with it."""
    with SqliteStore(path, copied_blocks=1) as store:
        store.add_vectors([vectors(7, [777_777])])
        assert vectors(7, [777_777]).vectors.tobytes() in copy_of(path).read_bytes()
        assert ask(store, 777_777)[0] == 7
    assert answers(path) == without(path)


def test_forgetting_reaches_the_copy(path: Path) -> None:
    """Forgotten vectors are in no copy: it is deleted, or written without them. Other processes follow."""
    gone = vectors(3000, [3000]).vectors.tobytes()
    path.with_name(f"{copy_of(path).name}.part77").write_bytes(gone)  # of a process that was killed
    assert gone in copy_of(path).read_bytes()
    with SqliteStore(path) as reader, SqliteStore(path, copied_blocks=1) as store:
        assert ask(reader, 3000)[0] == 3000
        (message,) = {row.message for row in store.read_passages(Select(scope=HERE, ids=(3000,)))}
        store.remove_messages(Select(scope=HERE, ids=(message,)))
        assert ask(reader, 3000)[0] != 3000
        assert not [file for file in path.parent.iterdir() if gone in file.read_bytes()]
        assert ask(store, 7)[0] == 7
    assert answers(path) == without(path)
    with SqliteStore(path) as store:
        store.remove_messages(Select(scope=HERE, ids=(message + 1,)))
        assert not copy_of(path).exists()


def test_a_rebuilt_index_is_followed(path: Path) -> None:
    """After `reindex` the answers are those without a copy."""
    reindex(path)
    assert answers(path) == without(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda copy: copy.write_bytes(b""),
        lambda copy: copy.write_bytes(b"\xff" * 100),
        lambda copy: copy.write_bytes(copy.read_bytes()[:-5]),
        lambda copy: copy.write_bytes(copy.read_bytes()[4096:]),
        lambda copy: copy.write_bytes(b"null" + (4).to_bytes(8, "little")),
        lambda copy: (copy.unlink(), copy.mkdir()),
    ],
)
def test_a_damaged_copy_is_left_out(path: Path, damage: Callable[[Path], object]) -> None:
    """A copy that is empty, cut off or something else changes nothing, and is replaced where that is possible."""
    expected = answers(path)
    damage(copy_of(path))
    assert answers(path) == expected
    with SqliteStore(path, copied_blocks=1) as store:
        store.add_vectors([vectors(7, [7])])
    assert answers(path) == expected


def test_a_copy_of_another_time_is_left_out(path: Path, tmp_path: Path) -> None:
    """Beside a file that was restored, the copy of what it was later is not used."""
    earlier = tmp_path / "earlier"
    shutil.copy(path, earlier)
    with SqliteStore(path, copied_blocks=1) as store:
        store.add_vectors([vectors(7, [777_777])])
    shutil.copy(earlier, path)
    with SqliteStore(path) as store:  # it gives the same id to another block
        store.add_vectors([vectors(7, [888_888])])
    with SqliteStore(path) as store:
        assert ask(store, 888_888)[0] == 7
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT max(id) FROM vector_blocks").fetchone() == (2,)
    assert answers(path) == without(path)


def copy_again_and_again(path: Path, passage: int, reports: Connection) -> None:
    """Store the vector that a passage has already, with a new copy each time, until this process is killed."""
    with SqliteStore(path, copied_blocks=1) as store:
        for number in count():
            store.add_vectors([vectors(passage, [passage])])
            reports.send(number)


def test_a_writer_is_killed(path: Path) -> None:
    """Whenever a process dies, answers are the same, and the next copy is written."""
    expected = answers(path)
    for kill in range(4):
        with child(copy_again_and_again, path, 7) as (process, reports):
            assert acknowledged_until_killed(reports, process, after=1 + kill, pause=0.003 * kill)
        assert answers(path) == expected
    with SqliteStore(path, copied_blocks=1) as store:
        store.add_vectors([vectors(7, [777_777])])
    assert vectors(7, [777_777]).vectors.tobytes() in copy_of(path).read_bytes()
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name, copy_of(path).name]
    assert answers(path) == without(path)


def test_two_processes_copy_at_once(path: Path) -> None:
    """Two processes that write copies at the same time leave one that is right, or none that is used."""
    expected = answers(path)
    with ExitStack() as stack:
        writers = [stack.enter_context(child(copy_again_and_again, path, passage)) for passage in (7, 3000)]
        for number in range(10):
            assert [reports.recv() for _, reports in writers] == [number, number]
            assert answers(path) == expected
    assert answers(path) == expected


def test_two_threads_copy_at_once(path: Path) -> None:
    """The one that began later writes the copy, though the other one ended before it."""
    is_begun, is_ended = Event(), Event()

    class Blocks(list[Any]):
        """Blocks that are read by the earlier thread while the later one waits for its end."""

        def __iter__(self) -> Iterator[Any]:
            if current_thread() is later and not is_begun.is_set():
                is_begun.set()
                is_ended.wait()
            elif not is_begun.is_set():
                later.start()
                is_begun.wait()
            return super().__iter__()

    def write() -> None:
        with closing(connect(path, wait=1)) as db, suppress(FileNotFoundError):
            write_copy(db, copy_of(path), Blocks(db.execute(BLOCKS)), space=1, dimension=MODEL.dimension)

    later = Thread(target=write)
    write()
    is_ended.set()
    later.join()
    with closing(connect(path, wait=1)) as db:
        assert open_copy(db, MODEL)[1] == {"vector_blocks": 1}
    assert answers(path) == without(path)


def test_a_copy_that_cannot_be_written(path: Path) -> None:
    """Vectors are stored and found where no copy can be written."""
    path.with_name(f"{copy_of(path).name}.part").mkdir()
    with SqliteStore(path, copied_blocks=1) as store:
        store.add_vectors([vectors(7, [777_777])])
        assert ask(store, 777_777)[0] == 7
    assert answers(path) == without(path)


@pytest.mark.nightly
def test_a_small_store_has_no_copy(tmp_path: Path) -> None:
    """Reading a few blocks takes no time."""
    with SqliteStore(tmp_path / "store.db") as store:
        store.add_messages([make_message(f"passage {n}") for n in range(VECTOR_BLOCK_PASSAGES)])
        store.add_vectors([vectors(n, [n]) for n in range(VECTOR_BLOCK_PASSAGES)])
    assert [file.name for file in tmp_path.iterdir()] == ["store.db"]
