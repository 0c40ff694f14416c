"""Identifiers and the language of a text: what a summary must keep."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from holdfast.text import clip

__all__ = ["Language", "detect_language", "find_identifiers"]

_START: Final = r"(?<![A-Za-z0-9_./@:+~$#-])"
_END: Final = r"(?![A-Za-z0-9_])"
_SEGMENT: Final = r"[A-Za-z0-9_.@+-]{1,80}"
_EXTENSION: Final = r"\.[A-Za-z][A-Za-z0-9]{0,7}"
_IDENTIFIERS: Final = (
    r"https?://[^\s<>\"'`|，。；：、）】」』]{3,300}",
    rf"{_START}(?:~|\.{{1,2}})?/{_SEGMENT}(?:/{_SEGMENT}){{1,30}}",  # /srv/app/x, ./a/b
    rf"{_START}{_SEGMENT}/(?:{_SEGMENT}/){{0,30}}{_SEGMENT}{_EXTENSION}{_END}",  # src/app.py
    rf"{_START}{_SEGMENT}/{_SEGMENT}/(?:{_SEGMENT}/?){{1,30}}",  # a/b/c
    rf"{_START}[0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}{_END}",
    rf"{_START}(?=[0-9a-f]{{0,63}}[0-9])(?=[0-9a-f]{{0,63}}[a-f])[0-9a-f]{{7,64}}{_END}",
    rf"{_START}\d{{1,3}}(?:\.\d{{1,3}}){{3}}(?::\d{{2,5}})?{_END}",
    rf"{_START}(?:localhost|[A-Za-z0-9-]{{1,60}}(?:\.[A-Za-z0-9-]{{1,60}}){{1,6}}):\d{{2,5}}{_END}",
    rf"{_START}[A-Za-z0-9_-]{{1,60}}\.(?:py|pyi|ts|tsx|js|jsx|rs|go|rb|java|kt|c|h|cc|cpp|cs|sh|sql|md|json|jsonl|toml|ya?ml|lock|cfg|ini|env|txt|log|csv|html|css){_END}",
    rf"{_START}[A-Z][A-Z0-9]{{1,9}}-\d{{1,7}}{_END}",  # PROJ-123
    r"(?<![A-Za-z0-9_&])#\d{2,7}(?![A-Za-z0-9_])",
    rf"{_START}v?\d{{1,4}}\.\d{{1,4}}\.\d{{1,6}}(?:[-+.][A-Za-z0-9.]{{1,20}})?{_END}",
    rf"{_START}[A-Z][A-Z0-9]{{1,30}}(?:_[A-Z0-9]{{1,30}}){{1,8}}{_END}",  # SOME_SETTING
    rf"{_START}[A-Za-z]{{2,12}}_(?=[A-Za-z0-9]{{0,39}}\d)[A-Za-z0-9]{{6,40}}{_END}",  # toolu_01abc
    r"(?i:(?<![a-z])port[ :=]{1,2}|端口[ 号:：]{0,2}|ポート[ :：]{0,2}|포트[ :：]{0,2})\d{2,5}(?!\d)",
    rf"{_START}(?!(?:19|20)\d\d(?!\d))\d{{4,20}}{_END}",
)
_IDENTIFIER: Final = re.compile("|".join(f"(?:{kind})" for kind in _IDENTIFIERS))
_MAX_SEARCHED: Final = 6_000
_MAX_NAME: Final = 200


def find_identifiers(texts: Iterable[str], *, limit: int) -> tuple[str, ...]:
    """Find the first `limit` identifiers in texts, each once: paths, addresses, ids, hashes, ports, numbers.

    A summary must not reword them. Only the beginning and the end of a long text are searched.
    """
    names: dict[str, None] = {}
    for text in texts:
        for match in _IDENTIFIER.finditer(clip(text, head=_MAX_SEARCHED, tail=_MAX_SEARCHED)):
            name = match.group().rstrip(".,;:!?)]}*'\"")
            if 1 < len(name) <= _MAX_NAME:
                names.setdefault(name)
        if len(names) >= limit:
            break
    return tuple(names)[:limit]


# --- language ----------------------------------------------------------------

Language: TypeAlias = Literal["Chinese", "Japanese", "Korean", "Latin script"]

_NOT_PROSE: Final = re.compile(r"```.{0,20000}?(?:```|\Z)|`[^`\n]{1,200}`|^#{1,6} [^\n]*$", re.DOTALL | re.MULTILINE)
_PRINTED: Final = re.compile(r"[!-~]+")
_TECHNICAL: Final = frozenset("/\\_=")
_HAN: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_KANA: Final = re.compile("[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9d]")
_HANGUL: Final = re.compile("[\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3]")
_LATIN: Final = re.compile("[A-Za-z\u00c0-\u024f]")
_CHARACTER_WEIGHT: Final = 3
"""A character of these scripts counts as three letters."""
_MIN_OWN_SHARE: Final = 0.3
"""Chinese about programs contains many Latin words: this share of its own script is enough."""
_MIN_KANA_SHARE: Final = 0.1
_MIN_LETTERS: Final = 12


def detect_language(text: str) -> Language | None:
    """Detect the language of a text by its script, without code, paths and headings; None where it is too short."""
    prose = _PRINTED.sub(_drop_technical, _NOT_PROSE.sub(" ", text))
    han, kana, hangul = (len(pattern.findall(prose)) for pattern in (_HAN, _KANA, _HANGUL))
    own = _CHARACTER_WEIGHT * (han + kana + hangul)
    total = own + len(_LATIN.findall(prose))
    if total < _MIN_LETTERS:
        return None
    if own < _MIN_OWN_SHARE * total:
        return "Latin script"
    if hangul > han + kana:
        return "Korean"
    return "Japanese" if kana > _MIN_KANA_SHARE * (han + kana) else "Chinese"


def _drop_technical(run: re.Match[str]) -> str:
    """Drop a run of Latin letters and signs that is a path, an address or the like."""
    return run[0] if _TECHNICAL.isdisjoint(run[0]) else " "
