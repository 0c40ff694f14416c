"""What a user says that is worth keeping without being asked to: decided by rules, never by a model.

The rules are those of the long-term memory plugin, in more languages: a message of some length that prefers, decides,
names or insists; never one that gives orders to the machine, carries markup, or is memory that came back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from holdfast.memory.archive import unwrap
from holdfast.signals import has_signal
from holdfast.text import is_unsegmented

__all__ = ["CATEGORIES", "Captured", "Category", "capture", "category_of", "refusal"]

Category: TypeAlias = Literal["preference", "fact", "decision", "entity", "other"]

CATEGORIES: Final[tuple[Category, ...]] = ("preference", "fact", "decision", "entity", "other")
IMPORTANCE: Final = 0.7
MOST: Final = 3
"""So many memories are kept of one turn."""

_SHORTEST: Final = 10
_CHARACTER: Final = 3
"""A character of a script without spaces says as much as three letters."""
_MOST_EMOJI: Final = 3
_EMOJI: Final = re.compile("[\U0001f300-\U0001f9ff\U0001fa70-\U0001faff\u2600-\u27bf]")

_INJECTION: Final = re.compile(
    r"""
      \b(?:ignore|disregard|override|forget\s+(?:all|any|your|every|previous|prior))\b.{0,40}\b(?:instructions?|rules|prompts?)\b
    | \b(?:do\s+not|don'?t)\s+(?:follow|obey)\b.{0,40}\b(?:system|developer|instructions?)\b
    | \bsystem\s+prompt\b | \bdeveloper\s+(?:message|mode)\b
    | <\s*/?\s*(?:system|assistant|developer|user|tool|function|relevant-memories|recalled-context)\b
    | ^\s*(?:system|assistant|developer)\s*:
    | \b(?:run|execute|call|invoke)\b.{0,40}\b(?:tools?|commands?|functions?|scripts?)\b
    | (?:忽略|无视|忘记|無視).{0,20}(?:指令|指示|规则|規則|提示) | 系统提示|系統提示|开发者模式
    | (?:指示|命令|ルール).{0,10}無視 | システムプロンプト
    | (?:지시|명령|규칙).{0,10}무시 | 시스템\s*프롬프트
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_ENTITY: Final = re.compile(
    r"\+\d[\d ()-]{8,}\d|[\w.+-]+@[\w-]+\.[\w.-]+|\bis\s+called\b|\bmy\s+name\s+is\b"
    r"|叫做|我叫|名字是|と申します|이름은",
    re.IGNORECASE,
)
_FACT: Final = re.compile(r"\b(?:is|are|has|have|was|were|je|má|jsou)\b|是|有|です|である|입니다|이다", re.IGNORECASE)
_INSISTED: Final = re.compile(
    r"""
      \bmy\s+[\w-]+\s+(?:is|are)\b | \bm[ůu]j\s+\w+\s+je\b
    | \b(?:always|never|important)\b | \bvždy\b | \bnikdy\b | \bdůležité\b
    | 总是|總是|永远不|從不|从不|重要|我的.{1,20}(?:是|叫) | いつも|必ず|決して|私の.{1,20}は | 항상|절대|중요
    """,
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """Something to keep."""

    text: str
    category: Category
    importance: float = IMPORTANCE


def capture(texts: Iterable[str], *, max_chars: int = 500, most: int = MOST) -> list[Captured]:
    """What of a turn's user messages is to be kept. Hand in each message once: what came before was looked at then."""
    kept: list[Captured] = []
    for given in texts:
        words = unwrap(given)
        if len(kept) < most and not refusal(words, max_chars=max_chars):
            kept.append(Captured(text=words, category=category_of(words)))
    return kept


def refusal(text: str, *, max_chars: int = 500) -> str:
    """Why a message is not kept; nothing where it is."""
    if _said(text) < _SHORTEST:
        return "too short to say anything"
    if len(text) > max_chars:
        return f"longer than {max_chars} characters"
    if _is_markup(text):
        return "markup, not words"
    if len(_EMOJI.findall(text)) > _MOST_EMOJI:
        return "mostly emoji"
    if _INJECTION.search(text):
        return "gives orders to the machine"
    return "" if _is_telling(text) else "nothing in it asks to be kept"


def category_of(text: str) -> Category:
    """What kind of memory it is."""
    if has_signal(text, "preference"):
        return "preference"
    if has_signal(text, "decision"):
        return "decision"
    if _ENTITY.search(text):
        return "entity"
    return "fact" if _FACT.search(text) else "other"


def _is_telling(text: str) -> bool:
    if has_signal(text, "remember", "preference", "decision"):
        return True
    return _INSISTED.search(text) is not None or _ENTITY.search(text) is not None


def _is_markup(text: str) -> bool:
    return (text.lstrip().startswith("<") and "</" in text) or ("**" in text and "\n-" in text)


def _said(text: str) -> int:
    """How much is said, in letters."""
    return sum(_CHARACTER if is_unsegmented(letter) else 1 for letter in text.strip()[:_SHORTEST])
