"""Facts: their versions, their search, and how a new one is added.

A fact is never changed in place. A newer row with the same id is its next version, and a replaced fact names its
successor, so that every question can be answered as of any moment.

A new fact replaces an old one only by rule: a later statement of the same property (slot) of the same subject, with a
value of the same kind. If that is not certain, both stay, and the pair is returned as unclear.

`conflicts` finds facts that both hold and contradict each other, `past_facts` finds what held at an earlier time, and
`recall_facts` chooses the facts of a block.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Final, Literal, TypeAlias

from holdfast import patterns, signals
from holdfast.memory.block import Superseded
from holdfast.memory.fact_questions import MIN_MATCH, match_questions
from holdfast.moments import minute
from holdfast.search.rarity import measure_rarity
from holdfast.store.base import Across, FactRow, FactType, Scope, Select, Store
from holdfast.text import digest, terms

LONG_TERM: Final = "memory"
"""The kind of the record that marks a fact as a long-term memory; `long_term` decides whether it is recalled."""


# --- stored facts --------------------------------------------------------------


def current(rows: Iterable[FactRow]) -> list[FactRow]:
    """List the facts that hold now, oldest first: the newest version of each, without replaced and deleted ones."""
    latest = {(row.scope, row.id): row for row in rows}  # owners that imported the same folder share ids
    return [row for row in latest.values() if does_hold(row)]


def does_hold(row: FactRow) -> bool:
    """Return whether the newest version of a fact holds: no other fact has replaced it, and nobody has retired it."""
    return row.superseded_by is None and not row.deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class FactCount:
    """How many facts hold, and how many no longer do."""

    holding: int
    former: int


def count_facts(store: Store) -> FactCount:
    """Count the facts of all tenants."""
    holding = 0
    known = 0
    for tenant in {scope.tenant for scope in store.scopes()}:
        rows = store.read_facts(Select(scope=Scope(tenant=tenant), across=("project", "agent", "session")))
        known += len({(row.scope, row.id) for row in rows})
        holding += len(current(rows))
    return FactCount(holding=holding, former=known - holding)


def as_of(rows: Iterable[FactRow], *, time: int) -> list[FactRow]:
    """List the facts that held at a moment (Unix milliseconds)."""
    return current(row for row in rows if row.time <= time)


def list_versions(rows: Iterable[FactRow]) -> dict[FactRow, int | None]:
    """Map every version of every fact, with what replaced it, to when it ended; None if it holds now.

    A fact that holds again, because the one that had replaced it was forgotten, has one version.
    """
    rows = list(rows)
    ids = {row.id for row in rows}
    facts: dict[tuple[Scope, str], list[FactRow]] = {}
    for row in rows:
        known = facts.setdefault((row.scope, row.id), [])
        was_replaced = len(known) > 1 and known[-1].superseded_by is not None
        if was_replaced and known[-1].superseded_by not in ids and _says_the_same(row, known[-2]):
            del known[-2:]
        known.append(row)
    versions: dict[FactRow, int | None] = {}
    for known in facts.values():
        for row, after in zip(known, [*known[1:], None], strict=True):
            if row.superseded_by is not None or row.deleted:
                continue  # this row only ends the version before it
            if after is None:
                versions[row] = None
            else:
                ended = replace(row, superseded_by=after.superseded_by, deleted=after.deleted)
                versions[ended] = after.time
    return versions


def _says_the_same(row: FactRow, other: FactRow) -> bool:
    """Return whether a version of a fact holds and says what another version says."""
    if row.superseded_by is not None or row.deleted:
        return False
    return (row.content, row.type, row.subject, row.slot) == (other.content, other.type, other.subject, other.slot)


def load(store: Store, scope: Scope, *, across: Across = True) -> list[FactRow]:
    """Read every version of every fact of an agent and project, oldest first, without long-term memories."""
    select = Select(scope=scope, across=across)
    rows: list[FactRow] = store.read_facts(select)
    if not rows:
        return []
    memories = {record.key for record in store.read_records(select, kind=LONG_TERM)}
    return [row for row in rows if row.id not in memories]


def name_day(fact: FactRow) -> str:
    """Return the day on which a fact was learned, for a note on it."""
    if not fact.time:
        return "an unknown date"
    return minute(fact.time)[:10]


def supersede(old: FactRow, new: FactRow, *, time: int | None = None) -> FactRow:
    """Make the row that says that a fact replaces an old one; add it with a new fact in one call.

    `time` is when that was decided; by default when the new fact was learned.
    """
    if time is None:
        time = new.time
    return replace(old, superseded_by=new.id, time=time)


def retire(fact: FactRow, *, time: int) -> FactRow:
    """Make the row that deletes a fact; its history stays."""
    return replace(fact, deleted=True, time=time)


# --- search --------------------------------------------------------------------

_MIN_SHARES: Final = ((2, 0.5), (8, 0.34), (math.inf, 0.2))
"""The share of a question that a fact must contain, by the number of terms in the question: up to 2, up to 8, more.

