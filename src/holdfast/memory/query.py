"""Build the query of a recall from the settings, and weigh its terms."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final, Literal

from holdfast.memory.archive import is_acknowledgement, unwrap
from holdfast.memory.session_lines import SessionLine
from holdfast.patterns import compile_once, load
from holdfast.search.dates import Range
from holdfast.search.fuse import Order, Recipe, Weighted
from holdfast.search.relevance import EAGERNESS, NORMAL, Eagerness
from holdfast.settings import Settings
from holdfast.store.base import Across, FactRow, Scope
from holdfast.text import is_unsegmented, terms

_MIN_TERMS: Final = 4
"""A message with fewer terms ("and for staging?") is searched for together with the messages before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The content that a window already shows, which a block does not repeat.

    Attributes:
        messages: Archived messages that the window contains.
        passages: Passages that an earlier block in the window quotes whole.
        blocks: The texts of those blocks.
        instructions: The system prompt, which is not searched. A later statement about what it says is recalled.
    """

    messages: Collection[int] = ()
    passages: Collection[int] = ()
    blocks: Sequence[str] = ()
    instructions: Sequence[str] = ()


NOTHING_SHOWN: Final = Shown()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallQuery:
    """A query of the memory. `build_query` makes one from the settings.

    Attributes:
        texts: The last user messages that have words, newest last; the newest weighs most.
        scope: The owner of the memory that is searched.
        across: Whether passages of the agent's other sessions are searched; facts always are.
        cap: The maximum tokens of the block, tags and headers included.
        fill, header: Whether the block is filled to the cap, and whether the date is repeated before every passage.
        now: The time of the question, in Unix milliseconds, for "two weeks ago".
        shown: What the window shows already.
        eagerness: The size of a block by how well memory matches the question.
        knowledge_share: The share of the cap for facts. Passages get what facts do not use, and the other way round.
        max_facts: The maximum number of facts in the block.
        min_chars: A question with fewer characters recalls nothing.
        neighbours: How far around a passage others may be recalled with it.
        order: How passages are ranked.
        newest, days: Search only the newest N passages, or those of the last N days or without a time; None for all.
        seconds: The deadline after which nothing is recalled; None for none.
        facts: Facts that the caller has chosen; they come before those that are found.
        is_automatic: Whether the block is made for a message of the user, who may not have asked for one.
        is_broad: Whether the question asks for everything about a subject, which is the only text.
        sessions: The past sessions that the question asks for; `recall` finds them.
        more_sessions: How many earlier sessions of the same time are not among them.
        asks_for_decisions: Whether only sessions in which something was decided are among them.
        no_sessions: The line in the block if there are none at that time.
        is_listing: Whether the question asks only for those sessions.
        periods: The times that it asks for; facts that were learned at other times are left out. None for all.
    """

    texts: Sequence[str]
    scope: Scope
    across: Across = False
    cap: int = 4000
    fill: Literal["adaptive", "full"] = "adaptive"
    header: Literal["compact", "full"] = "compact"
    now: int | None = None
    shown: Shown = NOTHING_SHOWN
    eagerness: Eagerness = NORMAL
    knowledge_share: float = 0.3
    max_facts: int = 10
    min_chars: int = 0
    neighbours: int = 2
    order: Order = field(default_factory=Order)
    newest: int | None = None
    days: int | None = None
    seconds: float | None = None
    facts: Sequence[FactRow] = ()
    is_automatic: bool = False
    is_broad: bool = False
    sessions: tuple[SessionLine, ...] = ()
    more_sessions: int = 0
    asks_for_decisions: bool = False
    no_sessions: str = ""
    is_listing: bool = False
    periods: tuple[Range, ...] = ()


def find_recall_switch(settings: Settings, *, automatic: bool = True) -> str:
    """Return which setting turns recall off, automatic or on request; empty if none does."""
    if not settings.recall.enabled:
        return "recall.enabled is off"
    if automatic and not settings.recall.automatic:
        return "recall.automatic is off"
    return ""


def build_query(
    settings: Settings,
    texts: Sequence[str],
    *,
    scope: Scope,
    now: int | None = None,
    cap: int | None = None,
    across: Across | None = None,
    shown: Shown = NOTHING_SHOWN,
    automatic: bool = False,
    facts: Sequence[FactRow] = (),
    max_facts: int | None = None,
) -> RecallQuery:
    """Make a query from the settings. Text that a channel added around the texts is removed.

    `cap`, `across` and `max_facts` override the settings. An `automatic` query, which the user did not ask for, has a
    deadline.
    """
    recall = settings.recall
    if across is None:
        across = bool(settings.archive.cross_session)
    if cap is None:
        cap = recall.hard_cap_tokens
    if max_facts is None:
        max_facts = recall.max_facts
    words: list[str] = []
    for text in texts:
        own = unwrap(text)
        if not own and not automatic:  # the user may search for the text of an envelope itself
            own = text
        words.append(own)
    seconds: float | None = None
    if automatic:  # a request waits for it, while a user who asks for a recall waits for all of it
        seconds = recall.deadline_ms / 1000
    return RecallQuery(
        texts=tuple(words),
        scope=scope,
        across=across,
        cap=cap,
        fill=recall.fill,
        header=recall.header,
        now=now,
        shown=shown,
        eagerness=EAGERNESS[recall.eagerness],
        knowledge_share=recall.knowledge_share,
        max_facts=max_facts,
        min_chars=recall.min_query_chars,
        neighbours=recall.neighbours,
        order=order_of(settings),
        newest=settings.archive.max_segments,
        days=settings.archive.eviction_days or None,
        seconds=seconds,
        facts=facts,
        is_automatic=automatic,
    )


def order_of(settings: Settings) -> Order:
    """Return the ranking that the settings ask for."""
    search = settings.search
    weights = Weighted(
        vector=search.vector_weight,
        keyword=search.bm25_weight,
        decay=search.time_decay,
        least=settings.recall.min_score,
    )
    recipe = Recipe()
    if settings.recall.neighbours < 1:
        recipe = replace(recipe, near=0.0)
    if settings.recall.neighbours < 2:  # noqa: PLR2004 - `far` is two passages away
        recipe = replace(recipe, far=0.0)
    variety = None
    if search.mmr.enabled:
        variety = search.mmr.relevance_weight
    return Order(fusion=search.fusion, recipe=recipe, weighted=weights, variety=variety)


def select_texts(messages: Iterable[str], *, max_texts: int) -> tuple[str, ...]:
    """Select the texts of a query, newest last: the newest message, and earlier ones while there are too few terms.

    `messages` come newest first, without channel envelopes. Messages without words are skipped and do not count, so a
    picture after a text selects that text. `max_texts` is `recall.query_messages`.
    """
    texts: list[str] = []
    count = 0
    for text in messages:
        if text.strip():
            texts.append(text)
            count += len(terms(text))
        if count >= _MIN_TERMS or len(texts) >= max_texts:
            break
    return tuple(reversed(texts))


def asks_nothing(text: str) -> bool:
    """Return whether a message needs nothing from memory: an acknowledgement, a greeting, "run the tests again"."""
    own = unwrap(text)
    return is_acknowledgement(own) or _is_command(own)


_MAX_COMMAND: Final = 100
"""A message with more characters is more than a command."""
_NO_LETTERS: Final = re.compile(r"[\W_]+")
"""All between words: "Run tests, commit!" is "run tests commit"."""


def _is_command(text: str) -> bool:
    """Return whether a message consists of commands for which nothing has to be remembered."""
    if len(text) > _MAX_COMMAND:
        return False
    words = _NO_LETTERS.sub(" ", unicodedata.normalize("NFKC", text.lower())).strip()
    for pattern in load("questions")["commands"].values():
        several = rf"(?:{pattern})(?:\ ?(?:{pattern}))*"
        if compile_once(several, re.VERBOSE).fullmatch(words) is not None:
            return True
    return False


def asks_something(text: str) -> bool:
    """Return whether a message asks or requests something, so that memory may have the answer.

    A message that only states something does not. `signals.is_question` is about a single sentence that may become a
    fact: for it, a request ("remember that …") is a statement.
    """
    return compile_once(load("questions")["asks"], re.IGNORECASE | re.VERBOSE).search(unwrap(text)) is not None


def asks_about_questions(text: str) -> bool:
    """Return whether a message may ask what was asked: "Which question did I ask about the cache?"."""
    return compile_once(load("questions")["about_questions"], re.IGNORECASE | re.VERBOSE).search(text) is not None


def find_subject(text: str) -> str:
    """Return the subject of a question that asks for everything about it; empty for any other question.

    "Tell me everything about the payment service" is about the payment service. No answer contains its other words.
    """
    question = unwrap(text).strip()
    for pattern in load("questions")["broad"]:
        match = compile_once(pattern, re.IGNORECASE | re.VERBOSE).match(question)
        if match is not None:
            return match["subject"].strip()
    return ""


_WE: Final = re.compile(
    r"\b(?:we|us|ours?|wir|uns(?:er\w*)?|nous|notre|nos|nosotr[oa]s|nuestr\w*)\b|我们|我們|咱们|私たち|我々|우리|저희",
    re.IGNORECASE,
)
"""The speaker and the agent, or the team: "our", 我们."""
_I: Final = re.compile(
    r"\b(?:I|my|mine|myself|ich|mich|mir|mein\w*|je|mon|ma|mes|yo|mi|mis)\b|\bj['’]|我(?![们們])|私(?!たち)|僕|俺"
    r"|(?<!\w)(?:내|제|나의|저의|내가|제가|나는|저는)(?!\w)",
    re.IGNORECASE,
)
"""The speaker: "my degree", 我的."""
_ANYONE: Final = re.compile(
    r"\b(?:how do|can|could|may|shall|should|would) I\b|\b(?:darf|kann|könnte|soll|sollte) ich\b"
    r"|\bwie (?!hab|bin\b)\w+ ich\b|\b(?:dois|puis)-je\b|我(?:该|該|应该|應該|怎么|怎麼|可以|能)",
    re.IGNORECASE,
)
"""An "I" that could be anyone: "how do I boil an egg", 我该."""
_PAST: Final = re.compile(
    r"\bwas\b(?! (?:ist|sind|war|wird|hat|haben|kann|soll|muss|macht|gilt|kostet|heißt|bedeutet|für|ich|du|man|wir)\b)"
    r"|\b(?:did|were|had|hatte\w*|wurde\w*|avait|avions)\b|之前|上次|当时|當時|刚才|剛才|前回|さっき|先ほど|지난번|아까",
    re.IGNORECASE,
)
"""A time before: "did", "last time" in other languages; not "do" and "is", nor the German question word "was"."""
_DEFINITE: Final = re.compile(r"\b(?:the|that|this|those|these)\b|[那这這]|その|あの", re.IGNORECASE)
"""A thing that both know: "the port", 那个; not "a port"."""
_NAME_PARTS: Final = re.compile(r"\bv[ao]n (?:de[rnm]\b)?")
"""What names have in other languages too: "von der Leyen"."""
_GERMAN_DEFINITE: Final = re.compile(r"\b(?:der|die|das|den|dem|des|dies\w{1,2}|jene[rsmn]?)\b", re.IGNORECASE)
"""The same in a German question. In English, "die" is another word."""
_REFERENCES: Final = ((_WE, 0.4), (_PAST, 0.3), (_DEFINITE, 0.2), (_I, 0.2))
"""How much each of them adds. The weights were chosen with `python -m benchmarks other-words` and `recall`, by leaving
out each data set once (docs/benchmarks.md)."""
_MAX_REFERENCE: Final = 0.6
"""The maximum that they add together."""


def measure_reference(text: str) -> float:
    """Return how much a question refers to something that both sides know, 0 to 0.6.

    "What did we decide about the old service?" does, "Why do cats purr?" does not. Most of these are stop words, which
    no index contains, so the match of the other words does not show it.
    """
    about_them = _ANYONE.sub("", text)
    if _is_german(text):
        about_them = _GERMAN_DEFINITE.sub("the", about_them)
    reference = sum(weight for pattern, weight in _REFERENCES if pattern.search(about_them))
    return min(_MAX_REFERENCE, reference)


def count_words(weights: Mapping[str, float]) -> float:
    """Count the words of a query by their weights. Two characters of a script without spaces are about one word."""
    words = 0.0
    for term, weight in weights.items():
        if not is_unsegmented(term):
            words += weight
        elif len(term) > 1:  # the terms of such a query are each of its characters, and each pair of neighbours
            words += weight / 2
    return words


_EARLIER: Final = 0.5
"""The weight of a text relative to that of the text after it."""
_KANA: Final = re.compile(r"[\u3040-\u309f]+")
"""A term of hiragana alone: particles and endings, and a few words."""
_KANA_WEIGHT: Final = 0.3
"""The weight of such a term."""
_SIGNS: Final = "的了是在和有我你他她它们这那吗呢吧啊与及或也都就而被把从对为以之其于并等个什么哪谁怎几何誰"
_PAIRS: Final = ("什么", "怎么", "哪些", "哪个", "多少", "几个", "为什", "是什", "么时", "时候")
_SILENT: Final = frozenset((*_SIGNS, *_PAIRS))
"""Chinese characters, and pairs of them, that questions have and answers often do not: 什么时候 ("when"), 吗."""
_FRAME: Final = """
    ask become big come current ever exactly find give go happen kind know large last late long make many mean mention
    much need new often old please remember say see soon take talk tell thing think time try use want way
