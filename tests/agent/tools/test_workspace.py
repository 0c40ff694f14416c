"""`read`, `write` and `edit`."""

from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from holdfast.messages import ToolCall, ToolResult
from holdfast_agent.paths import Bounds
from holdfast_agent.toolbox import Action, Toolbox
from holdfast_agent.tools import MAX_READ_BYTES, MAX_READ_LINES, file_tools, flush_tools, read_page


@pytest.fixture
def box(tmp_path: Path) -> Toolbox:
    """The tools over an empty workspace."""
    return Toolbox(functions=file_tools(Bounds(root=tmp_path), confirm=lambda _: True))


@dataclass
class User:
    """A user who answers as told, and remembers what was asked."""

    says: bool
    asked: list[Action] = field(default_factory=list)

    def __call__(self, action: Action) -> bool:
        """Answer."""
        self.asked.append(action)
        return self.says


def use(box: Toolbox, name: str, **arguments: Any) -> ToolResult:
    """Call a tool."""
    return box.run(ToolCall(id="c", name=name, arguments=arguments))


def fails(box: Toolbox, name: str, **arguments: Any) -> str:
    """Call a tool that must fail; what it says is returned."""
    result = use(box, name, **arguments)
    assert result.is_error
    return result.text


class TestRead:
    """Reading."""

    def test_a_file_as_it_is(self, box: Toolbox, tmp_path: Path) -> None:
        """A short file is shown whole, without numbers, so that it can be copied into an edit."""
        (tmp_path / "a").write_text("one\n二\n\tthree", "utf-8")
        assert use(box, "read", path="a").text == "one\n二\n\tthree"

    def test_an_empty_file(self, box: Toolbox, tmp_path: Path) -> None:
        """An empty file is said to be empty."""
        (tmp_path / "a").touch()
        assert use(box, "read", path="a").text == "(empty)"

    def test_some_lines(self, box: Toolbox, tmp_path: Path) -> None:
        """Offset and limit choose lines; the note says how to continue."""
        (tmp_path / "a").write_text("".join(f"line {n}\n" for n in range(1, 11)), "utf-8")
        shown = use(box, "read", path="a", offset=3, limit=2).text
        assert shown == "line 3\nline 4\n\n[lines 3-4 of a; more follows: offset=5 continues]"
        assert use(box, "read", path="a", offset=9, limit=2).text == "line 9\nline 10\n"
        assert "it ends at line 10" in fails(box, "read", path="a", offset=11)

    def test_a_big_file_comes_in_parts_that_cover_it(self, box: Toolbox, tmp_path: Path) -> None:
        """Reading on from note to note gives back every line."""
        lines = [f"{n} {'x' * (n % 90)}\n" for n in range(1, 6001)]
        (tmp_path / "a").write_text("".join(lines), "utf-8")
        seen, offset = "", 1
        while True:
            text = use(box, "read", path="a", offset=offset).text
            body, mark, note = text.partition("\n\n[lines ")
            seen += body + ("\n" if mark else "")
            if not mark:
                break
            offset = int(note.partition("offset=")[2].split()[0])
        assert seen == "".join(lines)

    def test_a_very_long_line(self, box: Toolbox, tmp_path: Path) -> None:
        """Of a line longer than a page the beginning is shown, and that it is cut; what follows can be reached."""
        (tmp_path / "a").write_text("x" * 200_000 + "\nnext\n", "utf-8")
        shown = use(box, "read", path="a").text
        assert shown.startswith("x" * MAX_READ_BYTES + "\n\n[lines 1-1")
        assert "cut -c" in shown
        assert use(box, "read", path="a", offset=2).text == "next\n"

    def test_no_more_than_a_page_is_held(self) -> None:
        """Lines and bytes are both limited, whatever is asked for."""
        found = read_page(BytesIO(b"\n" * 10_000), offset=1, limit=9_000)
        assert (found.last, found.has_more) == (MAX_READ_LINES, True)

    def test_what_is_not_text_is_refused(self, box: Toolbox, tmp_path: Path) -> None:
        """A binary file is not shown; bytes that are no UTF-8 are, as far as they can be."""
        (tmp_path / "a").write_bytes(b"\x7fELF\0\0")
        (tmp_path / "b").write_bytes(b"caf\xe9")
        assert "not text" in fails(box, "read", path="a")
        assert use(box, "read", path="b").text == "caf\ufffd"

    def test_out_of_bounds(self, box: Toolbox) -> None:
        """The workspace cannot be left."""
        assert "outside of the workspace" in fails(box, "read", path="../x")


