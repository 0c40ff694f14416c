"""Which files are searched, and what they say."""

import os
from pathlib import Path

from holdfast_agent.note_files import MAX_NOTE_BYTES, Source, find_notes, find_sessions, read_lines, read_messages
from support.session_files import answers, begin, calls, says

TOKEN = "ghp_R7tKx2mQ9vLp4WzN8cYb3HdJ6fGsA1eUoT5i"
PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\n"
    + "\n".join(["MIIEpAIBAAKCAQEA7bq" + "x1Yz9" * 9] * 6)
    + "\n-----END RSA PRIVATE KEY-----"
)


def write(path: Path, text: str = "note") -> Path:
    """A file, its folders made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def names(root: Path, *extra: str) -> list[str]:
    """What is searched."""
    return [source.name for source in find_notes(root, extra)]


class TestNotes:
    """Markdown."""

    def test_the_notes_of_a_workspace(self, tmp_path: Path) -> None:
        """MEMORY.md, memory.md and every Markdown file under memory/, and nothing else."""
        for name in (
            "MEMORY.md",
            "memory/2026-02-10.md",
            "memory/a/b.MD",
            "memory/.git/x.md",
            "memory/x.txt",
            "AGENTS.md",
        ):
            write(tmp_path / name)
        assert names(tmp_path) == ["MEMORY.md", "memory/2026-02-10.md", "memory/a/b.MD"]

    def test_further_files_and_folders(self, tmp_path: Path) -> None:
        """Extra paths may lie outside, as files or folders; only Markdown counts, and each file once."""
        root = tmp_path / "ws"
        write(root / "memory" / "a.md")
        write(tmp_path / "docs" / "guide.md")
        write(tmp_path / "docs" / "node_modules" / "x.md")
        write(tmp_path / "plan.txt")
        outside = (tmp_path / "docs" / "guide.md").as_posix()
        found = names(root, "memory", "../docs", str(tmp_path / "plan.txt"), str(tmp_path / "docs"), "none.md")
        assert [Path(name).name for name in found] == ["a.md", "guide.md"]
        assert names(root, outside) == ["memory/a.md", outside]

    def test_a_name_that_is_no_text(self, tmp_path: Path) -> None:
        """A file name that is not UTF-8 is searched under a name that can be written."""
        (tmp_path / "memory").mkdir()
        (tmp_path / "memory" / os.fsdecode(b"caf\xe9.md")).write_text("note", "utf-8")
        assert names(tmp_path) == ["memory/caf\ufffd.md"]

    def test_links_and_giants_are_left_out(self, tmp_path: Path) -> None:
        """A link is not followed, and a file of no reasonable size not read."""
        write(tmp_path / "secret.md")
        root = tmp_path / "ws"
        (root / "memory").mkdir(parents=True)
        (root / "memory" / "link.md").symlink_to(tmp_path / "secret.md")
        (root / "MEMORY.md").symlink_to(tmp_path / "secret.md")
        with (root / "memory" / "giant.md").open("wb") as file:
            file.truncate(MAX_NOTE_BYTES + 1)
        assert names(root) == []

    def test_secrets_are_masked_line_by_line(self, tmp_path: Path) -> None:
        """A key of many lines leaves as many, so that numbers stay true; unmasked it is all there."""
        text = f"first\n{PEM}\ntoken {TOKEN} here\nlast 最后"
        (source,) = find_notes(write(tmp_path / "MEMORY.md", text).parent)
        lines = read_lines(source, mask=True)
        assert lines[-1] == (len(text.splitlines()), "last 最后")
        assert not any("MIIEp" in line or TOKEN in line for _, line in lines)
        assert read_lines(source, mask=False)[-2][1] == f"token {TOKEN} here"


class TestSessions:
    """Past conversations."""

    def test_who_said_what(self, tmp_path: Path) -> None:
        """Users and assistants, a line each, by the line in the file; no tools or secrets."""
        session = begin(tmp_path)
        session.append_message(says("where  do\nwe deploy?"))
        session.append_message(calls("c1"))
        session.append_message(answers("c1"))
        session.append_message(says(f"Hetzner, token {TOKEN}", "assistant"))
        lines = read_messages(session.file, mask=True)
        assert [number for number, _ in lines] == [2, 5]
        assert lines[0][1] == "User: where do we deploy?"
        assert lines[1][1].startswith("Assistant: Hetzner, token [")
        assert TOKEN in read_messages(session.file, mask=False)[1][1]

    def test_which_files(self, tmp_path: Path) -> None:
        """Sessions and those that were reset; no copies, no deleted ones, no links, no store."""
        for name in (
            "a.jsonl",
            "b.jsonl.reset.2026-02-10T14-00-00.000Z",
            "c.jsonl.deleted.2026-02-10T14-00-00.000Z",
            "a.checkpoint.1.jsonl",
            "a.trajectory.jsonl",
            "sessions.json",
        ):
            write(tmp_path / name, "{}")
        (tmp_path / "d.jsonl").symlink_to("a.jsonl")
        found = [source.name for source in find_sessions(tmp_path)]
        assert found == ["sessions/a.jsonl", "sessions/b.jsonl.reset.2026-02-10T14-00-00.000Z"]
        assert find_sessions(tmp_path / "none") == []

    def test_half_characters_become_whole(self, tmp_path: Path) -> None:
        """JSON can contain a lone surrogate; the index cannot."""
        session = begin(tmp_path)
        session.append_message(says("zebra x"))
        session.file.write_bytes(session.file.read_bytes().replace(b"zebra x", b"zebra \\ud83e x"))
        assert read_messages(session.file, mask=True) == [(2, "User: zebra \ufffd x")]

    def test_a_file_that_is_no_session_has_no_lines(self, tmp_path: Path) -> None:
        """A file that cannot be read as a session has no lines."""
        path = write(tmp_path / "a.jsonl", "not json\n{}\n")
        source = Source(name="sessions/a.jsonl", path=path, kind="sessions", mtime=0, size=0)
        assert read_lines(source, mask=True) == []
        assert read_messages(tmp_path / "none.jsonl", mask=True) == []
