"""QMD as the index of notes: a real command, asked safely, about notes that it has seen lately."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import InputError
from holdfast_agent.qmd import parse_rows
from holdfast_agent.shell import CommandError
from support.qmd_command import KEY, MINUTE, World, background, places


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two notes and qmd."""
    made = World(tmp_path)
    made.write("MEMORY.md", "# Facts\n\n- we deploy with Kamal\n- the port is 8443\n")
    made.write("memory/2026-02-10 call.md", "# Tue\n\n- billing retries five times\n")
    yield made
    made.close()


class TestAnswers:
    """What is found, and how it is told."""

    def test_a_hit_has_its_place(self, world: World) -> None:
        """Path, lines, snippet and score are those of the file, however QMD writes its name."""
        notes = world.open()
        found = notes.search("deploy billing retries")
        assert places(found) == [("memory/2026-02-10 call.md", 3, 3), ("MEMORY.md", 3, 4)]
        assert [hit.score for hit in found.hits] == [0.2, 0.1]
        assert found.hits[1].snippet == "- we deploy with Kamal\n- the port is 8443"
        assert (found.provider, found.model, found.mode) == ("qmd", "search", "words")
        assert (found.fallback, found.warnings) == (None, ())

    def test_its_own_house(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """Index and settings lie in the agent's folder, keys of models stay with us, and it runs in no workspace."""
        monkeypatch.setenv("X_API_KEY", "secret")
        monkeypatch.setenv("INDEX_PATH", "/elsewhere")
        (world.folder / "cache" / "qmd" / "models").mkdir(parents=True)
        monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(world.folder / "cache"))
        world.open().search("deploy")
        folder = world.home / "qmd"
        for call in world.calls():
            assert call["environ"] == {
                "XDG_CONFIG_HOME": os.fspath(folder / "config"),
                "XDG_CACHE_HOME": os.fspath(folder / "cache"),
                "INDEX_PATH": None,
                "X_API_KEY": None,
            }
            assert call["cwd"] == os.fspath(folder)
        assert (folder / "cache" / "qmd" / "models").resolve() == world.folder / "cache" / "qmd" / "models"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    def test_collections(self, world: World) -> None:
        """The usual notes and further paths are registered once, and again when the settings have changed."""
        world.write("docs/a.txt", "giraffe")
        world.write("docs/b.md", "giraffe")
        world.write("plan.md", "the giraffe plan")
        docs = {"path": "docs", "name": "The Docs!", "pattern": "**/*.{txt,rst}"}
        paths = [docs, {"path": "plan.md"}, {"path": "no"}]
        first = world.open(paths=paths)
        first.search("x")
        added = [call["arguments"][2:] for call in world.calls("collection") if call["arguments"][1] == "add"]
        root = os.fspath(world.root)
        assert added == [
            [root, "--name", "memory-root", "--mask", "MEMORY.md"],
            [f"{root}/memory", "--name", "memory-dir", "--mask", "**/*.md"],
            [f"{root}/docs", "--name", "custom-1-the-docs", "--mask", "**/*.{txt,rst}"],
            [root, "--name", "custom-2", "--mask", "plan.md"],
        ]
        count = len(world.calls("collection"))
        world.open(paths=paths).search("x")
        assert len(world.calls("collection")) == count
        world.now += MINUTE
        other = world.open(include_default_memory=False, paths=[{"path": "docs", "pattern": "**/*.md"}])
        assert places(other.search("giraffe deploy")) == [("docs/b.md", 1, 1)]
        later = [call["arguments"][1:] for call in world.calls("collection")[count:]]
        removed = [arguments[1] for arguments in later if arguments[0] == "remove"]
        assert {"memory-root", "memory-dir", "custom-1-the-docs", "custom-2"} < set(removed)

    def test_what_was_found_can_be_read(self, world: World) -> None:
        """`memory_get` reads what lies under the further paths, by its mask, and nothing else."""
        world.write("docs/a.txt", "giraffe")
        world.write("docs/b.py", "giraffe")
        notes = world.open(paths=[{"path": "docs", "pattern": "**/*.{txt,rst}"}])
        assert notes.read("docs/a.txt")[0] == "giraffe"
        with pytest.raises(InputError, match="is not a note"):
            notes.read("docs/b.py")

    def test_two_spellings(self, world: World) -> None:
        """`memory.md` next to `MEMORY.md` is a collection of its own, though QMD may write both in small letters."""
        world.write("memory.md", "the zebra")
        notes = world.open()
        assert places(notes.search("zebra")) == [("memory.md", 1, 1)]
        assert places(notes.search("deploy")) == [("MEMORY.md", 3, 4)]

    @pytest.mark.parametrize(("mode", "expected"), [("vsearch", "vectors"), ("query", "hybrid")])
    def test_modes(self, world: World, mode: str, expected: str) -> None:
        """Vectors and re-ranking are other commands; for them new text is embedded, in its own interval."""
        notes = world.open(search_mode=mode)
        assert notes.search("deploy").mode == expected
        assert world.calls(mode)
        background(notes)
        assert len(world.calls("embed")) == 1
        world.now += 6 * MINUTE
        notes.poll()
        background(notes)
        assert (len(world.calls("update")), len(world.calls("embed"))) == (2, 1)
        world.now += 60 * MINUTE
        notes.poll()
        background(notes)
        assert len(world.calls("embed")) == 2

    def test_limits(self, world: World) -> None:
        """Hits, the text of one and the text of all are bounded; the caller may ask for less, not for more."""
        world.write("memory/many.md", "\n\n".join(f"zebra {number} and its long tail" for number in range(9)))
        limits = {"max_results": 4, "max_snippet_chars": 10, "max_injected_chars": 25, "timeout_ms": 0}
        notes = world.open(limits=limits)
        found = notes.search("zebra", max_results=50)
        assert [len(hit.snippet) for hit in found.hits] == [10, 10, 5]
        assert places(found)[1] == ("memory/many.md", 3, 3)
        assert len(notes.search("zebra", max_results=2).hits) == 2
        assert notes.search("zebra", min_score=0.5).hits == ()
        assert world.calls("search")[0]["arguments"][2:] == ["--json", "-n", "4", "-c", "memory-root"]

    def test_snippets_that_are_in_no_file(self, world: World) -> None:
        """A hit that is not in its file by now is cited as the whole file; without words too."""
        notes = world.open(include_default_memory=False, paths=[{"path": "memory"}])
        background(notes)
        rows: list[dict[str, object]] = [
            {"file": "custom-1/2026-02-10 call.md", "score": 7, "snippet": text} for text in ("gone", None)
        ]
        rows.append({"file": "2026-02-10 call.md", "score": 0.1, "line": 3, "snippet": "- billing retr..."})
        world.order(search={"print": "note: slow disk\n" + json.dumps(rows)})
        found = notes.search("billing")
        assert places(found) == [("memory/2026-02-10 call.md", start, 3) for start in (1, 1, 3)]
        assert [hit.score for hit in found.hits] == [1, 1, 0.1]

    def test_secrets_are_masked(self, world: World) -> None:
        """A key that stands in a note is not shown."""
        world.write("MEMORY.md", f"the key is {KEY}")
        (hit,) = world.open().search("key").hits
        assert KEY not in hit.snippet
        assert (hit.start, hit.snippet[:10]) == (1, "the key is")

    def test_nothing_gets_out(self, world: World) -> None:
        """Files outside of a collection are left out, and said, whatever way they are named."""
        (world.folder / "secret.md").write_text("outside", "utf-8")
        (world.root / "memory" / "link.md").symlink_to(world.folder / "secret.md")
        world.write("code.py", "inside, but no note")
        names = [
            "../secret.md",
            "/etc/passwd",
            "memory-dir/../../secret.md",
            "link.md",
            "code.py",
            "~/x.md",
            "no.md",
            "",
        ]
        rows = [{"file": name, "score": 0.5, "snippet": "outside"} for name in names]
        notes = world.open()
        notes.search("x")
        world.order(search={"print": json.dumps(rows)})
        found = notes.search("x")
        assert found.hits == ()
        assert "left out: ../secret.md, /etc/passwd" in found.warnings[0]

    def test_no_results_in_words(self, world: World) -> None:
        """A sentence that nothing was found is an empty answer; another sentence is a failure."""
        assert world.open().search("quantum").hits == ()
        assert parse_rows("No results found above minimum score threshold.\n") == []
        with pytest.raises(CommandError, match="JSON"):
            parse_rows('{"no": "list"}')


