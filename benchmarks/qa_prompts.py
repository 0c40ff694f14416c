"""What readers and judges are asked about the questions of a data set, and how their replies become scores.

The prompts of the data sets' authors are read from a checkout of their repositories, as text: nothing of it is run.
Without one, prompts of our own are used, and the figures say so.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import Stemmer

from benchmarks.datasets import Question
from holdfast.errors import InputError

__all__ = ["OFFICIAL", "Prompts", "compare_words", "official_prompts", "own_prompts"]

_OWN: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("data").joinpath("qa.toml").read_text("utf-8"))
_STEMMER: Final = Stemmer.Stemmer("porter")
_ADVERSARIAL: Final = "5"
"""LoCoMo's category of questions that the conversation does not answer."""
_TEMPORAL: Final = "2"
_NO_ANSWER: Final = ("no information available", "not mentioned")
"""What LoCoMo takes for the admission that there is no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """How a data set is read and judged.

    Attributes:
        source: Whose prompts they are.
        read: The prompt of the reader, for a question and its context.
        judge: The prompts of the judge for a question and a response: one, or one for each item of a rubric.
        score: The score of a reply of the judge, from 0 to 1.
        reader_tokens: The longest answer.
        judge_tokens: The longest verdict.
    """

    source: str
    read: Callable[[Question, str], str]
    judge: Callable[[Question, str], list[str]]
    score: Callable[[str], float]
    reader_tokens: int
    judge_tokens: int


def is_unanswerable(question: Question) -> bool:
    """Return whether the right answer is that there is none."""
    return question.kind.endswith("_abs") or question.kind in {_ADVERSARIAL, "abstention"}


# --- our own ------------------------------------------------------------------


def own_prompts() -> Prompts:
    """Return prompts in our own words."""
    return Prompts(
        source="own",
        read=_read_own,
        judge=_judge_own,
        score=_score_any,
        reader_tokens=_OWN["reader"]["max_tokens"],
        judge_tokens=_OWN["judge"]["max_tokens"],
    )


def _read_own(question: Question, context: str) -> str:
    return str(_OWN["reader"]["text"]).format(context=context, date=_date(question), question=question.text).strip()


def _judge_own(question: Question, response: str) -> list[str]:
    judge = _OWN["judge"]
    if question.rubric:
        return [
            judge["rubric"].format(question=question.text, answer=item, response=response).strip()
            for item in question.rubric
        ]
    template = judge["unanswerable" if is_unanswerable(question) else "text"]
    return [template.format(question=question.text, answer=question.answer, response=response).strip()]


def _date(question: Question) -> str:
    return "not known" if question.date is None else f"{question.date:%Y/%m/%d (%a) %H:%M}"


def _score_any(reply: str) -> float:
    return _score_json(reply) if "{" in reply else _score_word(reply)


def _score_word(reply: str) -> float:
    return float("yes" in reply.lower())


def _score_json(reply: str) -> float:
    """Read the score of a JSON object, which models put between other words, or quote."""
    found = re.search(r'"score"\s*:\s*"?\[?\s*([0-9.]+)', reply)
    return min(1.0, float(found.group(1).rstrip(".") or 0)) if found else 0.0


# --- those of the authors -----------------------------------------------------


def official_prompts(dataset: str, folder: Path) -> Prompts:
    """Return the prompts of a data set's authors from a checkout of their repository."""
    if dataset not in OFFICIAL:
        raise InputError(f"{dataset}: no prompts of its authors are known. Leave --official out to use our own.")
    return OFFICIAL[dataset](folder)


def _longmemeval(folder: Path) -> Prompts:
    readers = [
        text
        for text in _assigned(folder / "src/generation/run_generation.py", "answer_prompt_template")
        if "History Chats" in text and "facts" not in text and "step by step" in text
    ]
    judges = _assigned(folder / "src/evaluation/evaluate_qa.py", "template")
    if len(readers) != 1 or len(judges) != 5:
        raise InputError(f"{folder}: expected one prompt for readers and five for judges. Use another version of it.")
    plain, temporal, update, preference, unanswerable = judges
    by_kind = {"temporal-reasoning": temporal, "knowledge-update": update, "single-session-preference": preference}

    def judge(question: Question, response: str) -> list[str]:
        template = unanswerable if is_unanswerable(question) else by_kind.get(question.kind, plain)
        return [template.format(question.text, question.answer, response)]

    return Prompts(
        source="LongMemEval",
        read=lambda question, context: readers[0].format(context, _date(question), question.text),
        judge=judge,
        score=_score_word,
        reader_tokens=800,
        judge_tokens=10,
    )


