"""The archive: what becomes a row, what can be found of it, and what is masked."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.archive_rows import make_rows
from holdfast import providers, transcripts
from holdfast.memory import archive
from holdfast.memory.block import Fact, render
from holdfast.messages import Image, Message, Opaque, RedactedThinking, Text, Thinking, ToolCall, ToolResult
from holdfast.store.base import Scope, Select
from holdfast.store.sqlite import SqliteStore
from support.conversations import MARKS
from support.external_data import DATA, needs_data
from support.session_files import says
from support.stores import SCOPE

TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
BLOCK = render([Fact(type="issue", text="recalled words")], [], MARKS)


class TestRows:
    def test_every_message_becomes_a_row(self) -> None:
        """User, assistant, tool and system messages are archived whole, in order, each under its scope."""
        messages = [
            says("You are an agent.", "system"),
            says("Where is the webhook?"),
            Message(role="assistant", parts=(ToolCall(id="c", name="grep", arguments={"pattern": "webhook"}),)),
            Message(role="tool", parts=(ToolResult(call_id="c", content=(Text(text="src/payment/webhook.ts:12"),)),)),
            says("In src/payment.", "assistant"),
        ]
        rows = make_rows(messages, scope=SCOPE)
        assert [row.message for row in rows] == messages
        assert {row.scope for row in rows} == {SCOPE}

    def test_the_same_words_are_distinguished(self) -> None:
        """Twins are distinguished by id, else by time, else by their place, and the same way every time."""
        twins = [says("go on"), says("go on"), Message(role="user", parts=(Text(text="go on"),), id="e1", timestamp=3)]
        twins += [Message(role="user", parts=(Text(text="go on"),), timestamp=3)] * 2
        nonces = [row.nonce for row in make_rows(twins, scope=SCOPE)]
        assert len(set(nonces)) == 5
        assert [nonce.partition(":")[0] for nonce in nonces] == ["after", "after", "id", "at", "after"]
        assert [row.nonce for row in make_rows(twins, scope=SCOPE)] == nonces

    def test_recalled_text_is_left_out(self) -> None:
        """A block is neither archived nor found, whether it fills a message, stands in one, or in a result."""
        messages = [
            says(BLOCK),
            says(f"{BLOCK}\n\nmy question"),
            Message(role="tool", parts=(ToolResult(call_id="c", content=(Text(text=BLOCK),)),)),
            Message(role="assistant", parts=(ToolCall(id="c", name="write", arguments={"text": BLOCK}),)),
        ]
        rows = make_rows(messages, scope=SCOPE, marks=MARKS)
        assert [row.message.text for row in rows] == ["my question", "", ""]
        assert not any("recalled words" in passage.text for row in rows for passage in row.passages)


class TestMask:
    def test_secrets_are_masked_wherever_they_stand(self) -> None:
        """Text, thoughts, arguments, results and a provider's own form hold no secret any more."""
        wire: dict[str, Any] = {
            "role": "assistant",
            "content": [
                {"type": "text", "text": f"the token is {TOKEN}", "x": TOKEN},
                {"type": "tool_use", "id": "t", "name": "login", "input": {"password": "hunter2-S3cret-99x"}},
            ],
        }
        (message,) = providers.read([wire], format="anthropic")
        kept = archive.mask(message)
        for said in (repr(kept), json.dumps(providers.render([kept], "anthropic"))):
            assert TOKEN not in said
            assert "hunter2" not in said
        assert kept.wire("anthropic") is not None

    def test_a_message_without_secrets_is_itself(self) -> None:
        """Nothing is copied where nothing is masked."""
        message = says("nothing to hide")
        assert archive.mask(message) is message

    def test_no_secret_reaches_the_disk(self, tmp_path: Path) -> None:
        """What is archived holds no secret in any file; with masking off it is kept as it came."""
        messages = [says(f"export GITHUB_TOKEN={TOKEN}"), says(f"and {TOKEN} again", "assistant")]
        with SqliteStore(tmp_path / "store.db") as store:
            store.add_messages(make_rows(messages, scope=SCOPE))
            assert not any(TOKEN.encode() in path.read_bytes() for path in tmp_path.iterdir())
            store.add_messages(make_rows(messages, scope=SCOPE, redact=False))
            assert any(TOKEN.encode() in path.read_bytes() for path in tmp_path.iterdir())

    def test_calls_and_results_stay_tied(self) -> None:
        """Ids that look like digests are no secrets: a result is still found by its call."""
        for name in (
            "toolu_01A09q90qw90lq917835lq9",
            "call_9f8a7b6c5d4e3f2a1b0c9d8e",
            "9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c",
        ):
            call = archive.mask(Message(role="assistant", parts=(ToolCall(id=name, name="n", arguments={}),)))
            result = archive.mask(Message(role="tool", parts=(ToolResult(call_id=name),)))
            assert call.calls[0].id == result.results[0].call_id == name


