"""Find the later of two statements about the same subject.

A statement is a sentence. A later one replaces an earlier one if they have enough words in common, weighted by how rare
the words are, and it says so ("no longer", "from now on", 改成), or gives another number of the same unit.

The shares were chosen with `python -m benchmarks corrections` (docs/benchmarks.md). No other cases check them.

This module compares what people say in conversations, as the answer to a question. `contradictions` compares stored
facts, without a question, and either of two facts may be the later one.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import chain, filterfalse
from math import fsum
from operator import itemgetter
from typing import Final

from holdfast.patterns import NO_ABBREVIATION, compile_once, load
from holdfast.search.opposites import are_opposed, find_opposites
from holdfast.search.parallels import are_parallel
from holdfast.search.passages import SENTENCE_END
from holdfast.text import is_unsegmented, term_spans, terms

# How much of an earlier statement a later one must repeat to replace it: the more clearly it says that something
# changed, the less.
MIN_STRONG_SHARE: Final = 0.2
"""The share of the earlier statement that a later one must repeat if it has a strong word of correction."""
MIN_PERSONAL_SHARE: Final = 0.35
"""The same if the earlier one is about the speaker. What is repeated must also be this share of the later one."""
MIN_MEDIUM_SHARE: Final = 0.45
"""The same if the later one has a word such as "now"."""
MIN_NUMBER_SHARE: Final = 0.3
"""The same if the later one has another number of the same unit."""
MIN_LOOSE_SHARE: Final = 0.75
"""The same if the later one has another number without a unit, or another day of the week."""
MIN_BOTH_SHARE: Final = 0.12
"""The same if the later one has both another number and a strong word. With less in common, no statement replaces
another. In a script without spaces a strong word alone is enough: many of its terms are pairs of characters of two
words, which no other statement has."""
MIN_PLAIN_SHARE: Final = 0.7
"""The same for any other later statement."""
MIN_TAKEN_BACK_SHARE: Final = 0.5
"""The share of what a decision is about that a later statement must name to take it back. No question names it."""
MIN_TAKEN_BACK_SHARE_UNSEGMENTED: Final = 0.3
"""The same in a script without spaces, in which many terms are pairs of characters of two words."""
MIN_TAKEN_BACK_TERMS: Final = 2
"""How many terms and values of a decision a later statement must name to take it back. A short one may name one."""
MAX_SHORT_TERMS: Final = 5
"""The maximum terms of a short statement: "The newsletter is paused until further notice"."""
MIN_ANSWER_SHARE: Final = 0.5
"""With a strong word, this share of what an earlier statement says beyond the question is enough."""
MIN_SHARED: Final = 0.6
"""The minimum weight of the words that two statements have in common, relative to the rarest word."""
MIN_SUBJECT: Final = 0.3
"""The same for their words that name a thing. In 1,000 passages, a word that one in eight contains weighs this much."""
MAX_STATEMENT_CHARS: Final = 300
"""A longer sentence is not a plain statement."""
MAX_BEFORE_CHARS: Final = 80
"""The maximum characters of a sentence that may say what the correction after it is about."""
MAX_FIRST_TERMS: Final = 2
"""How many terms at the beginning of a statement name what it is about: "Unleash is no longer used"."""
MAX_BEFORE: Final = 2
"""How many such sentences are read: "So, Redis. It fell over twice. Threw it out yesterday."."""
MIN_LETTERS: Final = 0.65
"""The minimum share of letters, without spaces, in a sentence of a person. Lines of logs and code have fewer."""
MIN_ENDED_LETTERS: Final = 0.5
"""The same for a sentence that ends with a full stop, such as "The port is 8443."."""
_UNSEGMENTED_LETTERS: Final = 2
"""How many more letters a character of a script without spaces counts as."""
MAX_SENTENCES: Final = 12
"""How many sentences of a passage are read."""
MAX_INSTRUCTIONS: Final = 2_000
"""How many sentences of a system prompt are read."""
MIN_INSTRUCTION_SHARE: Final = 0.2
"""The share of a query that one of these sentences must contain to be about it."""
MAX_INSTRUCTED: Final = 2
"""For how many of these sentences later statements are looked for."""
_MIN_NAME_DIGITS: Final = 4
"""A number of this many digits may be a name, such as that of a port or a ticket."""
_AFTER_SENTENCE: Final = re.compile(NO_ABBREVIATION)
"""Matches behind a full stop that ends a sentence."""
_LOG: Final = re.compile(r"\d{4}-\d\d-\d\dT\d|\b\d\d:\d\d:\d\d\b")
"""The time of a line of a log, to the second: "2026-03-01T09:15", "09:15:02"; not "at 09:15"."""
_HIRAGANA: Final = re.compile("[ぁ-ゟ]+")
"""Endings and particles: in Japanese, words that name a thing seldom consist of these characters alone."""
_NUMBER: Final = re.compile(r"\d+(?:[.,:]\d+)*")
"""A number as it is written, whatever it counts: "400", "1,024", "3.11", "09:15"."""
_UNIT_CHARS: Final = 3
"""How many characters of a unit are compared: enough to distinguish units, and the same in singular and plural."""
# Most texts match neither of the two long patterns in `corrections.toml`, which take long to search. A text without a
# match of the hint has none of the long pattern either. The hint for "strong" words is the list `hints` there.
_NEGATION_HINT: Final = re.compile(
    "n[io]|kein|for|dro|scra|left|quit|retired|gone|instead|rather|statt|stop|[不别]", re.IGNORECASE
)
"""A beginning of each word of `negated`: "ni" of "nicht", "no" of "not", "for" of "forget"."""
_VALUE_HINT: Final = re.compile(r"\d|day|tag|mittwoch", re.IGNORECASE)
"""A part of each value of `quantities.spaced`: a digit, or a day of the week in English or German."""
_LOOSE: Final = frozenset(("bare", "weekday"))
"""Kinds of values that many statements have: a number without a unit, a day of the week. Another one says less."""
_MIN_CLAUSE_TERMS: Final = 3
"""The minimum terms of the first clause of a sentence that is compared alone."""
_CLAUSE_END: Final = re.compile(r"[,;:]\s|[，；：、]|\s[–—-]\s")
"""The end of a clause: the comma of "Use Kafka, it is faster", a dash between spaces; not the colon of "09:15"."""
_IDENTIFIER: Final = re.compile(r"(?<=\w)_(?=\w)|(?<=[a-z])(?=[A-Z])")
"""Where the next word of an identifier begins: "MATCH_TIMEOUT_MS", "retryLimit"."""
_LIVES: Final = re.compile(r"\blives\b|\blive\s+(?:in|at|on)\b", re.IGNORECASE)
_SCOPE: Final = re.compile(r"\b(?:for|für)\s+((?:[\w'’-]+\s?){1,4})[.!]?$", re.IGNORECASE)
"""What something is said for, at the end of a sentence: "for the watch app"."""
_FLAGS: Final = re.IGNORECASE | re.VERBOSE


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A sentence, or two of them, and the terms that say what it is about."""

    text: str
    terms: frozenset[str]

    @cached_property
    def quantities(self) -> dict[str, set[str]]:
        """The numbers in it by what they count. A statement is compared with many others, so they are read once."""
        return self._parts[0]

    @cached_property
    def topic(self) -> frozenset[str]:
        """Its terms without numbers and days, which are what changes."""
        bare = self._parts[1]
        if bare == self.text:
            return self.terms
        return Statement.read(bare).terms

    @cached_property
    def clause(self) -> frozenset[str]:
        """The terms of its first clause. What follows is often a reason."""
        match = _CLAUSE_END.search(self._parts[1])
        if match is None:
            return self.topic
        first = Statement.read(self._parts[1][: match.start()]).terms
        if len(first) < _MIN_CLAUSE_TERMS:
            return self.topic
        return first

    @cached_property
    def subject(self) -> frozenset[str]:
        """The terms of its topic that name a thing: no units, durations or words that any statement may have."""
        return frozenset(filterfalse(_HIRAGANA.fullmatch, self.topic - light_terms() - measure_terms()))

    @cached_property
    def qualifiers(self) -> dict[str, set[str]]:
        """The terms before each of its terms: "order" before "service" in "the order service retries"."""
        found: dict[str, set[str]] = {}
        for part in _CLAUSE_END.split(self._parts[1]):
            ordered = list(filter(_is_telling, terms(part)))
            for place in range(1, len(ordered)):
                term = ordered[place]
                before = place - 1
                if is_unsegmented(term[0]) and ordered[before][-1] == term[0]:
                    before -= 1  # the 付服 in 支付服务 is a part of both words
                if before >= 0:
                    found.setdefault(term, set()).add(ordered[before])
        return found

    @cached_property
    def identifiers(self) -> list[frozenset[str]]:
        """The words of each identifier of several words in it: "MATCH_TIMEOUT_MS", "retryLimit"."""
        if not _IDENTIFIER.search(self.text):
            return []
        found: list[frozenset[str]] = []
        for start, stop, expanded in term_spans(self.text):
            if len(expanded) > 1 and _IDENTIFIER.search(self.text, start, stop):
                found.append(frozenset(expanded[1:]))
        return found

    @cached_property
    def words(self) -> int:
        """How many terms its first clause has, if the words of each identifier count as one term."""
        return len(self.clause.difference(*self.identifiers))

    @cached_property
    def is_request(self) -> bool:
        """Whether it asks for work and states nothing that may become outdated.

        A request with a number may be a rule ("add a limit of 20 rows"), but not if it asks to see something once.
        """
        return _has_word("look", self.text) or (_has_word("request", self.text) and not self.quantities)

    @cached_property
    def is_personal(self) -> bool:
        """Whether it is about the speaker, or says only what the speaker feels."""
        return _has_word("personal", self.text)

    @cached_property
    def is_correction(self) -> bool:
        """Whether it says that something replaces something else."""
        return is_correction(self.text)

    @cached_property
    def is_supposed(self) -> bool:
        """Whether it only says what might change, or what somebody else wanted to change."""
        return is_supposed(self.text)

    @cached_property
    def opposites(self) -> dict[int, frozenset[str]]:
        """The terms of it that are in groups of opposites, such as staging and production."""
        topic = self.topic
        if _LIVES.search(self.text):  # that is where something is, and not the live system
            topic = topic - {"live"}
        return find_opposites(topic)

    @cached_property
    def is_medium(self) -> bool:
        """Whether it says "now" or the like."""
        return _has_word("medium", self.text)

    @cached_property
    def is_plain(self) -> bool:
        """Whether it says what something is or does."""
        return is_plain(self.text)

    @cached_property
    def negated(self) -> frozenset[str]:
        """The terms of what it denies: "not ops@", "instead of Thursdays", "Jonas left"."""
        found: set[str] = set()
        for match in self._denials:
            name = match["name"] or match["gone"] or match["other"] or ""  # a date is in none of these groups
            found.update(_NUMBER.findall(name))
            found.update(filter(_is_telling, terms(name)))
        return frozenset(found)

    def renews(self, earlier: Statement) -> bool:
        """Return whether it denies a value of an earlier statement, and gives another of the same unit in its place."""
        for unit, denied in self._denied_quantities.items():
            given = self.quantities.get(unit, set()) - denied
            if given and denied & earlier.quantities.get(unit, set()):
                return True
        return False

    def ends(self, some: frozenset[str], *, known: frozenset[str]) -> bool:
        """Return whether it says that something ended, and not only for a thing that is not known: "for the fair"."""
        if not some <= self.terms:  # the sentence before it names that
            return True
        # In "Dr. Weber retired, so we see Dr. Okafor for our teeth", the scope is not that of what ended.
        ended = max(_CLAUSE_END.split(self.text), key=lambda clause: len(some.intersection(terms(clause))))
        scope = _SCOPE.search(ended)
        if scope is not None and Statement.read(scope[1]).subject.isdisjoint(known):
            return False
        first = list(filter(_is_telling, terms(self.text)))[:MAX_FIRST_TERMS]
        return not some.isdisjoint(self.negated) or not some.isdisjoint(first)

    @cached_property
    def _denied_quantities(self) -> dict[str, set[str]]:
        """The numbers and days that it denies by what they count: "not June 5", 不是十五号."""
        return _cut_quantities(" ".join([match[0] for match in self._denials]))[0]

    @cached_property
    def _denials(self) -> list[re.Match[str]]:
        """What it denies, with the word that does: "not ops@", "instead of Thursdays"."""
        if not _NEGATION_HINT.search(self.text):
            return []
        return list(_find_all("negated", self.text))

    @cached_property
    def private(self) -> frozenset[str]:
        """The terms of what it says is the speaker's own: "my nephew", "my homelab"."""
        names = [match["name"] for match in _find_all("private", self.text)]
        return frozenset(terms(" ".join(names)))

    def takes_back(self, decision: Statement) -> bool:
        """Return whether it is about an earlier decision. It has words that take something back: `may_take_back`."""
        subject = decision.subject or decision.topic
        if self.renews(decision) and subject & self.topic:  # "on June 12, not June 5"
            return self.private <= decision.terms and not self.carries_out(decision)
        enough = MIN_TAKEN_BACK_SHARE
        if is_unsegmented(decision.text[0]):
            enough = MIN_TAKEN_BACK_SHARE_UNSEGMENTED
        if len(subject & self.topic) < enough * len(subject):
            return False
        shared = [*(decision.topic & self.topic), *(decision.values & self.values)]
        if len(shared) < MIN_TAKEN_BACK_TERMS and len(self.topic) > MAX_SHORT_TERMS:
            return False
        is_new = bool(self.terms - decision.terms) or bool(_find_other_numbers(self, decision))
        if not is_new or not self.private <= decision.terms or self.carries_out(decision):
            return False
        return not are_about_two_things(decision, self)

    def carries_out(self, decision: Statement) -> bool:
        """Return whether it does what was decided, in the place of something else: "on Playwright, not on Selenium"."""
        is_whole = bool(decision.subject) and decision.subject <= self.terms and self.values <= decision.values
        return is_whole and bool(self.negated) and self.negated.isdisjoint(decision.terms)

    def denies_same(self, earlier: Statement) -> bool:
        """Return whether all that it denies is denied by an earlier statement already, which may then hold too.

        "With Pulumi instead of Ansible" does not say that "with Terraform, not with Ansible" has changed.
        """
        return bool(self.negated) and self.negated <= earlier.negated

    @cached_property
    def values(self) -> frozenset[str]:
        """Its numbers and days, whatever they count."""
        return frozenset(chain(_NUMBER.findall(self.text), *self.quantities.values()))

    @cached_property
    def _parts(self) -> tuple[dict[str, set[str]], str]:
        """Its numbers and days, and the text without them."""
        return _cut_quantities(self.text)

    @classmethod
    def read(cls, text: str) -> Statement:
        """Read a sentence."""
        return cls(text=text, terms=frozenset(filter(_is_telling, terms(text))))


