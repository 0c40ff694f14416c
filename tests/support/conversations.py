"""Small conversations in canonical form, for tests of the window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast import providers
from holdfast.context.budget import Budget
from holdfast.context.edits import Edit, Item, apply, in_force
from holdfast.context.plan import Plan, Rules, plan_edits
from holdfast.context.validate import ValidWindow, validate
from holdfast.memory.block import Marks
from holdfast.messages import Image, Message, Part, Text, Thinking, ToolCall, ToolResult
from holdfast.settings import Pruning, Settings, Trim
from holdfast.tokens import count_message

__all__ = [
    "MARKS",
    "PIXEL",
    "THOUGHT",
    "answer",
    "call",
    "finished",
    "ids_of",
    "items",
    "kinds",
    "limits",
    "plan",
    "reply",
    "results",
    "system",
    "texts",
    "user",
]

MARKS = Marks((b"tests",))
"""What blocks are known by in tests that have no memory."""
PIXEL = Image(media_type="image/png", data="iVBORw0KGgo=")
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}


def system(text: str = "You are careful.") -> Message:
    """The system prompt."""
    return Message(role="system", parts=(Text(text=text),))


def user(text: str, *parts: Part) -> Message:
    """What the user says."""
    return Message(role="user", parts=(Text(text=text), *parts))


def call(call_id: str, name: str = "bash", **arguments: object) -> ToolCall:
    """A call of a tool."""
    return ToolCall(id=call_id, name=name, arguments=arguments)


def reply(text: str = "", *calls: ToolCall, thought: str | None = None, stop: str | None = None) -> Message:
    """What the assistant says, after a signed thought where there is one, and which tools it calls."""
    thoughts = (Thinking(text=thought, signature=f"signed {thought}"),) if thought is not None else ()
    words = (Text(text=text),) if text else ()
    return Message(role="assistant", parts=(*thoughts, *words, *calls), stop=stop)


def answer(call_id: str, text: str = "done", *, is_error: bool = False, name: str | None = None) -> ToolResult:
    """What a tool answers."""
    return ToolResult(call_id=call_id, content=(Text(text=text),), is_error=is_error, name=name)


def results(*answers: ToolResult, text: str = "") -> Message:
    """Return a message with results of tools, and text of the user after them."""
    return Message(role="tool", parts=(*answers, *((Text(text=text),) if text else ())))


def items(messages: Iterable[Message], *, pinned: Sequence[int] = ()) -> list[Item]:
    """Messages as items of a window, numbered from 1."""
    return [
        Item(
            message=message,
            id=number,
            tokens=count_message(message),
            kind="system" if message.role == "system" else "message",
            pinned=number in pinned,
        )
        for number, message in enumerate(messages, 1)
    ]


def limits(safe: int, *, window: int | None = None, recall: int = 0) -> Budget:
    """Limits of a request by what matters to a test: what messages may take before a block is recalled."""
    size = window or 2 * (safe + recall)
    return Budget(
        window=size,
        reserve=size - safe - recall,
        overhead=0,
        recall=recall,
        live_recall=2 * recall,
        soft_threshold=0,
        history=size // 2,
    )


def trim_rules(
    budget: Budget | None = None, trim: Trim | None = None, *, query: str = "", question_follows: bool = False
) -> Rules:
    """Return the rules of a cut without pruning: everything that is protected stays if it fits."""
    budget = budget or limits(0)
    trim = trim or Trim()
    return Rules(
        budget=budget,
        settings=Settings(trim=trim, pruning=Pruning(mode="off")),
        usual=budget.safe_limit if trim.enabled else budget.prompt,
        query=query,
        question_follows=question_follows,
    )


def plan(window: Sequence[Item], edits: Sequence[Edit], *, budget: Budget, **options: Any) -> Plan:
    """Replay the recorded edits on a window and plan the new ones."""
    standing = in_force(edits, limit=budget.safe_limit)
    return plan_edits(apply(window, standing), standing, budget=budget, **options)


def ids_of(window: Iterable[Item]) -> list[int]:
    """Return the archive numbers of the items of a window."""
    return [item.id for item in window]


def texts(messages: Iterable[Message]) -> list[str]:
    """What is said in each message, results included."""
    return [" ".join([message.text, *(result.text for result in message.results)]).strip() for message in messages]


def finished(wires: list[Any], name: str, provider: str | None = None) -> ValidWindow:
    """What becomes of a message list of a format."""
    return validate(providers.read(wires, format=name), provider or name)


def kinds(wire: Any) -> list[str]:
    """The kinds of the blocks in a message."""
    return [block["type"] for block in wire["content"]]


def messages_of(items: Iterable[Item]) -> list[Message]:
    """What is sent of a window."""
    return [item.sent for item in items]


def tool_conversation(turns: int) -> list[Message]:
    """A conversation of about 700 tokens a turn with tools, one fact at the start."""
    messages = [system(), user("Remember that the staging database listens on port 6543."), reply("Noted.")]
    for turn in range(turns):
        messages += [
            user(f"Step {turn}: please look at module number {turn}."),
            reply(f"Looking at {turn}.", call(f"c{turn}", command=f"cat src/module{turn}.py")),
            results(answer(f"c{turn}", f"line of module {turn}\n" * 60)),
            reply(f"Module {turn} is fine. " + f"change{turn} " * 40),
        ]
    return messages
