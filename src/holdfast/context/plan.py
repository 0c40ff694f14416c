"""Plan the edits of a window: prune, then trim, and place what is recalled.

Trimming removes whole messages from a window that is nearly full. Some are protected. Of the others, the least
relevant to the question are removed, or the oldest if nothing in memory matches the question. A cut goes well below
the limit, so that cuts are rare and the provider's cache stays valid between them. If the protected messages do not
fit, they are removed too, the largest first, except those that the next reply answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Literal, TypeAlias

from holdfast.context.budget import Budget
from holdfast.context.edits import Edit, Item, OverviewAdded, Recalled, Relevance, Trimmed, apply, tokens
from holdfast.context.prune import prune, shorten_old, shrink_results
from holdfast.errors import WindowTooSmallError
from holdfast.messages import Message, Text, Unit, units
from holdfast.settings import Settings
from holdfast.tokens import MESSAGE_TOKENS, TokenCounter, count_text

EXTRA_SHARE: Final = 0.1
"""How much more than necessary is saved if protected messages do not fit, as a share of the limit."""
MISSING_TOKENS: Final = 64
"""The maximum tokens of a result that validation inserts."""
VALIDATION_MARGIN: Final = 32
"""The maximum tokens of anything else that it inserts, such as a first user message."""
MAX_LISTED_SCORES: Final = 200
"""How many scores of removed messages are recorded with a cut, the highest ones. Each session reads its edits."""
HAS_BLOCK: Final = "this question has its block already"
Position: TypeAlias = Literal["tail", "head"]
"""`tail`: the last part of the newest user turn. `head`: a separate message after system prompt and summary."""
Scores: TypeAlias = Callable[[], Mapping[int, float]]
"""Returns the relevance of messages by archive number. It is called only if a message has to be removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt to make a window fit.

    Attributes:
        shrink: What happens to the tool results of protected messages.
        shortens_reply: Whether the reply may get less room.
        yields: Whether protected messages that need not stay may leave the window.
    """

    shrink: Literal["no", "shorten", "clear"] = "no"
    shortens_reply: bool = True
    yields: bool = False


FIRST_ATTEMPT: Final = Attempt(shortens_reply=False)
_ATTEMPTS: Final = (
    FIRST_ATTEMPT,
    Attempt(shrink="shorten"),
    # An excerpt of a result is worth more than an old message, but an empty result is worth less.
    Attempt(yields=True),
    Attempt(shrink="shorten", yields=True),
    Attempt(shrink="clear", yields=True),
)
"""The attempts to make a window fit, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The inputs that decide the edits of one window, the same in every attempt to make it fit.

    Attributes:
        budget: The room for the prompt, the block and the reply.
        settings: The settings of the session.
        usual: The tokens above which messages are removed.
        query: The user's question.
        tool: The name of the tool that shows archived messages, if the model has one.
        question_follows: Whether the caller sends the question after the window.
        is_recalling: Whether recall can bring back what leaves the window.
        is_recorded: Whether the edits are recorded. If not, they are planned again for the next request.
        count: Counts the tokens of a text.
    """

    budget: Budget
    settings: Settings
    usual: int
    query: str = ""
    tool: str = ""
    question_follows: bool = False
    is_recalling: bool = True
    is_recorded: bool = True
    count: TokenCounter = count_text

    @property
    def is_sharing(self) -> bool:
        """Whether protected messages that need not stay share the room with older messages, half and half."""
        return self.is_recorded and self.settings.pruning.mode != "off"


@dataclass(frozen=True, slots=True)
class Plan:
    """A window that fits, and its new edits, which have to be recorded before it is sent."""

    items: tuple[Item, ...]
    edits: tuple[Edit, ...] = ()

    def add(self, edits: tuple[Edit, ...]) -> Plan:
        """Return the plan with more edits."""
        if not edits:
            return self
        return Plan(apply(self.items, edits), (*self.edits, *edits))


def plan_edits(
    items: tuple[Item, ...],
    standing: Sequence[Edit],
    *,
    budget: Budget,
    settings: Settings,
    query: str = "",
    scores: Scores = dict,
    idle: timedelta | None = None,
    tool: str = "",
    question_follows: bool = False,
    is_recalling: bool = True,
    is_recorded: bool = True,
    count: TokenCounter = count_text,
) -> Plan:
    """Plan the new edits of a window up to the recall.

    `items` are the window with the `standing` edits applied, `idle` is the time since the last request, and `tool` the
    name of the tool that shows archived messages, if the model has one. With `question_follows` the caller sends the
    user's question after the window. Without recall (`is_recalling`) nothing brings a message back, so none is trimmed
    as long as the window fits. Edits that are not recorded are planned again for the next request.

    If protected messages do not fit, their longest tool results are shortened, whatever their age, and the reply gets
    less room. Then protected messages leave the window, the largest first, until only those are left that the next
    reply answers. Last, tool results are cleared. All of this is done to keep room for a small block too; only if what
    must stay does not fit next to one, there is none.

    Raises:
        WindowTooSmallError: What the next reply answers does not fit, or what is pinned.
    """
    pruning_edits = prune(
        items, standing, pruning=settings.pruning, window=budget.window, idle=idle, tool=tool, count=count
    )
    pruned = Plan(items).add(pruning_edits)
    # How much room to keep for a block, in the order of the attempts.
    rooms = [0]
    if is_recalling and not _has_block(items):
        rooms = [budget.small_recall, 0]
    usual = budget.prompt
    if is_recalling and settings.trim.enabled:
        usual = _find_usual_limit(
            items, budget, settings=settings, reserved=rooms[0], question_follows=question_follows
        )
    rules = Rules(
        budget=budget,
        settings=settings,
        usual=usual,
        query=query,
        tool=tool,
        question_follows=question_follows,
        is_recalling=is_recalling,
        is_recorded=is_recorded,
        count=count,
    )
    # A cut costs the provider's cache, so whatever else saves tokens is done at the same time.
    is_due = rules.is_sharing and _is_cut_due(pruned.items, rules, reserved=rooms[0])
    if is_due:
        pruned = _shorten_results(pruned, standing, rules)
    for reserved in rooms:
        try:
            return _make_fit(pruned, standing, rules, scores=scores, reserved=reserved, goes_deep=is_due)
        except WindowTooSmallError as error:
            too_small = error
    raise too_small


def _is_cut_due(items: Sequence[Item], rules: Rules, *, reserved: int) -> bool:
    """Return whether messages have to be removed; not if the first attempt to do so fails."""
    try:
        return bool(trim(items, rules, reserved=reserved))
    except WindowTooSmallError:
        return False


def _shorten_results(plan: Plan, standing: Sequence[Edit], rules: Rules) -> Plan:
    """Shorten old tool results, and the longest protected ones if what is protected is too long altogether."""
    old = shorten_old(
        plan.items,
        (*standing, *plan.edits),
        pruning=rules.settings.pruning,
        window=rules.budget.window,
        limit=rules.budget.safe_limit,
        tool=rules.tool,
        count=rules.count,
    )
    plan = plan.add(old)
    # An excerpt of a result of the last calls is worth more than none.
    spans = _group_spans(plan.items, rules)
    optional: list[Item] = []
    taken = 0
    for span in spans:
        if span.protected and not span.must_stay:
            optional += span.items
            taken += span.tokens
    # `_limit_protected` protects no more than half of this room.
    excess = taken - _find_optional_room(spans, limit=rules.budget.safe_limit) // 2
    return plan.add(_shrink(optional, (*standing, *plan.edits), rules, excess=excess))


def _make_fit(
    pruned: Plan, standing: Sequence[Edit], rules: Rules, *, scores: Scores, reserved: int, goes_deep: bool
) -> Plan:
    """Return the plan of the first attempt that makes a window fit next to a block of `reserved` tokens.

    Raises:
        WindowTooSmallError: No attempt makes it fit.
    """
    plan = pruned
    excess = 0
    for attempt in _ATTEMPTS:
        if attempt.shrink == "no":
            plan = pruned
        else:
            protected = protected_items(plan.items, rules, must_stay=attempt.yields)
            shrunk = _shrink(protected, (*standing, *plan.edits), rules, excess=excess, clear=attempt.shrink == "clear")
            plan = plan.add(shrunk)
        try:
            edits = trim(plan.items, rules, attempt=attempt, scores=scores, reserved=reserved, goes_deep=goes_deep)
        except WindowTooSmallError as error:
            too_small = error
            excess = error.needed - error.room + int(EXTRA_SHARE * error.room)
        else:
            return plan.add(edits)
    raise too_small


def _shrink(
    items: Sequence[Item], edits: Sequence[Edit], rules: Rules, *, excess: int, clear: bool = False
) -> tuple[Edit, ...]:
    """Shorten or clear the longest results of these items until `excess` tokens are saved."""
    return shrink_results(
        items,
        edits,
        excess=excess,
        pruning=rules.settings.pruning,
        clear=clear,
        limit=rules.budget.safe_limit,
        tool=rules.tool,
        count=rules.count,
    )


_OLDEST: Final = "oldest"
_LAST_RESORT: Final = "oldest, as a last resort: the window is full, nothing was compacted, and recall is off"
_LEAST_RELEVANT: Final = "least to do with the question"
_TOO_LARGE: Final = "too large to stay next to what is new"
_NOTHING_LEFT: Final = "room for what is new"


@dataclass(frozen=True, slots=True)
class _Span:
    """Items that are kept or removed together, and their tokens without recalled blocks.

    A `protected` span is kept if it fits, one that `must_stay` in any case. One that `has_yielded` is removed first.
    """

    items: Sequence[Item]
    tokens: int
    protected: bool
    must_stay: bool
    has_yielded: bool = False


def trim(
    items: Sequence[Item],
    rules: Rules,
    *,
    attempt: Attempt = FIRST_ATTEMPT,
    scores: Scores = dict,
    reserved: int = 0,
    goes_deep: bool = False,
) -> tuple[Edit, ...]:
    """Return the cut that makes a window fit; nothing if it fits already.

    If the protected messages do not fit next to a recalled block, the block gets less room, but at least `reserved`
    tokens; after the first attempt, the reply gets less too. If that is not enough and protected messages may yield,
    the largest of them are removed, except those that must stay. With trimming switched off, or without recall, a
    window is only kept from overflowing; without recall, the oldest messages are removed.

    A cut goes down by `hysteresis`, but removes at most half of what need not stay. If protected messages share the
    room, those that need not stay are protected only as far as they take no more than the other half. A cut that
    `goes_deep` is made even if the window fits, unless it is small enough for it.

    Raises:
        WindowTooSmallError: The protected messages do not fit; if these may yield, those that must stay do not.
    """
    budget = rules.budget
    settings = rules.settings.trim
    if not goes_deep and _fits(items, rules.usual, budget):
        return ()

    # What has to stay, and whether that fits at all.
    spans = _group_spans(items, rules)
    if rules.is_sharing:
        spans = _limit_protected(spans, limit=budget.safe_limit)
    max_limit = budget.prompt - reserved
    if attempt.shortens_reply:
        max_limit = budget.ceiling - reserved
    needed = _protected_tokens(spans)
    if attempt.yields and needed > max_limit:
        spans = _yield_largest(spans, excess=needed - budget.prompt + reserved)
        needed = _protected_tokens(spans)
    if needed > max_limit:
        raise WindowTooSmallError(needed=needed, limit=budget.window, room=max_limit)

    # `limit` is what the window must not exceed now, and `left` what a cut is measured from.
    if needed <= rules.usual:
        limit = rules.usual
        left = rules.usual
    elif needed <= budget.prompt - reserved:
        # Until the next cut, a small block may take room of the reply: with so little room, cuts would be frequent.
        limit = min(budget.prompt, budget.ceiling - reserved)
        left = budget.prompt - reserved
    else:
        limit = max_limit
        left = max_limit
    if not goes_deep and _fits(items, limit, budget):
        return ()

    # How far down the cut goes: well below the limit, so that the next one is far away, but not below what is
    # protected, and not by more than half of what could go.
    fixed = needed
    if rules.is_sharing:
        fixed = _fixed_tokens(spans)
        left = min(left, max(needed, budget.safe_limit))
    depth = settings.hysteresis
    if not rules.is_recorded:  # memory fails, and nothing brings back what leaves
        depth /= 2
    target = max(left - int(depth * budget.window), (fixed + left) // 2, needed)
    if goes_deep and _fits(items, target, budget):
        return ()

    # Which messages go. Without recall nothing brings back one that was not relevant today, so the oldest go.
    known: Mapping[int, float] = {}
    if rules.is_recalling and len(rules.query.strip()) >= settings.min_query_chars:
        known = scores()
    step = limit - target
    excess = added_tokens(()) + sum(span.tokens for span in spans) - limit
    if rules.is_recorded:
        excess += step
    elif step > 0:  # in whole steps: the next request makes the same cut again until it needs one step more
        excess = step * (excess // step + 1)
    oldest = _OLDEST
    if not rules.is_recalling:
        oldest = _LAST_RESORT
    return (_make_cut(items, spans, known, excess=excess, limit=budget.safe_limit, oldest=oldest),)


def _find_usual_limit(
    items: Sequence[Item], budget: Budget, *, settings: Settings, reserved: int, question_follows: bool
) -> int:
    """Return the tokens above which messages are removed from a window.

    A new question leaves room for a whole block. While the agent works on it, the window may grow into that room, and
    only that of a small block is kept.
    """
    if question_follows or settings.recall.position == "head":
        return budget.safe_limit
    if items and items[-1].message.role == "user" and not _has_block(items):
        return budget.safe_limit
    return max(budget.safe_limit, budget.prompt - reserved)


def _limit_protected(spans: Sequence[_Span], *, limit: int) -> list[_Span]:
    """Of the protected spans that need not stay, protect only the newest, up to half of the room that the others leave.

    A span that is larger than all of that room yields: it is removed first.
    """
    room = _find_optional_room(spans, limit=limit)
    left = room // 2
    limited: list[_Span] = []
    for span in reversed(spans):
        if span.protected and not span.must_stay:
            if span.tokens <= left:
                left -= span.tokens
            else:
                span = replace(span, protected=False, has_yielded=span.tokens > room)  # noqa: PLW2901 - as it is now
        limited.append(span)
    limited.reverse()
    return limited


def _find_optional_room(spans: Iterable[_Span], *, limit: int) -> int:
    """Return the tokens that are left for the spans that need not stay."""
    return max(0, limit - _fixed_tokens(spans))


def _fixed_tokens(spans: Iterable[_Span]) -> int:
    return added_tokens(()) + sum(span.tokens for span in spans if span.must_stay)


def _protected_tokens(spans: Iterable[_Span]) -> int:
    return added_tokens(()) + sum(span.tokens for span in spans if span.protected)


def _yield_largest(spans: Sequence[_Span], *, excess: int) -> list[_Span]:
    """Give up the protection of the largest spans that need not stay, until `excess` tokens are saved."""
    left = list(spans)
    optional = [index for index, span in enumerate(spans) if span.protected and not span.must_stay]
    for index in sorted(optional, key=lambda index: spans[index].tokens, reverse=True):
        if excess <= 0:
            break
        left[index] = replace(spans[index], protected=False, has_yielded=True)
        excess -= spans[index].tokens
    return left


def _fits(items: Sequence[Item], limit: int, budget: Budget) -> bool:
    """Return whether a window fits. Recalled blocks do not count towards the limit, up to the size of one block."""
    live = min(budget.recall, _block_tokens(items))
    total = tokens(items) + added_tokens_of([item.message for item in items])
    return total - live <= limit and total <= max(limit, budget.prompt)


def _make_cut(
    items: Sequence[Item], spans: Sequence[_Span], scores: Mapping[int, float], *, excess: int, limit: int, oldest: str
) -> Edit:
    """Choose the messages to remove: those that yielded, then the lowest scores, of equal scores the oldest.

    `oldest` is the reason that the edit gets if only their age decides.
    """
    removed: set[int] = set()
    reason = _NOTHING_LEFT
    for span in spans:
        if span.has_yielded:
            removed.update(item.id for item in span.items)
            excess -= span.tokens
            reason = _TOO_LARGE
    others = [span for span in spans if not span.protected and not span.has_yielded]
    best = max((_score(span, scores) for span in others), default=0.0)
    least_kept: float | None = None
    for span in sorted(others, key=lambda span: _score(span, scores)):
        if excess <= 0:
            least_kept = _score(span, scores)
            break
        removed.update(item.id for item in span.items)
        excess -= span.tokens
        if reason == _NOTHING_LEFT:
            reason = oldest
            if best:
                reason = _LEAST_RELEVANT
    cut = [item for item in items if item.id in removed]
    relevance = None
    if reason == _LEAST_RELEVANT:
        relevance = _make_relevance(cut, scores, least_kept=least_kept, best=best)
    return Edit(
        change=Trimmed(limit=limit, relevance=relevance),
        ids=tuple(item.id for item in cut),
        reason=reason,
        tokens_before=sum(item.tokens for item in cut),
        tokens_after=0,
    )


def _score(span: _Span, scores: Mapping[int, float]) -> float:
    return max(scores.get(item.id, 0.0) for item in span.items)


def _make_relevance(
    cut: Iterable[Item], scores: Mapping[int, float], *, least_kept: float | None, best: float
) -> Relevance:
    """Return the scores of a cut, rounded, because they are recorded only to be shown."""
    listed: list[tuple[int, float]] = []
    for item in cut:
        if item.id in scores:
            listed.append((item.id, round(scores[item.id], 2)))
    listed.sort(key=lambda pair: pair[1], reverse=True)
    if least_kept is not None:
        least_kept = round(least_kept, 2)
    return Relevance(scores=tuple(listed[:MAX_LISTED_SCORES]), least_kept=least_kept, best=round(best, 2))


def added_tokens(grouped: Iterable[Unit]) -> int:
    """Return the maximum tokens that validation may add to units: missing results, and a first user message."""
    return VALIDATION_MARGIN + MISSING_TOKENS * sum(len(unit.pending) for unit in grouped)


def added_tokens_of(messages: Sequence[Message]) -> int:
    """Return `added_tokens` of a conversation, without grouping it if every call is answered in place."""
    waiting: set[str] = set()
    for message in messages:
        calls = message.calls
        if calls:
            if waiting or message.role != "assistant":
                return added_tokens(units(messages))
            waiting.update(call.id for call in calls)
        elif waiting:
            if message.role == "assistant":
                return added_tokens(units(messages))
            waiting.difference_update(result.call_id for result in message.results)
    if waiting:
        return added_tokens(units(messages))
    return VALIDATION_MARGIN


def protected_items(items: Sequence[Item], rules: Rules, *, must_stay: bool = False) -> list[Item]:
    """Return the items that are trimmed only if they do not fit; with `must_stay` those that are never trimmed."""
    kept: list[Item] = []
    for span in _group_spans(items, rules):
        if span.must_stay or (span.protected and not must_stay):
            kept += span.items
    return kept


def _group_spans(items: Sequence[Item], rules: Rules) -> list[_Span]:
    grouped = units([item.message for item in items])
    newest = _newest_indexes(items, grouped, rules.settings.trim.protected_recent)
    current = _required_indexes(items, grouped, question_follows=rules.question_follows)
    protected_ids = _ids_of_units(items, grouped, newest | current)
    required_ids = _ids_of_units(items, grouped, current)
    margin = added_tokens(())
    spans: list[_Span] = []
    for unit in grouped:
        group = items[unit.start : unit.stop]
        ids = {item.id for item in group}
        messages = [item for item in group if item.kind not in {"recall", "overview"}]  # a cut removes these anyway
        cost = sum(item.tokens for item in messages) + added_tokens([unit]) - margin
        spans.append(
            _Span(
                group,
                cost,
                protected=not ids.isdisjoint(protected_ids),
                must_stay=not ids.isdisjoint(required_ids),
            )
        )
    return spans


def _ids_of_units(items: Sequence[Item], grouped: Sequence[Unit], indexes: set[int]) -> set[int]:
    """Return the numbers of all items of the units that contain one of these indexes."""
    found: set[int] = set()
    for unit in grouped:
        if not indexes.isdisjoint(range(unit.start, unit.stop)):
            found.update(item.id for item in items[unit.start : unit.stop])
    return found


def _newest_indexes(items: Sequence[Item], grouped: Sequence[Unit], recent: int) -> set[int]:
    """Return what is trimmed only if it does not fit: the newest messages, the last request and the last calls."""
    newest = set(_conversation_indexes(items)[-max(recent, 1) :])
    newest.update(_last_request(items))
    newest.update(_last_calls(grouped))
    return newest


def _required_indexes(items: Sequence[Item], grouped: Sequence[Unit], *, question_follows: bool) -> set[int]:
    """Return what is never trimmed: items without an archive number, pinned ones, and what the next reply answers.

    The reply answers the last request and the calls after it, however old they are. If the question follows the window,
    it answers none of its messages.
    """
    required: set[int] = set()
    for index, item in enumerate(items):
        if item.kind != "message" or item.pinned or not item.id:
            required.add(index)
    if question_follows:
        return required
    request = _last_request(items)
    calls = _last_calls(grouped)
    required.update(_conversation_indexes(items)[-1:])
    required.update(request)
    if max(calls, default=-1) > max(request, default=-1):
        required.update(calls)
    return required


def _last_request(items: Sequence[Item]) -> list[int]:
    """Return the index of the last message of the user, in a list; empty if there is none."""
    for index in range(len(items) - 1, -1, -1):
        item = items[index]
        if item.kind == "message" and item.message.role == "user":
            return [index]
    return []


def _last_calls(grouped: Sequence[Unit]) -> range:
    """Return the indexes of the last calls and their results."""
    for unit in reversed(grouped):
        if any(message.calls for message in unit.messages):
            return range(unit.start, unit.stop)
    return range(0)


def _conversation_indexes(items: Sequence[Item]) -> list[int]:
    """Return the indexes of the messages of the user and the assistant, and of tool messages with text of the user."""
    found: list[int] = []
    for index, item in enumerate(items):
        if item.kind != "message":
            continue
        if item.message.role != "tool" or any(isinstance(part, Text) for part in item.message.parts):
            found.append(index)
    return found


def recall_room(items: Sequence[Item], budget: Budget, *, position: Position) -> int:
    """Return how many tokens the next block may take.

    That is at most the cap, and at most what is left of the window. A small block may take room from the reply. At the
    tail, all blocks in the window count together, and a question that has a block gets no second one, so that the same
    request gives the same window.
    """
    taken = tokens(items) + added_tokens_of([item.message for item in items])
    left = max(budget.prompt - taken, min(budget.small_recall, budget.ceiling - taken))
    room = min(budget.recall, left)
    if position == "head":
        return max(0, room - MESSAGE_TOKENS)
    if not _newest_id(items) or _has_block(items):
        return 0
    return max(0, min(room, budget.live_recall - _block_tokens(items)))


def find_block_place(items: Sequence[Item]) -> Item | None:
    """Return the message for a block at the tail: the newest message of the user, or the newest tool result."""
    for item in reversed(items):
        if item.kind == "message" and item.message.role in {"user", "tool"}:
            return item
    return None


def explain_no_block(items: Sequence[Item], *, position: Position) -> str:
    """Return why there is no room for a block."""
    if position == "tail" and not _newest_id(items):
        return "there is no question in the window"
    if position == "tail" and _has_block(items):
        return HAS_BLOCK
    return "the messages leave no room for a block"


def clear_blocks(items: Sequence[Item], budget: Budget, *, position: Position) -> tuple[Edit, ...]:
    """Return the edit that removes earlier blocks; nothing if they leave a new one half of its room.

    What is left must be enough for a small block, too. Without this edit, after a few questions nothing could be
    recalled until the next cut.
    """
    recalled = sum(item.block.tokens for item in items if item.block)
    if position == "head" or not recalled or _has_block(items):
        return ()
    has_room = recall_room(items, budget, position=position) >= budget.small_recall
    if has_room and budget.live_recall - _block_tokens(items) >= budget.recall // 2:
        return ()
    return (
        Edit(
            change=Trimmed(limit=budget.safe_limit, keeps_overview=True),
            ids=(),
            reason="earlier blocks made room for a new one",
            tokens_before=recalled,
            tokens_after=0,
        ),
    )


def place(
    items: Sequence[Item],
    text: str,
    *,
    position: Position,
    reason: str = "it matches the question",
    ids: Iterable[int] = (),
    passages: Iterable[int] = (),
    count: TokenCounter = count_text,
) -> Edit | None:
    """Return the edit that places a block; None if there is no block, or no user turn to put it into.

    `reason` says why there is one. `ids` are the archived messages that the block quotes, `passages` those that it
    quotes whole.
    """
    if not text:
        return None
    into = None
    cost = count(text)
    if position == "tail":
        into = _newest_id(items)
        if into == 0:
            return None
    else:
        cost += MESSAGE_TOKENS
    return Edit(
        change=Recalled(text=text, into=into, passages=tuple(passages)),
        ids=tuple(ids),
        reason=reason,
        tokens_before=0,
        tokens_after=cost,
    )


OVERVIEW_SHARE: Final = 0.25
"""The largest share of a recalled block's cap that an overview may take. The rest is for the question."""
MIN_OVERVIEW: Final = 100
"""The minimum room for an overview, in tokens. A window of less than 4,000 tokens has none."""


