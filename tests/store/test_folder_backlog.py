"""A memory-context folder with many new segments: it opens at once, and answers while they are copied."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast import Engine
from holdfast.cli import holdfast
from holdfast.memory.memory import Memory
from holdfast.settings import Archive, Embedding, Settings
from holdfast.store.base import Scope, Select
from holdfast.store.folder import COPY_LINES, DATABASE, MAX_SYNC_BYTES, FolderStore
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.rows import find_messages, make_message, make_query, texts
from support.waiting import UNHURRIED, until

NOW = 1_771_000_000_000
COUNT = 3 * COPY_LINES
EVERYONE = Scope()
SPECIAL = {
    3: "The memories of Zanzibar are kept by the harbour master.",
    400: "我们决定使用端口八千四百四十三。",
    500: "Le café de l'Étoile ouvre à six heures.",
    560: "Эти поставки приходят во вторник.",
    610: "The module src/tide_table.py reads MAX_TIDE_LEVEL.",
    COUNT - 1: "The last deployment was on a Tuesday.",
}


def segment(number: int, content: str, *, session: str) -> dict[str, Any]:
    """A line as the plugin writes it."""
    return {
        "id": f"00000000-0000-4000-8000-{number:012d}",
        "sessionId": session,
        "timestamp": NOW + number,
        "role": "user" if number % 2 == 0 else "assistant",
        "content": content,
        "tokens": 3,
        "metadata": {"topics": [], "entities": []},
    }


@cache
def make_lines(*, is_ascii: bool = False) -> list[str]:
    """Make the lines of a folder, 50 in each session."""
    lines: list[str] = []
    for number in range(COUNT):
        filler = " ".join(f"plain{(number * 7 + step) % 97}" for step in range(50))
        content = SPECIAL.get(number, f"Line {number} says {filler}.")
        lines.append(json.dumps(segment(number, content, session=f"s{number // 50}"), ensure_ascii=is_ascii) + "\n")
    return lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of the plugin that was never opened."""
    path = tmp_path / "context"
    path.mkdir()
    (path / "segments.jsonl").write_text("".join(make_lines()), "utf-8")
    assert (path / "segments.jsonl").stat().st_size > MAX_SYNC_BYTES
    fact = {"id": "k1", "type": "decision", "content": "Use Stripe", "timestamp": 1}
    (path / "knowledge.jsonl").write_text(json.dumps(fact) + "\n")
    return path


def count_stored(folder: Path) -> int:
    """Count the messages in the database of a folder."""
    with SqliteStore(folder / DATABASE) as database:
        return database.counts()["messages"]


def check_complete(store: FolderStore, *, more: int = 0) -> None:
    """Check that all segments are stored once, in the order of the file."""
    rows = store.read_messages(Select(scope=EVERYONE, across=True))
    assert len(rows) == COUNT + more
    assert [row.message.timestamp for row in rows[:COUNT]] == [NOW + number for number in range(COUNT)]
    assert [row.id for row in rows[:COUNT]] == list(range(1, COUNT + 1))
    assert store.progress == ""
    assert store.counts()["sessions"] == COUNT // 50 + (1 if COUNT % 50 else 0)


