"""What is not worth finding again, and what channels wrap around a person's words.

Noise is archived like everything else; it is only kept out of the index, so that it is never recalled.
"""

from __future__ import annotations

import re
from typing import Final

from holdfast.text import is_unsegmented

__all__ = ["is_noise", "unwrap"]

# [Sun 2026-02-15 18:49 GMT+8] hello   -> the envelope goes, the words stay. Further down it has to name the weekday
# or the system: a line of a log that somebody pasted begins with a date as well, and keeps it.
_STAMP: Final = r"\d{4}-\d{2}-\d{2}[ T][^\]\n]{0,80}\][ \t]*"
_WEEKDAY: Final = r"(?:Sun|Mon|Tue|Wed|Thu|Fri|Sat)\w*\s+"
_ENVELOPE: Final = re.compile(
    rf"\A\s*\[{_STAMP}|^(?:System:[ \t]*\[(?:{_WEEKDAY})?|\[{_WEEKDAY}){_STAMP}", re.MULTILINE
)
_QUEUED: Final = re.compile(
    r"^\[Queued messages[^\]\n]{0,80}\][ \t]*\n?|^---\nQueued #\d{1,4}[^\n]{0,80}\n?", re.MULTILINE
)
_METADATA: Final = re.compile(
    r"^(?:Conversation|Sender|Channel|Replied message)\b[^\n]{0,80}\(untrusted metadata[^)\n]{0,40}\):[ \t]*\n"
    r"(?:```(?:json)?\n(?:(?!```)[^\n]*\n){0,200}```[ \t]*\n?|(?:[ \t]*[{}\[\]\"][^\n]*\n?){0,200})",
    re.MULTILINE,
)
_ATTACHMENT: Final = re.compile(r"^\[media attached:[^\]\n]{0,500}\][ \t]*\n?", re.MULTILINE)
_CLOCK: Final = re.compile(r"^Current time:[^\n]{0,120}\n?", re.MULTILINE)

_WRAPPING: Final = {
    "Queued": _QUEUED,
    "(untrusted metadata": _METADATA,
    "[": _ENVELOPE,
    "[media attached:": _ATTACHMENT,
    "Current time:": _CLOCK,
}
"""Each pattern, in the order they are tried, by what stands in all that it finds: most texts have none of it."""

_MARKERS: Final = ("Pre-compaction memory flush", "[Post-compaction context refresh]")
_TOKENS: Final = frozenset({"NO_REPLY", "HEARTBEAT_OK"})
_ACKS: Final = frozenset(
    """
    ok okay k yes y no n yep nope sure thanks thx ty cool nice great good perfect done continue go proceed next
    right hello hi hey bye lol test ping pong
    好 好的 嗯 嗯嗯 是 是的 对 行 可以 继续 谢谢 收到 はい いいえ 了解 うん です 네 응 예 감사합니다 계속
    """.split()  # noqa: SIM905 - words read best as words
)
_EMPTY: Final = re.compile(r"[\W_]*")
_SHORTEST: Final = 6
_CHARACTER: Final = 3


def unwrap(text: str) -> str:
    """A message without what its channel put around it: envelopes, queue marks, metadata, attachment notes."""
    for mark, pattern in _WRAPPING.items():
        if mark in text:
            text = pattern.sub("", text)
    return text.strip()


def is_noise(text: str) -> bool:
    """Tell whether a message (unwrapped) says nothing that anyone will look for."""
    words = text.strip()
    bare = words.strip(" \t\r\n.!?…,。！？，、~*`'\"").lower()
    if not bare or bare in _ACKS or _weight(bare) <= _SHORTEST:
        return True
    return _is_marker(words) or _EMPTY.fullmatch(words) is not None


def _is_marker(words: str) -> bool:
    """Tell whether a program wrote this for itself: a heartbeat, a flush, a reference to a sound."""
    if words.strip("*`_ .") in _TOKENS or words.startswith(_MARKERS):
        return True
    if words.startswith("[Audio]") and "file_key" in words:
        return True
    return "HEARTBEAT.md" in words and ("HEARTBEAT_OK" in words or words.startswith("Read HEARTBEAT.md"))


def _weight(text: str) -> int:
    """How much is said: a Chinese character says about as much as three letters."""
    return sum(_CHARACTER if is_unsegmented(character) else 1 for character in text[: _SHORTEST + 1])
