"""Histories of conversations that no client names: what was read of the last request is not read again."""

from collections.abc import Sequence

from holdfast import providers
from holdfast.messages import Message
from holdfast.server.conversations import _History

KEY = b"k" * 32
CALL = "call_9fK2aB7cQ1zX4mN8pL3w"
HISTORY = providers.read(
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Which port?"},
        {"role": "assistant", "content": "I look."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": CALL, "type": "function", "function": {"name": "ls", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": CALL, "content": "5432"},
        {"role": "assistant", "content": "5432."},
        {"role": "system", "content": "It is late."},
        {"role": "user", "content": "And the host?"},
        {"role": "assistant", "content": "It is"},
    ],
    format="openai_chat",
)


def compare(messages: Sequence[Message], before: Sequence[Message]) -> None:
    """Read a history after another one, and alone."""
    known = _History(before, KEY).beginning
    after, alone = _History(messages, KEY, known), _History(messages, KEY)
    assert after.beginning == alone.beginning
    assert (after._steps, after.marks(), after.opening) == (alone._steps, alone.marks(), alone.opening)


def test_the_rest_of_a_history_is_read_as_with_the_beginning() -> None:
    """Whatever the last request ended with, also if the client has dropped or changed something since."""
    for count in range(len(HISTORY) + 1):
        for other in range(len(HISTORY) + 1):
            compare(HISTORY[:count], HISTORY[:other])
            compare([*HISTORY[:count], *HISTORY[count + 1 :]], HISTORY[:other])


def test_the_beginning_ends_with_a_message_of_the_user_or_a_tool() -> None:
    """A reply after it may be longer in the next request."""
    history = _History(HISTORY, KEY)
    assert len(history.beginning.digests) == 6
    assert history.base in history.places
    assert len(history.marks()) == 1
    assert [message.text for message in history.opening] == ["It is"]