class TestMeanwhile:
    def test_opening_copies_nothing(self, folder: Path) -> None:
        """Neither in time nor on disk does opening depend on the number of segments; facts are there at once."""
        with FolderStore(folder, background=False) as store:
            assert count_stored(folder) == 0
            assert f"0 of {COUNT:,} new segments are indexed" in store.progress
            assert [row.content for row in store.read_facts(Select(scope=EVERYONE))] == ["Use Stripe"]

    @pytest.mark.variants
    @pytest.mark.parametrize(
        ("question", "number"),
        [
            ("Zanzibar", 3),
            ("which memory of the harbour?", 3),
            ("端口", 400),
            ("cafe etoile", 500),
            ("поставка", 560),
            ("tide_table", 610),
            ("max tide", 610),
            ("deployments", COUNT - 1),
        ],
    )
    @pytest.mark.parametrize("is_ascii", [False, True])
    def test_words_are_found(self, folder: Path, question: str, number: int, is_ascii: bool) -> None:  # noqa: FBT001
        """Wherever the segment is, in any script and form of the word, also if letters are written as escapes."""
        (folder / "segments.jsonl").write_text("".join(make_lines(is_ascii=is_ascii)), "utf-8")
        with FolderStore(folder, background=False) as store:
            assert number + 1 in find_messages(store.search(make_query(question, scope=EVERYONE, across=True)))
            own = Scope(session=f"s{number // 50}")
            assert number + 1 in find_messages(store.search(make_query(question, scope=own)))
            assert number + 1 not in find_messages(store.search(make_query(question, scope=Scope(session="s5"))))
            assert store.progress

    def test_a_session_is_whole(self, folder: Path) -> None:
        """All messages of a session are read in their order, whatever was copied before them."""
        with FolderStore(folder, background=False) as store:
            store.search(make_query("deployments", scope=EVERYONE, across=True))
            rows = store.read_messages(Select(scope=Scope(session="s8")))
            assert [row.id for row in rows] == list(range(401, 451))
            before = Select(scope=Scope(session="s8"), before=430, newest=True, limit=2)
            assert [row.id for row in store.read_messages(before)] == [428, 429]
            assert store.progress

    def test_a_message_is_read_by_its_number(self, folder: Path) -> None:
        """The numbers are those that the messages will have."""
        with FolderStore(folder, background=False) as store:
            (row,) = store.read_messages(Select(scope=Scope(session="s8"), ids=(401,)))
            assert row.message.text == SPECIAL[400]
            assert store.read_messages(Select(scope=Scope(session="s1"), ids=(401,))) == []
            assert store.progress

    def test_what_the_plugin_stored_is_not_stored_again(self, folder: Path) -> None:
        """A history that is sent again gets the numbers of the segments; what is new comes after all of them."""
        size = (folder / "segments.jsonl").stat().st_size
        with FolderStore(folder, background=False) as store:
            known = make_message(SPECIAL[400], scope=Scope(session="s8"), time=NOW + 400)
            new = make_message("Something new is said.", scope=Scope(session="s8"), time=NOW + COUNT)
            assert store.add_messages([known, new]) == [401, COUNT + 1]
            assert store.progress
            written = (folder / "segments.jsonl").read_bytes()[size:].decode().splitlines()
            assert [json.loads(line)["content"] for line in written] == ["Something new is said."]
            check_complete(store, more=1)
            assert texts(store, scope=Scope(session="s8"))[-1] == "Something new is said."

    def test_a_turn_does_not_wait(self, folder: Path) -> None:
        """A window is assembled, with what its question recalls, and the report says that the index is not complete."""
        store = FolderStore(folder, background=False)
        settings = Settings(embedding=Embedding(provider="hash"), archive=Archive(cross_session=True), recall=UNHURRIED)
        with Engine(Memory(store=store, settings=settings)) as engine:
            question = {"role": "user", "content": "Which harbour master keeps the memories of Zanzibar?"}
            window = engine.session("new").assemble([question], limit=8_000)
            assert SPECIAL[3] in str(window.request())
            assert any("new segments are indexed" in warning for warning in window.report.warnings)
            assert store.progress


