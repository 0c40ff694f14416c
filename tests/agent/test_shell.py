"""Commands: what they print, how they end, and that nothing of them is left."""

import os
import signal
import threading
from functools import partial
from pathlib import Path

import pytest

from holdfast.errors import InputError
from holdfast_agent import shell
from holdfast_agent.shell import environment, run
from support.waiting import time_is_over_with, until, when


def is_running(pid: int) -> bool:
    """Whether a process is there and no mere zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rsplit(")", 1)[1].split()[0] not in {"Z", "X"}
    except FileNotFoundError:
        return False


def ends(file: Path) -> None:
    """The process whose number stands in a file is there no longer, or not for long."""
    pid = int(file.read_text("utf-8"))
    until(lambda: not is_running(pid))


def test_output_and_status(tmp_path: Path) -> None:
    """Both streams come in one, in order, with the exit status."""
    ran = run("echo one; echo 二 >&2; pwd; exit 7", cwd=tmp_path, seconds=60)
    assert ran.output == f"one\n二\n{tmp_path}\n"
    assert (ran.status, ran.ended) == (7, "exit")


def test_nothing_can_be_typed(tmp_path: Path) -> None:
    """A command that reads its input sees the end of it at once."""
    assert run("cat; echo done", cwd=tmp_path, seconds=60).output == "done\n"


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    """What is not UTF-8 is shown as far as it can be."""
    assert run(r"printf 'a\xffb'", cwd=tmp_path, seconds=60).output == "a\ufffdb"


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_time_is_over_for_the_whole_group(tmp_path: Path, trap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the time is over the command and its children end, also those that ignore being asked."""
    monkeypatch.setattr(shell, "_GRACE", 0.2)
    time_is_over_with(tmp_path / "ready", monkeypatch)
    command = f"{trap}(sleep 300 & echo $! > child; echo started; touch ready; wait) & wait; sleep 300"
    ran = run(command, cwd=tmp_path, seconds=200)
    assert (ran.ended, ran.status, ran.output) == ("timeout", None, "started\n")
    ends(tmp_path / "child")


def test_a_command_can_be_called_off(tmp_path: Path) -> None:
    """Setting the event ends a running command soon; what it has printed is known."""
    cancel = threading.Event()
    with when((tmp_path / "ready").exists, cancel.set):
        ran = run("echo $$ > pid; echo here; touch ready; sleep 300", cwd=tmp_path, seconds=200, cancel=cancel)
    assert (ran.ended, ran.output) == ("cancelled", "here\n")
    ends(tmp_path / "pid")


def test_an_interruption_leaves_nothing_behind(tmp_path: Path) -> None:
    """Ctrl-C continues to the caller, and the command is gone."""
    interrupt = partial(os.kill, os.getpid(), signal.SIGINT)
    command = "echo $$ > pid; head -c 200000 /dev/zero; touch ready; sleep 300"  # ready when much of it was read
    with pytest.raises(KeyboardInterrupt), when((tmp_path / "ready").exists, interrupt):
        run(command, cwd=tmp_path, seconds=200)
    ends(tmp_path / "pid")


def test_what_stays_in_the_background_is_ended(tmp_path: Path) -> None:
    """A command is over when its shell is, whoever still holds its output; what it left behind ends."""
    ran = run("sleep 300 & echo $! | tee pid", cwd=tmp_path, seconds=200)
    assert (ran.ended, ran.status) == ("exit", 0)
    assert ran.output == (tmp_path / "pid").read_text("utf-8")
    ends(tmp_path / "pid")


@pytest.mark.parametrize(("cancelled", "ended"), [(False, "timeout"), (True, "cancelled")])
def test_a_command_that_runs_without_output(
    tmp_path: Path,
    cancelled: bool,  # noqa: FBT001 - a table
    ended: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Closing its output does not free a command of its limits."""
    cancel = threading.Event()
    closed = tmp_path / "closed"
    if not cancelled:
        time_is_over_with(closed, monkeypatch)
    with when(closed.exists, cancel.set if cancelled else closed.exists):
        ran = run("exec >&- 2>&-; touch closed; sleep 300", cwd=tmp_path, seconds=200, cancel=cancel)
    assert ran.ended == ended


def test_a_silent_command_that_ends(tmp_path: Path) -> None:
    """It is waited for, and its status is known."""
    ran = run("exec >&- 2>&-; sleep 0.2; exit 4", cwd=tmp_path, seconds=200)
    assert (ran.ended, ran.status) == ("exit", 4)


def test_a_system_that_cannot_look_without_reaping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `waitid` is missing commands end all the same, with their status or in time."""
    monkeypatch.delattr(os, "waitid")
    assert run("exit 5", cwd=tmp_path, seconds=60).status == 5
    assert run("sleep 60", cwd=tmp_path, seconds=0.2).ended == "timeout"


def test_very_much_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more than is kept, the beginning and the end remain, and what is missing is counted."""
    monkeypatch.setattr(shell, "MAX_OUTPUT_BYTES", 10_000)
    ran = run("seq 1 100000", cwd=tmp_path, seconds=60)
    assert ran.output.startswith("1\n2\n3\n")
    assert ran.output.endswith("\n100000\n")
    dropped = sum(len(f"{number}\n") for number in range(1, 100_001)) - 10_000
    assert f"[... {dropped:,} bytes were not kept ...]" in ran.output


def test_a_command_that_cannot_start(tmp_path: Path) -> None:
    """A folder that is not there, or a null byte, is an error that says so."""
    with pytest.raises(InputError, match="cannot be started"):
        run("true", cwd=tmp_path / "none", seconds=1)
    with pytest.raises(InputError, match="cannot be started"):
        run("echo \0", cwd=tmp_path, seconds=1)


def test_keys_of_providers_stay_here(tmp_path: Path) -> None:
    """A command does not see the keys that pay for the model; everything else is as it was."""
    given = {"OPENAI_API_KEY": "a", "MY_API_TOKEN": "b", "PATH": os.environ["PATH"], "EDITOR": "vi"}
    assert environment(given).keys() & given.keys() == {"PATH", "EDITOR"}
    ran = run("echo ${OPENAI_API_KEY:-none} $EDITOR $PAGER", cwd=tmp_path, seconds=60, environ=given)
    assert ran.output == "none vi cat\n"


def test_the_key_of_the_store_stays_here() -> None:
    """It may be in any variable, and a model that lists them would send it to the provider."""
    given = {"K1": "0123456789abcdef" * 4, "COMMIT": "0123456789abcdef" * 2}
    assert environment(given).keys() & given.keys() == {"COMMIT"}
