"""Clients that name no session share one key: no session ever contains the words of two of them."""

from __future__ import annotations

import hashlib
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import Engine
from holdfast.messages import Message, Text, ToolCall, ToolResult
from holdfast.server.conversations import Conversation, Conversations
from holdfast.settings import Embedding, Settings
from holdfast.store.base import Scope
from support.strategies import examples

OWNER = Scope(agent="main@k-1")
SHARED = ["hello", "yes", "I agree to everything that is written above. " * 20, "next"]
"""What every user says: two of them may have the same history for a long time."""


def say(role: str, text: str) -> Message:
    """Make a message of plain text."""
    assert role in {"user", "assistant"}
    return Message(role="user" if role == "user" else "assistant", parts=(Text(text=text),))


@dataclass
class Client:
    """A client with a conversation, and the words that only this client says."""

    name: str
    history: list[Message] = field(default_factory=list)

    def words(self, number: int) -> str:
        """Make a text that only this client says."""
        return f"the secret of {self.name} is {number}"


class World:
    """Clients, the server between them and a model, and what the server stores in each session."""

    def __init__(self, engine: Engine, random: Random) -> None:
        self.engine = engine
        self.random = random
        self.clients = [Client(name) for name in ("Ann", "Bob", "Eve")]
        self.stored: dict[str, set[str]] = defaultdict(set)
        self.open: list[tuple[Client, Conversation, Message | None]] = []
        self.numbers = count()
        self.restart()

    def restart(self) -> None:
        """Restart the server. Open requests are lost."""
        self.conversations = Conversations(self.engine, key=lambda: b"key")
        self.open = []

    def step(self) -> None:
        """Let one client take a step."""
        client = self.random.choice(self.clients)
        match self.random.randrange(10):
            case 0:
                client.history = []
            case 1 if client.history:  # go back, to edit a message or ask for a reply again
                del client.history[self.random.randrange(len(client.history)) :]
            case 2 if len(client.history) > 2:  # drop what is old
                client.history = client.history[self.random.randrange(len(client.history) - 1) :]
            case 3:
                self.restart()
            case 4 if self.open:
                self.answer(*self.open.pop(self.random.randrange(len(self.open))))
            case _:
                self.ask(client)

    def ask(self, client: Client) -> None:
        """Send a request, and sometimes leave the reply for later."""
        last = client.history[-1] if client.history else None
        if last is not None and last.calls and self.random.random() < 0.9:
            client.history.append(Message(role="tool", parts=(ToolResult(call_id=last.calls[0].id),)))
        else:
            is_own = self.random.random() < 0.3
            text = client.words(next(self.numbers)) if is_own else self.random.choice(SHARED)
            client.history.append(say("user", text))
        found = self.conversations.begin(client.history, owner=OWNER)
        assert found is not None
        self.store(found.session, *client.history)
        reply = self.make_reply(client)
        if self.random.random() < 0.3:
            self.open.append((client, found, reply))
        else:
            self.answer(client, found, reply)

    def store(self, session: str, *messages: Message) -> None:
        """Record whose words are in a session."""
        for message in messages:
            if "secret of" in message.text:
                self.stored[session].add(message.text.split()[3])

    def make_reply(self, client: Client) -> Message | None:
        """Make a reply: one that depends on the message alone, one for this client only, a tool call, or none."""
        kind = self.random.random()
        if kind < 0.1:
            return None
        if kind > 0.9:  # its system prompt says who it is
            return say("assistant", client.words(next(self.numbers)))
        if kind < 0.25:
            random_id = hashlib.sha256(str(next(self.numbers)).encode()).hexdigest()[:24]
            call = ToolCall(id=self.random.choice([f"call_{random_id}", "call_1"]), name="ls", arguments={})
            return Message(role="assistant", parts=(call,))
        return say("assistant", f"Reply to {client.history[-1].text[:10]}. ")

    def answer(self, client: Client, conversation: Conversation, reply: Message | None) -> None:
        """Deliver a reply."""
        conversation.finish([reply] if reply is not None else [])
        if reply is not None:
            self.store(conversation.session, reply)
            is_trimmed = self.random.random() < 0.5 and not reply.calls
            client.history.append(say("assistant", reply.text.strip()) if is_trimmed else reply)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(min_value=0, max_value=2**32))
def test_no_session_has_the_words_of_two_clients(seed: int) -> None:
    """Clients talk, edit, drop and try again, replies come in any order, and the server restarts."""
    known = Settings(embedding=Embedding(provider="none"))
    with (
        tempfile.TemporaryDirectory() as folder,
        Engine.open(Path(folder), settings=known, background=False) as engine,
    ):
        world = World(engine, Random(seed))  # noqa: S311 - not for secrets
        for _ in range(60):
            world.step()
        for session, names in world.stored.items():
            assert len(names) <= 1, (session, names)
