"""The JSON Schema of a `holdfast.toml` agrees with what is loaded."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from holdfast.errors import SettingsError
from holdfast.settings.json_schema import make_json_schema
from holdfast.settings.table import as_dict
from holdfast_agent.settings import CHAT, load
from support.paths import ROOT

SCHEMA = make_json_schema(CHAT)


def is_valid(text: str) -> bool:
    """Return whether the schema accepts a `holdfast.toml`."""
    validator: Any = jsonschema.Draft7Validator(SCHEMA)
    return bool(validator.is_valid(tomllib.loads(text)))


def is_loaded(text: str, folder: Path) -> bool:
    """Return whether Holdfast accepts a `holdfast.toml`."""
    file = folder / "holdfast.toml"
    file.write_text(text, "utf-8")
    try:
        load(files=[file], environ={})
    except SettingsError:
        return False
    return True


def test_the_published_schema_is_up_to_date() -> None:
    """`make docs` writes it."""
    assert json.loads((ROOT / "docs" / "holdfast.schema.json").read_text("utf-8")) == SCHEMA


def test_the_schema_is_one() -> None:
    """It follows the rules of its dialect."""
    jsonschema.Draft7Validator.check_schema(SCHEMA)


def test_every_setting_is_described() -> None:
    """Editors show what a setting does and when to change it."""
    for row in CHAT.rows:
        place: Any = SCHEMA
        for part in row.key.split("."):
            tables = place.get("anyOf", [place])
            (place,) = (table["properties"][part] for table in tables if part in table.get("properties", {}))
        assert place["description"].startswith(row.description)


def test_all_defaults_are_valid() -> None:
    """A file with every default is accepted."""
    jsonschema.validate(as_dict(CHAT.struct(), schema=CHAT), SCHEMA)


def test_the_examples_of_the_docs_are_valid() -> None:
    """Every TOML block of the page of settings is accepted."""
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "settings.md").read_text("utf-8"), re.DOTALL)
    assert blocks
    assert all(is_valid(block) for block in blocks)


@pytest.mark.parametrize(
    "text",
    [
        "recall = {hard_cap_tokens = 3000}",
        "recall = {hard_cap_tokens = -1}",
        "recall = {hard_cap_tokens = '3000'}",
        "recall = {eagerness = 'generous'}",
        "recall = {eagerness = 'eager'}",
        "recall = {egerness = 'shy'}",
        "recal = {}",
        "recall = 5",
        "pruning = 'adaptive'",
        "pruning = 'sometimes'",
        "pruning = {mode = 'adaptive', ttl = '1h30m'}",
        "pruning = {ttl = 5}",
        "pruning = {ttl = '5 parsecs'}",
        "pruning = {ttl = true}",
        "server = {max_request_bytes = '2MB'}",
        "server = {max_request_bytes = 1024}",
        "server = {max_request_bytes = 'large'}",
        "server = {owner_keys = ['a', 'b']}",
        "server = {owner_keys = 'a'}",
        "model = {name = '本地模型', prices = ['本地模型 1 2']}",
        "model = {prices = ['free']}",
        "embedding = {api_key = 'k'}",
        "embedding = {provider = 'onnx'}",
        "agent = {memory_search = {qmd = {paths = ['notes', {path = 'docs', name = 'd'}]}}}",
        "agent = {memory_search = {qmd = {paths = 5}}}",
    ],
)
def test_the_schema_and_the_loader_agree(text: str, tmp_path: Path) -> None:
    """A value that one of them accepts is accepted by the other."""
    assert is_valid(text) == is_loaded(text, tmp_path)


def test_a_command_writes_the_schema() -> None:
    """`python -m holdfast.settings --schema` prints it, and another argument is refused."""
    command = [sys.executable, "-m", "holdfast.settings"]
    done = subprocess.run([*command, "--schema"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == SCHEMA
    refused = subprocess.run([*command, "--shcema"], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "--schema" in refused.stderr
