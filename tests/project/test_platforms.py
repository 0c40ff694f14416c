"""What works on a platform without POSIX calls: the library and all commands but the agent."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.waiting import PATIENCE

SCRIPT = r'''
import asyncio, importlib.abc, multiprocessing, os, signal, subprocess, sys, sysconfig, types
import click, json5, msgspec, numpy, platformdirs, regex, rich.console, rich.live, rich.table  # decide for themselves

from filelock import FileLock

# The library has locks of every platform. Those of this one keep the calls that they need.
whole_os = types.ModuleType("os")
vars(whole_os).update(vars(os))
for module in [module for name, module in sys.modules.items() if name.startswith("filelock")]:
    if hasattr(module, "os"):
        module.os = whole_os
sysconfig.get_config_vars()
POSIX = {"fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"}


class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in POSIX:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocked())
for name in POSIX:
    sys.modules.pop(name, None)
for name in """
    O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK fchmod fork getegid geteuid getgid getloadavg getpgid getuid killpg
    mkfifo openpty setsid sysconf uname waitid
""".split():
    delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGWINCH"):
    delattr(signal, name)
os.supports_dir_fd.clear()
sys.platform = "win32"


def run(*words):
    """Run a command and return its exit code."""
    from holdfast.cli import main

    sys.argv = ["holdfast", *words]
    try:
        main()
    except SystemExit as done:
        return done.code or 0
    return 0


'''

LIBRARY = """
import pathlib
from holdfast import Engine, Message, Text
from holdfast.transcripts.session import Session as Transcript

messages = [{"role": "user", "content": "Webhook signatures have a tolerance of 300 seconds."}]
for day in range(60):
    messages += [
        {"role": "assistant", "content": f"Day {day}: the importer is at batch {day * 17}."},
        {"role": "user", "content": f"Go on with batch {day * 17 + 1}. " + f"record {day} stored; " * 60},
    ]
messages.append({"role": "user", "content": "What is the tolerance of webhook signatures?"})
with Engine.open("memory") as engine:
    session = engine.session("s1")
    assert "300 seconds" in session.assemble(messages, limit=16_000).report.recalled[0].text
    session.append([{"role": "assistant", "content": "300 seconds."}])
    assert session.search("tolerance of webhooks")
    assert engine.stats().messages > 100
transcript = Transcript.create("own.jsonl")
transcript.append_message(Message(role="user", parts=(Text(text="The port is 8443."),)))
assert len(Transcript.open("own.jsonl").context().messages) == 1
pathlib.Path("session.jsonl").write_text('{"role": "user", "content": "The port is 8443."}\\n' * 3)
for words in (
    ["doctor"], ["import", "session.jsonl"], ["recall", "which port?"], ["search", "port"], ["stats"],
    ["replay", "session.jsonl"], ["remember", "The port is 8443.", "--subject", "gateway"], ["facts"], ["reindex"],
    ["forget", "1", "--yes"], ["vacuum"],
):
    assert run(*words) == 0, words
"""

WRITERS = """
import time
from pathlib import Path
from holdfast.transcripts import journal

for _ in range(10):
    with journal.locked(Path("numbers")) as descriptor:
        lines = os.pread(descriptor, 1_000_000, 0).splitlines()
        time.sleep(0.01)
        journal.append(descriptor, b"%d\\n" % len(lines), durable=False)
"""

ONLY = """
from pathlib import Path
from holdfast.files import is_process_running, lock, only_process

with only_process(Path("lock")) as is_only:
    print(is_only, flush=True)
    sys.stdin.read()
if is_only:
    print(is_process_running(Path("lock")))
    try:
        lock(open("log", "ab"))
    except OSError:
        print("no process is told that it has a lock that its children would inherit")
"""

AGENT = """
print(run("chat", "--model", "echo", "-p", "Hello"))
"""


def start(folder: Path, code: str) -> subprocess.Popen[str]:
    """Start code in an empty folder where the modules and calls of POSIX are missing."""
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT + code],
        cwd=folder,
        env={
            "HOME": str(folder),
            "HOLDFAST_HOME": str(folder / "home"),
            "HOLDFAST_RECALL__DEADLINE_MS": "600000",  # a busy machine recalls what any other does
            "PATH": "",
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in an empty folder where the modules and calls of POSIX are missing."""
    with start(folder, code) as process:
        output, errors = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def test_the_library_and_the_commands_work_without_posix_calls(tmp_path: Path) -> None:
    """A window with recall, a session file, and the commands that read and write the memory."""
    done = run(tmp_path, LIBRARY)
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly
def test_writers_of_a_file_take_turns_without_posix_calls(tmp_path: Path) -> None:
    """Two processes write the number of lines that they have read, and no number twice."""
    (tmp_path / "numbers").touch()
    processes = [start(tmp_path, WRITERS) for _ in range(2)]
    for process in processes:
        with process:
            _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
    assert (tmp_path / "numbers").read_text() == "".join(f"{number}\n" for number in range(20))


@pytest.mark.nightly
def test_one_process_has_the_lock_without_posix_calls(tmp_path: Path) -> None:
    """The second one is told that it has not."""
    with start(tmp_path, ONLY) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "True\n"
        second = run(tmp_path, ONLY)
        output, _ = first.communicate(timeout=PATIENCE)
    assert second.stdout == "False\n"
    assert output == "False\nno process is told that it has a lock that its children would inherit\n"


@pytest.mark.nightly
def test_the_agent_is_refused_with_a_reason(tmp_path: Path) -> None:
    """`holdfast chat` exits with 1 and says where it runs instead."""
    done = run(tmp_path, AGENT)
    assert done.stdout == "1\n"
    assert "does not run on Windows" in done.stderr
    assert "WSL" in done.stderr
