"""A conversation with a real model behind a real server, where one is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from holdfast.transcripts import read
from support.local_model import local_model, needs_local_model


@needs_local_model
def test_a_real_model_talks(tmp_path: Path) -> None:
    """Two turns in one conversation: words come, tokens are counted, and the transcript has it all."""
    own = {"HOME": str(tmp_path), "HOLDFAST_HOME": str(tmp_path / "memory"), "HOLDFAST_EMBEDDING__PROVIDER": "none"}
    with local_model(context_tokens=8_192) as name:
        command = [sys.executable, "-m", "holdfast", "chat", "--model", name, "--context-tokens", "8192", "--json"]
        for said in ("Say hello.", "Say goodbye."):
            done = subprocess.run(
                [*command, "-p", said],
                input="",
                capture_output=True,
                text=True,
                check=False,
                cwd=tmp_path,
                env={**os.environ, **own},
                timeout=600,
            )
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["usage"]["output"] > 0
    (file,) = (tmp_path / "memory" / "agents" / "main" / "sessions").glob("*.jsonl")
    assert [message.role for message in read(file).messages[:2]] == ["user", "assistant"]
