"""How many questions are answered in the window, asked in the words of the fact and in other words.

The sheet (`data/other_words.json`) has two parts. Facts that a user states once are placed into two generated
conversations, a tool loop and small talk, and are stored with `remember` for a new session; questions about real
sessions of coding agents name the file and a pattern of the answer. Sessions that fit into the window are joined to one
conversation. Every question goes through `Session.assemble` as a user's does: the whole history, then the question,
with default settings. A question is answered if the window matches the pattern outside of the question.

Every second fact, and every second question about a session, is for choosing parameters; the others are for checking
the choice.

A second sheet (`data/other_words-2.json`) was written from the same sessions alone: nothing was searched for while it
was written.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, TypeAlias

from holdfast import Engine, Window, transcripts
from holdfast.errors import InputError
from holdfast.memory import block, keys
from holdfast.messages import Message
from holdfast.settings import Settings
from holdfast.store.base import Record
from holdfast.store.opening import open_memory_store

__all__ = [
    "Archive",
    "Question",
    "Sheet",
    "count_questions",
    "load_sheet",
    "make_talk",
    "make_tool_loop",
    "measure",
    "open_copies",
    "read_session",
    "read_window",
    "read_words",
]

LIMIT: Final = 16_000
"""The context window. Most of every archive does not fit into it."""
TURNS: Final = 180
"""Turns of a generated conversation."""

Half: TypeAlias = Literal["choose", "check", "all"]
_GENERATED: Final = ("tool loop", "small talk", "stored facts")
_SHEETS: Final = {
    1: Path(__file__).with_name("data") / "other_words.json",
    2: Path(__file__).with_name("data") / "other_words-2.json",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question in the words of the fact and in other words, and a pattern of its answer."""

    own: str
    other: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """The facts of generated conversations, the questions about real sessions by file, and unrelated questions.

    `joined` names the short sessions that are one conversation, in its order; `digests` has the first digits of the
    SHA-256 of every file. `about_oneself` are unrelated questions too, in which a person speaks of "my" things; only
    the first sheet has them.
    """

    facts: Sequence[tuple[str, Question]]
    sessions: Mapping[str, Sequence[Question]]
    joined: Sequence[str]
    digests: Mapping[str, str]
    unrelated: Sequence[str]
    about_oneself: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A conversation, and the questions about it; `facts` are stored with `remember` in an earlier one."""

    name: str
    history: Sequence[Message | Mapping[str, Any]]
    questions: Sequence[Question]
    facts: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What a window has for a question: whether the answer is in it, and the tokens of its block."""

    is_answered: bool
    block_tokens: int


def load_sheet(half: Half = "all", *, sheet: int = 1) -> Sheet:
    """Read a sheet, or one half of its questions."""
    data = json.loads(_SHEETS[sheet].read_text("utf-8"))
    facts = [(one["text"], _question(one)) for one in data["facts"]]
    sessions: dict[str, list[Question]] = {}
    for one in data["questions"]:
        sessions.setdefault(one["file"], []).append(_question(one))
    return Sheet(
        facts=_select(facts, half),
        sessions={name: _select(asked, half) for name, asked in sessions.items()},
        joined=data["joined"],
        digests=data["files"],
        unrelated=_select(data["unrelated"], half),
        about_oneself=_select(data.get("about_oneself", ()), half),
    )


def count_questions(half: Half, *, folder: Path | None, sheet: int = 1) -> int:
    """Count the questions of a half: a fact is asked for in three archives, a session's only in a folder."""
    loaded = load_sheet(half, sheet=sheet)
    in_sessions = 0 if folder is None else sum(map(len, loaded.sessions.values()))
    return len(_GENERATED) * len(loaded.facts) + in_sessions


def _question(one: Mapping[str, str]) -> Question:
    return Question(own=one["own"], other=one["other"], answer=one["answer"])


def _select(rows: Sequence[Any], half: Half) -> Sequence[Any]:
    if half == "all":
        return rows
    first = 0 if half == "choose" else 1
    return rows[first::2]


# --- conversations ---------------------------------------------------------------------

_FILES: Final = ("orders.py", "stock.py", "mail.py", "prices.py", "report.py", "login.py", "import_job.py", "views.ts")
_TASKS: Final = (
    "Rename the helper in {file} and run the tests.",
    "The linter complains about {file}, fix it.",
    "Add a test for the empty case in {file}.",
    "Look at {file} and tell me why the loop is slow.",
    "继续处理 {file}，然后跑一遍测试。",
)
_REPLIES: Final = ("Done, the tests pass.", "Fixed; one warning is left.", "I changed two lines in {file}.", "改好了。")
_SMALL_TALK: Final = (
    ("How was your weekend?", "Quiet. I have no weekends, but thank you for asking."),
    ("It rained all day here.", "Then it was a good day to stay inside with a book."),
    ("I burned the toast again this morning.", "It happens. A lower setting and a little patience help."),
    ("Do you like jazz?", "I know a lot about it. Many people start with Kind of Blue."),
    ("The train was late by an hour.", "That is annoying. I hope you had something to read."),
    ("My neighbour got a puppy.", "They must be busy. The first months are hard work."),
    ("今天天气真不错。", "是啊，适合出去走走。"),
    ("我昨晚没睡好。", "今天早点休息吧。"),
)
_WORDS: Final = ("cache", "worker", "shard", "batch", "queue", "socket", "cursor", "index", "token", "frame", "parser")


