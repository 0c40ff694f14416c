"""An earlier session of the same project, with facts: a new session then begins with an overview."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast import Engine
from holdfast.settings import Embedding, Settings
from holdfast.store.opening import STORE_NAME
from support.conversations import reply, user

__all__ = ["EARLIER_RULE", "EARLIER_TITLE", "add_earlier_session", "write_earlier_memory"]

EARLIER_RULE = "Always write tests before the code."
"""A fact in the overview."""
EARLIER_TITLE = "Fix the flamingo importer, please."
"""The title of the session."""


def add_earlier_session(engine: Engine, **scope: str) -> None:
    """Archive a session and store facts; a second time adds nothing."""
    session = engine.session("earlier", **scope)
    session.append([user(EARLIER_TITLE), reply("The flamingo importer works now."), user("谢谢")])
    session.remember(EARLIER_RULE)
    session.remember("TODO: tell the customers", type="task_state")


def write_earlier_memory(folder: Path) -> None:
    """Write a memory without vectors into an empty folder, with that session."""
    (folder / STORE_NAME).write_bytes(_make_earlier_memory())


@cache
def _make_earlier_memory() -> bytes:
    """Return the file of such a memory: tests with many examples need it for each of them."""
    settings = Settings(embedding=Embedding(provider="none"))
    with TemporaryDirectory() as folder:
        with Engine.open(folder, settings=settings, background=False, personal=True) as engine:
            add_earlier_session(engine)
        return (Path(folder) / STORE_NAME).read_bytes()
