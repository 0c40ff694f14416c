"""A host that writes its transcript and runs `holdfast hook` for every event, as Claude Code does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.forked import run_holdfast

__all__ = ["Host"]


class Host:
    """A session of a host, with the memory in a folder next to its transcript."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "memory"
        self.address = ""
        """The address of the memory that the command names, if it is on a server."""
        self.file = folder / "session.jsonl"
        self.lines: list[dict[str, Any]] = []
        self.environ: dict[str, str] = {}
        self.prepare: Callable[[], None] | None = None
        """Is called in the process of the hook, before the command runs."""

    def write(self, role: str, text: str, **fields: Any) -> None:
        """Add a message to the transcript."""
        number = len(self.lines)
        parent = self.lines[-1]["uuid"] if self.lines else None
        line = {
            "type": role,
            "uuid": f"00000000-0000-4000-8000-{number:012d}",
            "parentUuid": parent,
            "sessionId": "s1",
            "cwd": "/srv/shop",
            "timestamp": f"2026-03-02T10:{number:02d}:00.000Z",
            "message": {"role": role, "content": text},
            **fields,
        }
        self.lines.append(line)
        self.file.write_text("".join(json.dumps(one) + "\n" for one in self.lines), "utf-8")

    def payload(self, event: str, **fields: Any) -> dict[str, Any]:
        """Return what the host sends for an event."""
        known = {"session_id": "s1", "transcript_path": str(self.file), "cwd": "/srv/shop", "hook_event_name": event}
        return {**known, **fields}

    def ask(self, event: str, **fields: Any) -> dict[str, Any]:
        """Run the command for an event, and return its answer."""
        command = ["hook", "--home", self.address or str(self.home)]
        payload = json.dumps(self.payload(event, **fields))
        environ = os.environ | self.environ
        if self.prepare is None:
            done = run_holdfast(*command, stdin=payload, env=environ)
        else:
            done = subprocess.run(
                [sys.executable, "-m", "holdfast", *command],
                input=payload,
                env=environ,
                preexec_fn=self.prepare,
                capture_output=True,
                text=True,
                check=True,
            )
        assert not done.stderr
        output: dict[str, Any] = json.loads(done.stdout or "{}")
        return output

    def run(self, event: str, **fields: Any) -> str:
        """Run the command for an event, and return the context that it adds."""
        return str(self.ask(event, **fields).get("hookSpecificOutput", {}).get("additionalContext", ""))
