"""Values: what sort a value is of, whether a property can have it, and when two are the same."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final, Literal, TypeAlias

__all__ = ["Kind", "fits", "kind_of", "placed", "same_value", "where"]

Kind: TypeAlias = Literal["url", "path", "version", "number", "date", "words"]

_LONGEST: Final = 200
"""Characters; what is longer is no value of a property."""

_MONTHS: Final = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DAYS: Final = "mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun"
_DATE: Final = "|".join(
    (
        r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}.*",
        rf"(?:next |this )?(?:{_DAYS})(?:day)?\b.*",
        rf"(?:\d{{1,2}}(?:st|nd|rd|th)?\s+)?(?:{_MONTHS})[a-z]*\.?\s+\d{{1,4}}.*",
        r"\d{1,2}(?::\d\d)?\s?[ap]\.?m\.?.*|\d{1,2}:\d\d.*|tomorrow|today",
        r"(?:\d{2,4}年)?\d{1,2}月(?:\d{1,2}[日号]?|初|底|中旬)?.*",
        r"(?:每|下|本|这)?(?:周|星期)[一二三四五六日天末].*|(?:今|明|后)天.*",
        r"(?:凌晨|早上|上午|中午|下午|晚上)?\d{1,2}[点时].*",
    )
)
_KINDS: Final[tuple[tuple[Kind, str], ...]] = (
    ("url", r"(?:https?|wss?|ftp|ssh|git|postgres(?:ql)?|redis|mongodb|amqp)://\S+"),
    ("date", _DATE),
    ("version", r"v?\d+(?:\.\d+)+[a-z]*\d*(?:[-+.][a-z0-9]+)*"),
    ("number", r"[$€£¥]?\d[\d,_]*(?:\.\d+)?\s?(?:%|[a-z]{1,9}|[\u4e00-\u9fff]{1,2})?"),
    ("path", r"(?:~|\.{1,2})?/?[\w.@+-]+(?:/[\w.@+-]+)+/?|(?:~|\.{1,2})?/[\w.@+-]+/?|[a-z]:\\\S+|[\w-]+\.[a-z]{2,5}"),
)


@lru_cache(maxsize=4096)
def kind_of(value: str) -> Kind:
    """What sort of value this is; one of another sort never takes its place."""
    plain = value.strip()
    if len(plain) > _LONGEST:
        return "words"
    return next((kind for kind, pattern in _KINDS if re.fullmatch(pattern, plain, re.IGNORECASE)), "words")


def where(value: str) -> str:
    """The slot of something that is found at a value: an address is another property than a place."""
    return "url" if kind_of(value) == "url" else "place"


def placed(slot: str, value: str) -> str:
    """The slot itself; of places and addresses, which people mix up, the one that the value is of."""
    if slot not in {"place", "url"}:
        return slot
    return {"url": "url", "path": "place"}.get(kind_of(value), slot)


_STATUS: Final = (
    r"(?:almost |fully |partly |still )?(?:(?:in|on|under|not(?: yet)?|waiting for|ready for) )?[a-z]+"
    r"|.*[^\x00-\x7f].*"
)
_NUMERIC: Final = r"\d|unlimited|none|off|disabled|不限|无限"
_SOME_DAY: Final = r"\d|\b(?:next|end of|tomorrow|today|tonight)\b|[天周月]"
_NAME: Final = r"[A-Z\d_./@\\-]|[^\x00-\x7f]"
_LOOKS: Final = {
    "choice": r"(?s:.)",
    "value": r"(?s:.)",
    "home": r"(?s:.)",
    "employer": r"(?s:.)",
    "status": rf"(?i:^(?:{_STATUS})$)",
    "port": r"^\d{2,5}$",
    "url": r"\w[.:/]\w",
    **dict.fromkeys(("date", "deadline", "start", "end"), _SOME_DAY),
    **dict.fromkeys(("version", "timeout", "limit", "budget", "price", "interval"), _NUMERIC),
    **dict.fromkeys(("threshold", "size", "ttl", "dimension"), _NUMERIC),
    **dict.fromkeys(("branch", "host", "bucket", "username", "database", "domain", "email", "name"), rf"{_NAME}|^\S+$"),
}


def fits(slot: str, value: str) -> bool:
    """Tell whether a property can have a value: a port is a number, and a name is no adjective."""
    looks = _LOOKS.get(slot, _NAME)
    return re.search(looks, value) is not None or (looks == _SOME_DAY and kind_of(value) == "date")


def same_value(left: str, right: str) -> bool:
    """Tell whether two values are the same, but for width, case, quotes and articles."""
    return _plain(left) == _plain(right)


@lru_cache(maxsize=4096)
def _plain(value: str) -> str:
    folded = unicodedata.normalize("NFKC", value).casefold()
    return re.sub(r"\b(?:the|a|an|version|port)\b|[\s\"'`“”‘’「」《》。!]+|(?<!\d)[.,]|[.,](?!\d)", "", folded)
