"""Extract facts from messages: with a model where there is one, else only what is explicit.

A model's facts are checked against the messages, and rules decide whether one replaces another. Where no rule can
tell, the model is asked once; even then nothing is removed, only superseded.

Without a model these forms are read from what the user writes: `remember that …`, a stated decision or correction,
`KEY=value`, `TODO: …` and task boxes. Everything else needs a model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Final

from holdfast import prompts, signals
from holdfast.errors import ModelError
from holdfast.memory import facts
from holdfast.memory.archive import is_noise, unwrap
from holdfast.memory.block import NO_MARKS, Marks, strip_message
from holdfast.memory.facts import Decision, Draft, kind_of, resolve, split_slot, type_of
from holdfast.memory.reader import Dropped, Reader, is_secret, parse_objects, split_messages
from holdfast.messages import Message, Text
from holdfast.models.base import Model, Prompt
from holdfast.settings import Settings
from holdfast.store.base import FactRow, MessageRow, Scope
from holdfast.text import head, tail


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """The result of an extraction.

    Attributes:
        rows_to_add: The rows for the store, in order; add them in one call.
        dropped: The facts of a model that could not be proved, with the reason.
        actions: How often each of ADD, UPDATE, SUPERSEDE, DELETE and NONE was decided.
        calls: How often a model was called.
        unread: Archived messages that a failing model did not read; extract them again.
        trouble: Why they were not read; empty where there was no trouble.
    """

    rows_to_add: tuple[FactRow, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    actions: tuple[tuple[str, int], ...] = ()
    calls: int = 0
    unread: tuple[int, ...] = ()
    trouble: str = ""


def extract(
    messages: Sequence[MessageRow],
    *,
    scope: Scope,
    model: Model | None,
    known: Sequence[FactRow],
    settings: Settings,
    now: int,
    marks: Marks = NO_MARKS,
    timeout: float | None = None,
    cancel: Event | None = None,
) -> Extraction:
    """Read the facts in messages, and decide what becomes of each.

    The same messages give the same facts with the same ids, so doing it again adds nothing.

    Args:
        messages: Archived messages, oldest first.
        scope: The owner of the facts.
        model: The model that reads them; None to read only what is explicit.
        known: Every version of every fact that the scope may see, oldest first.
        settings: `knowledge` says whether to extract at all, and whether a model may delete.
        now: The time for messages without a timestamp.
        marks: The keys that recalled text is recognised by.
        timeout: Seconds for each call of the model.
        cancel: Ends the extraction when set.
    """
    if not settings.knowledge.extraction:
        return Extraction()
    rows = list(known)
    if model is None:
        decisions = _resolve_all(read_explicit(messages, marks), rows, scope=scope, now=now)
        return Extraction(rows_to_add=tuple(rows[len(known) :]), actions=_count_actions(decisions))
    reader = Reader(model=model, known=facts.current(rows), timeout=timeout, cancel=cancel)
    decisions = _resolve_all(reader.read(split_messages(messages, marks)), rows, scope=scope, now=now)
    unclear = [decision for decision in decisions if decision.rivals][:_MAX_UNCLEAR]
    calls, trouble, more = reader.calls, reader.trouble, list[str]()
    if unclear and not trouble:
        calls += 1
        try:
            reply = model.ask(_ask_about(unclear, rows, settings), timeout=timeout, cancel=cancel)
            more = _apply_verdicts(reply.text, unclear, rows, settings)
        except ModelError as error:
            trouble = str(error)
    return Extraction(
        rows_to_add=tuple(rows[len(known) :]),
        dropped=tuple(reader.dropped),
        actions=_count_actions(decisions, more),
        calls=calls,
        unread=tuple(sorted({piece.id for piece in reader.unread})),
        trouble=trouble,
    )


def _resolve_all(drafts: Iterable[Draft], rows: list[FactRow], *, scope: Scope, now: int) -> list[Decision]:
    """Resolve drafts one after the other, each against `rows`, to which the rows of the ones before it were added."""
    decisions: list[Decision] = []
    for draft in drafts:
        decisions.append(resolve(replace(draft, time=draft.time or now), scope=scope, known=rows))
        rows += decisions[-1].rows
    return decisions


def _count_actions(decisions: Iterable[Decision], more: Iterable[str] = ()) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter((*(decision.action for decision in decisions), *more)).items()))


# --- without a model ---------------------------------------------------------------

_MAX_OWN_CHARS: Final = 4_000
_ENDS: Final = 600
"""Of a text so long that most of it was pasted, this many characters of its beginning and end are read."""
_SLOT_OF_KIND: Final = {"url": "url", "path": "place", "version": "version", "date": "date"}


def read_explicit(messages: Iterable[MessageRow], marks: Marks = NO_MARKS) -> list[Draft]:
    """Read what users state explicitly, in order: memories, decisions, corrections, settings and tasks."""
    drafts: list[Draft] = []
    for row in messages:
        own = strip_message(row.message, marks)
        if own is None or own.role != "user" or row.excluded:
            continue
        text = unwrap(own.text)
        if is_noise(text):
            continue
        if len(text) > _MAX_OWN_CHARS:
            text = f"{head(text, _ENDS)}\n{tail(text, _ENDS)}"
        drafts += (
            replace(draft, quote=draft.content, evidence=(row.id,), time=own.timestamp or 0)
            for draft in _read_text(text)
            if not is_secret(draft.content)
        )
    return drafts


def _read_text(text: str) -> Iterator[Draft]:
    todo, setting = signals.line_pattern("todo"), signals.line_pattern("setting")
    lines = signals.without_code(text)
    for match in todo.finditer(lines):
        state = "open" if (match["box"] or " ") == " " else "done"
        task = match["task"].strip().rstrip(".。")
        yield Draft(type="task_state", content=" ".join(match[0].split()), subject=task, slot="status", value=state)
    for match in setting.finditer(lines):
        key, value = match["key"], match["value"]
        yield Draft(type="config", content=" ".join(match[0].split()), subject=key, slot="value", value=value)
    own = signals.line_pattern("pasted").sub("\n", todo.sub("\n", setting.sub("\n", lines)))
    for sentence in signals.sentences(own):
        kind = signals.classify_sentence(sentence)
        if kind is not None and not signals.line_pattern("quoted").search(sentence):
            yield _read_change(sentence) if kind == "correction" else Draft(type="decision", content=sentence)


def _read_change(sentence: str) -> Draft:
    """Read subject, property and value of a correction, where it names them; without them it replaces nothing."""
    draft = Draft(type="decision", content=sentence, additive=signals.is_additive(sentence))
    match = signals.find_change(sentence)
    if match is None or not signals.is_stated(sentence):
        return draft
    value, slot, subject, old = match["value"].strip(), "", match["subject"].strip(), match["old"] or ""
    if named := signals.line_pattern("named_value").fullmatch(value):
        slot, value = (named["slot"].lower(), named["value"]) if named["slot"] else ("port", named["port"])
    key = split_slot(subject)
    if key is not None and key[0]:
        subject, slot = key
    slot = slot or _SLOT_OF_KIND.get(kind_of(value), "")
    if not slot:
        return draft
    return replace(draft, type=type_of(slot), subject=subject, slot=slot, value=value, old=old.strip())


# --- unclear pairs -----------------------------------------------------------------

_MAX_UNCLEAR: Final = 40
"""The number of unclear facts that a model is asked about at once; the rest stay beside the old ones."""
_DELETE: Final = "- DELETE: it says that the old fact was wrong and nothing takes its place\n"


def _ask_about(unclear: Sequence[Decision], rows: Sequence[FactRow], settings: Settings) -> Prompt:
    """Ask a model about facts that were added beside others of the same subject."""
    held = {fact.id: fact for fact in facts.current(rows)}
    lines: list[str] = []
    for number, decision in enumerate(unclear, 1):
        lines.append(f"New {number}: {decision.rows[0].content}")
        lines += [f"  old {fact}: {held[fact].content}" for fact in decision.rivals if fact in held]
    delete = _DELETE if settings.knowledge.allow_delete else ""
    text = prompts.load("extract_unclear", delete=delete, facts="\n".join(lines))
    return Prompt(messages=(Message(role="user", parts=(Text(text=text),)),))


def _apply_verdicts(reply: str, unclear: Sequence[Decision], rows: list[FactRow], settings: Settings) -> list[str]:
    """Add the rows of a model's answers to `rows`, and return the actions that it chose.

    It may only choose among the rivals that the rules found, and none that is pinned. A fact that it calls over is
    superseded, not removed; deleting has to be allowed, and even then the history stays.
    """
    actions: list[str] = []
    for answer in parse_objects(reply, name="answers", key="new") or []:
        held = {fact.id: fact for fact in facts.current(rows) if not fact.pinned}
        given = answer.get("new")
        number = given if isinstance(given, int) else 0
        old, action = held.get(str(answer.get("old"))), str(answer.get("action")).upper()
        rivals = {place: decision.rivals for place, decision in enumerate(unclear, 1) if decision.rows[0].id in held}
        if old is None or old.id not in rivals.get(number, ()):
            continue
        new = unclear[number - 1].rows[0]
        changes = {
            "SUPERSEDE": facts.supersede(old, new),
            "UPDATE": facts.supersede(old, new),
            "NONE": replace(new, superseded_by=old.id),  # the new fact says the same: the old one stays
            "DELETE": facts.retire(old, time=new.time),
        }
        if not settings.knowledge.allow_delete:
            del changes["DELETE"]
        if action in changes:
            actions.append(action)
            rows.append(changes[action])
    return actions
