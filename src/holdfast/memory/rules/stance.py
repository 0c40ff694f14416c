"""Stance: whether a sentence says that something is so, or asks, supposes, denies, quotes or remembers it."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["is_additive", "is_asserted", "is_real", "without_asides"]

# Asked, supposed, wished, planned, or told by somebody else: that is so for the whole of a sentence.
_UNREAL: Final = re.compile(
    r"[?？]\s*$|^(?:do|does|did|is|are|was|were|can|could|should|shall|will|would|has|have|had|may|might|what|which"
    r"|who"
    r"|whom|whose|when|where|why|how)\b|\b(?:whether|wonder(?:ing)?|not sure|unsure|i guess)\b"
    r"|\b(?:if|unless|suppose|supposing|assum(?:e|ing)|imagine|hypothetically|maybe|perhaps|possibly|probably|might"
    r"|could|would|should|ought|(?-i:may)|will|won't|shall|going to|gonna|plan(?:s|ned|ning)? to|want(?:s|ed)? to"
    r"|intend\w*"
    r"|consider(?:ing)?|think(?:ing)? (?:about|of)|propos(?:e|es|ed|ing)|suggest\w*|let's say|what about|for example"
    r"|for instance|e\.g|when|some ?day|eventually|in theory|in that scenario|todo|once .* (?:is|are|has|have)"
    r"|as soon as|until"
    r"|try(?:ing)? to|need(?:s)? to|hope|hopefully|typically|usually|generally|by default|i'd|we'd|you'd)\b"
    r"|\b(?:according to|says?|said|claim(?:s|ed)?|reads?:|thinks?|told|mentioned|states?:|rumou?r\w*|heard|quote"
    r"|allegedly"
    r"|apparently|outdated)\b"
    "|吗|呢[。？?]?$|是不是|是否|要不要|能不能|会不会|有没有|多少|什么|哪[里个些儿]|为何|为什么|怎么|谁[？?]"
    "|如果|假如|假设|倘若|要是|万一|若是|可能|也许|或许|大概|应该|考虑|打算|计划|准备|建议|想要|想把|希望|本来|比如"
    "|例如|譬如"
    "|将来|将会|将由|会把|下个?(?:季度|月|周会)会|待办|等.{1,20}再|之后再|以后再|一般来说|通常"
    "|据说|听说|说[：:是]|说.{1,30}(?:是|由|在|用|叫)|写着|写道|告诉|认为|觉得|声称|报错|有人|传言|过时"
    "|もし|たら、|かもしれ|でしょうか|ですか|ますか|そうです。?$|という|만약|만일|아마|까요|습니까",
    re.IGNORECASE,
)
# Denied, or long over: that is so for the clause it stands in.
_OVER: Final = re.compile(
    r"\b(?:not(?! (?:yet )?started)|never|cannot|no one|nobody|neither|nor|no longer)\b|n['’]t\b"
    r"|\b(?:used to|ago|back (?:in|then|when)|originally|initially|formerly|previously|at first|in the past"
    r"|once called"
    r"|last (?:year|month|quarter|spring|summer|autumn|fall|winter)|before (?!that\b)|in (?:19|20)\d\d\b(?!-)"
    r"|(?:old|former|original|previous|first|earlier) \w+(?: \w+)? (?:was|were|is|for|of)|in the first)\b"
    "|不是|并非|没有|没在|不要|不用|不会|不能|不再|不在|不由|不负责|不叫|不喜欢|不偏好|从来|从未(?!开始|完成)|^别"
    "|别把|请勿|勿"
    "|以前|之前|曾经|曾|原来|原先|原本|原定|过去|当时|当初|早期|最初|最早|一开始|起初|去年|前年|上个?(?:月|季度)"
    "|(?:19|20)\\d\\d\\s*年的?时候|那时|第一版|以前は|かつて|ではない|ではありません|しない|이었|였습|예전|아니|않",
    re.IGNORECASE,
)
_ADDITIVE: Final = re.compile(
    r"\b(?:also|too|as well|in addition|additional(?:ly)?|besides|another|second|third|extra|plus|both|one more"
    r"|co-\w+"
    r"|alternative(?:ly)?|backup|fallback|secondary)\b|也|还(?!是)|另外|此外|同时|额外|新增|备用|除了|再加|并且"
    r"|も(?:使|あり)|また|도 ",
    re.IGNORECASE,
)
# What stands beside the claim and says what is over: "(it was 8080 before)", ", not 8080", "，不是 8080".
_ASIDE: Final = re.compile(
    r"\s*[（(][^()（）]{0,120}[)）]|,?\s+(?:and )?not (?!started)(?:\S+ ){0,3}\S+?(?=[.!]?$)"
    r"|[，,]\s*(?:而)?不是[^，。,.]{1,40}(?=[。.]?$)"
    r"|,\s*(?:it|they) (?:was|were|used to be)\b[^.]{0,80}|(?:不要|别)再?用[^，,。]{1,30}了[，,]",
    re.IGNORECASE,
)


def is_real(sentence: str) -> bool:
    """Tell whether a sentence says that something is so: not asked, supposed, planned, or told by somebody else."""
    return _UNREAL.search(sentence) is None


def is_asserted(clause: str) -> bool:
    """Tell whether a clause of such a sentence says that it is so now: not denied, and not long over."""
    return _OVER.search(clause) is None


def is_additive(sentence: str) -> bool:
    """Tell whether a sentence says that there is one more."""
    return _ADDITIVE.search(sentence) is not None


def without_asides(sentence: str) -> str:
    """A sentence without what it says beside: brackets, and what the value is not."""
    return _ASIDE.sub("", sentence)
