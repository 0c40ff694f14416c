"""A fact as it was just read out of a conversation, before anybody decided what becomes of it."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from holdfast.store.base import FactRow, FactType, Scope
from holdfast.text import digest

__all__ = ["Draft", "row"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What one passage states.

    Attributes:
        type: One of the six kinds of knowledge.
        content: The fact, in one sentence.
        context: What it was said about.
        subject: What it is about; nothing where it is about the work as a whole.
        slot: Which property of the subject it states; nothing where it states none that could change.
        value: What it says the property is, where that is known.
        old: The value that the passage itself says is over.
        kin: Other slots that it changes, where it says that something changed but not what.
        additive: It says that there is one more, not that there is another one instead.
        doubtful: It rests on words that ask, suppose, plan or deny: it takes nothing's place by rule.
        evidence: The archived messages that it rests on.
        quote: The words that it rests on.
        time: When that was said, in Unix milliseconds.
    """

    type: FactType
    content: str
    context: str = ""
    subject: str = ""
    slot: str = ""
    value: str = ""
    old: str = ""
    kin: tuple[str, ...] = ()
    additive: bool = False
    doubtful: bool = False
    evidence: tuple[int, ...] = ()
    quote: str = ""
    time: int = 0


def row(draft: Draft, *, scope: Scope) -> FactRow:
    """A draft as a row. The same words about the same thing in the same scope always get the same id."""
    plain = " ".join(unicodedata.normalize("NFKC", draft.content).casefold().split())
    place = (scope.tenant, scope.project, scope.agent, scope.session)
    return FactRow(
        scope=scope,
        id=digest("\x1f".join((*place, draft.subject.casefold(), draft.slot, digest(plain)))),
        type=draft.type,
        content=draft.content,
        context=draft.context,
        time=draft.time,
        subject=draft.subject,
        slot=draft.slot,
        evidence=draft.evidence,
        quote=draft.quote,
    )
