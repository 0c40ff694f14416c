"""A session: what is appended, how it hangs together, where it goes on."""

import json
import re
from pathlib import Path
from types import MappingProxyType

import pytest

from holdfast.errors import FormatError, TranscriptError
from holdfast.messages import Image, Message, RedactedThinking, Text, Thinking, ToolCall, ToolResult, Usage
from holdfast.providers.anthropic import ANTHROPIC
from holdfast.providers.openai_chat import OPENAI_CHAT
from holdfast.providers.openai_responses import OPENAI_RESPONSES
from holdfast.providers.pi import PI
from holdfast.providers.wire import Format
from holdfast.transcripts.session import Session, stream_entries
from sessions import START, Ids, Ticks, answers, begin, calls, records, reopen, says, texts
from shared_data import SHARED, needs_shared

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class TestWriting:
    """What a line looks like."""

    def test_header_is_written_at_creation(self, tmp_path: Path) -> None:
        """A session that was only created is a whole file already: the header, and nothing else."""
        session = begin(tmp_path)
        line = session.file.read_bytes()
        assert line == (
            b'{"type":"session","version":3,"id":"00000001-0000-4000-8000-000000000000",'
            b'"timestamp":"2026-02-10T14:00:00.000Z","cwd":"/work"}\n'
        )
        assert session.id == "00000001-0000-4000-8000-000000000000"
        assert (session.cwd, session.leaf, session.entries, session.problems) == ("/work", None, (), ())

    def test_message_line(self, tmp_path: Path) -> None:
        """A line is JSON without spaces, in the order of the format, with both clocks, CJK as it is."""
        session = begin(tmp_path)
        (entry,) = session.append_message(says("修复 webhook"))
        assert session.file.read_bytes().splitlines(keepends=True)[1].decode() == (
            '{"type":"message","id":"00000002","parentId":null,"timestamp":"2026-02-10T14:00:00.003Z",'
            '"message":{"role":"user","content":[{"type":"text","text":"修复 webhook"}],"timestamp":1770732000002}}\n'
        )
        assert entry.id == session.leaf == "00000002"
        assert entry.timestamp == START + 3

    def test_reply_has_every_field_that_other_readers_expect(self, tmp_path: Path) -> None:
        """A reply made elsewhere is written with api, provider, model, usage, cost and pi's word for its end."""
        session = begin(tmp_path)
        reply = Message(
            role="assistant",
            parts=(ToolCall(id="c1", name="read", arguments={"path": "a"}),),
            model="claude-sonnet-4-5",
            stop="tool_use",
            usage=Usage(input=12, output=80, cache_read=9000, cache_write=400),
        )
        session.append_message(reply, provider="anthropic", api="anthropic-messages")
        wire = records(session.file)[1]["message"]
        assert list(wire) == ["role", "content", "api", "provider", "model", "usage", "stopReason", "timestamp"]
        assert wire["stopReason"] == "toolUse"
        assert wire["usage"]["totalTokens"] == 9492
        assert wire["usage"]["cost"] == {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}
        assert session.context().messages[0].usage == Usage(
            input=12, output=80, cache_read=9000, cache_write=400, total=9492
        )

    def test_message_from_a_session_is_written_as_it_came(self, tmp_path: Path) -> None:
        """What was read from pi's own form goes back with its unknown fields and its order of keys."""
        wire = {"timestamp": 5, "role": "assistant", "content": [], "new": {"field": 1}, "stopReason": "aborted"}
        session = begin(tmp_path)
        session.append_message(PI.read(wire, "message"))
        assert json.dumps(records(session.file)[1]["message"]) == json.dumps(wire)

    def test_parts_come_back_as_they_were(self, tmp_path: Path) -> None:
        """Thinking, redacted thinking, calls, images and results read back equal."""
        reply = Message(
            role="assistant",
            parts=(
                Thinking(text="hm", signature="sig"),
                RedactedThinking(data="xx"),
                Text(text="한국어"),
                ToolCall(id="c", name="run", arguments={"x": [1, None]}),
            ),
        )
        result = ToolResult(
            call_id="c", content=(Text(text="ok"), Image(media_type="image/png", data="aGk=")), name="run"
        )
        session = begin(tmp_path)
        session.append_message(reply)
        session.append_message(Message(role="tool", parts=(result,)))
        assert [message.parts for message in reopen(session.file).context().messages] == [reply.parts, (result,)]

    def test_results_of_one_message_become_entries_in_a_row(self, tmp_path: Path) -> None:
        """A message with several results is several entries, written at once, each behind the other."""
        session = begin(tmp_path)
        (call,) = session.append_message(calls("a", "b"))
        first, second = session.append_message(answers("a", "b"))
        assert (first.parent, second.parent) == (call.id, first.id)
        assert [entry.data["message"]["toolCallId"] for entry in (first, second)] == ["a", "b"]

    def test_half_a_surrogate_pair_is_escaped(self, tmp_path: Path) -> None:
        """Text that UTF-8 cannot hold is kept by an escape."""
        session = begin(tmp_path)
        session.append_message(says("\ud83d!"))
        assert b"\\ud83d!" in session.file.read_bytes()
        assert texts(reopen(session.file)) == ["\ud83d!"]

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}])
    def test_what_json_cannot_hold_is_refused(self, tmp_path: Path, value: object) -> None:
        """A value that would spoil the line is an error, and the file stays as it was."""
        session = begin(tmp_path)
        before = session.file.read_bytes()
        with pytest.raises(FormatError, match="cannot be written as JSON"):
            session.append_custom("mine", {"value": value})
        assert session.file.read_bytes() == before

    @pytest.mark.parametrize(
        ("format", "api"),
        [
            (ANTHROPIC, "anthropic-messages"),
            (OPENAI_CHAT, "openai-completions"),
            (OPENAI_RESPONSES, "openai-responses"),
        ],
    )
    def test_reply_names_the_api_it_came_over(self, tmp_path: Path, format: Format, api: str) -> None:
        """Where a reply was read from a provider's form that form names the api, unless the caller knows better."""
        session = begin(tmp_path)
        wire = {"role": "assistant", "content": "hi"} | ({"type": "message"} if format is OPENAI_RESPONSES else {})
        reply = format.read(wire, "message")
        session.append_message(reply)
        session.append_message(reply, api="other")
        assert [record["message"]["api"] for record in records(session.file)[1:]] == [api, "other"]

    def test_result_inside_a_reply_is_a_result(self, tmp_path: Path) -> None:
        """A result that stands in a reply is written as an entry of its own, without the reply's fields."""
        session = begin(tmp_path)
        session.append_message(Message(role="assistant", parts=(Text(text="x"), ToolResult(call_id="a"))))
        written = {record["message"]["role"]: record["message"] for record in records(session.file)[1:]}
        assert {role: "usage" in wire for role, wire in written.items()} == {"assistant": True, "toolResult": False}

    def test_mappings_of_any_kind_are_written(self, tmp_path: Path) -> None:
        """What looks like an object is written as one."""
        entry = begin(tmp_path).append_custom("mine", MappingProxyType({"a": 1}))
        assert entry.data["data"] == {"a": 1}

    def test_ids_that_are_taken_are_not_used_again(self, tmp_path: Path) -> None:
        """An id that exists is drawn again, a hundred times, then a whole UUID is taken."""
        drawn = iter(["s", "aaaaaaaa-1", "aaaaaaaa-2", "bbbbbbbb-3", *["aaaaaaaa-4"] * 100, "cccccccc-dddd"])
        session = Session.create(tmp_path / "s.jsonl", clock=Ticks(), new_id=lambda: next(drawn))
        entries = [session.append_name(name) for name in "abc"]
        assert [entry.id for entry in entries] == ["aaaaaaaa", "bbbbbbbb", "cccccccc-dddd"]

    def test_defaults_are_real_time_and_uuids(self, tmp_path: Path) -> None:
        """Without a clock and ids of one's own, entries carry the time and eight hex digits."""
        session = Session.create(tmp_path / "s.jsonl")
        (entry,) = session.append_message(says("hi"))
        assert re.fullmatch(r"[0-9a-f]{8}", entry.id or "")
        assert all(ISO.fullmatch(record["timestamp"]) for record in records(session.file))

    def test_caller_may_change_its_data_afterwards(self, tmp_path: Path) -> None:
        """An entry is what stands in the file, whatever happens to the value it was made of."""
        session = begin(tmp_path)
        data = {"list": [1]}
        entry = session.append_custom("mine", data)
        data["list"].append(2)
        assert entry.data["data"] == {"list": [1]}


