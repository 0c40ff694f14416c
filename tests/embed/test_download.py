"""Models are fetched when asked for, from where was said, and kept only if they are what was meant."""

import hashlib
import sys
from pathlib import Path

import pytest

from holdfast.embed import StaticEmbedder, models_folder
from holdfast.embed.download import download, download_from_hub
from holdfast.errors import EmbeddingError, MissingExtraError, StorageError
from support.embed_models import Reply, endpoint, static_folder


def digest(raw: bytes) -> str:
    """The SHA-256 of some bytes."""
    return hashlib.sha256(raw).hexdigest()


def test_a_model_is_fetched_file_by_file(tmp_path: Path) -> None:
    """The files come from below the address into a folder of the model's name, and make a model that works."""
    made = static_folder(tmp_path / "made")
    raws = {name: (made / name).read_bytes() for name in ("model.safetensors", "tokenizer.json")}
    with endpoint(*(Reply(body=raw) for raw in raws.values())) as server:
        folder = download(
            f"{server.url}/models/tiny/",
            name="tiny",
            files={name: digest(raw).upper() for name, raw in raws.items()},
            folder=tmp_path / "kept",
        )
    assert [seen.path for seen in server.seen] == ["/models/tiny/model.safetensors", "/models/tiny/tokenizer.json"]
    assert folder == tmp_path / "kept" / "tiny"
    assert StaticEmbedder.from_folder(folder).embed(["cat"], kind="query").any()


def test_what_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    """A second call asks no one; a file that was damaged since is fetched again."""
    with endpoint(Reply(body=b"right")) as server:
        wanted = {"below/file.bin": digest(b"right")}
        for _ in range(2):
            folder = download(server.url, name="model", files=wanted, folder=tmp_path)
        assert len(server.seen) == 1
        (folder / "below" / "file.bin").write_bytes(b"wrong")
        download(server.url, name="model", files=wanted, folder=tmp_path)
    assert (folder / "below" / "file.bin").read_bytes() == b"right"


def test_a_wrong_digest_is_not_kept(tmp_path: Path) -> None:
    """What is not what was meant is thrown away, and what was there before stays."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "file").write_bytes(b"old")
    with endpoint(Reply(body=b"evil")) as server, pytest.raises(EmbeddingError, match=r"has the digest .* not kept"):
        download(server.url, name="model", files={"file": digest(b"good")}, folder=tmp_path)
    assert (tmp_path / "model" / "file").read_bytes() == b"old"
    assert len(list((tmp_path / "model").iterdir())) == 1


def test_a_model_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A known model comes from its publisher's repository, and is checked by the digests that are known here."""
    with endpoint(Reply(body=b"evil")) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"{server.url}/")
        with pytest.raises(EmbeddingError, match=rf"has the digest {digest(b'evil')} instead of f65d0f32.* not kept"):
            download_from_hub("potion-base-8M", folder=tmp_path)
    assert [seen.path for seen in server.seen] == ["/minishlab/potion-base-8M/resolve/main/model.safetensors"]
    with pytest.raises(EmbeddingError, match="no model 'other': `holdfast models list` shows"):
        download_from_hub("other", folder=tmp_path)


def test_a_redirection_is_followed(tmp_path: Path) -> None:
    """The Hub redirects to where large files lie; the digest is checked as always."""
    with endpoint(Reply(body=b"right")) as elsewhere:
        moved = Reply(status=302, body="", headers={"Location": f"{elsewhere.url}/there"})
        with endpoint(moved) as server:
            folder = download(server.url, name="model", files={"file": digest(b"right")}, folder=tmp_path)
    assert (folder / "file").read_bytes() == b"right"


def test_without_an_http_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package is an error that says how to install it."""
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'holdfast-memory\[remote\]'"):
        download("http://host", name="model", files={"file": digest(b"")}, folder=tmp_path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A refusal names the address, and leaves nothing behind."""
    missing = Reply(status=404, body="")
    with endpoint(missing) as server, pytest.raises(EmbeddingError, match=r"/file cannot be downloaded: .*404"):
        download(server.url, name="model", files={"file": digest(b"")}, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["file:///etc", "ftp://host/x", "host/x"])
def test_other_kinds_of_addresses(tmp_path: Path, url: str) -> None:
    """Only http and https are fetched from."""
    with pytest.raises(EmbeddingError, match="not an http or https address"):
        download(url, name="model", files={}, folder=tmp_path)


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "a/../../b", "", "-", ".hidden", "a//b", "a\\b"])
def test_names_that_lead_elsewhere(tmp_path: Path, name: str) -> None:
    """No name leads out of the folder."""
    with pytest.raises(EmbeddingError, match="is not a valid file name"):
        download("http://host", name="model", files={name: digest(b"")}, folder=tmp_path)
    with pytest.raises(EmbeddingError, match="is not a valid file name"):
        download("http://host", name=name, files={}, folder=tmp_path)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    """A file in the way is a storage error that names the place."""
    (tmp_path / "model").write_bytes(b"in the way")
    with endpoint(Reply(body=b"x")) as server, pytest.raises(StorageError, match="cannot be saved"):
        download(server.url, name="model", files={"file": digest(b"x")}, folder=tmp_path)


def test_models_have_a_folder_in_the_cache() -> None:
    """Fetched models lie in one folder, unless told otherwise."""
    assert models_folder().parts[-2:] == ("holdfast", "models") or models_folder().name == "models"
