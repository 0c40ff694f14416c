"""What a new session knows by itself: the overview at its start, and answers to "What did we do yesterday?".

30 sessions of one project, on different days and about different subjects, two thirds of them in English and one third
in Chinese. A new session gets an overview; 30 questions about days, weeks, months and sessions are asked, each in a new
session, and 30 others that were written when the first ones were answered. A question counts as answered if everything
that belongs to its answer is in the window.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

from holdfast import Engine, providers
from holdfast.messages import Message, Text, ToolCall, ToolResult
from holdfast.moments import minute
from holdfast.settings import Recall, Settings
from holdfast.store.base import Scope
from holdfast.tokens import count_text

__all__ = ["load_sheet", "measure"]

_SHEET: Final = Path(__file__).parent / "data" / "overview.json"
_PROJECT: Final = "shop"
_LIMIT: Final = 100_000
_TURNS: Final = 20
_MINUTE: Final = 60_000
_YEAR: Final = 365 * 24 * 60 * _MINUTE
_FACTS: Final = (
    ("Always answer in British English.", "decision"),
    ("We use SQS for the image pipeline.", "decision"),
    ("提交信息一律用英文。", "decision"),
    ("TODO: upgrade production to PostgreSQL 17", "task_state"),
    ("TODO: write to Halden Boats about the importer", "task_state"),
)
_REPLIES: Final = ("Yes.", "It is 3 in all.", "可以。", "That depends on the size of the file.")


def load_sheet() -> dict[str, Any]:
    """Read the sessions and the questions."""
    sheet: dict[str, Any] = json.loads(_SHEET.read_text("utf-8"))
    return sheet


def measure(*, more_sessions: int = 0, progress: Callable[[int], None] = lambda _: None) -> dict[str, Any]:
    """Fill a memory with the sessions and some older ones, start new ones, and ask."""
    sheet = load_sheet()
    now = _milliseconds(sheet["now"])
    with tempfile.TemporaryDirectory() as folder:
        _add_old_sessions(Path(folder), more_sessions, now=now)
        _fill(Path(folder), sheet, now=now)
        systems: dict[str, Any] = {}
        for name, questions in (("", sheet["questions"]), (", other questions", sheet["other_questions"])):
            systems[f"window{name}"] = _ask_all(Path(folder), questions, now=now, progress=progress)
            systems[f"ten best passages{name}"] = _search_all(Path(folder), questions, now=now, progress=progress)
        starts = {name: _start(Path(folder), name, now=now) for name in sorted(providers.FORMATS)}
    return {"questions": systems, "starts": starts}


def _milliseconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)  # a local time, as a user means it


def _open(folder: Path, *, now: int) -> Engine:
    settings = Settings(recall=Recall(deadline_ms=60_000))  # how busy the machine is must not change the figures
    return Engine.open(folder, settings=settings, background=False, personal=True, clock=lambda: now)


def _fill(folder: Path, sheet: dict[str, Any], *, now: int) -> None:
    with _open(folder, now=now) as engine:
        for session in sheet["sessions"]:
            messages = _make_messages(session)
            engine._memory.ingest(messages, scope=Scope(project=_PROJECT, session=session["id"]))
        for text, kind in _FACTS:
            engine.session("notes", project=_PROJECT).remember(text, type=kind)  # type: ignore[arg-type]
        engine.work()


def _add_old_sessions(folder: Path, count: int, *, now: int) -> None:
    """Archive sessions of two messages, one for each hour before the year of the others."""
    with _open(folder, now=now) as engine:
        for number in range(count):
            time = now - _YEAR - number * 60 * _MINUTE
            asked = Text(text=f"Look at ticket {number} of the old backlog.")
            answered = Text(text=f"Ticket {number} is closed.")
            messages = [
                Message(role="user", parts=(asked,), timestamp=time),
                Message(role="assistant", parts=(answered,), timestamp=time),
            ]
            engine._memory.ingest(messages, scope=Scope(project=_PROJECT, session=f"old-{number}"))


def _make_messages(session: dict[str, Any]) -> list[Message]:
    """Make the messages of a session, with the tool calls of an agent between request and answer."""
    time = _milliseconds(session["start"])
    messages: list[Message] = []
    for number, given in enumerate(session["messages"]):
        messages.append(Message(role=given["role"], parts=(Text(text=given["text"]),), timestamp=time))
        time += 4 * _MINUTE
        if given["role"] == "assistant":
            continue
        for step in range(3):
            call = f"{session['id']}-{number}-{step}"
            arguments = {"command": f"ls -la src/module_{number}_{step} && git status --short"}
            output = "\n".join(f"-rw-r--r-- 1 dev dev {512 + line * 7} part_{line}.py" for line in range(12))
            messages.append(
                Message(role="assistant", parts=(ToolCall(id=call, name="bash", arguments=arguments),), timestamp=time)
            )
            result = ToolResult(call_id=call, name="bash", content=(Text(text=output),))
            messages.append(Message(role="tool", parts=(result,), timestamp=time + 2_000))
            time += _MINUTE
    return messages


def _ask_all(folder: Path, questions: Sequence[Any], *, now: int, progress: Callable[[int], None]) -> dict[str, Any]:
    """Ask every question in a new session, and look for the answers in its window."""
    shown: list[str] = []
    tokens: list[int] = []
    with _open(folder, now=now) as engine:
        for number, question in enumerate(questions):
            text = question["text"]
            session = engine.session(f"ask-{number}", project=_PROJECT)
            window = session.assemble([Message(role="user", parts=(Text(text=text),))], limit=_LIMIT)
            shown.append("\n".join(message.text for message in window.messages).replace(text, ""))
            tokens.append(sum(change.tokens_after for change in window.report.changes if change.kind == "recalled"))
            session.forget()
            progress(1)
    return _count_answers(questions, shown, tokens)


def _search_all(folder: Path, questions: Sequence[Any], *, now: int, progress: Callable[[int], None]) -> dict[str, Any]:
    """Search for every question, and look for the answers in the passages, with their dates."""
    shown: list[str] = []
    tokens: list[int] = []
    with _open(folder, now=now) as engine:
        for question in questions:
            hits = engine.search(question["text"], project=_PROJECT, limit=10)
            shown.append("\n".join(f"{minute(hit.time)} {hit.text}" for hit in hits))
            tokens.append(count_text(shown[-1]))
            progress(1)
    return _count_answers(questions, shown, tokens)


def _count_answers(questions: Sequence[Any], shown: Sequence[str], tokens: Sequence[int]) -> dict[str, Any]:
    answered = {"English": 0, "Chinese": 0}
    asked = {"English": 0, "Chinese": 0}
    missed: list[str] = []
    for question, text in zip(questions, shown, strict=True):
        language = "English" if question["text"].isascii() else "Chinese"
        asked[language] += 1
        if all(answer in text for answer in question["answers"]):
            answered[language] += 1
        else:
            missed.append(question["text"])
    return {
        "questions": len(questions),
        "answered": sum(answered.values()),
        **{language: f"{answered[language]} of {asked[language]}" for language in asked},
        "tokens": median(tokens),
        "missed": missed,
    }


def _start(folder: Path, name: str, *, now: int) -> dict[str, Any]:
    """Go through the first turns of a new session in one wire format, and compare each request with the next."""
    messages: list[Message] = [Message(role="system", parts=(Text(text="You are a careful engineer."),))]
    before: Sequence[Any] = ()
    kept = 0
    cost = 0
    first_ms = 0.0
    later_ms: list[float] = []
    with _open(folder, now=now) as engine:
        session = engine.session(f"start-{name}", project=_PROJECT)
        for turn in range(_TURNS):
            messages.append(Message(role="user", parts=(Text(text=f"Look at part {turn} of the catalogue, please."),)))
            begin = perf_counter()
            window = session.assemble(messages, limit=_LIMIT, provider=name)
            spent = 1000 * (perf_counter() - begin)
            wire = window.render()
            if turn == 0:
                cost = window.report.overview_tokens
                first_ms = window.report.milliseconds["overview"]
            else:
                later_ms.append(spent)
                kept += list(before) == list(wire[: len(before)])
            before = wire
            messages.append(Message(role="assistant", parts=(Text(text=_REPLIES[turn % len(_REPLIES)]),)))
        session.forget()
    return {
        "overview tokens": cost,
        "prefix kept": f"{100 * kept / (_TURNS - 1):.0f} %",
        "first overview ms": round(first_ms, 1),
        "later turns ms": round(median(later_ms), 1),
    }
