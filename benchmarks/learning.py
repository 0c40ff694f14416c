"""What a long chat teaches: facts after it, questions in other words that find them, kills, and a model that is down.

Scripted models extract what they are shown, so that only the way of the messages to the model, and of the facts to a
question, is measured.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from holdfast import Engine
from holdfast.errors import ModelBusyError
from holdfast.memory.learning_queue import EXTRACT, OWN, make_job
from holdfast.messages import Message, Text
from holdfast.models.base import Prompt
from holdfast.models.scripted import Answer, Scripted, ScriptedReply
from holdfast.settings import Embedding, Knowledge, Settings
from holdfast.store.base import FactRow, Scope, Select, Store
from holdfast.testing.processes import acknowledged_until_killed, child
from holdfast.tokens import count_text
from holdfast_agent.agent import Agent, Records, open_engine
from holdfast_agent.sessions import Sessions, session_key
from holdfast_agent.settings import AgentSettings, ChatSettings, Workspace

__all__ = ["measure_chat", "measure_kills", "measure_outage", "measure_questions"]

WINDOW: Final = 20_000
TURNS: Final = 92
QUESTION_SHEET: Final = Path(__file__).with_name("data") / "learning.json"
UNRELATED_SHEET: Final = Path(__file__).with_name("data") / "other_words.json"
_TALK: Final = "We walked along the river and talked about the garden, the weather and what to cook on Sunday. "
_TALK_TIMES: Final = 34
_PIECE: Final = re.compile(r"^\[(\d+) \w+\] ", re.MULTILINE)
_DEPOT: Final = re.compile(r"Depot (\w+) closes at (\d\d:\d\d)")
_START: Final = 1_800_000_000_000
_MINUTE: Final = 60_000
_NO_VECTORS: Final = Embedding(provider="none")


# --- a model that extracts what it is shown ------------------------------------------------


def state(number: int) -> str:
    """State a fact that no other one is like."""
    return f"Depot d{number} closes at {number // 60 % 24:02d}:{number % 60:02d}"


def extract_depots(prompt: Prompt) -> str:
    """Answer with a fact for each depot in the messages of a prompt."""
    text = prompt.messages[-1].text
    pieces = [(match.start(), int(match[1])) for match in _PIECE.finditer(text)]
    found: list[dict[str, object]] = []
    for match in _DEPOT.finditer(text):
        number = max((piece for piece in pieces if piece[0] <= match.start()), default=(0, 0))[1]
        item = {"type": "config", "content": match[0], "context": "", "subject": f"depot {match[1]}"}
        found.append({**item, "slot": "closing time", "value": match[2], "message": number, "quote": match[0]})
    return json.dumps({"facts": found})


def count_stored(store: Store, scope: Scope) -> Counter[str]:
    """Count every version of every fact of an agent, by its words."""
    rows: Sequence[FactRow] = store.read_facts(Select(scope=scope, across=True))
    return Counter(row.content for row in rows)


def compare(stored: Counter[str], turns: int) -> dict[str, int]:
    """Return how many of the facts of some turns were stored, are missing, and were stored more than once."""
    wanted = Counter(state(number) for number in range(turns))
    return {
        "stated": turns,
        "stored": sum((wanted & stored).values()),
        "lost": sum((wanted - stored).values()),
        "twice": sum((stored - wanted).values()),
    }


# --- a chat ----------------------------------------------------------------------------------


def _answer(prompt: Prompt) -> Answer:
    if prompt.schema is not None:
        return extract_depots(prompt)
    if not prompt.tools:
        return ScriptedReply(pieces=("## Goal\nTo talk.\n",))
    if "Pre-compaction memory flush" in prompt.messages[-1].text:
        return ScriptedReply(pieces=("NO_REPLY",))
    return ScriptedReply(pieces=("I see. ", "That sounds good to me, and we can go on with the next thing. " * 6))


def measure_chat(*, turns: int = TURNS, progress: Callable[[int], None] = lambda _: None) -> dict[str, Any]:
    """Talk with the agent of `holdfast chat` in a small window; every message of the user states one fact."""
    settings = ChatSettings(embedding=_NO_VECTORS, agent=AgentSettings(workspace=Workspace(skip_bootstrap=True)))
    model = Scripted(_answer, name="scripted", context_tokens=WINDOW)
    tokens = 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "work"
        root.mkdir()
        records = Records()
        key = session_key()
        engine = open_engine(
            Path(folder), settings=settings, model=model, root=root, key=key, records=records, background=False
        )
        numbers = itertools.count(1)
        sessions = Sessions(
            home=Path(folder), clock=lambda: time.time_ns() // 1_000_000, new_id=lambda: f"{next(numbers):032x}"
        )
        agent = Agent(engine, model, settings=settings, sessions=sessions, key=key, root=root, records=records)
        scope = agent.session.scope
        for number in range(turns):
            said = f"{state(number)}. {_TALK * _TALK_TIMES}"
            tokens += count_text(said)
            turn = agent.say(said)
            tokens += count_text(turn.text)
            engine.work()  # as the thread of the engine does
            progress(1)
        before = compare(count_stored(engine._memory.store, scope), turns)
        entry = agent.conversation.entry
        agent.reset()
        engine.work()
        spent = engine.stats().learning
        after = compare(count_stored(engine._memory.store, scope), turns)
        flushes = sum("memory flush" in prompt.messages[-1].text for prompt in model.prompts)
        agent.close()
    return {
        "turns": turns,
        "tokens": tokens,
        "window": WINDOW,
        "compactions": entry.compaction_count,
        "flushes": flushes,
        "stored_during_the_chat": before["stored"],
        **after,
        "extraction_calls": spent.calls,
        "extraction_tokens": spent.tokens,
        "tokens_per_token_of_chat": round(spent.tokens / tokens, 2),
    }


# --- questions in other words ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What came of the questions: how many windows have the answer, the fact, and the passage that proves it."""

    answered: int
    by_fact: int
    with_passage: int
    facts_for_unrelated: int


