"""Which embedder is used, and the reasons for every other one."""

import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.embed import (
    CachedEmbedder,
    Choice,
    JointEmbedder,
    StaticEmbedder,
    choose,
    models_folder,
    static,
)
from holdfast.embed.remote import RemoteEmbedder
from holdfast.embed.static import ENGLISH, WORDLLAMA
from holdfast.settings import Embedding, Secret
from support.embed_models import static_folder, wordllama_package

KEYS = {"OPENAI_API_KEY": "sk-canary-1", "VOYAGE_API_KEY": "pa-canary-2"}


@pytest.fixture(autouse=True)
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other package carries weights, and none were fetched, until a test says so."""
    empty = tmp_path / "site"
    (empty / "wordllama").mkdir(parents=True)
    (empty / "wordllama" / "__init__.py").touch()
    monkeypatch.syspath_prepend(empty)
    for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "cache"))


def install(tmp_path: Path) -> None:
    """Put weights where the package has them."""
    wordllama_package(tmp_path / "site")


@pytest.fixture
def no_tokenizers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing `tokenizers` fails, as in an installation without extras."""
    static._load_once.cache_clear()  # a process loads a model once
    monkeypatch.setitem(sys.modules, "tokenizers", None)


def taken(choice: Choice) -> Any:
    """The embedder behind the cache."""
    assert isinstance(choice.embedder, CachedEmbedder)
    return choice.embedder.embedder


class TestAuto:
    """What `auto` takes."""

    @pytest.mark.usefixtures("no_tokenizers")
    def test_nothing_there(self) -> None:
        """Without anything, search goes by words alone and the reasons say how to change that; never hash."""
        choice = choose(Embedding(), environ={})
        assert choice == Choice(
            embedder=None,
            reasons=(
                "the embedding provider static needs an optional dependency: pip install 'holdfast-memory[local]'",
                "no embedder: search uses words alone",
            ),
        )

    def test_the_model_of_holdfast(self) -> None:
        """It is part of every installation, and needs only `tokenizers`."""
        choice = choose(Embedding(), allow_remote=True, environ=KEYS)
        assert isinstance(taken(choice), StaticEmbedder)
        assert choice.reasons == (f"{ENGLISH} is used: 256 dimensions",)

    def test_an_installed_package(self, tmp_path: Path) -> None:
        """Weights in an installed package are used too, since two models find more together."""
        install(tmp_path)
        choice = choose(Embedding(), environ={})
        assert isinstance(taken(choice), JointEmbedder)
        assert choice.reasons == (f"{WORDLLAMA}+{ENGLISH} is used: 259 dimensions",)

    def test_a_package_that_is_damaged(self, tmp_path: Path) -> None:
        """If its model cannot be used, the other one is, and the reason is given."""
        table, _ = wordllama_package(tmp_path / "site")
        table.write_bytes(b"")
        choice = choose(Embedding(), environ={})
        assert taken(choice).space.name == ENGLISH
        assert "cannot be used" in choice.reasons[0]

    def test_a_model_with_missing_files_is_not_downloaded(self) -> None:
        """A download that failed after the first file leaves a folder that no embedder opens."""
        partial = static_folder(models_folder() / "potion-base-8M")
        (partial / "tokenizer.json").unlink()
        (partial / "model.safetensors").unlink()
        choice = choose(Embedding(model="potion-base-8M"), environ={})
        assert "potion-base-8M is not downloaded: run `holdfast models get potion-base-8M`" in choice.reasons[0]

    def test_a_configured_folder(self, tmp_path: Path) -> None:
        """A folder that was set is taken instead of what is installed."""
        install(tmp_path)
        choice = choose(Embedding(model=str(static_folder(tmp_path / "mine"))), environ={})
        assert taken(choice).space.name == "mine"

    @pytest.mark.usefixtures("no_tokenizers")
    def test_a_key_alone_sends_nothing_out(self) -> None:
        """A key in the environment is no leave to send text: the reasons say how to give it."""
        choice = choose(Embedding(), environ=KEYS)
        assert choice.embedder is None
        assert (
            'openai: a key is set, but auto sends no text out; set embedding.provider = "openai" to use it'
            in choice.reasons
        )
        assert "canary" not in str(choice)

    @pytest.mark.usefixtures("no_tokenizers")
    def test_a_key_and_leave(self) -> None:
        """With leave, the first provider whose key is there is taken."""
        choice = choose(Embedding(), allow_remote=True, environ={"VOYAGE_API_KEY": "pa-canary-2"})
        assert taken(choice).space.name == "voyage/voyage-4-large"
        choice = choose(Embedding(), allow_remote=True, environ=KEYS)
        assert taken(choice).space.name == "openai/text-embedding-3-small"
        assert "canary" not in repr(choice)

    def test_an_address_is_leave_enough(self) -> None:
        """An endpoint that was set is taken, and keys from the environment never go there."""
        settings = Embedding(base_url="http://localhost:1/v1", model="bge-m3")
        embedder = taken(choose(settings, allow_remote=True, environ=KEYS))
        assert isinstance(embedder, RemoteEmbedder)
        assert embedder.space.name == "openai-compatible/bge-m3"
        assert embedder._headers == {}
        with_key = Embedding(base_url="http://localhost:1/v1", model="bge-m3", api_key=Secret("mine"))
        assert taken(choose(with_key, environ=KEYS))._headers == {"Authorization": "Bearer mine"}

    def test_an_address_that_lacks_a_model(self) -> None:
        """An endpoint without a model is spoken of, and nothing else is tried with it."""
        choice = choose(Embedding(base_url="http://localhost:1/v1"), allow_remote=True, environ=KEYS)
        assert choice.embedder is None
        assert choice.reasons[0] == "openai-compatible: no model: set embedding.model"