class TestTree:
    """How entries hang together."""

    def test_every_kind_hangs_on_the_one_before(self, tmp_path: Path) -> None:
        """Each append is a child of the leaf and becomes the leaf, whatever its type."""
        session = begin(tmp_path)
        (first,) = session.append_message(says("hi"))
        assert first.id is not None
        session.append_custom("openclaw.cache-ttl", {"provider": "anthropic"})
        session.append_custom_message("my-ext", "Injected", display=False, details={"k": 1})
        session.append_compaction("## Goal", first_kept=first.id, tokens_before=182345, details={"readFiles": []})
        session.append_model_change("anthropic", "claude-sonnet-4-5")
        session.append_thinking_level("low")
        session.append_label(first.id, "start")
        session.append_name("  Webhook work ")
        session.append_other("telemetry", {"n": 1})
        written = records(session.file)[1:]
        assert [record["parentId"] for record in written] == [None, *(record["id"] for record in written[:-1])]
        assert [entry.type for entry in reopen(session.file).entries] == [record["type"] for record in written]
        assert written[3]["firstKeptEntryId"] == first.id
        assert session.name == "Webhook work"

    def test_what_is_not_given_is_not_written(self, tmp_path: Path) -> None:
        """Optional fields without a value are left out, as the other writers do."""
        session = begin(tmp_path)
        (first,) = session.append_message(says("hi"))
        compaction = session.append_compaction("s", first_kept=first.id, tokens_before=1)
        assert list(compaction.data)[4:] == ["summary", "firstKeptEntryId", "tokensBefore"]
        assert list(session.append_custom("x").data)[4:] == ["customType"]
        hooked = session.append_compaction("s", first_kept=None, tokens_before=1, from_hook=True)
        assert hooked.data["fromHook"] is True

    def test_compaction_must_keep_something_on_the_path(self, tmp_path: Path) -> None:
        """A first kept entry off the path would forget more than was summarised: it is refused."""
        session = begin(tmp_path)
        (root,) = session.append_message(says("root"))
        (left,) = session.append_message(says("left"))
        session.branch(root.id)
        session.append_message(says("right"))
        with pytest.raises(TranscriptError, match="not on the path"):
            session.append_compaction("s", first_kept=left.id, tokens_before=1)

    def test_compaction_that_keeps_nothing_names_itself(self, tmp_path: Path) -> None:
        """Without a first kept entry the compaction is its own boundary."""
        session = begin(tmp_path)
        session.append_message(says("old"))
        entry = session.append_compaction("s", first_kept=None, tokens_before=1)
        assert entry.data["firstKeptEntryId"] == entry.id
        assert len(session.context().messages) == 1

    def test_branch(self, tmp_path: Path) -> None:
        """After going back, the next entry is a sibling of what came after the target; nothing is removed."""
        session = begin(tmp_path)
        (root,) = session.append_message(says("root"))
        (left,) = session.append_message(says("left"))
        session.branch(root.id)
        (right,) = session.append_message(says("right"))
        assert [entry.id for entry in session.children(root.id)] == [left.id, right.id]
        assert texts(session) == ["root", "right"]
        assert [message.text for message in session.context(left.id).messages] == ["root", "left"]

    def test_branch_outlives_the_process(self, tmp_path: Path) -> None:
        """A session that went back is found there again, also by readers that only follow parents."""
        session = begin(tmp_path)
        (root,) = session.append_message(says("root"))
        session.append_message(says("left"))
        move = session.branch(root.id)
        again = reopen(session.file)
        assert again.leaf == root.id
        assert move.parent == move.data["targetId"] == root.id

    def test_branch_to_the_beginning(self, tmp_path: Path) -> None:
        """None is the place before the first entry: an empty context, and a second root."""
        session = begin(tmp_path)
        session.append_message(says("first try"))
        session.branch(None)
        assert (session.leaf, texts(session), texts(reopen(session.file))) == (None, [], [])
        session.append_message(says("second try"))
        assert texts(session) == ["second try"]
        assert [entry.parent for entry in session.children(None)] == [None, None]

    def test_branch_with_summary(self, tmp_path: Path) -> None:
        """Going back with a summary puts the summary behind the target and names the target as its origin."""
        session = begin(tmp_path)
        (root,) = session.append_message(says("root"))
        session.append_message(says("left"))
        entry = session.branch_with_summary(root.id, "Tried left.", details={"readFiles": []})
        assert (entry.parent, entry.data["fromId"], session.leaf) == (root.id, root.id, entry.id)
        assert texts(session)[1].endswith("<summary>\nTried left.</summary>")
        assert session.branch_with_summary(None, "All over.").data["fromId"] == "root"

    def test_unknown_targets(self, tmp_path: Path) -> None:
        """An id that is not in the session is an error that names it, for branches, labels, paths."""
        session = begin(tmp_path)
        for act in (session.branch, session.path, session.context, lambda target: session.append_label(target, "x")):
            with pytest.raises(TranscriptError, match="no entry 'nowhere'"):
                act("nowhere")
        assert session.get("nowhere") is None

    def test_side_entries_do_not_move_the_conversation(self, tmp_path: Path) -> None:
        """An entry on the side is kept in the file; the leaf and the context stay where they are."""
        session = begin(tmp_path)
        (first,) = session.append_message(says("hi"))
        side = session.append_other("custom_message", {"customType": "x", "content": "aside"}, side=True)
        more = session.append_other("custom_message", {"customType": "x", "content": "more"}, side=True)
        assert (side.parent, more.parent, session.leaf) == (first.id, side.id, first.id)
        session.append_message(says("on"))
        assert texts(session) == texts(reopen(session.file)) == ["hi", "on"]

    @pytest.mark.parametrize("kind", ["session", "leaf"])
    def test_headers_and_moves_are_not_for_hand_writing(self, tmp_path: Path, kind: str) -> None:
        """The two records that steer the file are written by their own methods only."""
        with pytest.raises(FormatError, match="written by create and branch"):
            begin(tmp_path).append_other(kind, {})


