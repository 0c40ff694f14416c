"""Claims: which property of what has which value, in the words that people use for it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from holdfast.store.base import FactType
from holdfast.text import terms

__all__ = [
    "Claim",
    "Kind",
    "fits",
    "is_asked",
    "kind_of",
    "same_subject",
    "same_value",
    "slot_name",
    "slot_of",
    "subject_key",
    "type_of",
    "where",
]

Kind: TypeAlias = Literal["url", "path", "version", "number", "date", "words"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """That a property (`slot`) of a subject has a value.

    `old` is the value that is over where the words name it, `kin` are other slots that may be meant where only a
    change is told (a thing that was postponed had a date or a deadline), and `own` says that it is the speaker's.
    """

    subject: str
    slot: str
    value: str
    old: str = ""
    kin: tuple[str, ...] = ()
    own: bool = False


# What people call a property, and what it is called here. Words of several languages meet in one slot.
_SLOTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("port", "端口号", "端口", "ポート", "포트"), "port"),
    **dict.fromkeys(
        ("url", "link", "address", "endpoint", "网址", "链接", "地址", "接口地址", "リンク", "주소"), "url"
    ),
    **dict.fromkeys(
        ("path", "directory", "folder", "location", "region", "路径", "目录", "位置", "地域", "区域"), "place"
    ),
    **dict.fromkeys(("パス", "場所", "경로", "위치"), "place"),
    **dict.fromkeys(("version", "版本号", "版本", "バージョン", "버전"), "version"),
    **dict.fromkeys(("name", "codename", "title", "名字", "名称", "代号", "名前", "이름"), "name"),
    **dict.fromkeys(("owner", "maintainer", "lead", "负责人", "维护者", "所有者", "担当者", "担当", "담당자"), "owner"),
    **dict.fromkeys(
        ("deadline", "due date", "截止日期", "截止时间", "截止日", "期限", "締め切り", "締切", "마감일"), "deadline"
    ),
    **dict.fromkeys(("date", "time", "日期", "时间", "日程", "日時", "日付", "날짜", "시간"), "date"),
    **dict.fromkeys(("status", "state", "状态", "进度", "ステータス", "상태"), "status"),
    **dict.fromkeys(("preference", "choice", "选择", "偏好"), "choice"),
    **dict.fromkeys(("timeout", "超时时间", "超时", "タイムアウト", "타임아웃"), "timeout"),
    **dict.fromkeys(("limit", "maximum", "上限", "限制", "限额", "额度", "上限値"), "limit"),
    **dict.fromkeys(("host", "hostname", "server", "主机", "主机名", "ホスト", "호스트"), "host"),
    **dict.fromkeys(("branch", "分支", "ブランチ", "브랜치"), "branch"),
    **dict.fromkeys(("database", "数据库"), "database"),
    **dict.fromkeys(("budget", "预算"), "budget"),
    **dict.fromkeys(("price", "价格"), "price"),
    **dict.fromkeys(("interval", "间隔"), "interval"),
    **dict.fromkeys(("threshold", "阈值"), "threshold"),
    **dict.fromkeys(("size", "大小"), "size"),
    **dict.fromkeys(("priority", "优先级"), "priority"),
    **dict.fromkeys(("level", "级别", "等级", "レベル"), "level"),
    **dict.fromkeys(("contact person", "contact", "联系人", "对接人"), "contact"),
    **{word: word for word in ("domain", "ttl", "username", "email", "bucket", "framework", "license", "language")},
    **{word: word for word in ("model", "mode", "format", "encoding", "editor", "theme", "timezone", "dimension")},
}
# How people ask for a property without its noun.
_ASKING: Final[Mapping[str, str]] = {
    "place": r"where|stored?|host\w*|deploy\w*|locat\w+|哪|部署|存放|保存|どこ|어디",
    "url": r"where|find|哪|どこ|어디",
    "name": r"called|叫",
    "owner": r"who|whose|owns?|responsible|in charge|谁|负责|誰|누구",
    "deadline": r"when|due|什么时候|何时|截止|いつ|언제",
    "date": r"when|scheduled?|什么时候|何时|哪天|几点|定在|いつ|언제",
    "status": r"how far|finished|done|ready|怎么样|进展|完成",
    "choice": r"use|using|prefer|which|what|how|用|喜欢|偏好|どれ|무엇",
    "start": r"when|start|begin|什么时候|何时|开始",
    "end": r"when|end|expire|什么时候|何时|结束",
    "home": r"where|live|city|住|哪",
    "employer": r"where|who|work|company|公司|上班|工作",
    "value": r"",
}
_CONFIG: Final = frozenset(
    """port url place version timeout limit host branch interval threshold size domain ttl username email bucket model
    mode format encoding timezone dimension value""".split()  # noqa: SIM905 - words read best as words
)
_DATES: Final = frozenset({"date", "deadline", "start", "end"})
_FREE: Final = frozenset({"choice", "status", "value", "home", "employer"})
_NUMERIC: Final = frozenset({"version", "timeout", "limit", "budget", "price", "interval", "threshold", "size", "ttl", "dimension"})
_TOKENS: Final = frozenset({"branch", "host", "bucket", "username", "database", "domain", "email", "name"})
_WORK: Final = frozenset({"status", "deadline", "date", "start", "end", "priority"})

_LATIN_SLOT: Final = "|".join(sorted((re.escape(word) for word in _SLOTS if word.isascii()), key=len, reverse=True))
_CJK_SLOT: Final = "|".join(sorted((word for word in _SLOTS if not word.isascii()), key=len, reverse=True))
_SLOT_OF: Final = re.compile(
    rf"(?P<before>.*\s)??(?P<slot>{_LATIN_SLOT})\s+(?:of|for|on|in)(?P<after>\s.+)", re.IGNORECASE
)
_SLOT_LAST: Final = re.compile(rf"(?P<before>.*\s)?(?P<slot>{_LATIN_SLOT})(?P<after>)", re.IGNORECASE)
_CJK_LAST: Final = re.compile(
    rf"(?P<before>.*?)(?:的|の)?\s*(?:新的?)?(?P<slot>{_CJK_SLOT}|(?i:{_LATIN_SLOT}))(?P<after>)"
)

_ASKS: Final[Mapping[str, re.Pattern[str]]] = {
    slot: re.compile(
        "|".join((*(word for word, name in _SLOTS.items() if name == slot), _ASKING.get(slot, slot))), re.IGNORECASE
    )
    for slot in {*_SLOTS.values(), *_ASKING}
}

_FIRST_PERSON: Final = re.compile(r"\b(?:i|my|me)\b|我|私|나는|내", re.IGNORECASE)
_NOT_A_SUBJECT: Final = re.compile(
    r"\b(?:the|our|my|your|its|this|that|new|current|actual|latest|now|a|an)\b|['’]s\b", re.IGNORECASE
)
_NOT_A_SUBJECT_CJK: Final = re.compile("我们的?|咱们的?|我的|这个|那个|新的|现在的?|目前的?|当前的?|的|の|\\s+")
_SAME: Final[Mapping[str, str]] = {
    "prod": "product",  # the stem of "production"
    "stage": "stage",
    "db": "databas",
    "repo": "repositori",
    "k8s": "kubernet",
}


def slot_of(noun: str) -> tuple[str, str] | None:
    """The subject and the slot that a noun phrase names: `port of the API` is the API's port; None if it names none."""
    noun = noun.strip()
    found = _SLOT_OF.fullmatch(noun) or _SLOT_LAST.fullmatch(noun) or _CJK_LAST.fullmatch(noun)
    if found is None:
        return None
    return f"{found['before'] or ''}{found['after']}".strip(), _SLOTS[found["slot"].lower()]


