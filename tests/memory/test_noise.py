"""Noise is kept out of the index; what a channel wrapped around words goes, the words stay."""

import pytest

from holdfast.memory.archive import is_noise, unwrap


@pytest.mark.parametrize(
    "text",
    [
        "", "   ", "ok", "OK.", "Thanks!", "yes", "fix it", "NO_REPLY", "**HEARTBEAT_OK**", "HEARTBEAT_OK.",
        "Read HEARTBEAT.md if it exists. Follow it strictly.",
        "Check HEARTBEAT.md; if nothing needs attention, reply HEARTBEAT_OK.",
        '[Audio] {"file_key": "file_v3_00abc", "duration": 1200}',
        "Pre-compaction memory flush. Store durable memories now.",
        "[Post-compaction context refresh]\nmore",
        "🎉🎉🎉", "-----", "……", "好的", "嗯嗯。", "はい", "네", "继续",
    ],
)  # fmt: skip
def test_what_nobody_looks_for_is_noise(text: str) -> None:
    """Acknowledgements, heartbeats, markers, raw audio and bare signs say nothing."""
    assert is_noise(unwrap(text))


@pytest.mark.parametrize(
    "text",
    [
        "用红色", "改用蓝色", "東京都", "서울시", "port 8080", "Please edit HEARTBEAT.md and add the backup check",
        "The [Audio] tag is broken", "What does NO_REPLY mean?", "yes, deploy it", "[Audio] call me back",
    ],
)  # fmt: skip
def test_what_says_something_is_kept(text: str) -> None:
    """Short sentences, in Chinese above all, and sentences about the markers are no noise."""
    assert not is_noise(unwrap(text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[Sun 2026-02-15 18:49 GMT+8] hello there", "hello there"),
        ("[2026-02-15 18:49 GMT+8] hello there", "hello there"),
        ("System: [2026-02-15 18:49:21 GMT+8] Feishu message\nwhat I said", "Feishu message\nwhat I said"),
        ("first\n[Mon 2026-02-16 09:00 UTC] second", "first\nsecond"),
        (
            'Conversation info (untrusted metadata):\n```json\n{"chat": "x"}\n```\nthe question',
            "the question",
        ),
        ('Sender (untrusted metadata):\n{\n  "name": "x"\n}\nthe question', "the question"),
        ("[media attached: /tmp/a.png (image/png)]\nlook at this", "look at this"),
        ("Current time: Sunday\nwhat is due?", "what is due?"),
        ("[Queued messages while busy]\n\n---\nQueued #1\none wish\n---\nQueued #2\ntwo", "one wish\ntwo"),
        ("[Queued messages]", ""),
    ],
)  # fmt: skip
def test_what_the_channel_added_goes(text: str, words: str) -> None:
    """Envelopes, metadata, attachments and queue marks are taken off; every word of the person stays."""
    assert unwrap(text) == words


@pytest.mark.parametrize(
    "text",
    [
        "the log says:\n[2026-02-10 14:31:22] ERROR db timeout\n[2026-02-10 14:31:23] retry",
        "[1] a footnote",
        "arr[2026-02-10 10:00] = 1",
        "Channel 4 is on",
    ],
)
def test_what_only_looks_like_an_envelope_stays(text: str) -> None:
    """A pasted log keeps its dates, and brackets in general are left alone."""
    assert unwrap(text) == text


@pytest.mark.parametrize(
    "text", ["[" * 50_000, "System:" * 20_000, "```json\n" * 20_000, "(untrusted metadata):\n" * 9_000]
)
def test_hostile_text_is_unwrapped_in_time(text: str) -> None:
    """Text made to be slow is unwrapped like any other."""
    assert isinstance(unwrap(text), str)


@pytest.mark.parametrize(
    "text",
    [
        '<user_input mode="act">列出端口</user_input>',
        "<environment_context>\n  <cwd>/srv</cwd>\n</environment_context>列出端口",
        "列出端口\n<hook_context>\n</hook_context>",
        "列出端口\n<qwen:user-prompt-submit-context>\n</qwen:user-prompt-submit-context>",
        "<info-msg>\nIt is currently 2026-11-16 01:51:00\n</info-msg>\n列出端口",
        "列出端口\n\nTo suggest changes to a file you MUST return the entire content of the updated file.\nMore.",
        "列出端口\n\n# *SEARCH/REPLACE block* Rules:\n\nMore.",
    ],
)
def test_what_hosts_put_beside_the_words_of_the_user(text: str) -> None:
    """It is in the archive, and not searched."""
    assert unwrap(text) == "列出端口"
