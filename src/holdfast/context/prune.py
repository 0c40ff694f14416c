"""Old tool results shrink, and never anything else.

A result is first shortened to its beginning, its end and what went wrong in between, later cleared. Either
way the window says how to get it back: the archive holds every word of it.
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
from holdfast.messages import Image, Message, Opaque, ToolResult
from holdfast.settings import Pruning, ToolFilter
from holdfast.tokens import MESSAGE_TOKENS, TokenCounter, count_part, count_text

__all__ = ["prune", "relieve"]

STEP: Final = 0.05
"""What a round must save, and how far below its mark a clearing goes, as shares of the window: rounds are rare then."""
CHARACTERS: Final = 3
"""Characters of Latin text for one token; one of Chinese weighs as much as three."""


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
    """What to shorten or clear now. `edits` are those applied already; `idle` is the time since the last request.

    `tool` is the name of the tool that shows archived messages, where the model has one.

    With `cache-ttl` nothing happens while the provider's cache is warm. With `adaptive` a round must save
    enough to be worth the cache that it breaks. Results with images shrink with `aggressive` alone.
    """
    if not _is_due(pruning, idle):
        return ()
    shears = _Shears(pruning, count, tool)
    found = shears.candidates(items, edits, within=_range(items, pruning.keep_last_assistants))
    if pruning.mode == "aggressive":
        return _recorded(filter(None, map(shears.clear, found)), "aggressive")
    found = [one for one in found if not any(isinstance(block, Image) for block in one.result.content)]
    steps = _adaptive(found, shears, total=tokens(items), window=window)
    least = 0 if pruning.mode == "cache-ttl" else STEP * window
    return _recorded(steps, pruning.mode or "off") if sum(step.saved for step in steps) >= least else ()


def _is_due(pruning: Pruning, idle: timedelta | None) -> bool:
    """Tell whether it is time: always, never, or once the provider's cache has gone cold."""
    if pruning.mode != "cache-ttl":
        return pruning.mode not in {None, "off"}
    return idle is not None and pruning.ttl > timedelta(0) and idle >= pruning.ttl


