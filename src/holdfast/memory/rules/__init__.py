"""What can be learned from a conversation by rule, with no model: little, but right.

People state facts in few ways. These rules know the plain ones, in English and Chinese (the plainest in Japanese and
Korean), and leave everything else alone: what is asked, supposed, planned, denied, quoted or long over is no fact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from holdfast.memory.block import strip_message
from holdfast.memory.claims import Claim, is_named, type_of
from holdfast.memory.draft import Draft
from holdfast.memory.marks import NO_MARKS, Marks
from holdfast.memory.noise import is_noise, unwrap
from holdfast.memory.quotes import plain
from holdfast.memory.rules import chinese, english, work
from holdfast.memory.rules.guided import change_of
from holdfast.memory.rules.remarks import remark, todo
from holdfast.memory.rules.sentences import clauses, opening, sentences
from holdfast.memory.rules.stance import is_additive, is_asserted, is_real, without_asides
from holdfast.redact import redact
from holdfast.store.base import FactRow, MessageRow
from holdfast.text import head, tail

__all__ = [
    "claim_in",
    "drafts",
    "is_additive",
    "is_asserted",
    "is_real",
    "is_secret",
    "lessons",
    "own_words",
    "sentence_of",
    "stated",
    "value_of",
]

_MASK: Final = "[REDACTED"
_PASTED: Final = 4_000
_AROUND: Final = 600
_CHANGE: Final = re.compile(" from |从|から|에서")
"""What an assistant says counts where it says what was changed from what."""


def drafts(messages: Sequence[MessageRow], marks: Marks = NO_MARKS) -> list[Draft]:
    """The facts that messages state by themselves, in the order in which they were said."""
    rows = own_words(messages, marks)
    found = [*(draft for row in rows for draft in stated(row)), *lessons(rows)]
    return sorted(found, key=lambda draft: max(draft.evidence))


def own_words(messages: Sequence[MessageRow], marks: Marks) -> list[MessageRow]:
    """Messages without what was recalled into them, and without those that are never to be recalled."""
    return [
        replace(row, message=own)
        for row in messages
        if (own := strip_message(row.message, marks)) is not None and not row.excluded
    ]


def stated(row: MessageRow, *, known: Sequence[FactRow] = ()) -> list[Draft]:
    """The facts that a message states; where facts are known, also what it says that has become of them."""
    if row.message.role not in {"user", "assistant"}:
        return []
    return [draft for draft in _said(row, known) if not is_secret(draft.content)]


def lessons(rows: Sequence[MessageRow]) -> list[Draft]:
    """The facts that tools teach."""
    return [draft for draft in work.lessons(rows) if not is_secret(draft.content)]


def claim_in(sentence: str, *, speaker: str = "") -> Claim | None:
    """The claim that a sentence makes, if it makes one and means it."""
    said = without_asides(sentence[len(opening(sentence)) :])
    if not is_real(said):
        return None
    for clause in clauses(said):
        found = next(iter(english.claims(clause) or chinese.claims(clause)), None) if is_asserted(clause) else None
        if found is not None:
            return _owned(found, speaker)
    return None


def value_of(sentence: str) -> str:
    """The value that a sentence states; nothing where it states none."""
    task = todo(sentence, own=True)
    if task is not None:
        return task.value
    claim = claim_in(sentence)
    return claim.value if claim is not None else ""


def sentence_of(quote: str, text: str) -> str:
    """The sentence of a text that holds a quote; the quote itself where none does as a whole."""
    wanted = plain(quote)
    return next((sentence for sentence in sentences(text) if wanted in plain(sentence)), quote)


def is_secret(text: str) -> bool:
    """Tell whether a text holds a secret, masked or not."""
    return _MASK in text or redact(text) != text


def _owned(claim: Claim, speaker: str) -> Claim:
    """A claim about the speaker, told from the same claim of another one."""
    return replace(claim, subject=f"{speaker} {claim.subject}") if claim.own and speaker else claim


def _said(row: MessageRow, known: Sequence[FactRow]) -> Iterator[Draft]:
    message = row.message
    words = unwrap(message.text)
    if is_noise(words):
        return
    for sentence in sentences(_written(words)):
        draft = _draft(sentence, own=message.role == "user", speaker=message.name or "")
        if draft is None and known and message.role == "user":
            draft = _changed(sentence, known)
        if draft is not None:
            yield replace(draft, quote=sentence, evidence=(row.id,), time=message.timestamp or 0)


def _changed(sentence: str, known: Sequence[FactRow]) -> Draft | None:
    """What a sentence says has become of a known fact, if it says so and means it."""
    plain = without_asides(sentence[len(opening(sentence)) :])
    if not (is_real(plain) and is_asserted(plain)) or is_additive(sentence):
        return None
    about = [(fact, value_of(fact.content)) for fact in known if fact.slot and is_named(fact.subject, plain)]
    found = change_of(plain, about)
    return replace(found, content=sentence) if found is not None else None


def _written(text: str) -> str:
    """What somebody wrote by hand: of a text so long that most of it was pasted, the beginning and the end."""
    return text if len(text) <= _PASTED else f"{head(text, _AROUND)}\n{tail(text, _AROUND)}"


def _draft(sentence: str, *, own: bool, speaker: str) -> Draft | None:
    task = todo(sentence, own=own)
    if task is not None:
        return task
    claim = claim_in(sentence, speaker=speaker) if own or _CHANGE.search(sentence) else None
    if claim is not None and (own or claim.old):
        return Draft(
            type=type_of(claim.slot),
            content=sentence,
            subject=" ".join(claim.subject.split()),
            slot=claim.slot,
            value=claim.value,
            old=claim.old,
            kin=claim.kin,
            additive=is_additive(sentence),
        )
    kind = remark(sentence, own=own)
    return Draft(type=kind, content=sentence) if kind is not None else None