def slot_name(words: str) -> str:
    """What a property is called here, whatever a model calls it."""
    plain = " ".join(unicodedata.normalize("NFKC", words).casefold().replace("_", " ").split())
    return _SLOTS.get(plain, plain)


@lru_cache(maxsize=4096)
def subject_key(subject: str) -> tuple[str, ...]:
    """What two names of the same thing share: their words, whatever their order, and without articles."""
    plain = unicodedata.normalize("NFKC", subject).casefold()
    plain = _NOT_A_SUBJECT_CJK.sub(" ", _NOT_A_SUBJECT.sub(" ", plain))
    return tuple(sorted({_SAME.get(term, term) for term in terms(plain)}))


def same_subject(left: str, right: str) -> bool:
    """Tell whether two subjects are one."""
    return subject_key(left) == subject_key(right)


def is_asked(subject: str, slot: str, *, question: str) -> bool:
    """Tell whether a question names a subject with all its words, and asks for this property of it."""
    about = set(subject_key(subject))
    asks = _ASKS.get(slot)
    return (
        bool(about) and asks is not None and about <= set(subject_key(question)) and asks.search(question) is not None
    )


def type_of(slot: str) -> FactType:
    """The kind of knowledge that a property is."""
    if slot in _CONFIG:
        return "config"
    return "task_state" if slot in _WORK else "decision"