def measure_questions(*, progress: Callable[[int], None] = lambda _: None) -> dict[str, Any]:
    """Ask for 40 facts in other words than theirs, with and without the questions that a model wrote down."""
    facts = json.loads(QUESTION_SHEET.read_text("utf-8"))["facts"]
    unrelated = json.loads(UNRELATED_SHEET.read_text("utf-8"))["unrelated"]
    found: dict[str, Any] = {"questions": len(facts), "unrelated_questions": len(unrelated)}
    for name, has_questions in (("without", False), ("with", True)):
        asked = _ask(facts, unrelated, has_questions=has_questions)
        found[name] = {
            "answered": asked.answered,
            "by_fact": asked.by_fact,
            "with_passage": asked.with_passage,
            "facts_for_unrelated": asked.facts_for_unrelated,
        }
        progress(1)
    return found


def _ask(facts: Sequence[dict[str, Any]], unrelated: Sequence[str], *, has_questions: bool) -> _Asked:
    def extract(prompt: Prompt) -> str:
        text = prompt.messages[-1].text
        found: list[dict[str, Any]] = []
        for fact in facts:
            if fact["said"] in text:
                names = ("content", "subject", "slot", "value", "quote")
                item = {"type": "decision", "context": "", "message": 0, **{name: fact[name] for name in names}}
                found.append({**item, "questions": fact["questions"] if has_questions else []})
        return json.dumps({"facts": found}, ensure_ascii=False)

    answered = by_fact = with_passage = facts_for_unrelated = 0
    settings = Settings(embedding=_NO_VECTORS)
    with (
        tempfile.TemporaryDirectory() as folder,
        Engine.open(folder, settings=settings, model=Scripted(extract), background=False, personal=True) as engine,
    ):
        told = engine.session("told")
        told.append([Message(role="user", parts=(Text(text=fact["said"]),)) for fact in facts])
        told.learn()
        engine.work()
        stored = {row.content: row.id for row in told.facts()}
        for number, fact in enumerate(facts):
            window = engine.session(f"asked {number}").assemble(
                [{"role": "user", "content": fact["asked"]}], limit=WINDOW
            )
            shown = window.messages[-1].text.replace(fact["asked"], "")
            answered += re.search(fact["answer"], shown) is not None
            by_fact += stored.get(fact["content"]) in window.report.recalled_facts
            with_passage += any(fact["quote"] in hit.text for hit in window.report.recalled)
        for number, question in enumerate(unrelated):
            window = engine.session(f"unrelated {number}").assemble(
                [{"role": "user", "content": question}], limit=WINDOW
            )
            facts_for_unrelated += len(window.report.recalled_facts)
    return _Asked(
        answered=answered, by_fact=by_fact, with_passage=with_passage, facts_for_unrelated=facts_for_unrelated
    )


