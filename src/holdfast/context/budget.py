"""How much may be in a window: the one place where limits are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from holdfast.context.windows import known_tokens
from holdfast.errors import InputError
from holdfast.settings import DEFAULT_CONTEXT_TOKENS, Agent, Compaction, Recall, Settings

__all__ = ["Budget", "LimitSource", "budget"]

LimitSource: TypeAlias = Literal["argument", "settings", "model", "default"]
"""Where the size of a window comes from: the call, `agent.context_tokens`, the model, or nowhere (200,000)."""
_SHORT_REPLY: Final = 4_000
_RESERVE_SHARE: Final = 4
"""The settings reserve at most one part in so many of a window."""


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
        source: Where `window` comes from.
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
    source: LimitSource = "argument"
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
    model_window: int | None = None,
    overhead: int = 0,
    reserve: int | None = None,
    scale: float = 1.0,
) -> Budget:
    """Compute the limits of a request.

    Args:
        settings: What to reserve and recall, and the window of the agent.
        window: The size of the window; unset, that of the settings or of the model.
        model: The name of the model; unset, that of the settings.
        model_window: What the model itself says that it holds; counts more than what is known of its name.
        overhead: Tokens that go beside the messages.
        reserve: Tokens kept for the reply; unset, by the settings, and at most a quarter of the window.
        scale: How many tokens the provider may count for each one that we do.

    Raises:
        InputError: The window is not positive, or the reserve leaves no room in it.
    """
    size, source = _window(settings.agent, window, model, model_window)
    kept = _reserve(settings.compaction, size) if reserve is None else reserve
    if type(kept) is not int or not 0 <= kept < size:
        raise InputError(f"reserve={kept!r}: give a number of tokens from 0 to less than the window ({size:,})")
    share = int(settings.recall.max_window_share * size)
    return Budget(
        window=size,
        reserve=kept,
        overhead=overhead,
        recall=_recall(settings.recall, share),
        live_recall=share,
        soft_threshold=_soft_threshold(settings.compaction, size, size - kept),
        history=int(settings.compaction.max_history_share * size),
        source=source,
        scale=scale,
    )


def _window(agent: Agent, window: int | None, model: str | None, model_window: int | None) -> tuple[int, LimitSource]:
    if window is not None:
        if type(window) is not int or window < 1:
            raise InputError(f"limit={window!r}: give the tokens of the window, at least 1, or leave limit out")
        return window, "argument"
    if agent.context_tokens is not None:
        return agent.context_tokens, "settings"
    found = model_window or known_tokens(model or agent.model or "")
    return (found, "model") if found else (DEFAULT_CONTEXT_TOKENS, "default")


def _reserve(compaction: Compaction, window: int) -> int:
    wanted = max(compaction.reserve_tokens, compaction.reserve_tokens_floor)
    return min(wanted, window // _RESERVE_SHARE)  # 20,000 of 32,000 would leave little to ask with


def _recall(recall: Recall, share: int) -> int:
    return min(recall.hard_cap_tokens, share) if recall.enabled else 0


def _soft_threshold(compaction: Compaction, window: int, compact_at: int) -> int:
    flush = compaction.memory_flush
    if flush.soft_threshold is not None:
        return max(0, compact_at - int(flush.soft_threshold * window))
    return min(flush.soft_threshold_tokens, compact_at // 2)  # in a small window the flush would never rest
