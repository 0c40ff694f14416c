"""Print what was seen when the real hosts were run: one row for each host, from the results of `make test-hosts`.

    python scripts/hosts_table.py RESULTS.xml... [--json] [--times]

`--times` also runs each host with and without Holdfast, and adds what a prompt and a one-shot run take longer.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from holdfast.hooks.hosts import HOSTS
from holdfast.models.scripted import ScriptedReply
from holdfast.server.process import find
from support.host_model import Model, shown
from support.host_programs import PROGRAMS, Program
from support.waiting import stop_server

COLUMNS = (
    "version",
    "install",
    "archive",
    "own words",
    "other words",
    "new session",
    "clear",
    "missing",
    "hung",
    "deleted",
    "read-only",
    "uninstall",
)
TIMES = ("one-shot clock ms", "one-shot processor ms", "prompt clock ms")
RUNS = 3
NOT_RUN = {"cursor": "not run", "vscode": "not run"}
Row = dict[str, str]


def read_results(files: Sequence[Path]) -> dict[str, Row]:
    """Read the results of runs of `tests/hosts`: what each test has recorded, and "failed" for a step that failed."""
    rows: dict[str, Row] = {program.name: {"version": program.version} for program in PROGRAMS}
    cases = [case for file in files for case in ET.parse(file).iter("testcase")]  # noqa: S314 - written by pytest
    for case in cases:
        row = rows.get(_find_host(case.get("name", "")))
        if row is None:
            continue
        for recorded in case.iter("property"):
            row[recorded.get("name", "")] = recorded.get("value", "")
        if case.find("failure") is not None:
            column = _find_column(case.get("name", ""))
            row["uninstall" if row.get(column) == "yes" else column] = "failed"
    for name, reason in NOT_RUN.items():
        rows[name] = {"version": reason}
    return rows


def _find_host(case: str) -> str:
    """Return the host of a test, from its name."""
    if "openclaw" in case:
        return "openclaw"
    parameters = case.partition("[")[2].rstrip("]")
    return next((program.name for program in PROGRAMS if program.name in parameters), "")


def _find_column(case: str) -> str:
    """Return the column that a test is about, from its name."""
    for column in ("missing", "hung", "deleted", "read-only"):
        if column in case:
            return column
    if "clear" in case or "reset" in case:
        return "clear"
    if "second" in case:
        return "new session"
    return "own words"


def measure_times(program: type[Program]) -> Row:
    """Measure what a one-shot run takes longer with Holdfast, and its prompt: from the start to the model request."""
    with tempfile.TemporaryDirectory() as folder, Model() as model:
        home = Path(folder)
        (home / "work").mkdir()
        host = program(home, home / "work", model.url)
        host.prepare()
        host.patience = {}
        alone = _measure_runs(host, model)
        host.holdfast("install", host.name)
        together = _measure_runs(host, model)
        stop_server(home / "memory")
    return {name: f"{together[name] - alone[name]:+.0f}" for name in TIMES}


def _measure_runs(host: Program, model: Model) -> dict[str, float]:
    """Run turns of new sessions, after one that is not counted, and return the median of each time."""
    runs: list[dict[str, float]] = []
    for _ in range(RUNS + 1):
        host.begin_session()
        model.expect([ScriptedReply(text="Fine.")])
        prompt = f"Which colour has the door of house {len(model.arrivals)}?"
        processor = _processor_ms(host)
        started = time.monotonic()
        host.turn(prompt)
        ended = time.monotonic()
        asked = next(moment for moment, body in model.arrivals if prompt in shown(body))
        runs.append(
            {
                "one-shot clock ms": 1000 * (ended - started),
                "one-shot processor ms": _processor_ms(host) - processor,
                "prompt clock ms": 1000 * (asked - started),
            }
        )
    return {name: median(run[name] for run in runs[1:]) for name in TIMES}


def _processor_ms(host: Program) -> float:
    """Return the processor time of all commands so far, and that of the server of the hooks."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = 1000 * (used.ru_utime + used.ru_stime)
    server = find(host.home / "memory")
    if server is not None:
        fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
        total += 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def format_table(rows: Mapping[str, Row], columns: tuple[str, ...]) -> str:
    """Format the rows as a table in Markdown."""
    lines = [f"| host | {' | '.join(columns)} |", f"|{' --- |' * (len(columns) + 1)}"]
    for name, row in rows.items():
        lines.append(f"| {HOSTS[name].title} | {' | '.join(row.get(column, '–') for column in columns)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="Files of runs; a later one replaces an earlier one.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--times", action="store_true")
    arguments = parser.parse_args()
    rows = read_results(arguments.results)
    columns = COLUMNS
    if arguments.times:
        columns = COLUMNS + TIMES
        for program in PROGRAMS:
            print(f"{program.name} ...", file=sys.stderr)
            rows[program.name] |= measure_times(program)
    print(json.dumps(rows, indent=2) if arguments.json else format_table(rows, columns))


if __name__ == "__main__":
    main()
