"""Loaders for the public files of the retrieval benchmarks.

A conversation holds only what a real archive would hold: dates, roles, names, words. Ids and labels stay in
the questions, as places (session, turn), and never reach an index.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from holdfast.errors import InputError

__all__ = ["DATASETS", "Conversation", "Question", "Session", "Turn", "load", "load_all"]

ANY_TURN: Final = -1
"""In a question's evidence: any turn of the session counts."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side said. `speaker` is a name where the data has one."""

    role: str
    text: str
    speaker: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """One sitting of a conversation."""

    date: datetime | None
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question, where its evidence stands, and which sessions (the first `limit`) may be searched.

    `kind` is the category that the data set names, with `_abs` at its end if the conversation has no answer. `rubric`
    is what a judge looks for, if the data set says so.
    """

    text: str
    evidence: frozenset[tuple[int, int]]
    date: datetime | None = None
    answer: str = ""
    limit: int | None = None
    kind: str = ""
    rubric: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Conversation:
    """One archive and the questions asked of it."""

    sessions: tuple[Session, ...]
    questions: tuple[Question, ...]


def load(name: str, path: Path) -> list[Conversation]:
    """Load the questions with evidence of a data set, by name from its public file or folder."""
    found: list[Conversation] = []
    for conversation in load_all(name, path):
        questions = [each for each in conversation.questions if each.evidence and not each.kind.endswith("_abs")]
        if questions:
            found.append(replace(conversation, questions=tuple(questions)))
    if not found:
        raise InputError(f"{path}: no questions with evidence found; is this the {name} data?")
    return found


def load_all(name: str, path: Path) -> list[Conversation]:
    """Load every question of a data set, also those without an answer."""
    if name not in DATASETS:
        raise InputError(f"data set {name!r} is not one of {', '.join(DATASETS)}")
    if not path.exists():
        raise InputError(f"{path}: no such file or folder. Download the public data first.")
    try:
        return DATASETS[name](path)
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise InputError(f"{path}: this does not look like the public files of {name} ({error!r})") from error


# --- conversations -------------------------------------------------------------


def _locomo(path: Path) -> list[Conversation]:
    return [_locomo_one(item) for item in _json(path)]


def _locomo_one(item: Mapping[str, Any]) -> Conversation:
    talk = item["conversation"]
    numbers = sorted(int(key.split("_")[1]) for key in talk if re.fullmatch(r"session_\d+", key))
    places: dict[str, tuple[int, int]] = {}
    sessions: list[Session] = []
    for index, number in enumerate(numbers):
        turns = talk[f"session_{number}"]
        places.update((turn["dia_id"], (index, place)) for place, turn in enumerate(turns))
        date = _date(talk.get(f"session_{number}_date_time", ""), "%I:%M %p on %d %B, %Y")
        sessions.append(Session(date, tuple(Turn("user", _locomo_text(turn), turn["speaker"]) for turn in turns)))
    questions = []
    for question in item["qa"]:
        found = re.findall(r"D:?(\d+):(\d+)", " ".join(map(str, question.get("evidence") or [])))
        evidence = frozenset(places[key] for a, b in found if (key := f"D{int(a)}:{int(b)}") in places)
        answer = str(question.get("answer", question.get("adversarial_answer", "")))
        kind = str(question.get("category", ""))
        questions.append(Question(text=question["question"], evidence=evidence, answer=answer, kind=kind))
    return Conversation(tuple(sessions), tuple(questions))


def _locomo_text(turn: Mapping[str, Any]) -> str:
    caption = turn.get("blip_caption")
    words = turn.get("text") or ""
    return f"{words} [shares a photo: {caption}]".strip() if caption else words


def _longmemeval_s(path: Path) -> list[Conversation]:
    """The `_s` and `_m` files as they are; the oracle file with other questions' sessions mixed in, up to 48."""
    data = _json(path)
    pool = _longmemeval_pool_of(data)
    oracle = "oracle" in path.name
    return [_longmemeval(_haystack(item, pool, mixed=oracle), pool, [item]) for item in data]


def _longmemeval_pool(path: Path) -> list[Conversation]:
    """Every session of the file for every question."""
    data = _json(path)
    pool = _longmemeval_pool_of(data)
    ids = sorted(pool)
    random.Random(0).shuffle(ids)  # noqa: S311 - a fixed order, not a secret
    return [_longmemeval(ids, pool, data)]