def _is_telling(term: str) -> bool:
    """Return whether a term says what a sentence is about. Short numbers do not: they are what changes."""
    if term.isdigit():
        return len(term) >= _MIN_NAME_DIGITS
    return len(term) > 1 or term.isascii()


def split_statements(text: str, *, limit: int = MAX_SENTENCES) -> list[Statement]:
    """Split a text into sentences; questions, very long ones and lines of logs, tables and code are left out."""
    sentences: list[Statement] = []
    start = 0
    for stop in chain(_find_ends(text), (len(text),)):
        sentence = text[start:stop].strip()
        start = stop
        if is_statement(sentence):
            sentences.append(Statement.read(sentence))
        if len(sentences) == limit:
            break
    return sentences


def _find_ends(text: str) -> Iterator[int]:
    """Yield where the sentences of a text end. The end of a line ends one, whatever stands before it."""
    for match in SENTENCE_END.finditer(text):
        if "\n" in match[0] or _AFTER_SENTENCE.match(text, match.start() + 1):
            yield match.end()


def is_statement(sentence: str) -> bool:
    """Return whether a sentence states something: it is not a question, not very long, and consists of words."""
    if not sentence or len(sentence) > MAX_STATEMENT_CHARS or sentence.endswith(("?", "？")):
        return False
    if _LOG.search(sentence):
        return False
    letters = sum(map(str.isalpha, sentence))
    others = len(sentence) - sentence.count(" ") - letters
    if not sentence.isascii():
        # A character of a script without spaces says as much as several letters.
        letters += _UNSEGMENTED_LETTERS * sum(map(is_unsegmented, sentence))
    share = letters / (letters + others)
    if sentence.endswith((".", "。", "!", "！")):
        return share >= MIN_ENDED_LETTERS
    return share >= MIN_LETTERS


