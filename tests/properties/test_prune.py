"""Pruning changes only tool results, saves the tokens that it reports, and is never undone or done twice."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.context.edits import GAP, Edit, Pruned, apply, tokens
from holdfast.context.prune import excerpt, prune, shrink_results
from holdfast.messages import Message, ToolResult
from holdfast.settings import HardClear, Pruning, SoftTrim
from holdfast.tokens import count_messages
from support.conversations import answer, call, items, messages_of, reply, results, user
from support.strategies import conversations, examples, texts

slow = settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
outputs = st.builds(
    lambda line, size, tail: line * size + tail,
    st.sampled_from(["line of output\n", "错误：失败\n", "x", "ERROR: y\n", "👩‍👩‍👧‍👦"]),
    st.sampled_from([0, 3, 200, 900]),
    texts(),
)


@st.composite
def work(draw: st.DrawFn) -> list[Message]:
    """Draw the conversation of an agent that runs tools."""
    conversation = [user("build it")]
    for number in range(draw(st.integers(1, 8))):
        names = [f"c{number}.{index}" for index in range(draw(st.integers(1, 2)))]
        conversation += [
            reply("so", *(call(name) for name in names)),
            results(*(answer(name, draw(outputs)) for name in names)),
        ]
    return [*conversation, reply("done"), user("thanks")]


@st.composite
def some_pruning(draw: st.DrawFn) -> Pruning:
    """Draw settings of every kind."""
    sizes = st.sampled_from([0, 50, 400, 1_500])
    return Pruning(
        mode=draw(st.sampled_from(["off", "cache-ttl", "adaptive", "aggressive"])),
        keep_last_assistants=draw(st.integers(0, 3)),
        soft_trim_ratio=draw(st.sampled_from([0.0, 0.3])),
        hard_clear_ratio=draw(st.sampled_from([0.0, 0.5])),
        min_prunable_tool_chars=draw(st.sampled_from([0, 5_000])),
        soft_trim=SoftTrim(max_chars=draw(sizes), head_chars=draw(sizes), tail_chars=draw(sizes)),
        hard_clear=HardClear(enabled=draw(st.booleans())),
    )


def pruned(talk: list[Message], pruning: Pruning, edits: tuple[Edit, ...] = ()) -> tuple[Edit, ...]:
    """Return the next edits of pruning."""
    window = apply(items(talk), edits)
    return prune(window, edits, pruning=pruning, window=3_000, idle=timedelta(hours=1))


def without_results(talk: list[Message]) -> list[Any]:
    """Return everything that is not a result."""
    return [(m.role, [part for part in m.parts if not isinstance(part, ToolResult)]) for m in talk]


@slow
@given(conversation=work(), pruning=some_pruning())
def test_nothing_but_results_is_ever_touched(conversation: list[Message], pruning: Pruning) -> None:
    """Texts, calls, the order of everything and the ids of results stay."""
    after = messages_of(apply(items(conversation), pruned(conversation, pruning)))
    assert without_results(after) == without_results(conversation)
    assert [r.call_id for m in after for r in m.results] == [r.call_id for m in conversation for r in m.results]


@slow
@given(conversation=work(), pruning=some_pruning())
def test_the_saved_tokens_are_those_of_the_edits(conversation: list[Message], pruning: Pruning) -> None:
    """They are exact, and never 0."""
    window = items(conversation)
    edits = pruned(conversation, pruning)
    after = apply(window, edits)
    assert tokens(after) == count_messages(messages_of(after))
    assert tokens(window) - tokens(after) == sum(edit.tokens_before - edit.tokens_after for edit in edits)
    assert all(edit.tokens_after < edit.tokens_before for edit in edits)


@slow
@given(conversation=work(), pruning=some_pruning())
def test_pruning_comes_to_rest(conversation: list[Message], pruning: Pruning) -> None:
    """A result is shortened once and cleared once, and a cleared one stays cleared."""
    edits: tuple[Edit, ...] = ()
    for _ in range(3):
        edits = (*edits, *pruned(conversation, pruning, edits))
    assert pruned(conversation, pruning, edits) == ()
    done = [(edit.ids, edit.change.part, bool(edit.change.keep)) for edit in edits if isinstance(edit.change, Pruned)]
    assert len(set(done)) == len(done)


@slow
@given(conversation=conversations(), pruning=some_pruning())
def test_any_conversation_can_be_pruned(conversation: list[Message], pruning: Pruning) -> None:
    """This holds even for one that makes no sense."""
    edits = pruned(conversation, pruning)
    assert without_results(messages_of(apply(items(conversation), edits))) == without_results(conversation)
    shrink_results(items(conversation), edits, excess=10**6, pruning=pruning, clear=True)


@settings(max_examples=examples(300), deadline=None)
@given(text=outputs | texts(), first=st.integers(0, 500), last=st.integers(0, 500), limit=st.integers(0, 1_000))
def test_an_excerpt_never_exceeds_its_limit(text: str, first: int, last: int, limit: int) -> None:
    """It consists of parts of the text, in order, without overlap."""
    spans = excerpt(text, first=first, last=last, limit=limit)
    assert len(GAP.join(text[start:stop] for start, stop in spans)) <= max(limit, 0) or len(text) <= limit
    edges = [place for span in spans for place in span]
    assert edges == sorted(edges)
    assert not edges or (edges[0] >= 0 and edges[-1] <= len(text))