def _longmemeval_pool_of(data: Iterable[Mapping[str, Any]]) -> dict[str, tuple[datetime | None, list[Any]]]:
    pool: dict[str, tuple[datetime | None, list[Any]]] = {}
    for item in data:
        rows = zip(item["haystack_session_ids"], item["haystack_dates"], item["haystack_sessions"], strict=True)
        for name, date, turns in rows:
            pool.setdefault(name, (_longmemeval_date(date), turns))
    return pool


def _haystack(item: Mapping[str, Any], pool: Mapping[str, Any], *, mixed: bool, size: int = 48) -> list[str]:
    own = list(dict.fromkeys(item["haystack_session_ids"]))
    if not mixed:
        return own
    chance = random.Random(item["question_id"])  # noqa: S311 - the same haystack in every run
    others = [name for name in sorted(pool) if name not in set(own)]
    ids = own + chance.sample(others, max(0, min(len(others), size - len(own))))
    chance.shuffle(ids)
    return ids


def _longmemeval(ids: Sequence[str], pool: Mapping[str, Any], items: Iterable[Mapping[str, Any]]) -> Conversation:
    ordered = sorted(ids, key=lambda name: pool[name][0] or datetime.min.replace(tzinfo=UTC))
    place = {name: index for index, name in enumerate(ordered)}
    sessions = tuple(
        Session(pool[name][0], tuple(Turn(turn["role"], turn["content"]) for turn in pool[name][1])) for name in ordered
    )
    questions = []
    for item in items:
        evidence = frozenset(
            (place[name], index)
            for name in item["answer_session_ids"]
            if name in place
            for index, turn in enumerate(pool[name][1])
            if turn.get("has_answer")
        )
        question = Question(
            text=item["question"],
            evidence=evidence,
            date=_longmemeval_date(item.get("question_date")),
            answer=str(item["answer"]),
            kind=item.get("question_type", "") + ("_abs" if item["question_id"].endswith("_abs") else ""),
        )
        questions.append(question)
    return Conversation(sessions, tuple(questions))


def _longmemeval_date(text: str | None) -> datetime | None:
    return _date(re.sub(r"\s*\(\w+\)\s*", " ", text or ""), "%Y/%m/%d %H:%M", "%Y/%m/%d")


def _beam(path: Path) -> list[Conversation]:
    folders = sorted(
        (item for item in path.iterdir() if (item / "chat.json").is_file()), key=lambda p: (len(p.name), p.name)
    )
    return [_beam_one(folder) for folder in folders]


def _beam_one(folder: Path) -> Conversation:
    places: dict[int, tuple[int, int]] = {}
    sessions: list[Session] = []
    for batch in _json(folder / "chat.json"):
        messages = [message for group in batch["turns"] for message in group]
        places.update((message["id"], (len(sessions), index)) for index, message in enumerate(messages))
        sessions.append(_beam_session(batch, messages))
    questions: list[Question] = []
    for kind, items in _beam_questions(folder).items():
        questions += [_beam_question(item, places, kind) for item in items]
    return Conversation(tuple(sessions), tuple(questions))


def _beam_session(batch: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> Session:
    anchor = next((each["time_anchor"] for each in (batch, *messages) if each.get("time_anchor")), None)
    turns = tuple(Turn(message["role"], re.sub(r"\s*->->.*$", "", message["content"])) for message in messages)
    return Session(_date(anchor, "%B-%d-%Y"), turns)


def _beam_question(item: Mapping[str, Any], places: Mapping[int, tuple[int, int]], kind: str) -> Question:
    evidence = frozenset(places[number] for number in _numbers(item.get("source_chat_ids")) if number in places)
    keys = ("answer", "ideal_answer", "ideal_summary", "ideal_response")
    answer = next((item[key] for key in keys if item.get(key)), " ".join(item.get("rubric") or []))
    rubric = tuple(str(each) for each in item.get("rubric") or ())
    return Question(text=item["question"], evidence=evidence, answer=str(answer), kind=kind, rubric=rubric)


def _beam_questions(folder: Path) -> dict[str, list[Any]]:
    one = folder / "probing_questions.json"
    if one.is_file():
        return dict(_json(one))
    return {file.stem: _json(file) for file in sorted((folder / "probing_questions").glob("*.json"))}


def _numbers(value: Any) -> Iterator[int]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, int) or (isinstance(value, str) and value.strip().isdigit()):
        yield int(value)


def _realmem(path: Path) -> list[Conversation]:
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    return [_realmem_one(data) for file in files if isinstance(data := _json(file), dict) and "dialogues" in data]


