"""Prune: shorten or clear old tool results, and nothing else.

A result is first shortened to its beginning, its end and the lines about errors in between, later cleared. The window
says how to get it back from the archive, which holds all of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias

from msgspec import structs

from holdfast.context.edits import GAP, Edit, Item, Pruned, shorten, tokens
from holdfast.messages import Image, Opaque, ToolResult
from holdfast.patterns import load
from holdfast.settings import Pruning
from holdfast.text import head, join_spans, tail
from holdfast.tokens import MESSAGE_TOKENS, TokenCounter, count_part, count_text

MIN_SAVED_SHARE: Final = 0.05
"""Minimum share of the window that a round must free, and how far below its mark clearing goes. Keeps rounds rare."""
CHARS_PER_TOKEN: Final = 3
"""Latin characters for one token; a Chinese one counts as three."""


def prune(
    items: Sequence[Item],
    edits: Iterable[Edit],
    *,
    pruning: Pruning,
    window: int,
    idle: timedelta | None = None,
    tool: str = "",
    count: TokenCounter = count_text,
) -> tuple[Edit, ...]:
    """Plan which tool results to shorten or clear now.

    With `cache-ttl` nothing happens while the provider's cache is warm. With `adaptive` a round must save enough to be
    worth the cache that it breaks. Results with images shrink only with `aggressive`. `edits` are applied already,
    `idle` is the time since the last request, and `tool` the tool that shows archived messages, if there is one.
    """
    mode, total = pruning.mode or "off", tokens(items)
    if not _is_due(pruning, idle):
        return ()
    pruner = _Pruner(pruning, count, tool)
    candidates = pruner.candidates(items, edits, within=_prunable_range(items, pruning.keep_last_assistants))
    if mode == "aggressive":
        return _make_edits(filter(None, map(pruner.clear, candidates)), mode)
    if total < pruning.soft_trim_ratio * window:
        return ()
    candidates = [one for one in candidates if not any(isinstance(block, Image) for block in one.result.content)]
    least = 0.0 if mode == "cache-ttl" else MIN_SAVED_SHARE * window
    steps = pruner.plan_by_fill(candidates, total=total, window=window, further=least)
    return _make_edits(steps, mode) if sum(step.saved for step in steps) >= least else ()


def _is_due(pruning: Pruning, idle: timedelta | None) -> bool:
    if pruning.mode != "cache-ttl":
        return pruning.mode not in {None, "off"}
    return idle is not None and timedelta(0) < pruning.ttl <= idle


def shrink_results(
    items: Sequence[Item],
    edits: Iterable[Edit],
    *,
    excess: int,
    pruning: Pruning,
    clear: bool = False,
    limit: int | None = None,
    tool: str = "",
    count: TokenCounter = count_text,
) -> tuple[Edit, ...]:
    """Plan to shorten or clear results of any age, the largest first, until `excess` tokens are saved.

    It is for protected messages that do not fit into `limit`.
    """
    pruner = _Pruner(pruning, count, tool)
    candidates = pruner.candidates(items, edits, within=range(len(items)))
    candidates.sort(key=lambda one: one.tokens, reverse=True)
    steps: list[_Step] = []
    for step in filter(None, map(pruner.clear if clear else pruner.soften, candidates)):
        if excess <= 0:
            break
        excess -= step.saved
        steps.append(_Step(step.candidate, structs.replace(step.change, limit=limit), step.saved))
    return _make_edits(steps, "the newest messages alone do not fit")


def _prunable_range(items: Sequence[Item], keep: int) -> range:
    """Return the range of old results: from the first user message up to the last `keep` replies."""
    roles = [item.message.role for item in items]
    start = roles.index("user") if "user" in roles else len(roles)
    replies = [at for at, role in enumerate(roles) if role == "assistant" and roles[at - 1 : at] != ["assistant"]]
    ends = [0, *replies, len(roles)]
    return range(start, ends[-1 - keep] if keep <= len(replies) else 0)


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A tool result that may shrink: its item, the index of its part, its tokens, and whether it was shortened."""

    item: Item
    part: int
    result: ToolResult
    tokens: int
    shortened: bool