In a short question one common word is half of it; of a long one, an answer repeats little."""
MIN_FACTS: Final = 100
"""Rarity is computed as if there were at least this many facts, so that one missing word does not outweigh all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactHit:
    """A fact that matches a question.

    Attributes:
        fact: The fact.
        score: The share of the question, by rarity of its words, that the fact contains; or how well one of the
            questions that it answers matches, if that is more. Of a fact in other words, that share with related words,
            plus how similar its vector is.
        by_question: Whether one of these matches as well as the fact itself, or better.
        note: What a block says about it: that another fact contradicts it, or when it held.
        superseded: Whether a later statement or fact in the block replaces it.
        has_replaced: Whether it replaced another fact.
    """

    fact: FactRow
    score: float
    by_question: bool = False
    note: str = ""
    superseded: Superseded = "no"
    has_replaced: bool = False


def find(rows: Sequence[FactRow], query: str, *, limit: int = 25, min_share: float | None = None) -> list[FactHit]:
    """Find the facts that match a question, best first; pinned facts always match and come first.

    `min_share` is the share of the question that a fact must contain, unset by the length of the question.
    """
    if not rows:
        return []
    wanted = list(dict.fromkeys(terms(query)))
    if min_share is None:
        min_share = next(share for count, share in _MIN_SHARES if len(wanted) <= count)
    matches = match_questions([row.questions for row in rows], query)
    hits: list[FactHit] = []
    for row, score, match in zip(rows, _score(rows, wanted), matches, strict=True):
        is_found = (score > 0 and score >= min_share) or match >= MIN_MATCH
        if row.pinned or is_found or asks_for(query, subject=row.subject, slot=row.slot):
            by_question = match >= max(MIN_MATCH, score)
            hits.append(FactHit(fact=row, score=max(score, match), by_question=by_question))
    return sorted(hits, key=_rank_hit)[:limit]


def _rank_hit(hit: FactHit) -> tuple[bool, float, int]:
    """Sort pinned facts first, then the best match, then the newest."""
    return not hit.fact.pinned, -hit.score, -hit.fact.time


def add_successors(hits: Sequence[FactHit], rows: Iterable[FactRow], query: str, *, limit: int) -> list[FactHit]:
    """Add the facts that replaced facts that match a question, best first. They may have other words."""
    latest = {row.id: row for row in rows}
    replaced = [replace(row, pinned=False) for row in latest.values() if row.superseded_by and not row.deleted]
    found = {hit.fact.id: hit for hit in hits}
    for hit in find(replaced, query, limit=limit):
        successor = find_last(hit.fact, latest)
        if does_hold(successor) and successor.id not in found:
            found[successor.id] = replace(hit, fact=successor)
    return sorted(found.values(), key=_rank_hit)[:limit]


