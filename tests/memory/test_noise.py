"""Noise is kept out of the index; what a channel wrapped around words goes, the words stay."""

import pytest

from holdfast.memory.archive import is_acknowledgement, is_noise, unwrap
from support.cases import each


@each(
    "text",
    [
        "", "   ", "ok", "OK.", "Thanks!", "yes", "fix it", "NO_REPLY", "**HEARTBEAT_OK**", "HEARTBEAT_OK.",
        "Read HEARTBEAT.md if it exists. Follow it strictly.",
        "Check HEARTBEAT.md; if nothing needs attention, reply HEARTBEAT_OK.",
        '[Audio] {"file_key": "file_v3_00abc", "duration": 1200}',
        "Pre-compaction memory flush. Store durable memories now.",
        "[Post-compaction context refresh]\nmore",
        "/clear", "/model gpt-5-mini", "(no content)", "[Request interrupted by user]", "Done with 17.",
        "thank you", "Go on",
        "<command-message>clear</command-message>\n<command-name>/clear</command-name>",
        "<local-command-stdout>(no content)</local-command-stdout>",
        "<ide_opened_file>The user opened the file /src/plan.md in the IDE.</ide_opened_file>",
        "<system-reminder>\nThe TodoWrite tool hasn't been used recently.\n</system-reminder>",
        "🎉🎉🎉", "-----", "……", "好的", "嗯嗯。", "はい", "네", "继续",
    ],
)  # fmt: skip
def test_text_not_worth_searching_is_noise(text: str) -> None:
    """Acknowledgements, heartbeats, markers, raw audio and bare signs say nothing."""
    assert is_noise(unwrap(text))


@pytest.mark.parametrize(
    "text",
    [
        "用红色", "改用蓝色", "東京都", "서울시", "port 8080", "Please edit HEARTBEAT.md and add the backup check",
        "<command-name>/todo</command-name>\n<command-args>drop the cache</command-args>",
        "/etc/hosts has two entries for db-3", "Done with the ledger migration", "/ask why does the importer skip rows",
        "The [Audio] tag is broken", "What does NO_REPLY mean?", "yes, deploy it", "[Audio] call me back",
    ],
)  # fmt: skip
def test_text_with_content_is_kept(text: str) -> None:
    """Short sentences, in Chinese above all, and sentences about the markers are no noise."""
    assert not is_noise(unwrap(text))


@each(
    "text",
    [
        "ok great", "Fine.", "thank you so much!", "see you tomorrow", "perfect, let's continue tomorrow", "Morning.",
        "Ok, thanks a lot for your help!", "sounds good, go ahead", "That's great, thank you very much", "Back again.",
        "Let's stop here for today", "No worries, see you later", "haha ok 👍",
        "Awesome, thanks so much for explaining",
        "好的,谢谢", "太好了，谢谢！", "没问题，那明天继续吧", "OK的", "今天就到这里吧",
        "嗯嗯，明天见", "明白了，多谢", "大家好",
        "了解しました、ありがとうございます", "お疲れ様でした。また明日！", "はい、続けてください",
        "おはようございます",
        "네, 감사합니다", "알겠습니다. 고마워요!", "내일 봐요", "좋아요, 계속해 주세요",
        "Super, vielen Dank für die Hilfe", "Alles klar, bis morgen", "Perfekt, machen wir morgen weiter",
        "D'accord, merci beaucoup !", "Très bien, à demain", "C'est parfait, merci pour tout",
        "Good morning! How are you?", "Hey, how's it going?", "sure, why not?", "Good night",
        "你好吗？", "早上好，最近怎么样？", "おはよう、元気？", "안녕하세요, 잘 지내세요?",
        "Wie geht es dir?", "Ça va ?", "Hola, ¿qué tal?",
        "Vale, muchas gracias por todo", "Hasta mañana", "Sí, continúa por favor",
    ],
)  # fmt: skip
def test_a_message_of_such_phrases_and_filler_is_an_acknowledgement(text: str) -> None:
    """In any order, in each language."""
    assert is_acknowledgement(text)


