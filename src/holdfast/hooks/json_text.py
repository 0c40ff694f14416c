"""Change values in the text of a JSON file, and leave the rest of it as it is: comments, indentation, line ends.

Names are dotted paths from the root, such as `plugins.slots.contextEngine`; an empty name is the root. Comments,
trailing commas and the other notations of JSON5 are read; what is added is plain JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import json5

from holdfast.errors import InputError

MISSING: Final = object()
"""Stands for a value that is not there."""
_DEFAULT_INDENT: Final = "  "
_COMMENT: Final = re.compile(r"//[^\r\n\u2028\u2029]*|/\*.*?\*/", re.DOTALL)
_STRING: Final = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""", re.DOTALL)
_STRING_OR_COMMENT: Final = re.compile(rf"{_STRING.pattern}|({_COMMENT.pattern})", re.DOTALL)
_PLAIN: Final = re.compile(r"[^\s,:\[\]{}\"'/]+")
_TRIVIA: Final = re.compile(rf"(?:[\s\ufeff]+|{_COMMENT.pattern})*", re.DOTALL)
_SAME_LINE: Final = re.compile(r"(?:[ \t]+|//[^\r\n]*|/\*[^\r\n]*?\*/)*")
_LINE_START: Final = re.compile(r"(?:\r?\n)?[ \t]*\Z")
_INDENT: Final = re.compile(r"\n([ \t]+)\S")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A value in the text.

    Attributes:
        start, end: Its place.
        members: The members of an object, or the items of a list.
        opening: The bracket of an object or a list; empty for other values.
    """

    start: int
    end: int
    members: tuple[_Member, ...] = ()
    opening: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """A member of an object or an item of a list.

    Attributes:
        key: The key; empty for an item.
        start: The place of the key, or of the item.
        value: The value.
        comma: The place of the comma after it; None if there is none.
    """

    key: str
    start: int
    value: _Node
    comma: int | None


# --- reading -----------------------------------------------------------------------


def parse(text: str) -> Any:
    """Parse JSON or JSON5.

    Raises:
        ValueError: It is neither.
    """
    try:
        return json.loads(text)
    except ValueError:
        return json5.loads(text)


def get(text: str, name: str) -> Any:
    """Return the value of this name, or `MISSING`."""
    raw = get_raw(text, name)
    return MISSING if raw is None else parse(raw)


def get_raw(text: str, name: str) -> str | None:
    """Return the text of the value of this name; None if there is none."""
    node = _find(_scan(text), _keys(name))
    return None if node is None else text[node.start : node.end]


def list_comments(text: str) -> list[str]:
    """List the comments of a text."""
    return [found[0] for found in _STRING_OR_COMMENT.finditer(text) if found[1]]


def is_blank(text: str, name: str) -> bool:
    """Return whether the value of this name is an object or a list without members and comments."""
    node = _find(_scan(text), _keys(name))
    return node is not None and node.opening != "" and not text[node.start + 1 : node.end - 1].strip()


# --- changing ----------------------------------------------------------------------


def set_value(text: str, name: str, value: Any) -> str:
    """Set a value. Objects on the way to it that are missing are added.

    Raises:
        InputError: A value on the way to it is not an object.
    """
    keys = _keys(name)
    root = _scan(text)
    node = _find(root, keys)
    if node is not None:
        rendered = _render(text, value, _indent_of(text, node.start), is_one_line=_is_one_line(text, root))
        return text[: node.start] + rendered + text[node.end :]
    depth = 0
    parent = root
    while (inner := _find(parent, keys[depth : depth + 1])) is not None:
        parent = inner
        depth += 1
        if parent.opening != "{":
            raise InputError(f"`{'.'.join(keys[:depth])}` is not an object")
    for key in reversed(keys[depth + 1 :]):
        value = {key: value}
    return _insert(text, root, parent, value, key=keys[depth])


def set_raw(text: str, name: str, raw: str) -> str:
    """Replace the text of a value that is there."""
    node = _find(_scan(text), _keys(name))
    return text if node is None else text[: node.start] + raw + text[node.end :]


def append(text: str, name: str, item: Any) -> str:
    """Add an item to a list, which is added if it is missing.

    Raises:
        InputError: The value of this name is not a list.
    """
    root = _scan(text)
    node = _find(root, _keys(name))
    if node is None:
        return set_value(text, name, [item])
    if node.opening != "[":
        raise InputError(f"`{name}` is not a list")
    return _insert(text, root, node, item)


def remove(text: str, name: str) -> str:
    """Remove a value with its key."""
    *parents, last = _keys(name)
    parent = _find(_scan(text), parents)
    keys = [] if parent is None else [member.key for member in parent.members]
    if parent is None or last not in keys:
        return text
    return _remove_member(text, parent, len(keys) - 1 - keys[::-1].index(last))


def remove_items(text: str, name: str, is_unwanted: Callable[[Any], bool]) -> str:
    """Remove items from a list."""
    number = 0
    while True:
        node = _find(_scan(text), _keys(name))
        if node is None or node.opening != "[" or number >= len(node.members):
            return text
        item = node.members[number].value
        if is_unwanted(parse(text[item.start : item.end])):
            text = _remove_member(text, node, number)
        else:
            number += 1


def _insert(text: str, root: _Node, parent: _Node, value: Any, *, key: str | None = None) -> str:
    """Add a member to an object, or an item to a list."""
    newline = _newline(text)
    outer = _indent_of(text, parent.start)
    is_one_line = _is_one_line(text, root)
    indent = outer + _unit(text)
    if parent.members:
        is_one_line = "\n" not in text[parent.start : parent.members[0].start]
        indent = _indent_of(text, parent.members[0].start)
    added = _render(text, value, indent, is_one_line=is_one_line)
    if key is not None:
        added = f"{json.dumps(key, ensure_ascii=False)}: {added}"
    if not is_one_line:
        added = newline + indent + added
    if parent.members:
        return _insert_after(text, parent, added, is_one_line=is_one_line)
    inside = text[parent.start + 1 : parent.end - 1].rstrip()  # nothing, or comments
    place = parent.start + 1 + len(inside)
    closing = text[place : parent.end - 1] if inside else ""
    if not is_one_line and "\n" not in closing:
        closing = newline + outer
    return text[:place] + added + closing + text[parent.end - 1 :]


def _insert_after(text: str, parent: _Node, added: str, *, is_one_line: bool) -> str:
    """Add text after the last member, and after the comment on its line."""
    last = parent.members[-1]
    if last.comma is None:
        place = last.value.end
        text = text[:place] + "," + text[place:]
        place += 1
    else:
        place = last.comma + 1
        added += ","
    if is_one_line:
        return text[:place] + " " + added + text[place:]
    found = _SAME_LINE.match(text, place)
    end = place if found is None else found.end()
    if text[end : end + 1] in {"\r", "\n"}:  # otherwise the bracket is on the same line
        place = end
    return text[:place] + added + text[place:]


def _remove_member(text: str, parent: _Node, number: int) -> str:
    """Remove a member, its line, and the comma that is not needed any more."""
    member = parent.members[number]
    line = _LINE_START.search(text, 0, member.start)
    start = member.start if line is None else line.start()
    end = member.value.end if member.comma is None else member.comma + 1
    rest = text[end:]
    head = text[:start]
    if _ends_with_line_comment(head) and not _SAME_LINE.sub("", rest, count=1).startswith(("\r", "\n")):
        head = text[: member.start]  # what follows on the line must not become part of the comment
    if member.comma is None and number > 0:
        comma = parent.members[number - 1].comma
        if comma is not None:
            head = head[:comma] + head[comma + 1 :]
    if len(parent.members) == 1 and not head[parent.start + 1 :].strip():
        inside = rest[: parent.end - 1 - end]
        if not inside.strip():
            return head[: parent.start + 1] + rest[len(inside) :]
    return head + rest


# --- the text ----------------------------------------------------------------------


def _ends_with_line_comment(text: str) -> bool:
    comments = list_comments(text)
    return bool(comments) and comments[-1].startswith("//") and text.endswith(comments[-1])


def _is_one_line(text: str, root: _Node) -> bool:
    """Return whether everything is on one line."""
    return bool(root.members) and "\n" not in text[root.start : root.end]


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """Return the indentation of the first line that has one."""
    found = _INDENT.search(text)
    return found[1] if found else _DEFAULT_INDENT


def _indent_of(text: str, place: int) -> str:
    """Return the indentation of the line that a place is on."""
    line = text[text.rfind("\n", 0, place) + 1 :]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _render(text: str, value: Any, indent: str, *, is_one_line: bool = False) -> str:
    """Render a value as the text has others: on one line, or with its indentation and line ends."""
    if is_one_line:
        return json.dumps(value, ensure_ascii=False)
    rendered = json.dumps(value, ensure_ascii=False, indent=_unit(text))
    return rendered.replace("\n", _newline(text) + indent)


def _keys(name: str) -> list[str]:
    return name.split(".") if name else []


def _find(node: _Node, keys: list[str]) -> _Node | None:
    for key in keys:
        named = [member.value for member in node.members if node.opening == "{" and member.key == key]
        if not named:
            return None
        node = named[-1]  # the last one counts, as for every parser
    return node


def _scan(text: str) -> _Node:
    """Find the places of all values. The text is valid: `parse` has read it."""
    return _scan_value(text, _skip(text, 0))


def _skip(text: str, place: int) -> int:
    """Skip white space and comments."""
    found = _TRIVIA.match(text, place)
    return place if found is None else found.end()


def _scan_value(text: str, start: int) -> _Node:
    opening = text[start : start + 1]
    if opening not in {"{", "["}:
        return _Node(start=start, end=_scan_word(text, start))
    members: list[_Member] = []
    place = _skip(text, start + 1)
    while text[place : place + 1] not in {"}", "]"}:
        member = _scan_member(text, place, has_key=opening == "{")
        members.append(member)
        place = _skip(text, member.value.end if member.comma is None else member.comma + 1)
    return _Node(start=start, end=place + 1, members=tuple(members), opening=opening)


def _scan_member(text: str, start: int, *, has_key: bool) -> _Member:
    key = ""
    place = start
    if has_key:
        end = _scan_word(text, start)
        word = text[start:end]
        key = parse(word) if word[0] in "\"'" else word
        place = _skip(text, _skip(text, end) + 1)  # the colon
    value = _scan_value(text, place)
    after = _skip(text, value.end)
    comma = after if text[after : after + 1] == "," else None
    return _Member(key=key, start=start, value=value, comma=comma)


def _scan_word(text: str, start: int) -> int:
    """Return the end of a string, number or name."""
    for pattern in (_STRING, _PLAIN):
        found = pattern.match(text, start)
        if found is not None:
            return found.end()
    raise ValueError(f"there is no value at character {start}")
