"""Models fetched on request: from an address that the user gives, into the cache folder, checked by digest."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import platformdirs

from holdfast.errors import EmbeddingError, StorageError

__all__ = ["download", "models_folder"]

_CHUNK: Final = 1 << 20
_SECONDS: Final = 60.0
_NAME: Final = re.compile(r"[\w][\w.\-]*(?:/[\w][\w.\-]*)*")


def models_folder() -> Path:
    """Where fetched models lie: `embedding.model` finds them by name."""
    return platformdirs.user_cache_path("holdfast") / "models"


def download(url: str, *, name: str, files: Mapping[str, str], folder: Path | None = None) -> Path:
    """Fetch the files of a model, and return the folder that holds them.

    Args:
        url: Where they lie; a file's name is put behind it.
        name: What the model is to be called.
        files: The SHA-256 of each file, in hexadecimal, by its name. What is there and right is not fetched again.
        folder: Where models are kept; unset, `models_folder()`.
    """
    if urlsplit(url).scheme not in {"http", "https"}:
        raise EmbeddingError(f"{url} is no http or https address", provider="download")
    target = (folder or models_folder()) / name
    for each in (name, *files):
        if not _NAME.fullmatch(each):
            raise EmbeddingError(f"{each!r} is no name for a file", provider="download")
    try:
        for file, digest in files.items():
            path = target / file
            if not (path.is_file() and _digest(path) == digest.lower()):
                path.parent.mkdir(parents=True, exist_ok=True)
                _fetch(f"{url.rstrip('/')}/{quote(file)}", path, digest.lower())
    except OSError as error:
        raise StorageError(f"the model cannot be kept: {error}", path=target) from error
    return target


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(url: str, path: Path, digest: str) -> None:
    """Write beside the place, and move there only what has the right digest."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            found = _copied(url, file)
        if found != digest:
            raise EmbeddingError(f"{url} has the digest {found} instead of {digest}; not kept", provider="download")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _copied(url: str, file: Any) -> str:
    from http.client import HTTPException  # noqa: PLC0415 - a tenth of a second that only this needs
    from urllib.error import URLError  # noqa: PLC0415 - as above
    from urllib.request import urlopen  # noqa: PLC0415 - as above

    whole = hashlib.sha256()
    try:
        with urlopen(url, timeout=_SECONDS) as response:  # noqa: S310 - http and https alone
            while part := response.read(_CHUNK):
                whole.update(part)
                file.write(part)
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        raise EmbeddingError(f"{url} cannot be fetched: {error}", provider="download") from error
    return whole.hexdigest()
