"""Claims: which property of what has which value, in the words that people use for it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

from holdfast.store.base import FactType
from holdfast.text import terms

__all__ = [
    "Claim",
    "is_asked",
    "is_named",
    "same_subject",
    "slot_name",
    "slot_of",
    "slot_words",
    "subject_key",
    "type_of",
]


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
    **dict.fromkeys(("start date", "开始日期", "开始时间"), "start"),
    **dict.fromkeys(("end date", "expiry date", "结束日期", "结束时间"), "end"),
    **dict.fromkeys(("status", "state", "状态", "进度", "ステータス", "상태"), "status"),
    **dict.fromkeys(("preference", "choice", "选择", "偏好"), "choice"),
    **dict.fromkeys(("timeout", "超时时间", "超时", "タイムアウト", "타임아웃"), "timeout"),
    **dict.fromkeys(("limit", "maximum", "上限", "限制", "限额", "额度", "上限値"), "limit"),
    **dict.fromkeys(("host", "hostname", "主机", "主机名", "ホスト", "호스트"), "host"),
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
    **dict.fromkeys(("reviewer", "评审人"), "reviewer"),
    **dict.fromkeys(("manager", "主管", "经理"), "manager"),
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
_WORK: Final = frozenset({"status", "deadline", "date", "start", "end", "priority"})

_FIRST_PERSON: Final = re.compile(r"\b(?:i|my|me)\b|我|私|나는|내", re.IGNORECASE)
_NOT_A_SUBJECT: Final = re.compile(
    r"\b(?:the|our|my|your|its|this|that|new|current|actual|latest|now|a|an)\b|['’]s\b", re.IGNORECASE
)
_NOT_A_SUBJECT_CJK: Final = re.compile(
    "我们的?|咱们的?|我的|这个|那个|新的|现在的?|目前的?|当前的?|的|の|(?<=[^\\x00-\\x7f])\\s+(?=[^\\x00-\\x7f])"
)
_SAME: Final[Mapping[str, str]] = {
    "prod": "product",  # the stem of "production"
    "stage": "stage",
    "db": "databas",
    "repo": "repositori",
    "k8s": "kubernet",
}


def slot_of(noun: str) -> tuple[str, str] | None:
    """The subject and the slot that a noun phrase names: `port of the API` is the API's port; None if it names none."""
    found = next((found for form in _slot_forms() if (found := form.fullmatch(noun.strip()))), None)
    if found is None:
        return None
    return f"{found['before'] or ''}{found['after']}".strip(), _SLOTS[found["slot"].lower()]


@cache
def _slot_forms() -> tuple[re.Pattern[str], ...]:
    """How a noun phrase names a property: `port of the API`, `API port`, `API 的端口`."""
    latin, others = (
        "|".join(sorted((re.escape(word) for word in _SLOTS if word.isascii() == is_latin), key=len, reverse=True))
        for is_latin in (True, False)
    )
    return (
        re.compile(rf"(?P<before>.*\s)??(?P<slot>{latin})\s+(?:of|for|on|in)(?P<after>\s.+)", re.IGNORECASE),
        re.compile(rf"(?P<before>.*?\s)??(?P<slot>{latin})(?P<after>)", re.IGNORECASE),
        re.compile(rf"(?P<before>.*?)[的の]?\s*(?:新的?)?(?P<slot>{others}|(?i:{latin}))(?P<after>)"),
    )


@cache
def slot_words(slot: str) -> frozenset[str]:
    """The terms of the nouns that name a slot."""
    return frozenset(term for noun, name in _SLOTS.items() if name == slot for term in terms(noun))


def slot_name(words: str) -> str:
    """What a property is called here, whatever a model calls it."""
    plain = " ".join(unicodedata.normalize("NFKC", words).casefold().replace("_", " ").split())
    return _SLOTS.get(plain, plain)


@lru_cache(maxsize=4096)
def subject_key(subject: str) -> tuple[str, ...]:
    """What two names of the same thing share: their words, whatever their order, and without articles."""
    plain = unicodedata.normalize("NFKC", subject).casefold()
    plain = _NOT_A_SUBJECT_CJK.sub("", _NOT_A_SUBJECT.sub(" ", plain))
    return tuple(sorted({_SAME.get(term, term) for term in terms(plain)}))


def same_subject(left: str, right: str) -> bool:
    """Tell whether two subjects are one."""
    return subject_key(left) == subject_key(right)


def is_named(subject: str, text: str) -> bool:
    """Tell whether a text names a subject with all its words; a subject without a name is in every text."""
    return set(subject_key(subject)) <= set(subject_key(text))


def is_asked(subject: str, slot: str, *, question: str) -> bool:
    """Tell whether a question names a subject with all its words, and asks for this property of it."""
    if not slot or _asking(slot).search(question) is None:
        return False
    if subject == "user":
        return _FIRST_PERSON.search(question) is not None
    if subject and not subject_key(subject):  # such as "let me": nobody asks for that by its name
        return False
    return is_named(subject, question)


@cache
def _asking(slot: str) -> re.Pattern[str]:
    """How people ask for a property: by its noun, or otherwise."""
    nouns = (re.escape(word) for word, name in _SLOTS.items() if name == slot)
    return re.compile("|".join((*nouns, _ASKING.get(slot, re.escape(slot)))), re.IGNORECASE)


def type_of(slot: str) -> FactType:
    """The kind of knowledge that a property is."""
    if slot in _CONFIG:
        return "config"
    return "task_state" if slot in _WORK else "decision"
