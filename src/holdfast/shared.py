"""The memory of a process that serves several projects: its own settings, and those of each project's sessions.

Hooks load this module before every prompt: what takes time is imported inside of functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.settings import ProjectSettings, Settings, load, user_files
from holdfast.store.opening import local_file, locate_store, name_memory

if TYPE_CHECKING:
    from holdfast.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedMemory:
    """A memory that several projects use.

    Attributes:
        store: The address of the memory, or the absolute path of its file.
        folder: The folder of its local files.
        settings: The settings of the memory itself, such as its embedder, and of sessions without a project.
        projects: The settings of the sessions of each project.
        owner: The project whose file sets the path of the memory; None for the memory of the user.
        warnings: What was ignored in the settings files.
    """

    store: str
    folder: Path
    settings: Settings
    projects: ProjectSettings
    owner: Path | None
    warnings: tuple[str, ...]

    @property
    def name(self) -> str:
        """What messages and the file of the server name it by: never with a password."""
        return name_memory(self.store, settings=self.settings)

    def open(self, *, background: bool = True) -> Engine:
        """Open the engine; its sessions have the settings of their projects."""
        from holdfast.engine import Engine  # noqa: PLC0415 - see the module docstring

        return Engine.open(
            self.store,
            settings=self.settings,
            projects=self.projects,
            background=background,
            personal=True,
            hosts=True,
        )


def find_memory(home: Path | str | None, *, project: Path | None) -> SharedMemory:
    """Find the memory of a process that works for a project, or for none.

    It has the settings of the user. Those of the project apply to the memory itself only if the project's file sets its
    path: then the memory belongs to the project.

    Raises:
        SettingsError: A setting of the user is wrong.
        StorageError: There cannot be a memory at this path.
    """
    user = load(files=user_files())
    projects = ProjectSettings(user)
    loaded = projects.load(project)
    is_own = home is None and project is not None and "archive.path" in loaded.set_by(project)
    settings = loaded.settings if is_own else user.settings
    folder = Path() if project is None or home is not None else project
    return SharedMemory(
        store=locate_store(home, settings=settings, folder=folder),
        folder=local_file(home, settings=settings, folder=folder).parent.absolute(),
        settings=settings,
        projects=projects,
        owner=project if is_own else None,
        warnings=loaded.warnings,
    )
