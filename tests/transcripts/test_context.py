"""The context of a session: rebuilt from entries, with compactions, branches and moves."""

from typing import Any

from holdfast.messages import Message
from holdfast.transcripts.entry import Entry
from holdfast.transcripts.records import read_entry
from holdfast.transcripts.session import compaction_region
from support.session_files import compaction, entry, rebuild, reply, user

SUMMARY = "The conversation history before this point was compacted into the following summary:\n\n<summary>\n"
BRANCH = "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n"


def texts(entries: list[Entry], leaf: str | None = None) -> list[str]:
    """What the model sees."""
    return [message.text for message in rebuild(entries, leaf).messages]


def summary(entry_id: str) -> str:
    """What the model is told of a compaction."""
    return f"{SUMMARY}sum {entry_id}\n</summary>"


# --- without a compaction ----------------------------------------------------


def test_no_entries() -> None:
    """Nothing in, nothing out."""
    context = rebuild([])
    assert (context.messages, context.compaction) == ((), None)


def test_single_message() -> None:
    """A message carries its entry's id, and its entry's time where it has none of its own."""
    (message,) = rebuild([user("1", None, "こんにちは")]).messages
    assert (message.role, message.text, message.id, message.timestamp) == ("user", "こんにちは", "1", 1770732000000)


def test_conversation_in_order() -> None:
    """Messages come in the order of the path; a reply keeps the time it was made."""
    context = rebuild([user("1", None), reply("2", "1"), user("3", "2"), reply("4", "3")])
    assert [message.text for message in context.messages] == ["1", "2", "3", "4"]
    assert context.messages[1].timestamp == 7


def test_kinds_that_speak() -> None:
    """Messages, custom messages and branch summaries reach the model; the rest is for programs."""
    entries = [
        user("1", None),
        entry("custom", "2", "1", customType="x", data={"secret": 1}),
        entry("custom_message", "3", "2", customType="x", content="injected", display=False, details={"k": 1}),
        entry("label", "4", "3", targetId="1", label="start"),
        entry("session_info", "5", "4", name="name"),
        entry("branch_summary", "6", "5", fromId="1", summary="tried"),
        entry("branch_summary", "7", "6", fromId="1", summary=""),
        entry("telemetry", "8", "7", message={"role": "user", "content": "never"}),
    ]
    assert texts(entries) == ["1", "injected", f"{BRANCH}tried</summary>"]
    assert {message.role for message in rebuild(entries).messages} == {"user"}


def test_command_of_the_user() -> None:
    """A command that the user ran is told to the model, unless it was run aside."""
    ran: dict[str, Any] = {"role": "bashExecution", "command": "ls", "output": "a.txt", "exitCode": 0}
    aside = ran | {"excludeFromContext": True}
    assert texts([entry("message", "1", None, message=ran), entry("message", "2", "1", message=aside)]) == [
        "Ran `ls`\n```\na.txt\n```"
    ]


def test_message_that_cannot_be_read() -> None:
    """A message of an unknown shape is left out and reported with its line; the others are there."""
    context = rebuild(
        [
            user("1", None),
            entry("message", "2", "1", message={"role": "martian", "content": []}),
            entry("message", "3", "2", message=5),
            user("4", "3"),
        ]
    )
    assert [message.text for message in context.messages] == ["1", "4"]
    assert [problem.line for problem in context.problems] == [2, 3]
    assert "martian" in context.problems[0].what


# --- compactions -------------------------------------------------------------


def test_summary_then_kept_then_later() -> None:
    """The summary comes first, then what was kept, then what came after the compaction."""
    entries = [
        user("1", None),
        reply("2", "1"),
        user("3", "2"),
        reply("4", "3"),
        compaction("5", "4", "3"),
        user("6", "5"),
    ]
    context = rebuild(entries)
    assert [message.text for message in context.messages] == [summary("5"), "3", "4", "6"]
    assert context.messages[0].id == "5"
    assert context.compaction is entries[4]


def test_kept_from_the_first_entry() -> None:
    """A compaction that keeps from the first entry on keeps everything."""
    assert texts([user("1", None), reply("2", "1"), compaction("3", "2", "1")]) == [summary("3"), "1", "2"]


