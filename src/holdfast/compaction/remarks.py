"""Sentences that must last, found by rule: what was decided, what is asked for always, what comes next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from holdfast.compaction.dialogue import one_line

__all__ = ["decisions", "next_steps", "rules", "sentences"]

_SENTENCE_END: Final = re.compile(
    r"(?<=[.!?…])[\"')\]”’]*\s+(?![a-z])|(?<=[。！？])[”’」』]*|\n(?=\s*\n)|\n(?!\s*[a-z(])"
)
"""A small letter goes on with the sentence: after an abbreviation, or on the next line of wrapped text."""
_FENCED: Final = re.compile(r"^ {0,3}```.{0,40000}?(?:^ {0,3}```|\Z)", re.DOTALL | re.MULTILINE)
_MARKER: Final = re.compile(r"^[\s>*#•·-]*(?:\d{1,3}[.)、]\s*)?(?:\[[ xX]\]\s*)?")
_SHORTEST: Final = 6
_LONGEST: Final = 300

_DECISION: Final = re.compile(
    r"\b(?:decided|decision (?:is|was)|"
    r"we(?:'ll| will| should|'re going to| are going to)? (?:use|keep|stick|switch|drop|skip)|"
    r"(?:go|going|went) with|settled on|agreed|let'?s (?:use|keep|go|stick|switch|drop|do|make|call)|"
    r"chose|opted|instead of|rather than|switch(?:ed|ing)? (?:to|from)|no longer|"
    r"root cause (?:is|was)|turns out|the (?:fix|reason|problem|issue) (?:is|was)|because)\b|"
    r"决定|采用|选定|选择了|改用|就用|不再|改为|改成|确定用|约定|原因是|根本原因|结论|方案是|"
    r"に決め|に決定|ことにし|採用|に変更|方針|原因は|代わりに|"
    r"결정|하기로|채택|대신|으로 변경|로 바꾸|원인은",
    re.IGNORECASE,
)
_RULE: Final = re.compile(
    r"\b(?:(?:do not|don'?t)(?! (?:think|know|understand|see|get|have|care))|never|always|must|make sure|ensure|prefer|"
    r"remember|should(?:n'?t)?|avoid|from now on|no need|not .{1,40} but|instead|actually|i meant|wrong|please use)\b|"
    r"不要|别(?!人|的|处)|必须|务必|一定|只能|始终|总是|请用|记住|以后|不能|不许|禁止|不对|错了|其实|我的意思|应该是|"
    r"しないで|必ず|常に|ないように|覚えて|禁止|違う|違います|間違|ではなく|じゃなくて|"
    r"하지 ?마|반드시|항상|꼭|기억해|말고|말아|틀렸|아니라",
    re.IGNORECASE,
)
# What an agent says while it works, and what only leads over to a list.
_NARRATION: Final = re.compile(
    r"^(?:now |ok(?:ay)?,? |good,? )?(?:let me|i'?ll|let's see|i will now)\b|[:：]$", re.IGNORECASE
)
_NEXT: Final = re.compile(
    r"\b(?:todo|fixme|next(?: step| up)?|remaining|still (?:need|to do|missing|open|fails?)|not yet|left to do|"
    r"follow[- ]?up|later|shall i|should i|would you like|do you want|let me know|need to|waiting)\b|"
    r"下一步|接下来|待办|还需要|尚未|还没|剩下|需要我|是否|要不要|"
    r"次に|次は|残り|まだ|必要があり|しましょうか|"
    r"다음|남은|아직|해야|할까요",
    re.IGNORECASE,
)


def sentences(text: str) -> Iterator[str]:
    """The sentences and lines of a text, one line each, without list marks; code is left out."""
    for piece in _SENTENCE_END.split(_FENCED.sub("\n", text)):
        bare = _MARKER.sub("", piece, count=1).strip()
        if _SHORTEST <= len(bare) <= _LONGEST and not bare.startswith(("<", "|", "{", "```")):
            yield one_line(bare, _LONGEST)


def decisions(texts: Iterable[str]) -> list[str]:
    """What was decided and why, in order, each once; questions decide nothing."""
    return _stated(_matching(texts, _DECISION))


def rules(texts: Iterable[str]) -> list[str]:
    """What a person asked for always, forbade or put right, in order, each once; questions are none."""
    return _stated(_matching(texts, _RULE))


def next_steps(text: str) -> list[str]:
    """What a reply says is still to be done or asked."""
    return _matching([text], _NEXT)


def _stated(found: Iterable[str]) -> list[str]:
    return [sentence for sentence in found if not sentence.endswith(("?", "？"))]


def _matching(texts: Iterable[str], pattern: re.Pattern[str]) -> list[str]:
    every = (sentence for text in texts for sentence in sentences(text) if not _NARRATION.search(sentence))
    return list(dict.fromkeys(sentence for sentence in every if pattern.search(sentence)))
