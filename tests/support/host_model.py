"""A model for hosts: it gives the replies of a turn to requests with tools, and a useless summary to all others."""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from holdfast.errors import ModelError
from holdfast.messages import Usage
from holdfast.models.scripted import ScriptedReply
from holdfast.testing.provider import ScriptedProvider

SUMMARY = "We worked on several things."
_RECALLED = re.compile(r"(?:<|&lt;)recalled-context.*?(?:<|&lt;)/recalled-context", re.DOTALL)


class Model(ScriptedProvider):
    """The model; `usage` is what its replies report."""

    def __init__(self) -> None:
        super().__init__(self._reply)
        self.steps: deque[ScriptedReply | ModelError] = deque()
        self.usage = Usage(input=2_000, output=20)
        self.arrivals: list[tuple[float, dict[str, Any]]] = []
        """When each request came, by the monotonic clock."""

    def _reply(self, body: dict[str, Any]) -> ScriptedReply | ModelError:
        self.arrivals.append((time.monotonic(), body))
        step = self.steps.popleft() if self.steps and body.get("tools") else ScriptedReply(text=SUMMARY)
        if isinstance(step, ModelError):
            return step
        return ScriptedReply(text=step.text, calls=step.calls, usage=step.usage or self.usage)

    def expect(self, steps: Iterable[ScriptedReply | ModelError]) -> None:
        """Set the replies of the next turn."""
        self.steps = deque(steps)


def shown(body: dict[str, Any]) -> str:
    """Return all text of a request, without its tools."""
    return json.dumps({key: value for key, value in body.items() if key != "tools"}, ensure_ascii=False)


def shown_without_recall(body: dict[str, Any]) -> str:
    """Return all text of a request without what Holdfast recalls and without its tools."""
    return _RECALLED.sub("", shown(body))