def _beam(folder: Path) -> Prompts:
    file = folder / "src/prompts.py"
    (reader,) = _assigned(file, "answer_generation_for_rag") or [""]
    (judge,) = _assigned(file, "unified_llm_judge_base_prompt") or [""]
    if not reader or not judge:
        raise InputError(f"{file}: the prompts for answers and for judges are not there. Use another version of it.")

    def ask_judge(question: Question, response: str) -> list[str]:
        places = {"<question>": question.text, "<llm_response>": response}
        items = question.rubric or (question.answer,)
        return [_fill(judge, {**places, "<rubric_item>": item}) for item in items]

    return Prompts(
        source="BEAM",
        read=lambda question, context: _fill(reader, {"<context>": context, "<question>": question.text}),
        judge=ask_judge,
        score=_score_json,
        reader_tokens=1000,
        judge_tokens=1000,
    )


def _locomo(folder: Path) -> Prompts:
    file = folder / "task_eval/gpt_utils.py"
    (template,) = _assigned(file, "QA_PROMPT") or [""]
    dates = [text for text in _texts(file) if "DATE of CONVERSATION" in text]
    if not template or len(dates) != 1:
        raise InputError(f"{file}: the prompt for questions is not there. Use another version of it.")

    def read(question: Question, context: str) -> str:
        text = question.text + (dates[0] if question.kind == _TEMPORAL else "")
        return f"{context}\n\n{template.format(text)}"

    # The authors compare words and have no judge; where one is given, it is asked in our words.
    return Prompts(source="LoCoMo", read=read, judge=_judge_own, score=_score_any, reader_tokens=32, judge_tokens=300)


Reading: TypeAlias = Callable[[Path], Prompts]
OFFICIAL: Final[Mapping[str, Reading]] = {
    "locomo": _locomo,
    "longmemeval-s": _longmemeval,
    "longmemeval-pool": _longmemeval,
    "beam": _beam,
}


def _assigned(file: Path, name: str) -> list[str]:
    """Return the texts that a Python file gives to a name, in their order."""
    found: list[str] = []
    for node in ast.walk(_parse(file)):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
            continue
        is_named = any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
        if is_named and isinstance(node.value.value, str):
            found.append(node.value.value)
    return found


def _texts(file: Path) -> list[str]:
    """Return all texts of a Python file."""
    constants = (node.value for node in ast.walk(_parse(file)) if isinstance(node, ast.Constant))
    return [value for value in constants if isinstance(value, str)]


def _parse(file: Path) -> ast.Module:
    """Parse a Python file; it is not run."""
    try:
        return ast.parse(file.read_text("utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError(f"{file}: the prompts cannot be read ({error}). Give the folder of the repository.") from error


def _fill(template: str, values: Mapping[str, str]) -> str:
    """Fill all places at once, so that a value that contains a place stays as it is."""
    return re.sub("|".join(map(re.escape, values)), lambda match: values[match.group()], template)


# --- words --------------------------------------------------------------------


def compare_words(question: Question, response: str) -> float:
    """Compare the words of a response with the answer, as LoCoMo does: the F1 of their stems.

    Several parts of a multi-hop answer are looked for one by one. Of an open-domain answer, only the first part counts.
    """
    if is_unanswerable(question):
        return float(any(words in response.lower() for words in _NO_ANSWER))
    answer = question.answer.split(";")[0] if question.kind == "3" else question.answer
    if question.kind != "1":
        return _f1(response, answer)
    parts = [part for part in answer.split(",") if part.strip()] or [answer]
    said = response.split(",")
    return sum(max(_f1(each, part) for each in said) for part in parts) / len(parts)


def _f1(response: str, answer: str) -> float:
    said = Counter(_stems(response))
    wanted = Counter(_stems(answer))
    common = (said & wanted).total()
    return 2 * common / (said.total() + wanted.total()) if common else 0.0


def _stems(text: str) -> Sequence[str]:
    words = re.sub(r"[^\w\s]", "", text.lower()).split()
    kept = [word for word in words if word not in {"a", "an", "the", "and"}]
    return list(_STEMMER.stemWords(kept))
