"""Choose what to keep of a long tool output: its beginning, its end, and lines about errors in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from holdfast.context.edits import GAP
from holdfast.text import head, tail

__all__ = ["Span", "excerpt"]

Span: TypeAlias = tuple[int, int]
"""A part of a text: start and stop."""

_STATUS: Final = (
    "exit code|exit status|exit_code|exited with|return code|returncode|code de sortie|código de salida|"
    "код завершения|код возврата|退出码|退出代码|退出状态|返回码|返回值|結束代碼|終了コード|종료 코드"
)
_ERRORS: Final = (
    "error|exception|traceback|failed|failure|fatal|panic|abort|denied|refused|timed out|no such file|"
    "not found|undefined|segmentation fault|killed|assert|erreur|échec|échoué|fehler|fehlgeschlagen|"
    "ausnahme|falló|excepción|falha|ошибка|исключение|не удалось|"
    "错误|失败|异常|崩溃|超时|拒绝|錯誤|失敗|異常|逾時|エラー|例外|タイムアウト|오류|실패|예외"
)
MAX_MATCHES: Final = 4
"""How many matches of one word are examined, from the beginning and from the end."""
MAX_LINE_CHARS: Final = 240
"""The most characters of one line that are kept."""


def excerpt(text: str, *, first: int, last: int, limit: int) -> tuple[Span, ...]:
    """Return the parts of a text to keep: about `first` characters, about `last` characters, and lines about errors.

    With a gap between each two they are at most `limit` characters. Time is linear in the text.
    """
    if len(text) <= limit:
        return ((0, len(text)),)
    room = max(0, limit - len(GAP))
    if first + last > room:  # the settings ask for more than they allow: reduce both
        first, last = room * first // (first + last), room * last // (first + last)
    stop, start = _first_end(text, first), _last_start(text, last)
    kept = [(0, stop), (start, len(text))]
    spare = limit - len(GAP) - stop - (len(text) - start)
    kept += _take_fitting(_find_lines(text, stop, start), spare)
    return _merge(kept)


def _first_end(text: str, size: int) -> int:
    """Return where the beginning ends: after a whole line, unless that would lose much of it."""
    stop = len(head(text, size))
    line = text.rfind("\n", stop - stop // 4, stop)
    return line if line > 0 else stop


def _last_start(text: str, size: int) -> int:
    """Return where the end begins: with a whole line, unless that would lose much of it."""
    start = len(text) - len(tail(text, size))
    line = text.find("\n", start, start + (len(text) - start) // 4)
    return line + 1 if line >= 0 else start


def _take_fitting(lines: Iterable[Span], room: int) -> Iterator[Span]:
    """Take lines while there is room."""
    for start, stop in lines:
        room -= stop - start + len(GAP)
        if room < 0:
            return
        yield start, stop


def _find_lines(text: str, start: int, stop: int) -> list[Span]:
    """Find lines about the outcome: the last exit status first, then errors from both ends inwards."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a few letters grow in lower case; then only lower-case words match
        lowered = text
    statuses = sorted(
        {line for word in _STATUS.split("|") for line in _matching_lines(lowered, word, start, stop)}, reverse=True
    )
    errors = sorted(
        {line for word in _ERRORS.split("|") for line in _matching_lines(lowered, word, start, stop)} - set(statuses)
    )
    inwards = [errors[-1 - place // 2] if place % 2 else errors[place // 2] for place in range(len(errors))]
    return [*statuses[:1], *inwards]


def _matching_lines(text: str, word: str, start: int, stop: int) -> Iterator[Span]:
    """Iterate over the lines of the first and last matches of a word."""
    place, low = text.find(word, start, stop), start
    for _ in range(MAX_MATCHES):
        if place < 0:
            return
        line = _line_at(text, place, start, stop)
        yield line
        low = max(low, line[1])
        place = text.find(word, low, stop)
    place = text.rfind(word, low, stop)
    for _ in range(MAX_MATCHES):
        if place < 0:
            return
        line = _line_at(text, place, start, stop)
        yield line
        place = text.rfind(word, low, line[0])


def _line_at(text: str, place: int, start: int, stop: int) -> Span:
    """Return the line at a place; of a very long one the part around it."""
    begin = max(
        start, text.rfind("\n", max(start, place - MAX_LINE_CHARS // 2), place) + 1, place - MAX_LINE_CHARS // 2
    )
    end = text.find("\n", place, min(stop, begin + MAX_LINE_CHARS))
    return begin, end if end >= 0 else min(stop, begin + MAX_LINE_CHARS)


def _merge(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Sort spans, join those that touch or are one character apart, and drop empty ones."""
    merged: list[Span] = []
    for start, stop in sorted(spans):
        if stop <= start:
            continue
        if merged and start <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return tuple(merged)
