"""The result of a turn: the window, and the report with its tokens, its changes with their reasons, and its timings.

It is a superset of what agents show for `/context`. A report is never part of a conversation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal, Self, TypeAlias

import msgspec

from holdfast import providers
from holdfast.context.budget import Budget, LimitSource
from holdfast.context.edits import Block, Edit, Item, tokens
from holdfast.context.validate import ValidWindow, validate
from holdfast.errors import FormatError
from holdfast.memory.passage_search import Hit
from holdfast.memory.recall import Missed
from holdfast.messages import Message, Opaque, ToolCall, ToolResult
from holdfast.tokens import count_part, count_text

CategoryKind: TypeAlias = Literal["used", "free", "buffer"]
NAMES: Final = ("system", "tools", "workspace files", "summary", "history", "tool results", "recall", "reserve", "free")
"""The categories of a window, in display order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """A part of the window and its tokens."""

    name: str
    tokens: int
    kind: CategoryKind = "used"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One recorded edit, or a block that the caller places itself."""

    kind: str
    ids: tuple[int, ...]
    reason: str
    tokens_before: int
    tokens_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceFile:
    """A file that the agent put into its prompt, and its tokens."""

    path: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextReport:
    """The report of one turn.

    Attributes:
        session: The session's id.
        turn: The number of the request, from 1.
        total_tokens: All tokens of the request.
        raw_max_tokens: The size of the model's window.
        limit_source: The source of that size: `argument`, `settings`, `model`, `refusal` (the provider refused a larger
            request) or `default`.
        reserved_tokens: Tokens reserved for the reply.
        percentage: The share of the window in use.
        categories: The tokens by category, including free and reserved ones.
        changes: The edits of this turn: pruned, trimmed, compacted, recalled or overview.
        overview_tokens: The tokens of the overview in the window, part of the category `recall`; 0 without one.
        recalled: The passages in the block, with the parts of their scores. A block may have facts alone.
        recalled_facts: The ids of the facts in the block, as `Session.facts` returns them.
        recall_reason: Why there is no block, if there is none.
        question: The numbers of the messages that make up the question. Recall and cuts are decided by it.
        recall_texts: How many of them, the newest ones, memory was searched for; 0 if it was not searched.
        recall_confidence: How sure it is that memory matches the question. It decides the size of the block.
        recall_size: The maximum tokens of the block at that confidence.
        recall_cap: The maximum tokens of a block in this window.
        missed: The best passages that match the question but are not in the block.
        prefix_kept: The share of the previous request, by tokens, that is a prefix of this one.
        repairs: Changes that the provider's rules required, and recalled text that came back and was removed.
        warnings: Failures that did not stop the request.
        milliseconds: The time of each step.
        model: The model of the request, if known.
        files: The files that the agent put into its prompt.
        token_scale: How many tokens the provider may count per token of `total_tokens`.
        is_calibrated: Whether that comes from reported usage; otherwise it is a margin.
        whole_tokens: The tokens of the request if the whole conversation were sent; 0 in reports of older versions.
        user_message: The number of the newest message of the user; 0 if there is none.
        lookups: How often the model has called tools of memory since that message.
        failures: How many steps failed without stopping the request.
    """

    session: str
    turn: int
    total_tokens: int
    raw_max_tokens: int
    percentage: float
    categories: tuple[Category, ...]
    changes: tuple[Change, ...] = ()
    recalled: tuple[Hit, ...] = ()
    recall_reason: str = ""
    prefix_kept: float | None = None
    repairs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    model: str | None = None
    files: tuple[WorkspaceFile, ...] = ()
    limit_source: LimitSource = "default"
    reserved_tokens: int = 0
    token_scale: float = 1.0
    is_calibrated: bool = False
    recalled_facts: tuple[str, ...] = ()
    overview_tokens: int = 0
    question: tuple[int, ...] = ()
    recall_texts: int = 0
    recall_confidence: float = 0.0
    recall_size: int = 0
    recall_cap: int = 0
    missed: tuple[Missed, ...] = ()
    whole_tokens: int = 0
    user_message: int = 0
    lookups: int = 0
    failures: int = 0

    @property
    def over_limit(self) -> int:
        """The tokens by which the request is too large; 0 if it fits."""
        return max(0, self.total_tokens - self.raw_max_tokens)

    @property
    def saved_tokens(self) -> int:
        """The tokens that sending the whole conversation would have taken in addition; negative if it took fewer."""
        if not self.whole_tokens:
            return 0
        return self.whole_tokens - self.total_tokens

    @property
    def max_tokens(self) -> int:
        """The maximum size of a request; the rest is reserved for the reply."""
        return self.raw_max_tokens - sum(part.tokens for part in self.categories if part.kind == "buffer")

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read a report that `to_json` wrote."""
        try:
            return msgspec.convert(data, cls)
        except msgspec.ValidationError as error:
            raise FormatError(f"not a report: {error}") from error

    def usage(self) -> dict[str, Any]:
        """Return the fields of Claude Code's `/context`, under the names of both of its forms."""
        shown = {
            "total_tokens": self.total_tokens,
            "raw_max_tokens": self.raw_max_tokens,
            "percentage": self.percentage,
            "categories": [asdict(part) for part in self.categories],
            "totalTokens": self.total_tokens,
            "maxTokens": self.max_tokens,
            "rawMaxTokens": self.raw_max_tokens,
            "model": self.model,
            "autoCompactThreshold": self.max_tokens,
            "memoryFiles": [{"path": file.path, "type": "Project", "tokens": file.tokens} for file in self.files],
            "mcpTools": [],
            "agents": [],
        }
        if self.over_limit:
            shown["over_limit"] = {"tokens_over": self.over_limit, "kind": "hard_limit"}
        return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The messages and tools that the model receives for one request.

    Attributes:
        items: The messages in it, with their archive numbers and tokens.
        provider: The provider whose rules it keeps.
        valid: Its valid form for that provider.
        report: What was kept, pruned, trimmed and recalled, and why.
        block: The recalled block for a question that is not among the messages. Send it before the question.
        failures: What failed while it was made. The report has it too, next to warnings about the memory as a whole.
        place: The place of its reply in the conversation, for `after` of `Session.append`; empty if memory failed.
        has_memory: Whether memory worked. If not, it has the newest messages that fit, and nothing was archived.
    """

    items: tuple[Item, ...]
    provider: str
    valid: ValidWindow
    report: ContextReport
    block: str = ""
    failures: tuple[str, ...] = ()
    place: str = ""
    has_memory: bool = True

    def __repr__(self) -> str:
        return f"<Window of {len(self.messages)} messages, {self.tokens} tokens, for {self.provider!r}>"

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages that are sent, in canonical form."""
        return self.valid.messages

    @property
    def tokens(self) -> int:
        """Its size, by the counter in use."""
        return tokens(self.items)

    @property
    def overview(self) -> str:
        """The overview in it; empty if there is none."""
        found = find_overview(self.items)
        if found is None:
            return ""
        return found.text

    def render(self, format: str | None = None) -> list[Mapping[str, Any]]:
        """Render the message list of a request, valid for the provider; by default the one it was made for."""
        return list(self._valid_for(format).wire)

    def request(self, format: str | None = None) -> dict[str, Any]:
        """Render the fields of a request body, with the system prompt in the provider's field for it."""
        return providers.render_request(self._valid_for(format).messages, format or self.provider)

    def _valid_for(self, format: str | None) -> ValidWindow:
        if format is None or format == self.provider:
            return self.valid
        return validate([item.sent for item in self.items], format)


