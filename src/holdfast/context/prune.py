"""Prune: shorten or clear old tool results, and nothing else.

A result is first shortened to its beginning, its end and the lines about errors in between, later cleared. A note in
the window explains how to get the whole result from the archive.
"""

from __future__ import annotations

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
"""Minimum share of the window that a round must free, and how far below its mark clearing goes. It keeps rounds rare,
since each one breaks the provider's cache."""
FULL_LENGTH_WINDOW: Final = 64_000
"""The smallest window in which a shortened result has the characters that the settings say."""
CHARS_PER_TOKEN: Final = 3
"""How many Latin characters count as one token. One Chinese character counts as three."""


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
    if not _is_due(pruning, idle):
        return ()
    mode = pruning.mode or "off"
    pruner = _Pruner(pruning, count, tool)
    candidates = pruner.candidates(items, edits, within=_prunable_range(items, pruning.keep_last_assistants))
    if mode == "aggressive":
        cleared: list[_Step] = []
        for candidate in candidates:
            step = pruner.clear(candidate)
            if step is not None:
                cleared.append(step)
        return _make_edits(cleared, mode)
    total = tokens(items)
    if total < pruning.soft_trim_ratio * window:
        return ()
    without_images = [candidate for candidate in candidates if not candidate.images]
    min_saved = 0.0
    if mode != "cache-ttl":  # in that mode the cache is cold by now, so a round costs nothing
        min_saved = MIN_SAVED_SHARE * window
    steps = pruner.plan_by_fill(without_images, total=total, window=window, extra=min_saved)
    if sum(step.saved for step in steps) < min_saved:
        return ()
    return _make_edits(steps, mode)


def shorten_old(
    items: Sequence[Item],
    edits: Iterable[Edit],
    *,
    pruning: Pruning,
    window: int,
    limit: int,
    tool: str = "",
    count: TokenCounter = count_text,
) -> tuple[Edit, ...]:
    """Plan to shorten all old results without images that are long for the window.

    Used when the window is cut for other reasons, so that the provider's cache is lost anyway. `limit` is the limit
    that the window did not fit into.
    """
    pruner = _Pruner(scale_pruning(pruning, window=window), count, tool)
    steps: list[_Step] = []
    for candidate in pruner.candidates(items, edits, within=_prunable_range(items, pruning.keep_last_assistants)):
        step = None
        if not candidate.images:
            step = pruner.soften(candidate)
        if step is not None:
            steps.append(_Step(candidate, structs.replace(step.change, limit=limit), step.saved))
    return _make_edits(steps, "the window is cut, and old results are long")