class TestQuestions:
    """What is asked reaches QMD as words."""

    @pytest.mark.parametrize("query", ["--help deploy", "- -n 99 deploy", "deploy ; touch x\n$(id) `id` \0 \ud800"])
    def test_hostile_questions(self, world: World, query: str) -> None:
        """A question is one argument, one line, no option, and seen by no shell."""
        found = world.open().search(query)
        assert ("MEMORY.md", 3, 4) in places(found)
        for call in world.calls("search"):
            words, *rest = call["arguments"][1:]
            assert not words.startswith("-")
            assert "\n" not in words
            assert rest[0] == "--json"

    def test_questions_without_words(self, world: World) -> None:
        """Nothing is asked where there is nothing to ask; a very long question is cut."""
        notes = world.open()
        assert notes.search(" --- ").hits == ()
        assert world.calls("search") == []
        notes.search("deploy " * 100_000)
        assert len(world.calls("search")[0]["arguments"][1]) <= 2_000


class TestFreshness:
    """When QMD looks at the notes."""

    def test_the_interval(self, world: World) -> None:
        """Notes are examined once in the interval, also by another process, whoever asks."""
        notes = world.open()
        notes.start()
        background(notes)
        for _ in range(3):
            notes.search("deploy")
            notes.poll()
        world.open().search("deploy")
        assert len(world.calls("update")) == 1
        world.now += 5 * MINUTE
        notes.poll()
        background(notes)
        assert len(world.calls("update")) == 2
        assert world.calls("embed") == []

    def test_the_start(self, world: World) -> None:
        """At the start notes are examined, unless that was just now or is not wanted."""
        background(world.open()).start()
        background(world.opened[0])
        world.now += 10_000
        background(world.open()).start()
        background(world.opened[1])
        assert len(world.calls("update")) == 1
        world.now += 10_000
        background(world.open(update={"on_boot": False})).start()
        background(world.opened[2])
        assert len(world.calls("update")) == 1
        background(world.open(update={"debounce_ms": 0})).start()
        background(world.opened[3])
        assert len(world.calls("update")) == 2

    def test_notes_that_are_new(self, world: World) -> None:
        """A note that has come since is told as not examined, and soon examined."""
        notes = world.open()
        notes.search("zebra")
        world.write("memory.md", "- the zebra")
        assert notes.search("zebra").warnings == (f"QMD has not indexed {world.root} yet",)
        world.now += 15_000
        found = notes.search("zebra")
        assert (places(found), found.warnings) == ([("memory.md", 1, 1)], ())

    def test_an_index_that_was_deleted(self, world: World) -> None:
        """When QMD has lost its collections, one search is ours and the next is QMD's again."""
        notes = world.open()
        notes.search("deploy")
        (world.home / "qmd" / "config" / "collections").unlink()
        assert notes.search("deploy").fallback is not None
        assert notes.search("deploy").provider == "qmd"

    def test_a_state_that_was_lost(self, world: World) -> None:
        """When our own record is damaged, everything is registered again."""
        world.open().search("deploy")
        (world.home / "qmd" / "state.json").write_text("{damaged", "utf-8")
        assert world.open().search("deploy").provider == "qmd"

    def test_closing_ends_what_runs(self, world: World) -> None:
        """What is done behind the scenes ends with the notes, and nothing is started any more."""
        world.order(update={"sleep": 60})
        notes = world.open()
        notes.start()
        while not world.calls("update"):
            assert notes.qmd is not None
            assert not notes.qmd.failure
        notes.close()
        assert "was cancelled" in background(notes).failure
        world.now += MINUTE
        notes.poll()
        assert "was cancelled" in background(notes).failure
