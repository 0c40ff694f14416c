"""Where the key of an encrypted store comes from, and that no error shows it."""

import sys
from pathlib import Path

import keyring
import keyring.backends.fail
import pytest

from holdfast.errors import SettingsError
from holdfast.settings import Archive, Secret, load
from holdfast.store import keys
from holdfast.store.keys import create_key, describe_source, find_key
from support.keyrings import use_own_keyring

KEY = "0123456789abcdef" * 4


def test_no_setting_is_no_key() -> None:
    """The default is a store that is not encrypted."""
    assert find_key(None) is None


def test_a_variable_has_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Letters of any case, and a line end, are fine."""
    monkeypatch.setenv("MY_KEY", f"{KEY.upper()}\n")
    assert find_key("env:MY_KEY") == Secret(KEY)


def test_a_command_prints_the_key(tmp_path: Path) -> None:
    """A quoted argument is one argument."""
    script = tmp_path / "print key.py"
    script.write_text(f"print('{KEY}')", "utf-8")
    assert find_key(f"command:'{sys.executable}' '{script}'") == Secret(KEY)


def test_a_command_is_not_run_by_a_shell(tmp_path: Path) -> None:
    """A semicolon is part of an argument."""
    target = tmp_path / "made"
    with pytest.raises(SettingsError, match="64 hexadecimal digits"):
        find_key(f"command:echo x; touch {target}")
    assert not target.exists()


def test_a_program_of_the_working_directory_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if PATH names the folder."""
    program = tmp_path / "print-key"
    program.write_text(f"#!/bin/sh\necho {KEY}\n", "utf-8")
    program.chmod(0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".:{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SettingsError, match="is not in PATH"):
        find_key("command:print-key")


def test_the_keyring_makes_and_keeps_the_key() -> None:
    """A key that is there is never replaced."""
    with use_own_keyring() as own_keyring:
        with pytest.raises(SettingsError, match="`holdfast encrypt` makes one"):
            find_key("keyring:mine")
        assert create_key("keyring:mine")
        assert not create_key("keyring:mine")
        assert find_key("keyring:mine") == Secret(own_keyring.found["holdfast", "mine"])


def test_a_machine_without_a_keyring_names_the_other_places() -> None:
    """A server has none, for example."""
    with use_own_keyring():
        keyring.set_keyring(keyring.backends.fail.Keyring())  # type: ignore[no-untyped-call]
        for use in (find_key, create_key):
            with pytest.raises(SettingsError, match=r"use env:NAME or command:"):
                use("keyring:mine")


@pytest.mark.parametrize("source", ["env:MY_KEY", "command:true"])
def test_no_key_is_made_outside_of_the_keyring(source: str) -> None:
    """There is no place to put it."""
    assert not create_key(source)


@pytest.mark.parametrize("found", ["", "short", KEY[:-1], f"{KEY}0", "密码" * 32, "correct horse battery staple"])
def test_what_is_no_key_is_refused_and_not_shown(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A password is not a key."""
    monkeypatch.setenv("MY_KEY", found)
    with pytest.raises(SettingsError) as caught:
        find_key("env:MY_KEY")
    assert not found or found not in str(caught.value)


@pytest.mark.parametrize("command", [f"sh -c 'echo {KEY} >&2; exit 3'", "no-such-program-here", "'unbalanced"])
def test_a_command_that_fails_says_so_without_its_output(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    """It may have printed the key."""
    with pytest.raises(SettingsError) as caught:
        find_key(f"command:{command}")
    assert KEY not in str(caught.value)
    assert KEY not in str(caught.value.__cause__)
    assert KEY not in "".join(capfd.readouterr())


def test_a_command_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how long it may take."""
    monkeypatch.setattr(keys, "_TIMEOUT_SECONDS", 1)
    with pytest.raises(SettingsError, match="the command took longer than 1 seconds"):
        find_key(f"command:'{sys.executable}' -c 'import time; time.sleep(3600)'")


@pytest.mark.skipif(sys.platform == "win32", reason="the programs are scripts of a shell")
def test_a_command_does_not_find_programs_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own PATH has only folders outside of it, so that a script runs the programs that the user has installed."""
    inside = tmp_path / "project" / "bin"
    outside = tmp_path / "bin"
    for folder, key in ((inside, "00" * 32), (outside, KEY)):
        folder.mkdir(parents=True)
        program = folder / "print-key"
        program.write_text(f"#!/bin/sh\necho {key}\n", "utf-8")
        program.chmod(0o700)
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("PATH", f"{inside}:bin:.:{outside}:/usr/bin:/bin")
    assert find_key("command:sh -c print-key") == Secret(KEY)


def test_the_words_of_a_command_are_not_described() -> None:
    """They may contain a password."""
    assert describe_source(f"command:echo {KEY}") == "the command"
    assert describe_source("keyring:holdfast") == "keyring:holdfast"


@pytest.mark.parametrize("given", [KEY, "env:", "keyring: ", "password:abc"])
def test_a_setting_that_names_no_place_is_refused_and_not_shown(given: str) -> None:
    """Somebody may have put the key itself there."""
    with pytest.raises(SettingsError, match="encryption_key") as caught:
        load(environ={}, archive={"encryption_key": given})
    assert KEY[:6] not in str(caught.value)
    assert "keyring:NAME" in str(caught.value)


@pytest.mark.parametrize("source", ["command:", "command: ", KEY, "touch made", "other:touch made"])
def test_a_source_that_names_no_place_runs_nothing(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option of a command is not checked as a setting is."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError) as caught:
        find_key(source)
    assert KEY[:6] not in str(caught.value)
    assert not any(tmp_path.iterdir())


def test_a_project_that_is_not_trusted_names_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting is ignored, and named in a warning."""
    path = tmp_path / "holdfast.toml"
    path.write_text('[archive]\nencryption_key = "command:touch made"\n', "utf-8")
    monkeypatch.chdir(tmp_path)
    loaded = load(files=[Path("holdfast.toml")], environ={})
    assert loaded.settings.archive == Archive()
    assert loaded.refused[Path("holdfast.toml")] == ("archive.encryption_key",)
