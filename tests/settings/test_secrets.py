"""Keys among the settings: read from where they rest, shown nowhere."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.errors import SettingsError
from holdfast.settings import Loaded, Secret, as_dict
from holdfast_agent.settings import CHAT, ChatSettings, load

KEY = "sk-canary-0123456789"
PLACE = "plugins.entries.memory-lancedb.config.embedding.apiKey"


def native(folder: Path, text: str, **environ: str) -> Loaded[ChatSettings]:
    """The settings of a holdfast.toml with this in its embedding section."""
    path = folder / "holdfast.toml"
    path.write_text(f"[embedding]\n{text}\n", encoding="utf-8")
    return load(files=[path], environ=environ)


def foreign(folder: Path, key: object, **environ: str) -> Loaded[ChatSettings]:
    """The settings of an openclaw.json with this as a key."""
    data: Any = key
    for name in reversed(PLACE.split(".")):
        data = {name: data}
    path = folder / "openclaw.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return load(files=[path], environ=environ)


def test_never_shown() -> None:
    """A key shows in no representation of anything that holds it, and cannot be encoded by accident."""
    loaded = load(environ={}, embedding={"api_key": KEY})
    key = loaded.settings.embedding.api_key
    assert key is not None
    assert key.reveal() == KEY
    for shown in (
        repr(loaded),
        str(key),
        f"{key}",
        f"{key!r}",
        str(as_dict(loaded.settings, schema=CHAT)),
        str(loaded.origins),
    ):
        assert KEY not in shown
    with pytest.raises(TypeError):
        msgspec.json.encode(loaded.settings)


def test_from_the_environment(tmp_path: Path) -> None:
    """`${NAME}` in a key stands for a variable, `$${NAME}` for itself, and other settings are left alone."""
    embedding = native(tmp_path, 'api_key = "${MY_KEY}"\nmodel = "${MY_KEY}"', MY_KEY=KEY).settings.embedding
    assert embedding.api_key == Secret(KEY)
    assert embedding.model == "${MY_KEY}"
    assert native(tmp_path, 'api_key = "$${A}"').settings.embedding.api_key == Secret("${A}")


def test_missing_variable(tmp_path: Path) -> None:
    """A variable that is not set is an error that names it."""
    with pytest.raises(SettingsError, match="the environment variable MY_KEY is not set"):
        native(tmp_path, 'api_key = "${MY_KEY}"')


@pytest.mark.parametrize("embedding", [{"api_key": [KEY]}, {"api_key": {"value": KEY}}, KEY])
def test_wrong_kind(embedding: object) -> None:
    """A key of the wrong kind or in the wrong place is an error that does not repeat it, nor does its cause."""
    with pytest.raises(SettingsError, match="found a value of") as caught:
        load(environ={}, embedding=embedding)
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None


def test_equal_by_value() -> None:
    """Secrets compare by value, and are equal to nothing but secrets."""
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1


@pytest.mark.parametrize("spelled", [KEY, "${OPENAI_API_KEY}", {"source": "env", "id": "OPENAI_API_KEY"}])
def test_in_a_file_of_another_program(tmp_path: Path, spelled: object) -> None:
    """A key may be there itself, or as the name of a variable."""
    loaded = foreign(tmp_path, spelled, OPENAI_API_KEY=KEY)
    assert loaded.settings.agent.long_term.embedding.api_key == Secret(KEY)


@pytest.mark.parametrize("spelled", ["${OPENAI_API_KEY}", {"source": "env", "id": "OPENAI_API_KEY"}])
def test_variable_of_another_program(tmp_path: Path, spelled: object) -> None:
    """A variable that only the other program has is reported and does not spoil the file."""
    loaded = foreign(tmp_path, spelled)
    assert loaded.settings.agent.long_term.embedding.api_key is None
    assert loaded.ignored[PLACE].endswith("the environment variable OPENAI_API_KEY is not set")


def test_key_kept_elsewhere(tmp_path: Path) -> None:
    """A key that only the other program can fetch is reported."""
    loaded = foreign(tmp_path, {"source": "exec", "id": "op read key"})
    assert loaded.ignored[PLACE].endswith("kept in 'exec', which only OpenClaw can read")


def test_wrong_kind_in_a_file_of_another_program(tmp_path: Path) -> None:
    """A key that is no text is an error which does not repeat it."""
    with pytest.raises(SettingsError, match="expected text") as caught:
        foreign(tmp_path, [KEY])
    assert KEY not in str(caught.value)