def find_last(fact: FactRow, latest: Mapping[str, FactRow]) -> FactRow:
    """Return the last known successor of a fact; the fact itself if it was not replaced.

    It may be deleted or name a successor that is not known. Then nothing holds instead of the fact.
    """
    seen = {fact.id}
    row = fact
    while row.superseded_by is not None and row.superseded_by in latest and row.superseded_by not in seen:
        row = latest[row.superseded_by]
        seen.add(row.id)
    return row


def find_replaced(
    rows: Sequence[FactRow], *, messages: Container[int] | None = None
) -> Iterator[tuple[int, str, FactRow]]:
    """List words of messages that no longer hold: the message, the words, and the fact that holds instead.

    With `messages`, only their words are listed.
    """
    latest = {row.id: row for row in rows}
    for row in rows:
        said_in = [number for number in row.evidence if messages is None or number in messages]
        if not said_in or row.deleted:
            continue
        last = find_last(latest[row.id], latest)
        if last.content == row.content or not does_hold(last):
            continue
        # A fact that only repeats an older one is replaced by that older one, and its words still hold.
        if last.evidence:
            is_later = max(last.evidence) > max(row.evidence)
        else:
            is_later = last.time >= row.time
        if is_later:
            for number in said_in:
                yield number, row.quote or row.content, last


def _score(rows: Sequence[FactRow], wanted: Collection[str]) -> list[float]:
    """Weigh the terms of a question by rarity, and return the share that each fact contains."""
    found: list[list[str]] = []
    frequency: Counter[str] = Counter()
    for row in rows:
        words = read_words(row)
        found.append([term for term in wanted if term in words])
        frequency.update(found[-1])
    count = max(len(rows), MIN_FACTS)
    weights = {term: measure_rarity(frequency[term], total=count) for term in wanted}
    total = sum(weights.values()) or 1.0
    shares: list[float] = []
    for shared in found:
        shares.append(sum(weights[term] for term in shared) / total)
    return shares


def read_words(row: FactRow) -> frozenset[str]:
    """Return the terms by which a fact is found."""
    return _read_words(row.content, row.context, row.subject)


@lru_cache(maxsize=2**14)
def _read_words(content: str, context: str, subject: str) -> frozenset[str]:
    return frozenset(terms(f"{content} {context} {subject}"))


# --- new facts -------------------------------------------------------------------

Action: TypeAlias = Literal["ADD", "UPDATE", "SUPERSEDE", "DELETE", "NONE"]