# --- a model that is down ------------------------------------------------------------------------


def _open(folder: Path, model: Scripted, clock: Callable[[], int] | None = None) -> Engine:
    knowledge = Knowledge(max_calls_per_hour=0, max_tokens_per_day=0)
    settings = Settings(embedding=_NO_VECTORS, knowledge=knowledge)
    return Engine.open(folder / "store.db", settings=settings, model=model, background=False, clock=clock)


def _archive(engine: Engine, turns: int, *, session: str) -> Scope:
    """Archive a conversation that states a fact in each turn, and queue it."""
    scope = engine.session(session).scope
    said = [
        Message(role="user", parts=(Text(text=f"{state(number)}. {_TALK * _TALK_TIMES}"),)) for number in range(turns)
    ]
    numbers = engine._memory.ingest(said, scope=scope)
    engine._memory.store.add_jobs([make_job(scope, OWN, until=max(numbers), time=engine._memory.clock())])
    return scope


def measure_outage(*, hours: int = 6, turns: int = TURNS) -> dict[str, Any]:
    """Let a model fail for hours, by a clock that is set, while the work is tried every minute; then let it answer."""
    now = _START
    is_down = True

    def answer(prompt: Prompt) -> Answer:
        return ModelBusyError("overloaded") if is_down else extract_depots(prompt)

    model = Scripted(answer)
    with tempfile.TemporaryDirectory() as folder, _open(Path(folder), model, lambda: now) as engine:
        scope = _archive(engine, turns, session="s")
        for _ in range(60 * hours):
            now += _MINUTE
            engine.work()
        calls = len(model.prompts)
        during = compare(count_stored(engine._memory.store, scope), turns)
        is_down = False
        now += 60 * _MINUTE
        engine.work()
        after = compare(count_stored(engine._memory.store, scope), turns)
    return {"hours": hours, "calls_while_down": calls, "stored_while_down": during["stored"], **after}


# --- kills ---------------------------------------------------------------------------------------


def _work_until_killed(folder: Path, reports: Connection) -> None:
    """Extract facts, and report before and after each call of the model."""

    def answer(prompt: Prompt) -> str:
        reports.send("asked")
        text = extract_depots(prompt)
        reports.send("answered")
        return text

    with _open(folder, Scripted(answer)) as engine:
        reports.send("ready")
        engine.work()
        reports.send("done")
        time.sleep(600)


def measure_kills(
    *, kills: int = 20, turns: int = 600, seed: int = 1, progress: Callable[[int], None] = lambda _: None
) -> dict[str, Any]:
    """Kill a process while it extracts the facts of a long session, again and again; then let one end the work."""
    chance = random.Random(seed)  # noqa: S311 - chance, not secrecy
    done = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _open(folder, Scripted(extract_depots)) as engine:
            scope = _archive(engine, turns, session="s")
        for _ in range(kills):
            with child(_work_until_killed, folder) as (process, reports):
                after, pause = chance.randint(2, 4), chance.uniform(0, 0.03)
                seen = acknowledged_until_killed(reports, process, after=after, pause=pause)
                done += "done" in seen
            progress(1)
        model = Scripted(extract_depots)
        with _open(folder, model) as engine:
            left = len(engine._memory.store.waiting(EXTRACT, limit=9))
            engine.work()
            found = compare(count_stored(engine._memory.store, scope), turns)
    return {
        "kills": kills,
        "ended_before_the_kill": done,
        "jobs_left": left,
        "calls_after": len(model.prompts),
        **found,
    }