def relieve(
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
    """Shorten or clear tool results of any age, the largest first, until `excess` tokens are saved, or all that can be.

    For when what must stay does not fit into `limit`. Better half an answer than no request.
    """
    shears = _Shears(pruning, count, tool)
    found = shears.candidates(items, edits, within=range(len(items)))
    found.sort(key=lambda one: one.tokens, reverse=True)
    steps: list[_Step] = []
    for step in filter(None, map(shears.clear if clear else shears.soften, found)):
        if excess <= 0:
            break
        excess -= step.saved
        steps.append(step)
    tight = [replace(step, change=structs.replace(step.change, limit=limit)) for step in steps]
    return _recorded(tight, "the newest messages alone do not fit")


# --- which -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A tool result that may shrink: its item, which part of it, what it costs, and whether it was shortened."""

    item: Item
    part: int
    result: ToolResult
    tokens: int
    shortened: bool


@dataclass(frozen=True, slots=True)
class _Step:
    """One result that shrinks, how, and what that saves."""

    one: _Candidate
    change: Pruned
    saved: int


def _range(items: Sequence[Item], keep: int) -> range:
    """Where results are old: from the first word of the user up to the last `keep` replies."""
    roles = [item.message.role for item in items]
    start = next((index for index, role in enumerate(roles) if role == "user"), len(roles))
    if keep == 0:
        return range(start, len(roles))
    replies = [i for i, role in enumerate(roles) if role == "assistant" and (i == 0 or roles[i - 1] != "assistant")]
    return range(start, replies[-keep]) if len(replies) >= keep else range(0)


def _done(edits: Iterable[Edit]) -> dict[tuple[int, int], Pruned]:
    """What was last done to each result, by the number of its message and its part."""
    pruned = ((edit.ids, edit.change) for edit in edits if isinstance(edit.change, Pruned))
    return {(number, change.part): change for ids, change in pruned for number in ids}


def _results(items: Iterable[Item]) -> Iterator[tuple[Item, int, ToolResult]]:
    """The results that an edit may name and that we can read, each with its item and which part of it it is."""
    for item in items:
        if item.pinned or not item.id or item.message.role != "tool":
            continue
        for part, result in enumerate(item.message.parts):
            if isinstance(result, ToolResult) and not any(isinstance(block, Opaque) for block in result.content):
                yield item, part, result


@dataclass(frozen=True, slots=True)
class _Shears:
    """How results are shortened and cleared, by the settings."""

    pruning: Pruning
    count: TokenCounter
    tool: str

    def candidates(self, items: Sequence[Item], edits: Iterable[Edit], *, within: range) -> list[_Candidate]:
        """The results within a range that may shrink, oldest first."""
        done = _done(edits)
        names = {call.id: call.name for item in items for call in item.message.calls}
        allows = _allows(self.pruning.tools)
        found: list[_Candidate] = []
        for item, part, result in _results(items[index] for index in within):
            before = done.get((item.id, part))
            if (before is None or before.keep) and allows(result.name or names.get(result.call_id, "")):
                cost = self._cost(item.message, item.tokens, result)
                found.append(_Candidate(item, part, result, cost, before is not None))
        return found

    def _cost(self, message: Message, cost: int, result: ToolResult) -> int:
        return cost - MESSAGE_TOKENS if len(message.parts) == 1 else count_part(result, count=self.count)

    def soften(self, one: _Candidate) -> _Step | None:
        """Keep the beginning, the end, and what went wrong in between."""
        soft, text = self.pruning.soft_trim, one.result.text
        images = sum(isinstance(block, Image) for block in one.result.content)
        if one.shortened or (len(text) <= soft.max_chars and not images):
            return None
        pictures = f" {images} image(s) removed." if images else ""
        said = f"kept the beginning and the end of {len(text)} characters.{pictures}"
        note = f"[Tool result trimmed: {said} {self._back(one)}]"
        limit = max(0, soft.max_chars - len(note) - 2)
        keep = excerpt(text, first=soft.head_chars, last=soft.tail_chars, limit=limit)
        return self._step(one, Pruned(part=one.part, keep=keep, note=note))

    def clear(self, one: _Candidate) -> _Step | None:
        """Leave nothing but the way back."""
        note = f"{self.pruning.hard_clear.placeholder} ({self._back(one)})"
        return self._step(one, Pruned(part=one.part, note=note))

    def _back(self, one: _Candidate) -> str:
        """Where the whole result is; a tool is named only where the model has it."""
        return f"holdfast id {one.item.id}" + (f": {self.tool} brings it back" if self.tool else "")

    def _step(self, one: _Candidate, change: Pruned) -> _Step | None:
        """The step, where it saves anything."""
        after = shorten(one.item.message, change).parts[one.part]
        saved = one.tokens - count_part(after, count=self.count)
        return _Step(one, change, saved) if saved > 0 else None


def _allows(tools: ToolFilter) -> Callable[[str], bool]:
    """Whether a tool's results may shrink: nothing denied, and where anything is allowed, nothing else."""
    allow, deny = (_pattern(names) for names in (tools.allow, tools.deny))
    return lambda name: (
        not (deny and deny.fullmatch(name.strip())) and not (allow and not allow.fullmatch(name.strip()))
    )


def _pattern(names: Iterable[str]) -> re.Pattern[str] | None:
    given = [re.escape(name.strip()).replace(r"\*", ".*") for name in names if name.strip()]
    return re.compile("|".join(given), re.IGNORECASE | re.DOTALL) if given else None


# --- how far -----------------------------------------------------------------


def _adaptive(found: Sequence[_Candidate], tool: _Shears, *, total: int, window: int) -> list[_Step]:
    """Shorten what is long once the window fills; clear the oldest once it is fuller still."""
    pruning = tool.pruning
    if total < pruning.soft_trim_ratio * window:
        return []
    steps = {step.one: step for step in filter(None, map(tool.soften, found))}
    saved = sum(step.saved for step in steps.values())
    heavy = CHARACTERS * (sum(one.tokens for one in found) - saved) >= pruning.min_prunable_tool_chars
    if pruning.hard_clear.enabled and heavy and total - saved >= pruning.hard_clear_ratio * window:
        further = 0 if pruning.mode == "cache-ttl" else STEP
        _clear(found, tool, steps, excess=total - saved - (pruning.hard_clear_ratio - further) * window)
    return list(steps.values())


def _clear(found: Sequence[_Candidate], tool: _Shears, steps: dict[_Candidate, _Step], *, excess: float) -> None:
    """Clear the oldest instead of shortening them, until so much more is saved."""
    for one in found:
        if excess < 0:
            return
        if step := tool.clear(one):
            excess -= step.saved - (steps[one].saved if one in steps else 0)
            steps[one] = step


def _recorded(steps: Iterable[_Step], reason: str) -> tuple[Edit, ...]:
    """The steps as edits, one for each result; what a message costs falls with each of its results."""
    left: dict[int, int] = {}
    edits: list[Edit] = []
    for step in steps:
        number = step.one.item.id
        before = left.get(number, step.one.item.tokens)
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
