"""Sentences: what somebody says in their own words, without the code, quotations and tables between."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["clauses", "opening", "sentences"]

_FENCED: Final = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_FOREIGN: Final = re.compile(
    r"\s*(?:>|\||\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\[?(?:INFO|DEBUG|WARN|ERROR|TRACE)\b|at \S+\(|Traceback )"
)
_END: Final = re.compile(
    r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\ba\.m\.)(?<!\bp\.m\.)\s+(?=[\"'“(\[]?[A-Z0-9\u0080-\uffff])"
    r"|(?<=[。！？；;])\s*"
)
_BULLET: Final = re.compile(r"\A\s*(?:[-*+•]|\d{1,3}[.)])\s+(?!\[[ xX]\])|\A\s*#{1,6}\s+")
_MARKS: Final = re.compile(r"(?<![\w/*])\*\*?(?=\S)|(?<=\S)\*\*?(?![\w/*])|(?<!\w)__|__(?!\w)|`")
_CODE: Final = re.compile(r"=>|[({]\{|\}[);]|\\[nt]|</?[a-z]+>|;\s*$|\w\(\)|[{}]\s*$")
_LONGEST: Final = 400
_SHORTEST: Final = 4

_QUOTED: Final = re.compile(r"[\"“「『][^\"”」』\n]{12,}[\"”」』]")

_OPENING: Final = re.compile(
    r"(?:(?:ok(?:ay)?|so|well|right|alright|actually|btw|by the way|also|and|but|yes|yeah|hi|hello|thanks?"
    r"|good news|quick"
    r" update|heads up|fyi|just so you know|correction|update|note|please note|reminder|info|decision|decided"
    r"|status update"
    r"|i changed my mind|change of plans?|from now on|as of (?:today|now)|starting (?:today|now)"
    r"|effective immediately|today(?!['’])"
    r"|(?:please )?remember(?: that)?|(?:please )?keep in mind(?: that)?|(?:please )?note that|for the record"
    r"|don't forget(?: that)?|be aware(?: that)?|important)\b\s*[:,.!-]*\s*"
    r"|(?:请?(?:记住|记得|注意|记一下)|更正|更新|备注|说明|提醒|对了|另外说一下|从现在起|从今天起|今后"
    r"|通知)[，,：:。\s]*)+",
    re.IGNORECASE,
)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a message, in order, marks of emphasis taken off; code, quotations and logs left out."""
    for line in _FENCED.sub("\n", text).splitlines():
        if _FOREIGN.match(line) or _CODE.search(line):
            continue
        for sentence in _END.split(_BULLET.sub("", line, count=1)):
            plain = " ".join(_MARKS.sub("", sentence).split())
            if _SHORTEST <= len(plain) <= _LONGEST and not _QUOTED.search(plain):
                yield plain


def opening(sentence: str) -> str:
    """What stands before what is said: `Correction: `, `Remember that `, `更正：`; often nothing."""
    found = _OPENING.match(sentence)
    return found.group() if found else ""


def clauses(sentence: str) -> list[str]:
    """A sentence as a whole, and where it has several clauses, the first of them and what follows a colon."""
    parts = re.split(
        r"(?:,|;| -| –|—)\s+(?=(?:and|but|so|which|because|since|it|they|we|i|that|please)\b)|[，；]|\s[–—]\s", sentence
    )
    found = [sentence, *parts] if len(parts) > 1 else [sentence]
    _, colon, after = sentence.partition(": ")
    found += [after] if colon and " " in after else []
    return [clause[len(opening(clause)) :] for clause in found]
