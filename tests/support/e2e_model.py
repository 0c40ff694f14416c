"""Who answers in the end-to-end tests: a model that knows only what stands in the request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.memory.block import CLOSE, OPEN
from holdfast.messages import ToolCall, Usage
from holdfast.models.scripted import ScriptedReply
from holdfast.providers import check, read
from holdfast.testing.provider import Raw, Step
from holdfast.tokens import count_json, count_messages

WINDOW = 16_000

FACTS = {
    "Which port does the staging database listen on?": ("The staging database listens on port 6543.", "6543"),
    "Where does the deploy script live?": ("The deploy script lives at /srv/ops/bin/deploy-blue.sh.", "deploy-blue.sh"),
    "Who owns the billing service?": ("Billing service: its owner is Ottilie Vandersloot.", "Ottilie Vandersloot"),
    "What is the name of the nightly backup bucket?": (
        "The nightly backup bucket is called kestrel-cold-7.",
        "kestrel-cold-7",
    ),
    "How many retries does the webhook client make?": (
        "We agreed that the webhook client makes 11 retries and no more.",
        "11 retries",
    ),
    "生产环境的缓存服务器用哪个主机名？": ("生产环境的缓存服务器主机名是 huiyan-cache-03。", "huiyan-cache-03"),
    "谁负责数据迁移？": ("数据迁移由欧阳静怡负责。", "欧阳静怡"),
    "发布窗口定在星期几的几点？": ("发布窗口定在星期四的二十一点半。", "星期四的二十一点半"),
    "Which commit broke the importer?": ("The importer was broken by commit 9f3c1ab77.", "9f3c1ab77"),
    "What is the colour of the maintenance banner?": (
        "The maintenance banner must be the colour burnt sienna.",
        "burnt sienna",
    ),
    "Which licence does the parser library carry?": ("The parser library carries the licence MPL-2.0.", "MPL-2.0"),
    "What is the rate limit of the partner API?": (
        "The partner API has a rate limit of 240 requests a minute.",
        "240 requests",
    ),
}
"""What is planted: a question, what was said, and the words that an answer must have."""


@dataclass
class Brain:
    """Answers requests of either wire format, and keeps what it saw.

    Attributes:
        before: Asked first; what it gives is the answer.
        asked: How often for an answer, for notes, for a summary, for facts.
        from_memory: How many questions were answered from what was recalled: the fact had left the window.
    """

    before: Callable[[str], Step | None] = field(default=lambda _: None)
    asked: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("answer", "notes", "summary", "facts"), 0))
    from_memory: int = 0

    def __call__(self, body: dict[str, Any]) -> Step:
        """The answer to a request."""
        last = body["messages"][-1]
        said = "\n".join(texts(last))
        if "Pre-compaction memory flush" in said:
            return self._notes(said)
        if is_result(last):
            return counted(
                ScriptedReply(text="NO_REPLY" if "daily note" in said or "memory/" in said else "Done with it."), body
            )
        if "conversation between a user and a coding agent" in str(body.get("system", "")) + str(body["messages"][0]):
            self.asked["facts"] += 1
            return '{"facts": []}'
        if not body.get("tools"):
            self.asked["summary"] += 1
            return "## Last Request\n(none)\n\n## Goal\nTo talk about modules.\n\n## Progress\n### Done\n- [x] talked\n"
        self.asked["answer"] += 1
        step = self.before(said)
        window = "\n".join(text for message in body["messages"] for text in texts(message))
        return counted(ScriptedReply(text=self._answer(said, window)), body) if step is None else step

    def _notes(self, said: str) -> ScriptedReply:
        self.asked["notes"] += 1
        path = re.search(r"memory/\d{4}-\d\d-\d\d\.md", said)
        assert path is not None
        note = {"path": path[0], "content": f"- note {self.asked['notes']}\n"}
        return ScriptedReply(calls=(ToolCall(id=f"note_{self.asked['notes']}", name="write", arguments=note),))

    def _answer(self, said: str, window: str) -> str:
        """A question is answered by what the window has, recalled or not; the rest is acknowledged."""
        own = said.replace(recalled(said), "")
        for question, (_, value) in FACTS.items():
            if question in own:
                self.from_memory += value in recalled(window)
                return f"ANSWER {value}" if value in window else "ANSWER unknown"
        number = re.findall(r"turn (\d+):", own)[-1]
        return f"Noted {number}. " + "That is fine and we go on with it as before. " * 14


def counted(said: ScriptedReply, body: dict[str, Any]) -> ScriptedReply:
    """A reply with about the usage that a provider would count."""
    usage = Usage(input=len(str(body)) // 4, output=len(said.text) // 4)
    return replace(said, usage=usage, pieces=tuple(filter(None, (said.text[:40], said.text[40:]))))


def recalled(text: str) -> str:
    """The recalled block of a text."""
    return "".join(re.findall(re.escape(OPEN) + ".*?" + re.escape(CLOSE), text, re.DOTALL))


def texts(message: dict[str, Any]) -> Iterator[str]:
    """The texts of a message in either form, tool results included."""
    content = message.get("content") or ""
    if isinstance(content, str):
        yield content
        return
    for block in content:
        inner = block.get("content", block.get("text", ""))
        yield inner if isinstance(inner, str) else "\n".join(part.get("text", "") for part in inner)


def is_result(message: dict[str, Any]) -> bool:
    """Whether a message answers calls of tools, and says nothing else."""
    content = message.get("content")
    blocks = content if isinstance(content, list) else [{}]
    return message["role"] == "tool" or all(block.get("type") == "tool_result" for block in blocks)


# --- what every request must be ----------------------------------------------------


def tokens(body: dict[str, Any]) -> int:
    """What a request takes by our count: messages, system prompt and tools."""
    system = body.get("system") or ""
    lead = [{"role": "system", "content": system}] if isinstance(system, str) and system else []
    blocks = system if isinstance(system, list) else []
    size = sum(count_json(tool) for tool in body.get("tools") or ())
    size += sum(count_messages(read([{"role": "user", "content": block["text"]}])) for block in blocks)
    return size + count_messages(read([*lead, *body["messages"]]))


def faults(bodies: list[dict[str, Any]], provider: str) -> list[str]:
    """Every rule of the provider that a request breaks, and every request that is too long."""
    found = [
        f"request {number}: {broken}"
        for number, body in enumerate(bodies)
        for broken in check(body["messages"], provider)
    ]
    sizes = [(number, tokens(body)) for number, body in enumerate(bodies)]
    return found + [f"request {number}: {size} tokens" for number, size in sizes if size > WINDOW]


def too_long() -> Raw:
    """What a provider says, without figures, that counts more than we do."""
    words = "Your input exceeds the context window of this model."
    error = {"type": "invalid_request_error", "code": "context_length_exceeded", "message": words}
    return Raw(400, {"type": "error", "error": error})
