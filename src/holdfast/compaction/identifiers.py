"""Exact identifiers: what a summary must not reword, because nobody can find it again from a paraphrase."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from holdfast.text import clip

__all__ = ["identifiers"]

_START: Final = r"(?<![A-Za-z0-9_./@:+~$#-])"
_END: Final = r"(?![A-Za-z0-9_])"
_SEGMENT: Final = r"[A-Za-z0-9_.@+-]{1,80}"
_EXTENSION: Final = r"\.[A-Za-z][A-Za-z0-9]{0,7}"
_KINDS: Final = (
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
_ANY: Final = re.compile("|".join(f"(?:{kind})" for kind in _KINDS))
_LOOKED_AT: Final = 6_000
_LONGEST: Final = 200


def identifiers(texts: Iterable[str], *, limit: int) -> tuple[str, ...]:
    """The first `limit` identifiers of texts, in order, each once: paths, addresses, ids, hashes, ports, numbers.

    Of a long text its beginning and its end are looked at.
    """
    found: dict[str, None] = {}
    for text in texts:
        for match in _ANY.finditer(clip(text, head=_LOOKED_AT, tail=_LOOKED_AT)):
            name = match.group().rstrip(".,;:!?)]}*'\"")
            if 1 < len(name) <= _LONGEST:
                found.setdefault(name)
        if len(found) >= limit:
            break
    return tuple(found)[:limit]