class TestSearchable:
    def test_words_calls_and_results_can_be_found(self) -> None:
        """What was said, what a tool was asked and what it answered can be found; thoughts and pictures cannot."""
        message = Message(
            role="assistant",
            parts=(
                Thinking(text="secret thoughts"),
                RedactedThinking(data="xyz"),
                Text(text="I will look."),
                ToolCall(id="c", name="bash", arguments={"command": "ls -la", "env": {"A": [1]}}),
                ToolCall(id="d", name="raw", arguments="not json"),
                Image(url="u"),
                Opaque(kind="k", data=1),
            ),
        )
        assert archive.extract_text(message) == "I will look.\nbash: command: ls -la\nenv: A: [1]\nraw: not json"

    def test_noise_and_system_prompts_are_not_found(self) -> None:
        """Acknowledgements and system prompts are archived, but nothing of them is indexed."""
        rows = make_rows([says("ok"), says("You are an agent.", "system"), says("NO_REPLY", "assistant")], scope=SCOPE)
        assert len(rows) == 3
        assert not any(row.passages for row in rows)

    def test_the_envelope_is_not_found_and_the_words_are(self) -> None:
        """The index holds a message without what its channel put around it; the archive holds it whole."""
        (row,) = make_rows([says("[Sun 2026-02-15 18:49 GMT+8] deploy the gateway")], scope=SCOPE)
        assert row.message.text.startswith("[Sun")
        assert row.passages[0].text == "deploy the gateway"

    def test_long_messages_are_many_passages(self) -> None:
        """Passages cover a long text from end to end, with windows and terms for each."""
        text = "\n".join(f"Line {n} of the output mentions host{n}." for n in range(900))
        row = make_rows(
            [Message(role="tool", parts=(ToolResult(call_id="c", content=(Text(text=text),)),))], scope=SCOPE
        )[0]
        assert len(row.passages) > 5
        assert "".join(passage.text for passage in row.passages) == text
        for passage in row.passages:
            assert text.startswith(passage.text, passage.start)
            assert len(passage.windows) == len(passage.terms)
            assert [start for start, _ in passage.windows][1:] == [stop for _, stop in passage.windows][:-1]

    def test_a_speaker_is_found_by_name(self) -> None:
        """Who spoke counts as a word of what was said."""
        (row,) = make_rows([Message(role="user", parts=(Text(text="I moved"),), name="Caroline")], scope=SCOPE)
        assert "carolin" in row.passages[0].terms[0]


@pytest.mark.nightly
@needs_data("transcripts/pi")
def test_a_real_session_is_archived_whole(tmp_path: Path) -> None:
    """Every message of a recorded session is in the archive, again and again the same."""
    session = DATA / "transcripts" / "pi" / "before-compaction.jsonl"
    messages = [message for entry in transcripts.read(session).entries for message in entry.messages]
    with SqliteStore(tmp_path / "store.db") as store:
        rows = make_rows(messages, scope=SCOPE, redact=False)
        first = store.add_messages(rows)
        assert store.add_messages(make_rows(messages, scope=SCOPE, redact=False)) == first
        kept = store.read_messages(Select(scope=Scope(session="s")))
        known = {row.message.digest for row in kept}
        assert {row.message.digest for row in rows} == known
