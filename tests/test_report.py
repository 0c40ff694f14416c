"""What a report says about a window."""

from __future__ import annotations

import json

import pytest

from holdfast.context.budget import Budget
from holdfast.context.edits import Block, Edit, Item, Trimmed
from holdfast.errors import FormatError
from holdfast.messages import Message, Text, ToolCall, ToolResult
from holdfast.report import NAMES, Category, Change, ContextReport, breakdown, categories, change, workspace_files
from holdfast.tokens import count_message

BUDGET = Budget(
    window=10_000, reserve=2_000, overhead=300, recall=800, live_recall=800, soft_threshold=500, history=5_000
)


def item(role: str, text: str, *, number: int = 1, kind: str = "message", block: Block | None = None) -> Item:
    """A message of a window, counted."""
    message = Message(role=role, parts=(Text(text=text),))  # type: ignore[arg-type]
    return Item(message=message, id=number, tokens=count_message(message), kind=kind, block=block)  # type: ignore[arg-type]


def called(name: str, output: str, *, number: int) -> list[Item]:
    """A call of a tool and its result."""
    call = Message(role="assistant", parts=(ToolCall(id=f"c{number}", name=name, arguments={"path": "a.py"}),))
    result = Message(role="tool", parts=(ToolResult(call_id=f"c{number}", content=(Text(text=output),)),))
    return [
        Item(message=message, id=number + place, tokens=count_message(message))
        for place, message in enumerate((call, result))
    ]


def sums(items: list[Item]) -> dict[str, int]:
    """The tokens of each part."""
    return {part.name: part.tokens for part in categories(items, budget=BUDGET)}


def report(**fields: object) -> ContextReport:
    """A report of which only some fields matter."""
    known = {"session": "s", "turn": 1, "total_tokens": 600, "raw_max_tokens": 1000, "percentage": 60.0}
    return ContextReport(**{"categories": (), **known, **fields})  # type: ignore[arg-type]


class TestCategories:
    def test_every_part_is_named_and_all_add_up_to_the_window(self) -> None:
        """Used, reserved and free tokens are the whole window, in a fixed order."""
        items = [
            item("system", "You are careful.", kind="system"),
            item("user", "What was decided before.", kind="summary", number=0),
            item("user", "hello", block=Block("recalled words", 12)),
            *called("read", "x = 1\n" * 50, number=7),
        ]
        found = categories(items, budget=BUDGET)
        assert tuple(part.name for part in found) == NAMES
        assert sum(part.tokens for part in found) == BUDGET.window
        parts = {part.name: part.tokens for part in found}
        assert parts["recall"] == 12
        assert parts["tools"] == 300
        assert parts["tool results"] == items[-1].tokens
        assert parts["history"] == items[2].tokens + items[3].tokens

    def test_a_window_that_takes_from_the_reserve_still_adds_up(self) -> None:
        """What a last resort takes from the room for the reply is not counted twice."""
        large = Item(message=item("user", "x").message, id=1, tokens=9_000)
        found = {part.name: part.tokens for part in categories([large], budget=BUDGET)}
        assert (found["reserve"], found["free"]) == (700, 0)
        assert sum(found.values()) == BUDGET.window