_PRONOUNS: Final = frozenset({"it", "this", "that", "它", "这个", "それ", "그것"})
"""Names of the only fact that states the same property."""
_MIN_OVERLAP: Final = 0.4
"""The share of words that two facts about one subject must have in common to be rivals."""
_MIN_GROWTH: Final = 1.2
"""How many times longer new words for a known fact must be to count as more detail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A fact that was read from a message and is not resolved yet.

    Attributes:
        type: One of the six types of knowledge.
        content: The fact, in one sentence.
        context: The topic in which it came up.
        subject, slot, value: The subject, its property and the value, if the fact states a property that can change.
        old: The value that it replaces, if the same sentence names it.
        additive: Whether it adds one more value.
        doubtful: Whether its words ask, suppose, plan or deny. Then it replaces nothing by rule.
        evidence, quote: The archived messages and the words in them that prove it.
        questions: Questions that it answers, in other words than its own.
        time: When it was said, in Unix milliseconds.
    """

    type: FactType
    content: str
    context: str = ""
    subject: str = ""
    slot: str = ""
    value: str = ""
    old: str = ""
    additive: bool = False
    doubtful: bool = False
    evidence: tuple[int, ...] = ()
    quote: str = ""
    questions: tuple[str, ...] = ()
    time: int = 0

    def states_same(self, fact: FactRow) -> bool:
        """Return whether a fact says the same."""
        if self.slot == fact.slot != "":
            return bool(self.value) and _contains(fact.content, self.value)
        is_same_kind = fact.slot == self.slot and fact.type == self.type
        return is_same_kind and _plain(fact.content) == _plain(self.content)

    def replaces(self, fact: FactRow, *, alone: bool) -> bool:
        """Return whether it replaces a fact: it names the old value, or the fact is `alone` and has a value like it."""
        if fact.pinned:
            return False
        if self.old:
            return _contains(fact.content, self.old)
        if not alone:
            return False
        if not self.value:
            return True
        kinds = {kind_of(token) for token in _split_values(fact.content)} - {"words"}
        if not kinds:
            return kind_of(self.value) == "words"
        return kind_of(self.value) in kinds

    def names(self, fact: FactRow) -> bool:
        """Return whether a fact is a decision for its old value, and not for its new one."""
        if self.slot or not self.old or fact.type != "decision" or fact.slot or fact.pinned:
            return False
        return _contains(fact.content, self.old) and not _contains(fact.content, self.value)

    def is_newer(self, fact: FactRow) -> bool:
        """Return whether it was written after a fact: later in the archive, and not at an earlier time."""
        if fact.evidence and self.evidence and max(self.evidence) <= max(fact.evidence):
            return False
        return not self.time or not fact.time or self.time >= fact.time

    def add_detail(self, twin: FactRow) -> Decision:
        """Keep a known fact, with the new words if they contain all of the old ones and clearly more."""
        is_longer = len(self.content) > _MIN_GROWTH * len(twin.content)
        has_more = is_longer and set(terms(twin.content)) < set(terms(self.content))
        if not has_more or twin.pinned or not self.is_newer(twin):
            return Decision(action="NONE", reason="known")
        evidence = tuple(sorted({*twin.evidence, *self.evidence}))
        update = replace(
            twin, content=self.content, quote=self.quote, evidence=evidence, time=max(self.time, twin.time)
        )
        return Decision(action="UPDATE", reason="more detail", rows=(update,))

    def replace_rivals(self, new: FactRow, rivals: Sequence[FactRow]) -> Decision:
        """Decide whether a new value of a known property replaces the others."""
        if self.additive:
            return Decision(action="ADD", reason="one more", rows=(new,))
        if not all(self.is_newer(fact) for fact in rivals):
            return Decision(action="NONE", reason="older than what is known")
        over: list[FactRow] = []
        if not self.doubtful:
            over = [fact for fact in rivals if self.replaces(fact, alone=len(rivals) == 1)]
        if not over:
            return Decision(action="ADD", reason="unclear", rows=(new,), rivals=tuple(fact.id for fact in rivals))
        rows = (new, *(supersede(fact, new) for fact in over))
        return Decision(action="SUPERSEDE", reason=f"a newer {self.slot}", rows=rows)

    def replace_named(self, new: FactRow, named: Sequence[FactRow]) -> Decision | None:
        """Replace the decision that a newer one names. If there are several, no rule can decide between them."""
        if not named or not all(self.is_newer(fact) for fact in named):
            return None
        if len(named) > 1:
            return Decision(action="ADD", reason="unclear", rows=(new,), rivals=tuple(fact.id for fact in named))
        return Decision(action="SUPERSEDE", reason=f"instead of {self.old}", rows=(new, supersede(named[0], new)))

    def find_subject(self, known: Sequence[FactRow]) -> str | None:
        """Return the subject that its pronoun stands for: that of the only older fact with its slot."""
        if not self.slot:
            return None
        subjects: list[str] = []
        for fact in current(known):
            if fact.slot == self.slot and self.is_newer(fact):
                subjects.append(fact.subject)
        if len(subjects) != 1:
            return None
        return subjects[0]

    def add_new(self, new: FactRow, related: Sequence[FactRow]) -> Decision:
        """Add a fact. Others about the same subject with similar words may be its rivals."""
        ours = set(terms(self.content))
        near: list[str] = []
        for fact in related:
            theirs = set(terms(fact.content))
            if self.subject and len(ours & theirs) >= _MIN_OVERLAP * len(ours | theirs):
                near.append(fact.id)
        reason = "new"
        if near:
            reason = "unclear"
        return Decision(action="ADD", reason=reason, rows=(new,), rivals=tuple(near))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do with a draft: the rows to add in order, and the facts that it may replace if no rule decides."""

    action: Action
    reason: str
    rows: tuple[FactRow, ...] = ()
    rivals: tuple[str, ...] = ()


def make_row(draft: Draft, *, scope: Scope) -> FactRow:
    """Make the row of a draft. The same words about the same thing in the same scope always get the same id."""
    plain = " ".join(unicodedata.normalize("NFKC", draft.content).casefold().split())
    owner = (scope.tenant, scope.project, scope.agent, scope.session)
    return FactRow(
        scope=scope,
        id=digest("\x1f".join((*owner, draft.subject.casefold(), draft.slot, digest(plain)))),
        type=draft.type,
        content=draft.content,
        context=draft.context,
        time=draft.time,
        subject=draft.subject,
        slot=draft.slot,
        evidence=draft.evidence,
        quote=draft.quote,
        questions=draft.questions,
    )


def resolve(draft: Draft, *, scope: Scope, known: Sequence[FactRow]) -> Decision:
    """Decide what to do with a draft, by its subject, slot and evidence. `known` are all versions of all facts."""
    if draft.subject.casefold() in _PRONOUNS:
        subject = draft.find_subject(known)
        if subject is None:
            return Decision(action="NONE", reason=f"{draft.subject!r} may be anything")
        draft = replace(draft, subject=subject, content=f"{subject}: {draft.content}")
    new = make_row(draft, scope=scope)
    if _is_known(new, known):
        return Decision(action="NONE", reason="known")
    # In this order: the same fact again, another value of a property, a decision that it names as over, a new fact.
    holding = current(known)
    related = [fact for fact in holding if same_subject(fact.subject, draft.subject)]
    for fact in related:
        if draft.states_same(fact):
            return draft.add_detail(fact)
    rivals = [fact for fact in related if draft.slot == fact.slot != ""]
    if rivals:
        return draft.replace_rivals(new, rivals)
    named = [fact for fact in holding if draft.names(fact)]
    return draft.replace_named(new, named) or draft.add_new(new, related)


def _is_known(new: FactRow, known: Sequence[FactRow]) -> bool:
    """Return whether a fact was read from the same messages before, or still holds."""
    versions = [version for version in known if version.id == new.id]  # oldest first
    if not versions:
        return False
    latest = versions[-1]
    if latest.deleted or latest.superseded_by is None:  # a fact that was retired does not come back by rule
        return True
    is_later = new.time >= latest.time and max(new.evidence, default=0) > max(latest.evidence, default=0)
    return not is_later or any(set(new.evidence) <= set(version.evidence) for version in versions)


# --- values ------------------------------------------------------------------------

_MAX_VALUE_CHARS: Final = 200
"""A longer text is not an address or a number, and matching the patterns would take long."""
_UNIT: Final = r"(?: (?:[kMG]B|ms|seconds?|minutes?|hours?|days?|weeks?|euros?|dollars?)\b)?"
_TOKEN: Final = re.compile(rf"[A-Z][a-z]{{2,8}} \d{{1,2}}\b|[\x21-\x7e]+{_UNIT}|[^\x00-\x7f\s，。；]+")
"""What may be a value: "May 3", a word of ASCII with or without a unit ("30 seconds", "8080,"), other letters."""


@lru_cache(maxsize=4096)
def kind_of(value: str) -> str:
    """Classify a value as url, date, version, number, path or words; it never replaces one of another kind."""
    plain = value.strip()
    if len(plain) > _MAX_VALUE_CHARS:
        return "words"
    kinds: Mapping[str, str] = patterns.load("facts")["kinds"]
    for kind, pattern in kinds.items():
        if re.fullmatch(pattern, plain, re.IGNORECASE):
            return kind
    return "words"


def state_same_value(left: FactRow, right: FactRow) -> bool:
    """Return whether two facts of one property say the same, judging by their words."""
    our_values = _find_values(left.content)
    their_values = _find_values(right.content)
    if our_values and their_values:
        return not our_values.isdisjoint(their_values)
    if our_values or their_values:
        return False
    ours = _find_answer(left)
    theirs = _find_answer(right)
    return ours <= theirs or theirs <= ours


def _find_answer(fact: FactRow) -> set[str]:
    """Return the terms of a fact that name neither its subject nor its slot."""
    return set(terms(fact.content)) - set(terms(f"{fact.subject} {fact.slot}"))


def _find_values(content: str) -> set[str]:
    """Return the values in a text that are not words: numbers, dates, addresses and the like."""
    return {_plain(token) for token in _split_values(content) if kind_of(token) != "words"}


def _split_values(content: str) -> list[str]:
    """Split a text into what may be values: words, numbers with their units, dates such as `May 3`."""
    return [token.strip(".,;:!?()\"'`") for token in _TOKEN.findall(content.replace("=", " "))]


def _contains(content: str, value: str) -> bool:
    """Return whether a fact states a value, whatever its width, case and quotation marks."""
    plain = _plain(value)
    return bool(plain) and re.search(rf"(?<![a-z0-9.]){re.escape(plain)}(?![a-z0-9]|\.\d)", _plain(content)) is not None


@lru_cache(maxsize=4096)
def _plain(text: str) -> str:
    """Return a text without width, case, articles, quotation marks and punctuation, except that of numbers."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(re.sub(r"\b(?:the|a|an)\b|[\"'`“”‘’「」《》。!]+|(?<!\d)[.,]|[.,](?!\d)", " ", folded).split())