@lru_cache(maxsize=8)
def _split_instructions(text: str) -> tuple[Statement, ...]:
    """Split a system prompt, which is the same in every request of a session."""
    return tuple(split_statements(text, limit=MAX_INSTRUCTIONS))


def find_instructions(
    texts: Iterable[str], weights: Mapping[str, float], *, asked: Mapping[str, float]
) -> list[Statement]:
    """Find the statements of a system prompt that a question is about, best first.

    Args:
        texts: The system prompt.
        weights: The weights of the terms of the question and of related words.
        asked: Those of the terms of the question alone.
    """
    enough = MIN_INSTRUCTION_SHARE * sum(asked.values())
    found: list[tuple[float, Statement]] = []
    for text in texts:
        for statement in _split_instructions(text):
            weight = fsum(weights.get(term, 0.0) for term in statement.terms)
            if weight > 0 and weight >= enough:
                found.append((weight, statement))
    found.sort(key=itemgetter(0), reverse=True)
    return [statement for _, statement in found[:MAX_INSTRUCTED]]


@dataclass(frozen=True, slots=True)
class Rarity:
    """How rare terms are. A term that is not known counts as the mean of the others."""

    values: Mapping[str, float]
    unknown: float
    highest: float

    @classmethod
    def of(cls, values: Mapping[str, float]) -> Rarity:
        """Return the rarity of terms by their inverse document frequencies."""
        if not values:
            return cls(values, 1.0, 1.0)
        return cls(values, sum(values.values()) / len(values), max(values.values()))

    def weigh(self, found: Iterable[str]) -> float:
        """Return the weight of some terms together, the same in whatever order a set of them has."""
        return fsum([self.values.get(term, self.unknown) for term in found])

    def share(self, some: Iterable[str], *, of: Iterable[str]) -> float:
        """Return the share that some of the terms have in the weight of all, 0 to 1."""
        whole = self.weigh(of)
        if not whole:
            return 0.0
        return self.weigh(some) / whole


