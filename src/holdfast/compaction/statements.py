"""List the statements of a conversation, each with what was said later about the same thing.

If a summary quotes a rule but not the sentence that ended it, the rule seems to hold. So every sentence of the user is
compared with the listed statements. If it certainly replaces one, it is listed instead; if it may, it is written after
it.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import nlargest
from itertools import chain
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
    are_about_two_things,
    has_sign,
    has_weak_sign,
    has_weak_word,
    is_correction,
    is_plain,
    is_statement,
    light_terms,
)

Kind: TypeAlias = Literal["rule", "decision", "value"]
"""The list that a statement belongs to: what the user wants, what was decided or found out, or a value."""

# Most of these limits were chosen by hand, with pairs of sentences that are not kept. `python -m benchmarks digest`
# counts what the lists of a summary state. With MIN_CONTENT = 5 four of its summaries lack a statement, with
# MIN_SHARE = 0.6 one has an old value alone. Much smaller and much larger values of the others change no count.
MAX_MESSAGE: Final = 1_500
"""The maximum characters of a message of the user. A longer one is pasted text, whose rules are not the user's."""
MIN_CONTENT: Final = 3
"""The minimum words and values of a sentence that can be understood on its own: "The port is 8443." has fewer."""
MAX_SHORT: Final = 80
"""The maximum characters of a sentence that states a value with a number in words. Longer ones tell a story."""
MAX_SIGNED: Final = 100
"""The maximum characters of a sentence in which "again" or "is fine" alone is a sign of a correction."""
MAX_LATER: Final = 3
"""How many later sentences are kept after a statement, the newest ones."""
MAX_LINES: Final = 300
"""How many statements are listed, the newest ones. More do not fit into a summary."""
MAX_NEAR: Final = 8
"""How many statements a sentence is compared with: those that have most words in common with it."""
MIN_WEAK_SHARE: Final = 0.3
"""The share of a statement that a later sentence must repeat to be about the same thing, if it has a weak sign."""
MIN_SHARE: Final = 0.4
"""The same if it has no sign."""
MAX_RARE: Final = 2
"""A word in no more sentences than this is rare."""
MAX_RARE_SHARE: Final = 0.02
"""A word in no more than this share of all sentences is rare too."""
_LIST_MARK: Final = re.compile(r"\s*(?:(?:[-*+•]|\d{1,3}[.)])\s+)?")
"""What a line of a list begins with: "- ", "2. ", or nothing; not the "3.11" of "3.11 is required"."""
_HIRAGANA: Final = re.compile("[\u3041-\u309f]")
"""Terms with one of these are endings and particles, or pairs with a part of one, and name nothing."""
_PASTED: Final = re.compile(r"[│┃]|^(?:File \"|E\s+\w*Error\b|\S+:\d+:\d+:\s)|^\w+: \w+Error\b")
"""A line of a table, a traceback or a compiler: `File "app.py"`, "E   KeyError", "a.py:3:7: ", "x: TypeError"."""
_DIGIT: Final = re.compile(r"\d")