# --- subjects and slots --------------------------------------------------------------


@cache
def _slots() -> dict[str, str]:
    """Return the slot of each noun that names one."""
    slots: dict[str, str] = {}
    for slot, words in patterns.load("facts")["nouns"].items():
        for word in words.split():
            slots[word.replace("_", " ")] = slot
    return slots


_ARTICLE: Final = re.compile(r"^(?:the|our|my|a|an)\s+", re.IGNORECASE)
_FIRST_PERSON: Final = re.compile(r"\b(?:i|my|me)\b|我|私|나는|내", re.IGNORECASE)
"""A question about the person who asks, who is the subject `user` of facts: "my", 我."""
_NOT_A_SUBJECT: Final = re.compile(
    r"\b(?:the|our|my|your|its|this|that|new|current|actual|latest|now|a|an)\b|['’]s\b", re.IGNORECASE
)
"""Words that do not tell one thing from another: "our new API" and "the API's" are the API."""
_NOT_A_SUBJECT_CJK: Final = re.compile(
    "我们的?|咱们的?|我的|这个|那个|新的|现在的?|目前的?|当前的?|的|の|(?<=[^\\x00-\\x7f])\\s+(?=[^\\x00-\\x7f])"
)
"""The same, and spaces between characters of a script without spaces: 我们的 数据库 is 数据库."""
_SHORT_FORMS: Final[Mapping[str, str]] = {
    "prod": "product",  # the stem of "production"
    "db": "databas",
    "repo": "repositori",
    "k8s": "kubernet",
}
"""Short names, and the terms of the long ones. `terms` returns stems, so these are stems too."""