def warn_opaque(items: Sequence[Item]) -> list[str]:
    """Warn about blocks that are sent unchanged because they are not understood."""
    kinds: set[str] = set()
    for item in items:
        for part in item.message.parts:
            if isinstance(part, Opaque):
                kinds.add(part.kind)
            elif isinstance(part, ToolResult):
                kinds.update(block.kind for block in part.content if isinstance(block, Opaque))
    if not kinds:
        return []
    return [f"carried as they came, not understood and not searchable: {', '.join(sorted(kinds))}"]


def categories(items: Sequence[Item], *, budget: Budget) -> tuple[Category, ...]:
    """Return the tokens of a window by category."""
    sums = dict.fromkeys(NAMES[:-2], 0)
    sums["tools"] = budget.overhead
    for item in items:
        sums[categorise(item)] += item.tokens
        for block in item.blocks:
            sums["recall"] += block.tokens
    for item, files in _list_files(items):
        in_files = min(sum(file.tokens for file in files), item.tokens)
        sums[categorise(item)] -= in_files
        sums["workspace files"] += in_files
    used = sum(sums.values())
    return (
        *(Category(name=name, tokens=size) for name, size in sums.items()),
        Category(name="reserve", tokens=min(budget.reserve, max(0, budget.window - used)), kind="buffer"),
        Category(name="free", tokens=max(0, budget.window - budget.reserve - used), kind="free"),
    )


def find_overview(items: Iterable[Item]) -> Block | None:
    """Return the overview in a window, with its tokens; None if there is none."""
    for item in items:
        if item.overview is not None:
            return item.overview
        if item.kind == "overview":
            return Block(item.message.text, item.tokens)
    return None


