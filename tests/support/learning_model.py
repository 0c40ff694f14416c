"""A model that extracts what it is shown: every depot that a message says the closing time of."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from holdfast.models.base import Prompt
from holdfast.models.scripted import Answer, Scripted

_PIECE = re.compile(r"^\[(\d+) \w+\] ", re.MULTILINE)
_DEPOT = re.compile(r"Depot (\w+) closes at (\d\d:\d\d)|仓库 (\w+) 在 (\d\d:\d\d) 关门")


def extract_depots(prompt: Prompt) -> str:
    """Answer with a fact for each depot in the messages of a prompt."""
    text = prompt.messages[-1].text
    numbers = [(match.start(), int(match[1])) for match in _PIECE.finditer(text)]
    found: list[dict[str, object]] = []
    for match in _DEPOT.finditer(text):
        name = match[1] or match[3]
        value = match[2] or match[4]
        number = max((place for place in numbers if place[0] <= match.start()), default=(0, 0))[1]
        found.append(
            {
                "type": "config",
                "content": match[0],
                "context": "",
                "subject": f"depot {name}",
                "slot": "closing time",
                "value": value,
                "message": number,
                "quote": match[0],
                "questions": [f"Until when may lorries come to {name}?"],
            }
        )
    return json.dumps({"facts": found}, ensure_ascii=False)


def depot_model(answer: Callable[[Prompt], Answer] = extract_depots, *, name: str = "scripted") -> Scripted:
    """Return a model that extracts depots, and writes a short summary if that is asked for."""

    def reply(prompt: Prompt) -> Answer:
        if prompt.schema is None:
            return "## Goal\nTalk about depots.\n"
        return answer(prompt)

    return Scripted(reply, name=name)


def count_extractions(model: Scripted) -> int:
    """Count the prompts that asked for facts."""
    return sum(prompt.schema is not None for prompt in model.prompts)
