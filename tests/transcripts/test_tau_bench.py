"""tau-bench's conversations as they were shown."""

from agent_files import FIXTURES, TRANSCRIPTS
from holdfast.messages import units
from holdfast.transcripts import read
from shared_data import needs_shared


def test_turns() -> None:
    """Each speaker's words are a message; where a tool answered, the assistant called it."""
    (entry,) = read(FIXTURES / "tau_bench" / "shown.jsonl").entries
    user, call, result, reply, last = entry.messages
    assert (user.role, user.text) == ("user", "Cancel my ferry.")
    assert (call.text, call.calls[0].id) == ("", result.results[0].call_id)
    assert result.results[0].text == '{"status": "cancelled"}'
    assert reply.text == "Done:\n\n- ferry 7"
    assert last.text == "Thanks: bye"


@needs_shared
def test_real_rows() -> None:
    """In the real rows every result has its call."""
    (path,) = TRANSCRIPTS.glob("tau_bench/*.jsonl")
    for entry in read(path).entries:
        grouped = units(entry.messages)
        assert not any(unit.pending for unit in grouped)
        assert all(unit.messages[0].role != "tool" for unit in grouped)
