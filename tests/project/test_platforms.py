"""What works on a platform without POSIX calls: the library and all commands but the agent."""

import subprocess
import sys
from pathlib import Path

SCRIPT = r'''
import asyncio, importlib.abc, multiprocessing, os, signal, subprocess, sys, sysconfig
import click, json5, msgspec, numpy, platformdirs, regex, rich.console, rich.live, rich.table  # decide for themselves

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

AGENT = """
print(run("chat", "--model", "echo", "-p", "Hello"))
"""


def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in an empty folder where the modules and calls of POSIX are missing."""
    return subprocess.run(
        [sys.executable, "-c", SCRIPT + code],
        cwd=folder,
        env={
            "HOME": str(folder),
            "HOLDFAST_HOME": str(folder / "home"),
            "HOLDFAST_RECALL__DEADLINE_MS": "600000",  # a busy machine recalls what any other does
            "PATH": "",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_the_library_and_the_commands_work_without_posix_calls(tmp_path: Path) -> None:
    """A window with recall, a session file, and the commands that read and write the memory."""
    done = run(tmp_path, LIBRARY)
    assert done.returncode == 0, done.stderr


def test_the_agent_is_refused_with_a_reason(tmp_path: Path) -> None:
    """`holdfast chat` exits with 1 and says where it runs instead."""
    done = run(tmp_path, AGENT)
    assert done.stdout == "1\n"
    assert "does not run on Windows" in done.stderr
    assert "WSL" in done.stderr
