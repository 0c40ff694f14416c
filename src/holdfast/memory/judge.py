"""The model's part in deciding what becomes of a fact: only where no rule can tell, and never by itself.

It may only choose among the facts that the rules found to be about the same thing, and a fact that it says is over
is succeeded, not removed; deleting has to be allowed, and even then the history stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Final

from holdfast import prompts
from holdfast.errors import ModelError
from holdfast.memory import answers, facts
from holdfast.memory.resolve import Decision, Ledger
from holdfast.messages import Message, Text
from holdfast.models.base import Model, Prompt
from holdfast.store.base import FactRow

__all__ = ["Verdicts", "judge"]

_MOST: Final = 40
"""So many unclear facts are asked about at once; the rest stay beside the old ones."""
_DELETE: Final = "- DELETE: it says that the old fact was wrong and nothing takes its place\n"


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What a model decided: the rows to add, what was done for how many, and why nothing could be decided."""

    rows: tuple[FactRow, ...] = ()
    actions: tuple[str, ...] = ()
    trouble: str = ""


def judge(
    unclear: Sequence[Decision],
    *,
    ledger: Ledger,
    model: Model,
    allow_delete: bool,
    timeout: float | None = None,
    cancel: Event | None = None,
) -> Verdicts:
    """Ask once about facts that were added beside others of the same subject."""
    pairs = [(decision.rows[0], decision.rivals) for decision in unclear][:_MOST]
    known = {fact.id: fact for fact in ledger.current}
    prompt = prompts.load("extract_unclear", delete=_DELETE if allow_delete else "", facts=_listed(pairs, known))
    try:
        reply = model.ask(
            Prompt(messages=(Message(role="user", parts=(Text(text=prompt),)),)), timeout=timeout, cancel=cancel
        )
    except ModelError as error:
        return Verdicts(trouble=str(error))
    rows: list[FactRow] = []
    actions: list[str] = []
    for answer in answers.read(reply.text, name="answers", key="new") or []:
        action, made = _carried_out(answer, pairs, known, allow_delete=allow_delete)
        if made:
            actions.append(action)
            rows += made
            known = {fact.id: fact for fact in facts.current([*known.values(), *made])}
    return Verdicts(rows=tuple(rows), actions=tuple(actions))


def _listed(pairs: Sequence[tuple[FactRow, Sequence[str]]], known: Mapping[str, FactRow]) -> str:
    lines: list[str] = []
    for number, (new, rivals) in enumerate(pairs, 1):
        lines.append(f"New {number}: {new.content}")
        lines += [f"  old {fact}: {known[fact].content}" for fact in rivals if fact in known]
    return "\n".join(lines)


def _carried_out(
    answer: Mapping[str, Any],
    pairs: Sequence[tuple[FactRow, Sequence[str]]],
    known: Mapping[str, FactRow],
    *,
    allow_delete: bool,
) -> tuple[str, tuple[FactRow, ...]]:
    """The rows of one answer; none where it does not name a new fact and one of its rivals, both still standing."""
    number, old_id = answer.get("new"), str(answer.get("old") or "")
    if not isinstance(number, int) or not 1 <= number <= len(pairs):
        return "NONE", ()
    new, rivals = pairs[number - 1]
    old = known.get(old_id) if old_id in rivals else None
    if old is None or old.pinned or new.id not in known:
        return "NONE", ()
    action = str(answer.get("action") or "").upper()
    return action, _rows(action, new, old, allow_delete=allow_delete)


def _rows(action: str, new: FactRow, old: FactRow, *, allow_delete: bool) -> tuple[FactRow, ...]:
    match action:
        case "SUPERSEDE" | "UPDATE":
            return (facts.supersede(old, new)[1],)
        case "NONE":  # the new one was said last, and says the same: it goes under the old one's name
            return (replace(new, superseded_by=old.id),)
        case "DELETE" if allow_delete:
            return (facts.retire(old, time=new.time),)
        case _:
            return ()
