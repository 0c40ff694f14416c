"""The page of all settings, and the schema behind it."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.settings.reference import COMMON, render_reference
from holdfast.settings.table import struct_of
from holdfast_agent.settings import CHAT, ChatSettings, load
from support.paths import ROOT

PAGE = ROOT / "docs" / "settings.md"


def test_the_page_is_up_to_date() -> None:
    """`docs/settings.md` is what the schema says; `make docs` writes it."""
    assert PAGE.read_text(encoding="utf-8") == render_reference(CHAT)


def test_the_command_writes_the_page(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m holdfast.settings` prints the page."""
    monkeypatch.setattr("sys.argv", ["settings"])
    runpy.run_module("holdfast.settings", run_name="__main__")
    assert capsys.readouterr().out == render_reference(CHAT)


def test_every_setting_has_a_row_with_all_its_names() -> None:
    """Each setting is on the page with its variable, its places in openclaw.json, kind, default and sentence."""
    _, _, tables = render_reference(CHAT).partition("\n## The engine\n")
    rows = {line.split("`")[1]: line for line in tables.splitlines() if line.startswith("| `")}
    assert sorted(rows) == sorted(row.key for row in CHAT.rows)
    for row in CHAT.rows:
        line = rows[row.key]
        assert all(f"`{name}`" in line for name in (row.variable, *row.openclaw))
        assert row.kind in line
        assert row.description in line
        assert row.when in line


def test_the_page_begins_with_the_ten_settings_that_people_change() -> None:
    """A table of ten, with the default and the reason to change it, before everything else; then engine and agent."""
    page = render_reference(CHAT)
    first, _, rest = page.partition("\n## ")
    assert [line.split("`")[1] for line in first.splitlines() if line.startswith("| `")] == list(COMMON)
    assert len(COMMON) == 10
    assert "| setting | default | when to change it |" in first
    assert rest.index("## The engine") < rest.index("### `recall`") < rest.index("## The agent")
    assert rest.index("## The agent") < rest.index("### `agent.workspace`")


def test_every_setting_is_described_in_one_sentence() -> None:
    """Each setting has a description that ends in one full stop."""
    for row in CHAT.rows:
        assert re.fullmatch(r"[A-Z`'].*[^.]\.", row.description), row.key
        assert "|" not in row.description


def test_every_setting_describes_when_to_change_it() -> None:
    """Each setting has one sentence on who would change it."""
    for row in CHAT.rows:
        assert re.fullmatch(r"(If|To|Before) .*[^.]\.", row.when), row.key
        assert "|" not in row.when


def test_every_section_has_a_description() -> None:
    """Each section, however deep, has a sentence of its own and forbids unknown fields."""
    pending: list[type[msgspec.Struct]] = [ChatSettings]
    while pending:
        section = pending.pop()
        assert section.__doc__
        assert section.__struct_config__.frozen
        assert section.__struct_config__.forbid_unknown_fields
        below = (struct_of(field.type) for field in msgspec.structs.fields(section))
        pending += [struct for struct in below if struct is not None]


def test_defaults_are_valid() -> None:
    """Every default passes the check that a user's value would have to pass."""
    for row in CHAT.rows:
        assert msgspec.convert(row.default, row.type) == row.default


def test_names_are_unique() -> None:
    """No two settings share a name in any source, and rivals name each other."""
    for names in (
        [row.key for row in CHAT.rows],
        [row.variable for row in CHAT.rows],
        [path for row in CHAT.rows for path in row.openclaw],
    ):
        assert len(names) == len(set(names))
    rivals = {row.key: row.rival for row in CHAT.rows if row.rival}
    assert all(rivals[rival] == key for key, rival in rivals.items())


def test_the_example_on_the_page_works(tmp_path: Path) -> None:
    """The TOML on the page can be loaded."""
    example = re.search(r"```toml\n(.*?)```", render_reference(CHAT), re.DOTALL)
    assert example
    path = tmp_path / "holdfast.toml"
    path.write_text(example[1], encoding="utf-8")
    settings = load(files=[path], environ={}).settings
    assert settings.recall.hard_cap_tokens == 3000
    assert settings.compaction.memory_flush.soft_threshold == 0.7
    assert settings.agent.session.reset.mode == "never"


def test_import_is_light() -> None:
    """Parsers of files are imported when a file is read, not before."""
    code = (
        "import sys, holdfast_agent.settings\n"
        "print(*({'json5', 'tomllib', 'platformdirs', 'numpy'} & sys.modules.keys()))"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
