"""Extract facts from messages: with a model if there is one, otherwise only what is explicit.

A model reads the whole text, in as few calls as possible. A fact is kept only if its quote is found in a message, all
its numbers occur in the messages, and it contains no secret. Rules decide whether one fact replaces another. If no rule
does, the model is asked once, and even then nothing is removed, only superseded.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any, Final, get_args

from holdfast import prompts, signals
from holdfast.errors import ModelBudgetError, ModelError, ModelOverflowError
from holdfast.memory import facts
from holdfast.memory.archive import extract_text, is_noise, unwrap, weigh_letters
from holdfast.memory.block import NO_MARKS, Marks, strip_message
from holdfast.memory.conflicts import FactIndex, find_replaced, may_be_replaced
from holdfast.memory.facts import Decision, Draft, list_own_sentences, normalise_slot, read_text, resolve
from holdfast.messages import Message, Role, Text
from holdfast.models.base import Model, Prompt
from holdfast.redaction import redact
from holdfast.search.corrections import MAX_BEFORE_CHARS, is_statement, may_take_back
from holdfast.settings import Settings
from holdfast.store.base import FactRow, FactType, MessageRow, Scope
from holdfast.text import clip, head, is_unsegmented, repeats_itself, tail, terms
from holdfast.tokens import count_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """The result of an extraction.

    Attributes:
        rows_to_add: The rows of new and changed facts. Add them in one call, in their order.
        dropped: Facts of a model that could not be proved.
        actions: How often each of ADD, UPDATE, SUPERSEDE, DELETE and NONE was chosen.
        calls: How often the model was asked.
        unread: Messages that a failing model did not read, to be extracted again. There are no facts from these and
            later ones.
        failure: Why they were not read.
        is_unusable: Whether the model answered, but the answer cannot be used.
    """

    rows_to_add: tuple[FactRow, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    actions: tuple[tuple[str, int], ...] = ()
    calls: int = 0
    unread: tuple[int, ...] = ()
    failure: str = ""
    is_unusable: bool = False


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
    """Read the facts in messages, oldest first, and decide which to add or replace.

    The same messages give the same facts with the same ids, so reading them again adds nothing.

    Args:
        messages: The messages.
        scope: The owner of the facts.
        model: The model; without one only what is explicit is read.
        known: Every version of every fact that the scope may see, oldest first.
        settings: The settings.
        now: The time of messages without a timestamp.
        marks: The keys by which recalled text is recognised, which is not read.
        timeout: The seconds that each call of the model may take.
        cancel: Ends a call when it is set.
    """
    if not settings.knowledge.extraction:
        return Extraction()
    rows = list(known)
    if model is None:
        decisions = _read_by_rule(messages, rows, scope=scope, marks=marks, now=now)
        return Extraction(rows_to_add=tuple(rows[len(known) :]), actions=_count_actions(decisions))
    reader = Reader(model=model, known=facts.current(rows), timeout=timeout, cancel=cancel)
    drafts = reader.read(split_messages(messages, marks))
    if reader.unread:
        # If only a part of a message was read, its facts and those of later messages are dropped: they are read again.
        first = min(piece.id for piece in reader.unread)
        drafts = [draft for draft in drafts if max(draft.evidence) < first]
        messages = [row for row in messages if row.id < first]
    drafts += _find_missed(drafts, messages, known=reader.known, marks=marks)
    decisions = _resolve_all(drafts, rows, scope=scope, now=now)
    rivals = [decision for decision in decisions if decision.rivals][:_MAX_UNCLEAR]
    unclear = _Unclear(rivals, rows, allow_delete=settings.knowledge.allow_delete)
    calls = reader.calls
    failure = reader.failure
    more: list[str] = []
    if rivals and not failure:
        calls += 1
        try:
            more = unclear.apply(model.ask(unclear.make_prompt(model), timeout=timeout, cancel=cancel).text)
        except ModelError as error:
            failure = str(error)
    return Extraction(
        rows_to_add=tuple(rows[len(known) :]),
        dropped=tuple(reader.dropped),
        actions=_count_actions(decisions, more),
        calls=calls,
        unread=tuple(sorted({piece.id for piece in reader.unread})),
        failure=failure,
        is_unusable=reader.is_unusable,
    )


def _find_missed(
    drafts: Sequence[Draft], messages: Sequence[MessageRow], *, known: Sequence[FactRow], marks: Marks
) -> list[Draft]:
    """Find what is explicit in messages from which the model has kept no fact, unless a known fact quotes it.

    A weak model misses even what the user asks to remember. Memory must not store less with it than by rule.
    """
    read: set[int] = set()
    for draft in drafts:
        read.update(draft.evidence)
    quotes = [plain(fact.quote) for fact in known]
    missed: list[Draft] = []
    for draft in read_explicit(messages, marks):
        words = plain(draft.content)
        is_known = any(quote and (quote in words or words in quote) for quote in quotes)
        if read.isdisjoint(draft.evidence) and not is_known:
            missed.append(draft)
    return missed


def _resolve_all(drafts: Iterable[Draft], rows: list[FactRow], *, scope: Scope, now: int) -> list[Decision]:
    """Resolve drafts one after the other against `rows`, and add the rows of each to these."""
    decisions: list[Decision] = []
    for untimed in drafts:
        draft = replace(untimed, time=untimed.time or now)
        decision = resolve(draft, scope=scope, known=rows)
        if decision.action == "ADD":
            decision = _replace_by_words(draft, decision, known=rows)
        rows += decision.rows
        decisions.append(decision)
    return decisions


def _replace_by_words(draft: Draft, added: Decision, *, known: Sequence[FactRow]) -> Decision:
    """Replace older facts if the words of a fact that would be added certainly replace theirs."""
    if draft.additive or draft.doubtful:
        return added
    (new,) = added.rows
    older = [fact for fact in facts.current(known) if draft.is_newer(fact)]
    over = find_replaced(new, older)
    if not over:
        return added
    rows = (new, *(facts.supersede(fact, new) for fact in over))
    return Decision(action="SUPERSEDE", reason="its words say so", rows=rows)


def _read_by_rule(
    messages: Iterable[MessageRow], rows: list[FactRow], *, scope: Scope, marks: Marks, now: int
) -> list[Decision]:
    """Read the messages one after the other, since a message may correct what one before it has stated."""
    decisions: list[Decision] = []
    said = _list_own_words(messages, marks)
    for place, (message, text) in enumerate(said):
        following = ""
        if place + 1 < len(said):
            _, following = said[place + 1]
        explicit = _read_stated(text, message, following=following)
        decisions += _resolve_all(explicit, rows, scope=scope, now=now)
        corrections = _read_corrections(text, message, known=rows, now=now, following=following)
        decisions += _resolve_all(corrections, rows, scope=scope, now=now)
    return decisions


def _count_actions(decisions: Iterable[Decision], more: Iterable[str] = ()) -> tuple[tuple[str, int], ...]:
    counts = Counter(decision.action for decision in decisions) + Counter(more)
    return tuple(sorted(counts.items()))


# --- without a model ---------------------------------------------------------------

_MAX_OWN_CHARS: Final = 4_000
"""A longer message was mostly pasted."""
_ENDS: Final = 600
"""How many characters at the beginning and at the end of such a message are read."""


def read_explicit(messages: Iterable[MessageRow], marks: Marks = NO_MARKS) -> list[Draft]:
    """Read what users state explicitly, in order: memories, decisions, corrections, settings and tasks."""
    drafts: list[Draft] = []
    said = _list_own_words(messages, marks)
    for place, (row, text) in enumerate(said):
        following = ""
        if place + 1 < len(said):
            _, following = said[place + 1]
        drafts += _read_stated(text, row, following=following)
    return drafts


def _list_own_words(messages: Iterable[MessageRow], marks: Marks) -> list[tuple[MessageRow, str]]:
    """List what users wrote, in order, and the message of each."""
    said = [(row, _read_own_words(row, marks)) for row in messages]
    return [(row, text) for row, text in said if text]


def _read_stated(text: str, row: MessageRow, *, following: str) -> list[Draft]:
    """Read what the text of a message states explicitly; `following` is what the user said next."""
    return [_prove(draft, row) for draft in read_text(text, following=following) if not is_secret(draft.content)]


def _read_corrections(text: str, row: MessageRow, *, known: Sequence[FactRow], now: int, following: str) -> list[Draft]:
    """Read the sentences of a user that say that a known decision or preference no longer holds.

    "The event bus will be RabbitMQ instead of NATS" is explicit only next to the decision for NATS. Orders are left
    out: most are about one piece of work.
    """
    drafts: list[Draft] = []
    sentences = list(list_own_sentences(text))
    for place, sentence in signals.list_standing(sentences, following=following):
        if not may_take_back(sentence) or not is_statement(sentence) or signals.asks(sentence):
            continue
        content = _add_next(sentence, sentences[place + 1 :], text=text)
        if not is_secret(content):
            drafts.append(_prove(Draft(type="decision", content=content), row))
    if not drafts:  # most messages have none, and finding the facts that hold takes longer
        return []
    decisions = [fact for fact in facts.current(known) if fact.type == "decision"]
    stated = [facts.make_row(replace(draft, time=draft.time or now), scope=row.scope) for draft in drafts]
    index = FactIndex(decisions, wanted=stated)
    corrections: list[Draft] = []
    for draft, new in zip(drafts, stated, strict=True):
        if any(draft.is_newer(fact) and may_be_replaced(fact, new) for fact in index.find_near(new)):
            corrections.append(draft)
    return corrections


def _add_next(sentence: str, rest: Sequence[str], *, text: str) -> str:
    """Add to a short sentence the next one, as in "Svelte is out. The dashboard is built with Vue".

    What is out, and what takes its place, is often said in two.
    """
    if len(sentence) > MAX_BEFORE_CHARS or not rest or not is_statement(rest[0]):
        return sentence
    both = f"{sentence} {rest[0]}"
    if both in text:
        return both
    if sentence + rest[0] in text:  # in a script without spaces
        return sentence + rest[0]
    return sentence


def _prove(draft: Draft, row: MessageRow) -> Draft:
    """Add the message to a draft whose content is quoted from it."""
    return replace(draft, quote=draft.content, evidence=(row.id,), time=row.message.timestamp or 0)


def _read_own_words(row: MessageRow, marks: Marks) -> str:
    """Return what a user wrote in a message; of a long one, its ends. Empty for messages of others."""
    own = strip_message(row.message, marks)
    if own is None or own.role != "user" or row.excluded:
        return ""
    text = unwrap(own.text)
    if is_noise(text):
        return ""
    if len(text) > _MAX_OWN_CHARS:
        return f"{head(text, _ENDS)}\n{tail(text, _ENDS)}"
    return text


# --- unclear pairs -----------------------------------------------------------------

_MAX_UNCLEAR: Final = 40
"""How many unclear facts a model is asked about at once. The others stay, and so do the old ones."""
_DELETE: Final = "- DELETE: it says that the old fact was wrong and nothing takes its place\n"


@dataclass(frozen=True, slots=True)
class _Unclear:
    """Facts that were added although they may replace others of the same subject. A model decides whether they do."""

    decisions: Sequence[Decision]
    rows: list[FactRow]
    allow_delete: bool

    def make_prompt(self, model: Model) -> Prompt:
        """Ask about as many as there is room for. The others stay, and so do the old ones."""
        held = {fact.id: fact for fact in facts.current(self.rows)}
        delete = ""
        if self.allow_delete:
            delete = _DELETE
        shares = _share_window(model, instructions=count_text(prompts.load("extract_unclear", delete=delete, facts="")))
        room = shares.messages
        lines: list[str] = []
        for number, decision in enumerate(self.decisions, 1):
            pair = [f"New {number}: {decision.rows[0].content}"]
            pair += [f"  old {fact}: {held[fact].content}" for fact in decision.rivals if fact in held]
            room -= count_text("\n".join(pair))
            if room < 0 and lines:
                break
            lines += pair
        text = prompts.load("extract_unclear", delete=delete, facts="\n".join(lines))
        return Prompt(messages=(_message("user", text),), max_tokens=shares.answer)

    def apply(self, reply: str) -> list[str]:
        """Add the rows of a model's answers to `rows`, and return the actions that it chose.

        It may only choose among the rivals that the rules found, and no pinned one. A fact that it says no longer holds
        is superseded, not removed. Deleting has to be allowed, and even then the history stays.
        """
        actions: list[str] = []
        for answer in parse_objects(reply, name="answers", key="new") or []:
            held = {fact.id: fact for fact in facts.current(self.rows) if not fact.pinned}
            number = answer.get("new")
            if not isinstance(number, int) or not 1 <= number <= len(self.decisions):
                continue
            decision = self.decisions[number - 1]
            new = decision.rows[0]
            old = held.get(str(answer.get("old")))
            if old is None or old.id not in decision.rivals or new.id not in held:
                continue
            action = str(answer.get("action")).upper()
            changes = {
                "SUPERSEDE": facts.supersede(old, new),
                "UPDATE": facts.supersede(old, new),
                "NONE": replace(new, superseded_by=old.id),  # the new fact says the same: the old one stays
                "DELETE": facts.retire(old, time=new.time),
            }
            if not self.allow_delete:
                del changes["DELETE"]
            if action in changes:
                actions.append(action)
                self.rows.append(changes[action])
        return actions


# --- with a model ------------------------------------------------------------------

_MAX_ANSWER_TOKENS: Final = 4_096
"""The maximum tokens of an answer: enough for dozens of facts."""
_MIN_ANSWER_TOKENS: Final = 256
"""The same in a small window."""
_MAX_REPEATED_CHARS: Final = 200
"""How much of an answer that is not JSON the model sees when it is asked again."""
_USABLE_SHARE: Final = 0.8
"""The part of a model's window that is used, since token counts are estimates."""
_KNOWN_SHARE: Final = 0.15
"""The largest share of the window that known facts take in a prompt."""
_MAX_KNOWN_TOKENS: Final = 1_000
"""The maximum tokens that they take, however large the window is."""
_MIN_ROOM: Final = 200
"""The minimum tokens of messages in a prompt, however small the reported window is."""
_MAX_DEPTH: Final = 4
"""Maximum number of times that a batch is split in two."""
_MAX_CHARS: Final = 500
"""The maximum characters of a fact. A longer text is a summary, not a fact."""
_SCHEMA_TOKENS: Final = 400
"""Tokens of the schema, and of an answer that is not JSON with the request for another."""
_NOT_JSON: Final = ": the answer was not JSON; use another model, or set knowledge.extraction = false"
_TYPES: Final[Mapping[str, FactType]] = {name: name for name in get_args(FactType)}

