"""Prune: shorten or clear old tool results, and nothing else.

A result is first shortened to its beginning, its end and the lines about errors in between, later cleared. The window
says how to get it back from the archive, which holds all of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from msgspec import structs

from holdfast.context.edits import Edit, Item, Pruned, shorten, tokens
from holdfast.context.excerpt import excerpt
from holdfast.messages import Image, Opaque, ToolResult
from holdfast.settings import Pruning, ToolFilter
from holdfast.tokens import MESSAGE_TOKENS, TokenCounter, count_part, count_text

__all__ = ["prune", "shrink_results"]

MIN_SAVED_SHARE: Final = 0.05
"""What a round must save, and how far below its mark clearing goes, as shares of the window: it keeps rounds rare."""
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
    worth the cache that it breaks. Results with images shrink only with `aggressive`.

    Args:
        items: The window.
        edits: The edits that are applied already.
        pruning: The settings.
        window: The size of the window in tokens.
        idle: The time since the last request.
        tool: The name of the tool that shows archived messages, where the model has one.
        count: Counts tokens.
    """
    if not _is_due(pruning, idle):
        return ()
    pruner = _Pruner(pruning, count, tool)
    candidates = pruner.candidates(items, edits, within=_prunable_range(items, pruning.keep_last_assistants))
    if pruning.mode == "aggressive":
        return _make_edits(filter(None, map(pruner.clear, candidates)), "aggressive")
    candidates = [one for one in candidates if not any(isinstance(block, Image) for block in one.result.content)]
    steps = _prune_by_fill(candidates, pruner, total=tokens(items), window=window)
    min_saved = 0 if pruning.mode == "cache-ttl" else MIN_SAVED_SHARE * window
    return _make_edits(steps, pruning.mode or "off") if sum(step.saved for step in steps) >= min_saved else ()


def _is_due(pruning: Pruning, idle: timedelta | None) -> bool:
    if pruning.mode != "cache-ttl":
        return pruning.mode not in {None, "off"}
    return idle is not None and pruning.ttl > timedelta(0) and idle >= pruning.ttl


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
        steps.append(replace(step, change=structs.replace(step.change, limit=limit)))
    return _make_edits(steps, "the newest messages alone do not fit")


# --- candidates --------------------------------------------------------------


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


def _prunable_range(items: Sequence[Item], keep: int) -> range:
    """Return the range of old results: from the first user message up to the last `keep` replies."""
    roles = [item.message.role for item in items]
    start = next((index for index, role in enumerate(roles) if role == "user"), len(roles))
    if keep == 0:
        return range(start, len(roles))
    replies = [i for i, role in enumerate(roles) if role == "assistant" and (i == 0 or roles[i - 1] != "assistant")]
    return range(start, replies[-keep]) if len(replies) >= keep else range(0)


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
        pruned = {(number, e.change.part): e.change for e in edits if isinstance(e.change, Pruned) for number in e.ids}
        names = {call.id: call.name for item in items for call in item.message.calls}
        is_allowed = _make_filter(self.pruning.tools)
        found: list[_Candidate] = []
        for item, part, result in _results(items[index] for index in within):
            before = pruned.get((item.id, part))
            is_cleared = before is not None and not before.keep
            if not is_cleared and is_allowed(result.name or names.get(result.call_id, "")):
                is_alone = len(item.message.parts) == 1
                cost = item.tokens - MESSAGE_TOKENS if is_alone else count_part(result, count=self.count)
                found.append(_Candidate(item, part, result, cost, before is not None))
        return found

    def soften(self, one: _Candidate) -> _Step | None:
        """Keep the beginning, the end, and lines about errors; None where the result is short or saves nothing."""
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
        """Replace the result by a reference to the archive; None where that saves nothing."""
        note = f"{self.pruning.hard_clear.placeholder} ({self._reference(one)})"
        return self._make_step(one, Pruned(part=one.part, note=note))

    def _reference(self, one: _Candidate) -> str:
        """Return where the whole result is; the tool is named only where the model has it."""
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


def _make_filter(tools: ToolFilter) -> Callable[[str], bool]:
    """Return a function that tells whether results of a tool may shrink: not denied, and allowed where any is."""
    allow, deny = (_compile(names) for names in (tools.allow, tools.deny))
    return lambda name: (
        not (deny and deny.fullmatch(name.strip())) and not (allow and not allow.fullmatch(name.strip()))
    )


def _compile(names: Iterable[str]) -> re.Pattern[str] | None:
    patterns = [re.escape(name.strip()).replace(r"\*", ".*") for name in names if name.strip()]
    return re.compile("|".join(patterns), re.IGNORECASE | re.DOTALL) if patterns else None


# --- steps -------------------------------------------------------------------


def _prune_by_fill(candidates: Sequence[_Candidate], pruner: _Pruner, *, total: int, window: int) -> list[_Step]:
    """Shorten long results once the window fills; clear the oldest once it is fuller still."""
    pruning = pruner.pruning
    if total < pruning.soft_trim_ratio * window:
        return []
    steps = {step.candidate: step for step in filter(None, map(pruner.soften, candidates))}
    total -= sum(step.saved for step in steps.values())
    left = sum(one.tokens for one in candidates) - sum(step.saved for step in steps.values())
    is_worth_it = CHARS_PER_TOKEN * left >= pruning.min_prunable_tool_chars
    if pruning.hard_clear.enabled and is_worth_it and total >= pruning.hard_clear_ratio * window:
        further = 0 if pruning.mode == "cache-ttl" else MIN_SAVED_SHARE
        excess = total - (pruning.hard_clear_ratio - further) * window
        for one in candidates:
            if excess < 0:
                break
            if step := pruner.clear(one):
                excess -= step.saved - (steps[one].saved if one in steps else 0)
                steps[one] = step
    return list(steps.values())


def _make_edits(steps: Iterable[_Step], reason: str) -> tuple[Edit, ...]:
    """Return the steps as edits, one for each result; the tokens of a message fall with each of its results."""
    left: dict[int, int] = {}
    edits: list[Edit] = []
    for step in steps:
        number = step.candidate.item.id
        before = left.get(number, step.candidate.item.tokens)
        left[number] = before - step.saved
        edits.append(
            Edit(
                change=step.change,
                ids=(number,),
                reason=reason,
                tokens_before=before,
                tokens_after=left[number],
            )
        )
    return tuple(edits)
