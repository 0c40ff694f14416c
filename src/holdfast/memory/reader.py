"""A model that reads facts out of messages, and what it says checked against what was said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Final, get_args

from holdfast import prompts
from holdfast.errors import ModelError, ModelOverflowError
from holdfast.memory import answers, rules
from holdfast.memory.claims import slot_name
from holdfast.memory.draft import Draft
from holdfast.memory.quotes import in_other_script, is_quoted, missing_numbers, plain
from holdfast.memory.reading import Piece, batches, halves, render
from holdfast.messages import Message, Text
from holdfast.models.base import Model, Prompt, Reply
from holdfast.redact import redact
from holdfast.store.base import FactRow, FactType
from holdfast.text import head
from holdfast.tokens import count_text

__all__ = ["Dropped", "Reader"]

_ANSWER_TOKENS: Final = 4_096
_USABLE: Final = 0.8
"""The part of a model's window that is counted on: an estimate may be off."""
_KNOWN_SHARE: Final = 0.15
_LEAST_ROOM: Final = 500
_DEEPEST: Final = 4
"""How often a batch is halved before it is given up."""
_LONGEST: Final = 500
_TYPES: Final[Mapping[str, FactType]] = {name: name for name in get_args(FactType)}

_FIELDS: Final = ("type", "content", "context", "subject", "slot", "value", "message", "quote")
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
    """Something that a model said and that is not kept, and why."""

    content: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What came back: facts, unless there was nothing to be read; whether it was too long for one go; what is wrong."""

    facts: list[dict[str, Any]] | None = None
    too_long: bool = False
    trouble: str = ""


@dataclass(slots=True, kw_only=True)
class Reader:
    """Asks a model, counts the calls, and keeps what could not be proved apart.

    Attributes:
        model: Who is asked.
        known: The facts that hold; the model is told them.
        timeout: Seconds for each question.
        cancel: When set, it ends.
        calls: How often the model was asked.
        dropped: What it said that is not kept.
        unread: Pieces that it did not get to read, or gave no answer to.
        trouble: Why.
    """

    model: Model
    known: Sequence[FactRow]
    timeout: float | None = None
    cancel: Event | None = None
    calls: int = 0
    dropped: list[Dropped] = field(default_factory=list)
    unread: list[Piece] = field(default_factory=list)
    trouble: str = ""

    def read(self, pieces: Sequence[Piece]) -> list[Draft]:
        """The facts in all of these pieces, in as few questions as their size needs."""
        drafts: list[Draft] = []
        for batch in batches(pieces, room=self._room()):
            drafts += self._batch(batch, depth=0)
        return drafts

    def _room(self) -> int:
        window = int(self.model.context_tokens * _USABLE)
        return max(_LEAST_ROOM, window - _ANSWER_TOKENS - count_text(self._instructions()))

    def _instructions(self) -> str:
        room = int(self.model.context_tokens * _KNOWN_SHARE)
        lines: list[str] = []
        for fact in reversed(self.known):
            line = f"- [{fact.type}] {fact.subject} / {fact.slot}: {fact.content}"
            room -= count_text(line)
            if room < 0:
                break
            lines.append(line)
        return prompts.load("extract", known="\n".join(reversed(lines)) or "(none)")

    def _batch(self, batch: Sequence[Piece], *, depth: int) -> list[Draft]:
        """The facts in a batch; read in halves where it, or the answer to it, turns out to be too long."""
        if self.trouble:  # whoever failed once is not asked again and again
            self.unread += batch
            return []
        answer = self._ask(batch)
        parts = halves(batch) if answer.too_long and depth < _DEEPEST else ()
        if parts:
            return [draft for part in parts for draft in self._batch(part, depth=depth + 1)]
        if answer.facts is None:
            self.trouble = answer.trouble
            self.unread += batch
            return []
        return list(self._checked(answer.facts, batch))

    def _ask(self, batch: Sequence[Piece]) -> _Answer:
        """Ask about a batch; once more where the answer cannot be read."""
        asked = [_message("system", self._instructions()), _message("user", render(batch))]
        try:
            answer, reply = self._call(asked)
            if answer.facts is None:
                again = _message("user", prompts.load("extract_again"))
                answer, _ = self._call([*asked, _message("assistant", reply.text or "-"), again])
        except ModelError as error:
            return _Answer(trouble=str(error), too_long=isinstance(error, ModelOverflowError))
        return answer

    def _call(self, messages: Sequence[Message]) -> tuple[_Answer, Reply]:
        self.calls += 1
        prompt = Prompt(messages=messages, max_tokens=_ANSWER_TOKENS, schema=_SCHEMA)
        reply = self.model.ask(prompt, timeout=self.timeout, cancel=self.cancel)
        said = answers.read(reply.text, name="facts", key="content")
        too_long = reply.stop == "length"
        facts = [] if said is None and too_long else said
        return _Answer(facts=facts, too_long=too_long, trouble=f"{self.model.name}: the answer was no JSON"), reply

    # --- checking ----------------------------------------------------------------

    def _checked(self, said: Sequence[Mapping[str, Any]], batch: Sequence[Piece]) -> Iterator[Draft]:
        words = [(piece, plain(piece.text)) for piece in batch]
        everything = "\n".join(text for _, text in words)
        for item in said:
            content = " ".join(str(item.get("content") or "").split())
            proof = _proof(item, words)
            reason = _fault(item, content, proof, everything)
            if reason or proof is None:
                self.dropped.append(Dropped(content=head(redact(content), _LONGEST), reason=reason))
            else:
                yield _draft(item, content, proof)


def _message(role: Any, text: str) -> Message:
    return Message(role=role, parts=(Text(text=text),))


def _proof(item: Mapping[str, Any], words: Sequence[tuple[Piece, str]]) -> Piece | None:
    """The piece that holds the quote: the one that the model names, else the first that does."""
    quote = str(item.get("quote") or "")
    holding = [piece for piece, text in words if is_quoted(quote, text)]
    named = [piece for piece in holding if str(piece.id) == str(item.get("message"))]
    return next(iter(named or holding), None)


def _fault(item: Mapping[str, Any], content: str, proof: Piece | None, everything: str) -> str:
    """Why something that was said is not kept; nothing where it is."""
    if str(item.get("type") or "").lower() not in _TYPES:
        return "no such type"
    if not content or len(content) > _LONGEST:
        return "empty or too long"
    if proof is None:
        return "the quote is not in the messages"
    if rules.is_secret(content) or rules.is_secret(str(item.get("quote"))):
        return "a secret"
    missing = missing_numbers(content, everything)
    return f"nobody said {missing[0]}" if missing else ""


def _draft(item: Mapping[str, Any], content: str, proof: Piece) -> Draft:
    quote = " ".join(str(item["quote"]).split())
    words = quote if in_other_script(content, proof.text) else content
    slot = slot_name(_short(item.get("slot")))
    sentence = rules.sentence_of(quote, proof.text)
    return Draft(
        type=_TYPES[str(item["type"]).lower()],
        content=words,
        context=_short(item.get("context")),
        subject=_short(item.get("subject")) if slot else "",
        slot=slot,
        value=_short(item.get("value")) or rules.value_of(words),
        additive=rules.is_additive(sentence),
        doubtful=not (rules.is_real(sentence) and rules.is_asserted(sentence)),
        evidence=(proof.id,),
        quote=quote,
        time=proof.time,
    )


def _short(value: Any) -> str:
    """A name or a value that a model gave, in one line and without secrets."""
    return redact(head(" ".join(value.split()), _LONGEST)) if isinstance(value, str) else ""