def split_slot(noun: str) -> tuple[str, str] | None:
    """Split a noun phrase into subject and slot: `port of the API` is the API's `port`; None if it names no slot."""
    for form in _slot_forms():
        match = form.fullmatch(noun.strip())
        if match is None:
            continue
        before = match["before"] or ""
        if match["after"]:  # the article of "the port of the API" is that of the port
            before = _ARTICLE.sub("", before)
        return f"{before}{match['after']}".strip(), _slots()[match["slot"].lower()]
    return None


@cache
def _slot_forms() -> tuple[re.Pattern[str], ...]:
    """Compile the forms of a phrase that names a property: `port of the API`, `API port`, `API 的端口`."""
    nouns = sorted(_slots(), key=len, reverse=True)
    latin = "|".join(re.escape(noun) for noun in nouns if noun.isascii())
    others = "|".join(re.escape(noun) for noun in nouns if not noun.isascii())
    return (
        re.compile(rf"(?P<before>.*\s)??(?P<slot>{latin})\s+(?:of|for|on|in)(?P<after>\s.+)", re.IGNORECASE),
        re.compile(rf"(?P<before>.*?\s)??(?P<slot>{latin})(?P<after>)", re.IGNORECASE),
        re.compile(rf"(?P<before>.*?)[的の]?\s*(?:新的?)?(?P<slot>{others}|(?i:{latin}))(?P<after>)"),
    )


