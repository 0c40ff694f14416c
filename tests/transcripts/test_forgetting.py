"""Forgetting in a session file."""

from __future__ import annotations

from pathlib import Path

from holdfast.messages import Message, Text, Thinking, ToolCall, ToolResult
from holdfast.transcripts.records import FORGOTTEN
from holdfast.transcripts.session import Session
from support.conversations import reply, user
from support.session_files import rebuild


def written(file: Path) -> tuple[Session, list[str]]:
    """A session in which zebra was said in every way, and the entries that say it."""
    session = Session.create(file)
    call = ToolCall(id="c1", name="bash", arguments={"command": "echo zebra"})
    thought = Thinking(text="zebra", signature="s")
    result = ToolResult(call_id="c1", name="bash", content=(Text(text="zebra"),))
    messages = [
        user("Look at the zebra."),
        Message(role="assistant", parts=(thought, Text(text="The zebra?"), call)),
        Message(role="tool", parts=(result,)),
    ]
    ids = [str(entry.id) for message in messages for entry in session.append_message(message)]
    kept = session.append_message(reply("Done."))[0]
    session.append_compaction("They saw a zebra.", first_kept=str(kept.id), tokens_before=9, details={"a": "zebra"})
    session.append_message(user("Go on."))
    return session, ids


def test_the_words_go_and_the_session_stays_whole(tmp_path: Path) -> None:
    """No byte of it is left; every entry is where it was, calls have their results, and it continues."""
    file = tmp_path / "s.jsonl"
    session, ids = written(file)
    other = Session.open(file)
    before = [(entry.id, entry.parent) for entry in session.path()]
    session.forget(ids)
    assert b"zebra" not in file.read_bytes()
    assert [(entry.id, entry.parent) for entry in session.path()] == before
    session.append_message(reply("Here."))
    other.append_message(user("And I am here."))
    again = Session.open(file)
    assert again.problems == ()
    first, asked, answered = [rebuild(again.entries, leaf).messages[-1] for leaf in ids]
    assert first.text == FORGOTTEN
    assert [call.id for call in asked.calls] == [result.call_id for result in answered.results] == ["c1"]
    assert [message.text for message in again.context().messages][-3:] == ["Go on.", "Here.", "And I am here."]
    assert FORGOTTEN in again.context().messages[0].text


def test_an_unknown_entry_changes_nothing(tmp_path: Path) -> None:
    """An unknown entry leaves every byte as it was, summaries too."""
    file = tmp_path / "s.jsonl"
    session, _ = written(file)
    before = file.read_bytes()
    session.forget(["none"])
    assert file.read_bytes() == before