class TestCopying:
    def test_a_thread_copies_all(self, folder: Path) -> None:
        """Without another call, all segments are stored in the end."""
        with FolderStore(folder) as store:
            until(lambda: not store.progress)
            assert count_stored(folder) == COUNT
            check_complete(store)

    def test_searches_during_the_copy_do_not_change_the_order(self, folder: Path) -> None:
        """A line that was copied first has the number of its place, and is not copied again."""
        with FolderStore(folder) as store:
            for question in ("Zanzibar", "deployments", "端口", "plain5 plain9", "tide"):
                store.search(make_query(question, scope=EVERYONE, across=True))
            check_complete(store)

    def test_words_are_found_at_any_moment(self, folder: Path) -> None:
        """Before a line is copied, while it is, and after."""
        with FolderStore(folder) as store:
            is_copying = True
            while is_copying:
                is_copying = bool(store.progress)
                for question, number in (
                    ("Zanzibar", 3),
                    ("端口", 400),
                    ("tide_table", 610),
                    ("deployments", COUNT - 1),
                ):
                    assert number + 1 in find_messages(store.search(make_query(question, scope=EVERYONE, across=True)))
            check_complete(store)

    def test_a_call_that_needs_all_lines_waits_and_shows_progress(self, folder: Path) -> None:
        """The list of sessions is complete; the numbers that are reported rise to the total."""
        seen: list[tuple[int, int]] = []
        with FolderStore(folder, background=False) as store:
            store.on_progress = lambda done, total: seen.append((done, total))
            assert sum(store.sessions().values()) == COUNT
        assert seen[0] == (0, COUNT)
        assert seen[-1] == (COUNT, COUNT)
        assert seen == sorted(seen)
        assert len(seen) > 3

    def test_the_next_process_continues(self, folder: Path) -> None:
        """However far one got before it was closed, nothing is copied twice or left out."""
        for question in ("deployments", "Zanzibar"):
            with FolderStore(folder) as store:
                store.search(make_query(question, scope=EVERYONE, across=True))
        with FolderStore(folder, background=False) as store:
            store.add_messages([make_message("Something new is said.", scope=Scope(session="s8"), time=NOW + COUNT)])
        with FolderStore(folder) as store:
            check_complete(store, more=1)
        with FolderStore(folder) as store:
            check_complete(store, more=1)

    def test_the_rest_of_a_backlog_has_its_numbers(self, folder: Path) -> None:
        """Though it is so short that as many new lines would be copied at once, after what a search copied first."""
        with FolderStore(folder, background=False) as store:
            store.search(make_query("deployments", scope=EVERYONE, across=True))
            store._copy_batch()
            store._copy_batch()
            assert store.progress
        with FolderStore(folder, background=False) as store:
            assert f"0 of {COPY_LINES} new segments are indexed" in store.progress
            check_complete(store)

    def test_two_who_open_it_share_the_work(self, folder: Path) -> None:
        """Both see everything once."""
        with FolderStore(folder) as one, FolderStore(folder) as two:
            until(lambda: not one.progress and not two.progress)
            check_complete(one)
            check_complete(two)

    def test_a_killed_process_loses_nothing(self, folder: Path) -> None:
        """The next process finds a whole database, and copies on."""
        script = (
            "import sys, time\n"
            "from holdfast.store.folder import FolderStore\n"
            f"store = FolderStore({str(folder)!r})\n"
            "while store.progress.startswith('0 of'): time.sleep(0.001)\n"
            "print('copying', flush=True)\n"
            "time.sleep(600)\n"
        )
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"copying\n"
        process.kill()
        process.communicate()
        with FolderStore(folder) as store:
            check_complete(store)

    def test_lines_that_the_plugin_adds_meanwhile_follow(self, folder: Path) -> None:
        """They are copied when the backlog is done."""
        with FolderStore(folder, background=False) as store:
            with (folder / "segments.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(segment(COUNT, "The plugin goes on.", session="s0")) + "\n")
            check_complete(store, more=1)
            assert texts(store, scope=Scope(session="s0"))[-1] == "The plugin goes on."

    def test_a_file_that_is_replaced_meanwhile_is_read_again(self, folder: Path) -> None:
        """What is no longer in it was not archived; what is in it is."""
        with FolderStore(folder, background=False) as store:
            store.search(make_query("Zanzibar", scope=EVERYONE, across=True))
            fresh = folder / "fresh"
            fresh.write_text("".join(make_lines()[COUNT // 2 :]), "utf-8")
            fresh.replace(folder / "segments.jsonl")
            contents = texts(store, scope=EVERYONE, across=True)
            assert len(contents) == len(set(contents))
            assert {SPECIAL[3], SPECIAL[610], SPECIAL[COUNT - 1]} <= set(contents)

    def test_a_session_is_forgotten_whole(self, folder: Path) -> None:
        """Also what was not copied yet: from the database and from the file."""
        with FolderStore(folder, background=False) as store:
            assert store.remove_messages(Select(scope=Scope(session="s8"))) == 50
            assert texts(store, scope=Scope(session="s8")) == []
        assert SPECIAL[400].encode() not in (folder / "segments.jsonl").read_bytes()
        with FolderStore(folder) as store:
            assert texts(store, scope=Scope(session="s8")) == []
            assert len(texts(store, scope=EVERYONE, across=True)) == COUNT - 50

    def test_a_folder_that_may_not_be_written_is_read(self, folder: Path) -> None:
        """Its segments are copied into a temporary database."""
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        with FolderStore(folder, readonly=True) as store:
            assert 4 in find_messages(store.search(make_query("Zanzibar", scope=EVERYONE, across=True)))
            check_complete(store)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


class TestCommands:
    def test_a_search_answers_before_all_is_indexed(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It finds the words, and says that the index is not complete."""
        monkeypatch.setenv("HOLDFAST_EMBEDDING__PROVIDER", "none")
        done = CliRunner().invoke(holdfast, ["search", "Zanzibar", "--home", str(folder), "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)[0]["text"] == SPECIAL[3]

    def test_a_list_is_complete(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """`holdfast sessions` waits for the index; without a terminal it draws nothing."""
        monkeypatch.setenv("HOLDFAST_EMBEDDING__PROVIDER", "none")
        done = CliRunner().invoke(holdfast, ["sessions", "--home", str(folder), "--json"])
        assert sum(row["messages"] for row in json.loads(done.stdout)["sessions"]) == COUNT
        assert done.stderr == ""

    def test_reindexing_waits_for_all(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """`holdfast reindex` on a folder that was never opened indexes every segment."""
        monkeypatch.setenv("HOLDFAST_EMBEDDING__PROVIDER", "none")
        done = CliRunner().invoke(holdfast, ["reindex", "--home", str(folder), "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["passages"] == COUNT
        with FolderStore(folder, background=False) as store:
            assert store.progress == ""
            assert find_messages(store.search(make_query("Zanzibar", scope=EVERYONE, across=True))) == [4]