@dataclass(frozen=True)
class Sentence:
    """A sentence of a conversation.

    Attributes:
        text: The sentence.
        before: The sentence before it in its message.
        kind: The list that it belongs to; None if it is only kept because it may correct a statement.
        is_by_user: Whether the user wrote it, or it comes from an earlier summary.
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
        """The parts of what it states; None if it states nothing that can be compared."""
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

    def add(self, sentence: Sentence) -> ListLine:
        """Return the line with a later sentence after the others. A repeated sentence moves to the end."""
        others = [part for part in self.parts if part.text != sentence.text]
        if not others:  # the line has only this sentence
            return self
        first, *later = others
        later.append(sentence)
        return replace(self, parts=(first, *later[-MAX_LATER:]))


def list_stated(old: Mapping[Kind, Sequence[str]], messages: Iterable[Message]) -> dict[Kind, tuple[str, ...]]:
    """List what an earlier summary states, and what messages state, the newest last."""
    old_lines: list[ListLine] = []
    for kind, texts in old.items():
        for text in texts:
            old_lines.append(ListLine.read(text, kind))
    new_sentences = read_messages(messages)
    listed = _Listed([*chain.from_iterable(line.parts for line in old_lines), *new_sentences])
    for line in old_lines:
        listed.append(line)
    for sentence in new_sentences:
        listed.add(sentence)
    found: dict[Kind, list[str]] = {"rule": [], "decision": [], "value": []}
    for line in listed.lines.values():
        found[line.kind].append(line.line)
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
            if is_by_user and signals.begins_story(sentence):
                break
            if is_by_user and signals.is_example(sentence):
                continue
            if is_by_user and before and found and found[-1].text == before and signals.amends(sentence, before):
                found[-1] = replace(found[-1], text=f"{before} {sentence}")  # "The code is 1122. Wait, no, 2211."
                before = found[-1].text
                continue
            if is_by_user:
                kind = find_kind(sentence)
            else:
                kind = find_conclusion(sentence)
            # Any other sentence of the user may be a correction.
            may_correct = is_by_user and not _is_pasted(sentence) and not sentence.endswith(("?", "？"))
            if kind is not None or may_correct:
                found.append(Sentence(sentence, before, kind, is_by_user))
            before = sentence
    return found


def find_conclusion(sentence: str) -> Kind | None:
    """Return `decision` for a sentence of the assistant that decides or concludes something; None for any other.

    "I use the body instead of the header" says what was done, and corrects nothing.
    """
    if _is_pasted(sentence) or sentence.endswith(("?", "？")) or len(Sentence(sentence).content) < MIN_CONTENT:
        return None
    if signals.classify_sentence(sentence) in {"decision", "correction"}:
        return "decision"
    if signals.has_signal(sentence, "decision", "choice", "conclusion"):
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
    if _states_value(sentence):
        return "value"
    return None


def _states_value(sentence: str) -> bool:
    """Return whether a statement gives something a value: a number, a day, or a name."""
    claim = read_claim(sentence)
    if claim is None or len(claim.topic) + len(claim.values) < MIN_CONTENT:
        return False
    if "weekday" in claim.values or _DIGIT.search(sentence):
        return True
    if claim.values and is_plain(sentence) and len(sentence) <= MAX_SHORT:  # "Deploys need two reviewers."
        return True
    if not (is_plain(sentence) or sentence.casefold().startswith(("we ", "our "))):
        return False
    return bool(claim.proper) or bool(find_identifiers([sentence], limit=1))


def _is_pasted(sentence: str) -> bool:
    """Return whether a sentence begins like a line of a log, a diff or a shell."""
    return _PASTED.search(sentence) is not None or not sentence.lstrip("\"'“”‘「『（(*`")[:1].isalnum()


def states_only(text: str) -> bool:
    """Return whether a text of the user has only statements: no task, no question, no remark."""
    has_statements = False
    for sentence in signals.sentences(text):
        if signals.has_signal(sentence, "request") or find_kind(sentence) is None:
            return False
        has_statements = True
    return has_statements


class _Listed:
    """The lines so far, oldest first, and where their words and sentences are.

    Attributes:
        lines: The lines by their place. A line that changes gets a new place at the end.
        by_word: The places of the lines that had each word; they may be gone.
        by_text: The last place of each sentence; its line may be gone.
        counts: How many different sentences have each word.
        rarity: How rare each word is.
        max_rare: A word in no more sentences than this is rare.
    """

    def __init__(self, sentences: Sequence[Sentence]) -> None:
        self.lines: dict[int, ListLine] = {}
        self.by_word: dict[str, set[int]] = defaultdict(set)
        self.by_text: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        by_text = {sentence.text: sentence for sentence in sentences}
        for sentence in by_text.values():
            self.counts.update(sentence.words.terms)
        total = len(by_text)
        self.rarity = Rarity.of({word: math.log(1 + total / count) for word, count in self.counts.items()})
        self.max_rare = max(MAX_RARE, MAX_RARE_SHARE * total)
        self._next_place = 0

    def append(self, line: ListLine) -> None:
        """Append a line."""
        place = self._next_place
        self._next_place += 1
        self.lines[place] = line
        if len(self.lines) > MAX_LINES:
            del self.lines[next(iter(self.lines))]
        for part in line.parts:
            self.by_text[part.text] = place
            for word in part.content:
                self.by_word[word].add(place)

    def add(self, sentence: Sentence) -> None:
        """Add a sentence after a statement that it may correct, instead of one that it replaces, or on a line alone."""
        if self._join(sentence) or self._join_with_before(sentence):
            return
        if sentence.kind:
            self.append(ListLine(sentence.kind, (sentence,)))

    def _join_with_before(self, sentence: Sentence) -> bool:
        """Join a correction together with the sentence before it, which says what it is about.

        "Nora left. Write to Emil instead." That sentence must be short and not on a line of its own.
        """
        before = sentence.before
        if not before or len(before) > MAX_BEFORE_CHARS or before in self.by_text or not sentence.has_sign:
            return False
        return self._join(replace(sentence, text=f"{before} {sentence.text}"))

    def _join(self, sentence: Sentence) -> bool:
        """Write a sentence after or instead of a statement; return False if there is none to which it belongs."""
        same = self.by_text.get(sentence.text)
        if same in self.lines:
            self.append(self.lines.pop(same).add(sentence))
            return True
        shares: dict[int, float] = {}
        replaced: list[ListLine] = []
        for place in self._find_near(sentence):
            line = self.lines[place]
            if self._replaces(line, sentence):
                replaced.append(self.lines.pop(place))
                continue
            share = max(self._compare(part, sentence) for part in line.parts)
            if share and (sentence.kind is None or len(line.parts) <= MAX_LATER):
                shares[place] = share
        if replaced:
            self.append(ListLine(sentence.kind or replaced[-1].kind, (sentence,)))
        elif shares:
            best = max(shares, key=lambda place: (shares[place], place))
            self.append(self.lines.pop(best).add(sentence))
        return bool(replaced or shares)

    def _find_near(self, sentence: Sentence) -> list[int]:
        """Return the places of the lines that have most in common with a sentence, in order."""
        weights: dict[int, float] = defaultdict(float)
        for word in sentence.content:
            places = self.by_word.get(word, set())
            places.intersection_update(self.lines)
            for place in places:
                weights[place] += self.rarity.values.get(word, self.rarity.unknown)
        return sorted(nlargest(MAX_NEAR, weights, key=lambda place: (weights[place], place)))

    def _replaces(self, line: ListLine, sentence: Sentence) -> bool:
        """Return whether a sentence of the user certainly replaces a line."""
        later = sentence.claim
        if later is None or not sentence.is_by_user or not (later.is_change or later.is_ending):
            return False
        for part in line.parts:
            if part.claim is None or not (contradict(part.claim, later) and replaces(later, part.claim)):
                return False
        return True

    def _compare(self, part: Sentence, later: Sentence) -> float:
        """Return the share of a statement that a later sentence repeats, if it may correct it; otherwise 0."""
        share = self._measure(part, later)
        if share and are_about_two_things(part.words, later.words):
            return 0.0
        return share

    def _measure(self, part: Sentence, later: Sentence) -> float:
        """Return the share of a statement that a later sentence repeats, if its words may correct it; otherwise 0."""
        shared = part.content & later.content
        if not shared:
            return 0.0
        share = self.rarity.share(shared, of=part.content)
        if not later.is_by_user and share < MIN_SHARE:  # an assistant at work uses many words of change
            return 0.0
        is_rare = any(self.counts[word] <= self.max_rare for word in shared)
        if is_rare and later.has_sign:
            return share
        if share >= MIN_WEAK_SHARE and later.has_weak_sign:
            return share
        if share >= MIN_SHARE and not later.is_task:
            return share
        if Earlier.read(part.words, self.rarity, asked=()).is_superseded(later.as_later):
            return share
        if part.claim is None or later.claim is None:
            return 0.0
        if contradict(part.claim, later.claim):
            return share
        if share >= MIN_NUMBER_SHARE and may_contradict(part.claim, later.claim):
            return share
        return 0.0