@dataclass(frozen=True, kw_only=True)
class Later:
    """A text with statements that may replace an earlier one, and all of its terms."""

    text: str
    terms: frozenset[str]

    @classmethod
    def read(cls, text: str) -> Later:
        """Read a text. The same passages are compared in many turns."""
        return _read_later(text)

    @cached_property
    def statements(self) -> list[Statement]:
        """Its sentences. They are read on demand: most texts have too little in common with any statement."""
        return split_statements(self.text)


@lru_cache(maxsize=2048)
def _read_later(text: str) -> Later:
    return Later(text=text, terms=frozenset(terms(text)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """A statement that may be superseded, as the answer to a question with the terms `asked`."""

    statement: Statement
    answer: frozenset[str]
    asked: Container[str]
    rarity: Rarity
    weights: Mapping[str, float]
    """How rare each term of its topic is."""
    topic_weight: float
    """The sum of these weights."""
    clause_weight: float
    """The same for the terms of its first clause."""
    needs_subject: bool = True
    """Whether a later statement must name what it is about, and not only a number of the same unit."""

    @classmethod
    def read(
        cls, statement: Statement, rarity: Rarity, *, asked: Container[str], needs_subject: bool = True
    ) -> Earlier:
        """Return a statement with what it says beyond the question."""
        # Sorted, because the order of a set differs between processes, and decides which text is compared first.
        weights = {term: rarity.values.get(term, rarity.unknown) for term in sorted(statement.topic)}
        return cls(
            statement=statement,
            answer=frozenset(term for term in statement.topic if term not in asked),
            asked=asked,
            rarity=rarity,
            weights=weights,
            topic_weight=sum(weights.values()) or 1.0,
            clause_weight=fsum([weights.get(term, 0.0) for term in statement.clause]) or 1.0,
            needs_subject=needs_subject,
        )

    @property
    def min_weight(self) -> float:
        """The minimum weight of the words that a later statement must have in common with it."""
        return MIN_SHARED * self.rarity.highest

    def measure(self, shared: frozenset[str]) -> float:
        """Return the share that some of its terms have in it, or in its first clause, by how rare they are, 0 to 1."""
        share = fsum([self.weights[term] for term in shared]) / self.topic_weight
        clause = self.statement.clause
        if not shared or clause is self.statement.topic:
            return share
        return max(share, fsum([self.weights[term] for term in shared & clause]) / self.clause_weight)

    def is_superseded(self, later: Later) -> bool:
        """Return whether one of the statements of a later text supersedes it.

        What a correction is about may be in short sentences before it: "Nora left. Write to Emil instead."
        """
        earlier = self.statement
        short: list[Statement] = []
        for statement in later.statements:
            if statement.text == earlier.text:  # it is said again
                return False
            before: frozenset[str] = frozenset()
            if short:
                before = before.union(*(one.terms for one in short[-MAX_BEFORE:]))
            is_later = self._is_superseded_by(statement, before=before) and self._is_new(statement)
            # At last, because these take longest.
            if is_later and not statement.is_supposed and not are_about_two_things(earlier, statement):
                return True
            if len(statement.text) <= MAX_BEFORE_CHARS:
                short.append(statement)
            else:
                short.clear()
        return False

    def _names_subject(self, shared: frozenset[str]) -> bool:
        """Return whether terms say what it is about: "14 days" and "90 days" may be those of two things."""
        subject = self.statement.subject
        if subject:
            return fsum([self.weights[term] for term in shared & subject]) >= MIN_SUBJECT * self.rarity.highest
        return self.measure(shared) >= MIN_PLAIN_SHARE

    def _is_about_another(self, later: Statement, shared: frozenset[str]) -> bool:
        """Return whether a statement is about another thing of the same kind: the mail service, not the order service.

        Before a word that both have stands a word that the other statement lacks, in each of them.
        """
        earlier = self.statement
        for term in shared & earlier.subject:
            own = earlier.qualifiers.get(term, set())
            other = later.qualifiers.get(term, set())
            if own and other and own.isdisjoint(later.terms) and other.isdisjoint(earlier.terms):
                return True
        return False

    def _is_new(self, later: Statement) -> bool:
        """Return whether a statement says something that neither the earlier one nor the question says."""
        if any(term not in self.asked for term in later.terms - self.statement.terms):
            return True
        if not later.negated.isdisjoint(self.statement.terms):  # "Grafana is out."
            return True
        return bool(_find_other_numbers(later, self.statement)) or later.renews(self.statement)

    def _is_superseded_by(self, later: Statement, *, before: frozenset[str]) -> bool:
        """Return whether a statement supersedes it, by what both have in common, and how clearly it says so.

        The clearest sign first: a value that the later one denies, words that say that something changed, another
        number, and at last nearly the same words.
        """
        earlier = self.statement
        near = self._find_near(later, before=before)
        if not near or are_opposed(earlier.opposites, later.opposites):
            return False
        values = earlier.values - earlier.negated
        # "We deploy on Tuesdays" says again what "on Tuesdays instead of Thursdays" says.
        if values and values != earlier.values and values <= later.values:
            return False
        # It denies one of the values: "not 400", "instead of Thursdays".
        if not later.negated.isdisjoint(values) or later.renews(earlier):
            return True
        # It denies another number: then that changed, and whatever it says about the rest may be true of both.
        is_elsewhere = bool(values) and any(map(_NUMBER.match, later.negated))
        shared = earlier.topic & later.topic
        near_share = self.measure(near)
        if earlier.is_personal:  # "I live in Porto", "I live in Lisbon now"
            near_share = min(near_share, len(shared) / len(later.topic - light_terms() or near))
        units = _find_other_numbers(later, earlier)
        # It says that something changed: "no longer", or "not ops@" about an earlier "ops@".
        says_so = (later.is_correction and not is_elsewhere) or not later.negated.isdisjoint(earlier.terms)
        if says_so and self._is_corrected(later, near, share=near_share, has_number=bool(units)):
            return True
        share = min(near_share, self.measure(shared))
        if units:
            return self._is_renumbered(later, shared, share=share, units=units, is_elsewhere=is_elsewhere)
        return self._is_restated(later, shared, share=share)

    def _find_near(self, later: Statement, *, before: frozenset[str]) -> frozenset[str]:
        """Return its terms that a statement has, or that are said `before` it; none if they are too few.

        Most pairs have too little in common, so the cheapest test comes first.
        """
        near = self.statement.topic & later.terms
        if before:
            near |= self.statement.topic & before
        if fsum([self.weights[term] for term in near]) < self.min_weight:
            return frozenset()
        for parts in self.statement.identifiers:
            # "The matching team" is not about MATCH_TIMEOUT_MS.
            if 2 * len(near & parts) <= len(parts):
                near -= parts
        if not near or fsum([self.weights[term] for term in near]) < self.min_weight:
            return frozenset()
        if self.measure(near) < MIN_BOTH_SHARE and not later.renews(self.statement):
            return frozenset()
        if self.needs_subject and not self._names_subject(near):
            return frozenset()
        return near

    def _is_corrected(self, later: Statement, near: frozenset[str], *, share: float, has_number: bool) -> bool:
        """Return whether a statement that says that something changed is about it.

        `near` are its terms that the later one has, with their `share` of it; `has_number` says whether the later one
        has another number of the same unit. If these are only what answers the question, and nothing of what is asked
        about, the later one must say that just this ended: "the parcels are left at the neighbour's from now on" does
        not say where the key is.
        """
        earlier = self.statement
        asked = earlier.subject - self.answer
        if asked and near.isdisjoint(asked) and not later.ends(near, known=earlier.topic):
            return False
        if earlier.is_personal:
            return share >= MIN_PERSONAL_SHARE
        enough = MIN_STRONG_SHARE
        if has_number or is_unsegmented(earlier.text[0]):
            enough = MIN_BOTH_SHARE
        if share >= enough:
            return True
        # "Unleash is no longer used" has all of what "flags live in Unleash" answers.
        return bool(self.answer) and self.rarity.share(near & self.answer, of=self.answer) >= MIN_ANSWER_SHARE

    def _is_renumbered(
        self, later: Statement, shared: frozenset[str], *, share: float, units: Sequence[str], is_elsewhere: bool
    ) -> bool:
        """Return whether a statement with another number of some units is about the same thing.

        If what changed is probably another number (`is_elsewhere`), nearly all words must be the same.
        """
        if not later.is_medium and self._is_about_another(later, shared):
            return False
        if share < MIN_BOTH_SHARE:
            return False
        if len(units) > 1 and not later.is_medium and not has_weak_word(later.text):
            return False  # "until 22:00 on Mondays", "until 18:00 on Saturdays"
        is_loose = _LOOSE.issuperset(units)
        if is_elsewhere:
            return share >= MIN_LOOSE_SHARE
        if is_loose:
            return share >= MIN_LOOSE_SHARE or later.is_medium
        return share >= MIN_NUMBER_SHARE or later.is_medium or has_weak_word(later.text)

    def _is_restated(self, later: Statement, shared: frozenset[str], *, share: float) -> bool:
        """Return whether a statement without another number of the same unit says nearly the same, and differs."""
        if _repeats_number(later, self.statement):  # "48 MB, as agreed" changes nothing
            return False
        if share >= MIN_MEDIUM_SHARE and later.is_medium:
            return True
        # "The port is 8443", "the port is 9443": the numbers are what differs.
        if share < MIN_PLAIN_SHARE or 2 * len(shared.difference(*later.identifiers)) < later.words:
            return False
        return later.is_plain and self.statement.is_plain


def are_about_two_things(earlier: Statement, later: Statement) -> bool:
    """Return whether two statements of the same form both hold: they name different things, and none denies the other.

    "The discount for Nordbank is 12 percent" is not outdated by "the discount for Suedbank is now 15 percent".
    """
    if not later.negated.isdisjoint(earlier.terms | earlier.values) or later.renews(earlier):
        return False
    ends = False
    for match in _find_all("ended", later.text):
        ends = True
        ended = Statement.read(_CLAUSE_END.split(later.text[: match.start()])[-1]).subject
        if ended and ended <= earlier.terms:  # "…, Mailgun is no longer used"
            return False
    return are_parallel(earlier.text, later.text, common=_common_words(), units=measure_terms(), denies=ends)


def is_correction(text: str) -> bool:
    """Return whether a text says that something replaces something else."""
    folded = text.casefold()
    return any(hint in folded for hint in load("corrections")["words"]["hints"]) and _has_word("strong", folded)


def has_sign(text: str) -> bool:
    """Return whether a text probably corrects something that was said before: "scratch that", "after all"."""
    return is_correction(text) or _has_word("sign", text)


def may_take_back(text: str) -> bool:
    """Return whether a text has words that say that a decision no longer holds, and does not only suppose it."""
    return (has_sign(text) or _has_word("takes_back", text)) and not is_supposed(text)


def is_supposed(text: str) -> bool:
    """Return whether a text only says what might change, or what somebody else wanted to change."""
    if _has_word("supposed", text):
        return True
    if not _has_word("reported", text):
        return False
    others = [clause for clause in _CLAUSE_END.split(text) if not _has_word("reported", clause)]
    return not any(is_correction(clause) or _has_word("medium", clause) for clause in others)


def has_weak_sign(text: str) -> bool:
    """Return whether a text may correct something that was said before: "again", "you may", "is fine"."""
    return _has_word("weak_sign", text)


@cache
def light_terms() -> frozenset[str]:
    """Return the terms that two sentences may share without being about the same thing."""
    return frozenset(terms(" ".join(load("corrections")["words"]["light"])))


@cache
def _common_words() -> frozenset[str]:
    """Return terms, and characters of scripts without spaces, that name nothing."""
    changes = " ".join(load("corrections")["words"]["changes"])
    return light_terms() | measure_terms() | frozenset(terms(changes)) | frozenset(changes.split())


@cache
def measure_terms() -> frozenset[str]:
    """Return the terms of units, of how long something lasts and of deciding: they do not say what it is about."""
    return frozenset(terms(" ".join(load("corrections")["words"]["measure"])))


def is_plain(text: str) -> bool:
    """Return whether a text says what something is or does."""
    return _has_word("plain", text)


def has_weak_word(text: str) -> bool:
    """Return whether a text says "now" or the like, which may mean that something changed."""
    return _has_word("weak", text)


def _has_word(kind: str, text: str) -> bool:
    """Return whether a text matches a pattern of `corrections.toml`, by the name that it has there."""
    return compile_once(load("corrections")["words"][kind], _FLAGS).search(text) is not None


def _find_all(kind: str, text: str) -> Iterator[re.Match[str]]:
    """Find all matches of such a pattern."""
    return compile_once(load("corrections")["words"][kind], _FLAGS).finditer(text)


def _find_other_numbers(later: Statement, earlier: Statement) -> list[str]:
    """Return the units for which a statement has other numbers than an earlier one."""
    units: list[str] = []
    for unit, numbers in earlier.quantities.items():
        if unit in later.quantities and not numbers & later.quantities[unit]:
            units.append(unit)
    return units


def _repeats_number(later: Statement, earlier: Statement) -> bool:
    """Return whether two statements have the same number of the same unit."""
    for unit, numbers in earlier.quantities.items():
        if numbers & later.quantities.get(unit, set()):
            return True
    return False


def _cut_quantities(text: str) -> tuple[dict[str, set[str]], str]:
    """Return the numbers and days in a text by what they count, and the text without them."""
    found: dict[str, set[str]] = {}
    if text.isascii() and not _VALUE_HINT.search(text):
        return found, text
    tables = load("corrections")["quantities"]

    def cut_spaced(match: re.Match[str]) -> str:
        if match["clock"]:
            found.setdefault("clock", set()).add(match["clock"])
        elif match["day"] or match["first_day"]:
            found.setdefault("day", set()).add(" ".join(sorted(match[0].casefold().split())))
        elif match["week_day"]:
            found.setdefault("weekday", set()).add(match["week_day"].casefold())
        elif match["bare"]:
            found.setdefault("bare", set()).add(match["bare"])
            return match[0].removesuffix(match["bare"])
        elif is_unsegmented(match["unit"][0]):
            return match[0]
        else:
            found.setdefault(match["unit"].casefold()[:_UNIT_CHARS], set()).add(match["number"])
            return f" {match['unit']} "
        return " "

    def cut_unsegmented(match: re.Match[str]) -> str:
        if match["number"]:
            found.setdefault(match["unit"], set()).add(match["number"])
        else:
            found.setdefault("weekday", set()).add(match["weekday"] or match["day_of_week"])
        return " "

    bare = compile_once(tables["spaced"], _FLAGS).sub(cut_spaced, text)
    if not text.isascii():
        bare = compile_once(tables["unsegmented"], _FLAGS).sub(cut_unsegmented, bare)
    return found, bare