@lru_cache(maxsize=4096)
def normalise_slot(words: str) -> str:
    """Return the name of a slot, whatever a model calls it."""
    plain = " ".join(unicodedata.normalize("NFKC", words).casefold().replace("_", " ").split())
    return _slots().get(plain, plain)


@lru_cache(maxsize=2**14)
def _subject_key(subject: str) -> frozenset[str]:
    """Reduce the name of a thing to its words, whatever their order, without articles."""
    plain = unicodedata.normalize("NFKC", subject).casefold()
    plain = _NOT_A_SUBJECT_CJK.sub("", _NOT_A_SUBJECT.sub(" ", plain))
    return frozenset(_SHORT_FORMS.get(term, term) for term in terms(plain))


def subject_name(subject: str) -> str:
    """Return one name for all names of a thing that are the same by `same_subject`."""
    return " ".join(sorted(_subject_key(subject)))


def same_subject(left: str, right: str) -> bool:
    """Return whether two names mean the same thing."""
    return _subject_key(left) == _subject_key(right)


def asks_for(question: str, *, subject: str, slot: str) -> bool:
    """Return whether a question names a subject with all its words, and asks for this property of it."""
    if not slot or _question_form(slot).search(question) is None:
        return False
    if subject == "user":
        return _FIRST_PERSON.search(question) is not None
    key = _subject_key(subject)
    return (bool(key) or not subject) and key <= _subject_key(question)


@cache
def _question_form(slot: str) -> re.Pattern[str]:
    forms = [re.escape(word) for word, name in _slots().items() if name == slot]
    forms.append(patterns.load("facts")["questions"].get(slot, re.escape(slot)))
    return re.compile("|".join(forms), re.IGNORECASE)


def type_of(slot: str) -> FactType:
    """Return the type of a fact that states a property."""
    types: dict[FactType, list[str]] = patterns.load("facts")["types"]
    for kind, slots in types.items():
        if slot in slots:
            return kind
    return "decision"


# --- explicit statements -----------------------------------------------------------

_SLOT_OF_KIND: Final = {"url": "url", "path": "place", "version": "version", "date": "date"}
"""The property that a correction is about if its words name none, by the kind of its value ("2.4.1": `version`)."""


def read_statement(text: str, *, subject: str, slot: str) -> Draft:
    """Read the subject and the slot of a fact from its words, if none are given."""
    draft: Draft | None = None
    if not slot:
        draft = next(read_text(text), None)
    if draft is None or draft.subject.casefold() in _PRONOUNS:
        return Draft(type="decision", content=text, subject=subject, slot=slot)
    return replace(draft, subject=subject or draft.subject)


def find_superseded(draft: Draft, known: Collection[FactRow]) -> list[FactRow]:
    """Find the facts of its subject and slot; if there are none, the decision that its words say is replaced."""
    if draft.additive:
        return []
    slot = normalise_slot(draft.slot)
    same: list[FactRow] = []
    for row in known:
        is_same_property = normalise_slot(row.slot) == slot != "" and same_subject(row.subject, draft.subject)
        if is_same_property and not row.pinned:
            same.append(row)
    if same:
        return same
    named = [row for row in known if draft.names(row)]
    if len(named) == 1:  # no rule can decide between several
        return named
    return []


