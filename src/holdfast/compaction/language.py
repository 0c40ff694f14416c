"""Which language a conversation is held in, as far as its script tells."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

__all__ = ["Language", "language"]

Language: TypeAlias = Literal["Chinese", "Japanese", "Korean", "Latin script"]

_NOT_PROSE: Final = re.compile(r"```.{0,20000}?(?:```|\Z)|`[^`\n]{1,200}`|^#{1,6} [^\n]*$", re.DOTALL | re.MULTILINE)
_PRINTED: Final = re.compile(r"[!-~]+")
_TECHNICAL: Final = frozenset("/\\_=")
_HAN: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_KANA: Final = re.compile("[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9d]")
_HANGUL: Final = re.compile("[\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3]")
_LATIN: Final = re.compile("[A-Za-z\u00c0-\u024f]")
_WEIGHT: Final = 3
"""A character says about as much as three letters."""
_SHARE: Final = 0.3
"""People who write about programs in Chinese write much Latin: this much of their own script is enough."""
_KANA_SHARE: Final = 0.1
_FEWEST: Final = 12


def language(text: str) -> Language | None:
    """The language of a text's prose, without code, paths and headings; None where there is too little of it."""
    prose = _PRINTED.sub(_spoken, _NOT_PROSE.sub(" ", text))
    han, kana, hangul = (len(pattern.findall(prose)) for pattern in (_HAN, _KANA, _HANGUL))
    own = _WEIGHT * (han + kana + hangul)
    total = own + len(_LATIN.findall(prose))
    if total < _FEWEST:
        return None
    if own < _SHARE * total:
        return "Latin script"
    if hangul > han + kana:
        return "Korean"
    return "Japanese" if kana > _KANA_SHARE * (han + kana) else "Chinese"


def _spoken(found: re.Match[str]) -> str:
    """A run of Latin letters and signs, or nothing where it is a path, an address or the like."""
    return found[0] if _TECHNICAL.isdisjoint(found[0]) else " "
