"""Run tests in several processes that are forked after the tests were collected: `pytest --workers auto`.

pytest-xdist starts each worker from nothing, and each imports and collects all tests again: a tenth of the time of all
tests. It is still used for coverage, and on systems that do not fork.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
import uuid
from collections import deque
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from tempfile import TemporaryFile
from typing import Any, Final

import pytest

__all__ = ["pytest_addoption", "pytest_runtestloop", "pytest_xdist_auto_num_workers"]

_DONE: Final = None
"""Is sent to a worker in place of the number of a test, and by a worker that has ended."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--workers", default="0", help="processes for the tests; 0: none; auto: as many as are useful")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return one more than there are processors: many tests wait for other processes, and for time to pass."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in forked processes, if the option says so."""
    given: str = session.config.getoption("--workers")
    count = pytest_xdist_auto_num_workers() if given == "auto" else int(given)
    if not count or session.testsfailed or session.config.option.collectonly:
        return None
    os.environ["PYTEST_XDIST_TESTRUNUID"] = uuid.uuid4().hex  # workers share a database server
    reporter: Any = session.config.pluginmanager.getplugin("terminalreporter")
    reporter.showfspath = False  # tests of many files run at once
    _Run(session, count).run()
    return True


class _Worker:
    """A worker as the first process knows it.

    Attributes:
        todo: The numbers of the tests that it will be given.
        given: Those that it has, in order: the test that runs, and the one after it, since a fixture stays for it.
    """

    def __init__(self, process: int, pipe: Connection) -> None:
        self.process = process
        self.pipe = pipe
        self.todo: deque[int] = deque()
        self.given: deque[int] = deque()
        self.is_last = False
        """Whether it has been told that there are no more."""


class _Run:
    """All workers, and the tests that are left."""

    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session = session
        self._base: Any = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # has no public name
        self._names = iter(range(len(session.items) + count))
        total = len(session.items)
        self._workers: list[_Worker] = []
        for number in range(count):
            worker = self._fork()
            self._workers.append(worker)
            worker.todo.extend(range(total * number // count, total * (number + 1) // count))

    def run(self) -> None:
        """Give tests to the workers, and report what they report."""
        for worker in self._workers:
            self._give(worker)
            self._give(worker)
        try:
            while self._workers:
                for worker in self._ready():
                    self._receive(worker)
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
        finally:
            # All pipes first: a worker also has our ends of the pipes of those that were forked before it.
            for worker in self._workers:
                worker.pipe.close()  # it ends after its test
            for worker in self._workers:
                os.waitpid(worker.process, 0)

    def _ready(self) -> Iterator[_Worker]:
        ready = wait([worker.pipe for worker in self._workers])
        return iter([worker for worker in self._workers if worker.pipe in ready])

    def _receive(self, worker: _Worker) -> None:
        """Report one phase of a test; after its last one, give the worker another test."""
        try:
            data = worker.pipe.recv()
        except EOFError:
            self._replace(worker)
            return
        if data is _DONE:
            self._workers.remove(worker)
            os.waitpid(worker.process, 0)
            return
        config = self._session.config
        report = config.hook.pytest_report_from_serializable(config=config, data=data)
        config.hook.pytest_runtest_logreport(report=report)
        if report.when == "teardown":
            item = self._session.items[worker.given.popleft()]
            config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            self._give(worker)

    def _give(self, worker: _Worker) -> None:
        """Give a worker its next test; one without tests gets half of what the busiest has left."""
        if worker.is_last:
            return
        if not worker.todo:
            busiest = max(self._workers, key=lambda one: len(one.todo))
            half = [busiest.todo.pop() for _ in range((len(busiest.todo) + 1) // 2)]
            worker.todo.extend(reversed(half))
        if worker.todo:
            worker.given.append(worker.todo.popleft())
            worker.pipe.send(worker.given[-1])
        else:
            worker.is_last = True
            worker.pipe.send(_DONE)

    def _replace(self, worker: _Worker) -> None:
        """Report a test that has ended its process, and let another process run the rest."""
        _, status = os.waitpid(worker.process, 0)
        self._workers.remove(worker)
        text = f"the process of this test has ended with status {os.waitstatus_to_exitcode(status)}"
        assert worker.given, text
        item = self._session.items[worker.given.popleft()]
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        self._session.config.hook.pytest_runtest_logreport(report=report)
        other = self._fork()
        self._workers.append(other)
        other.todo.extend((*worker.given, *worker.todo))
        self._give(other)
        self._give(other)

    def _fork(self) -> _Worker:
        name = f"worker{next(self._names)}"
        ours, theirs = Pipe()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        process = os.fork()
        if process == 0:
            ours.close()
            for other in self._workers:
                other.pipe.close()  # else it would stay open for that worker when the first process closes it
            _work(self._session, theirs, name=name, base=self._base)
        theirs.close()
        return _Worker(process, ours)


class _Reporter:
    """Sends reports to the first process."""

    def __init__(self, config: pytest.Config, pipe: Connection) -> None:
        self._config = config
        self._pipe = pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._pipe.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


def _separate_output(capture: Any) -> None:
    """Let the files that output is captured in be those of this process alone.

    They keep their numbers and stay open: functions of other packages may have `sys.stderr` of now as a default.
    """
    captured = capture._global_capturing
    for number, stream in ((1, captured.out), (2, captured.err)):
        if hasattr(stream, "targetfd"):  # else nothing is captured, or in memory
            shared = stream.tmpfile.fileno()
            with TemporaryFile(buffering=0) as own:
                if os.path.sameopenfile(number, shared):
                    os.dup2(own.fileno(), number)
                os.dup2(own.fileno(), shared, inheritable=False)


def _work(session: pytest.Session, pipe: Connection, *, name: str, base: Any) -> None:
    """Run tests until there are no more, and end the process."""
    code = 1
    config: Any = session.config
    plugins = config.pluginmanager
    capture: Any = plugins.getplugin("capturemanager")
    try:
        atexit._clear()  # those of the first process run there
        os.environ["PYTEST_XDIST_WORKER"] = name
        plugins.unregister(name="terminalreporter")
        plugins.register(_Reporter(config, pipe))
        _separate_output(capture)
        config._tmp_path_factory._basetemp = base / name
        config._tmp_path_factory._basetemp.mkdir(mode=0o700)
        current = pipe.recv()
        while current is not _DONE:
            after = pipe.recv()
            item = session.items[current]
            config.hook.pytest_runtest_protocol(item=item, nextitem=None if after is _DONE else session.items[after])
            current = after
        atexit._run_exitfuncs()
        pipe.send(_DONE)
        code = 0
    except (EOFError, ConnectionError):  # the first process stops
        atexit._run_exitfuncs()
    except BaseException:
        capture.stop_global_capturing()
        traceback.print_exc()
        raise
    finally:
        os._exit(code)