MAX_MEMORY_CHARS: Final = 500
"""The maximum characters of a sentence that the user asks to remember. A longer one was pasted."""


def read_text(text: str, *, following: str = "") -> Iterator[Draft]:
    """Read what is explicit: `remember that …`, decisions, corrections, `KEY=value`, `TODO: …` and task boxes.

    `following` is what the user said next, which may take back the last sentence.
    """
    lines = signals.without_code(text)
    for match in signals.line_pattern("todo").finditer(lines):
        state = "done"
        if match["box"] in {None, "", " "}:
            state = "open"
        task = match["task"].strip().rstrip(".。")
        yield Draft(type="task_state", content=" ".join(match[0].split()), subject=task, slot="status", value=state)
    for match in signals.line_pattern("setting").finditer(lines):
        line = " ".join(match[0].split())
        yield Draft(type="config", content=line, subject=match["key"], slot="value", value=match["value"])
    for _, sentence in signals.list_standing(list(list_own_sentences(text)), following=following):
        kind = signals.classify_sentence(sentence)
        if kind == "remember":
            yield Draft(type="decision", content=sentence)
            continue
        if len(sentence) > signals.MAX_CHARS or signals.line_pattern("quoted").search(sentence):
            continue
        over = signals.match_form(sentence, "replacements")
        if over is not None and not signals.is_asked(sentence):
            yield Draft(type="decision", content=sentence, value=over["value"].strip(), old=over["old"].strip())
        elif kind == "correction":
            yield _read_change(sentence)
        elif kind is not None:
            yield Draft(type="decision", content=sentence)


def list_own_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a message that the user wrote, without tasks, settings, code and what was pasted."""
    lines = signals.without_code(text)
    for pattern in ("setting", "todo"):
        lines = signals.line_pattern(pattern).sub("\n", lines)
    yield from signals.sentences(_remove_pasted(lines), max_chars=MAX_MEMORY_CHARS)


def _remove_pasted(text: str) -> str:
    """Remove what the user did not write: logs, code, and quotations of explicit statements.

    A line that asks to remember something is kept, even if it names a function.
    """

    def remove_code(match: re.Match[str]) -> str:
        for sentence in signals.sentences(match[0]):
            if signals.classify_sentence(sentence) == "remember":
                return match[0]
        return "\n"

    def remove_statement(match: re.Match[str]) -> str:
        for sentence in signals.sentences(match[0][1:-1]):
            if signals.classify_sentence(sentence) is not None:
                return "\n"
        return match[0]

    own = signals.line_pattern("pasted").sub("\n", text)
    if signals.line_pattern("diff_mark").search(own):
        own = signals.line_pattern("diff").sub("\n", own)
    own = signals.line_pattern("quoted").sub(remove_statement, own)
    return signals.line_pattern("code").sub(remove_code, own)


def _read_change(sentence: str) -> Draft:
    """Read the subject, property and value of a correction. If it does not name them, it replaces nothing."""
    draft = Draft(type="decision", content=sentence, additive=signals.is_additive(sentence))
    match = signals.match_form(sentence, "changes")
    if match is None or not signals.is_stated(sentence):
        return draft
    value = match["value"].strip()
    subject = match["subject"].strip()
    old = (match["old"] or "").strip()
    slot = ""
    named = signals.line_pattern("named_value").fullmatch(value)
    if named is not None and named["slot"]:
        slot = named["slot"].lower()
        value = named["value"]
    elif named is not None:
        slot = "port"
        value = named["port"]
    key = split_slot(subject)
    if key is not None and key[0]:
        subject, slot = key
    slot = slot or _SLOT_OF_KIND.get(kind_of(value), "")
    if not slot:
        return draft
    return replace(draft, type=type_of(slot), subject=subject, slot=slot, value=value, old=old)
