"""Settings by project, for a process that serves several: the file of a project counts for its own sessions alone."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Final

from holdfast.cache import LruCache
from holdfast.errors import SettingsError
from holdfast.settings.loading import PROJECT_FILE, Loaded, default_files, load, user_file_places, user_files
from holdfast.settings.schema import Settings
from holdfast.settings.trust import trust_file

MAX_PROJECTS: Final = 64
"""Projects whose settings are kept; those of others are read again."""

_Stamp = tuple[tuple[str, int, int, int], ...]
"""The settings files that exist: the path, the inode, the size and the time of the last change of each."""


def folder_of(project: str) -> Path | None:
    """Return the folder that a project names by its absolute path; None for any other name."""
    folder = Path(project)
    try:
        is_readable = os.access(folder, os.R_OK | os.X_OK)
    except ValueError:  # a name that no file can have
        return None
    return folder if folder.is_absolute() and is_readable else None


class ProjectSettings:
    """Loads the settings of projects, and again once a file has changed. Threads may share it.

    Args:
        user: The settings of the user, without those of a project. They count while the user's own file is wrong.
    """

    def __init__(self, user: Loaded[Settings]) -> None:
        self._user = user
        # Looked up once: finding out where they may be takes longer than looking whether they have changed.
        self._user_places = (*user_file_places(), trust_file())
        self._known: LruCache[Path | None, tuple[_Stamp, Loaded[Settings]]] = LruCache(MAX_PROJECTS)
        self._lock = Lock()

    def load(self, folder: Path | None) -> Loaded[Settings]:
        """Return the settings for the sessions of a project: those of its folder, and below them those of the user.

        The same object is returned until a file changes. An invalid file is left out, with a warning.
        """
        places = self._user_places
        if folder is not None:
            places = (folder / PROJECT_FILE, *places)
        stamp = _read_stamp(places)
        with self._lock:
            known = self._known.get(folder)
            if known is None or known[0] != stamp:
                known = (stamp, self._load(folder))
                self._known[folder] = known
            return known[1]

    def _load(self, folder: Path | None) -> Loaded[Settings]:
        problems: tuple[str, ...] = ()
        if folder is not None:
            try:
                return load(files=default_files(folder=folder), project=folder)
            except SettingsError as error:
                problems = (str(error),)
        try:
            user = load(files=user_files())
        except SettingsError as error:
            return replace(self._user, problems=(str(error),))
        return replace(user, problems=problems)


def _read_stamp(places: Iterable[Path]) -> _Stamp:
    """Return what changes when a file in one of these places does: a settings file, or the record of trusted ones."""
    stamp: list[tuple[str, int, int, int]] = []
    for path in places:
        try:
            state = path.stat()
        except OSError:
            continue
        stamp.append((str(path), state.st_ino, state.st_size, state.st_mtime_ns))
    return tuple(stamp)
