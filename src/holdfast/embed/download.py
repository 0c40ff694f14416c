"""Download models on request, from the Hugging Face Hub or another address, and check their digests."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

import platformdirs

from holdfast.calls import Deadline, RetryPolicy, create_ssl_context, retry
from holdfast.errors import EmbeddingError, MissingExtraError, StorageError

_HUB: Final = "https://huggingface.co"
_TIMEOUT_SECONDS: Final = 60.0
_NAME: Final = re.compile(r"[\w][\w.\-]*(?:/[\w][\w.\-]*)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """A model of its publisher on the Hugging Face Hub, and the SHA-256 of each file, in hexadecimal."""

    repository: str
    licence: str
    files: Mapping[str, str]


HUB_MODELS: Final[Mapping[str, HubModel]] = {
    "potion-base-8M": HubModel(
        repository="minishlab/potion-base-8M",
        licence="MIT",
        files={
            "model.safetensors": "f65d0f325faadc1e121c319e2faa41170d3fa07d8c89abd48ca5358d9a223de2",
            "tokenizer.json": "273ca9e28ec6990aea6206b0364443754d87e87a5dd28e94026ea9999ba3bf62",
        },
    ),
}
"""The models that `holdfast models get` can download, by name."""


def models_folder() -> Path:
    """Return the folder of downloaded models, where `embedding.model` finds them by name."""
    return platformdirs.user_cache_path("holdfast") / "models"


def download_from_hub(name: str, *, folder: Path | None = None) -> Path:
    """Download one of `HUB_MODELS` and return its folder. `HF_ENDPOINT` names a mirror of the Hub."""
    if name not in HUB_MODELS:
        raise EmbeddingError(f"no model {name!r}: `holdfast models list` shows the known ones", provider="download")
    model = HUB_MODELS[name]
    hub = (os.environ.get("HF_ENDPOINT") or _HUB).rstrip("/")
    return download(f"{hub}/{model.repository}/resolve/main", name=name, files=model.files, folder=folder)


def download(url: str, *, name: str, files: Mapping[str, str], folder: Path | None = None) -> Path:
    """Download the files of a model into a folder, by default in `models_folder()`, and return it.

    A file's name is appended to the address. `files` has the SHA-256 of each, in hexadecimal; a file that is there and
    right is kept. One that cannot be downloaded, or has another digest, is an EmbeddingError.
    """
    if urlsplit(url).scheme not in {"http", "https"}:
        raise EmbeddingError(f"{url} is not an http or https address", provider="download")
    for each in (name, *files):
        if not _NAME.fullmatch(each):
            raise EmbeddingError(f"{each!r} is not a valid file name", provider="download")
    if importlib.util.find_spec("httpx2") is None:
        raise MissingExtraError("downloading a model", extra="remote")
    target = (folder or models_folder()) / name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for file, digest in files.items():
            _download_file(f"{url.rstrip('/')}/{quote(file)}", target / file, digest.lower(), folder=target.parent)
    except OSError as error:
        raise StorageError(f"the model cannot be saved: {error}", path=target) from error
    return target


def _download_file(url: str, path: Path, digest: str, *, folder: Path) -> None:
    """Write a temporary file in `folder`, and move it to `path` if it has the right digest.

    The folder of the model is created with its first file: a download that failed leaves nothing that looks like one.
    """
    import httpx2  # noqa: PLC0415 - an extra, and slow to import

    if path.is_file():
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == digest:
                return
    handle, name = tempfile.mkstemp(dir=folder, prefix=".part-")
    part = Path(name)

    def copy() -> str:
        """Copy the address into the file and return its SHA-256."""
        actual, ssl = hashlib.sha256(), create_ssl_context()
        with (
            part.open("wb") as file,
            httpx2.stream("GET", url, follow_redirects=True, timeout=_TIMEOUT_SECONDS, verify=ssl) as response,
        ):
            response.raise_for_status()
            for piece in response.iter_bytes():
                actual.update(piece)
                file.write(piece)
        return actual.hexdigest()

    try:
        os.close(handle)
        errors, deadline = (httpx2.TransportError,), Deadline.after(None)
        actual = retry(copy, errors=errors, policy=RetryPolicy(), deadline=deadline)
        if actual != digest:
            raise EmbeddingError(f"{url} has the digest {actual} instead of {digest}; not kept", provider="download")
        path.parent.mkdir(parents=True, exist_ok=True)
        part.replace(path)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise EmbeddingError(f"{url} cannot be downloaded: {error}", provider="download") from error
    finally:
        part.unlink(missing_ok=True)
