"""`holdfast chat` with a scripted model, inside the process of the test."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main

__all__ = ["FLUSH", "Shell"]

FLUSH = "Pre-compaction memory flush"
"""How the request begins that asks the model for notes before a compaction."""


class Shell:
    """`holdfast chat` in a home of its own, with settings files."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, heard: pytest.CaptureFixture[str]) -> None:
        self.folder, self.patch, self.heard = folder, patch, heard

    def openclaw(self, **defaults: Any) -> None:
        """Write an openclaw.json with these defaults of agents."""
        place = self.folder / ".openclaw" / "openclaw.json"
        place.parent.mkdir(exist_ok=True)
        place.write_text(json.dumps({"agents": {"defaults": defaults}}))

    def toml(self, text: str) -> None:
        """Write the user's holdfast.toml."""
        place = self.folder / ".config" / "holdfast" / "holdfast.toml"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def chat(self, said: str, *steps: Any, window: int = 200_000, options: Sequence[str] = ()) -> tuple[int, str, str]:
        """Say lines to a scripted model; the exit code, stdout and stderr."""
        script = self.folder / "script.jsonl"
        lines = [json.dumps({"text": step} if isinstance(step, str) else step) for step in steps]
        script.write_text("\n".join(lines), "utf-8")
        self.patch.setattr(sys, "stdin", io.StringIO(said))
        with pytest.raises(SystemExit) as left:
            main(["chat", "--plain", "--model", f"scripted:{script}", "--context-tokens", str(window), *options])
        shown = self.heard.readouterr()
        return int(left.value.code or 0), shown.out, shown.err
