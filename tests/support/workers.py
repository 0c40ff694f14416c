"""Run the tests in several processes that are forked once all tests are collected: `pytest --workers 3`.

pytest-xdist collects the tests in each process, and says the name of each test to each. With ten thousand tests, that
takes as long as two thousand of them. Coverage, and systems on which a process cannot be forked safely, need it.
"""

from __future__ import annotations

import atexit
import os
import struct
import sys
import traceback
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from tempfile import TemporaryFile
from typing import Any, Final, NoReturn

import pytest
from _pytest.capture import FDCapture
from _pytest.runner import runtestprotocol

__all__ = ["RUN"]

RUN: Final = "RUN_OF_HOLDFAST_TESTS"
"""The variable with the name of a run, which all of its processes have in common; it is not one of Holdfast's."""
_MAX_TESTS: Final = 40
"""Tests of one file that a process takes at a time: those of most files, so that fixtures of a file are made once."""
_NUMBER: Final = struct.Struct("<I")
_ENDED: Final = "ended"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the number of processes."""
    parser.addoption("--workers", type=_read_number, default=0, help="processes that run the tests, or `auto`")


def _read_number(text: str) -> int:
    """Read a number. `auto` is two more than there are processors: many tests wait for time to pass.

    On two processors, four processes take 4 min 31 s, three 5 min 14 s.
    """
    return (os.cpu_count() or 1) + 2 if text == "auto" else int(text)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the collected tests in processes, and report here what they report."""
    number = session.config.getoption("workers")
    if not number or session.testsfailed or session.config.option.collectonly:
        return None
    os.environ[RUN] = uuid.uuid4().hex
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # the folder of all processes
    sys.stdout.flush()
    sys.stderr.flush()
    workers = _start(session, number)
    try:
        _report(session, workers)
    finally:
        for worker in workers:
            worker.reports.close()
        for worker in workers:
            os.waitpid(worker.process, 0)
    return True


@dataclass(frozen=True)
class _Worker:
    process: int
    reports: Connection


def _start(session: pytest.Session, number: int) -> list[_Worker]:
    chunks = list(_divide(session.items))
    reading, writing = os.pipe()  # the queue: a process reads the number of the chunk that it takes
    workers: list[_Worker] = []
    for name in range(number):
        ours, theirs = Pipe(duplex=False)
        process = os.fork()
        if process == 0:
            ours.close()
            os.close(writing)
            _work(session, chunks, reading, theirs, name)
        theirs.close()
        workers.append(_Worker(process, ours))
    os.close(reading)
    os.write(writing, b"".join(_NUMBER.pack(index) for index in range(len(chunks))))
    os.close(writing)
    return workers


def _divide(items: Sequence[pytest.Item]) -> Iterator[list[pytest.Item]]:
    """Yield the tests of each file, those of large files in several parts, and those with a common marker together."""
    together: dict[str, list[pytest.Item]] = {}
    for item in items:
        if marker := item.get_closest_marker("together"):
            together.setdefault(marker.args[0], []).append(item)
    yield from together.values()
    others = (item for item in items if not item.get_closest_marker("together"))
    for _, group in groupby(others, key=lambda item: item.path):
        tests = list(group)
        for start in range(0, len(tests), _MAX_TESTS):
            yield tests[start : start + _MAX_TESTS]


def _report(session: pytest.Session, workers: Sequence[_Worker]) -> None:
    hook = session.config.hook
    open_ends = {worker.reports: "before its first test" for worker in workers}
    while open_ends:
        for end in wait(list(open_ends)):
            assert isinstance(end, Connection)
            try:
                message = end.recv()
            except EOFError:
                session.shouldfail = f"a process ended {open_ends.pop(end)}"
                continue
            if message == _ENDED:
                del open_ends[end]
                continue
            for data in message:
                report = hook.pytest_report_from_serializable(config=session.config, data=data)
                hook.pytest_runtest_logreport(report=report)
                open_ends[end] = f"after {report.nodeid}"
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)


# --- in a process --------------------------------------------------------------------


def _work(
    session: pytest.Session, chunks: Sequence[Sequence[pytest.Item]], queue: int, reports: Connection, name: int
) -> NoReturn:
    """Run chunks of tests until none is left."""
    config: Any = session.config
    try:
        _separate_output(config)
        config._tmp_path_factory._basetemp = config._tmp_path_factory.mktemp(f"worker{name}", numbered=False)
        config.pluginmanager.register(_Sender(reports))
        tests = (item for chunk in _take(chunks, queue) for item in chunk)
        item = next(tests, None)
        while item is not None:
            following = next(tests, None)
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item = following
        atexit._run_exitfuncs()  # servers that tests have started end here
        reports.send(_ENDED)
    except BaseException as error:  # noqa: BLE001 - the process must not go on as another pytest
        session._setupstate.teardown_exact(None)
        atexit._run_exitfuncs()
        if not isinstance(error, KeyboardInterrupt | BrokenPipeError):
            traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _separate_output(config: Any) -> None:
    """Capture what tests print in files of this process; those that were open would be files of all processes.

    The numbers of the files stay: modules that were imported before have `sys.stderr` as a default of an argument.
    """
    capturing = config.pluginmanager.getplugin("capturemanager")._global_capturing
    for captured in (capturing.out, capturing.err):
        if isinstance(captured, FDCapture):
            with TemporaryFile() as file:
                os.dup2(file.fileno(), captured.tmpfile.fileno())


def _take(chunks: Sequence[Sequence[pytest.Item]], queue: int) -> Iterator[Sequence[pytest.Item]]:
    """Yield chunks that no other process takes."""
    while data := os.read(queue, _NUMBER.size):
        yield chunks[_NUMBER.unpack(data)[0]]


@dataclass(frozen=True)
class _Sender:
    """Sends what a test reports to the first process."""

    reports: Connection

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test."""
        hook = item.config.hook
        found = runtestprotocol(item, log=False, nextitem=nextitem)
        self.reports.send([hook.pytest_report_to_serializable(config=item.config, report=one) for one in found])
        return True
