"""Sentences that put a new value in the place of an old one, and sentences that only look as if they did.

A domain is a kind of value with the things it belongs to, and how people state it and change it. Of every domain
the ways to say it and the things are combined in turn, so that no two pairs are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Final

from benchmarks.updates_alike import CHINESE as CHINESE_LOOK_ALIKES
from benchmarks.updates_alike import ENGLISH as ENGLISH_LOOK_ALIKES
from benchmarks.updates_alike import WRITTEN
from benchmarks.updates_chinese import DOMAINS as CHINESE
from benchmarks.updates_english import DOMAINS as ENGLISH
from benchmarks.updates_words import Domain
from benchmarks.updates_written import UPDATES
from holdfast.text import is_unsegmented

__all__ = ["Pair", "look_alikes", "updates"]

_UPDATES: Final = 10
"""Pairs of each domain and language."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two things that were said, one after the other, and a question about them.

    Attributes:
        kind: The domain of an update, or what makes a look-alike one.
        language: `en` or `zh`.
        before: What was said first.
        after: What was said later.
        question: What is asked then.
        old: The value that `before` states.
        new: The value that `after` puts in its place; nothing for a look-alike.
        speaker: Who says `after`, where it is somebody else than who said `before`.
    """

    kind: str
    language: str
    before: str
    after: str
    question: str
    old: str
    new: str = ""
    speaker: str = ""


def updates() -> list[Pair]:
    """Pairs of which the second takes the place of the first."""
    made = [
        pair for language, domains in _LANGUAGES for name in domains for pair in _updates(language, name, domains[name])
    ]
    return made + [
        Pair(
            kind="written", language=_language(before), before=before, after=after, question=question, old=old, new=new
        )
        for before, after, question, old, new in UPDATES
    ]


def look_alikes() -> list[Pair]:
    """Pairs of which the second leaves the first as it is."""
    made = [*_look_alikes("en", ENGLISH, ENGLISH_LOOK_ALIKES), *_look_alikes("zh", CHINESE, CHINESE_LOOK_ALIKES)]
    return made + [
        Pair(kind="written", language=_language(before), before=before, after=after, question=before, old=old)
        for before, after, old in WRITTEN
    ]


def _language(text: str) -> str:
    return "zh" if any(map(is_unsegmented, text)) else "en"


_LANGUAGES: Final = (("en", ENGLISH), ("zh", CHINESE))


def _updates(language: str, name: str, domain: Domain) -> Iterator[Pair]:
    ways = zip(cycle(domain.before), cycle(domain.after), cycle(domain.things), strict=False)
    for before, after, thing in islice(ways, _UPDATES):
        subject, old, new = thing
        yield Pair(
            kind=name,
            language=language,
            before=_said(before, subject, old, new),
            after=_said(after, subject, old, new),
            question=_said(domain.question, subject, old, new),
            old=old,
            new=new,
        )


def _look_alikes(
    language: str, domains: Mapping[str, Domain], kinds: Mapping[str, Sequence[tuple[str, str]]]
) -> Iterator[Pair]:
    for kind, ways in kinds.items():
        for place, (name, after) in enumerate(ways):
            domain = domains[name]
            subject, old, new = domain.things[place % len(domain.things)]
            yield Pair(
                kind=kind,
                language=language,
                before=_said(domain.before[place % len(domain.before)], subject, old, new),
                after=_said(after, subject, old, new),
                question=_said(domain.question, subject, old, new),
                old=old,
                speaker="Robin" if kind == "other speaker" else "",
            )


def _said(template: str, subject: str, old: str, new: str) -> str:
    return template.format(s=subject, S=subject[:1].upper() + subject[1:], a=old, b=new)
