"""The silent turn: before history becomes a summary, the agent writes down what must last. Nobody sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from threading import Event
from typing import Final

from holdfast.agent.tools import Toolbox
from holdfast.compaction.flush import FlushPrompt
from holdfast.context.validate import validate
from holdfast.errors import ModelRefusedError, StorageError
from holdfast.messages import Message, Text, ToolResult
from holdfast.models.base import Model, Prompt

__all__ = ["write_notes"]

_MOST_STEPS: Final = 8
_LONGEST: Final = 2_048
_TIMEOUT: Final = 120.0


def write_notes(
    window: Sequence[Message], prompt: FlushPrompt, *, model: Model, tools: Toolbox, cancel: Event | None = None
) -> None:
    """Let the model write its notes. What is said in this turn is kept nowhere but in the notes.

    Raises:
        ModelError: It could not.
        StorageError: It called `write`, and nothing could be written.
    """
    said = _prompted(window, prompt)
    results: list[ToolResult] = []
    for _ in range(_MOST_STEPS):
        ready = validate(said, model.provider).messages
        asked = Prompt(messages=ready, tools=tools.tools(), max_tokens=_LONGEST)
        reply = model.ask(asked, timeout=_TIMEOUT, cancel=cancel)
        if not reply.message.calls:
            writes = [result for result in results if result.name == "write"]
            if writes and all(result.is_error for result in writes):
                raise StorageError(writes[-1].text, path=prompt.path)
            return
        answers = tools.run_all(reply.message.calls, cancel=cancel)
        results += answers
        said += [reply.message, Message(role="tool", parts=tuple(answers))]
    raise ModelRefusedError(f"the notes were not done after {_MOST_STEPS} steps", model=model.name)


def _prompted(window: Sequence[Message], prompt: FlushPrompt) -> list[Message]:
    """The window with what the silent turn says: added to the system prompt, and as the user's last words."""
    lead = next((index for index, message in enumerate(window) if message.role != "system"), len(window))
    extra = Text(text=prompt.system)
    if lead:
        first = replace(window[0], parts=(*window[0].parts, extra), origin=None)
        systems = [first, *window[1:lead]]
    else:
        systems = [Message(role="system", parts=(extra,))]
    return [*systems, *window[lead:], Message(role="user", parts=(Text(text=prompt.user),))]
