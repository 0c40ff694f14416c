"""What tests of facts share: archived messages, and a model that says what it is told to."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

from holdfast.errors import ModelError
from holdfast.memory.block import NO_MARKS, Marks
from holdfast.memory.extract import Extraction, extract
from holdfast.messages import Message, Part, Text, ToolCall, ToolResult
from holdfast.models.base import Model, Prompt, Reply
from holdfast.settings import Settings
from holdfast.store.base import FactRow, MessageRow, Scope

__all__ = ["NOW", "SCOPE", "Script", "fact", "facts_json", "learn", "make_row", "rows", "shell"]

SCOPE = Scope(session="s")
NOW = 1_770_000_000_000
MINUTE = 60_000


def make_row(number: int, text: str, *, role: Any = "user", name: str | None = None, timed: bool = True) -> MessageRow:
    """An archived message, said a minute after the one before it."""
    time = NOW + number * MINUTE if timed else None
    message = Message(role=role, parts=(Text(text=text),), timestamp=time, name=name)
    return MessageRow(scope=SCOPE, message=message, id=number)


def rows(*texts: str, first: int = 1) -> list[MessageRow]:
    """What the user said, message by message."""
    return [make_row(number, text) for number, text in enumerate(texts, first)]


def shell(
    number: int, command: str, output: str, *, failed: bool = False, tool: str = "bash", key: str = "command"
) -> list[MessageRow]:
    """A tool call and its result, as two archived messages."""
    call = ToolCall(id=f"c{number}", name=tool, arguments={key: command})
    result = ToolResult(call_id=f"c{number}", content=(Text(text=output),), is_error=failed)
    parts: Sequence[tuple[Any, Part]] = (("assistant", call), ("tool", result))
    return [
        MessageRow(scope=SCOPE, message=Message(role=role, parts=(part,), timestamp=NOW + place), id=place)
        for place, (role, part) in enumerate(parts, number)
    ]


def fact(content: str, **more: Any) -> FactRow:
    """A fact that is known."""
    return FactRow(**{"scope": SCOPE, "id": content, "type": "config", "content": content, "time": NOW, **more})


def facts_json(*facts: dict[str, Any]) -> str:
    """The answer of a model that found these."""
    usual = {"type": "config", "context": "", "subject": "", "slot": "", "value": "", "message": 1}
    return json.dumps({"facts": [{**usual, **each} for each in facts]})


class Script:
    """A model that answers from a list, and remembers what it was asked."""

    name = "scripted/one"
    provider = "openai_chat"

    def __init__(self, *answers: str | Reply | ModelError, context_tokens: int = 100_000) -> None:
        self.answers = list(answers)
        self.context_tokens = context_tokens
        self.asked: list[Prompt] = []

    def ask(
        self,
        prompt: Prompt,
        *,
        timeout: float | None = None,
        cancel: Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """The next answer; the last one again where there is none left."""
        del timeout, cancel, on_text
        self.asked.append(prompt)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, ModelError):
            raise answer
        if isinstance(answer, Reply):
            return answer
        return Reply(message=Message(role="assistant", parts=(Text(text=answer),)))


def learn(
    messages: Sequence[MessageRow],
    *,
    known: Sequence[FactRow] = (),
    model: Model | None = None,
    settings: Settings | None = None,
    scope: Scope = SCOPE,
    marks: Marks = NO_MARKS,
) -> Extraction:
    """What is extracted from messages."""
    asked = settings or Settings()
    return extract(messages, scope=scope, model=model, known=known, settings=asked, now=NOW, marks=marks)
