"""What the settings file of a project may not say.

It comes with the project: from a repository that was cloned, a folder that was unpacked. So it may say how the
window is kept, but not what is run, where text is sent, what is left unmasked, or what outside the project's
folder is read or written. That is for the user's own file, the environment and arguments.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast.settings.sources import Layer

__all__ = ["REFUSED", "is_project_file", "without_refused"]

REFUSED: Final = "a project's file may not say this: say it in your own settings file or in the environment"

_NEVER: Final = frozenset(
    {
        "archive.redaction",
        "embedding.allow_remote",
        "embedding.api_key",
        "embedding.base_url",
        "long_term.embedding.api_key",
        "long_term.embedding.base_url",
        "memory.qmd.command",
        "memory_search.remote.api_key",
        "memory_search.remote.base_url",
    }
)
_PROVIDERS: Final = frozenset(
    {"embedding.provider", "long_term.embedding.provider", "memory_search.fallback", "memory_search.provider"}
)
_ON_THIS_MACHINE: Final = frozenset({"auto", "hash", "local", "none", "onnx", "static"})
_MODELS: Final = frozenset(
    {
        "agent.fallback_models",
        "agent.model",
        "compaction.memory_flush.model",
        "compaction.model",
        "knowledge.model",
    }
)
_PLACES: Final = frozenset(
    {
        "archive.path",
        "long_term.db_path",
        "memory.qmd.paths",
        "memory.qmd.sessions.export_dir",
        "memory_search.extra_paths",
        "memory_search.local.model_path",
        "workspace.path",
    }
)


def is_project_file(path: Path, *, project: Path | None) -> bool:
    """Tell whether a settings file is a project's: in this folder or the working directory, and not the user's own."""
    import platformdirs  # noqa: PLC0415 - most callers name their files

    try:
        folder = path.resolve().parent
        homes = {place.resolve() for place in (project or Path(), Path())}
        own = platformdirs.user_config_path("holdfast").resolve()
    except OSError:  # a working directory that is gone holds no project
        return False
    return folder in homes and folder != own


def without_refused(layer: Layer, *, folder: Path) -> Layer:
    """What a project's file says, without what it may not say; that is reported as passed over."""
    refused = [key for key, value in layer.values.items() if _is_refused(key, value, folder)]
    return replace(
        layer,
        values=_without(layer.values, refused),
        origins={key: place for key, place in layer.origins.items() if key not in refused},
        ignored={**layer.ignored, **{key: f"{layer.origins[key].rpartition(': ')[0]}: {REFUSED}" for key in refused}},
    )


def _without(values: Mapping[str, object], refused: list[str]) -> dict[str, object]:
    return {key: value for key, value in values.items() if key not in refused}


def _is_refused(key: str, value: object, folder: Path) -> bool:
    if key in _PROVIDERS:
        return value is not None and value not in _ON_THIS_MACHINE
    if key in _MODELS:  # a service by its name is one that the user has a key for; an address may be anybody's
        return any("://" in name for name in _places(value))
    if key in _PLACES:
        return not all(_is_inside(place, folder) for place in _places(value))
    return key in _NEVER


def _places(value: object) -> list[str]:
    """The places that a setting names: one, or several, each by itself or in a table."""
    several = value if isinstance(value, list | tuple) else [value]
    return [str(getattr(each, "path", each)) for each in several if each is not None]


def _is_inside(place: str, folder: Path) -> bool:
    """Tell whether a place is in a folder, wherever links lead."""
    if "://" in place:
        return False
    home = folder.resolve()
    return (home / Path(place).expanduser()).resolve().is_relative_to(home)