@each(
    "text",
    [
        "ok, and the port?", "yes, deploy it", "no, tomorrow", "fine, which port?", "thanks, what about tomorrow?",
        "and now?", "let's continue with billing", "thank you note for Anna", "go test", "see you at the dock",
        "yes, both", "how are things with the migration?", "How are you storing the tokens?", "Why not?",
        "How are we doing this sprint?", "How's it going so far?", "Wie geht es weiter?", "Wie geht es dann weiter?",
        "你如何继续？", "你如何知道的？", "大家如何开始的？", "How is your day rate calculated?",
        "订单服务怎么样？", "今天怎么样？", "调子怎么样",
        "好的,端口呢?", "可以吗", "谢谢，端口是多少？", "那今天呢", "拜访谁", "はい、ポートは?", "네, 포트는?", "내일",
        "ja, und der Port?", "oui, et le port ?", "sí, ¿y el puerto?", "ok " * 60,
    ],
)  # fmt: skip
def test_a_message_with_anything_else_is_no_acknowledgement(text: str) -> None:
    """A question after thanks is a question, and an answer is worth searching for."""
    assert not is_acknowledgement(text)


@pytest.mark.parametrize("text", ["네" * 99 + "x", "谢" * 99 + "x", "very good " * 9 + "x", "好了" * 49 + "x"])
def test_phrases_that_can_be_split_in_many_ways_are_read_in_time(text: str) -> None:
    """No part of a text is read more than once from one place."""
    assert not is_acknowledgement(text)


