"""What one tool call does, by its name and arguments: the files, the command line, the steps of a plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.compaction.dialogue import one_line
from holdfast.messages import ToolCall

__all__ = ["Step", "command", "command_line", "files", "only_looks", "path_of", "runs_on", "steps"]

_PATH_KEYS: Final = (
    "path",
    "file_path",
    "filePath",
    "filename",
    "notebook_path",
    "target_file",
    "absolute_path",
    "file",
)
_COMMAND_KEYS: Final = ("command", "cmd", "script")
_STEP_KEYS: Final = ("content", "step", "title", "task", "text", "description")
_READERS: Final = frozenset({"read", "readfile", "view", "viewfile", "openfile", "open", "cat", "readmanyfiles"})
_WRITERS: Final = frozenset(
    {
        "applydiff",
        "create",
        "createfile",
        "edit",
        "editfile",
        "insert",
        "multiedit",
        "notebookedit",
        "replace",
        "searchreplace",
        "strreplace",
        "write",
        "writefile",
        "writetofile",
    }
)
_EDITORS: Final = frozenset({"strreplaceeditor", "strreplacebasededittool", "fileeditor", "editor"})
_PATCHED: Final = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.{1,400}?)\s*$", re.MULTILINE)
_COMMAND: Final = 240
_LOOKERS: Final = frozenset(
    """
    awk cat cd cut du echo fd file find grep head less ls nl pwd rg sed sleep sort stat tail tree uniq wc which
    """.split()  # noqa: SIM905 - words read best as words
)
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_PIPED: Final = re.compile(r"\|\||&&|[|;\n]")
_WRITES: Final = re.compile(r"(?<![0-9&>])>{1,2}\s*(?!&|/dev/null)|\bsed -i|\s-delete\b|\s-exec\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the agent's own plan, with its state in the agent's word."""

    text: str
    status: str


# --- files -------------------------------------------------------------------


def files(call: ToolCall) -> tuple[list[str], list[str]]:
    """The files that a call reads, and those that it changes."""
    arguments = _arguments(call)
    name = call.name.rsplit("__", 1)[-1].rsplit(".", 1)[-1].replace("_", "").replace("-", "").lower()
    path = path_of(call)
    patched = [file for text in _strings(arguments) for file in _PATCHED.findall(text)]
    if path is None:
        return [], patched
    if name in _READERS or (name in _EDITORS and arguments.get("command") == "view"):
        return [path], patched
    return [], [path, *patched] if name in _WRITERS | _EDITORS else patched


def path_of(call: ToolCall) -> str | None:
    """The file that a call names."""
    named = (_arguments(call).get(key) for key in _PATH_KEYS)
    return next((value for value in named if isinstance(value, str) and value.strip()), None)


def _arguments(call: ToolCall) -> Mapping[str, Any]:
    return call.arguments if isinstance(call.arguments, Mapping) else {"": call.arguments}


def _strings(value: Any) -> Iterator[str]:
    """Every text in a call's arguments, two levels deep."""
    inner = value.values() if isinstance(value, Mapping) else value
    for item in inner:
        if isinstance(item, str):
            yield item
        elif isinstance(item, list | tuple):
            yield from (text for text in item if isinstance(text, str))


# --- commands and plans ------------------------------------------------------


def command(call: ToolCall) -> str:
    """The command line of a call, in short; nothing for those that only look."""
    line = command_line(call)
    return "" if not line or only_looks(line) else one_line(line, _COMMAND)


def command_line(call: ToolCall) -> str:
    """The command line of a call, whole; nothing where it has none."""
    arguments = _arguments(call)
    given = next((arguments[key] for key in _COMMAND_KEYS if arguments.get(key)), "")
    if isinstance(given, list):
        given = str(given[-1]) if given and given[0] in {"bash", "sh", "zsh"} else " ".join(map(str, given))
    if not isinstance(given, str) or _PATCHED.search(given) or set(_PATH_KEYS) & set(arguments):
        return ""
    return given.strip()


def only_looks(command: str) -> bool:
    """Tell whether a command line changes nothing, as far as its words tell."""
    bare = _QUOTED.sub("''", command)
    firsts = [piece.split(maxsplit=1)[0] for piece in _PIPED.split(bare) if piece.strip()]
    return all(first in _LOOKERS for first in firsts) and not _WRITES.search(bare)


def runs_on(call: ToolCall) -> bool:
    """Tell whether a call starts something that goes on after it has answered."""
    arguments = _arguments(call)
    return bool(arguments.get("run_in_background") or arguments.get("background") or arguments.get("is_background"))


def steps(call: ToolCall) -> tuple[Step, ...]:
    """The steps of a plan that a call writes down; none where it does not."""
    for value in _arguments(call).values():
        if isinstance(value, list) and value:
            found = tuple(step for item in value if (step := _step(item)) is not None)
            if len(found) == len(value):
                return found
    return ()


def _step(item: Any) -> Step | None:
    if not isinstance(item, Mapping) or not isinstance(item.get("status"), str):
        return None
    text = next((item[key] for key in _STEP_KEYS if isinstance(item.get(key), str)), None)
    return None if text is None else Step(text=one_line(text, _COMMAND), status=item["status"])
