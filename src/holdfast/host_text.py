"""What a person wrote in a message, and what the host of the conversation added to it.

Hosts put reminders, the state of the editor, instructions of the project and the output of commands into messages of
the user. The marks by which that is recognised are data: `patterns/hosts.toml` lists them by host.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from holdfast.patterns import compile_once, load

_MAX_ATTRIBUTES: Final = 400
"""Characters of the attributes of a tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marks:
    """The marks of all hosts; see `patterns/hosts.toml` for the meaning of each kind."""

    host: frozenset[str]
    documents: tuple[str, ...]
    output: frozenset[str]
    own: frozenset[str]
    messages: tuple[str, ...]
    reports: re.Pattern[str]
    summaries: re.Pattern[str]
    replies: frozenset[str]
    outputs: dict[str, str]
    patterns: dict[str, str]
    tag: re.Pattern[str]
    """The opening tag of any kind, at the beginning of a line or after another tag."""


@cache
def _load_marks() -> _Marks:
    names = ("host", "documents", "output", "own", "messages", "reports", "summaries", "replies")
    lists: dict[str, list[str]] = {name: [] for name in names}
    outputs: dict[str, str] = {}
    patterns: dict[str, str] = {}
    for table in load("hosts").values():
        for name in lists:
            lists[name] += table.get(name, ())
        outputs |= table.get("outputs", {})
        patterns |= table.get("patterns", {})
    tags = _join([*lists["host"], *lists["output"], *lists["own"]])
    attributes = rf"(?:\s[^<>\n]{{0,{_MAX_ATTRIBUTES}}})?"
    return _Marks(
        host=frozenset(lists["host"]),
        documents=tuple(lists["documents"]),
        output=frozenset(lists["output"]),
        own=frozenset(lists["own"]),
        messages=tuple(lists["messages"]),
        reports=re.compile("|".join(lists["reports"])),
        summaries=re.compile("|".join(lists["summaries"])),
        replies=frozenset(lists["replies"]),
        outputs=outputs,
        patterns=patterns,
        tag=re.compile(rf"(?:^|(?<=>))[ \t]*<(?P<name>{tags}){attributes}>", re.MULTILINE),
    )


def _join(names: Iterable[str]) -> str:
    """Return the alternatives of a pattern, the longest first: one name may begin with another."""
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))


def remove_host_text(text: str, *, keep_outputs: bool = False) -> str:
    """Return what a person wrote in a message; empty if a host wrote all of it.

    With `keep_outputs`, the output of commands and subagents, files, instructions of the project and summaries stay:
    they can be looked up, but nothing is asked with them.
    """
    marks = _load_marks()
    if "<" in text:
        text = _remove_tags(text, marks, keep_outputs=keep_outputs)
    patterns = marks.patterns if keep_outputs else marks.patterns | marks.outputs
    for mark, pattern in patterns.items():
        if mark in text:
            text = compile_once(pattern).sub("", text)
    own = text.strip()
    if own.startswith(marks.messages) or own in marks.replies:
        return ""
    if not keep_outputs and (marks.reports.match(own) or marks.summaries.match(own)):
        return ""
    return own


def find_summary(text: str) -> str:
    """Return the summary of a conversation that a host put in the place of its messages; empty if this is none."""
    own = text.strip()
    before = _load_marks().summaries.match(own)
    if before is None:
        return ""
    return own[before.end() :].strip()


def replace_elements(text: str, tag: re.Pattern[str], replace: Callable[[str, str], str | None]) -> str:
    """Replace what is between an opening tag and the next closing tag of its name, with both tags.

    Args:
        text: The text. A tag in it that is never closed is text.
        tag: An opening tag, with its name as the group `name`.
        replace: Returns what takes the place of an element, given its name and its content; None to leave it, with
            the elements in it.
    """
    kept: list[str] = []
    start = 0
    never_closed: set[str] = set()
    for opening in tag.finditer(text):
        name = opening["name"]
        if opening.start() < start or name in never_closed:
            continue
        closing = f"</{name}>"
        end = text.find(closing, opening.end())
        if end < 0:
            never_closed.add(name)
            continue
        instead = replace(name, text[opening.end() : end])
        if instead is not None:
            kept += (text[start : opening.start()], instead)
            start = end + len(closing)
    kept.append(text[start:])
    return "".join(kept)


def _remove_tags(text: str, marks: _Marks, *, keep_outputs: bool) -> str:
    def replace(name: str, content: str) -> str | None:
        if keep_outputs and (name in marks.output or _is_document(content, marks)):
            return None
        if name in marks.own:  # there may be tags of the host between them
            return _remove_tags(content, marks, keep_outputs=keep_outputs)
        return ""

    return replace_elements(text, marks.tag, replace)


def _is_document(text: str, marks: _Marks) -> bool:
    """Return whether what a host adds is a file of the project, which a person wrote."""
    return any(mark in text for mark in marks.documents)


_LAST_TAG: Final = re.compile(r"</(?P<name>[^<>]{1,60})>\Z")


def remove_notes(output: str) -> str:
    """Return the output of a tool without what the host added at its end. A tag anywhere else may be content."""
    marks = _load_marks()
    while True:
        own = output.rstrip()
        last = _LAST_TAG.search(own, max(0, len(own) - _MAX_ATTRIBUTES))
        if last is None or last["name"] not in marks.host:
            return output
        start = own.rfind(f"<{last['name']}>")
        if start < 0:
            return output
        output = own[:start].rstrip()