@each(
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


STAMP = "Sun 2026-02-15 18:49 GMT+8"
HEADERS = [
    f"[WeChat 张三 {STAMP}]",
    f"[微信 张三 {STAMP}]",
    f"[Feishu ou_7d8a6e6df7621556ce0d21922b676706 +2m {STAMP}]",
    f"[飞书 oc_5ad11d72b830411d72b836c20 {STAMP}]",
    f"[Lark Li Lei {STAMP}]",
    f"[DingTalk 项目群 id:cidAbC {STAMP}]",
    f"[QQ 12345 {STAMP}]",
    f"[WeCom wxid_abc123 {STAMP}]",
    "[Telegram Anna Berg (@anna) id:123456789 +5m 2026-02-15T18:49Z]",
    "[Telegram Harbour Group id:-100123 topic:7 2026-02-15 18:49 UTC]",
    "[WhatsApp +491511234567 +3m 2026-02-15 18:49]",
    "[WhatsApp 120363012345@g.us +12s]",
    "[Discord Guild #general channel id:998877 Sun 2026-02-15 18:49 UTC]",
    f"[Slack #deploys +1h {STAMP}]",
    f"[Signal Anna id:+491511234567 {STAMP}]",
    "[iMessage +491511234567 2026-02-15 18:49 CET]",
    f"[BlueBubbles chat_guid:iMessage;-;x {STAMP}]",
    f"[Microsoft Teams Bob {STAMP}]",
    f"[Teams Bob {STAMP}]",
    f"[Google Chat spaces/AAA {STAMP}]",
    f"[LINE 田中 {STAMP}]",
    f"[KakaoTalk 김철수 {STAMP}]",
    f"[Matrix @anna:example.org {STAMP}]",
    f"[Mattermost town-square {STAMP}]",
    f"[Zalo Anh {STAMP}]",
    f"[Nextcloud Talk room {STAMP}]",
    f"[IRC #holdfast {STAMP}]",
    f"[WebChat {STAMP}]",
    f"[A plugin of somebody Anna {STAMP}]",
]
"""The header that a host puts before a message, for each channel."""


@each("header", HEADERS)
def test_the_header_of_any_channel_goes(header: str) -> None:
    """With channel, sender, time since the last message and time, in any order that hosts have used."""
    assert unwrap(f"{header} 端口是 8443, use it") == "端口是 8443, use it"
    assert unwrap(f"{header}\n端口是 8443") == "端口是 8443"
    assert unwrap(f"{header} first\n{header} second") == "first\nsecond"


@each(
    ("text", "words"),
    [
        ("Feishu[default] DM from ou_123: 端口是多少", "端口是多少"),
        ("Feishu[default] DM from ou_123：端口是多少", "端口是多少"),
        ("System: [2026-02-15 18:49:21 GMT+8] Feishu[default] DM from ou_123: 端口是多少", "端口是多少"),
        ("Lark[main] message in group oc_5ad11d: who is on call?", "who is on call?"),
        ("System: [2026-02-15 18:49:21 UTC] Slack message in #ops from Anna: who is on call?", "who is on call?"),
        ("System: [2026-02-15 18:49:21 UTC] Mattermost DM from Bob: who is on call?", "who is on call?"),
        (f"[Feishu ou_123 {STAMP}] ou_123: 端口是多少", "端口是多少"),
        ("<media:audio>", ""),
        ("<media:audio> call me back", "call me back"),
        ("look at this <media:image> (2 images)", "look at this"),
        (f"[WeChat 张三 {STAMP}] <media:audio>", ""),
        ("[Audio]\nUser text:\n<media:audio>\nTranscript:\nwe ship on Friday", "we ship on Friday"),
        ("who is on call?\n[message_id: om_x100b58]", "who is on call?"),
        ("who is on call?\n[slack message id: 1700.1 channel: C123]", "who is on call?"),
        ("who is on call?\n[from: Anna (+491511234567)]", "who is on call?"),
        ("[Chat messages since your last reply - for context]\nhello Bob", "hello Bob"),
        ("hello Bob\n\n[Current message - respond to this]\nand now?", "hello Bob\n\nand now?"),
        ("yes, that one\n\n[Replying to Anna id:55]\nport 8443?\n[/Replying]", "yes, that one\n\nport 8443?"),
        ("[media attached 1/2: /tmp/a.png (image/png)]\nlook at this", "look at this"),
    ],
)  # fmt: skip
def test_text_that_channels_add_is_removed(text: str, words: str) -> None:
    """Labels of events, placeholders of attachments, ids and marks go; every word of a person stays."""
    assert unwrap(text) == words


@each(
    "text",
    [
        "[Slack integration] fails with 400",
        "[WeChat 支付] 失败了",
        "[Signal] is down again",
        "[Teams meeting] moved to 18:49",
        "[LINE 12] has a typo",
        "Slack DM from Anna: we ship on Friday",
        "Feishu message from ou: no",
        "The <media:audio> placeholder is broken",
        "I wrote to Feishu[default], no answer",
        "Transcript:\nwe ship on Friday",
        "[worker-3 2026-02-10 14:31:22 UTC] db timeout",
        "see [Telegram docs](https://core.telegram.org) for id:5",
    ],
)
def test_words_of_a_person_about_channels_are_kept(text: str) -> None:
    """A header has a time or an id, a label an account or the system's mark, and a placeholder stands at an end."""
    assert unwrap(text) == text


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


@each(
    "text",
    [
        *("[" * 50_000, "System:" * 20_000, "```json\n" * 20_000, "(untrusted metadata):\n" * 9_000),
        *("[Slack " * 20_000, "[WeChat +5" * 10_000, "Feishu[" * 20_000, "<media:" * 20_000, "[Slack a\n" * 9_000),
        *("[a 2026-02-15 18:4" * 9_000, "System: [2026-02-15 18:49] Slack " * 5_000, "[Audio]\n" * 20_000),
    ],
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
def test_text_that_hosts_add_is_removed(text: str) -> None:
    """It is in the archive, and not searched."""
    assert unwrap(text) == "列出端口"