# --- values -------------------------------------------------------------------

_URL: Final = re.compile(r"(?:https?|wss?|ftp|ssh|git|postgres(?:ql)?|redis|mongodb|amqp)://\S+", re.IGNORECASE)
_PATH: Final = re.compile(
    r"(?:~|\.{1,2})?/?[\w.@+-]+(?:/[\w.@+-]+)+/?|(?:~|\.{1,2})?/[\w.@+-]+/?|[A-Za-z]:\\\S+|[\w-]+\.[a-z]{2,5}"
)
_VERSION: Final = re.compile(r"v?\d+(?:\.\d+)+(?:[-+.]?[A-Za-z0-9]+)*", re.IGNORECASE)
_NUMBER: Final = re.compile(r"[$€£¥]?\d[\d,_]*(?:\.\d+)?\s?(?:%|[A-Za-z]{1,9}|[\u4e00-\u9fff]{1,2})?", re.IGNORECASE)
_MONTHS: Final = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DAYS: Final = "mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun"
_DATE: Final = re.compile(
    rf"\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}.*|(?:next |this )?(?:{_DAYS})(?:day)?\b.*|(?:\d{{1,2}}(?:st|nd|rd|th)?\s+)?"
    rf"(?:{_MONTHS})[a-z]*\.?\s+\d{{1,4}}.*|\d{{1,2}}(?::\d\d)?\s?[ap]\.?m\.?.*|\d{{1,2}}:\d\d.*|tomorrow|today|"
    r"(?:\d{2,4}年)?\d{1,2}月(?:\d{1,2}[日号]?|初|底|中旬)?.*|(?:每|下|本|这)?(?:周|星期)[一二三四五六日天末].*|"
    r"(?:今|明|后)天.*|(?:凌晨|早上|上午|中午|下午|晚上)?\d{1,2}[点时].*",
    re.IGNORECASE,
)


@lru_cache(maxsize=4096)
def kind_of(value: str) -> Kind:
    """What sort of value this is; one of another sort never takes its place."""
    kinds: tuple[tuple[Kind, re.Pattern[str]], ...] = (
        ("url", _URL),
        ("date", _DATE),
        ("version", _VERSION),
        ("number", _NUMBER),
        ("path", _PATH),
    )
    return next((kind for kind, pattern in kinds if pattern.fullmatch(value.strip())), "words")


def fits(slot: str, value: str) -> bool:
    """Tell whether a property can have a value: a port is a number, and a name is no adjective."""
    if slot in _FREE:
        return slot != "status" or _STATUS.fullmatch(value) is not None
    if slot == "port":
        return re.fullmatch(r"\d{2,5}", value) is not None
    if slot in _DATES:
        return kind_of(value) == "date" or re.search(r"\d|\b(?:next|end of|tomorrow|today|tonight)\b", value) is not None
    if slot in _NUMERIC:
        return re.search(r"\d|unlimited|none|off|disabled|不限|无限", value) is not None
    if slot == "url":
        return re.search(r"\w[.:/]\w", value) is not None
    return not value.isascii() or re.search(r"[A-Z\d_./@\\-]", value) is not None or (slot in _TOKENS and " " not in value)


_STATUS: Final = re.compile(
    r"(?:almost |fully |partly |still )?(?:(?:in|on|under|not(?: yet)?|waiting for|ready for) )?[a-z]+(?:ed|ing|ly)?|.*[^\x00-\x7f].*",
    re.IGNORECASE,
)


def where(value: str) -> str:
    """The slot of something that is found at a value: an address is another property than a place."""
    return "url" if kind_of(value) == "url" else "place"


def same_value(left: str, right: str) -> bool:
    """Tell whether two values are the same, but for width, case, quotes and articles."""
    return _plain(left) == _plain(right)


@lru_cache(maxsize=4096)
def _plain(value: str) -> str:
    folded = unicodedata.normalize("NFKC", value).casefold()
    return re.sub(r"\b(?:the|a|an|version|port)\b|[\s\"'`“”‘’「」《》。.,，!！]+", "", folded)