def categorise(item: Item) -> str:
    """Return the part of the window that an item belongs to."""
    if item.kind == "message" and item.message.role == "tool":
        return "tool results"
    if item.kind == "message":
        return "history"
    if item.kind == "overview":
        return "recall"
    return item.kind


def change(edit: Edit) -> Change:
    """Convert an edit to a change of the report."""
    return Change(
        kind=edit.kind,
        ids=edit.ids,
        reason=edit.reason,
        tokens_before=edit.tokens_before,
        tokens_after=edit.tokens_after,
    )


def breakdown(items: Iterable[Item]) -> dict[str, Any]:
    """Count the tokens of a window's messages by kind and by tool, with the field names that Claude Code uses."""
    sums: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    results: Counter[str] = Counter()
    names: dict[str, str] = {}
    for item in items:
        if item.kind != "message":
            continue
        tool_calls = [part for part in item.message.parts if isinstance(part, ToolCall)]
        for call in tool_calls:
            names[call.id] = call.name
            calls[call.name] += count_part(call)
        sums[item.message.role] += item.tokens - sum(map(count_part, tool_calls))
        tool_names = [result.name or names.get(result.call_id, "") for result in item.message.results]
        for name in tool_names:
            results[name] += item.tokens // len(tool_names)
    tools = dict(calls.most_common()) | dict(results.most_common())
    return {
        "userMessageTokens": sums["user"],
        "assistantMessageTokens": sums["assistant"],
        "toolCallTokens": calls.total(),
        "toolResultTokens": sums["tool"],
        "attachmentTokens": 0,
        "toolCallsByType": [{"name": name, "callTokens": calls[name], "resultTokens": results[name]} for name in tools],
    }


_MAX_FILE_MESSAGES: Final = 4
"""Agents put files only into the first messages: only these are searched."""
_PROJECT: Final = "# Project Context\n"
_MISSING: Final = "\n\n[MISSING]"
"""Follows the name of a file that the agent expected and did not find."""
_MARK: Final = re.compile(
    r"^(?:## (?P<section>\S+\.\w+)"  # OpenClaw, and Holdfast's own agent
    r"|Contents of (?P<contents>\S+)[^\n]*:"  # Claude Code
    r"|# (?P<instructions>\S+) instructions for [^\n]*"  # Codex
    r"|</system-reminder>|</INSTRUCTIONS>|## (?:Silent Replies|Heartbeats|Runtime))$",
    re.MULTILINE,
)
"""Matches the beginning of a file, or its end."""
_HINTS: Final = ("## ", "Contents of ", " instructions for ", "</system-reminder>", "</INSTRUCTIONS>")
"""Every match contains one of these. Looking for them takes a quarter of the time of a search for a match."""


def workspace_files(items: Sequence[Item]) -> tuple[WorkspaceFile, ...]:
    """Return the files in a prompt, as OpenClaw, Holdfast, Claude Code and Codex write them."""
    found: list[WorkspaceFile] = []
    for _, files in _list_files(items):
        found += files
    return tuple(found)


def _list_files(items: Sequence[Item]) -> list[tuple[Item, tuple[WorkspaceFile, ...]]]:
    """Return the messages at the beginning that have files, with their files."""
    found: list[tuple[Item, tuple[WorkspaceFile, ...]]] = []
    for item in items[:_MAX_FILE_MESSAGES]:
        if item.kind not in {"system", "message"} or item.message.role == "tool":
            continue
        files = _find_files(item.message.text)
        if files:
            found.append((item, files))
    return found


def _find_files(text: str) -> tuple[WorkspaceFile, ...]:
    """Return the files in a text. A text that cannot have any may be very long, and is not cached with its result."""
    if not any(hint in text for hint in _HINTS):
        return ()
    return _read_files(text)


@lru_cache(maxsize=16)
def _read_files(text: str) -> tuple[WorkspaceFile, ...]:
    """Return the files in a text; each ends at the next mark."""
    marks = list(_MARK.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    project = text.find(_PROJECT)
    files: list[WorkspaceFile] = []
    for mark, end in zip(marks, ends, strict=False):
        path = mark["contents"] or mark["instructions"]
        if not path and -1 < project < mark.start():  # elsewhere it is a heading that looks like the name of a file
            path = mark["section"]
        is_missing = text.startswith(_MISSING, mark.end())
        if path and not is_missing:
            files.append(WorkspaceFile(path=path, tokens=count_text(text[mark.start() : end])))
    return tuple(files)
