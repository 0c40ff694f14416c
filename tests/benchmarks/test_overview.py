"""The benchmark of the overview and of questions about past sessions."""

from __future__ import annotations

import pytest

from benchmarks.overview import load_sheet, measure


def test_the_sheet_has_thirty_sessions_and_questions() -> None:
    """Every answer is something that a session says, or its day."""
    sheet = load_sheet()
    assert len(sheet["sessions"]) == len(sheet["questions"]) == len(sheet["other_questions"]) == 30
    said = "\n".join(message["text"] for session in sheet["sessions"] for message in session["messages"])
    days = {session["start"][:10] for session in sheet["sessions"]}
    for question in (*sheet["questions"], *sheet["other_questions"]):
        assert all(answer in said or answer in days for answer in question["answers"]), question["text"]


@pytest.mark.nightly
def test_most_questions_are_answered_and_no_request_changes_what_was_sent() -> None:
    """In the window of a new session, in every wire format."""
    found = measure()
    assert found["questions"]["window"]["answered"] >= 27
    assert found["questions"]["window"]["answered"] > found["questions"]["ten best passages"]["answered"]
    for start in found["starts"].values():
        assert 0 < start["overview tokens"] <= 400
        assert start["prefix kept"] == "100 %"