"""
"""English words of questions that are often missing in the answer: "how long did it take"."""
_FRAME_WEIGHT: Final = 0.5
"""The weight of such a word."""
_KINDS: Final = "app application component library module package part program project service system team tool topic"
"""Words for what kind of thing a subject is: the "service" of "the billing service", not its "billing"."""


def weigh_terms(texts: Sequence[str]) -> dict[str, float]:
    """Weigh the terms of a query, newest text last; earlier texts and words without content weigh less.

    English stop words are not terms. If a question has only words without content, they keep their full weights. An
    earlier text never weighs more than the newest one, however long it is.
    """
    found: dict[str, float] = {}
    newest_count = 0
    for age, text in enumerate(reversed(texts)):
        counts = Counter(terms(text))
        if not newest_count:
            newest_count = counts.total()
        share = _EARLIER**age * min(1.0, newest_count / max(1, counts.total()))
        for term, count in counts.items():
            found[term] = max(found.get(term, 0.0), count * share)
    frame_terms = _frame_terms()
    silent = _SILENT
    if texts and _is_german(texts[-1]):
        silent = _SILENT | _german_terms()
    weighed: dict[str, float] = {}
    for term, weight in found.items():
        if term in silent:
            continue
        if term in frame_terms:
            weighed[term] = weight * _FRAME_WEIGHT
        elif _KANA.fullmatch(term):
            weighed[term] = weight * _KANA_WEIGHT
        else:
            weighed[term] = weight
    return weighed or found


_KIND_WEIGHT: Final = 0.25
"""How much a word for the kind of a subject counts. With its full weight, only 4 of 10 statements were found that say
"billing" instead of "billing service" (`python -m benchmarks broad`)."""


def weigh_subject(subject: str) -> dict[str, float]:
    """Weigh the terms of a subject that a question asks everything about. A word for its kind weighs less.

    Some people call "the billing service" only "billing".
    """
    weighed = weigh_terms((subject,))
    for term in _kind_terms().intersection(weighed):
        weighed[term] *= _KIND_WEIGHT
    return weighed


@cache
def _kind_terms() -> frozenset[str]:
    return frozenset(terms(_KINDS))


def _is_german(text: str) -> bool:
    german = load("questions")["german"]
    words = set(_NAME_PARTS.sub(" ", text.casefold()).split())
    return not words.isdisjoint(german["asking"].split()) or len(words.intersection(german["unmistakable"].split())) > 1


@cache
def _german_terms() -> frozenset[str]:
    return frozenset(terms(load("questions")["german"]["silent"]))


@cache
def _frame_terms() -> frozenset[str]:
    return frozenset(terms(_FRAME))
