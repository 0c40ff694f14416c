"""What of a long tool output is worth keeping: its beginning, its end, and what went wrong in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from holdfast.context.edits import GAP
from holdfast.text import head, tail

__all__ = ["Span", "excerpt"]

Span: TypeAlias = tuple[int, int]
"""A stretch of a text, from and to."""

_STATUS: Final = (
    "exit code",
    "exit status",
    "exit_code",
    "exited with",
    "return code",
    "returncode",
    "code de sortie",
    "código de salida",
    "код завершения",
    "код возврата",
    "退出码",
    "退出代码",
    "退出状态",
    "返回码",
    "返回值",
    "結束代碼",
    "終了コード",
    "종료 코드",
)
_TROUBLE: Final = (
    "error",
    "exception",
    "traceback",
    "failed",
    "failure",
    "fatal",
    "panic",
    "abort",
    "denied",
    "refused",
    "timed out",
    "no such file",
    "not found",
    "undefined",
    "segmentation fault",
    "killed",
    "assert",
    "erreur",
    "échec",
    "échoué",
    "fehler",
    "fehlgeschlagen",
    "ausnahme",
    "falló",
    "excepción",
    "falha",
    "ошибка",
    "исключение",
    "не удалось",
    "错误",
    "失败",
    "异常",
    "崩溃",
    "超时",
    "拒绝",
    "錯誤",
    "失敗",
    "異常",
    "逾時",
    "エラー",
    "例外",
    "タイムアウト",
    "오류",
    "실패",
    "예외",
)
_EACH_WAY: Final = 4
"""How many finds of one word are looked at, from the beginning and from the end."""
_LINE: Final = 240
"""The most of one line that is kept."""


def excerpt(text: str, *, first: int, last: int, limit: int) -> tuple[Span, ...]:
    """The stretches of a text to keep, in order: about `first` characters, `last` characters, and lines of trouble.

    With a gap between each two they are at most `limit` characters. Time is linear in the text.
    """
    if len(text) <= limit:
        return ((0, len(text)),)
    room = max(0, limit - len(GAP))
    if first + last > room:  # the settings ask for more than they allow: both give way alike
        first, last = room * first // (first + last), room * last // (first + last)
    stop, start = _first_end(text, first), _last_start(text, last)
    kept = [(0, stop), (start, len(text))]
    spare = limit - len(GAP) - stop - (len(text) - start)
    kept += _within(_telling(text, stop, start), spare)
    return _merged(kept)


def _first_end(text: str, size: int) -> int:
    """Where the beginning ends: after a whole line, unless that would cost much of it."""
    stop = len(head(text, size))
    line = text.rfind("\n", stop - stop // 4, stop)
    return line if line > 0 else stop


def _last_start(text: str, size: int) -> int:
    """Where the end begins: with a whole line, unless that would cost much of it."""
    start = len(text) - len(tail(text, size))
    line = text.find("\n", start, start + (len(text) - start) // 4)
    return line + 1 if line >= 0 else start


def _within(lines: Iterable[Span], room: int) -> Iterator[Span]:
    """As many of the lines as there is room for, the most telling first."""
    for start, stop in lines:
        room -= stop - start + len(GAP)
        if room < 0:
            return
        yield start, stop


def _telling(text: str, start: int, stop: int) -> list[Span]:
    """Lines of a stretch that say how it went: the last status first, then trouble from both ends inwards."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a few letters grow when lowered; then only lower-case words are found
        lowered = text
    statuses = sorted({line for word in _STATUS for line in _lines(lowered, word, start, stop)}, reverse=True)
    found = sorted({line for word in _TROUBLE for line in _lines(lowered, word, start, stop)} - set(statuses))
    inwards = [found[-1 - place // 2] if place % 2 else found[place // 2] for place in range(len(found))]
    return [*statuses[:1], *inwards]


def _lines(text: str, word: str, start: int, stop: int) -> Iterator[Span]:
    """The lines of the first and last finds of a word."""
    place, low = text.find(word, start, stop), start
    for _ in range(_EACH_WAY):
        if place < 0:
            return
        line = _line(text, place, start, stop)
        yield line
        low = max(low, line[1])
        place = text.find(word, low, stop)
    place = text.rfind(word, low, stop)
    for _ in range(_EACH_WAY):
        if place < 0:
            return
        line = _line(text, place, start, stop)
        yield line
        place = text.rfind(word, low, line[0])


def _line(text: str, place: int, start: int, stop: int) -> Span:
    """The line of a place; of an endless one the part around it."""
    begin = max(start, text.rfind("\n", max(start, place - _LINE // 2), place) + 1, place - _LINE // 2)
    end = text.find("\n", place, min(stop, begin + _LINE))
    return begin, end if end >= 0 else min(stop, begin + _LINE)


def _merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The spans in order, those that touch or are a line break apart as one, empty ones left out."""
    merged: list[Span] = []
    for start, stop in sorted(spans):
        if stop <= start:
            continue
        if merged and start <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return tuple(merged)
