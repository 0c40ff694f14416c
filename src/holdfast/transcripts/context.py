"""What the model sees of a session: rebuilt from its entries, the same way every time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from holdfast.errors import FormatError
from holdfast.messages import Message
from holdfast.transcripts.entry import Entry, Problem
from holdfast.transcripts.records import messages_of, summary_message
from holdfast.transcripts.tree import Tree

__all__ = ["Context", "ModelRef", "compaction_region", "rebuild", "rebuild_path"]


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model and who serves it."""

    provider: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the model sees, and what it runs with.

    Attributes:
        messages: The conversation, each message with its entry's id.
        model: The model in use, by the last change or the last reply.
        thinking_level: How much the model shall think.
        compaction: The compaction that stands for what came before, if there was one.
        problems: Entries whose message could not be read, and so is not among `messages`.
    """

    messages: tuple[Message, ...] = ()
    model: ModelRef | None = None
    thinking_level: str = "off"
    compaction: Entry | None = None
    problems: tuple[Problem, ...] = ()


def rebuild(entries: Iterable[Entry], leaf: str | None = None) -> Context:
    """The context at `leaf`, or where the entries themselves stand if it is not given or not among them."""
    tree = Tree(entries)
    return rebuild_path(tree.path(leaf if leaf in tree else tree.leaf))


def rebuild_path(path: Sequence[Entry]) -> Context:
    """The context at the end of a path: the newest compaction's summary, what it kept, what came after it."""
    at = _last_compaction(path)
    compaction = None if at is None else path[at]
    spoken = [] if compaction is None else [compaction]
    messages: list[Message] = []
    problems: list[Problem] = []
    for entry in (*spoken, *compaction_region(path)):
        try:
            messages += [summary_message(entry)] if entry is compaction else messages_of(entry)
        except FormatError as error:
            problems.append(Problem(entry.line, f"{error}; kept in the file, left out of the context"))
    return Context(
        messages=tuple(messages),
        model=_model(path),
        thinking_level=_thinking_level(path),
        compaction=compaction,
        problems=tuple(problems),
    )


def compaction_region(path: Sequence[Entry]) -> tuple[Entry, ...]:
    """The entries that the next compaction must consider: all that the newest one does not stand for.

    That is what it kept, from its `firstKeptEntryId` on, and everything after it; never the compactions themselves.
    """
    at = _last_compaction(path)
    if at is None:
        return tuple(path)
    first = path[at].data.get("firstKeptEntryId")
    kept = next((index for index in range(at) if path[index].id == first), at)
    return tuple(entry for entry in path[kept:] if entry.type != "compaction")


def _last_compaction(path: Sequence[Entry]) -> int | None:
    return next((index for index in reversed(range(len(path))) if path[index].type == "compaction"), None)


def _model(path: Sequence[Entry]) -> ModelRef | None:
    return next((found for entry in reversed(path) if (found := _names_model(entry))), None)


def _names_model(entry: Entry) -> ModelRef | None:
    if entry.type == "model_change":
        provider, model = entry.data.get("provider"), entry.data.get("modelId")
    else:
        message = entry.data.get("message")
        if entry.type != "message" or not isinstance(message, Mapping) or message.get("role") != "assistant":
            return None
        provider, model = message.get("provider"), message.get("model")
    named = isinstance(model, str) and bool(model)
    return ModelRef(provider if isinstance(provider, str) else "", str(model)) if named else None


def _thinking_level(path: Sequence[Entry]) -> str:
    changes = (entry.data.get("thinkingLevel") for entry in reversed(path) if entry.type == "thinking_level_change")
    return next((level for level in changes if isinstance(level, str)), "off")
