"""Conversations known from snapshots."""

from holdfast.messages import Message, Role, Text, ToolCall, ToolResult
from holdfast.transcripts.request_log import Conversation, restates


def make_message(text: str, role: Role = "user") -> Message:
    """A message."""
    return Message(role=role, parts=(Text(text=text),))


def new_texts(*snapshots: list[str]) -> list[str]:
    """The messages of a conversation, from its snapshots."""
    conversation = Conversation()
    before: list[Message] = []
    texts: list[str] = []
    for snapshot in snapshots:
        messages = [make_message(text) for text in snapshot]
        texts += [message.text for message in conversation.take_new(messages, after=before)]
        before = messages
    return texts


def test_growing() -> None:
    """A conversation that grows is told once."""
    assert new_texts(["a"], ["a", "b"], ["a", "b", "c"]) == ["a", "b", "c"]


def test_the_same_words_again() -> None:
    """What is said again after the last snapshot's end is new."""
    assert new_texts(["a", "b"], ["a", "b", "a", "b"]) == ["a", "b", "a", "b"]


def test_sent_again() -> None:
    """A request that is sent again adds nothing."""
    assert new_texts(["a", "b"], ["a", "b"]) == ["a", "b"]


def test_compacted() -> None:
    """After a compaction the summary and what follows are new, what was kept is not."""
    assert new_texts(["a", "b", "c"], ["sum", "c", "d", "a"]) == ["a", "b", "c", "sum", "d", "a"]


def test_sliding_window() -> None:
    """A window that slides adds what came in at its end."""
    assert new_texts(["a", "b", "c"], ["b", "c", "d"], ["c", "d", "e"]) == ["a", "b", "c", "d", "e"]


def test_edited() -> None:
    """A last message that was edited and sent again is another message."""
    assert new_texts(["a", "fix it"], ["a", "mend it"]) == ["a", "fix it", "mend it"]


def test_restated() -> None:
    """A long text with a small change says the same; a short one, or a large change, does not."""
    long = "tide table " * 40
    assert restates(make_message("stamp=1 " + long), make_message("stamp=2 " + long))
    assert restates(make_message(long), make_message(long + ', "cache_control": {"type": "ephemeral"}'))
    assert not restates(make_message("stamp=1"), make_message("stamp=2"))
    assert not restates(make_message(long + "x" * 80), make_message(long + "y" * 80))
    assert not restates(make_message(long), make_message(long, role="assistant"))


def test_restated_by_ids() -> None:
    """Calls and results are known by their ids, whatever their text."""

    def result(call_id: str, text: str) -> Message:
        return Message(role="tool", parts=(ToolResult(call_id=call_id, content=(Text(text=text),)),))

    assert restates(result("c1", "long output"), result("c1", "[cleared]"))
    assert not restates(result("c1", "x" * 500), result("c2", "x" * 500))
    call = Message(role="assistant", parts=(ToolCall(id="c1", name="ls", arguments={}),))
    assert not restates(call, make_message("x", role="assistant"))


def test_restated_messages_are_counted_and_not_new() -> None:
    """The first wording counts."""
    long = "tide table " * 40
    conversation = Conversation()
    first, second = [make_message("a" + long)], [make_message("b" + long), make_message("next")]
    assert conversation.take_new(first) == first
    assert [message.text for message in conversation.take_new(second, after=first)] == ["next"]
    assert conversation.restated == 1
