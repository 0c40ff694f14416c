"""What QMD is to index: a folder and a mask each, and which file a name in its answers stands for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from holdfast.agent.notes.sources import Kind, extra_roots
from holdfast.agent.paths import Bounds, locate
from holdfast.errors import InputError
from holdfast.settings import Qmd, QmdPath

__all__ = ["Collection", "collections", "further"]

_ALL: Final = "**/*.md"
_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_UNSAFE: Final = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """A folder, and which of its files count."""

    name: str
    path: Path
    mask: str
    kind: Kind = "memory"

    def holds(self, file: Path) -> bool:
        """Whether a file, its links followed, is one of these."""
        base = self.path.resolve()
        if "/" not in self.mask:
            return file.parent == base and fnmatchcase(file.name, self.mask)
        return file.is_relative_to(base) and any(
            fnmatchcase(file.name, mask.rpartition("/")[2]) for mask in _plain(self.mask)
        )

    def files(self, named: str) -> list[Path]:
        """The files that a name in an answer may stand for, the likeliest first; none outside of this collection.

        QMD calls a file `qmd://collection/path`, and some versions write that path in small letters with hyphens.
        """
        name = named.removeprefix("qmd://").partition("?index=")[0].removeprefix(f"{self.name}/")
        try:
            exact = locate(Bounds(root=self.path), name).path
        except InputError:
            return []
        if exact.is_file() and self.holds(exact):
            return [exact]
        return [file for file in self._alike(_key(name)) if self.holds(file)]

    def _alike(self, key: str) -> Iterator[Path]:
        base = self.path.resolve()
        for place, folders, names in os.walk(base):
            inside = folders if "/" in self.mask else []
            folders[:] = sorted(name for name in inside if not name.startswith(".") and name != "node_modules")
            for file in (Path(place, name) for name in sorted(names)):
                if _key(os.fspath(file.relative_to(base))) == key and not file.is_symlink():
                    yield file


def collections(root: Path, asked: Qmd, *, exports: Path | None) -> list[Collection]:
    """All that the settings ask for and that is there; no folder twice with the same mask."""
    found = [*_usual(root)] if asked.include_default_memory else []
    found += further(root, asked)
    if exports is not None:
        found.append(Collection(name="sessions", path=exports, mask=_ALL, kind="sessions"))
    unique: dict[tuple[Path, str], Collection] = {}
    for each in found:
        if each.path.is_dir() or each.kind == "sessions":  # the folder of exports is made with the first of them
            unique.setdefault((each.path.resolve(), each.mask), each)
    return list(unique.values())


def _usual(root: Path) -> Iterator[Collection]:
    yield Collection(name="memory-root", path=root, mask="MEMORY.md")
    small = root / "memory.md"
    if small.is_file() and not ((root / "MEMORY.md").exists() and small.samefile(root / "MEMORY.md")):
        yield Collection(name="memory-alt", path=root, mask="memory.md")
    yield Collection(name="memory-dir", path=root / "memory", mask=_ALL)


def further(root: Path, asked: Qmd) -> list[Collection]:
    """The further folders and files of the settings."""
    return [_custom(root, number, place) for number, place in enumerate(asked.paths, start=1)]


def _custom(root: Path, number: int, asked: QmdPath) -> Collection:
    (path,) = extra_roots(root, [asked.path])
    words = _UNSAFE.sub("-", (asked.name or "").lower()).strip("-")
    name = f"custom-{number}-{words}" if words else f"custom-{number}"
    if path.is_file():
        return Collection(name=name, path=path.parent, mask=path.name)
    return Collection(name=name, path=path, mask=asked.pattern or _ALL)


def _plain(mask: str) -> list[str]:
    """The masks without braces that a mask with braces stands for."""
    found = _BRACES.search(mask)
    if found is None:
        return [mask]
    before, after = mask[: found.start()], mask[found.end() :]
    return [plain for part in found[1].split(",") for plain in _plain(f"{before}{part}{after}")]


def _key(path: str) -> str:
    """What is left of a path in every way of writing it."""
    return "".join(character for character in path.casefold() if character.isalnum())