class TestLabels:
    """Names that the user gives to entries."""

    def test_set_change_and_clear(self, tmp_path: Path) -> None:
        """The last label of an entry wins; an empty one or None takes it away."""
        session = begin(tmp_path)
        (a,), (b,) = session.append_message(says("a")), session.append_message(says("b"))
        assert a.id is not None
        assert b.id is not None
        session.append_label(a.id, "first")
        session.append_label(a.id, "renamed")
        session.append_label(b.id, "second")
        assert session.labels == reopen(session.file).labels == {a.id: "renamed", b.id: "second"}
        cleared = session.append_label(a.id, None)
        session.append_label(b.id, " ")
        assert session.labels == reopen(session.file).labels == {}
        assert "label" not in cleared.data

    def test_labels_are_not_in_the_context(self, tmp_path: Path) -> None:
        """The model never sees a label."""
        session = begin(tmp_path)
        (a,) = session.append_message(says("a"))
        session.append_label(str(a.id), "bookmark")
        assert texts(session) == ["a"]


class TestFork:
    """Another session that begins with a path of this one."""

    def test_path_and_labels_come_along(self, tmp_path: Path) -> None:
        """A fork holds the path to the chosen entry, then its labels, and names the file it comes from."""
        session = begin(tmp_path)
        (root,) = session.append_message(says("root"))
        session.append_label(str(root.id), "start")
        (left,) = session.append_message(says("left"))
        (later,) = session.append_message(says("later"))
        session.append_label(str(later.id), "not on the path")
        fork = session.fork(tmp_path / "fork.jsonl", leaf=left.id)
        assert fork.header["parentSession"] == str(session.file)
        assert [entry.type for entry in fork.entries] == ["message", "message", "label"]
        assert fork.labels == {root.id: "start"}
        assert texts(fork) == ["root", "left"]
        assert fork.problems == ()
        assert fork.id != session.id

    def test_what_pointed_at_a_label_points_behind_it(self, tmp_path: Path) -> None:
        """A compaction whose first kept entry was a label keeps the same messages in the fork."""
        session = begin(tmp_path)
        (old,) = session.append_message(says("old"))
        label = session.append_label(str(old.id), "mark")
        session.append_message(says("kept"))
        session.append_compaction("sum", first_kept=label.id, tokens_before=9)
        assert texts(session.fork(tmp_path / "fork.jsonl"))[1:] == texts(session)[1:] == ["kept"]

    def test_side_entry_on_the_path_is_part_of_the_fork(self, tmp_path: Path) -> None:
        """A fork at a side entry makes it part of the conversation."""
        session = begin(tmp_path)
        session.append_message(says("hi"))
        side = session.append_other("custom_message", {"customType": "x", "content": "aside"}, side=True)
        assert texts(session.fork(tmp_path / "fork.jsonl", leaf=side.id)) == ["hi", "aside"]

    def test_empty_session(self, tmp_path: Path) -> None:
        """A session without entries forks into another one."""
        assert begin(tmp_path).fork(tmp_path / "fork.jsonl").entries == ()


