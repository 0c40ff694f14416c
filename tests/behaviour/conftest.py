from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.chat_shell import Shell


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """Return a home folder for the test."""
    for name in [name for name in os.environ if name.startswith(("HOLDFAST_", "ANTHROPIC_", "OPENAI_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOLDFAST_EMBEDDING__PROVIDER", "none")
    monkeypatch.setenv("HOLDFAST_AGENT__SESSION__RESET__MODE", "never")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return Shell(tmp_path, monkeypatch, capsys)
