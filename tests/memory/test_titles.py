"""Titles of sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.archive_rows import make_rows
from holdfast.memory.titles import MAX_TITLE_CHARS, make_title, shorten
from holdfast.store.base import Scope
from holdfast.store.sqlite import SqliteStore
from support.conversations import reply, system, user

SCOPE = Scope(session="s")


def test_the_first_real_sentence_of_the_user_is_the_title(tmp_path: Path) -> None:
    """Neither a command nor a greeting, nor what the host or the model said."""
    talk = [
        system(),
        reply("Welcome."),
        user("/clear"),
        user("Hello!"),
        user("<system-reminder>\nSkills: deploy\n</system-reminder>\nFix the importer. It skips empty rows."),
        user("And the exporter."),
    ]
    with SqliteStore(tmp_path / "holdfast.db") as store:
        store.add_messages(make_rows(talk, scope=SCOPE))
        assert make_title(store, SCOPE) == "Fix the importer."
        assert make_title(store, Scope(session="other")) == ""


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Why  does\nit fail? Look.", "Why does it fail?"),
        ("修复导入器。它跳过空行。", "修复导入器。"),
        ("Version 2.1 of the importer skips rows", "Version 2.1 of the importer skips rows"),
    ],
)
def test_a_title_is_one_sentence_on_one_line(text: str, title: str) -> None:
    """Full stops inside of numbers and names do not end it."""
    assert shorten(text) == title


@pytest.mark.parametrize("text", ["word " * 100, "字" * 500, "x" * 500])
def test_a_title_is_short(text: str) -> None:
    """In any script."""
    title = shorten(text)
    assert len(title) <= MAX_TITLE_CHARS
    assert title.endswith("…")
