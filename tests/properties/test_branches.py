"""I1, I2, I6: in a conversation with any branches, each message is archived once, and the newest one is sent."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import Engine, Settings
from holdfast.errors import WindowTooSmallError
from holdfast.settings import Embedding
from holdfast.store.base import Scope, Select
from support.strategies import examples
from support.waiting import UNHURRIED

QUIET = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
WORDS = st.sampled_from(["ok", "no", "好", "port 6543 " * 300, "Traceback: line\n" * 200])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "say", "again", "back", "append", "reopen"]), WORDS, WORDS, st.integers(0, 9)
    ),
    min_size=3,
    max_size=14,
)


@given(steps=STEPS)
@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
def test_a_message_is_its_words_and_what_came_before(steps: list[tuple[str, str, str, int]]) -> None:
    """A conversation is a tree: the same words in two places are two messages; sent again, they are not new."""
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine.open(folder, settings=QUIET, background=False)
        messages: list[dict[str, Any]] = []
        places: set[tuple[str, ...]] = set()
        for step, question, answer, number in steps:
            if step == "reopen":
                engine.close()
                engine = Engine.open(folder, settings=QUIET, background=False)
            if step == "back":
                messages = messages[: len(messages) // 2 * number // 10 * 2]
            if step in {"say", "append", "back"}:
                messages = [*messages, {"role": "user", "content": question}]
            if not messages:
                continue
            sent = messages if messages[-1]["role"] == "user" else messages[:-1]
            with ThreadPoolExecutor(3) as pool:
                windows = list(pool.map(_sent, [engine] * 3, [sent] * 3))
            places.update(tuple(message["content"] for message in sent[:stop]) for stop in range(1, len(sent) + 1))
            assert all(window == windows[0] for window in windows)
            if windows[0] is not None:
                assert windows[0][-1]["content"].startswith(sent[-1]["content"])
            if messages is sent:
                messages = [*messages, {"role": "assistant", "content": answer}]
            if step == "append":
                engine.session("s").append(messages[-1:])
                engine.session("s").append(messages[-1:])
                places.add(tuple(message["content"] for message in messages))
        assert len(engine._memory.store.read_messages(Select(scope=Scope(session="s")))) == len(places)
        engine.close()


def _sent(engine: Engine, messages: list[dict[str, Any]]) -> list[Any] | None:
    """Return what is sent; None if what must stay does not fit."""
    try:
        return engine.session("s").assemble(messages, limit=6_000).render("openai_chat")
    except WindowTooSmallError:
        return None
