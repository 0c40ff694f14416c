"""Whatever a provider sends gives a reply or a typed error."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import FormatError, ModelError
from holdfast.models import anthropic, openai
from holdfast.models.client import Draft, error_from_response
from holdfast.providers import FORMATS, render_request
from holdfast.providers.overflow import is_overflow, numbers
from support.strategies import examples

WORDS = st.sampled_from(["a", "", " ", "{", '{"x": 1}', "改", "\ud83d", "tool_use", "stop", "end_turn", "text"])
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


def shaped(**fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Draw objects with these fields, each of which may be missing or invalid."""
    optional = {
        key: value | JUNK if isinstance(value, st.SearchStrategy) else st.just(value) for key, value in fields.items()
    }
    return st.fixed_dictionaries({}, optional=optional)


BLOCK = shaped(
    type=st.sampled_from(["text", "thinking", "tool_use", "redacted_thinking", "new"]),
    **dict.fromkeys(("text", "thinking", "signature", "id", "name", "data"), WORDS),
    input=JUNK,
)
DELTA = shaped(
    type=st.sampled_from(["text_delta", "thinking_delta", "signature_delta", "input_json_delta", "citations_delta"]),
    **dict.fromkeys(("text", "thinking", "signature", "partial_json", "citation", "stop_reason"), WORDS),
)
KINDS = st.sampled_from(["message_start", "content_block_start", "content_block_delta", "message_delta", "new"])
MESSAGES = shaped(
    type=KINDS, index=st.integers(0, 2), message=shaped(id=WORDS, usage=JUNK), content_block=BLOCK, delta=DELTA
)

CALL = shaped(index=st.integers(0, 2), id=WORDS, function=shaped(name=WORDS, arguments=WORDS))
CHUNK_DELTA = shaped(content=WORDS, reasoning=WORDS, refusal=WORDS, tool_calls=st.lists(CALL, max_size=3))
CHUNKS = shaped(id=WORDS, usage=JUNK, choices=st.lists(shaped(delta=CHUNK_DELTA, finish_reason=WORDS), max_size=2))

ITEM = shaped(
    type=st.sampled_from(["message", "reasoning", "function_call", "new_call"]),
    role=st.just("assistant"),
    content=st.lists(shaped(type=st.just("output_text"), text=WORDS), max_size=2),
    **dict.fromkeys(("call_id", "name", "arguments", "encrypted_content"), WORDS),
)
RESPONSE = shaped(id=WORDS, status=WORDS, usage=JUNK, incomplete_details=shaped(reason=WORDS))
ITEM_KINDS = st.sampled_from(["response.output_text.delta", "response.output_item.done", "response.completed"])
ITEMS = shaped(type=ITEM_KINDS, delta=WORDS, item=ITEM, response=RESPONSE)


def drafted(draft: Draft, events: list[dict[str, Any]], *, provider: str) -> None:
    """Draft a reply, and check that it can be rendered for every provider."""
    heard = [draft.add(event) for event in events]
    assert all(isinstance(text, str) for text in heard)
    try:
        reply = draft.build()
    except FormatError:
        return
    if reply is None:
        return
    assert reply.message.role == "assistant"
    assert isinstance(reply.stop, str)
    for name in FORMATS:
        render_request([reply.message], name)
    assert provider in FORMATS


@given(st.lists(MESSAGES, max_size=8))
@settings(max_examples=examples(60))
def test_any_events_of_messages_make_a_reply_or_an_error(events: list[dict[str, Any]]) -> None:
    """Invalid events of Anthropic give at worst an unreadable answer."""
    drafted(anthropic.AnthropicDraft(), [*events, {"type": "message_stop"}], provider="anthropic")


@given(st.lists(CHUNKS, max_size=8))
@settings(max_examples=examples(60))
def test_any_chunks_make_a_reply_or_an_error(events: list[dict[str, Any]]) -> None:
    """Invalid chunks of Chat Completions give at worst an unreadable answer."""
    ending = {"choices": [{"finish_reason": "stop"}]}
    drafted(openai.ChatDraft(lambda: "made"), [*events, ending], provider="openai_chat")


@given(st.lists(ITEMS, max_size=8))
@settings(max_examples=examples(60))
def test_any_items_make_a_reply_or_an_error(events: list[dict[str, Any]]) -> None:
    """Invalid events of Responses give at worst an unreadable answer."""
    ending = {"type": "response.completed", "response": {}}
    drafted(openai.ResponsesDraft(), [*events, ending], provider="openai_responses")


@given(
    st.none() | st.integers(100, 599),
    JUNK | st.text() | st.binary(),
    st.dictionaries(WORDS | st.just("retry-after"), WORDS),
)
@settings(max_examples=examples(60))
def test_any_refusal_is_one_of_our_errors(status: int | None, body: Any, headers: dict[str, str]) -> None:
    """Any status, body and headers give a typed error with a message."""
    error = error_from_response("m", status=status, body=body, headers=headers)
    assert isinstance(error, ModelError)
    assert len(str(error)) > 3


@given(st.text(), st.none() | st.integers(100, 599))
@settings(max_examples=examples(40))
def test_any_text_can_be_judged(text: str, status: int | None) -> None:
    """Any text can be checked for an overflow, and token counts in it are not negative."""
    assert is_overflow(text, status=status) in {True, False}
    found = numbers(text)
    assert all(figure is None or figure >= 0 for figure in (found.limit, found.requested))