def test_latest_of_several() -> None:
    """Only the newest compaction counts; the earlier ones are not said again."""
    entries = [
        user("1", None),
        user("2", "1"),
        compaction("3", "2", "2"),
        user("4", "3"),
        compaction("5", "4", "2"),
        user("6", "5"),
    ]
    assert texts(entries) == [summary("5"), "2", "4", "6"]


def test_first_kept_entry_that_is_not_on_the_path() -> None:
    """Without its first kept entry a compaction keeps nothing that was before it."""
    for missing in ("zz", None):
        assert texts([user("1", None), compaction("2", "1", missing), user("3", "2")]) == [summary("2"), "3"]


def test_hardened_boundary() -> None:
    """A compaction that names itself keeps nothing that was before it."""
    assert texts([user("1", None), compaction("2", "1", "2"), user("3", "2")]) == [summary("2"), "3"]


def test_region_without_a_compaction() -> None:
    """Before the first compaction the whole path is up for the next one."""
    entries = [user("1", None), reply("2", "1")]
    assert compaction_region(entries) == tuple(entries)


def test_region_begins_at_what_the_last_compaction_kept() -> None:
    """What a compaction kept is considered by the next one: nothing is neither summarised nor kept."""
    entries = [user("1", None), user("2", "1"), user("3", "2"), compaction("4", "3", "2"), user("5", "4")]
    assert [entry.id for entry in compaction_region(entries)] == ["2", "3", "5"]


def test_region_skips_earlier_compactions() -> None:
    """Compactions inside the region are left out of it."""
    entries = [user("1", None), compaction("2", "1", "1"), user("3", "2"), compaction("4", "3", "1"), user("5", "4")]
    assert [entry.id for entry in compaction_region(entries)] == ["1", "3", "5"]


def test_region_without_its_first_kept_entry() -> None:
    """Where the first kept entry is not on the path the region begins behind the compaction."""
    assert [entry.id for entry in compaction_region([user("1", None), compaction("2", "1", "zz"), user("3", "2")])] == [
        "3"
    ]


# --- trees -------------------------------------------------------------------


def test_path_to_a_leaf() -> None:
    """Only the branch of the leaf is seen."""
    entries = [user("1", None), user("2", "1"), user("3", "1")]
    assert texts(entries, "2") == ["1", "2"]
    assert texts(entries, "3") == ["1", "3"]
    assert texts(entries) == ["1", "3"]


def test_branch_summary_on_the_path() -> None:
    """The summary of a branch that was left is seen where the conversation came back."""
    entries = [
        user("1", None),
        user("2", "1"),
        entry("branch_summary", "3", "1", fromId="1", summary="s"),
        user("4", "3"),
    ]
    assert texts(entries) == ["1", f"{BRANCH}s</summary>", "4"]


def test_complex_tree() -> None:
    """Branches of branches, one with a compaction: each leaf sees its own history."""
    entries = [
        user("1", None),
        reply("2", "1"),
        user("3", "2"),
        compaction("4", "3", "3"),
        reply("5", "4"),
        user("6", "2"),
        entry("branch_summary", "7", "6", fromId="2", summary="s"),
        reply("8", "7"),
    ]
    assert texts(entries, "5") == [summary("4"), "3", "5"]
    assert texts(entries, "8") == ["1", "2", "6", f"{BRANCH}s</summary>", "8"]


def test_leaf_that_is_not_there() -> None:
    """An unknown leaf means the last entry."""
    assert texts([user("1", None), user("2", "1")], "zz") == ["1", "2"]


def test_orphans() -> None:
    """A parent that is not in the file ends the walk."""
    assert texts([user("1", None), user("2", "zz"), user("3", "2")]) == ["2", "3"]


def test_cycle() -> None:
    """Entries that follow each other in a ring are walked once."""
    assert texts([user("1", "2"), user("2", "1")]) == ["1", "2"]


def test_records_of_a_stream_can_be_rebuilt() -> None:
    """The header among the entries does no harm, and messages that were read already are used."""
    header = read_entry({"type": "session", "id": "s", "timestamp": ""}, 1)
    read = Message(role="user", parts=())
    said = Entry(type="message", id="2", data={"parentId": None}, line=2, messages=(read,))
    assert rebuild([header, said]).messages == (read,)