def overview_room(items: Sequence[Item], budget: Budget, *, cap: int) -> int:
    """Return how many tokens an overview may take; 0 if there is not enough room for one."""
    taken = tokens(items) + added_tokens_of([item.message for item in items])
    left = budget.prompt - taken - budget.small_recall
    room = min(cap, int(OVERVIEW_SHARE * budget.recall), left)
    if room < min(cap, MIN_OVERVIEW):
        return 0
    return room


def place_overview(
    text: str,
    *,
    into: int | None,
    reason: str,
    ids: Iterable[int] = (),
    facts: Iterable[str] = (),
    sessions: Iterable[str] = (),
    count: TokenCounter = count_text,
) -> Edit:
    """Return the edit that places an overview in a message, or in one of its own after the system prompt.

    `ids` are the archived messages that it quotes, `facts` and `sessions` the ids of its facts and sessions.
    """
    cost = count(text)
    if into is None:
        cost += MESSAGE_TOKENS
    return Edit(
        change=OverviewAdded(text=text, into=into, facts=tuple(facts), sessions=tuple(sessions)),
        ids=tuple(ids),
        reason=reason,
        tokens_before=0,
        tokens_after=cost,
    )


def _newest_id(items: Sequence[Item]) -> int:
    """Return the archive number of the newest user message or tool result; 0 if there is none or it has none."""
    newest = find_block_place(items)
    if newest is None:
        return 0
    return newest.id


def _block_tokens(items: Sequence[Item]) -> int:
    """Return the tokens of all blocks in a window, with the overview."""
    return sum(item.block_tokens for item in items if item.block or item.overview or item.kind == "overview")


def _has_block(items: Sequence[Item]) -> bool:
    """Return whether a block was placed since the last user message. Tool results are not a new question."""
    for item in reversed(items):
        if item.block is not None:
            return True
        if item.kind == "message" and item.message.role == "user":
            return False
    return False
