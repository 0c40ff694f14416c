"""What tools teach: commands that worked after failing, and what was changed for it."""

from __future__ import annotations

from typing import Any

import pytest

from fact_talk import SCOPE, rows, shell
from holdfast.memory.rules import drafts
from holdfast.messages import Message, Text, ToolCall, ToolResult
from holdfast.store.base import MessageRow


def test_a_command_that_worked_after_another_had_failed() -> None:
    """The working form is kept with the failing one and its error."""
    talk = [
        *shell(1, "npm test", "Error: no display\nexit code: 1", failed=True),
        *shell(3, "npm test --runInBand", "ok"),
    ]
    (found,) = drafts(talk)
    assert found.type == "implementation"
    assert found.content == "`npm test --runInBand` works; `npm test` failed: Error: no display"
    assert found.evidence == (2, 4)
    assert found.quote == "Error: no display"


def test_what_was_changed_until_it_worked() -> None:
    """The same command, failing and then passing, is tied to the files that were edited between."""
    talk = [
        *shell(1, "pytest tests/a.py", "ImportError: cannot import name 'x'\nexited with code 2"),
        *shell(3, "src/x.py", "written", tool="edit", key="path"),
        *shell(5, "pytest tests/a.py", "1 passed"),
    ]
    (found,) = drafts(talk)
    assert found.type == "issue"
    assert "passed after changing `src/x.py`" in found.content
    assert "ImportError" in found.content


def test_it_is_told_in_the_language_of_the_user() -> None:
    """A Chinese conversation gets a Chinese sentence."""
    talk = [*rows("请运行测试并修复问题"), *shell(2, "make", "错误：缺少规则", failed=True), *shell(4, "make -k", "好")]
    (found,) = drafts(talk)
    assert found.content == "`make -k` 可以运行；`make` 失败: 错误：缺少规则"


@pytest.mark.parametrize(
    ("first", "second", "failed"),
    [
        ("grep -n x a.py", "grep -n y a.py", True),  # nothing found is no failure
        ("npm test", "npm publish --tag next", True),  # another thing
        ("npm test", "npm test | tail", True),  # of a pipe nobody knows which part succeeded
        ("npm test", "npm test", True),  # it just worked the second time
        ("npm test", "npm test -v", False),  # the first one had not failed
    ],
)
def test_what_teaches_nothing(first: str, second: str, *, failed: bool) -> None:
    """A lesson needs a failure, and a success of the same thing that differs in something."""
    assert drafts([*shell(1, first, "no", failed=failed), *shell(3, second, "ok")]) == []


def test_a_command_that_was_called_off_did_not_fail() -> None:
    """An abort by the user says nothing about the command."""
    assert drafts([*shell(1, "make all", "Command aborted", failed=True), *shell(3, "make all -j", "ok")]) == []


@pytest.mark.parametrize("arguments", ['{"cmd": ["bash", "-lc", "make %s"]}', "make %s", "[1]", {"command": 7}])
def test_arguments_of_any_shape_are_read(arguments: Any) -> None:
    """A list, JSON text and what is neither: read where it can be, left alone where not."""
    talk = []
    for number, (flag, output) in enumerate((("-x", "error: no"), ("-x -k", "ok"))):
        filled = arguments % flag if isinstance(arguments, str) and "%s" in arguments else arguments
        call = ToolCall(id=str(number), name="shell", arguments=filled)
        result = ToolResult(call_id=str(number), content=(Text(text=output),), is_error=number == 0)
        for place, (role, part) in enumerate((("assistant", call), ("tool", result))):
            message = Message(role=role, parts=(part,))  # type: ignore[arg-type]  # the roles above
            talk.append(MessageRow(scope=SCOPE, message=message, id=number * 2 + place + 1))
    assert len(drafts(talk)) == (1 if isinstance(arguments, str) and "cmd" in arguments else 0)
