"""An earlier session of the same project, with facts: a new session then begins with an overview."""

from __future__ import annotations

from holdfast import Engine
from support.conversations import reply, user

__all__ = ["EARLIER_RULE", "EARLIER_TITLE", "add_earlier_session"]

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
