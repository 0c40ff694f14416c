"""Names lead into the workspace, or nowhere."""

import os
import threading
from pathlib import Path

import pytest

from holdfast.errors import InputError
from holdfast_agent.paths import Bounds, append_bytes, locate, open_file, read_bytes, write_bytes


@pytest.fixture
def bounds(tmp_path: Path) -> Bounds:
    """A workspace with a file, next to a secret."""
    root = tmp_path / "ws"
    root.mkdir()
    (root / "a.md").write_text("inside", "utf-8")
    (tmp_path / "secret.txt").write_text("secret", "utf-8")
    return Bounds(root=root)


class TestReading:
    """What can be read."""

    def test_a_file_by_any_of_its_names(self, bounds: Bounds) -> None:
        """Relative, roundabout and absolute names of a file inside lead to it."""
        for name in ("a.md", "./a.md", "x/../a.md", str(bounds.root / "a.md"), "./././a.md"):
            assert read_bytes(bounds, name) == b"inside"

    @pytest.mark.parametrize(
        "name",
        ["../secret.txt", "x/../../secret.txt", "/etc/passwd", "~/secret.txt", "~root/x", "..", "/", "../ws2/a.md"],
    )
    def test_names_that_lead_out_are_refused(self, bounds: Bounds, name: str) -> None:
        """A name that leads out of the workspace is an error that says so."""
        if name == "~root/x" and os.path.expanduser(name) == name:  # noqa: PTH111 - as the code does
            pytest.skip("no such user here")
        with pytest.raises(InputError, match="outside of the workspace"):
            read_bytes(bounds, name)

    def test_a_neighbour_with_the_same_beginning_is_outside(self, bounds: Bounds, tmp_path: Path) -> None:
        """`ws-old` is not inside of `ws`."""
        (tmp_path / "ws-old").mkdir()
        (tmp_path / "ws-old" / "b").write_text("x", "utf-8")
        with pytest.raises(InputError, match="outside"):
            read_bytes(bounds, "../ws-old/b")

    @pytest.mark.parametrize("name", ["", "  ", "a\0b", "half \ud800"])
    def test_what_is_no_name_is_refused(self, bounds: Bounds, name: str) -> None:
        """Blank names, null bytes and half characters are errors, not crashes."""
        with pytest.raises(InputError):
            read_bytes(bounds, name)

    def test_links_inside_are_followed_and_links_out_are_not(self, bounds: Bounds, tmp_path: Path) -> None:
        """A link leads where it leads: inside is fine, outside is refused, for files and folders."""
        (bounds.root / "in").symlink_to("a.md")
        (bounds.root / "out").symlink_to(tmp_path / "secret.txt")
        (bounds.root / "up").symlink_to("..", target_is_directory=True)
        (bounds.root / "loop").symlink_to("loop")
        assert read_bytes(bounds, "in") == b"inside"
        for name in ("out", "up/secret.txt", "up/ws/../secret.txt"):
            with pytest.raises(InputError, match="outside"):
                read_bytes(bounds, name)
        assert read_bytes(bounds, "up/ws/a.md") == b"inside"
        with pytest.raises(InputError, match="link on the path"):
            read_bytes(bounds, "loop")

    def test_a_file_that_becomes_a_link_leads_nowhere(self, bounds: Bounds, tmp_path: Path) -> None:
        """Swapping a folder for a link while it is read never shows what lies outside."""
        inner, spare = bounds.root / "d", bounds.root / "spare"
        inner.mkdir()
        (inner / "secret.txt").write_text("inside", "utf-8")
        done = threading.Event()

        def swap() -> None:
            while not done.is_set():
                inner.rename(spare)
                inner.symlink_to(tmp_path, target_is_directory=True)
                inner.unlink()
                spare.rename(inner)

        swapping = threading.Thread(target=swap)
        swapping.start()
        seen: set[bytes] = set()
        for _ in range(1000):
            try:
                seen.add(read_bytes(bounds, "d/secret.txt"))
            except InputError:
                seen.add(b"refused")
        done.set()
        swapping.join()
        assert b"secret" not in seen

    def test_only_plain_files_are_opened(self, bounds: Bounds) -> None:
        """A folder and a pipe are refused at once; no one waits for the other end."""
        os.mkfifo(bounds.root / "pipe")
        for name, fix in (
            ("pipe", "plain files"),
            (".", "folder"),
            ("a.md/x", "not a folder"),
            ("none", "no such file"),
        ):
            with pytest.raises(InputError, match=fix):
                read_bytes(bounds, name)

    def test_as_much_as_is_asked_for(self, bounds: Bounds) -> None:
        """The first bytes are read, or the file is handed over."""
        assert read_bytes(bounds, "a.md", limit=2) == b"in"
        with open_file(bounds, "a.md") as file:
            assert file.read() == b"inside"


