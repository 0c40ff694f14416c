"""Why an answer is no summary: it is empty, a skeleton, a refusal, an error, or data instead of words."""

from __future__ import annotations

import re
from typing import Final

from holdfast.models.base import Reply

__all__ = ["fault"]

_SKELETON: Final = re.compile(
    r"^(?:#{1,6} .*|[\s*>\-\[\]x\d.):_]*(?:\(?(?:none|n/a|empty|tbd|无|なし|없음)\)?\.?)?\s*)$", re.IGNORECASE
)
_REFUSAL: Final = re.compile(
    r"(?:(?:i'?m |i am )?(?:very |so )?sorry|i (?:can(?:no|')t|am (?:not able|unable)|won'?t|must decline)|"
    r"unfortunately,? i|as an ai|抱歉|对不起|很遗憾|我(?:无法|不能)|作为(?:一个)?(?:AI|人工智能)|"
    r"申し訳|恐れ入り|お手伝いでき|죄송|할 수 없습니다)",
    re.IGNORECASE,
)
_ERROR: Final = re.compile(
    r"(?:\[?(?:api |internal |server |fatal )?error\b|traceback|exception\b|http[ /]?\d|[45]\d\d\b|summary unavailable|"
    r"summari[sz]ation failed|(?:request|rate) limit|too many requests|overloaded|service unavailable|bad gateway|"
    r"(?:the )?(?:prompt|input|context)[^.\n]{0,40}(?:too long|exceed)|timed? ?out|no_reply\b|"
    r"错误|请求失败|エラー|오류)",
    re.IGNORECASE,
)
_DATA: Final = re.compile(r"\A(?:```(?:json)?\s*)?[{\[]\s*(?:[\"'{\[\]}]|\Z)")
_LINE: Final = 120
_FEWEST_WORDS: Final = 12
_SHORT: Final = 600


def fault(reply: Reply) -> str | None:
    """What is wrong with an answer that should be a summary; None where it may be one."""
    text = reply.text.strip()
    if reply.stop == "refusal":
        return "the model refused"
    if len(_filling(text)) < _FEWEST_WORDS:
        return "the answer is empty" if not text else "the answer has headings and nothing under them"
    if _DATA.match(text):
        return "the answer is data, not a summary"
    if len(text) > _SHORT or text.startswith("## "):
        return None
    if _REFUSAL.match(text):
        return "the model refused"
    return "the answer is an error message" if _ERROR.match(text.lstrip("*_`> ⚠️❌")) else None


def _filling(text: str) -> str:
    """What a text says between headings, empty items and "none"."""
    return "".join(line for line in text.splitlines() if len(line) > _LINE or not _SKELETON.match(line))
