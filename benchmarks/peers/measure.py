"""Ask every system every question, in processes of their own, and compare what they put into a prompt."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.datasets import Conversation, Question, load
from benchmarks.peers.environments import Environment, InstallError, System, prepare
from benchmarks.peers.evidence import Passage, compare, fill, find_share
from benchmarks.recall import Remembering, by_limit
from holdfast.embed import Embedder, choose
from holdfast.errors import InputError
from holdfast.settings import Settings
from holdfast.tokens import count_text

__all__ = ["BUDGETS", "SETS", "Part", "choose_sets", "count_parts", "find_parts", "make_rows", "measure"]

BUDGETS: Final = (1000, 2000, 4000)
LIMIT: Final = 200
"""The most passages that a system is asked for: more than the largest budget has room for."""
MAX_PART_SECONDS: Final = 3600
"""A system that takes longer for one part is stopped."""
SETS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "locomo": ("locomo", ("locomo/*.json",)),
    "beam": ("beam", ("beam/100K",)),
    "realmem": ("realmem", ("realmem",)),
    "longmemeval": ("longmemeval-s", ("longmemeval/*_s*.json", "longmemeval/*oracle*.json")),
    "longmemeval-pool": ("longmemeval-pool", ("longmemeval/*oracle*.json",)),
}
"""The data sets by the name used on the command line: their loader, and where they are in the folder of the data."""
OURS: Final = "holdfast"


class StoppedError(Exception):
    """A system stopped, or answered with something else than it should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One conversation of a data set, and its number there."""

    name: str
    number: int
    conversation: Conversation


def find_parts(
    data: Path, *, sets: Sequence[str], parts: int | None = None, questions: int | None = None
) -> list[Part]:
    """Load the conversations of those data sets that are in a folder.

    `parts` and `questions` limit the conversations of a set and the questions of a conversation; those that are used
    are spread evenly.
    """
    found: list[Part] = []
    for name in sets:
        loader, patterns = SETS[name]
        path = next((path for pattern in patterns for path in sorted(data.glob(pattern))), None)
        if path is None:
            continue
        loaded = list(enumerate(load(loader, path)))
        for number, conversation in _spread(loaded, parts):
            asked = tuple(_spread(conversation.questions, questions))
            found.append(Part(name=name, number=number, conversation=replace(conversation, questions=asked)))
    if not found:
        raise InputError(f"{data}: none of the data sets {', '.join(sets)} is here; see docs/benchmarks-running.md")
    return found


def _spread(values: Sequence[Any], count: int | None) -> list[Any]:
    if count is None or count >= len(values):
        return list(values)
    return [values[place * len(values) // count] for place in range(count)]


def choose_sets(names: str | None) -> list[str]:
    """Return the data sets of a list of names with commas between them; all of them without one."""
    if not names:
        return list(SETS)
    chosen = [name.strip() for name in names.split(",")]
    for name in chosen:
        if name not in SETS:
            raise InputError(f"{name!r} is not one of {', '.join(SETS)}")
    return chosen


def count_parts(parts: Sequence[Part]) -> dict[str, dict[str, int]]:
    """Count the parts, messages and questions of each data set."""
    counts: dict[str, dict[str, int]] = {}
    for part in parts:
        row = counts.setdefault(part.name, {"parts": 0, "messages": 0, "questions": 0})
        row["parts"] += 1
        row["messages"] += sum(len(session.turns) for session in part.conversation.sessions)
        row["questions"] += len(part.conversation.questions)
    return counts


# --- one system ------------------------------------------------------------------


class Worker:
    """A system in a process of its own; see `worker.py` for what is sent and received."""

    def __init__(self, system: System, environment: Environment, embedder: Embedder, folder: Path) -> None:
        self._embedder = embedder
        self._errors = folder / "errors.txt"
        home = folder / "home"
        home.mkdir()
        command = [str(environment.python), "-P", str(Path(__file__).with_name("worker.py"))]
        with self._errors.open("w", encoding="utf-8") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - a file of ours
                [*command, str(system.file), system.class_name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
                cwd=folder,
                env=_environ(home),
                start_new_session=True,  # some systems start servers, which would keep the pipes open
            )

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request, give the system the vectors that it needs, and return the answer."""
        if self._process.stdin is None or self._process.stdout is None:
            raise StoppedError("no pipe")
        try:
            while True:
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
                if not line:
                    raise StoppedError(self._last_error())
                answer: dict[str, Any] = json.loads(line)
                if "embed" not in answer:
                    return answer
                vectors = self._embedder.embed(answer["embed"], kind="passage")
                request = {"vectors": base64.b64encode(vectors.astype("<f4").tobytes()).decode()}
        except BrokenPipeError:
            raise StoppedError(self._last_error()) from None

    def stop(self) -> None:
        """Stop the process and those that it started; a request that waits for it fails."""
        if os.name == "nt":
            self._process.kill()
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Stop the process, and close its pipes."""
        self.stop()
        self._process.communicate()

    def _last_error(self) -> str:
        self._process.wait(timeout=60)
        lines = self._errors.read_text("utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit status {self._process.returncode}"


def _environ(home: Path) -> dict[str, str]:
    """Return an environment in which a system uses one thread, no network, and nothing of the user's."""
    kept = {name: value for name, value in os.environ.items() if name in {"PATH", "LANG", "SYSTEMROOT", "TMPDIR"}}
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "TOKIO_WORKER_THREADS"), "1")
    offline = {"ANONYMIZED_TELEMETRY": "False", "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
    return {**kept, **one, **offline, "HOME": str(home), "USERPROFILE": str(home), "PYTHONUTF8": "1"}


def measure_part(worker: Worker, part: Part) -> dict[str, Any]:
    """Give a system the messages of a part and ask it the questions; return shares, sizes and times."""
    conversation = part.conversation
    ingest = {"wall": 0.0, "cpu": 0.0}
    asked: list[dict[str, Any]] = []
    done = 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        watch = threading.Timer(MAX_PART_SECONDS, worker.stop)
        watch.start()
        try:
            worker.ask({"open": folder})
            for limit, questions in by_limit(conversation):
                documents = make_documents(conversation, start=done, stop=limit)
                done = max(done, limit)
                if documents:
                    spent = worker.ask({"add": documents})
                    ingest = {name: ingest[name] + spent[name] for name in ingest}
                for question in questions:
                    asked.append(_ask(worker, conversation, question))
        finally:
            watch.cancel()
    messages = sum(len(session.turns) for session in conversation.sessions[:done])
    return {"messages": messages, "ingest": ingest, "questions": asked}


def make_documents(conversation: Conversation, *, start: int, stop: int) -> list[dict[str, Any]]:
    """Return the messages of sessions as a system gets them; `text` begins with the name of a speaker who has one."""
    documents: list[dict[str, Any]] = []
    for number in range(start, stop):
        session = conversation.sessions[number]
        moment = 0 if session.date is None else int(session.date.timestamp() * 1000)
        for place, turn in enumerate(session.turns):
            if not turn.text.strip():
                continue
            documents.append(
                {
                    "id": f"{number}-{place}",
                    "session": number,
                    "time": moment,
                    "role": turn.role,
                    "speaker": turn.speaker,
                    "plain": turn.text,
                    "text": _prefix(turn.speaker) + turn.text,
                }
            )
    return documents


def _prefix(speaker: str) -> str:
    return f"{speaker}: " if speaker else ""


def _ask(worker: Worker, conversation: Conversation, question: Question) -> dict[str, Any]:
    moment = 0 if question.date is None else int(question.date.timestamp() * 1000)
    request = {"ask": {"text": question.text, "time": moment}, "limit": LIMIT, "budgets": BUDGETS}
    answer = worker.ask(request)
    if "blocks" in answer:
        blocks = [answer["blocks"][str(budget)] for budget in BUDGETS]
    else:
        passages = [read_passage(conversation, found) for found in answer["found"]]
        blocks = [fill(passages, budget=budget) for budget in BUDGETS]
    return {
        "shares": [round(find_share(question, conversation, block), 4) for block in blocks],
        "tokens": [count_text(block) for block in blocks],
        "wall": answer["wall"],
        "cpu": answer["cpu"],
    }


def read_passage(conversation: Conversation, found: Mapping[str, Any]) -> Passage:
    """Return what a system found as a passage; one that was cut from a whole session names its speakers itself."""
    if "id" in found:
        session, place = map(int, found["id"].split("-"))
        turn = conversation.sessions[session].turns[place]
        speaker = turn.speaker or turn.role
        text = found["text"].removeprefix(_prefix(turn.speaker))
    else:
        session = found["session"]
        speaker = "chat"
        text = found["text"]
    date = conversation.sessions[session].date
    moment = 0 if date is None else int(date.timestamp() * 1000)
    return Passage(text=text, speaker=speaker, time=moment, session=session)


# --- all of them -------------------------------------------------------------------


def measure(
    parts: Sequence[Part],
    *,
    systems: Mapping[str, System],
    results: Path | None = None,
    processes: int = 1,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Measure systems on parts of data sets; the JSON that `python -m benchmarks peers` prints.

    Args:
        parts: The conversations.
        systems: The systems by name.
        results: A folder in which the result of every part is saved, and read if it is there already.
        processes: How many parts are measured at the same time; more than one needs `results`.
        progress: Called with a line for each step.

    Returns:
        For each data set the share of evidence, tokens and times of each system, and the difference to Holdfast; the
        versions; and the reason for each system that could not be measured.
    """
    shared = _load_embedder()
    environments, reasons = _install(systems, progress)
    if processes > 1:
        if results is None:
            raise InputError("several processes need a folder for the results: --results")
        _measure_side_by_side(parts, systems=systems, environments=environments, results=results, processes=processes)
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for part in parts:
            for name, environment in environments.items():
                if name in reasons:
                    continue
                file = None if results is None else _result_file(results, part, name, systems[name])
                if file is not None and file.is_file():
                    row = json.loads(file.read_text("utf-8"))
                else:
                    if name not in workers:
                        worker = Worker(systems[name], environment, shared, _make_folder(stack))
                        stack.callback(worker.close)
                        workers[name] = worker
                    try:
                        row = measure_part(workers[name], part)
                    except StoppedError as error:
                        reasons[name] = f"{part.name} {part.number}: {error}"
                        progress(f"{name}: {reasons[name]}")
                        continue
                    if file is not None:
                        _save(file, row)
                found.setdefault(part.name, {}).setdefault(name, []).append(row)
                shares = np.mean([one["shares"] for one in row["questions"]], axis=0).round(3).tolist()
                progress(f"{part.name} {part.number} {name} {shares} {row['ingest']['wall']:.1f} s")
    counts = count_parts(parts)
    return {
        "budgets": BUDGETS,
        "embedder": shared.space.name,
        "parts": counts,
        "versions": {
            name: {"package": systems[name].package, "version": environment.versions[systems[name].package]}
            for name, environment in environments.items()
        },
        "sets": {name: _sum_up(rows, parts=counts[name]["parts"]) for name, rows in found.items()},
        "not_measured": reasons,
    }


def _measure_side_by_side(
    parts: Sequence[Part],
    *,
    systems: Mapping[str, System],
    environments: Mapping[str, Environment],
    results: Path,
    processes: int,
) -> None:
    """Save the results that are missing. What fails here is tried once more by the caller, who says why."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        # The slowest parts first, so that no processor is left with one of them at the end.
        for part in sorted(parts, key=lambda part: -len(part.conversation.questions)):
            for name, environment in environments.items():
                file = _result_file(results, part, name, systems[name])
                if not file.is_file():
                    pool.submit(_measure_and_save, part, systems[name], environment, file)


def _measure_and_save(part: Part, system: System, environment: Environment, file: Path) -> None:
    with ExitStack() as stack:
        worker = Worker(system, environment, _load_embedder(), _make_folder(stack))
        stack.callback(worker.close)
        _save(file, measure_part(worker, part))


@cache
def _load_embedder() -> Embedder:
    """Return the default embedder, with the vectors that this process has made before."""
    embedder = choose(Settings().embedding).embedder
    if embedder is None:
        raise InputError("the default embedder is not installed: pip install 'holdfast-memory[local]'")
    return Remembering(embedder)


def _install(
    systems: Mapping[str, System], progress: Callable[[str], None]
) -> tuple[dict[str, Environment], dict[str, str]]:
    """Return the environment of each system, or the reason why it has none."""
    environments: dict[str, Environment] = {}
    reasons: dict[str, str] = {}
    for name, system in systems.items():
        try:
            environments[name] = prepare(system)
        except InstallError as error:
            reasons[name] = str(error)
            progress(f"{name}: {error}")
        else:
            progress(f"{name} {environments[name].versions[system.package]}")
    return environments, reasons


def _make_folder(stack: ExitStack) -> Path:
    """Make a folder that is removed at the end of a run."""
    return Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))


