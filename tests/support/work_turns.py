"""Sessions of an agent that works: what a person says in most turns asks nothing of memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

FILES = ("importer", "ledger", "billing", "refunds", "search", "export")
WORK = (
    "Run the tests again.",
    "Fix the failing test in {name}.py.",
    "Now commit it.",
    "Rename the helper in {name}.py to read_{name}_rows and update its callers.",
    "Run the linter and fix what it reports.",
    "Add a test for an empty file to test_{name}.py.",
    "Apply the same change to {name}.py.",
    "Rebase on main and push the branch.",
    "Remove the debug output from {name}.py and run the tests.",
    "再跑一遍测试。",
    "把 {name}.py 里的调试输出删掉，然后提交。",
    "テストをもう一度実行して。",
)
"""Requests to do something."""
FACTS = {
    "On which port does the billing replica listen?": ("The billing replica listens on port 5433.", "5433"),
    "How many retries does the importer make?": ("The importer makes 22 retries, then it gives up.", "22 retries"),
    "Who reviews changes of the ledger?": ("Mirjam Okafor reviews every change of the ledger.", "Okafor"),
    "退款期限是多少天？": ("退款期限是收货后三十五天。", "三十五天"),
}
"""Questions, what was said about each in an earlier session, and the answer."""


def list_work(count: int) -> list[str]:
    """List what a person says in so many turns of work."""
    return [WORK[turn % len(WORK)].format(name=FILES[turn % len(FILES)]) for turn in range(count)]


def make_output(turn: int, name: str) -> str:
    """Make the output of a tool."""
    lines = [f"tests/test_{name}.py::test_case_{turn}_{line} PASSED" for line in range(12)]
    lines.append(f"{name}.py:{10 + turn}: note: read_{name}_rows skips rows without an amount")
    lines.append(f"=== {turn + 3} passed, {turn % 3} failed in {turn}.{turn % 7}1s ===")
    return "\n".join(lines)


def answer_work(turn: int) -> Iterator[dict[str, Any]]:
    """Make the messages that follow a request, in OpenAI's form: a call, its output and a reply."""
    name = FILES[turn % len(FILES)]
    arguments = f'{{"command": "pytest tests/test_{name}.py -q"}}'
    function = {"name": "bash", "arguments": arguments}
    call = {"id": f"call_{turn}", "type": "function", "function": function}
    yield {"role": "assistant", "content": None, "tool_calls": [call]}
    yield {"role": "tool", "tool_call_id": f"call_{turn}", "content": make_output(turn, name)}
    yield {"role": "assistant", "content": f"I changed {name}.py, and its tests pass now. The branch is ready."}


def make_earlier_session(turns: int) -> list[dict[str, Any]]:
    """Make an earlier session of the project: work, and the facts in between."""
    history: list[dict[str, Any]] = []
    facts = list(FACTS.values())
    for turn, request in enumerate(list_work(turns)):
        history.append({"role": "user", "content": request})
        history += answer_work(turn)
        if turn % 8 == 3 and facts:
            history.append({"role": "user", "content": facts.pop(0)[0]})
            history.append({"role": "assistant", "content": "I have noted that."})
    return history