def scale_pruning(pruning: Pruning, *, window: int) -> Pruning:
    """Return the settings for a window. In a small one, fewer characters of a result are kept, in proportion."""
    share = min(1.0, window / FULL_LENGTH_WINDOW)
    soft = pruning.soft_trim
    scaled = structs.replace(
        soft,
        max_chars=int(share * soft.max_chars),
        head_chars=int(share * soft.head_chars),
        tail_chars=int(share * soft.tail_chars),
    )
    return structs.replace(pruning, soft_trim=scaled)


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

    Used for protected messages that do not fit into `limit`.
    """
    pruner = _Pruner(pruning, count, tool)
    candidates = pruner.candidates(items, edits, within=range(len(items)))
    candidates.sort(key=lambda candidate: candidate.tokens, reverse=True)
    steps: list[_Step] = []
    for candidate in candidates:
        if excess <= 0:
            break
        if clear:
            step = pruner.clear(candidate)
        else:
            step = pruner.soften(candidate)
        if step is not None:
            excess -= step.saved
            steps.append(_Step(candidate, structs.replace(step.change, limit=limit), step.saved))
    return _make_edits(steps, "the newest messages alone do not fit")


def _prunable_range(items: Sequence[Item], keep: int) -> range:
    """Return the range of old results: from the first user message up to the last `keep` replies."""
    roles = [item.message.role for item in items]
    if "user" not in roles:
        return range(0)
    replies: list[int] = []  # the first message of each
    for index, role in enumerate(roles):
        if role == "assistant" and (index == 0 or roles[index - 1] != "assistant"):
            replies.append(index)
    if keep > len(replies):
        return range(0)
    stop = len(roles)
    if keep > 0:
        stop = replies[-keep]
    return range(roles.index("user"), stop)


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A tool result that may shrink: its item, the index of its part, its tokens, and whether it was shortened."""

    item: Item
    part: int
    result: ToolResult
    tokens: int
    shortened: bool

    @property
    def images(self) -> int:
        """The number of its images."""
        return sum(1 for block in self.result.content if isinstance(block, Image))


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
        shortened: set[tuple[int, int]] = set()
        cleared: set[tuple[int, int]] = set()
        for edit in edits:
            if isinstance(edit.change, Pruned):
                for number in edit.ids:
                    key = (number, edit.change.part)
                    if edit.change.keep:
                        shortened.add(key)
                        cleared.discard(key)
                    else:
                        cleared.add(key)
        names: dict[str, str] = {}
        for item in items:
            for call in item.message.calls:
                names[call.id] = call.name
        allow = _compile(self.pruning.tools.allow, otherwise=".*")
        deny = _compile(self.pruning.tools.deny, otherwise="(?!)")
        found: list[_Candidate] = []
        for item, part, result in _results(items[within.start : within.stop]):
            key = (item.id, part)
            if key in cleared:
                continue
            name = (result.name or names.get(result.call_id, "")).strip()
            if allow.fullmatch(name) and not deny.fullmatch(name):
                found.append(_Candidate(item, part, result, self._count(item, result), key in shortened))
        return found

    def _count(self, item: Item, result: ToolResult) -> int:
        if len(item.message.parts) == 1:  # it was counted with its message
            return item.tokens - MESSAGE_TOKENS
        return count_part(result, count=self.count)

    def soften(self, candidate: _Candidate) -> _Step | None:
        """Keep the beginning, the end, and lines about errors; None if the result is short or saves nothing."""
        soft = self.pruning.soft_trim
        text = candidate.result.text
        if candidate.shortened or (len(text) <= soft.max_chars and not candidate.images):
            return None
        removed = ""
        if candidate.images:
            removed = f" {candidate.images} image(s) removed."
        note = (
            f"[Tool result trimmed: kept the beginning and the end of {len(text)} characters.{removed} "
            f"{self._reference(candidate)}]"
        )
        limit = max(0, soft.max_chars - len(note) - 2)
        keep = excerpt(text, first=soft.head_chars, last=soft.tail_chars, limit=limit)
        return self._make_step(candidate, Pruned(part=candidate.part, keep=keep, note=note))

    def clear(self, candidate: _Candidate) -> _Step | None:
        """Replace the result with a reference to the archive; None if that saves nothing."""
        note = f"{self.pruning.hard_clear.placeholder} ({self._reference(candidate)})"
        return self._make_step(candidate, Pruned(part=candidate.part, note=note))

    def plan_by_fill(self, candidates: Sequence[_Candidate], *, total: int, window: int, extra: float) -> list[_Step]:
        """Shorten long results; if the window is still above the mark for clearing, clear the oldest ones.

        Clearing continues until the window is `extra` tokens below that mark.
        """
        pruning = self.pruning
        steps: dict[_Candidate, _Step] = {}
        for candidate in candidates:
            step = self.soften(candidate)
            if step is not None:
                steps[candidate] = step
        saved = sum(step.saved for step in steps.values())
        excess = total - saved - pruning.hard_clear_ratio * window
        left = sum(candidate.tokens for candidate in candidates) - saved
        has_enough_left = CHARS_PER_TOKEN * left >= pruning.min_prunable_tool_chars
        if not pruning.hard_clear.enabled or not has_enough_left or excess < 0:
            return list(steps.values())
        excess += extra
        for candidate in candidates:
            if excess < 0:
                break
            step = self.clear(candidate)
            if step is None:
                continue
            excess -= step.saved
            if candidate in steps:
                excess += steps[candidate].saved  # clearing replaces the shortening
            steps[candidate] = step
        return list(steps.values())

    def _reference(self, candidate: _Candidate) -> str:
        """Explain how to get the whole result; the tool is named only if the model has it."""
        if candidate.item.id < 0:
            return "The rest is not available now"
        if not self.tool:
            return f"holdfast id {candidate.item.id}"
        return f"holdfast id {candidate.item.id}: {self.tool} brings it back"

    def _make_step(self, candidate: _Candidate, change: Pruned) -> _Step | None:
        after = shorten(candidate.item.message, change).parts[candidate.part]
        saved = candidate.tokens - count_part(after, count=self.count)
        if saved <= 0:
            return None
        return _Step(candidate, change, saved)