def _result_file(folder: Path, part: Part, name: str, system: System) -> Path:
    """Return the file of a result, named after all that it depends on but the code of Holdfast."""
    described = "\n".join(
        (
            *system.requirements,
            system.file.read_text("utf-8"),
            *(question.text for question in part.conversation.questions),
        )
    )
    digest = hashlib.sha256(described.encode()).hexdigest()[:12]
    return folder / f"{part.name}-{part.number}-{name}-{digest}.json"


def _save(file: Path, row: Mapping[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_suffix(".part")
    aside.write_text(json.dumps(row), "utf-8")
    aside.replace(file)


def _sum_up(rows: Mapping[str, Sequence[Mapping[str, Any]]], *, parts: int) -> dict[str, Any]:
    """Sum up the parts of a data set; systems that did not finish all of them are left out."""
    systems: dict[str, Any] = {}
    shares = {
        name: np.array([one["shares"] for row in own for one in row["questions"]])
        for name, own in rows.items()
        if len(own) == parts
    }
    for name, values in shares.items():
        asked = [one for row in rows[name] for one in row["questions"]]
        messages = sum(row["messages"] for row in rows[name])
        ingest = {key: sum(row["ingest"][key] for row in rows[name]) for key in ("wall", "cpu")}
        figures: dict[str, Any] = {
            "found": {str(budget): round(float(values[:, place].mean()), 4) for place, budget in enumerate(BUDGETS)},
            "tokens": {
                str(budget): round(float(np.mean([one["tokens"][place] for one in asked])))
                for place, budget in enumerate(BUDGETS)
            },
            "ingest_s_per_1000": round(1000 * ingest["wall"] / messages, 3),
            "ingest_cpu_s_per_1000": round(1000 * ingest["cpu"] / messages, 3),
            "query_ms_p50": round(1000 * float(np.median([one["wall"] for one in asked])), 2),
            "query_cpu_ms_p50": round(1000 * float(np.median([one["cpu"] for one in asked])), 2),
        }
        if OURS in shares and name != OURS:
            figures["holdfast_minus"] = {
                str(budget): {
                    key: round(value, 4)
                    for key, value in compare(shares[OURS][:, place].tolist(), values[:, place].tolist()).items()
                }
                for place, budget in enumerate(BUDGETS)
            }
        systems[name] = figures
    questions = len(next(iter(shares.values()), []))
    return {"questions": questions, "systems": systems}


def make_rows(figures: Mapping[str, Any], *, versions: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return a row for each system of a data set, for a table."""
    rows: dict[str, dict[str, Any]] = {}
    for name, one in figures["systems"].items():
        row: dict[str, Any] = {"version": versions[name]["version"], **one["found"]}
        for budget, difference in one.get("holdfast_minus", {}).items():
            row[f"ours - theirs, {budget}"] = "{mean:+.3f} ({low:+.3f} to {high:+.3f})".format(**difference)
        row["tokens"] = one["tokens"][str(BUDGETS[-1])]
        row["ingest s/1,000"] = one["ingest_s_per_1000"]
        row["CPU"] = one["ingest_cpu_s_per_1000"]
        row["query ms"] = one["query_ms_p50"]
        row["CPU ms"] = one["query_cpu_ms_p50"]
        rows[name] = row
    return rows
