"""QMD that fails, and the sessions that it is given: nothing is hidden, and no secret is written."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from holdfast.cli import holdfast
from holdfast_agent.note_files import NoteResults
from holdfast_agent.notes import Notes
from holdfast_agent.qmd import missing_command
from holdfast_agent.settings import MemorySearch
from holdfast_agent.tools import note_tools
from support.agent_fixture import change_agent
from support.qmd_command import KEY, MINUTE, NOW, World, background
from support.session_files import begin, says


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two notes and qmd."""
    made = World(tmp_path)
    made.write("MEMORY.md", "# Facts\n\n- we deploy with Kamal\n- the port is 8443\n")
    made.write("memory/2026-02-10 call.md", "# Tue\n\n- billing retries five times\n")
    yield made
    made.close()


def reason(found: NoteResults) -> str:
    """Why our own index was searched; it is told twice, for people and for programs."""
    assert [hit.path for hit in found.hits] == ["MEMORY.md"]
    assert found.provider == "none"
    assert found.fallback is not None
    assert found.fallback.wanted == "qmd"
    assert found.fallback.reason in found.warnings[0]
    return found.fallback.reason


class TestFailures:
    """Our own index answers instead, and gives the reason."""

    def test_no_such_command(self, world: World) -> None:
        """A command that is not there is named with what to do, in the answer of the tool too."""
        notes = world.open(command="no-such-qmd")
        assert reason(notes.search("deploy")) == (
            "there is no command 'no-such-qmd': install QMD, or set agent.memory_search.qmd.command"
        )
        search = note_tools(notes)[0]
        answer = json.loads(search.run({"query": "deploy"}, Event()).text)
        assert answer["fallback"]["from"] == "qmd"
        assert "our own index was searched: there is no command" in answer["warning"]
        assert answer["results"][0]["citation"].startswith("MEMORY.md#L1")

    def test_a_command_that_cannot_run(self, world: World) -> None:
        """A file that is no program is a failure like any other."""
        (world.bin / "qmd").write_bytes(b"\0")
        assert "cannot be started" in reason(world.open().search("deploy"))

    @pytest.mark.variants
    @pytest.mark.parametrize(
        ("order", "expected"),
        [
            ({"status": 3, "stderr": "warming up\nno model\n"}, "qmd search` failed with status 3: no model"),
            ({"status": 3, "print": f"key {KEY}"}, "failed with status 3: key "),
            ({"status": 3}, "failed with status 3: no output"),
            ({"print": "oops"}, "the answer is not valid JSON"),
            ({"print": '[{"score": 1}]'}, "missing required field `file`"),
            ({"print": ""}, "the answer is not valid JSON"),
            ({"sleep": 60}, "qmd search` took longer than"),
        ],
    )
    def test_searches_that_fail(self, world: World, order: dict[str, Any], expected: str) -> None:
        """A failing status, a bad answer and a silent command are reasons; QMD is asked again the next time."""
        first = world.open()
        first.start()
        background(first)
        world.order(search=order)
        notes = world.open(limits={"timeout_ms": 300 if "sleep" in order else 300_000})
        why = reason(notes.search("deploy"))
        assert expected in why
        assert KEY not in why
        world.order()
        assert first.search("deploy").provider == "qmd"

    def test_an_update_that_fails(self, world: World) -> None:
        """Until an update goes well, which is tried again after a pause, our own index is searched."""
        world.order(update={"status": 1, "stderr": "disk full"})
        notes = world.open()
        assert "update` failed with status 1: disk full" in reason(notes.search("deploy"))
        world.order()
        assert "disk full" in reason(notes.search("deploy"))
        world.now += 15_000
        notes.poll()
        background(notes)
        assert notes.search("deploy").provider == "qmd"

    def test_a_first_look_that_takes_long(self, world: World) -> None:
        """Whoever searches while QMD reads the notes for the first time does not wait for it."""
        world.order(update={"sleep": 60})
        notes = world.open(limits={"timeout_ms": 100})
        assert "for the first time" in reason(notes.search("deploy"))

    def test_a_folder_that_cannot_be_made(self, world: World) -> None:
        """Where nothing can be written QMD is not asked."""
        (world.home / "qmd").write_text("in the way", "utf-8")
        assert "File exists" in reason(world.open().search("deploy"))

    def test_a_name_that_is_no_text(self, world: World) -> None:
        """A folder whose name is no text cannot be told to QMD, and that is said."""
        folder = world.root / os.fsdecode(b"caf\xe9")
        folder.mkdir()
        notes = world.open(paths=[{"path": folder.name}])
        assert "surrogates not allowed" in reason(notes.search("deploy"))

    def test_registering_that_hangs(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """A command that does not come back while collections are registered is ended, with the reason."""
        monkeypatch.setattr("holdfast_agent.qmd.REGISTER_SECONDS", 0.2)
        world.order(collection={"sleep": 60})
        assert "qmd collection` took longer than 0.2 s" in reason(world.open().search("deploy"))

    def test_both_fallbacks_are_reported(self, world: World) -> None:
        """That neither QMD nor the wanted embedder is there is said in one answer."""
        settings = world.settings(command="no-such-qmd")
        search = msgspec.structs.replace(settings.agent.memory_search, provider="openai-compatible")
        settings = change_agent(settings, memory_search=search)
        with Notes(world.root, settings, world.folder / "notes.db") as notes:
            found = notes.search("deploy")
        assert found.fallback is not None
        assert found.fallback.wanted == "qmd"
        assert found.warnings[1].startswith("openai-compatible: ")

    def test_doctor(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """`holdfast doctor` says who searches the notes, and why it is not QMD."""
        monkeypatch.setenv("HOLDFAST_AGENT__MEMORY_SEARCH__BACKEND", "qmd")
        qmd = os.fspath(world.bin / "qmd")
        for command, expected in ((qmd, "search of notes: "), ("no-qmd", "the built-in index")):
            monkeypatch.setenv("HOLDFAST_AGENT__MEMORY_SEARCH__QMD__COMMAND", command)
            shown = CliRunner().invoke(holdfast, ["doctor", "--home", os.fspath(world.folder)]).stdout
            assert "search of notes: " in shown
            assert expected in shown
        assert missing_command(MemorySearch(), project=Path.cwd()) is None


class TestSessions:
    """Past conversations as Markdown for QMD."""

    def test_they_are_exported_and_found(self, world: World) -> None:
        """What was said is exported without secrets, found, cited by the session's own lines, and can be read there."""
        session = begin(world.home / "sessions", "s.jsonl")
        session.append_message(says(f"my key is {KEY}"))
        session.append_message(says("the zebra code\nis 4711", "assistant"))
        notes = world.open(sessions={"enabled": True})
        found = notes.search("zebra")
        export = world.home / "qmd" / "sessions" / "s.jsonl.md"
        text = export.read_text("utf-8")
        assert text.startswith("# Session s.jsonl\n\nUser: my key is ")
        assert KEY not in text
        assert stat.S_IMODE(export.stat().st_mode) == 0o600
        (hit,) = found.hits
        assert (hit.path, hit.start, hit.end, hit.kind) == ("sessions/s.jsonl", 3, 3, "sessions")
        assert notes.read(hit.path, start=hit.start)[0] == "Assistant: the zebra code is 4711"

    def test_retention(self, world: World) -> None:
        """Sessions that are older than so many days are not exported, nor those that are gone; other files stay."""
        sessions, to = world.home / "sessions", world.root / "out"
        for name, days in (("old", 40), ("new", 1), ("gone", 1)):
            begin(sessions, f"{name}.jsonl").append_message(says("zebra"))
            at = (NOW - days * 86_400_000) * 1_000_000
            os.utime(sessions / f"{name}.jsonl", ns=(at, at))
        to.mkdir()
        (to / "mine.md").write_text("mine", "utf-8")
        asked = {"enabled": True, "export_dir": "out"}
        background(world.open(sessions=asked)).start()
        background(world.opened[0])
        assert {file.name for file in to.iterdir()} == {"old.jsonl.md", "new.jsonl.md", "gone.jsonl.md", "mine.md"}
        (sessions / "gone.jsonl").unlink()
        world.now += MINUTE
        background(world.open(sessions=asked | {"retention_days": 30})).start()
        background(world.opened[1])
        assert {file.name for file in to.iterdir()} == {"new.jsonl.md", "mine.md"}
        world.now += MINUTE
        background(world.open()).start()
        background(world.opened[2])
        assert {file.name for file in to.iterdir()} == {"mine.md"}

    @pytest.mark.parametrize("enabled", [True, False])
    def test_a_state_that_was_lost(self, world: World, *, enabled: bool) -> None:
        """Exports go with their sessions, or with the switch, also when no one remembers to have written them."""
        begin(world.home / "sessions", "s.jsonl").append_message(says("zebra"))
        world.open(sessions={"enabled": True}).search("zebra")
        (world.home / "sessions" / "s.jsonl").unlink()
        (world.home / "qmd" / "state.json").write_text("{damaged", "utf-8")
        assert world.open(sessions={"enabled": enabled}).search("zebra").hits == ()
        assert list((world.home / "qmd" / "sessions").iterdir()) == []

    def test_an_export_is_written_once(self, world: World) -> None:
        """A session that has not changed is not exported again."""
        begin(world.home / "sessions", "s.jsonl").append_message(says("zebra"))
        notes = world.open(sessions={"enabled": True})
        notes.search("zebra")
        export = world.home / "qmd" / "sessions" / "s.jsonl.md"
        before = export.stat().st_ino
        world.now += 6 * MINUTE
        notes.poll()
        background(notes)
        assert export.stat().st_ino == before
