"""What the tests of QMD share: a command that behaves like it, and a workspace that is searched with it."""

import os
import sys
from ast import literal_eval
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from holdfast.settings import Embedding
from holdfast_agent.note_files import NoteResults
from holdfast_agent.notes import Notes
from holdfast_agent.qmd import Qmd
from holdfast_agent.settings import AgentSettings, ChatSettings, MemorySearch
from support.waiting import PATIENCE

NOW = 1_770_732_000_000
MINUTE = 60_000
KEY = "sk-ant-api03-" + "a1B2c3D4" * 8

PROGRAM = '''#!{python} -SE
"""Behaves like qmd: keeps collections, finds lines by their words, writes down how it was called."""
import os, sys, time
from _json import encode_basestring_ascii as quote  # all of json takes as long to import as Python to start
here = {here!r}
arguments = sys.argv[1:]
config = os.path.join(os.environ["XDG_CONFIG_HOME"], "collections")
environ = {{name: os.environ.get(name) for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "INDEX_PATH", "X_API_KEY")}}
with open(os.path.join(here, "calls"), "a") as log:
    log.write(repr({{"arguments": arguments, "environ": environ, "cwd": os.getcwd()}}) + "\\n")
try:
    orders = eval(open(os.path.join(here, "orders")).read())
except FileNotFoundError:
    orders = {{}}
order = orders.get(arguments[0], {{}})
time.sleep(order.get("sleep", 0))
sys.stderr.write(order.get("stderr", ""))
if "print" in order:
    sys.stdout.write(order["print"])
if "print" in order or order.get("status"):
    sys.exit(order.get("status", 0))
try:
    known = eval(open(config).read())
except FileNotFoundError:
    known = {{}}
if arguments[:2] == ["collection", "add"]:
    if arguments[4] in known:
        sys.exit("already exists")
    known[arguments[4]] = [arguments[2], arguments[6]]
elif arguments[:2] == ["collection", "remove"]:
    if known.pop(arguments[2], None) is None:
        sys.exit("no such collection")
elif arguments[0] in ("search", "vsearch", "query"):
    name = arguments[arguments.index("-c") + 1]
    if name not in known:
        sys.exit("Collection not found: " + name)
    rows = []
    base, mask = known[name]
    for place, _, files in os.walk(base):
        for each in sorted(files):
            path = os.path.relpath(os.path.join(place, each), base)
            if not (path == mask or mask.startswith("**/*") and each.endswith(mask[4:])):
                continue
            lines = open(os.path.join(place, each)).read().split("\\n")
            for number, line in enumerate(lines, 1):
                share = sum(word in line.lower() for word in arguments[1].lower().split())
                if share:
                    handle = path.lower().replace(" ", "-").replace("_", "-")
                    snippet = "@@ -%d,2 @@ (%d before, 0 after)\\n" % (number, number - 1)
                    snippet += "\\n".join(lines[number - 1 : number + 1])
                    file = "qmd://" + name + "/" + handle
                    row = '{{"docid": "#1", "score": %s, "file": %s, "snippet": %s}}'
                    rows.append(row % (share / 10, quote(file), quote(snippet)))
    print("[" + ", ".join(rows) + "]" if rows else "No results found.")
os.makedirs(os.path.dirname(config), exist_ok=True)
open(config, "w").write(repr(known))
'''


@dataclass
class World:
    """A workspace, past sessions, a qmd of our own and a clock that is set by hand."""

    folder: Path
    now: int = NOW
    opened: list[Notes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.root, self.bin = self.folder / "ws", self.folder / "bin"
        self.home = self.folder / "agents" / "main"
        for place in (self.root, self.bin, self.home / "sessions"):
            place.mkdir(parents=True, exist_ok=True)
        program = self.bin / "qmd"
        program.write_text(PROGRAM.format(python=sys.executable, here=os.fspath(self.bin)), "utf-8")
        program.chmod(0o755)

    def settings(self, **changed: Any) -> ChatSettings:
        """Settings with qmd as the backend."""
        asked = {"command": os.fspath(self.bin / "qmd"), "limits": {"timeout_ms": 300_000}} | changed
        search = msgspec.convert({"provider": "none", "backend": "qmd", "qmd": _durations(asked)}, MemorySearch)
        return ChatSettings(embedding=Embedding(provider="none"), agent=AgentSettings(memory_search=search))

    def open(self, **changed: Any) -> Notes:
        """The notes, as a new process sees them."""
        sessions = self.home / "sessions"
        notes = Notes(self.root, self.settings(**changed), self.folder / "notes.db", sessions, lambda: self.now)
        self.opened.append(notes)
        return notes

    def write(self, name: str, text: str) -> None:
        """Write a note."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def order(self, **orders: dict[str, Any]) -> None:
        """What qmd shall do instead of its work, by its command."""
        (self.bin / "orders").write_text(repr(orders), "utf-8")

    def close(self) -> None:
        """Let go of everything."""
        for notes in self.opened:
            notes.close()

    def calls(self, *commands: str) -> list[dict[str, Any]]:
        """How qmd was called."""
        log = self.bin / "calls"
        lines = log.read_text("utf-8").splitlines() if log.exists() else []
        return [call for call in map(literal_eval, lines) if not commands or call["arguments"][0] in commands]


def _durations(asked: dict[str, Any]) -> dict[str, Any]:
    update = {"interval": 300.0, "embed_interval": 3600.0} | asked.get("update", {})
    return asked | {"update": {name: _duration(name, value) for name, value in update.items()}}


def _duration(name: str, value: float) -> object:
    return f"PT{value}S" if name.endswith("interval") else value


def places(found: NoteResults) -> list[tuple[str, int, int]]:
    """Where the hits stand."""
    return [(hit.path, hit.start, hit.end) for hit in found.hits]


def background(notes: Notes) -> Qmd:
    """QMD, when it has done what it does behind the scenes."""
    assert notes.qmd is not None
    assert notes.qmd.wait(PATIENCE)
    return notes.qmd