class TestAsked:
    """What is taken when a provider is named."""

    def test_none(self) -> None:
        """`none` is no embedder, as asked."""
        choice = choose(Embedding(provider="none"), allow_remote=True, environ=KEYS)
        assert choice == Choice(embedder=None, reasons=('embedding.provider is "none": search uses words alone',))

    def test_hash(self) -> None:
        """`hash` is there for those who ask for it."""
        assert taken(choose(Embedding(provider="hash"), environ={})).space.dimension == 384
        assert taken(choose(Embedding(provider="hash", dimension=64), environ={})).space.dimension == 64

    @pytest.mark.parametrize("provider", ["static", "local"])
    def test_static(self, tmp_path: Path, provider: Any) -> None:
        """A static model is found in a folder, by the name of one that a package carries, or as the first of those."""
        folder = static_folder(tmp_path / "mine")
        assert taken(choose(Embedding(provider=provider, model=str(folder)), environ={})).space.name == "mine"
        install(tmp_path)
        for model, name in ((None, f"{WORDLLAMA}+{ENGLISH}"), (WORDLLAMA, WORDLLAMA), (ENGLISH, ENGLISH)):
            choice = choose(Embedding(provider=provider, model=model), environ={})
            assert taken(choice).space.name == name

    def test_a_fetched_model(self) -> None:
        """A model that was fetched is found by its name, also where a package could carry it and does not."""
        for name in ("fetched", WORDLLAMA):
            static_folder(models_folder() / name)
            for provider in ("static", "auto"):
                choice = choose(Embedding(provider=provider, model=name), environ={})
                assert taken(choice).space.name == name

    def test_a_name_is_not_looked_up_in_the_working_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A folder there may be someone else's; a path to it has to be written as one."""
        static_folder(tmp_path / "clone" / "fetched")
        monkeypatch.chdir(tmp_path / "clone")
        assert choose(Embedding(provider="local", model="fetched"), environ={}).embedder is None
        assert taken(choose(Embedding(provider="local", model="./fetched"), environ={})).space.name == "fetched"

    @pytest.mark.parametrize(
        ("settings", "reason"),
        [
            (
                Embedding(provider="static"),
                "the embedding provider static needs an optional dependency: pip install 'holdfast-memory[local]'",
            ),
            (
                Embedding(provider="static", model="potion-base-8M"),
                "local: potion-base-8M is not downloaded: run",
            ),
            (Embedding(provider="local", model="nowhere"), "local: no model at "),
            (Embedding(provider="onnx"), "onnx: no model: set embedding.model to its folder"),
            (Embedding(provider="openai"), "openai: no key: set OPENAI_API_KEY or embedding.api_key"),
            (
                Embedding(provider="ollama", model="new"),
                "ollama: the dimension of new is not known",
            ),
        ],
    )
    @pytest.mark.usefixtures("no_tokenizers")
    def test_what_is_missing_is_a_reason(self, settings: Embedding, reason: str) -> None:
        """A provider that was asked for and cannot be had is named; no other takes its place."""
        choice = choose(settings, allow_remote=True, environ={"VOYAGE_API_KEY": "pa-canary-2"})
        assert choice.embedder is None
        assert choice.reasons[0].startswith(reason)
        assert choice.reasons[-1] == "no embedder: search uses words alone"

    def test_a_folder_without_a_model(self, tmp_path: Path) -> None:
        """An empty folder is a reason, too."""
        choice = choose(Embedding(provider="local", model=str(tmp_path)), environ={})
        assert choice.embedder is None
        assert "holds no model.safetensors" in choice.reasons[0]

    @pytest.mark.parametrize("provider", ["openai", "gemini", "voyage", "mistral"])
    def test_a_remote_provider(self, provider: Any) -> None:
        """A provider that was asked for is taken with the key from the settings or the environment."""
        environ = {"GOOGLE_API_KEY": "g", "MISTRAL_API_KEY": "m", **KEYS}
        assert isinstance(taken(choose(Embedding(provider=provider), environ=environ)), RemoteEmbedder)
        embedder = taken(choose(Embedding(provider=provider, api_key=Secret("mine")), environ=environ))
        assert next(iter(embedder._headers.values())).removeprefix("Bearer ") == "mine"

    def test_deadlines_follow_the_settings(self) -> None:
        """Passages have the time that was set, questions no more than five seconds of it."""
        for seconds, query in ((60, 5), (2, 2)):
            settings = Embedding(provider="ollama", timeout_seconds=seconds)
            assert taken(choose(settings, environ={}))._seconds == {"query": query, "passage": seconds}

    def test_the_environment_of_the_process_is_the_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Keys are looked for in the environment."""
        monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-1")
        assert isinstance(taken(choose(Embedding(provider="openai"))), RemoteEmbedder)


def test_a_dimension_that_cannot_be_had(tmp_path: Path) -> None:
    """A model on this machine has the dimension it has, and the reasons say so."""
    install(tmp_path)
    choice = choose(Embedding(dimension=384), environ={})
    assert choice.reasons[-1] == "embedding.dimension = 384 is ignored: the model has 259"


def test_the_cache_has_the_size_that_was_set() -> None:
    """Questions are remembered as far as the settings say."""
    assert repr(choose(Embedding(provider="hash", cache_entries=7), environ={}).embedder).endswith("size=7)")