@dataclass(frozen=True, slots=True)
class _Step:
    """One change of a result, and the tokens that it saves."""

    candidate: _Candidate
    change: Pruned
    saved: int


@dataclass(frozen=True, slots=True)
class _Pruner:
    """Shortens and clears results by the settings."""

    pruning: Pruning
    count: TokenCounter
    tool: str

    def candidates(self, items: Sequence[Item], edits: Iterable[Edit], *, within: range) -> list[_Candidate]:
        """Return the results within a range that may shrink, oldest first.

        Pinned results, those without an archive number and those with unknown blocks may not.
        """
        pruned = {
            (number, edit.change.part): bool(edit.change.keep)
            for edit in edits
            if isinstance(edit.change, Pruned)
            for number in edit.ids
        }
        names = {call.id: call.name for item in items for call in item.message.calls}
        allow = _compile(self.pruning.tools.allow, otherwise=".*")
        deny = _compile(self.pruning.tools.deny, otherwise="(?!)")
        found: list[_Candidate] = []
        for item, part, result in _results(items[within.start : within.stop]):
            key = (item.id, part)
            name = (result.name or names.get(result.call_id, "")).strip()
            if pruned.get(key, True) and allow.fullmatch(name) and not deny.fullmatch(name):
                found.append(_Candidate(item, part, result, self._count(item, result), key in pruned))
        return found

    def _count(self, item: Item, result: ToolResult) -> int:
        is_alone = len(item.message.parts) == 1
        return item.tokens - MESSAGE_TOKENS if is_alone else count_part(result, count=self.count)

    def soften(self, one: _Candidate) -> _Step | None:
        """Keep the beginning, the end, and lines about errors; None if the result is short or saves nothing."""
        soft, text = self.pruning.soft_trim, one.result.text
        images = sum(isinstance(block, Image) for block in one.result.content)
        if one.shortened or (len(text) <= soft.max_chars and not images):
            return None
        removed = f" {images} image(s) removed." if images else ""
        note = (
            f"[Tool result trimmed: kept the beginning and the end of {len(text)} characters.{removed} "
            f"{self._reference(one)}]"
        )
        limit = max(0, soft.max_chars - len(note) - 2)
        keep = excerpt(text, first=soft.head_chars, last=soft.tail_chars, limit=limit)
        return self._make_step(one, Pruned(part=one.part, keep=keep, note=note))

    def clear(self, one: _Candidate) -> _Step | None:
        """Replace the result by a reference to the archive; None if that saves nothing."""
        note = f"{self.pruning.hard_clear.placeholder} ({self._reference(one)})"
        return self._make_step(one, Pruned(part=one.part, note=note))

    def plan_by_fill(self, candidates: Sequence[_Candidate], *, total: int, window: int, further: float) -> list[_Step]:
        """Shorten long results once the window fills; clear the oldest once it is fuller still."""
        pruning = self.pruning
        steps = {one: step for one in candidates if (step := self.soften(one))}
        saved = {one: step.saved for one, step in steps.items()}
        left = sum(one.tokens for one in candidates) - sum(saved.values())
        excess = total - sum(saved.values()) - pruning.hard_clear_ratio * window
        is_worth_it = CHARS_PER_TOKEN * left >= pruning.min_prunable_tool_chars
        excess += further if pruning.hard_clear.enabled and is_worth_it and excess >= 0 else -math.inf
        for one in candidates:
            if excess >= 0 and (step := self.clear(one)):
                excess -= step.saved - saved.get(one, 0)
                steps[one] = step
        return list(steps.values())

    def _reference(self, one: _Candidate) -> str:
        """Return where the whole result is; the tool is named only if the model has it."""
        if one.item.id < 0:
            return "The rest is not available now"
        return f"holdfast id {one.item.id}" + (f": {self.tool} brings it back" if self.tool else "")

    def _make_step(self, one: _Candidate, change: Pruned) -> _Step | None:
        after = shorten(one.item.message, change).parts[one.part]
        saved = one.tokens - count_part(after, count=self.count)
        return _Step(one, change, saved) if saved > 0 else None


def _results(items: Iterable[Item]) -> Iterator[tuple[Item, int, ToolResult]]:
    """Yield the results that may shrink at all, with their message and place in it."""
    for item in items:
        if item.pinned or not item.id or item.message.role != "tool":
            continue
        for part, result in enumerate(item.message.parts):
            if isinstance(result, ToolResult) and not any(isinstance(block, Opaque) for block in result.content):
                yield item, part, result