def make_tool_loop(facts: Sequence[str], *, turns: int = TURNS, seed: int = 1) -> list[dict[str, Any]]:
    """Write the session of a coding agent in which a user states facts between tasks, as Chat Completions has it."""
    chance = Random(seed)  # noqa: S311 - nothing secret
    places = _spread(facts, turns=turns)
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You are a coding agent."}]
    for turn in range(turns):
        file = chance.choice(_FILES)
        task = chance.choice(_TASKS).format(file=file)
        stated = " ".join(places.get(turn, ()))
        messages.append({"role": "user", "content": f"{stated} {task}".strip()})
        call = {"name": "run", "arguments": json.dumps({"command": f"pytest {file} -k {chance.choice(_WORDS)}"})}
        calls = [{"id": f"call_{turn}", "type": "function", "function": call}]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": f"call_{turn}", "content": _tool_output(chance, file)})
        messages.append({"role": "assistant", "content": chance.choice(_REPLIES).format(file=file)})
    return messages


def _tool_output(chance: Random, file: str) -> str:
    lines: list[str] = []
    for number in range(chance.randint(6, 60)):
        word = chance.choice(_WORDS)
        other = chance.choice(_WORDS)
        milliseconds = chance.randint(1, 900)
        lines.append(f"{file}:{number * 3 + 1}: {word}_{other}({milliseconds}) took {milliseconds} ms ... ok")
    return "\n".join(lines)


def make_talk(facts: Sequence[str], *, turns: int = TURNS, seed: int = 1) -> list[dict[str, Any]]:
    """Write a conversation of small talk in which a user states facts, as Chat Completions has it."""
    chance = Random(seed)  # noqa: S311 - nothing secret
    places = _spread(facts, turns=turns)
    messages: list[dict[str, Any]] = []
    for turn in range(turns):
        remark, answer = chance.choice(_SMALL_TALK)
        messages.append({"role": "user", "content": " ".join([remark, *places.get(turn, ())])})
        padding = " ".join(f"{chance.choice(_SMALL_TALK)[1]}" for _ in range(12))
        messages.append({"role": "assistant", "content": f"{answer} {padding}"})
    return messages