class TestWrite:
    """Writing."""

    def test_a_file_is_written_whole(self, box: Toolbox, tmp_path: Path) -> None:
        """New contents take the place of the old, folders are made."""
        assert use(box, "write", path="d/a.md", content="計画\n").text == "Wrote 3 characters to d/a.md."
        use(box, "write", path="d/a.md", content="two")
        assert (tmp_path / "d" / "a.md").read_text("utf-8") == "two"

    def test_half_characters_are_refused(self, box: Toolbox, tmp_path: Path) -> None:
        """What no file can hold is an error, and nothing is written."""
        assert "not valid Unicode" in fails(box, "write", path="a", content="\ud800")
        assert not (tmp_path / "a").exists()

    def test_a_read_only_workspace_offers_reading_alone(self, tmp_path: Path) -> None:
        """Where nothing may be written, no tool offers to."""
        offers = file_tools(Bounds(root=tmp_path, writable=False))
        assert [each.tool.name for each in offers] == ["read"]


class TestEdit:
    """Editing."""

    def test_a_passage_is_replaced(self, box: Toolbox, tmp_path: Path) -> None:
        """The one place where it stands is changed, and named."""
        (tmp_path / "a").write_text("one\ntwo 二\nthree\n", "utf-8")
        assert (
            use(box, "edit", path="a", oldText="two 二", newText="2\n2b").text == "Replaced the passage at line 2 of a."
        )
        assert (tmp_path / "a").read_text("utf-8") == "one\n2\n2b\nthree\n"

    def test_line_breaks_of_the_file_are_kept(self, box: Toolbox, tmp_path: Path) -> None:
        """In a file with CRLF, a passage written with LF is found and replaced in its own way."""
        (tmp_path / "a").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n")
        use(box, "edit", path="a", oldText="one\ntwo", newText="1\n2\n2b")
        assert (tmp_path / "a").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n2b\r\nthree\r\n"
        use(box, "edit", path="a", oldText="three", newText="3\n4")
        assert (tmp_path / "a").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n2b\r\n3\r\n4\r\n"
        (tmp_path / "b").write_bytes(b"mixed\r\nand\nplain")
        use(box, "edit", path="b", oldText="and\nplain", newText="x\ny")
        assert (tmp_path / "b").read_bytes() == b"mixed\r\nx\ny"

    @pytest.mark.parametrize(
        ("old", "new", "fix"),
        [
            ("x", "y", "occurs 2 times"),
            ("aa", "y", "occurs 2 times"),
            ("none", "y", "does not occur"),
            ("", "y", "is empty"),
            ("x", "x", "the same"),
        ],
    )
    def test_what_is_not_clear_changes_nothing(
        self, box: Toolbox, tmp_path: Path, old: str, new: str, fix: str
    ) -> None:
        """A passage that stands nowhere, or more than once, is an error that includes the fix."""
        (tmp_path / "a").write_text("x aaa x", "utf-8")
        assert fix in fails(box, "edit", path="a", oldText=old, newText=new)
        assert (tmp_path / "a").read_text("utf-8") == "x aaa x"

    def test_files_that_cannot_be_edited(self, box: Toolbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A missing file is named as such, and one that is too large for memory is left alone."""
        assert "no such file" in fails(box, "edit", path="a", oldText="x", newText="y")
        monkeypatch.setattr("holdfast_agent.tools.MAX_EDIT_BYTES", 10)
        (tmp_path / "a").write_text("x" * 11, "utf-8")
        assert "too large" in fails(box, "edit", path="a", oldText="x", newText="y")


class TestFlush:
    """What an agent may do before its history is compacted."""

    NOTE = "memory/2026-02-10.md"

    def test_the_days_note_only_grows(self, tmp_path: Path) -> None:
        """Each write is added after a blank line; the note is made where it is missing."""
        box = flush_tools(Bounds(root=tmp_path), note=self.NOTE)
        for text in ("## Decisions\n- 用 PostgreSQL\n", "more", "again"):
            assert use(box, "write", path=f"./{self.NOTE}", content=text).text.startswith("Added")
        assert (tmp_path / self.NOTE).read_text("utf-8") == "## Decisions\n- 用 PostgreSQL\n\nmore\n\nagain\n"

    def test_a_note_without_a_last_line_break(self, tmp_path: Path) -> None:
        """What a person wrote stays as it is, and is not run together with what is added."""
        (tmp_path / "memory").mkdir()
        (tmp_path / self.NOTE).write_text("mine", "utf-8")
        use(flush_tools(Bounds(root=tmp_path), note=self.NOTE), "write", path=self.NOTE, content="added")
        assert (tmp_path / self.NOTE).read_text("utf-8") == "mine\n\nadded\n"

    def test_no_secret_gets_into_the_note(self, tmp_path: Path) -> None:
        """No one looks on when it is written, so secrets are masked, where they are to be."""
        content = "key AKIAQ3EGRLWM5N7PXJ2K"
        for mask in (True, False):
            use(flush_tools(Bounds(root=tmp_path), note=self.NOTE, mask=mask), "write", path=self.NOTE, content=content)
        assert (tmp_path / self.NOTE).read_text("utf-8") == f"key [REDACTED:aws-access-key]\n\n{content}\n"

    def test_nothing_else_can_be_done(self, tmp_path: Path) -> None:
        """Other files cannot be written, and there is no other tool than reading."""
        box = flush_tools(Bounds(root=tmp_path), note=self.NOTE)
        (tmp_path / "MEMORY.md").write_text("kept", "utf-8")
        for path in ("MEMORY.md", "memory/2026-02-10-2.md", "MEMORY/2026-02-10.md"):
            assert f"only {self.NOTE}" in fails(box, "write", path=path, content="x")
        assert use(box, "read", path="MEMORY.md").text == "kept"
        assert [tool.name for tool in box.tools()] == ["read", "write"]


class TestAsking:
    """Before anything is written, the user is asked."""

    def test_the_user_sees_what_would_change(self, tmp_path: Path) -> None:
        """The place, and every line that is written or replaced; of very many, the first and how many more."""
        user = User(says=True)
        box = Toolbox(functions=file_tools(Bounds(root=tmp_path), confirm=user))
        use(box, "write", path="计划.md", content="one\n二\n")
        use(box, "edit", path="计划.md", oldText="二", newText="two\nthree")
        use(box, "write", path="long", content="x\n" * 100)
        file = tmp_path / "计划.md"
        assert user.asked[0] == Action(kind="write", text=f"write {file}\n+ one\n+ 二")
        assert user.asked[1] == Action(kind="write", text=f"write {file}\n@ line 2\n- 二\n+ two\n+ three")
        assert user.asked[2].text.endswith("+ x\n… 40 more lines")
        assert file.read_text("utf-8") == "one\ntwo\nthree\n"

    def test_a_no_changes_nothing(self, tmp_path: Path) -> None:
        """The file stays as it is, and the model is told; a change that cannot be made is not even asked for."""
        (tmp_path / "a").write_text("old")
        user = User(says=False)
        box = Toolbox(functions=file_tools(Bounds(root=tmp_path), confirm=user))
        assert "was not allowed" in fails(box, "write", path="a", content="new")
        assert "was not allowed" in fails(box, "edit", path="a", oldText="old", newText="new")
        assert "was not allowed" in fails(box, "write", path="b", content="new")
        assert len(user.asked) == 3
        fails(box, "edit", path="a", oldText="missing", newText="new")
        fails(box, "write", path="../a", content="new")
        assert len(user.asked) == 3
        assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]

    @pytest.mark.parametrize(
        ("path", "reason"),
        [
            (".git/config", "git"),
            ("sub/.git/hooks/post-merge", "git"),
            (".GIT/config", "git"),
            (".g\u200dit/config", "git"),
            (".git./config", "git"),
            ("GIT~1/config", "git"),
            (".git", "git"),
            (".githooks/x", "git"),
            ("hooks/pre-commit", "git"),
            (".gitmodules", "settings"),
            (".bashrc", "shell"),
            ("home/me/.zshrc", "shell"),
            (".Profile", "shell"),
            (".envrc", "shell"),
            (".config/fish/config.fish", "settings"),
            (".ssh/authorized_keys", "keys"),
            ("etc/cron.d/x", "clock"),
            ("crontab", "clock"),
            (".vscode/tasks.json", "editors"),
            ("holdfast.toml", "settings"),
            ("sub/openclaw.json", "settings"),
            ("own/trusted.json", "memory of this agent"),
            ("linked/hooks/x", "git"),
        ],
    )
    def test_some_places_are_always_asked_for(self, path: str, reason: str, tmp_path: Path) -> None:
        """What can make another program run commands, and our own settings, by whatever name."""
        (tmp_path / "real" / ".git").mkdir(parents=True)
        (tmp_path / "linked").symlink_to("real/.git")
        user = User(says=False)
        bounds = Bounds(root=tmp_path, guarded=(tmp_path / "own",))
        box = Toolbox(functions=file_tools(bounds, confirm=user))
        use(box, "write", path=path, content="x")
        assert reason in user.asked[0].guarded

    @pytest.mark.parametrize("path", ["a.md", "src/hooks/use.ts", "git/config", "docs/.gitkeep", "config/app.toml"])
    def test_other_places_are_not(self, path: str, tmp_path: Path) -> None:
        """A user who allowed writing is not asked about these again."""
        user = User(says=True)
        box = Toolbox(functions=file_tools(Bounds(root=tmp_path), confirm=user))
        use(box, "write", path=path, content="x")
        assert user.asked[0].guarded == ""

    def test_what_was_shown_is_what_is_written(self, tmp_path: Path) -> None:
        """A folder that becomes a link while the user thinks does not lead the change elsewhere."""
        (tmp_path / ".git").mkdir()
        (tmp_path / "notes").mkdir()

        def swap(_: Action) -> bool:
            (tmp_path / "notes").rmdir()
            (tmp_path / "notes").symlink_to(".git")
            return True

        box = Toolbox(functions=file_tools(Bounds(root=tmp_path), confirm=swap))
        assert "another place" in fails(box, "write", path="notes/config", content="x")
        assert list((tmp_path / ".git").iterdir()) == []