def _compile(names: Iterable[str], *, otherwise: str) -> re.Pattern[str]:
    """Compile names of tools with wildcards; `otherwise` if there is no name."""
    patterns = [re.escape(name.strip()).replace(r"\*", ".*") for name in names if name.strip()]
    return re.compile("|".join(patterns) or otherwise, re.IGNORECASE | re.DOTALL)


def _make_edits(steps: Iterable[_Step], reason: str) -> tuple[Edit, ...]:
    """Return the steps as edits, one for each result; the tokens of a message fall with each of its results."""
    left: dict[int, int] = {}
    edits: list[Edit] = []
    for step in steps:
        number = step.candidate.item.id
        before = left.get(number, step.candidate.item.tokens)
        after = left[number] = before - step.saved
        edits.append(Edit(change=step.change, ids=(number,), reason=reason, tokens_before=before, tokens_after=after))
    return tuple(edits)


# --- excerpts ----------------------------------------------------------------

Span: TypeAlias = tuple[int, int]
"""A part of a text: start and stop."""

MAX_MATCHES: Final = 4
"""How many matches of one word are examined, from the beginning and from the end."""
MAX_LINE_CHARS: Final = 240
"""The most characters of one line that are kept."""


def excerpt(text: str, *, first: int, last: int, limit: int) -> tuple[Span, ...]:
    """Return the parts of a text to keep: about `first` characters, about `last` characters, and lines about errors.

    With a gap between each two they are at most `limit` characters. Time is linear in the text.
    """
    if len(text) <= limit:
        return ((0, len(text)),)
    room = max(0, limit - len(GAP))
    if first + last > room:  # the settings ask for more than they allow: reduce both
        first, last = room * first // (first + last), room * last // (first + last)
    # Cut at a whole line, unless that would lose much.
    stop, start = len(head(text, first)), len(text) - len(tail(text, last))
    line = text.rfind("\n", stop - stop // 4, stop)
    stop = line if line > 0 else stop
    line = text.find("\n", start, start + (len(text) - start) // 4)
    start = line + 1 if line >= 0 else start
    kept = [(0, stop), (start, len(text))]
    room = limit - len(GAP) - stop - (len(text) - start)
    for begin, end in _find_lines(text, stop, start):
        room -= end - begin + len(GAP)
        if room < 0:
            break
        kept.append((begin, end))
    return tuple(join_spans((begin, end) for begin, end in kept if end > begin))


def _find_lines(text: str, start: int, stop: int) -> list[Span]:
    """Find lines about the outcome: the last exit status first, then errors from both ends inwards."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a few letters grow in lower case; then only lower-case words match
        lowered = text
    statuses, errors = (
        {line for word in load("tools")["outcomes"][kind] for line in _matching_lines(lowered, word, start, stop)}
        for kind in ("statuses", "errors")
    )
    order = sorted(errors - statuses)
    inwards = [order[-1 - place // 2] if place % 2 else order[place // 2] for place in range(len(order))]
    return [*sorted(statuses)[-1:], *inwards]


def _matching_lines(text: str, word: str, start: int, stop: int) -> Iterator[Span]:
    """Iterate over the lines of the first and last matches of a word."""
    low = start
    for _ in range(MAX_MATCHES):
        if (place := text.find(word, low, stop)) < 0:
            return
        line = _line_at(text, place, start, stop)
        yield line
        low = max(low, line[1])
    high = stop
    for _ in range(MAX_MATCHES):
        if (place := text.rfind(word, low, high)) < 0:
            return
        line = _line_at(text, place, start, stop)
        yield line
        high = line[0]


def _line_at(text: str, place: int, start: int, stop: int) -> Span:
    """Return the line at a place; of a very long one the part around it."""
    first = max(start, place - MAX_LINE_CHARS // 2)
    begin = max(first, text.rfind("\n", first, place) + 1)
    end = text.find("\n", place, min(stop, begin + MAX_LINE_CHARS))
    return begin, end if end >= 0 else min(stop, begin + MAX_LINE_CHARS)