def _results(items: Iterable[Item]) -> Iterator[tuple[Item, int, ToolResult]]:
    """Yield the results that may shrink at all, with their item and the index of their part."""
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
    """Return the steps as edits, one for each result. Edits of one message count its tokens one after the other."""
    left: dict[int, int] = {}
    edits: list[Edit] = []
    for step in steps:
        number = step.candidate.item.id
        before = left.get(number, step.candidate.item.tokens)
        after = before - step.saved
        left[number] = after
        edits.append(Edit(change=step.change, ids=(number,), reason=reason, tokens_before=before, tokens_after=after))
    return tuple(edits)


# --- excerpts ----------------------------------------------------------------

Span: TypeAlias = tuple[int, int]
"""A part of a text: start and stop."""

MAX_MATCHES: Final = 4
"""How many matches of one word are examined, from the beginning and again from the end."""
MAX_LINE_CHARS: Final = 240
"""The maximum characters of one line that are kept."""


def excerpt(text: str, *, first: int, last: int, limit: int) -> tuple[Span, ...]:
    """Return the parts of a text to keep: about `first` characters, about `last` characters, and lines about errors.

    Joined with gaps, they have at most `limit` characters. The time is linear in the length of the text.
    """
    if len(text) <= limit:
        return ((0, len(text)),)
    room = max(0, limit - len(GAP))
    if first + last > room:  # together they exceed the limit: reduce both in proportion
        wanted = first + last
        first = room * first // wanted
        last = room * last // wanted
    # Cut at a line end, unless that would lose more than a quarter.
    stop = len(head(text, first))
    line_end = text.rfind("\n", stop - stop // 4, stop)
    if line_end > 0:
        stop = line_end
    start = len(text) - len(tail(text, last))
    line_end = text.find("\n", start, start + (len(text) - start) // 4)
    if line_end >= 0:
        start = line_end + 1
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
    outcomes = load("tools")["outcomes"]
    statuses = _find_matching_lines(lowered, outcomes["statuses"], start, stop)
    errors = sorted(_find_matching_lines(lowered, outcomes["errors"], start, stop) - statuses)
    lines = sorted(statuses)[-1:]
    low = 0
    high = len(errors)
    while low < high:
        lines.append(errors[low])
        low += 1
        if low < high:
            high -= 1
            lines.append(errors[high])
    return lines


def _find_matching_lines(text: str, words: Iterable[str], start: int, stop: int) -> set[Span]:
    found: set[Span] = set()
    for word in words:
        found.update(_matching_lines(text, word, start, stop))
    return found


def _matching_lines(text: str, word: str, start: int, stop: int) -> Iterator[Span]:
    """Iterate over the lines of the first and last matches of a word."""
    low = start
    for _ in range(MAX_MATCHES):
        index = text.find(word, low, stop)
        if index < 0:
            return
        line = _line_at(text, index, start, stop)
        yield line
        low = max(low, line[1])
    high = stop
    for _ in range(MAX_MATCHES):
        index = text.rfind(word, low, high)
        if index < 0:
            return
        line = _line_at(text, index, start, stop)
        yield line
        high = line[0]


def _line_at(text: str, index: int, start: int, stop: int) -> Span:
    """Return the line that contains an index; of a very long one, the part around it."""
    first = max(start, index - MAX_LINE_CHARS // 2)
    begin = max(first, text.rfind("\n", first, index) + 1)
    max_end = min(stop, begin + MAX_LINE_CHARS)
    end = text.find("\n", index, max_end)
    if end < 0:
        end = max_end
    return begin, end
