"""Extract facts from messages: with a model where there is one, else only what is explicit.

A model's facts are checked against the messages, and rules decide whether one replaces another. Where no rule can
tell, the model is asked once; even then nothing is removed, only superseded.

Without a model these forms are read from what the user writes: `remember that …`, a stated decision or correction,
`KEY=value`, `TODO: …` and task boxes. Everything else needs a model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Final

from holdfast import prompts, signals
from holdfast.errors import ModelError
from holdfast.memory import facts
from holdfast.memory.archive import is_noise, unwrap
from holdfast.memory.block import NO_MARKS, Marks, strip_message
from holdfast.memory.facts import Decision, Draft, Ledger, kind_of, resolve, split_slot, type_of
from holdfast.memory.reader import Dropped, Reader, is_secret, parse_objects, split_messages
from holdfast.messages import Message, Text
from holdfast.models.base import Model, Prompt
from holdfast.settings import Settings
from holdfast.store.base import FactRow, MessageRow, Scope
from holdfast.text import head, tail

__all__ = ["Dropped", "Extraction", "extract", "read_explicit"]


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
    ledger = Ledger(known)
    before = len(ledger.rows)
    if model is None:
        decisions = _resolve_all(read_explicit(messages, marks), scope=scope, ledger=ledger, now=now)
        return Extraction(rows_to_add=tuple(ledger.rows[before:]), actions=_count_actions(decisions))
    reader = Reader(model=model, known=ledger.current, timeout=timeout, cancel=cancel)
    decisions = _resolve_all(reader.read(split_messages(messages, marks)), scope=scope, ledger=ledger, now=now)
    unclear = [decision for decision in decisions if decision.rivals]
    verdicts, calls, trouble = _Verdicts(), reader.calls, reader.trouble
    if unclear and not trouble:
        allowed = settings.knowledge.allow_delete
        verdicts = _judge(unclear, ledger=ledger, model=model, allow_delete=allowed, timeout=timeout, cancel=cancel)
        ledger.add(verdicts.rows)
        calls, trouble = calls + 1, verdicts.trouble
    return Extraction(
        rows_to_add=tuple(ledger.rows[before:]),
        dropped=tuple(reader.dropped),
        actions=_count_actions(decisions, verdicts.actions),
        calls=calls,
        unread=tuple(sorted({piece.id for piece in reader.unread})),
        trouble=trouble,
    )


def _resolve_all(drafts: Iterable[Draft], *, scope: Scope, ledger: Ledger, now: int) -> list[Decision]:
    """Resolve drafts one after the other, each against the facts that the ones before it left."""
    decisions: list[Decision] = []
    for draft in drafts:
        decision = resolve(replace(draft, time=draft.time or now), scope=scope, ledger=ledger)
        ledger.add(decision.rows)
        decisions.append(decision)
    return decisions


def _count_actions(decisions: Iterable[Decision], more: Iterable[str] = ()) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter((*(decision.action for decision in decisions), *more)).items()))


# --- without a model ---------------------------------------------------------------

_MAX_OWN_CHARS: Final = 4_000
_ENDS: Final = 600
"""Of a text so long that most of it was pasted, this many characters of its beginning and end are read."""
_PASTED: Final = re.compile(
    r"^\s*(?:>|\||\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\[?(?:INFO|DEBUG|WARN|ERROR|TRACE)\b|at \S+\(|Traceback ).*$"
    r"|^.*(?:=>|[({]\{|\}[);]|\\[nt]|</?[a-z]+>|;\s*$|\w\(\)|[{}]\s*$).*$",
    re.MULTILINE,
)
_QUOTED: Final = re.compile(r"[\"“「『][^\"”」』\n]{12,}[\"”」』]")
_TODO: Final = re.compile(
    r"^\s*(?:[-*+] )?(?:\[(?P<box>[ xX])\] |(?:TODO|FIXME|待办|未完成)(?:\([^)]*\))?\s*[:：]\s*)(?P<task>\S.{3,200})$",
    re.MULTILINE,
)
_SETTING: Final = re.compile(
    r"^\s*(?:[-*+] )?(?i:(?:please |we |i )?(?:set|changed|export)(?: the)? )?"
    r"`?(?P<key>[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)`?"
    r"(?:\s?=\s?|: | (?:is(?: now)?(?: set to)?|to|改为|改成|设为) )(?P<value>[^\s=|&;,。，]{1,80}?)`?[.。]?\s*$",
    re.MULTILINE,
)
_VERB: Final = r"(?:moved|migrated|switched|changed|renamed|relocated|upgraded|downgraded|bumped|postponed|rescheduled)"
_VERB_ZH: Final = "(?:改为|改成|换成|改到|迁移到|搬到|升级到|改名为|推迟到|提前到)"
_FROM_TO: Final = r"(?: from (?P<old>.{1,60}?))? to (?P<value>.{1,60})"
_WAS: Final = "(?:has been |have been |was |were |is now |are now |has |have )?"
_CHANGES: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:.*\b)?(?:i|we)(?:['’]ve| have)? (?:\w+ly |just |now )?{_VERB} (?P<subject>.{{2,60}}?){_FROM_TO}",
        rf"(?P<subject>(?:the|our) .{{2,60}}?) {_WAS}{_VERB}{_FROM_TO}",
        rf"(?:我们|我)?(?:已经?)?(?:把|将)(?P<subject>.{{2,40}}?)(?:从(?P<old>.{{1,40}}?))?{_VERB_ZH}(?P<value>.{{1,40}})",
    )
)
_NAMED_VALUE: Final = re.compile(
    r"(?:the )?(?P<slot>port|version) (?P<value>\S+)|(?P<port>\d{2,5})\s?端口", re.IGNORECASE
)
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
    lines = signals.without_code(text)
    for match in _TODO.finditer(lines):
        state = "open" if (match["box"] or " ") == " " else "done"
        task = match["task"].strip().rstrip(".。")
        yield Draft(type="task_state", content=_one_line(match), subject=task, slot="status", value=state)
    for match in _SETTING.finditer(lines):
        yield Draft(type="config", content=_one_line(match), subject=match["key"], slot="value", value=match["value"])
    for sentence in signals.sentences(_PASTED.sub("\n", _TODO.sub("\n", _SETTING.sub("\n", lines)))):
        kind = signals.classify_sentence(sentence)
        if kind is not None and not _QUOTED.search(sentence):
            yield _read_change(sentence) if kind == "correction" else Draft(type="decision", content=sentence)


def _one_line(match: re.Match[str]) -> str:
    return " ".join(match.group().split())


def _read_change(sentence: str) -> Draft:
    """Read subject, property and value of a correction, where it names them; without them it replaces nothing."""
    draft = Draft(type="decision", content=sentence, additive=signals.is_additive(sentence))
    match = next((match for form in _CHANGES if (match := form.fullmatch(sentence.strip().rstrip(".。!！")))), None)
    if match is None or not signals.is_stated(sentence):
        return draft
    value, slot, subject = match["value"].strip(), "", match["subject"].strip()
    if (named := _NAMED_VALUE.fullmatch(value)) is not None:
        value, slot = named["value"] or named["port"], (named["slot"] or "port").lower()
    key = split_slot(subject)
    if key is not None and key[0]:
        subject, slot = key
    slot = slot or _SLOT_OF_KIND.get(kind_of(value), "")
    if not slot:
        return draft
    return replace(draft, type=type_of(slot), subject=subject, slot=slot, value=value, old=(match["old"] or "").strip())


# --- unclear pairs -----------------------------------------------------------------

_MAX_UNCLEAR: Final = 40
"""The number of unclear facts that a model is asked about at once; the rest stay beside the old ones."""
_DELETE: Final = "- DELETE: it says that the old fact was wrong and nothing takes its place\n"


@dataclass(frozen=True, slots=True)
class _Verdicts:
    """The answer of a model: the rows to add, the actions taken, and the error."""

    rows: tuple[FactRow, ...] = ()
    actions: tuple[str, ...] = ()
    trouble: str = ""


def _judge(
    unclear: Sequence[Decision],
    *,
    ledger: Ledger,
    model: Model,
    allow_delete: bool,
    timeout: float | None,
    cancel: Event | None,
) -> _Verdicts:
    """Ask a model once about facts that were added beside others of the same subject.

    It may only choose among the rivals that the rules found. A fact that it calls over is superseded, not removed;
    deleting has to be allowed, and even then the history stays.
    """
    pairs = [(decision.rows[0], decision.rivals) for decision in unclear][:_MAX_UNCLEAR]
    known = {fact.id: fact for fact in ledger.current}
    text = prompts.load("extract_unclear", delete=_DELETE if allow_delete else "", facts=_list_pairs(pairs, known))
    prompt = Prompt(messages=(Message(role="user", parts=(Text(text=text),)),))
    try:
        reply = model.ask(prompt, timeout=timeout, cancel=cancel)
    except ModelError as error:
        return _Verdicts(trouble=str(error))
    rows: list[FactRow] = []
    actions: list[str] = []
    for answer in parse_objects(reply.text, name="answers", key="new") or []:
        action = str(answer.get("action") or "").upper()
        pair = _find_pair(answer, pairs, known)
        made = _apply_verdict(action, *pair, allow_delete=allow_delete) if pair else None
        if made is not None:
            actions.append(action)
            rows.append(made)
            known = {fact.id: fact for fact in facts.current([*known.values(), made])}
    return _Verdicts(rows=tuple(rows), actions=tuple(actions))


def _list_pairs(pairs: Sequence[tuple[FactRow, Sequence[str]]], known: Mapping[str, FactRow]) -> str:
    lines: list[str] = []
    for number, (new, rivals) in enumerate(pairs, 1):
        lines.append(f"New {number}: {new.content}")
        lines += [f"  old {fact}: {known[fact].content}" for fact in rivals if fact in known]
    return "\n".join(lines)


def _find_pair(
    answer: Mapping[str, Any], pairs: Sequence[tuple[FactRow, Sequence[str]]], known: Mapping[str, FactRow]
) -> tuple[FactRow, FactRow] | None:
    """Find the new fact and the rival that an answer names; None unless both hold and the rival is not pinned."""
    number, old_id = answer.get("new"), str(answer.get("old") or "")
    if not isinstance(number, int) or not 1 <= number <= len(pairs):
        return None
    new, rivals = pairs[number - 1]
    old = known.get(old_id) if old_id in rivals else None
    return None if old is None or old.pinned or new.id not in known else (new, old)


def _apply_verdict(action: str, new: FactRow, old: FactRow, *, allow_delete: bool) -> FactRow | None:
    """Make the row of one answer; None where it changes nothing."""
    if action in {"SUPERSEDE", "UPDATE"}:
        return facts.supersede(old, new)[1]
    if action == "NONE":  # the new fact says the same: the old one stays
        return replace(new, superseded_by=old.id)
    return facts.retire(old, time=new.time) if action == "DELETE" and allow_delete else None