class TestWorkspaceFiles:
    def test_files_in_the_system_prompt_are_counted_separately(self) -> None:
        """OpenClaw's project context is counted by file; what follows it is not."""
        prompt = (
            "You are an agent.\n\n# Project Context\n\nThe following files:\n\n"
            "## AGENTS.md\n\nRun the tests.\n## Style\nShort words.\n\n## /home/ada/USER.md\n\nAda, 魏岚的同事。\n\n"
            "## Silent Replies\nSay NO_REPLY."
        )
        system = item("system", prompt, kind="system")
        files = workspace_files([system])
        assert [file.path for file in files] == ["AGENTS.md", "/home/ada/USER.md"]
        found = sums([system])
        assert found["workspace files"] == sum(file.tokens for file in files)
        assert found["system"] + found["workspace files"] == system.tokens

    def test_files_of_claude_code_and_codex_are_found_in_the_first_messages(self) -> None:
        """Both put them into the user's mouth."""
        claude = (
            "<system-reminder>\n# claudeMd\nContents of /repo/CLAUDE.md (project instructions):\n\nUse tabs.\n"
            "Contents of /home/ada/.claude/CLAUDE.md (user's global instructions):\n\nBe brief.\n</system-reminder>\nhi"
        )
        codex = "# AGENTS.md instructions for /repo\n\n<INSTRUCTIONS>\nRun make check.\n</INSTRUCTIONS>\nhello"
        found = workspace_files([item("user", claude), item("user", codex)])
        assert [file.path for file in found] == ["/repo/CLAUDE.md", "/home/ada/.claude/CLAUDE.md", "AGENTS.md"]

    def test_a_heading_elsewhere_is_no_file(self) -> None:
        """A document that the user pastes, and what stands later in the conversation, is history."""
        pasted = item("user", "## notes.md\nplain words")
        late = [*(item("user", "go on") for _ in range(6)), item("user", "Contents of /a.md:\n\nwords")]
        assert workspace_files([pasted, *late]) == ()


class TestReport:
    def test_usage_has_the_fields_of_claude_code(self) -> None:
        """Both of its forms, and how far a request is over the limit."""
        parts = (Category(name="history", tokens=600), Category(name="reserve", tokens=200, kind="buffer"))
        used = report(categories=parts, model="claude-sonnet-4-5").usage()
        assert used["totalTokens"] == used["total_tokens"] == 600
        assert (used["maxTokens"], used["rawMaxTokens"], used["autoCompactThreshold"]) == (800, 1000, 800)
        assert used["categories"][0] == {"name": "history", "tokens": 600, "kind": "used"}
        assert "over_limit" not in used
        over = report(total_tokens=1_200).usage()["over_limit"]
        assert over == {"tokens_over": 200, "kind": "hard_limit"}

    def test_an_edit_is_shown_with_its_reason(self) -> None:
        """Kind, messages, reason and tokens are those of the edit."""
        edit = Edit(change=Trimmed(limit=9), ids=(3, 4), reason="oldest", tokens_before=70, tokens_after=0)
        shown = change(edit)
        assert (shown.kind, shown.ids, shown.reason, shown.tokens_before) == ("trimmed", (3, 4), "oldest", 70)

    def test_the_breakdown_adds_up_by_speaker_and_by_tool(self) -> None:
        """Every token of the messages is someone's; what is no message is left out."""
        items = [
            item("system", "You are careful.", kind="system"),
            item("user", "read it"),
            *called("read", "text " * 40, number=5),
            *called("bash", "ok", number=9),
        ]
        found = breakdown(items)
        named = ("userMessageTokens", "assistantMessageTokens", "toolCallTokens", "toolResultTokens")
        assert sum(found[name] for name in named) == sum(one.tokens for one in items[1:])
        by_tool = {tool["name"]: tool for tool in found["toolCallsByType"]}
        assert by_tool["read"]["resultTokens"] == items[3].tokens
        assert sum(tool["callTokens"] for tool in by_tool.values()) == found["toolCallTokens"]

    def test_a_report_is_read_back_as_it_was_written(self) -> None:
        """Also one of an older version, which has fewer fields; what is no report is an error."""
        known = report(
            categories=(Category(name="history", tokens=600),),
            changes=(Change(kind="trimmed", ids=(1, 2), reason="oldest", tokens_before=9, tokens_after=0),),
            milliseconds={"plan": 0.5},
        )
        written = json.loads(json.dumps(known.to_json()))
        assert ContextReport.from_json(written) == known
        assert ContextReport.from_json({key: written[key] for key in written if key not in {"files", "model"}}) == known
        with pytest.raises(FormatError):
            ContextReport.from_json({"turn": "one"})