MAX_QUESTIONS: Final = 3
"""How many questions of a fact are kept."""
_MAX_QUESTION_CHARS: Final = 160
"""The maximum characters of a question. Nobody asks a longer one."""
_FIELDS: Final = ("type", "content", "context", "subject", "slot", "value", "message", "quote", "questions")
_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "facts": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    **{name: {"type": "string"} for name in _FIELDS},
                    "type": {"type": "string", "enum": list(_TYPES)},
                    "message": {"type": "integer"},
                    "questions": {"type": "array", "items": {"type": "string"}},
                },
                "required": list(_FIELDS),
                "additionalProperties": False,
            },
        }
    },
    "required": ["facts"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A fact that a model returned but that is not kept, and why."""

    content: str
    reason: str


_MAX_SLOT_WORDS: Final = 5
"""The maximum words of the name of a property. A weak model repeats its sentence there."""
_MAX_SLOT_CHARS: Final = 60
"""The maximum characters of such a name, in scripts without spaces."""
_TOOL_HEAD: Final = 600
"""How many characters are read at the beginning of a tool call or result."""
_TOOL_TAIL: Final = 300
"""How many characters are read at its end."""
_HEADER_TOKENS: Final = 8
"""The tokens of the number and the speaker before a message."""
_MIN_CHARS: Final = 400
"""A shorter text is not split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A message, or a part of a long one: its number in the archive, its speaker and its text."""

    id: int
    role: str
    text: str
    time: int = 0

    @property
    def tokens(self) -> int:
        """The tokens that it takes in a prompt."""
        return count_text(self.text) + _HEADER_TOKENS

    def fit(self, room: int) -> Iterator[Piece]:
        """Yield the piece, or its parts if it does not fit."""
        if self.tokens <= room or len(self.text) <= _MIN_CHARS:
            yield self
            return
        for half in self.split():
            yield from half.fit(room)

    def split(self) -> tuple[Piece, Piece]:
        """Split it at a line or a space near its middle."""
        middle = len(self.text) // 2
        place = self.text.rfind("\n", middle // 2, middle)
        if place <= 0:
            place = self.text.rfind(" ", middle // 2, middle)
        if place <= 0:
            place = middle
        return replace(self, text=self.text[:place]), replace(self, text=self.text[place:])

    def make_draft(self, item: Mapping[str, Any], content: str) -> Draft:
        """Make the draft of a fact that a quote in the piece proves."""
        quote = " ".join(str(item["quote"]).split())
        slot = normalise_slot(_clean(item.get("slot")))
        if len(slot.split()) > _MAX_SLOT_WORDS or len(slot) > _MAX_SLOT_CHARS:  # a weak model repeats its sentence
            slot = ""
        # The whole sentence says whether it is one more value, or only supposed. A quote may leave that out.
        plain_quote = plain(quote)
        sentence = quote
        for candidate in signals.sentences(self.text):
            if plain_quote in plain(candidate):
                sentence = candidate
                break
        questions: list[str] = []
        for question in read_questions(item.get("questions")):
            if plain(question) != plain(content):  # one that repeats the fact is not found by other words
                questions.append(question)
        # A fact in Latin letters that quotes another script, or the other way round, was translated.
        shares = (_unsegmented_share(content), _unsegmented_share(self.text))
        is_translated = min(shares) == 0 and max(shares) > 0.5  # noqa: PLR2004 - a half
        if is_translated:
            content = quote
        subject = ""
        if slot:
            subject = _clean(item.get("subject"))
        return Draft(
            type=_TYPES[str(item["type"]).lower()],
            content=content,
            context=_clean(item.get("context")),
            subject=subject,
            slot=slot,
            value=_clean(item.get("value")),
            additive=signals.is_additive(sentence),
            doubtful=not signals.is_stated(sentence),
            evidence=(self.id,),
            quote=quote,
            questions=tuple(questions),
            time=self.time,
        )


def split_messages(messages: Iterable[MessageRow], marks: Marks = NO_MARKS) -> list[Piece]:
    """Turn messages into pieces: all of their text, the ends of tool calls and results, and no recalled text."""
    pieces: list[Piece] = []
    for row in messages:
        own = strip_message(row.message, marks)
        if own is None or own.role == "system" or row.excluded:
            continue
        text = extract_text(own, marks)
        if own.calls or own.results:
            text = clip(text, head=_TOOL_HEAD, tail=_TOOL_TAIL)
        if text and not is_noise(text):
            speaker: str = own.role
            if own.name:
                speaker = f"{own.role} {own.name}"
            pieces.append(Piece(id=row.id, role=speaker, text=text, time=own.timestamp or 0))
    return pieces


def _halve(batch: Sequence[Piece]) -> tuple[tuple[Piece, ...], ...]:
    """Split a batch in two; return nothing if it cannot be made smaller."""
    if len(batch) > 1:
        return tuple(batch[: len(batch) // 2]), tuple(batch[len(batch) // 2 :])
    if batch and len(batch[0].text) > _MIN_CHARS:
        first, second = batch[0].split()
        return (first,), (second,)
    return ()


def find_room(model: Model) -> int:
    """Return how many tokens of messages fit into one call of a model, next to the instructions and known facts."""
    instructions = count_text(prompts.load("extract", known=""))
    return _share_window(model, instructions=instructions + _find_known_room(model)).messages


def find_window(tokens: int) -> int:
    """Return the window of a model whose calls, with the schema and a second try, take at most `tokens`."""
    return int((tokens - _SCHEMA_TOKENS) / _USABLE_SHARE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shares:
    """The tokens of one request for the messages, and for the answer."""

    messages: int
    answer: int


def _share_window(model: Model, *, instructions: int) -> _Shares:
    """Divide what the instructions leave of a window. In a small one the answer gets half of it.

    A server may refuse a request whose longest answer does not fit, however short the answer would be.
    """
    left = int(model.context_tokens * _USABLE_SHARE) - instructions
    answer = min(_MAX_ANSWER_TOKENS, max(_MIN_ANSWER_TOKENS, left // 2))
    return _Shares(messages=max(_MIN_ROOM, left - answer), answer=answer)


def _find_known_room(model: Model) -> int:
    return min(_MAX_KNOWN_TOKENS, int(model.context_tokens * _KNOWN_SHARE))


@dataclass(slots=True, kw_only=True)
class Reader:
    """Reads facts with a model.

    Attributes:
        model: The model.
        known: The facts that hold; the prompt lists those that the messages are about.
        timeout: The seconds that each call may take.
        cancel: Ends a call when it is set.
        calls: How often the model was asked.
        dropped: Facts that were not kept.
        unread: The pieces that the model did not read, or gave no answer to.
        failure: Why it did not.
        is_unusable: Whether it answered without a usable answer, or no request was short enough for it.
    """

    model: Model
    known: Sequence[FactRow]
    timeout: float | None = None
    cancel: Event | None = None
    calls: int = 0
    dropped: list[Dropped] = field(default_factory=list)
    unread: list[Piece] = field(default_factory=list)
    failure: str = ""
    is_unusable: bool = False

    def read(self, pieces: Sequence[Piece]) -> list[Draft]:
        """Read the facts in pieces, in as few calls as their size needs."""
        instructions = prompts.load("extract", known="\n".join(self._list_known(pieces)) or "(none)")
        room = _share_window(self.model, instructions=count_text(instructions)).messages
        batches: list[list[Piece]] = []  # as few as fit into the room each
        left = 0
        for whole in pieces:
            for piece in whole.fit(room):
                if not batches or piece.tokens > left:
                    batches.append([])
                    left = room
                batches[-1].append(piece)
                left -= piece.tokens
        drafts: list[Draft] = []
        for batch in batches:
            drafts += self._read_batch(batch, instructions, depth=0)
        return drafts

    def _list_known(self, pieces: Sequence[Piece]) -> list[str]:
        """List the known facts that the pieces are most about, as many as there is room for.

        Listing all of them would soon cost more than the messages.
        """
        words: set[str] = set()
        for piece in pieces:
            words.update(terms(piece.text))
        scores: dict[int, float] = {}
        for place, fact in enumerate(self.known):
            own = set(terms(f"{fact.subject} {fact.content}"))
            scores[place] = len(own & words) / max(1, len(own))
        room = _find_known_room(self.model)
        lines: dict[int, str] = {}
        for place in sorted(scores, key=lambda place: (-scores[place], -place)):
            fact = self.known[place]
            line = f"- [{fact.type}] {fact.subject} / {fact.slot}: {fact.content}"
            room -= count_text(line)
            if room < 0:
                break
            lines[place] = line
        return [lines[place] for place in sorted(lines)]

    def _read_batch(self, batch: Sequence[Piece], instructions: str, *, depth: int) -> list[Draft]:
        """Read a batch, in halves if the batch or the answer is too long."""
        if self.failure:  # a model that failed is not called again for the rest
            self.unread += batch
            return []
        failure = f"{self.model.name}{_NOT_JSON}"
        is_unusable = True
        try:
            found, is_too_long = self._ask(batch, instructions)
        except ModelError as error:
            failure = str(error)
            found = None
            is_too_long = isinstance(error, ModelOverflowError)
            is_unusable = is_too_long
        parts: tuple[tuple[Piece, ...], ...] = ()
        if is_too_long and depth < _MAX_DEPTH:
            parts = _halve(batch)
        if parts:
            drafts: list[Draft] = []
            for part in parts:
                drafts += self._read_batch(part, instructions, depth=depth + 1)
            return drafts
        if found is None:
            self.failure = failure
            self.is_unusable = is_unusable
            self.unread += batch
            return []
        return list(self._check(found, batch))

    def _ask(self, batch: Sequence[Piece], instructions: str) -> tuple[list[dict[str, Any]] | None, bool]:
        """Ask about a batch, again if the answer is not JSON; return facts, and whether it was too long.

        An answer that repeats itself until it is cut off would do so for a smaller batch too.
        """
        text = "\n\n".join(f"[{piece.id} {piece.role}] {piece.text}" for piece in batch)
        messages = [_message("system", instructions), _message("user", text)]
        max_tokens = _share_window(self.model, instructions=count_text(instructions)).answer
        for attempt in range(2):
            prompt = Prompt(messages=tuple(messages), max_tokens=max_tokens, schema=_SCHEMA)
            self.calls += 1
            try:
                reply = self.model.ask(prompt, timeout=self.timeout, cancel=self.cancel)
            except ModelBudgetError:
                self.calls -= 1
                if attempt == 0:
                    raise
                break  # the first answer could not be used, and no second one is allowed now
            found = parse_objects(reply.text, name="facts", key="content")
            if reply.stop == "length" and repeats_itself(reply.text):
                return found or None, False
            if found is not None or reply.stop == "length":
                return found or [], reply.stop == "length"
            beginning = head(reply.text, _MAX_REPEATED_CHARS)
            messages += [_message("assistant", beginning or "-"), _message("user", prompts.load("extract_again"))]
        return None, False

    def _check(self, items: Sequence[Mapping[str, Any]], batch: Sequence[Piece]) -> Iterator[Draft]:
        texts = [(piece, plain(piece.text)) for piece in batch]
        everything = "\n".join(text for _, text in texts)
        for item in items:
            content = " ".join(str(item.get("content") or "").split())
            # The piece that contains the quote: the one that the model names, otherwise the first.
            proof: Piece | None = None
            for piece, text in texts:
                is_named = str(piece.id) == str(item.get("message"))
                if (proof is None or is_named) and is_quoted(str(item.get("quote")), text):
                    proof = piece
                    if is_named:
                        break
            reason = _find_fault(item, content, proof, everything)
            if reason or proof is None:
                self.dropped.append(Dropped(content=head(redact(content), _MAX_CHARS), reason=reason))
            else:
                yield proof.make_draft(item, content)


def _message(role: Role, text: str) -> Message:
    return Message(role=role, parts=(Text(text=text),))


def _find_fault(item: Mapping[str, Any], content: str, proof: Piece | None, everything: str) -> str:
    """Explain why a fact is not kept; return an empty text if it is."""
    if str(item.get("type")).lower() not in _TYPES:
        return "no such type"
    if not content or len(content) > _MAX_CHARS:
        return "empty or too long"
    if proof is None:
        return "the quote is not in the messages"
    if is_secret(content) or is_secret(str(item.get("quote"))):
        return "a secret"
    for found in _NUMBER.findall(unicodedata.normalize("NFKC", content)):
        number = found.strip(".,:")
        if number not in everything:
            return f"nobody said {number}"
    return ""


def _clean(value: Any) -> str:
    """Return a name or a value of an answer in one line, without secrets."""
    if not isinstance(value, str):
        return ""
    return redact(head(" ".join(value.split()), _MAX_CHARS))


def read_questions(given: Any) -> tuple[str, ...]:
    """Return the questions of an answer that are kept: texts that are not too long and have no secrets, each once.

    If a model returns none, or something other than a list, its fact is kept anyway.
    """
    if not isinstance(given, list | tuple):
        return ()
    kept: dict[str, str] = {}
    for question in given:
        if not isinstance(question, str):
            continue
        text = " ".join(question.split())
        if text and len(text) <= _MAX_QUESTION_CHARS and not is_secret(text):
            kept.setdefault(plain(text), text)
    return tuple(kept.values())[:MAX_QUESTIONS]


# --- quotes ------------------------------------------------------------------------

_LOOSE: Final = re.compile(r"[\s\u200b\ufeff*`_~]+")
"""What a model may leave out or add in a quote: spaces, also invisible ones, and the emphasis of Markdown."""
_SAME: Final = str.maketrans("“”„«»‘’‚′–—−…", '"""""' + "''''" + "---" + ".", "")
"""Characters that a model may write in another form: quotation marks, apostrophes, dashes, an ellipsis."""
_NUMBER: Final = re.compile(r"\d+(?:[.,:]\d+)*")
_MASK: Final = "[REDACTED"
"""The beginning of what redaction writes in place of a secret."""
_MIN_QUOTE: Final = 6
"""The minimum letters of a quote that proves anything; see `weigh_letters`."""


def plain(text: str) -> str:
    """Normalise a text for comparison: without width, case, spaces, emphasis and kinds of quotation marks."""
    return _LOOSE.sub("", unicodedata.normalize("NFKC", text).translate(_SAME).casefold()).replace("..", ".")


def is_quoted(quote: str, text: str) -> bool:
    """Return whether a quote occurs in a text that is `plain` already. A quote of a few letters does not count."""
    words = plain(quote)
    return weigh_letters(words) >= _MIN_QUOTE and words in text


def is_secret(text: str) -> bool:
    """Return whether a text contains a secret, masked or not."""
    return _MASK in text or redact(text) != text


def _unsegmented_share(text: str) -> float:
    letters = [character for character in text if character.isalpha()]
    if not letters:
        return 0.0
    return sum(map(is_unsegmented, letters)) / len(letters)


# --- answers -----------------------------------------------------------------------

_COMMA: Final = re.compile(r",(?=\s*[}\]])")
"""A comma after the last entry, which JSON does not allow: `[1, 2,]`."""
_MAX_OBJECT_CHARS: Final = 20_000
"""A longer object is not one fact, and trying to parse one at every brace would take long."""


def parse_objects(text: str, *, name: str, key: str) -> list[dict[str, Any]] | None:
    """Parse the objects of an answer `{name: [...]}` that have a `key`; None if it contains no such JSON.

    A bare list, a single object and several objects in a row are accepted as well. If an answer was cut off, its
    complete objects are returned.
    """
    whole = _parse(text.strip())
    if isinstance(whole, dict):
        whole = whole.get(name)
    if isinstance(whole, list):
        return [value for value in whole if isinstance(value, dict) and key in value]
    objects: list[dict[str, Any]] = []
    has_name = False
    for part in _find_objects(text):
        value = _parse(part)
        if not isinstance(value, dict):
            continue
        if key in value:
            objects.append(value)
        if name in value:
            has_name = True
    if not objects and not has_name:
        return None
    return objects


def _parse(text: str) -> Any:
    for words in (text, _COMMA.sub("", text)):
        try:
            return json.loads(words, strict=False)
        except (ValueError, RecursionError):
            continue
    return None


def _find_objects(text: str) -> Iterator[str]:
    """Yield every part of a text between a brace and the one that closes it, inner ones first."""
    starts: list[int] = []
    quoted = False
    escaped = False
    for place, character in enumerate(text):
        if quoted:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                quoted = False
        elif character == '"':
            quoted = bool(starts)  # a quotation mark outside an object does not begin a string
        elif character == "{":
            starts.append(place)
        elif character == "}" and starts:
            start = starts.pop()
            if place - start < _MAX_OBJECT_CHARS:
                yield text[start : place + 1]