def test_stream_yields_what_open_reads(tmp_path: Path) -> None:
    """Streaming gives the header and the same entries, with their messages read."""
    session = begin(tmp_path)
    session.append_message(says("日本語"))
    session.append_model_change("anthropic", "m")
    header, *entries = stream_entries(session.file)
    assert getattr(header, "type", None) == "session"
    assert [getattr(entry, "id", None) for entry in entries] == [entry.id for entry in session.entries]
    assert [len(getattr(entry, "messages", ())) for entry in entries] == [1, 0]


@needs_shared
def test_real_version_3_file_is_opened_as_it_is(tmp_path: Path) -> None:
    """A session that pi 0.80 wrote opens without problems, keeps its bytes, and goes on."""
    (source,) = SHARED.glob("transcripts/migrate/pi/*/portable-rich/native/session.jsonl")
    copy = tmp_path / "session.jsonl"
    copy.write_bytes(source.read_bytes())
    session = Session.open(copy, clock=Ticks(), new_id=Ids())
    context = session.context()
    assert (session.problems, context.problems) == ((), ())
    assert session.name == "repair-event-window-boundary"
    assert context.thinking_level == "off"
    assert context.model is not None
    assert context.model.model == "fixture-model"
    assert len(context.messages) == sum(entry.type == "message" for entry in session.entries) == 20
    session.append_message(says("go on"))
    assert copy.read_bytes().startswith(source.read_bytes())