class TestAllowed:
    """What the user allowed next to the workspace."""

    def test_a_folder_and_a_file(self, bounds: Bounds, tmp_path: Path) -> None:
        """An allowed folder opens what is in it, an allowed file itself alone."""
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "b.md").write_text("docs", "utf-8")
        wider = Bounds(root=bounds.root, allowed=(tmp_path / "docs", tmp_path / "secret.txt"))
        assert read_bytes(wider, "../docs/b.md") == b"docs"
        assert read_bytes(wider, str(tmp_path / "secret.txt")) == b"secret"
        assert locate(wider, "../secret.txt").path == tmp_path / "secret.txt"
        with pytest.raises(InputError, match="outside"):
            read_bytes(wider, "../other.txt")

    def test_everything(self, bounds: Bounds, tmp_path: Path) -> None:
        """With the root of the disk allowed, everything is."""
        wider = Bounds(root=bounds.root, allowed=(Path("/"),))
        assert read_bytes(wider, str(tmp_path / "secret.txt")) == b"secret"


class TestWriting:
    """What can be written."""

    def test_a_new_file_in_new_folders(self, bounds: Bounds) -> None:
        """Missing folders are made on the way."""
        path = write_bytes(bounds, "notes/2026/plan.md", "计划".encode())
        assert path == bounds.root / "notes" / "2026" / "plan.md"
        assert path.read_text("utf-8") == "计划"

    def test_a_file_keeps_its_permissions(self, bounds: Bounds) -> None:
        """A script that is written over stays a script, and nothing is left next to it."""
        (bounds.root / "a.md").chmod(0o750)
        write_bytes(bounds, "a.md", b"new")
        assert (bounds.root / "a.md").stat().st_mode & 0o777 == 0o750
        assert sorted(place.name for place in bounds.root.iterdir()) == ["a.md"]

    def test_writing_through_a_link_changes_what_it_leads_to(self, bounds: Bounds, tmp_path: Path) -> None:
        """A link inside stays a link; one that leads out is refused and its target unchanged."""
        (bounds.root / "in").symlink_to("a.md")
        (bounds.root / "out").symlink_to(tmp_path / "secret.txt")
        (bounds.root / "dangling").symlink_to(tmp_path / "made.txt")
        write_bytes(bounds, "in", b"new")
        assert (bounds.root / "in").is_symlink()
        assert (bounds.root / "a.md").read_bytes() == b"new"
        for name in ("out", "dangling"):
            for change in (write_bytes, append_bytes):
                with pytest.raises(InputError, match="outside"):
                    change(bounds, name, b"x")
        assert (tmp_path / "secret.txt").read_bytes() == b"secret"
        assert not (tmp_path / "made.txt").exists()

    def test_what_was_changed_meanwhile_is_not_written_over(self, bounds: Bounds) -> None:
        """An edit of what was read before fails when someone else was faster."""
        with pytest.raises(InputError, match="read it again"):
            write_bytes(bounds, "a.md", b"new", expected=b"older")
        assert read_bytes(bounds, "a.md") == b"inside"

    def test_appending(self, bounds: Bounds) -> None:
        """What was there stays; a file that is missing is made."""
        append_bytes(bounds, "a.md", b" and more")
        append_bytes(bounds, "new/b.md", b"first")
        assert read_bytes(bounds, "a.md") == b"inside and more"
        assert read_bytes(bounds, "new/b.md") == b"first"

    def test_folders_and_pipes_are_not_written(self, bounds: Bounds) -> None:
        """What is no plain file cannot be written over."""
        (bounds.root / "d").mkdir()
        os.mkfifo(bounds.root / "pipe")
        for name, fix in (("d", "folder"), (".", "folder"), ("pipe", "plain files"), ("a.md/b", "not a folder")):
            for change in (write_bytes, append_bytes):
                with pytest.raises(InputError, match=fix):
                    change(bounds, name, b"x")

    def test_a_read_only_workspace(self, bounds: Bounds) -> None:
        """Without leave to write nothing is written."""
        shut = Bounds(root=bounds.root, writable=False)
        with pytest.raises(InputError, match="read-only"):
            write_bytes(shut, "a.md", b"x")
        assert read_bytes(shut, "a.md") == b"inside"

    def test_a_write_that_fails_leaves_the_old_file(self, bounds: Bounds, monkeypatch: pytest.MonkeyPatch) -> None:
        """When the disk refuses, the old contents stand and no half file is left."""

        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", refuse)
        with pytest.raises(InputError, match="disk is full"):
            write_bytes(bounds, "a.md", b"new")
        assert [place.name for place in bounds.root.iterdir()] == ["a.md"]
        assert read_bytes(bounds, "a.md") == b"inside"
