"""Put lines between two marks into a TOML or YAML file, and take them out again. Everything else in it is kept."""

from __future__ import annotations

import re
from typing import Final

from holdfast.errors import InputError

BEGIN: Final = "# >>> holdfast"
END: Final = "# <<< holdfast"
REPLACED: Final = "# replaced: "
"""Begins a line of the user between the marks, which comes back on removal."""
_MARKED: Final = re.compile(rf"^[ \t]*{BEGIN}\r?\n(.*?)^[ \t]*{END}(?:\r?\n|\Z)", re.MULTILINE | re.DOTALL)
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
_NOTHING: Final = re.compile(r"[ \t]*(?:#.*)?")
_EMPTY_VALUE: Final = re.compile(r"[ \t]*(?:\{[ \t]*\}|null|~)[ \t]*(?:#.*)?")
_TOP_LEVEL: Final = re.compile(r"[^\s#]")
_YAML_KEY: Final = re.compile(r"""(?:[^\s#\-\[\]{},&*!|>'"%@`?:][^#]*?|"[^"]*"|'[^']*'):(?:\s|$)|---|\.\.\.|%""")


def insert(text: str, lines: str, *, under: str = "", replaces: str = "") -> str:
    """Put marked lines into a text, in place of earlier ones.

    Args:
        text: The text of the file.
        lines: The lines, indented by two spaces if they belong to a key in YAML.
        under: The line that they go under; it is added if it is missing. Without one they go to the end.
        replaces: The key that they replace there.

    Raises:
        InputError: What they go under has values on the same line.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    added = lines.strip("\n").split("\n")
    marked = _MARKED.search(text)
    text = remove(text)
    listed = _LINE.findall(text)
    number = _find_line(listed, under)
    if number is None:
        place = len(text) if marked is None else marked.start()
        head = text[:place]
        if head and not head.endswith("\n"):
            head += newline
        return head + _mark([under, *added] if under else added, newline) + text[place:]
    rest = listed[number].rstrip("\r\n")[len(under) :]
    if _EMPTY_VALUE.fullmatch(rest):
        block = _mark([REPLACED + listed[number].rstrip("\r\n"), under, *added], newline)
        return "".join([*listed[:number], block, *listed[number + 1 :]])
    if not _NOTHING.fullmatch(rest):
        raise InputError(f"`{under}` has its values on the same line: write each of them on its own line first")
    if not listed[number].endswith("\n"):
        listed[number] += newline
    children = _list_children(listed, number)
    added = _reindent(added, [listed[child] for child in children])
    old = [child for child in children if replaces and listed[child].lstrip().startswith(f"{replaces}:")]
    kept = [REPLACED + listed[child].rstrip("\r\n") for child in old]
    block = _mark([*kept, *added], newline)
    place = old[0] if old else number + 1
    before = listed[:place]
    after = [line for index, line in enumerate(listed[place:], start=place) if index not in old]
    return "".join([*before, block, *after])


def remove(text: str) -> str:
    """Remove marked lines; lines that they had replaced come back."""
    return _MARKED.sub(_restore, text)


def check_yaml(text: str) -> None:
    """Check the outer lines of a YAML file.

    Raises:
        ValueError: It is not a block of keys and values.
    """
    for number, line in enumerate(text.splitlines(), start=1):
        indent = line[: len(line) - len(line.lstrip())]
        if "\t" in indent and line.strip():
            raise ValueError(f"line {number} is indented with a tab")
        if _TOP_LEVEL.match(line) and not line.startswith(("- ", "]", "}")) and not _YAML_KEY.match(line):
            raise ValueError(f"line {number} is not a key with a value")


def _mark(lines: list[str], newline: str) -> str:
    return "".join(line + newline for line in (BEGIN, *lines, END))


def _restore(marked: re.Match[str]) -> str:
    lines = [line for line in _LINE.findall(marked[1]) if line.startswith(REPLACED)]
    return "".join(line[len(REPLACED) :] for line in lines)


def _find_line(lines: list[str], under: str) -> int | None:
    """Return the number of the line that begins with a key or a table."""
    for number, line in enumerate(lines):
        if under and (line.rstrip() == under or line.startswith((f"{under} ", f"{under}\t"))):
            return number
    return None


def _list_children(lines: list[str], number: int) -> list[int]:
    """List the numbers of the lines directly below a key of YAML."""
    found: list[int] = []
    indent = ""
    for index in range(number + 1, len(lines)):
        line = lines[index]
        if _NOTHING.fullmatch(line.rstrip("\r\n")):
            continue
        own = line[: len(line) - len(line.lstrip(" "))]
        if not own:
            break
        indent = indent or own
        if own == indent:
            found.append(index)
    return found


def _reindent(added: list[str], children: list[str]) -> list[str]:
    """Indent lines as those next to them."""
    if not children or not added[0].startswith("  "):
        return added
    indent = children[0][: len(children[0]) - len(children[0].lstrip(" "))]
    return [indent + line[2:] for line in added]
