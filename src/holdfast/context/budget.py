"""How much may be in a window: the one place where limits are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.context.windows import context_tokens
from holdfast.settings import Agent, Compaction, Recall, Settings

__all__ = ["Budget", "budget"]

_LEAST_PROMPT: Final = 8_000
_SHORT_REPLY: Final = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of one request, in tokens.

    Attributes:
        window: All that the model can hold.
        reserve: Kept free for the reply.
        overhead: What goes into every request beside the messages, such as tool definitions.
        recall: The most that one recalled block may take.
        live_recall: The most that all blocks still in the window may take together.
        soft_threshold: How long before a compaction the memory flush runs.
        history: The most that history kept by a compaction may take.
        scale: How many tokens the provider may count for each one that we do. `window` and `reserve` are the
            provider's tokens, everything else is ours.
    """

    window: int
    reserve: int
    overhead: int
    recall: int
    live_recall: int
    soft_threshold: int
    history: int
    scale: float = 1.0

    @property
    def prompt(self) -> int:
        """The most that all messages of a window may take together."""
        return self.compact_at - self.overhead

    @property
    def ceiling(self) -> int:
        """The most that messages may take where what must stay leaves no choice: then only a short reply fits."""
        most = int((self.window - min(_SHORT_REPLY, self.window // 8)) / self.scale)
        return max(self.prompt, most - self.overhead)

    @property
    def safe_limit(self) -> int:
        """The most that messages may take before a block is recalled beside them."""
        return self.prompt - self.recall

    @property
    def compact_at(self) -> int:
        """A request that takes more than this calls for a compaction."""
        return int((self.window - self.reserve) / self.scale)

    @property
    def flush_at(self) -> int:
        """A request that takes this much calls for a memory flush."""
        return self.compact_at - self.soft_threshold


def budget(
    settings: Settings,
    *,
    window: int | None = None,
    model: str | None = None,
    overhead: int = 0,
    scale: float = 1.0,
) -> Budget:
    """The limits of a request: for `window` tokens where that is given, else the settings' or the model's."""
    size = window or _window(settings.agent, model)
    reserve = _reserve(settings.compaction, size)
    share = int(settings.recall.max_window_share * size)
    return Budget(
        window=size,
        reserve=reserve,
        overhead=overhead,
        recall=_recall(settings.recall, share),
        live_recall=share,
        soft_threshold=_soft_threshold(settings.compaction, size, size - reserve),
        history=int(settings.compaction.max_history_share * size),
        scale=scale,
    )


def _window(agent: Agent, model: str | None) -> int:
    return context_tokens(model or agent.model or "", override=agent.context_tokens)


def _reserve(compaction: Compaction, window: int) -> int:
    wanted = max(compaction.reserve_tokens, compaction.reserve_tokens_floor)
    return min(wanted, window - min(_LEAST_PROMPT, window // 2))  # a small model must still be asked something


def _recall(recall: Recall, share: int) -> int:
    return min(recall.hard_cap_tokens, share) if recall.enabled else 0


def _soft_threshold(compaction: Compaction, window: int, compact_at: int) -> int:
    flush = compaction.memory_flush
    if flush.soft_threshold is not None:
        return max(0, compact_at - int(flush.soft_threshold * window))
    return min(flush.soft_threshold_tokens, compact_at // 2)  # in a small window the flush would never rest
