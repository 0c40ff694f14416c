"""How fast session files are read, and how much memory that takes."""

from __future__ import annotations

import json
import resource
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from holdfast import transcripts

__all__ = ["Reading", "measure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What reading costs.

    Attributes:
        lines: Lines of the small file.
        load_ms: Milliseconds to load it whole, median of several runs; `json_ms` is the bare JSON of it.
        stream_mb: Megabytes of the large file, `stream_mb_per_s` how fast it streams.
        grown_mb: How much the peak memory of the process grew over it.
    """

    lines: int
    load_ms: float
    json_ms: float
    stream_mb: float
    stream_mb_per_s: float
    grown_mb: float


def measure(path: Path | None, *, megabytes: int, runs: int = 9) -> Reading:
    """Measure a session of 1,000 lines (or the one at `path`), and a made one of so many megabytes."""
    with tempfile.TemporaryDirectory() as folder:
        small = path or _session(Path(folder) / "small.jsonl", lines=1000)
        load = [_timed(lambda: transcripts.read(small)) for _ in range(runs)]
        plain = [_timed(lambda: [json.loads(line) for line in small.read_bytes().splitlines()]) for _ in range(runs)]
        large = _session(Path(folder) / "large.jsonl", lines=megabytes * 1000)
        before = _peak_mb()
        seconds = _timed(lambda: sum(1 for _ in transcripts.stream(large))) / 1000
        size = large.stat().st_size / 1e6
        return Reading(
            lines=small.read_bytes().count(b"\n"),
            load_ms=round(statistics.median(load), 1),
            json_ms=round(statistics.median(plain), 1),
            stream_mb=round(size, 1),
            stream_mb_per_s=round(size / seconds, 1),
            grown_mb=round(_peak_mb() - before, 1),
        )


def _timed(work: object) -> float:
    start = time.perf_counter()
    assert callable(work)
    work()
    return (time.perf_counter() - start) * 1000


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _session(path: Path, *, lines: int) -> Path:
    """A session of alternating questions, calls and results, about 1,000 bytes a line."""
    words = "the handler reads the raw body before it parses JSON 处理函数先读取原始正文 " * 10
    with path.open("w", encoding="utf-8") as file:
        header = {"type": "session", "version": 3, "id": "bench", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/"}
        file.write(json.dumps(header) + "\n")
        for number in range(1, lines):
            role = ("user", "assistant", "toolResult")[number % 3]
            message = {"role": role, "content": [{"type": "text", "text": f"{number} {words}"}], "timestamp": number}
            message |= {"toolCallId": f"call_{number}"} if role == "toolResult" else {}
            entry = {
                "type": "message",
                "id": f"{number:08x}",
                "parentId": f"{number - 1:08x}" if number > 1 else None,
                "timestamp": "2026-01-01T00:00:00.000Z",
                "message": message,
            }
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
    return path
