"""Decide which settings files are trusted, and what the others may set.

A settings file in the working directory or in a project's folder may come from somebody else, for example with a cloned
repository. It may set only what is harmless (`Setting.project`) until the user runs `holdfast trust`. The file's own
location counts, before any link is followed. A trusted file is recorded with a digest of its content, so that a file
that changes has to be trusted again.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from holdfast.errors import SettingsError
from holdfast.files import write_private

SETTINGS_FILES: Final = ("holdfast.toml", "openclaw.json")


def is_project_file(path: Path, *, project: Path | None) -> bool:
    """Return whether a settings file is in the working directory or the project's folder, and not the user's.

    If the file is a link, its own location counts, not that of its target.
    """
    for own in (trust_file().parent, Path.home() / ".openclaw"):
        if _is_same(path.parent, own):
            return False
    if _is_same(path.parent, Path()):
        return True
    return project is not None and _is_same(path.parent, project)


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them does not exist
        return False


def trust_file() -> Path:
    """Return the file in which `holdfast trust` records digests."""
    import platformdirs  # noqa: PLC0415 - most runs read no file of a project

    return platformdirs.user_config_path("holdfast") / "trusted.json"


def load_trust() -> dict[str, str]:
    """Return the digest of each trusted file and link, by its path."""
    file = trust_file()
    try:
        recorded = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SettingsError("cannot be read: delete it, then trust again what you trust", source=str(file)) from error
    return {str(path): str(digest) for path, digest in recorded.items()} if isinstance(recorded, dict) else {}


def is_trusted(path: Path, content: bytes) -> bool:
    """Return whether the user trusted this content at this path. False if the record cannot be read."""
    try:
        return load_trust().get(_locate(path)) == sha256(content).hexdigest()
    except SettingsError:
        return False


def record_trust(contents: Mapping[Path, bytes]) -> dict[str, str]:
    """Record the content of files, and the targets of links, as trusted; return what was added."""
    new = {_locate(path): sha256(content).hexdigest() for path, content in contents.items()}
    _write(load_trust() | new)
    return new


def forget_trust(path: Path) -> list[str]:
    """Remove the trust in a path and everything below it; return what was trusted."""
    recorded = load_trust()
    at = _locate(path)
    real = os.path.realpath(path)  # a link to a folder stands for both
    removed = [known for known in map(Path, recorded) if known.is_relative_to(at) or known.is_relative_to(real)]
    if removed:
        _write({known: digest for known, digest in recorded.items() if Path(known) not in removed})
    return list(map(str, removed))


def _locate(path: Path) -> str:
    """Return the location of a file or link itself, with the links in the folders above it resolved."""
    absolute = os.path.abspath(path)  # noqa: PTH100 - resolve() would follow the last step
    return os.path.join(os.path.realpath(os.path.dirname(absolute)), os.path.basename(absolute))  # noqa: PTH118, PTH119, PTH120


def _write(digests: Mapping[str, str]) -> None:
    file = trust_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(file, json.dumps(dict(sorted(digests.items())), indent=2).encode())
    except OSError as error:
        raise SettingsError(f"cannot be written: {error.strerror}", source=str(file)) from error


def links_out_of(folder: Path, place: Path) -> dict[Path, bytes]:
    """Return the links at `place`, or directly in it, that lead out of `folder`, each with its target.

    The target is the content that `is_trusted` and `record_trust` use for a link. A place outside of the folder has no
    such links.
    """
    if not Path(os.path.abspath(place)).is_relative_to(os.path.abspath(folder)):  # noqa: PTH100 - as it is written
        return {}
    paths: list[Path] = []
    with suppress(OSError):
        if place.is_dir():
            paths = list(place.iterdir())
        else:  # what SQLite would use next to the file
            paths = [place.with_name(f"{place.name}{end}") for end in ("-wal", "-shm", "-journal")]
    inside = Path(os.path.realpath(folder))
    links: dict[Path, bytes] = {}
    for path in (place, *paths):
        if path != place and not path.is_symlink():
            continue
        target = Path(os.path.realpath(path))
        if not target.is_relative_to(inside):
            links[path] = os.fsencode(target)
    return links
