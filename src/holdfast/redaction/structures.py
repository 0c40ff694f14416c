"""Find secrets by their place in a structure: columns of tables, inserts in SQL, the data of a Kubernetes Secret."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

from holdfast.patterns import compile_once, load
from holdfast.redaction.looks import is_genuine
from holdfast.redaction.names import Name, find_word
from holdfast.redaction.notations import is_bare_secret
from holdfast.redaction.secret import Secret

__all__ = ["find_in_structures"]

_MAX_HEADER_CHARS: Final = 1000  # a longer line is not the header of a table
_MAX_COLUMNS: Final = 64
_MAX_MANIFEST_CHARS: Final = 20_000


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return compile_once(load("secrets")["structures"][name])


def find_in_structures(text: str, lowered: str) -> Iterator[Secret]:
    """Yield the secrets of tables, inserts and manifests. `lowered` is the text in lower case."""
    yield from _find_in_markdown(text)
    yield from _find_in_csv(text, lowered)
    yield from _find_in_inserts(text, lowered)
    yield from _find_in_manifests(text)


def _name_columns(header: Sequence[str]) -> dict[int, Name]:
    """Return the columns whose header names a secret."""
    columns: dict[int, Name] = {}
    for place, title in enumerate(header[:_MAX_COLUMNS]):
        name = find_word(title.strip(" \t*`_\"'")[-_MAX_COLUMNS:])
        if name is not None:
            columns[place] = name
    return columns


class _Lines:
    """Finds the line of a place. Many marks of one long line cost a single search."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._start = 0
        self._end = -1

    def find(self, place: int) -> tuple[int, int]:
        """Return the start of the line at a position, and its line end."""
        if not self._start <= place <= self._end:
            self._start = self._text.rfind("\n", 0, place) + 1
            self._end = self._text.find("\n", place)
            if self._end < 0:
                self._end = len(self._text)
        return self._start, self._end


def _find_in_row(text: str, start: int, end: int, *, separator: str, columns: dict[int, Name]) -> Iterator[Secret]:
    """Yield the secrets in the cells of a row."""
    cell = start
    for place in range(max(columns) + 1):
        cell_end = text.find(separator, cell, end)
        cell_end = cell_end if cell_end >= 0 else end
        value = _pattern("cell").match(text, cell, cell_end)
        if place in columns and value is not None and is_bare_secret(columns[place], value["secret"]):
            yield Secret(columns[place].rule, *value.span("secret"))
        if cell_end == end:
            return
        cell = cell_end + 1


def _find_in_markdown(text: str) -> Iterator[Secret]:
    """Yield the secrets in the columns of Markdown tables, found by the line below the header."""
    lines = _Lines(text)
    done = 0
    for mark in ("|-", "| -", "|:-", "| :-", "+-", "+="):
        found = text.find(mark)
        while found >= 0:
            following = done
            if found >= done:
                line, end = lines.find(found)
                following = end  # a line is judged once, however many marks it has
                if line and _pattern("rule").match(text, line):
                    columns = _name_columns(_read_markdown_header(text, lines, line - 1))
                    done = end + 1
                    while columns and text.startswith("|", done):
                        _, end = lines.find(done)
                        yield from _find_in_row(text, done + 1, end, separator="|", columns=columns)
                        done = end + 1
                    following = done
            found = text.find(mark, following)


def _read_markdown_header(text: str, lines: _Lines, place: int) -> list[str]:
    """Return the titles in the line of a place; none if it is too long to be a header."""
    start, end = lines.find(place)
    if end - start > _MAX_HEADER_CHARS:
        return []
    return text[start:end].strip().removeprefix("|").split("|")


def _find_in_csv(text: str, lowered: str) -> Iterator[Secret]:
    """Yield the secrets in the columns of CSV, found by a header of plain names."""
    lines = _Lines(text)
    done = 0
    for word in load("secrets")["names"]["columns"]:
        found = lowered.find(word)
        while found >= 0:
            following = found + len(word)
            edges = lowered[max(0, found - 1) : found] + lowered[following : following + 1]
            separator = next((sign for sign in ",;\t" if sign in edges), "")
            if found < done:
                following = done
            elif separator and not edges.strip(f"{separator}\n\r\"'"):
                line, end = lines.find(found)
                following = end  # a line is judged once, however many words it has
                if end - line <= _MAX_HEADER_CHARS and _pattern("header").fullmatch(text, line, end):
                    columns = _name_columns(text[line:end].split(separator))
                    count = text.count(separator, line, end)
                    done = end + 1
                    while columns and done < len(text):
                        _, row_end = lines.find(done)
                        if text.count(separator, done, row_end) != count:
                            break
                        yield from _find_in_row(text, done, row_end, separator=separator, columns=columns)
                        done = row_end + 1
                    following = done
            found = lowered.find(word, following)


def _find_in_inserts(text: str, lowered: str) -> Iterator[Secret]:
    """Yield the secrets in `INSERT INTO users (name, password) VALUES ('…', '…')`."""
    found = lowered.find("insert into")
    while found >= 0:
        end = found + 1
        insert = _pattern("insert").match(text, found)
        columns = _name_columns(insert["columns"].split(",")) if insert else {}
        if insert is not None and columns:
            place, end = 0, insert.end()
            while value := _pattern("value").match(text, end):
                if place in columns and value["secret"] and is_bare_secret(columns[place], value["secret"]):
                    yield Secret(columns[place].rule, *value.span("secret"))
                place = place + 1 if value["end"] == "," else 0
                end = value.end()
        found = lowered.find("insert into", end)


def _find_in_manifests(text: str) -> Iterator[Secret]:
    """Yield the values of a Kubernetes Secret: base64, under any names."""
    done = 0
    found = text.find("kind: Secret")
    while found >= 0:
        start = max(done, text.rfind("\n---", max(0, found - _MAX_MANIFEST_CHARS), found))
        limit = found + _MAX_MANIFEST_CHARS
        end = text.find("\n---", found, limit)
        end = end if end >= 0 else min(limit, len(text))
        for data in _pattern("data").finditer(text, start, end):
            for entry in _pattern("entry").finditer(text, data.start("entries"), data.end("entries")):
                if is_genuine(entry["secret"]) and not _pattern("certificate").match(entry["secret"]):
                    yield Secret("base64", *entry.span("secret"))
        done = end
        found = text.find("kind: Secret", done)
