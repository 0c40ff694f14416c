"""A session: what is appended, how it hangs together, where it continues."""

import json
import re
from pathlib import Path
from types import MappingProxyType

import pytest

from holdfast.errors import FormatError, TranscriptError
from holdfast.messages import Image, Message, RedactedThinking, Text, Thinking, ToolCall, ToolResult, Usage
from holdfast.providers.anthropic import ANTHROPIC
from holdfast.providers.format import Format
from holdfast.providers.openai_chat import OPENAI_CHAT
from holdfast.providers.openai_responses import OPENAI_RESPONSES
from holdfast.providers.pi import PI
from holdfast.transcripts.session import Session
from support.external_data import DATA, needs_data
from support.session_files import (
    START,
    Ids,
    Ticks,
    answers,
    begin,
    branch,
    calls,
    rebuild,
    records,
    reopen,
    says,
    texts,
)

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
            session.append("custom", {"data": value})
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
        (entry,) = begin(tmp_path).append("custom", {"data": MappingProxyType({"a": 1})})
        assert entry.data["data"] == {"a": 1}

    def test_ids_that_are_taken_are_not_used_again(self, tmp_path: Path) -> None:
        """An id that exists is drawn again, a hundred times, then a whole UUID is taken."""
        drawn = iter(["s", "aaaaaaaa-1", "aaaaaaaa-2", "bbbbbbbb-3", *["aaaaaaaa-4"] * 100, "cccccccc-dddd"])
        session = Session.create(tmp_path / "s.jsonl", clock=Ticks(), new_id=lambda: next(drawn))
        entries = session.append("session_info", {"name": "a"}, {"name": "b"}, {"name": "c"})
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
        (entry,) = session.append("custom", {"data": data})
        data["list"].append(2)
        assert entry.data["data"] == {"list": [1]}


class TestTree:
    """How entries hang together."""

    def test_every_kind_hangs_on_the_one_before(self, tmp_path: Path) -> None:
        """Each append is a child of the leaf and becomes the leaf, whatever its type."""
        session = begin(tmp_path)
        (first,) = session.append_message(says("hi"))
        assert first.id is not None
        session.append("custom", {"customType": "openclaw.cache-ttl", "data": {"provider": "anthropic"}})
        session.append("custom_message", {"customType": "my-ext", "content": "Injected", "display": False})
        session.append_compaction("## Goal", first_kept=first.id, tokens_before=182345, details={"readFiles": []})
        session.append("model_change", {"provider": "anthropic", "modelId": "claude-sonnet-4-5"})
        session.append("telemetry", {"n": 1})
        written = records(session.file)[1:]
        assert [record["parentId"] for record in written] == [None, *(record["id"] for record in written[:-1])]
        assert [entry.type for entry in reopen(session.file).entries] == [record["type"] for record in written]
        assert written[3]["firstKeptEntryId"] == first.id

    def test_what_is_not_given_is_not_written(self, tmp_path: Path) -> None:
        """Optional fields without a value are left out, as the other writers do."""
        session = begin(tmp_path)
        (first,) = session.append_message(says("hi"))
        compaction = session.append_compaction("s", first_kept=first.id, tokens_before=1)
        assert list(compaction.data)[4:] == ["summary", "firstKeptEntryId", "tokensBefore"]
        hooked = session.append_compaction("s", first_kept=None, tokens_before=1, from_hook=True)
        assert hooked.data["fromHook"] is True

    def test_compaction_must_keep_something_on_the_path(self, tmp_path: Path) -> None:
        """A first kept entry off the path would forget more than was summarised: it is refused."""
        session = begin(tmp_path)
        (root,) = session.append_message(says("root"))
        (left,) = session.append_message(says("left"))
        branch(session, root.id)
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
        branch(session, root.id)
        (right,) = session.append_message(says("right"))
        assert [left.parent, right.parent] == [root.id, root.id]
        assert texts(session) == ["root", "right"]
        assert [message.text for message in rebuild(session.entries, left.id).messages] == ["root", "left"]

    def test_branch_outlives_the_process(self, tmp_path: Path) -> None:
        """A session that went back is found there again, also by readers that only follow parents."""
        session = begin(tmp_path)
        (root,) = session.append_message(says("root"))
        session.append_message(says("left"))
        move = branch(session, root.id)
        again = reopen(session.file)
        assert again.leaf == root.id
        assert move.parent == move.data["targetId"] == root.id

    def test_branch_to_the_beginning(self, tmp_path: Path) -> None:
        """None is the place before the first entry: an empty context, and a second root."""
        session = begin(tmp_path)
        session.append_message(says("first try"))
        branch(session, None)
        assert (session.leaf, texts(session), texts(reopen(session.file))) == (None, [], [])
        session.append_message(says("second try"))
        assert texts(session) == ["second try"]
        assert [entry.parent for entry in session.path()] == [None]

    def test_side_entries_do_not_move_the_conversation(self, tmp_path: Path) -> None:
        """An entry on the side is kept in the file; the leaf and the context stay where they are."""
        session = begin(tmp_path)
        (first,) = session.append_message(says("hi"))
        aside = {"customType": "x", "content": "aside", "appendMode": "side"}
        side, more = session.append("custom_message", aside, aside)
        assert (side.parent, more.parent, session.leaf) == (first.id, side.id, first.id)
        session.append_message(says("on"))
        assert texts(session) == texts(reopen(session.file)) == ["hi", "on"]


@needs_data("transcripts/migrate")
def test_real_version_3_file_is_opened_as_it_is(tmp_path: Path) -> None:
    """A session that pi 0.80 wrote opens without problems, keeps its bytes, and continues."""
    (source,) = DATA.glob("transcripts/migrate/pi/*/portable-rich/native/session.jsonl")
    copy = tmp_path / "session.jsonl"
    copy.write_bytes(source.read_bytes())
    session = Session.open(copy, clock=Ticks(), new_id=Ids())
    context = session.context()
    assert (session.problems, context.problems) == ((), ())
    assert len(context.messages) == sum(entry.type == "message" for entry in session.entries) == 20
    session.append_message(says("go on"))
    assert copy.read_bytes().startswith(source.read_bytes())
