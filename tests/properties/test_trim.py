"""Trimming fits the limit, keeps what is protected, cuts whole units, and is complete after one pass."""

from __future__ import annotations

from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from holdfast.context.edits import apply, tokens
from holdfast.context.plan import added_tokens, protected_items, trim
from holdfast.errors import WindowTooSmallError
from holdfast.messages import Message, units
from holdfast.settings import Trim
from support.conversations import answer, call, items, limits, reply, results, trim_rules, user
from support.strategies import conversations, examples

slow = settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
some_trim = st.builds(
    Trim,
    enabled=st.booleans(),
    protected_recent=st.integers(0, 6),
    hysteresis=st.sampled_from([0.0, 0.15, 0.5]),
)
some_scores = st.dictionaries(st.integers(1, 60), st.floats(0, 9), max_size=20)
queries = st.sampled_from(["why did it fail", "为什么失败", "ok", ""])


@st.composite
def talks(draw: st.DrawFn) -> list[Message]:
    """Draw a conversation with tools, with and without results."""
    conversation: list[Message] = []
    for number in range(draw(st.integers(1, 15))):
        words = "word " * draw(st.integers(1, 60))
        if draw(st.booleans()):
            conversation += [user(f"{number} {words}"), reply(words)]
        else:
            names = [f"c{number}.{index}" for index in range(draw(st.integers(1, 3)))]
            answered = [name for name in names if draw(st.integers(0, 9))]
            conversation += [
                reply("", *(call(name) for name in names)),
                *(results(answer(name, words)) for name in answered),
            ]
    return conversation


@slow
@given(conversation=talks() | conversations(), settings_=some_trim, scores=some_scores, query=queries, data=st.data())
def test_a_trimmed_window_fits_and_stays_as_it_is(
    conversation: list[Message], settings_: Trim, scores: dict[int, float], query: str, data: st.DataObject
) -> None:
    """It fits with everything that may have to be added; trimming it again changes nothing."""
    pinned = data.draw(st.lists(st.integers(1, 40), max_size=2))
    window = items(conversation, pinned=pinned)
    budget = limits(data.draw(st.integers(50, max(51, tokens(window)))), recall=20)
    try:
        edits = trim(window, trim_rules(budget, settings_, query=query), scores=lambda: scores)
    except WindowTooSmallError:
        must = protected_items(window, trim_rules(trim=settings_))
        assert tokens(must) + added_tokens(units([item.message for item in must])) > budget.prompt
        return
    after = apply(window, edits)
    assert tokens(after) + added_tokens(units([item.message for item in after])) <= budget.prompt
    assert trim(after, trim_rules(budget, settings_, query=query), scores=lambda: scores) == ()


@slow
@given(conversation=talks(), settings_=some_trim, scores=some_scores, query=queries, data=st.data())
def test_what_is_protected_stays_and_units_go_whole(
    conversation: list[Message], settings_: Trim, scores: dict[int, float], query: str, data: st.DataObject
) -> None:
    """The order stays the same."""
    window = items(conversation, pinned=data.draw(st.lists(st.integers(1, 40), max_size=2)))
    budget = limits(data.draw(st.integers(50, max(51, tokens(window)))))
    try:
        edits = trim(window, trim_rules(budget, settings_, query=query), scores=lambda: scores)
    except WindowTooSmallError:
        reject()
    left = [item.id for item in apply(window, edits)]
    assert left == sorted(left)
    assert set(left) >= {item.id for item in protected_items(window, trim_rules(trim=settings_))}
    for unit in units(conversation):
        numbers = set(range(unit.start + 1, unit.stop + 1))
        assert numbers <= set(left) or numbers.isdisjoint(left)


@slow
@given(conversation=talks(), scores=some_scores)
def test_no_more_goes_than_has_to(conversation: list[Message], scores: dict[int, float]) -> None:
    """Without a step below the limit, the last removed unit had to be removed."""
    window = items(conversation)
    budget = limits(max(200, tokens(window) // 2))
    try:
        edits = trim(window, trim_rules(budget, Trim(hysteresis=0.0), query="why"), scores=lambda: scores)
    except WindowTooSmallError:
        return
    gone = {number for edit in edits for number in edit.ids}
    spans = [
        [item for item in window if item.id in range(unit.start + 1, unit.stop + 1)] for unit in units(conversation)
    ]
    trimmed = [span for span in spans if span[0].id in gone]
    if not trimmed:
        return
    last = max(trimmed, key=lambda span: (max(scores.get(item.id, 0.0) for item in span), span[0].id))
    back = [item for item in window if item.id not in gone or item in last]
    assert tokens(back) + added_tokens(units([item.message for item in back])) > budget.safe_limit
