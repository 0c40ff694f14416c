"""Checks of a store that need other processes: several writers, and writers that are killed."""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from holdfast.store.base import Scope, Select
from holdfast.testing.rows import HERE, Opener, find_messages, make_message, make_query, use_store, word

# Processes are forked from one that has only imported the engine, which takes half a second. Windows cannot fork.
if sys.platform == "win32":
    _CONTEXT = multiprocessing.get_context("spawn")
else:
    _CONTEXT = multiprocessing.get_context("forkserver")
    _CONTEXT.set_forkserver_preload(["holdfast.engine", "holdfast.store.folder", "holdfast.store.sqlite", __name__])
WRITERS: Final = 4
TURNS: Final = 25
KILLS: Final = 3


@contextmanager
def child(work: Callable[..., None], *args: Any) -> Iterator[tuple[BaseProcess, Connection]]:
    """Run a function in a process that reports through a pipe; kill the process at the end of the block."""
    ours, theirs = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_run, args=(dict(os.environ), work, *args, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()
        process.join()
        process.close()
        ours.close()


def _run(environ: dict[str, str], work: Callable[..., None], *args: Any) -> None:
    """Run a function with the present environment variables, not with those of the first process that was started."""
    os.environ.clear()
    os.environ.update(environ)
    work(*args)


def acknowledged_until_killed(
    reports: Connection, process: BaseProcess, *, after: int, pause: float = 0.0
) -> list[Any]:
    """Kill a process `pause` seconds after its report number `after`, and return all of its reports."""
    received: list[Any] = []
    try:
        while True:
            if len(received) == after:
                time.sleep(pause)
                process.kill()
            received.append(reports.recv())
    except (EOFError, OSError):
        return received


def run_writers(
    open_store: Opener, folder: Path, *, writers: int, turns: int, seconds: float = math.inf
) -> dict[int, str]:
    """Let processes write and read at the same time; return the text of each number that was acknowledged."""
    kept: dict[int, str] = {}
    with ExitStack() as stack:
        children = (child(_write_and_read, open_store, folder, (n, turns, seconds)) for n in range(writers))
        waiting = [stack.enter_context(each)[1] for each in children]
        while waiting:
            for pipe in wait(waiting):
                assert isinstance(pipe, Connection)
                report = pipe.recv()
                assert not isinstance(report, str), report
                if report is None:
                    waiting.remove(pipe)
                else:
                    assert report[0] not in kept, f"number {report[0]} was assigned twice"
                    kept.update([report])
    return kept


def _write_and_read(open_store: Opener, folder: Path, task: tuple[int, int, float], pipe: Connection) -> None:
    writer, turns, seconds = task
    scope = Scope(project=HERE.project, session=f"writer {writer}")
    deadline = time.monotonic() + seconds
    try:
        with use_store(open_store, folder) as store:
            for turn in takewhile(lambda _: time.monotonic() < deadline, range(turns)):
                texts = [f"{word('writer', writer)} {word('turn', turn)} {part}" for part in range(1 + turn % 7)]
                numbers = store.add_messages([make_message(text, scope=scope) for text in texts])
                for report in zip(numbers, texts, strict=True):
                    pipe.send(report)
                assert find_messages(store.search(make_query(word("turn", turn), scope=scope))), (
                    f"turn {turn} was not found"
                )
                own = store.read_messages(Select(scope=scope, newest=True, limit=1))
                assert own[0].message.text == texts[-1], "the newest message is a different one"
    except BaseException as error:  # noqa: BLE001 - reported to the process that checks
        pipe.send(f"{type(error).__name__}: {error}")
    pipe.send(None)


def processes_can_share_a_store(open_store: Opener, folder: Path) -> None:
    """Processes write and read at the same time without errors; no acknowledged row is lost, no number used twice."""
    kept = run_writers(open_store, folder, writers=WRITERS, turns=TURNS)
    with use_store(open_store, folder) as store:
        rows = store.read_messages(Select(scope=HERE, across=True))
        assert {row.id: row.message.text for row in rows} == kept
        assert [row.id for row in rows] == sorted(kept)
        for writer in range(WRITERS):
            question = make_query(word("writer", writer), across=True, limit=len(rows))
            assert len(find_messages(store.search(question))) == len(kept) // WRITERS


def acknowledged_writes_survive_a_kill(open_store: Opener, folder: Path) -> None:
    """After kill -9 at any moment, every acknowledged row is stored and can be found, and the store can be used."""
    kept: dict[int, str] = {}
    for kill in range(KILLS):
        with child(_write_without_end, open_store, folder, kill) as (process, reports):
            after = random.Random(kill).randint(1, 60)  # noqa: S311 - chance, not secrecy
            kept.update(acknowledged_until_killed(reports, process, after=after))
        with use_store(open_store, folder) as store:
            rows = {row.id: row.message.text for row in store.read_messages(Select(scope=HERE))}
            assert kept.items() <= rows.items(), "an acknowledged message is lost"
            assert set(kept) <= set(find_messages(store.search(make_query("killed", limit=len(rows)))))
            (number,) = store.add_messages([make_message(f"still alive after {kill}")])
            assert number > max(rows), "a number was assigned twice"


def _write_without_end(open_store: Opener, folder: Path, kill: int, reports: Connection) -> None:
    with use_store(open_store, folder) as store:
        for turn in range(10**9):
            texts = [f"killed {kill} {turn} {part}" for part in range(1 + turn % 40)]
            for report in zip(store.add_messages([make_message(text) for text in texts]), texts, strict=True):
                reports.send(report)
