"""Past sessions as Markdown for QMD: what was said, secrets masked, line by line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from holdfast.agent.notes.sources import session_sources, talk_lines
from holdfast.agent.paths import Bounds, write_bytes

__all__ = ["Exported", "export_sessions", "found_exports", "oldest", "remove_exports", "session_of", "session_place"]

Exported: TypeAlias = dict[str, tuple[int, int]]
"""The exports that are there, by the name of their session, with its time and size when it was read."""

_SUFFIX: Final = ".md"
_HEADING: Final = 2
"""Lines before the first that was said."""
_DAY: Final = 86_400_000_000_000


def export_sessions(sessions: Path, *, to: Path, before: Mapping[str, tuple[int, int]], since: int | None) -> Exported:
    """Bring the exports up to date, those that were there `before` included.

    Sessions that have changed are written anew. Exports of sessions that are gone, or were last changed before `since`
    (Unix nanoseconds), are deleted; of other files in that folder none is touched.
    """
    to.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = {Path(source.name).name: source for source in session_sources(sessions)}
    kept = {name: source for name, source in found.items() if since is None or source.mtime >= since}
    remove_exports(to, before.keys() - kept.keys())
    for name, source in kept.items():
        if before.get(name) != (source.mtime, source.size) or not (to / f"{name}{_SUFFIX}").is_file():
            said = "\n\n".join(words for _, words in talk_lines(source.path, mask=True))
            text = f"# Session {name}\n\n{said}\n"
            write_bytes(Bounds(root=to), f"{name}{_SUFFIX}", text.encode("utf-8", "replace")).chmod(0o600)
    return {name: (source.mtime, source.size) for name, source in kept.items()}


def found_exports(folder: Path) -> Exported:
    """The exports in a folder that holds nothing else, where nobody knows how old they are."""
    return {file.name.removesuffix(_SUFFIX): (0, 0) for file in folder.glob(f"*{_SUFFIX}")}


def remove_exports(folder: Path, names: Iterable[str]) -> None:
    """Delete the exports of these sessions."""
    for name in names:
        (folder / f"{Path(name).name}{_SUFFIX}").unlink(missing_ok=True)


def oldest(now: int, days: int | None) -> int | None:
    """Since when a session must have been changed to be exported, in nanoseconds; None for any."""
    return now * 1_000_000 - days * _DAY if days else None


def session_of(export: Path) -> str:
    """What a search over notes calls the session of an export."""
    return f"sessions/{export.name.removesuffix(_SUFFIX)}"


def session_place(file: Path, start: int, end: int) -> tuple[int, int]:
    """The lines of a session that lines of its export stand for."""
    numbers = [number for number, _ in talk_lines(file, mask=False)] or [1]
    first, last = ((line - _HEADING - 1) // 2 for line in (start, end))
    most = len(numbers) - 1
    return numbers[min(max(0, first), most)], numbers[min(max(0, last), most)]
