"""Questions answered by a model from what was recalled, and judged: the figure that memory products publish.

The same reader gets the block of Holdfast, a block of plain BM25, and the whole history as far as it fits its window.
Every answer is saved when it is there, so that a run that was interrupted goes on.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.baselines import plain_bm25
from benchmarks.datasets import Conversation, Question, load_all
from benchmarks.qa_prompts import Prompts, compare_words
from benchmarks.recall import Archive, Remembering, by_limit
from holdfast.embed.base import Embedder
from holdfast.errors import InputError
from holdfast.memory.recall import recall
from holdfast.messages import Usage
from holdfast.providers.models import find_price
from holdfast.tokens import count_text

__all__ = ["CONTEXTS", "Answer", "Endpoint", "Estimate", "Task", "ask_all", "estimate", "load", "prepare", "summarise"]

CONTEXTS: Final = ("holdfast", "bm25", "whole")
_LEFT_OUT: Final = {"locomo": {"5"}}
"""Questions without an answer, which the published figures of LoCoMo leave out."""
_VERDICT_TOKENS: Final = 60
"""About what a judge says, for the estimate of costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A question with one of its contexts. `number` is that of the question in the data set."""

    number: int
    context: str
    question: Question
    prompt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response and its scores.

    Attributes:
        run: The number of the run.
        number: That of the question.
        context: The name of its context.
        kind: The category of the question.
        response: The words of the reader.
        words: The F1 of its words and those of the answer.
        judged: The score of the judge from 0 to 1; None if none was asked.
        tokens: The tokens of the prompt, as the server counted them.
    """

    run: int
    number: int
    context: str
    kind: str
    response: str
    words: float
    judged: float | None
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a run asks of the models. `dollars` is None if a price is not known."""

    requests: int
    input: int
    output: int
    dollars: float | None


class Endpoint:
    """A model behind an OpenAI-compatible server: `openai/NAME` or `http://host:port/v1#NAME`."""

    def __init__(self, name: str, *, temperature: float | None = 0.0) -> None:
        import openai  # noqa: PLC0415 - takes a second, and most of this module does without

        address, mark, model = name.partition("#")
        service, _, openai_model = name.partition("/")
        if mark and model:
            self.model = model
            self._limit = "max_tokens"
        elif service == "openai" and openai_model:
            address = ""
            self.model = openai_model
            self._limit = "max_completion_tokens"
        else:
            raise InputError(f"{name}: name a model as openai/NAME or http://host:port/v1#NAME")
        key = os.environ.get("OPENAI_API_KEY", "")
        if not key and not mark:
            raise InputError("OPENAI_API_KEY is not set: it is the key for the models of OpenAI")
        self.name = name
        self._sampling: dict[str, Any] = {} if temperature is None else {"temperature": temperature}
        self._client = openai.OpenAI(base_url=address or None, api_key=key or "none", max_retries=5)

    def ask(self, prompt: str, *, max_tokens: int, seed: int) -> tuple[str, int]:
        """Return the reply to a prompt, and the tokens of the prompt."""
        body: dict[str, Any] = {self._limit: max_tokens, "seed": seed, **self._sampling}
        reply = self._client.chat.completions.create(
            model=self.model, messages=[{"role": "user", "content": prompt}], **body
        )
        text = reply.choices[0].message.content if reply.choices else ""
        return (text or "").strip(), reply.usage.prompt_tokens if reply.usage else count_text(prompt)


# --- what is asked ------------------------------------------------------------


def load(dataset: str, path: Path, *, most: int | None = None) -> list[Conversation]:
    """Load the questions that published figures are about; at most so many, spread over all conversations."""
    conversations = load_all(dataset, path)
    left_out = _LEFT_OUT.get(dataset, set())
    kept = [[each for each in one.questions if each.kind not in left_out] for one in conversations]
    total = sum(map(len, kept))
    if not total:
        raise InputError(f"{path}: no questions found; is this the {dataset} data?")
    step = 1 if most is None else max(1, -(-total // most))
    found: list[Conversation] = []
    seen = 0
    for conversation, questions in zip(conversations, kept, strict=True):
        chosen = [question for place, question in enumerate(questions, seen) if place % step == 0]
        seen += len(questions)
        if chosen:
            found.append(replace(conversation, questions=tuple(chosen)))
    return found


def prepare(
    conversations: Sequence[Conversation],
    *,
    prompts: Prompts,
    embedder: Embedder | None,
    contexts: Sequence[str],
    cap: int,
    window: int,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Task]:
    """Make the prompts of the reader. `cap` is that of blocks; `window` is that of the reader, for whole histories."""
    tasks: list[Task] = []
    indexer = None if embedder is None else Remembering(embedder)
    number = 0
    for conversation in conversations:
        bm25 = plain_bm25(conversation)
        with tempfile.TemporaryDirectory() as folder:
            held = Archive(conversation, Path(folder), embedder=embedder, indexer=indexer)
            makers: dict[str, Callable[[Question], str]] = {
                "holdfast": partial(_recalled, held, cap=cap),
                "bm25": lambda question, ask=bm25: ask(question, cap)[2],  # type: ignore[misc]
                "whole": partial(_history, conversation, room=window - prompts.reader_tokens),
            }
            for limit, questions in by_limit(conversation):
                if "holdfast" in contexts:
                    held.grow(limit)
                for question in questions:
                    for name in contexts:
                        prompt = prompts.read(question, makers[name](question))
                        tasks.append(Task(number=number, context=name, question=question, prompt=prompt))
                    number += 1
                    progress(1)
            held.store.close()
    return tasks


def _recalled(held: Archive, question: Question, *, cap: int) -> str:
    return recall(held.store, held.request(question, cap=cap), embedder=held.embedder).block


def _history(conversation: Conversation, question: Question, *, room: int) -> str:
    """Return the conversation as far as it fits, the newest first to be kept."""
    lines: list[str] = []
    room -= count_text(question.text) + 300  # the words of the prompt
    for session in reversed(conversation.sessions[: question.limit]):
        date = "" if session.date is None else f"{session.date:%Y-%m-%d %H:%M}"
        for turn in reversed(session.turns):
            line = f"[{date} {turn.speaker or turn.role}] {turn.text}"
            room -= count_text(line) + 1
            if room < 0:
                return "\n".join(reversed(lines))
            lines.append(line)
    return "\n".join(reversed(lines))


def estimate(
    tasks: Sequence[Task], *, prompts: Prompts, runs: int, reader: str, judge: str | None, prices: Sequence[str] = ()
) -> Estimate:
    """Estimate what the runs cost before anything is asked. Answers and verdicts are counted at their usual length."""
    usual = prompts.reader_tokens // 2
    readings = Usage(input=sum(count_text(task.prompt) for task in tasks), output=usual * len(tasks))
    verdicts = 0
    judging = Usage()
    if judge is not None:
        asked = [text for task in tasks for text in prompts.judge(task.question, "")]
        verdicts = len(asked)
        length = sum(map(count_text, asked)) + usual * verdicts
        judging = Usage(input=length, output=min(prompts.judge_tokens, _VERDICT_TOKENS) * verdicts)
    dollars: float | None = 0.0
    for name, usage in ((reader, readings), (judge, judging)):
        price = None if name is None else find_price(name.rpartition("#")[2], prices=prices)
        if name is not None and dollars is not None:
            dollars = None if price is None else dollars + price.cost(usage) * runs
    return Estimate(
        requests=(len(tasks) + verdicts) * runs,
        input=(readings.input + judging.input) * runs,
        output=(readings.output + judging.output) * runs,
        dollars=dollars,
    )


# --- answers ------------------------------------------------------------------


def ask_all(
    tasks: Sequence[Task],
    *,
    prompts: Prompts,
    reader: Endpoint,
    judge: Endpoint | None,
    runs: int,
    file: Path,
    about: Mapping[str, Any],
    parallel: int = 1,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[list[Answer], list[str]]:
    """Ask what the file does not have yet, and add it there. Returns all answers, and what failed.

    `about` is the first line of the file: answers of another reader, data set or setting are never mixed in.
    """
    import openai  # noqa: PLC0415 - as above

    answers = _read(file, about)
    done = {(answer.run, answer.number, answer.context) for answer in answers}
    missing = [
        (run, task) for run in range(1, runs + 1) for task in tasks if (run, task.number, task.context) not in done
    ]
    progress(len(done))
    failures: list[str] = []

    def ask(pair: tuple[int, Task]) -> Answer | str:
        try:
            return _ask(pair[1], run=pair[0], prompts=prompts, reader=reader, judge=judge)
        except openai.OpenAIError as error:
            return f"question {pair[1].number}, {pair[1].context}: {error}"

    with file.open("a", encoding="utf-8") as out, ThreadPoolExecutor(parallel) as pool:
        for found in pool.map(ask, missing):
            progress(1)
            if isinstance(found, str):
                failures.append(found)
                continue
            answers.append(found)
            out.write(f"{json.dumps(asdict(found), ensure_ascii=False)}\n")
            out.flush()
    return answers, failures


def _ask(task: Task, *, run: int, prompts: Prompts, reader: Endpoint, judge: Endpoint | None) -> Answer:
    response, tokens = reader.ask(task.prompt, max_tokens=prompts.reader_tokens, seed=run)
    judged: float | None = None
    if judge is not None:
        asked = prompts.judge(task.question, response)
        verdicts = [judge.ask(text, max_tokens=prompts.judge_tokens, seed=run)[0] for text in asked]
        judged = statistics.fmean(map(prompts.score, verdicts))
    return Answer(
        run=run,
        number=task.number,
        context=task.context,
        kind=task.question.kind,
        response=response,
        words=round(compare_words(task.question, response), 4),
        judged=judged,
        tokens=tokens,
    )


def _read(file: Path, about: Mapping[str, Any]) -> list[Answer]:
    """Read the answers of a file; begin one that is not there. A last line that was cut off is asked again."""
    first = json.dumps(about, sort_keys=True)
    if not file.exists() or not file.stat().st_size:
        file.write_text(f"{first}\n", "utf-8")
        return []
    whole, _, _ = file.read_text("utf-8").rpartition("\n")
    head, *lines = whole.split("\n")
    if head != first:
        raise InputError(f"{file}: these are answers of another run ({head}). Name another file with --save.")
    file.write_text(f"{whole}\n", "utf-8")
    return [Answer(**json.loads(line)) for line in lines]


# --- figures ------------------------------------------------------------------


def summarise(answers: Iterable[Answer]) -> dict[str, dict[str, Any]]:
    """Return the figures of each context: the mean of its runs, their spread, and tokens for each question."""
    groups: dict[str, list[Answer]] = {}
    for answer in answers:
        groups.setdefault(answer.context, []).append(answer)
    return {name: _figures(group) for name, group in groups.items()}


def _figures(answers: Sequence[Answer]) -> dict[str, Any]:
    by_run = [[each for each in answers if each.run == run] for run in sorted({each.run for each in answers})]
    words = [statistics.fmean(each.words for each in run) for run in by_run]
    judged = [statistics.fmean(_verdicts(run)) for run in by_run if any(True for _ in _verdicts(run))]
    kinds = sorted({each.kind for each in answers})
    return {
        "judged": round(statistics.fmean(judged), 4) if judged else None,
        "judged_spread": _spread(judged) if judged else None,
        "words": round(statistics.fmean(words), 4),
        "words_spread": _spread(words),
        "runs": len(by_run),
        "answers": len(answers),
        "tokens": round(statistics.fmean(each.tokens for each in answers)),
        "by_kind": {kind: _of_kind([each for each in answers if each.kind == kind]) for kind in kinds},
    }


def _verdicts(answers: Iterable[Answer]) -> Iterator[float]:
    return (each.judged for each in answers if each.judged is not None)


def _spread(scores: Sequence[float]) -> float:
    """Return the standard deviation of runs; 0 if there is one."""
    return round(statistics.stdev(scores), 4) if len(scores) > 1 else 0.0


def _of_kind(answers: Sequence[Answer]) -> float:
    verdicts = list(_verdicts(answers))
    return round(statistics.fmean(verdicts or [each.words for each in answers]), 4)
