"""Compute the token limits of a window. No other module does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from holdfast.errors import InputError
from holdfast.providers.models import find_tokens
from holdfast.settings import (
    DEFAULT_CONTEXT_TOKENS,
    DEFAULT_FLUSH_TOKENS,
    DEFAULT_RESERVE_TOKENS,
    DEFAULT_RESERVE_TOKENS_FLOOR,
    Compaction,
    ModelSettings,
    Settings,
)

LimitSource: TypeAlias = Literal["argument", "settings", "model", "refusal", "default"]
"""The source of a window's size: the call, `model.context_tokens`, the model, or the default of 200,000."""
MIN_REPLY: Final = 4_000
"""The tokens that are left for the reply if protected messages need the rest."""
SMALL_BLOCK: Final = 300
"""The tokens that are always kept for a recalled block, if one may have that many. Protected messages make room."""
SMALL_WINDOW_SHARE: Final = 0.2
"""The share of a very small window that this small block may take."""
USUAL_RESERVE_SHARE: Final = 0.25
"""The largest share of a window that is reserved by default: 20,000 of 32,000 would leave little for messages."""
MIN_RESERVE_SHARE: Final = 0.125
"""The smallest share of a window that is reserved by default, however short the replies are."""
REPLY_FACTOR: Final = 1.5
"""The default reserve, as a multiple of the longest of the last replies. The next one may be even longer."""
FLUSH_SHARE: Final = 0.1
"""How far below the compaction threshold a memory flush runs at most, as a share of the window, by default."""
MAX_RESERVE_SHARE: Final = 0.8
"""The largest share of a window that the settings can reserve. More would leave no room for a conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of one request, in tokens.

    Attributes:
        window: The size of the model's context window.
        reserve: The part of it that is kept free for the reply.
        overhead: Everything in a request except the messages, such as tool definitions.
        recall: The maximum of one recalled block.
        live_recall: The maximum of all blocks in the window together.
        soft_threshold: How far below the compaction threshold the memory flush runs.
        history: The maximum of the history that a compaction keeps.
        source: The source of `window`.
        warning: Why less is reserved than the settings ask for; empty if it is not.
        is_default_reserve: Whether neither the caller nor the settings chose the reserve, so that it follows the
            replies of the conversation.
        scale: How many tokens the provider may count for each token of our estimate. `window` and `reserve` are in the
            provider's tokens, everything else is in ours.
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
    warning: str = ""
    is_default_reserve: bool = False

    def follow_replies(self, longest: int) -> Budget:
        """Return the limits with less reserved if the replies of the conversation are short.

        Args:
            longest: The provider's tokens of the longest of the last replies; 0 before the first one.
        """
        if not self.is_default_reserve or not longest:
            return self
        needed = max(int(REPLY_FACTOR * longest), int(MIN_RESERVE_SHARE * self.window))
        return replace(self, reserve=min(self.reserve, needed))

    @property
    def prompt(self) -> int:
        """The maximum of all messages of a window together."""
        return self.compact_at - self.overhead

    @property
    def ceiling(self) -> int:
        """The maximum of all messages if protected ones need it: then only a short reply fits."""
        reply = min(MIN_REPLY, self.window // 8)
        without_reply = int((self.window - reply) / self.scale)
        return max(self.prompt, without_reply - self.overhead)

    @property
    def safe_limit(self) -> int:
        """The maximum of all messages before a block is recalled."""
        return self.prompt - self.recall

    @property
    def small_recall(self) -> int:
        """The room for a block that is kept even if protected messages fill the window."""
        return min(SMALL_BLOCK, self.recall)

    @property
    def compact_at(self) -> int:
        """A request with more tokens than this needs a compaction."""
        return int((self.window - self.reserve) / self.scale)

    @property
    def flush_at(self) -> int:
        """A request with at least this many tokens needs a memory flush."""
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

    The size of the window is the first of these that is known: `window`, that of the settings, `model_window`, which
    the model reports, and the known size for the model's name. The reserve is by default that of the settings, up to
    `MAX_RESERVE_SHARE` of the window; a higher value is not used and gives a warning. If the settings have none, it is
    the default, up to a quarter of the window, and less once the conversation has replies: see `Budget.follow_replies`.

    Raises:
        InputError: The window is not positive, or the reserve leaves no room in it.
    """
    size, source = _window(settings.model, window, model, model_window)
    compaction = settings.compaction
    warning = ""
    is_default = False
    if reserve is None:
        reserve, warning = _reserve(compaction, size)
        is_default = compaction.reserve_tokens is None and compaction.reserve_tokens_floor is None
    if type(reserve) is not int or not 0 <= reserve < size:
        raise InputError(f"reserve={reserve!r}: give a number of tokens from 0 to less than the window ({size:,})")
    live_recall = int(settings.recall.max_window_share * size)
    if live_recall:  # a tenth of a very small window holds nothing
        live_recall = max(live_recall, min(SMALL_BLOCK, int(SMALL_WINDOW_SHARE * size)))
    recall = 0
    if settings.recall.enabled:
        recall = min(settings.recall.hard_cap_tokens, live_recall)
    flush = compaction.memory_flush
    soft_threshold = min(DEFAULT_FLUSH_TOKENS, int(FLUSH_SHARE * size))
    if flush.soft_threshold_tokens is not None:
        soft_threshold = flush.soft_threshold_tokens
    # At most half of the window: otherwise a flush would always be due in a small one.
    soft_threshold = min(soft_threshold, (size - reserve) // 2)
    if flush.soft_threshold is not None:
        soft_threshold = max(0, size - reserve - int(flush.soft_threshold * size))
    return Budget(
        window=size,
        reserve=reserve,
        overhead=overhead,
        recall=recall,
        live_recall=live_recall,
        soft_threshold=soft_threshold,
        history=int(compaction.max_history_share * size),
        source=source,
        scale=scale,
        warning=warning,
        is_default_reserve=is_default,
    )


def _reserve(compaction: Compaction, size: int) -> tuple[int, str]:
    """Return the reserve that the settings ask for in a window, and why it is less, if it is."""
    usual = int(USUAL_RESERVE_SHARE * size)
    reserve = 0
    warning = ""
    defaults = {"reserve_tokens": DEFAULT_RESERVE_TOKENS, "reserve_tokens_floor": DEFAULT_RESERVE_TOKENS_FLOOR}
    for name, default in defaults.items():
        wanted: int | None = getattr(compaction, name)
        if wanted is None:
            allowed = min(default, usual)
        elif wanted <= MAX_RESERVE_SHARE * size:
            allowed = wanted
        else:
            allowed = usual
            warning = (
                f"compaction.{name} = {wanted:,} is more than {MAX_RESERVE_SHARE:.0%} of the window of {size:,} "
                f"tokens and is not used: {allowed:,} are kept for the reply"
            )
        reserve = max(reserve, allowed)
    return reserve, warning


def _window(
    settings: ModelSettings, window: int | None, model: str | None, model_window: int | None
) -> tuple[int, LimitSource]:
    if window is not None:
        if type(window) is not int or window < 1:
            raise InputError(f"limit={window!r}: give the tokens of the window, at least 1, or leave limit out")
        return window, "argument"
    if settings.context_tokens is not None:
        return settings.context_tokens, "settings"
    known = model_window or find_tokens(model or settings.name or "")
    if known:
        return known, "model"
    return DEFAULT_CONTEXT_TOKENS, "default"
