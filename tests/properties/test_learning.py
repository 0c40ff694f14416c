"""Each message is read for facts once and forgotten messages never, in any order of events."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from holdfast import Engine
from holdfast.errors import ModelBusyError
from holdfast.messages import Message, Text
from holdfast.models.base import Prompt
from holdfast.models.scripted import Answer
from holdfast.settings import Embedding, Knowledge, Settings
from holdfast.store.base import Select
from support.learning_model import depot_model, extract_depots

MINUTE = 60_000
SESSIONS = ("a", "b")
STEPS = ("say", "say much", "work", "wait", "fail", "recover", "garble", "reopen", "learn", "forget")

steps = st.lists(
    st.tuples(st.sampled_from(STEPS), st.sampled_from(SESSIONS), st.integers(0, 1)), min_size=1, max_size=30
)


class World:
    """Two engines over one memory, a clock, and a model that may fail or give unusable answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 1_800_000_000_000
        self.state = "answers"
        self.said: dict[str, list[Message]] = {name: [] for name in SESSIONS}
        self.forgotten: set[str] = set()
        self.count = 0
        self.seen: list[str] = []
        self.engines = [self.open(), self.open()]

    def open(self) -> Engine:
        """Open an engine with a small budget, so that work has to wait for it from time to time."""
        knowledge = Knowledge(max_calls_per_hour=3, max_tokens_per_day=60_000)
        settings = Settings(embedding=Embedding(provider="none"), knowledge=knowledge)
        return Engine.open(
            self.folder,
            settings=settings,
            model=depot_model(self.answer),
            background=False,
            auto="off",
            clock=lambda: self.now,
        )

    def answer(self, prompt: Prompt) -> Answer:
        """Answer according to the state, and record the messages."""
        self.seen.append(prompt.messages[-1].text)
        if self.state == "fails":
            return ModelBusyError("overloaded")
        return "no JSON" if self.state == "garbles" else extract_depots(prompt)

    def take(self, step: str, name: str, which: int) -> None:
        """Do one step."""
        engine = self.engines[which]
        session = engine.session(name)
        match step:
            case "say" | "say much":
                filler = "We talked about the weather. " * (900 if step == "say much" else 3)
                text = f"Depot d{self.count} closes at 10:{self.count:02d}. {filler}"
                self.count += 1
                self.said[name].append(Message(role="user", parts=(Text(text=text),)))
                self.said[name].append(Message(role="assistant", parts=(Text(text="Noted."),)))
                session.append(self.said[name][-2:])
                session.assemble([*self.said[name], Message(role="user", parts=(Text(text="Go on."),))], limit=12_000)
            case "work":
                engine.work()
            case "wait":
                self.now += 11 * MINUTE
            case "fail" | "recover" | "garble":
                self.state = {"fail": "fails", "recover": "answers", "garble": "garbles"}[step]
            case "reopen":
                engine.close()
                self.engines[which] = self.open()
            case "learn":
                session.learn()
            case "forget":
                rows = [row for row in session.messages() if "Depot" in row.message.text]
                for row in rows[:1]:
                    self.forgotten.add(row.message.text)
                    session.forget([row.id])
                    self.said[name] = [one for one in self.said[name] if one.text != row.message.text]
                    self.seen.clear()


@given(steps)
def test_every_message_is_read_once_and_forgotten_ones_never(taken: list[tuple[str, str, int]]) -> None:
    """Two engines, failures, budgets and pauses in any order; after a day of answers, everything is read."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        for step in taken:
            world.take(*step)
            assert not any(text in shown for text in world.forgotten for shown in world.seen)
        garbled = any(step == "garble" for step, _, _ in taken)
        world.state = "answers"
        for _ in range(60):
            world.now += 61 * MINUTE
            world.engines[0].work()
        store = world.engines[0]._memory.store
        scope = world.engines[0].session("a").scope
        found = Counter(row.content for row in store.read_facts(Select(scope=scope, across=True)))
        messages = store.read_messages(Select(scope=scope, across=True))
        stated = [row.message.text.partition(". ")[0] for row in messages if row.message.text.startswith("Depot")]
        if garbled:  # what no try could read is left to the rules, which find none of these
            assert found - Counter(stated) == Counter()
        else:
            assert found == Counter(stated)
        for engine in world.engines:
            engine.close()
