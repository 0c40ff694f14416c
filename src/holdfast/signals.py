"""Recognise sentences that decide, correct, forbid, prefer, explain or leave something open.

One set of patterns serves the digest of a compaction, the capture of memories and the extraction of facts without a
model. English and Chinese; Japanese and Korean in their most common forms. `has_signal` is broad: it finds the words
anywhere. `classify_sentence` is narrow: the sentence has to begin with an explicit form and must state it as true.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final, Literal, TypeAlias

__all__ = [
    "Signal",
    "Statement",
    "classify_sentence",
    "has_signal",
    "is_additive",
    "is_stated",
    "select",
    "sentences",
    "without_code",
]

Signal: TypeAlias = Literal["remember", "decision", "choice", "correction", "cause", "preference", "rule", "todo"]
Statement: TypeAlias = Literal["remember", "decision", "correction"]

MIN_CHARS: Final = 6
MAX_CHARS: Final = 300

_SIGNALS: Final[Mapping[Signal, str]] = {
    "remember": r"""
        \bremember\b | \bzapamatuj\b | \bpamatuj\b | \bdon'?t\s+forget\b | \bkeep\s+in\s+mind\b
      | 记住|記住|记得|記得|别忘|別忘|请记 | 覚えて|忘れないで | 기억해|잊지\s*마
    """,
    "decision": r"""
        \bdecided\b | \bdecision\s+(?:is|was)\b | \bagreed\b | \bchose\b | \bopted\b | \bsettled\s+on\b
      | \bwill\s+use\b | \brozhodli\b | \bbudeme\b
      | 决定|決定|约定|就用 | に決め|に決定|ことにし|にしよう | 결정|하기로
    """,
    "choice": r"""
        \bwe(?:'ll|\s+should|'re\s+going\s+to|\s+are\s+going\s+to|\s+will)?\s+(?:use|keep|stick|switch|drop|skip)\b
      | \b(?:go|going|went)\s+with\b | \blet'?s\s+(?:use|keep|go|stick|switch|drop|do|make|call)\b
      | 采用|选定|选择了|确定用|结论|方案是 | 採用|方針 | 채택
    """,
    "correction": r"""
        \binstead\s+of\b | \brather\s+than\b | \bswitch(?:ed|ing)?\s+(?:to|from)\b | \bno\s+longer\b
      | 改用|不再|改为|改成 | に変更|代わりに | 대신|으로\s변경|로\s바꾸
    """,
    "cause": r"""
        \bbecause\b | \bturns\s+out\b | \broot\s+cause\s+(?:is|was)\b
      | \bthe\s+(?:fix|reason|problem|issue)\s+(?:is|was)\b
      | 原因是|根本原因 | 原因は | 원인은
    """,
    "preference": r"""
        \b(?:i|we)\s+(?:really\s+|always\s+)?(?:like|prefer|hate|love|want|need|dislike)\b
      | \bprefer(?:s|red|ence)?\b | \bradši\b | \bnechci\b
      | (?:我|我们|我們)(?:更|最|不|很)?(?:喜欢|喜歡|偏好|讨厌|討厭|想要|需要) | 偏好
      | が(?:好き|嫌い)|のほうがいい|好みは | 좋아|싫어|선호
    """,
    "rule": r"""
        \b(?:do\s+not|don'?t)(?!\s+(?:think|know|understand|see|get|have|care)) | \bnever\b | \balways\b | \bmust\b
      | \bmake\s+sure\b | \bensure\b | \bprefer\b | \bremember\b | \bshould(?:n'?t)?\b | \bavoid\b | \bfrom\s+now\s+on\b
      | \bno\s+need\b | \bnot\s.{1,40}\sbut\b | \binstead\b | \bactually\b | \bi\s+meant\b | \bwrong\b
      | \bplease\s+use\b
      | 不要|别(?!人|的|处)|必须|务必|一定|只能|始终|总是|请用|记住|以后|不能|不许|禁止|不对|错了|其实|我的意思|应该是
      | しないで|必ず|常に|ないように|覚えて|禁止|違う|違います|間違|ではなく|じゃなくて
      | 하지\s?마|반드시|항상|꼭|기억해|말고|말아|틀렸|아니라
    """,
    "todo": r"""
        \btodo\b | \bfixme\b | \bnext(?:\s+step|\s+up)?\b | \bremaining\b | \bnot\s+yet\b | \bleft\s+to\s+do\b
      | \bstill\s+(?:need|to\s+do|missing|open|fails?)\b | \bfollow[-\s]?up\b | \blater\b | \b(?:shall|should)\s+i\b
      | \bwould\s+you\s+like\b | \bdo\s+you\s+want\b | \blet\s+me\s+know\b | \bneed\s+to\b | \bwaiting\b
      | 下一步|接下来|待办|还需要|尚未|还没|剩下|需要我|是否|要不要
      | 次に|次は|残り|まだ|必要があり|しましょうか | 다음|남은|아직|해야|할까요
    """,
}

# --- sentences ---------------------------------------------------------------

# A lower-case letter continues the sentence: after an abbreviation, or on the next line of wrapped text.
_SENTENCE_END: Final = re.compile(
    r"(?<=[.!?…])[\"')\]”’]*\s+(?![a-z])|(?<=[。！？])[”’」』]*|\n(?=\s*\n)|\n(?!\s*[a-z(])"
)
_FENCED: Final = re.compile(r"^ {0,3}```.{0,40000}?(?:^ {0,3}```|\Z)", re.DOTALL | re.MULTILINE)
_MARKER: Final = re.compile(r"^[\s>*#•·-]*(?:\d{1,3}[.)、]\s*)?(?:\[[ xX]\]\s*)?")
# What an agent writes while it works, and what only introduces a list.
_NARRATION: Final = re.compile(
    r"^(?:now |ok(?:ay)?,? |good,? )?(?:let me|i'?ll|let's see|i will now)\b|[:：]$", re.IGNORECASE
)


def without_code(text: str) -> str:
    """Remove fenced code from a text."""
    return _FENCED.sub("\n", text)


def sentences(text: str) -> Iterator[str]:
    """Split a text into sentences and lines of `MIN_CHARS` to `MAX_CHARS`, without list marks and code."""
    for piece in _SENTENCE_END.split(without_code(text)):
        bare = _MARKER.sub("", piece, count=1).strip()
        if MIN_CHARS <= len(bare) <= MAX_CHARS and not bare.startswith(("<", "|", "{", "```")):
            yield " ".join(bare.split())


def has_signal(text: str, *signals: Signal) -> bool:
    """Tell whether a text contains words of one of the signals."""
    return any(_compile(signal).search(text) for signal in signals)


def select(texts: Iterable[str], *signals: Signal) -> list[str]:
    """List the sentences of texts that have one of the signals, in order, each once; narration is left out."""
    every = (sentence for text in texts for sentence in sentences(text) if not _NARRATION.search(sentence))
    return list(dict.fromkeys(sentence for sentence in every if has_signal(sentence, *signals)))


@cache
def _compile(signal: Signal) -> re.Pattern[str]:
    return re.compile(_SIGNALS[signal], re.IGNORECASE | re.VERBOSE)


# --- explicit statements -----------------------------------------------------

_OPENING: Final = (
    r"(?:(?:ok(?:ay)?|so|well|alright|also|and|yes|yeah|hi|thanks?|thank you|great|perfect|btw|by the way|fyi|update"
    r"|quick update|good news)\b[,.!:;]?\s+|(?:好的?|对了|另外|嗯|更新)[，,。：:]\s*)*"
)
_WE: Final = r"(?:i|we|(?:my|our|the) (?:team|family|partner|wife|husband))(?:['’]ve| have| all| both)?"
_ADVERB: Final = r"(?:(?:just|finally|now|already|also|recently|mutually) )?"
_THING: Final = r"(?! ?(?:that|this|it|them|these|those|one|the (?:first|second|third|last) one)\b)"
_CLAUSE: Final = r"(?=(?:the|an?|i|we|my|our|your|he|she|they|it|this|all|any|every|no|in|on|for|there|only|[A-Z])\b)"
_CHANGED: Final = (
    r"(?:moved|migrated|switched|changed|renamed|relocated|upgraded|downgraded|bumped|postponed|rescheduled)"
)
_OTHER: Final = r"(?! ?(?:it|this|that|them|these|those)\b)"
_VALUE: Final = (  # "to simplify things" gives a reason, "to port 9090" a value
    r"to (?!(?:make|keep|avoid|get|have|be|do|use|see|simplify|reduce|improve|allow|fix|ensure|help|match|support"
    r"|give|let|show|try|take|add|look|work|go|start|test)\b)(?=\S)"
)
_STATEMENTS: Final[Mapping[Statement, str]] = {
    "remember": (
        r"(?:please )?(?:remember|keep in mind|don['’]t forget|make a note)"
        rf"(?:,? that (?-i:{_CLAUSE})|\s?: ?)(?=.{{8}})"
        r"|(?:请|請)?(?:一定)?(?:要)?(?:帮我|幫我)?(?:记住|記住|记一下|記一下|别忘了|別忘了)[，,：: ]?"
        r"(?!要?(?:去|做|你|了))(?=.{4})"
        r"|.{4,80}(?:覚えておいて|を覚えて|기억해)"
    ),
    "decision": (
        r"(?:final )?(?:decision|decided|resolved)\s?: ?(?=.{6})"
        rf"|{_WE} {_ADVERB}(?:decided (?:to|on|that|against|not to|for)|agreed (?:to|on|that)|settled on|opted for) "
        rf"{_THING}(?=.{{10}})"
        rf"|let['’]?s (?:go|stick) with {_THING}(?=.{{6}})|let['’]?s settle on {_THING}(?=.{{6}})"
        r"|from now on,? (?=.{10})"
        r"|(?:我们|我|团队|咱们)(?:已经|最终|最后|刚刚|一致|商量后)?(?:决定|约定|商定|敲定)了?(?!吗|没|什么|怎么)(?=.{4})"
        r"|(?:最终)?决定[：:](?=.{2})|(?:从现在起|从今天起|从今往后|以后(?:都|一律|统一))[，,]?(?=.{4})"
        r"|.{4,80}(?:ことにしました|に決めました|하기로 (?:했습니다|결정했습니다))"
    ),
    "correction": (
        r"(?:correction|更正|纠正)\s?[:：] ?(?=.{4})"
        r"|(?:please )?(?:always )?use .{2,80} (?:instead of|rather than) (?=\S)"
        rf"|(?:i|we)(?:['’]ve| have)? {_ADVERB}{_CHANGED} {_OTHER}.{{2,100}}? {_VALUE}"
        rf"|(?:the|our) .{{2,60}}? (?:has been|have been|was|were|is now|are now|has|have)? ?{_CHANGED} "
        rf"(?:from .{{1,60}}? )?{_VALUE}"
        r"|i(?:['’]ve| have)? changed my mind\b[^.?!]{0,20}[:,.—–-] ?(?=.{10})"
        r"|(?:我们|我)?(?:已经?)?(?:把|将).{2,60}?(?:改为|改成|换成|改到|迁移到|搬到|升级到|改名为|推迟到|提前到)(?=.)"
        r"|(?:请)?(?:不要|别)再?用.{1,30}[，,]\s*(?:请|而是)?(?:改用|用)(?=.)"
        r"|(?:请)?(?:改用|换用).{1,40}(?:代替|取代|而不是|，不要|,不要)"
        r"|.{2,60}を(?:.{1,30}から)?.{1,30}に変更しました"
    ),
}
# A question, a condition, a wish, a plan, or somebody else's words.
_NOT_STATED: Final = re.compile(
    r"[?？]\s*$|^(?:do|does|did|is|are|was|were|can|could|should|shall|will|would|has|have|had|may|might|what|which"
    r"|who|whom|whose|when|where|why|how)\b|\b(?:whether|wonder(?:ing)?|not sure|unsure|i guess)\b"
    r"|\b(?:if|unless|suppose|supposing|assum(?:e|ing)|imagine|hypothetically|maybe|perhaps|possibly|probably|might"
    r"|could|would|should|ought|(?-i:may)|will|won't|shall|going to|gonna|plan(?:s|ned|ning)? to|want(?:s|ed)? to"
    r"|intend\w*|consider(?:ing)?|think(?:ing)? (?:about|of)|propos(?:e|es|ed|ing)|suggest\w*|let's say|what about"
    r"|for example|for instance|e\.g|when|some ?day|eventually|in theory|todo|as soon as|until"
    r"|try(?:ing)? to|need(?:s)? to|hope|hopefully|typically|usually|generally|by default|i'd|we'd|you'd)\b"
    r"|\b(?:according to|says?|said|claim(?:s|ed)?|reads?:|thinks?|told|mentioned|states?:|rumou?r\w*|heard|quote"
    r"|allegedly|apparently|outdated)\b"
    "|吗|呢[。？?]?$|是不是|是否|要不要|能不能|会不会|有没有|多少|什么|哪[里个些儿]|为何|为什么|怎么|谁[？?]"
    "|如果|假如|假设|倘若|要是|万一|若是|可能|也许|或许|大概|应该|考虑|打算|计划|准备|建议|想要|想把|希望|本来|比如"
    "|例如|譬如|将来|将会|将由|会把|待办|之后再|以后再|一般来说|通常"
    "|据说|听说|说[：:是]|说.{1,30}(?:是|由|在|用|叫)|写着|写道|告诉|认为|觉得|声称|报错|有人|传言|过时"
    "|もし|たら、|かもしれ|でしょうか|ですか|ますか|そうです。?$|という|만약|만일|아마|까요|습니까",
    re.IGNORECASE,
)
# A denial, or something that was true once.
_NOT_NOW: Final = re.compile(
    r"\b(?:not(?! (?:yet )?started)|never|cannot|no one|nobody|neither|nor|no longer)\b|n['’]t\b"
    r"|\b(?:used to|ago|back (?:in|then|when)|originally|initially|formerly|previously|at first|in the past"
    r"|last (?:year|month|quarter|spring|summer|autumn|fall|winter)|before (?!that\b)|in (?:19|20)\d\d\b(?!-))\b"
    "|不是|并非|没有|没在|不要|不用|不会|不能|不再|不在|不由|从来|从未(?!开始|完成)|^别|别把|请勿|勿"
    "|以前|之前|曾经|曾|原来|原先|原本|原定|过去|当时|当初|早期|最初|最早|一开始|起初|去年|前年|上个?(?:月|季度)"
    "|那时|第一版|以前は|かつて|ではない|ではありません|しない|이었|였습|예전|아니|않",
    re.IGNORECASE,
)
_ADDITIVE: Final = re.compile(
    r"\b(?:also|too|as well|in addition|additional(?:ly)?|besides|another|second|third|extra|plus|both|one more"
    r"|co-\w+|alternative(?:ly)?|backup|fallback|secondary)\b|也|还(?!是)|另外|此外|同时|额外|新增|备用|除了|再加"
    r"|并且|も(?:使|あり)|また|도 ",
    re.IGNORECASE,
)
_OPEN_END: Final = ("?", "？", ":", "：", "…", "...")
_MAX_WORDS: Final = 50


def classify_sentence(sentence: str) -> Statement | None:
    """Tell which explicit statement a sentence begins with; None where it is none, is cut off, or is a question."""
    if sentence.endswith(_OPEN_END) or len(sentence.split()) > _MAX_WORDS:
        return None
    return next((kind for kind in _STATEMENTS if _statement(kind).match(sentence)), None)


@cache
def _statement(kind: Statement) -> re.Pattern[str]:
    return re.compile(f"{_OPENING}(?:{_STATEMENTS[kind]})", re.IGNORECASE)


def is_stated(sentence: str) -> bool:
    """Tell whether a sentence states something as true now: not asked, supposed, planned, quoted, denied or past."""
    return _NOT_STATED.search(sentence) is None and _NOT_NOW.search(sentence) is None


def is_additive(sentence: str) -> bool:
    """Tell whether a sentence adds one more value instead of replacing one."""
    return _ADDITIVE.search(sentence) is not None