def _spread(facts: Sequence[str], *, turns: int) -> dict[int, list[str]]:
    """Spread facts over the first half of the turns: they have left the window when they are asked for."""
    places: dict[int, list[str]] = {}
    for number, fact in enumerate(facts):
        places.setdefault(1 + number * turns // (2 * len(facts)), []).append(fact)
    return places


def make_archives(sheet: Sheet, *, folder: Path | None) -> Iterator[Archive]:
    """Yield the generated conversations, and the real sessions if there is a folder with them."""
    stated = [text for text, _ in sheet.facts]
    questions = [question for _, question in sheet.facts]
    tool_loop, small_talk, stored_facts = _GENERATED
    yield Archive(name=tool_loop, history=make_tool_loop(stated), questions=questions)
    yield Archive(name=small_talk, history=make_talk(stated), questions=questions)
    yield Archive(name=stored_facts, history=(), questions=questions, facts=stated)
    if folder is not None:
        yield from _read_archives(sheet, folder=folder)


def _read_archives(sheet: Sheet, *, folder: Path) -> Iterator[Archive]:
    history: list[Message] = []
    asked: list[Question] = []
    for name in sheet.joined:
        history += read_session(sheet, name, folder=folder)
        asked += sheet.sessions[name]
    yield Archive(name="short sessions", history=history, questions=asked)
    for name, questions in sheet.sessions.items():
        if name not in sheet.joined:
            yield Archive(name=name, history=read_session(sheet, name, folder=folder), questions=questions)


def read_session(sheet: Sheet, name: str, *, folder: Path) -> list[Message]:
    """Read the messages of a session up to its last reply.

    What the user said after it would be part of the question, and the instructions of its agent would fill the window.
    """
    file = folder / name
    if not file.is_file() or not hashlib.sha256(file.read_bytes()).hexdigest().startswith(sheet.digests[name]):
        raise InputError(f"{file}: not the file that the questions were written for")
    messages = [message for message in transcripts.read(file).messages if message.role != "system"]
    while messages[-1].role == "user":
        messages.pop()
    return messages


def read_words(message: Message) -> str:
    """Return what a model reads of a message: its text, the arguments of its calls, and its results."""
    calls = [json.dumps(call.arguments, ensure_ascii=False) for call in message.calls]
    return "\n".join([message.text, *calls, *(result.text for result in message.results)])


# --- asking ------------------------------------------------------------------------------


def measure(
    *,
    folder: Path | None,
    sheet: int = 1,
    half: Half = "all",
    settings: Settings | None = None,
    processes: int = 1,
    progress: Callable[[int, str], None] = lambda *_: None,
) -> dict[str, Any]:
    """Ask every question of its archive and return how many are answered, and the tokens of the blocks.

    Args:
        folder: The folder with the real sessions; None to leave them out.
        sheet: The number of the sheet.
        half: Which questions to ask.
        settings: The settings of the engine; the defaults unless given.
        processes: How many processes to use.
        progress: Called with the number of questions of each archive that is done, and its name.
    """
    loaded = load_sheet(half, sheet=sheet)
    archives = list(make_archives(loaded, folder=folder))
    used = settings or Settings()
    groups: dict[str, list[dict[str, Any]]] = {}
    with ProcessPoolExecutor(processes) as pool:
        futures = [(archive.name, pool.submit(_ask_archive, archive, loaded.unrelated, used)) for archive in archives]
        for name, future in futures:
            group = name if name in _GENERATED else "real sessions"
            found = future.result()
            groups.setdefault(group, []).append(found)
            progress(found["questions"], name)
    groups["all"] = [row for rows in groups.values() for row in rows]
    systems = {name: _sum_up(rows) for name, rows in groups.items()}
    return {"half": half, "limit": LIMIT, "systems": systems, "missed": _list_missed(groups["all"])}


@contextmanager
def open_copies(
    history: Sequence[Message | Mapping[str, Any]],
    settings: Settings,
    *,
    limit: int = LIMIT,
    facts: Sequence[str] = (),
) -> Iterator[Callable[[str], Window]]:
    """Archive a history, and yield a function that returns the window of a question.

    Facts are stored in another session. Each question is asked of a copy of the same memory, so that no question finds
    another.
    """
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary) / "home"
        _make_key(home)
        with Engine.open(home, settings=settings, background=False) as engine:
            for fact in facts:
                engine.session("told").remember(fact)
            if history:
                engine.session("s").assemble(history, limit=limit, recall=False)  # the block is the question's
            engine.work()

        def open_window(text: str) -> Window:
            copy = Path(temporary) / "copy"
            shutil.copytree(home, copy)
            try:
                with Engine.open(copy, settings=settings, background=False) as engine:
                    question = {"role": "user", "content": text}
                    return engine.session("s").assemble([*history, question], limit=limit)
            finally:
                shutil.rmtree(copy)

        yield open_window


def _make_key(home: Path) -> None:
    """Give a new memory the same key in every run.

    The mark of a block is made with it. How many tokens a mark has depends on its letters, so that a full block has one
    passage more or less.
    """
    with closing(open_memory_store(home, settings=Settings())) as store:
        store.add_records([Record(scope=keys.OWNER, kind=block.KEY_KIND, key="benchmark", data={"key": "00" * 16})])


def read_window(window: Window, *, without: str) -> str:
    """Return what a model reads of a window, without the question."""
    return "\n".join(read_words(message).replace(without, "") for message in window.messages)


def _ask_archive(archive: Archive, unrelated: Sequence[str], settings: Settings) -> dict[str, Any]:
    """Ask the questions of one archive."""
    with open_copies(archive.history, settings, facts=archive.facts) as open_window:

        def ask(text: str, answer: str) -> _Answer:
            window = open_window(text)
            recalled = next((part.tokens for part in window.report.categories if part.name == "recall"), 0)
            shown = read_window(window, without=text)
            return _Answer(is_answered=re.search(answer, shown) is not None, block_tokens=recalled)

        own = [(one, ask(one.own, one.answer)) for one in archive.questions]
        other = [(one, ask(one.other, one.answer)) for one in archive.questions]
        spent = [ask(text, r"(?!)").block_tokens for text in unrelated]
    return {
        "questions": len(archive.questions),
        "own": sum(found.is_answered for _, found in own),
        "other": sum(found.is_answered for _, found in other),
        "own tokens": [found.block_tokens for _, found in own],
        "other tokens": [found.block_tokens for _, found in other],
        "unrelated tokens": spent,
        "missed": [one.other for one, found in other if not found.is_answered]
        + [one.own for one, found in own if not found.is_answered],
    }


def _sum_up(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    questions = sum(row["questions"] for row in rows)
    unrelated = [tokens for row in rows for tokens in row["unrelated tokens"]]
    return {
        "questions": questions,
        "own words": sum(row["own"] for row in rows),
        "other words": sum(row["other"] for row in rows),
        "tokens, own": _mean([tokens for row in rows for tokens in row["own tokens"]]),
        "tokens, other": _mean([tokens for row in rows for tokens in row["other tokens"]]),
        "tokens, unrelated": _mean(unrelated),
        "unrelated with a block": _mean([float(tokens > 0) for tokens in unrelated]),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _list_missed(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [question for row in rows for question in row["missed"]]
