"""List what was stated in a conversation, each statement with what was said later about the same thing.

A summary that quotes a rule and not the sentence that ended it states the rule as if it held. So every sentence of the
user is compared with the statements that are listed: if it takes the place of one without doubt, it is listed instead,
and if it may, it is written behind it.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import nlargest
from typing import Final, Literal, TypeAlias

from holdfast import signals
from holdfast.compaction.dialogue import find_identifiers, own_words
from holdfast.compaction.sections import LATER
from holdfast.messages import Message
from holdfast.search.contradictions import Claim, contradict, may_contradict, read_claim, replaces
from holdfast.search.corrections import (
    MAX_BEFORE_CHARS,
    MIN_NUMBER_SHARE,
    Earlier,
    Later,
    Rarity,
    Statement,
    has_sign,
    has_weak_sign,
    has_weak_word,
    is_correction,
    is_plain,
    is_statement,
    light_terms,
)

Kind: TypeAlias = Literal["rule", "decision", "value"]
"""The list that a statement belongs to: what the user wants, what was decided or found out, and what is so."""

MAX_MESSAGE: Final = 1_500
"""The maximum characters of a message of the user. A longer one is pasted text, with rules that are not theirs."""
MIN_CONTENT: Final = 3
"""The number of words and values of a sentence that says something without the others around it."""
MAX_SHORT: Final = 80
"""The maximum characters of a sentence with a number in words that states a value: longer ones tell something."""
MAX_SIGNED: Final = 100
"""The maximum characters of a sentence in which "again" or "is fine" is a sign of a correction by itself."""
MAX_LATER: Final = 3
"""The number of later sentences that are kept behind a statement: the newest."""
MAX_LINES: Final = 300
"""The number of statements that are listed, the newest: more do not fit into a summary."""
MAX_NEAR: Final = 8
"""The number of statements that a sentence is compared with: those that have most in common with it."""
MIN_WEAK_SHARE: Final = 0.3
"""The share of a statement that a later sentence must have to be about the same thing, if it has a weak sign."""
MIN_SHARE: Final = 0.4
"""The same if it has no sign."""
MAX_RARE: Final = 2
"""A word in no more sentences than this is rare."""
MAX_RARE_SHARE: Final = 0.02
"""A word in no more than this share of all sentences is rare too."""
_LIST_MARK: Final = re.compile(r"\s*(?:(?:[-*+•]|\d{1,3}[.)])\s+)?")
_HIRAGANA: Final = re.compile("[\u3041-\u309f]")
_PASTED: Final = re.compile(r"[│┃]|^(?:File \"|E\s+\w*Error\b|\S+:\d+:\d+:\s)|^\w+: \w+Error\b")
_DIGIT: Final = re.compile(r"\d")


@dataclass(frozen=True)
class Sentence:
    """A sentence of a conversation.

    Attributes:
        text: The sentence.
        before: The sentence before it in its message.
        kind: The list that it belongs to; None if it is only of interest as a correction.
        is_by_user: Whether the user wrote it, or a summary has it.
    """

    text: str
    before: str = ""
    kind: Kind | None = None
    is_by_user: bool = True

    @cached_property
    def words(self) -> Statement:
        """Its terms."""
        return Statement.read(self.text)

    @cached_property
    def claim(self) -> Claim | None:
        """The sentence, taken apart."""
        return read_claim(self.text)

    @cached_property
    def content(self) -> frozenset[str]:
        """The terms that say what it is about."""
        words = self.words.terms - light_terms()
        return frozenset(word for word in words if not _HIRAGANA.search(word) and not word.isdigit())

    @cached_property
    def as_later(self) -> Later:
        """The sentence, to be compared with earlier ones."""
        return Later.read(self.text)

    @cached_property
    def is_task(self) -> bool:
        """Whether it says what to do next, and not how things should be."""
        return self.kind is None and signals.has_signal(self.text, "request")

    @cached_property
    def has_sign(self) -> bool:
        """Whether it probably corrects something. "Again" in a long sentence, or in a task, means little."""
        if has_sign(self.text):
            return True
        return len(self.text) <= MAX_SIGNED and not self.is_task and has_weak_sign(self.text)

    @cached_property
    def has_weak_sign(self) -> bool:
        """Whether it may correct something."""
        return not self.is_task and (has_weak_sign(self.text) or has_weak_word(self.text))


@dataclass(frozen=True, slots=True)
class ListLine:
    """A line of a list: a statement, and what was said later about the same thing."""

    kind: Kind
    parts: tuple[Sentence, ...]
    mark: str = "- "

    @classmethod
    def read(cls, line: str, kind: Kind) -> ListLine:
        """Read a line of an earlier summary."""
        found = _LIST_MARK.match(line)
        mark = ""
        if found is not None:
            mark = found[0]
        first, *later = line[len(mark) :].split(LATER)
        parts = [Sentence(first), *(Sentence(part.removesuffix(")")) for part in later)]
        return cls(kind, tuple(parts), mark)

    @property
    def line(self) -> str:
        """The statement as a line of a summary."""
        first, *later = [part.text for part in self.parts]
        return self.mark + first + "".join(f"{LATER}{text})" for text in later)

    def add(self, said: Sentence) -> ListLine:
        """Write a later sentence behind the others. What is said again is moved there."""
        first, *later = [part for part in self.parts if part.text != said.text] or [said]
        if first is said:
            return self
        return replace(self, parts=(first, *[*later, said][-MAX_LATER:]))


def list_stated(old: Mapping[Kind, Sequence[str]], messages: Iterable[Message]) -> dict[Kind, tuple[str, ...]]:
    """List what an earlier summary states, and what messages state, the newest last."""
    said = read_messages(messages)
    old_lines: list[ListLine] = []
    every: list[Sentence] = []
    for kind, lines in old.items():
        for line in lines:
            stated = ListLine.read(line, kind)
            old_lines.append(stated)
            every += stated.parts
    every += said
    listed = _Listed(_count_words(every))
    for stated in old_lines:
        listed.put(stated)
    for one in said:
        listed.take(one)
    found: dict[Kind, list[str]] = {"rule": [], "decision": [], "value": []}
    for stated in listed.lines.values():
        found[stated.kind].append(stated.line)
    return {kind: tuple(dict.fromkeys(lines)) for kind, lines in found.items()}


def read_messages(messages: Iterable[Message]) -> list[Sentence]:
    """List the sentences of the user, and those of the assistant that decide, correct or conclude something."""
    found: list[Sentence] = []
    for message in messages:
        if message.role not in {"user", "assistant"}:
            continue
        is_by_user = message.role == "user"
        text = own_words(message)
        if is_by_user and len(text) > MAX_MESSAGE:
            continue
        before = ""
        for sentence in signals.list_statements([text]):
            if is_by_user:
                kind = find_kind(sentence)
                # Any other sentence of the user may be a correction.
                is_needed = kind is not None or not (_is_pasted(sentence) or sentence.endswith(("?", "？")))
            else:
                kind = find_conclusion(sentence)
                is_needed = kind is not None
            if is_needed:
                found.append(Sentence(sentence, before, kind, is_by_user))
            before = sentence
    return found


def find_conclusion(sentence: str) -> Kind | None:
    """Return `decision` for a sentence of the assistant that decides or concludes something; None for any other.

    "I use the body instead of the header" says what was done: it corrects nothing.
    """
    if _is_pasted(sentence) or sentence.endswith(("?", "？")) or len(Sentence(sentence).content) < MIN_CONTENT:
        return None
    is_explicit = signals.classify_sentence(sentence) in {"decision", "correction"}
    if is_explicit or signals.has_signal(sentence, "decision", "choice", "conclusion"):
        return "decision"
    return None


def find_kind(sentence: str) -> Kind | None:
    """Return the list that a sentence of the user belongs to; None for a question, a task, a remark or pasted text."""
    if signals.is_question(sentence):
        return None
    if signals.has_signal(sentence, "rule", "preference", "remember"):
        return "rule"
    if signals.line_pattern("setting").match(sentence) or signals.line_pattern("todo").match(sentence):
        return "value"
    if _is_pasted(sentence):
        return None
    if signals.classify_sentence(sentence) is not None:
        return "decision"
    if signals.has_signal(sentence, "decision", "choice", "correction", "conclusion") or is_correction(sentence):
        return "decision"
    if signals.has_signal(sentence, "request") or not is_statement(sentence):
        return None
    claim = read_claim(sentence)
    if claim is None or len(claim.topic) + len(claim.values) < MIN_CONTENT:
        return None
    if "weekday" in claim.values or _DIGIT.search(sentence):
        return "value"
    if claim.values and is_plain(sentence) and len(sentence) <= MAX_SHORT:  # "Deploys need two reviewers."
        return "value"
    has_name = bool(claim.proper) or bool(find_identifiers([sentence], limit=1))
    if has_name and (is_plain(sentence) or sentence.casefold().startswith(("we ", "our "))):
        return "value"
    return None


def _is_pasted(sentence: str) -> bool:
    """Tell whether a sentence begins like a line of a log, a diff or a shell."""
    return _PASTED.search(sentence) is not None or not sentence.lstrip("\"'“”‘「『（(*`")[:1].isalnum()


def states_only(text: str) -> bool:
    """Tell whether a text of the user has statements and nothing else, such as a task or a question."""
    has_statements = False
    for sentence in signals.sentences(text):
        if signals.has_signal(sentence, "request") or find_kind(sentence) is None:
            return False
        has_statements = True
    return has_statements


def _count_words(said: Sequence[Sentence]) -> Counter[str]:
    """Count the sentences that have each word."""
    every = {one.text: one for one in said}
    counts: Counter[str] = Counter()
    for one in every.values():
        counts.update(one.words.terms)
    counts[""] = len(every)
    return counts


@dataclass(slots=True)
class _Listed:
    """The statements so far, in order, and where their words and sentences are."""

    counts: Counter[str]
    lines: dict[int, ListLine] = field(default_factory=dict)
    by_word: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    by_text: dict[str, int] = field(default_factory=dict)
    rarity: Rarity = field(init=False)
    max_rare: float = field(init=False)
    next_place: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        every = self.counts.pop("", 0)
        self.rarity = Rarity.of({word: math.log(1 + every / count) for word, count in self.counts.items()})
        self.max_rare = max(MAX_RARE, MAX_RARE_SHARE * every)

    def put(self, stated: ListLine) -> None:
        """Put a line at the end."""
        place = self.next_place
        self.next_place += 1
        self.lines[place] = stated
        if len(self.lines) > MAX_LINES:
            del self.lines[next(iter(self.lines))]
        for part in stated.parts:
            self.by_text[part.text] = place
            for word in part.content:
                self.by_word[word].add(place)

    def take(self, said: Sentence) -> None:
        """Take in a sentence: behind what it may correct, instead of what it replaces, or as a line of its own.

        What a correction is about may be in the sentence before it: "Nora left. Write to Emil instead."
        """
        if self._join(said):
            return
        is_after_short = 0 < len(said.before) <= MAX_BEFORE_CHARS and said.before not in self.by_text
        if is_after_short and said.has_sign and self._join(replace(said, text=f"{said.before} {said.text}")):
            return
        if said.kind:
            self.put(ListLine(said.kind, (said,)))

    def _join(self, said: Sentence) -> bool:
        """Write a sentence behind or instead of a statement; return whether there is one."""
        same = self.by_text.get(said.text)
        if same in self.lines:
            self.put(self.lines.pop(same).add(said))
            return True
        shares: dict[int, float] = {}
        replaced: list[ListLine] = []
        for place in self._find_near(said):
            line = self.lines[place]
            if self._replaces(line, said):
                replaced.append(self.lines.pop(place))
                continue
            share = max(self._compare(part, said) for part in line.parts)
            if share and (said.kind is None or len(line.parts) <= MAX_LATER):
                shares[place] = share
        if replaced:
            self.put(ListLine(said.kind or replaced[-1].kind, (said,)))
        elif shares:
            best = max(shares, key=lambda place: (shares[place], place))
            self.put(self.lines.pop(best).add(said))
        return bool(replaced or shares)

    def _find_near(self, said: Sentence) -> list[int]:
        """Return the places of the lines that have most in common with a sentence, in order."""
        weights: dict[int, float] = defaultdict(float)
        for word in said.content:
            places = self.by_word.get(word, set())
            places.intersection_update(self.lines)
            for place in places:
                weights[place] += self.rarity.values.get(word, self.rarity.unknown)
        return sorted(nlargest(MAX_NEAR, weights, key=lambda place: (weights[place], place)))

    def _replaces(self, line: ListLine, said: Sentence) -> bool:
        """Tell whether a sentence of the user takes the place of a line without doubt."""
        later = said.claim
        if later is None or not said.is_by_user or not (later.is_change or later.is_ending):
            return False
        for part in line.parts:
            if part.claim is None or not (contradict(part.claim, later) and replaces(later, part.claim)):
                return False
        return True

    def _compare(self, part: Sentence, said: Sentence) -> float:
        """Return the share of a statement that a later sentence has, if it may correct it; else 0."""
        shared = part.content & said.content
        if not shared:
            return 0.0
        share = self.rarity.share(shared, of=part.content)
        if not said.is_by_user and share < MIN_SHARE:  # what it says while it works has many words of change
            return 0.0
        is_rare = any(self.counts[word] <= self.max_rare for word in shared)
        if is_rare and said.has_sign:
            return share
        if share >= MIN_WEAK_SHARE and said.has_weak_sign:
            return share
        if share >= MIN_SHARE and not said.is_task:
            return share
        if Earlier.read(part.words, self.rarity, asked=()).is_superseded(said.as_later):
            return share
        if part.claim is None or said.claim is None:
            return 0.0
        if contradict(part.claim, said.claim):
            return share
        if share >= MIN_NUMBER_SHARE and may_contradict(part.claim, said.claim):
            return share
        return 0.0