def _realmem_one(data: Mapping[str, Any]) -> Conversation:
    place = {session["session_uuid"]: index for index, session in enumerate(data["dialogues"])}
    sessions: list[Session] = []
    questions: list[Question] = []
    for index, session in enumerate(data["dialogues"]):
        turns = session["dialogue_turns"]
        clock = re.sub(r"\s*\(\w+\)", "", session.get("current_time") or "")
        date = _date(clock, "%Y-%m-%d", "%Y-%m-%d %H:%M")
        roles = ("user" if turn["speaker"].lower() == "user" else "assistant" for turn in turns)
        said = tuple(Turn(role, turn["content"]) for role, turn in zip(roles, turns, strict=True))
        sessions.append(Session(date, said))
        asked = (
            _realmem_question(turn, reply, place, index) for turn, reply in pairwise(turns) if turn.get("is_query")
        )
        questions += [replace(question, date=date) for question in asked if question.evidence]
    return Conversation(tuple(sessions), tuple(questions))


def _realmem_question(
    turn: Mapping[str, Any], reply: Mapping[str, Any], place: Mapping[str, int], index: int
) -> Question:
    named = (place.get(uuid, index) for uuid in reply.get("memory_session_uuids") or [])
    evidence = frozenset((number, ANY_TURN) for number in named if number < index)
    return Question(text=turn["content"], evidence=evidence, limit=index)


# --- passages --------------------------------------------------------------------


def _passages(texts: Iterable[str], questions: Iterable[Question]) -> list[Conversation]:
    sessions = tuple(Session(None, (Turn("assistant", text),)) for text in texts)
    return [Conversation(sessions, tuple(questions))]


def _squad(path: Path) -> list[Conversation]:
    file = path / "dev.json" if path.is_dir() else path
    paragraphs = [paragraph for article in _json(file)["data"] for paragraph in article["paragraphs"]]
    questions = [
        Question(
            text=question["question"],
            evidence=frozenset({(index, 0)}),
            answer=(question.get("answers") or [{"text": ""}])[0]["text"],
        )
        for index, paragraph in enumerate(paragraphs)
        for question in paragraph["qas"]
    ]
    return _passages((paragraph["context"] for paragraph in paragraphs), questions)


def _miracl(path: Path) -> list[Conversation]:
    corpus = [json.loads(line) for line in (path / "corpus.jsonl").read_text("utf-8").splitlines() if line]
    place = {document["docid"]: index for index, document in enumerate(corpus)}
    judged: dict[str, set[tuple[int, int]]] = {}
    for line in (path / "qrels.tsv").read_text("utf-8").splitlines():
        query, _, document, relevance = line.split()
        if int(relevance) > 0 and document in place:
            judged.setdefault(query, set()).add((place[document], 0))
    questions = []
    for line in (path / "queries_clean.jsonl").read_text("utf-8").splitlines():
        query = json.loads(line)
        evidence = judged.get(str(query.get("qid", query.get("id"))))
        if evidence:
            questions.append(Question(text=query.get("text") or query["query"], evidence=frozenset(evidence)))
    texts = (f"{document.get('title', '')}\n{document['text']}".strip() for document in corpus)
    return _passages(texts, questions)


def _cosqa(path: Path) -> list[Conversation]:
    codes = sorted(_json(path / "code_idx_map.txt").items(), key=lambda item: item[1])
    place = {number: index for index, (_, number) in enumerate(codes)}
    file = next(path.glob("cosqa-retrieval-dev*.json"))
    questions = [
        Question(text=row["doc"], evidence=frozenset({(place[row["retrieval_idx"]], 0)})) for row in _json(file)
    ]
    return _passages((code for code, _ in codes), questions)


# --- reading -----------------------------------------------------------------------


def _json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def _date(text: str | None, *formats: str) -> datetime | None:
    for format_ in formats:
        try:
            return datetime.strptime(text or "", format_).replace(tzinfo=UTC)
        except ValueError:
            continue
    return None


DATASETS: Final[dict[str, Callable[[Path], list[Conversation]]]] = {
    "locomo": _locomo,
    "longmemeval-s": _longmemeval_s,
    "longmemeval-pool": _longmemeval_pool,
    "beam": _beam,
    "realmem": _realmem,
    "squad": _squad,
    "miracl": _miracl,
    "cosqa": _cosqa,
}
"""Each data set of the benchmarks, by the name used on the command line."""
