"""Tests of `holdfast.compaction.tool_calls`."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.compaction.tool_calls import PlanStep, find_activity, find_command, only_reads
from holdfast.messages import Message, ToolCall
from support.cases import each
from support.conversations import answer, call, reply, results, user


def done(name: str, text: str = "ok", *, is_error: bool = False, number: int = 1, **arguments: Any) -> list[Message]:
    """A call and its answer."""
    return [reply("", call(f"c{number}", name, **arguments)), results(answer(f"c{number}", text, is_error=is_error))]


@each(
    ("name", "arguments", "read", "modified"),
    [
        ("read", {"path": "a.py"}, ["a.py"], []),
        ("Read", {"file_path": "/srv/a.py"}, ["/srv/a.py"], []),
        ("mcp__files__read_file", {"path": "a.py"}, ["a.py"], []),
        ("Edit", {"file_path": "a.py", "new_string": "x"}, [], ["a.py"]),
        ("functions.write_file", {"filename": "a.py"}, [], ["a.py"]),
        ("str_replace_editor", {"command": "view", "path": "a.py"}, ["a.py"], []),
        ("str_replace_based_edit_tool", {"command": "create", "path": "a.py"}, [], ["a.py"]),
        ("shell", {"command": ["apply_patch", "*** Begin Patch\n*** Update File: a.py\n@@"]}, [], ["a.py"]),
        ("apply_patch", {"input": "*** Add File: 新文件.py\n+x"}, [], ["新文件.py"]),
        ("search", {"path": "src"}, [], []),
        ("bash", {"command": "ls"}, [], []),
    ],
)
def test_file_operations(name: str, arguments: dict[str, Any], read: list[str], modified: list[str]) -> None:
    """Files are known by the tools of many agents, and by what a patch names."""
    found = find_activity(done(name, **arguments))
    assert list(found.read) == read
    assert list(found.modified) == modified


def test_a_file_that_was_changed_is_not_listed_as_read() -> None:
    """Changed counts more than read, and what failed was not done."""
    messages = [
        *done("read", path="a"),
        *done("edit", path="a", number=2),
        *done("write", "no", is_error=True, path="b"),
    ]
    found = find_activity(messages)
    assert found.read == ()
    assert found.modified == ("a",)


def test_arguments_that_are_no_object_are_read_as_text() -> None:
    """A patch in broken arguments still names its files."""
    broken = ToolCall(id="c", name="apply_patch", arguments="*** Update File: a.py\n{")
    found = find_activity([Message(role="assistant", parts=(broken,)), results(answer("c"))])
    assert found.modified == ("a.py",)


def test_failures_have_the_call_and_its_output() -> None:
    """A failure has the command, its exit code, and the telling lines of a long output."""
    output = "collecting\n" * 50 + "E   AssertionError: bad signature\n" + "more\n" * 50 + "exit code 2"
    failure = find_activity(done("bash", output, is_error=True, command="pytest -q")).failures[0]
    assert failure.tool == "bash"
    assert failure.status == 2
    assert str(failure).startswith("pytest -q [exit 2]: ")
    assert "bad signature" in failure.text
    assert len(failure.text) <= 240


def test_an_exit_code_in_the_output_is_a_failure_too() -> None:
    """Where the format does not mark errors, a code other than 0 does, in any language we know."""
    noise = "x" * 200
    assert find_activity(done("shell", f'{noise} {{"exit_code":1}}', command="make")).failures[0].status == 1
    assert find_activity(done("shell", f"{noise}\n退出码：127", command="make")).failures[0].status == 127
    assert find_activity(done("shell", f"{noise}\nexit code: 0", command="make")).failures == ()


def test_a_search_without_a_hit_is_no_failure() -> None:
    """Grep ends with 1 where it finds nothing: no one has to remember that."""
    found = find_activity(done("bash", "exit code 1", is_error=True, command='grep -n "a|b" src | head -3'))
    assert found.failures == ()


def test_a_failure_that_was_made_good_is_none() -> None:
    """The same call that later goes well, or another one on the same file, settles it; what fails again counts once."""
    messages = [
        *done("bash", "boom", is_error=True, command="make"),
        *done("edit", "no match", is_error=True, path="a", old="x"),
        *done("bash", "bang", is_error=True, command="deploy"),
        *done("bash", "fine", command="make"),
        *done("edit", "ok", path="a", old="y"),
        *done("bash", "bang again", is_error=True, command="deploy"),
    ]
    assert [failure.text for failure in find_activity(messages).failures] == ["bang again"]


def test_a_command_may_be_any_json() -> None:
    """Arguments of tools that are not ours may have any type."""
    activity = find_activity(done("run", command=[{"program": "make"}, 1]))
    assert activity.commands == ("{'program': 'make'} 1",)


def test_a_failure_without_output_is_reported() -> None:
    """The summary names the failed call even if there is no message to quote."""
    assert find_activity(done("deploy", "", is_error=True, to="prod")).failures[0].text == "failed without output"


def test_only_calls_of_the_last_turn_are_pending() -> None:
    """What was never answered before the user spoke again was given up."""
    old = reply("", call("old", "bash", command="sleep 99"))
    messages = [user("a"), old, user("b"), reply("", call("new", "bash", command="make"))]
    assert find_activity(messages).pending == ('bash(command="make")',)


def test_jobs_in_the_background_are_listed() -> None:
    """A job that runs on is listed as such, not as a command."""
    found = find_activity(done("Bash", "started", command="npm run dev", run_in_background=True))
    assert len(found.background) == 1
    assert found.commands == ()


def test_commands_that_change_something_are_kept_once_where_they_ran_last() -> None:
    """Looking around is not worth a line."""
    messages = [
        *done("bash", command="make build"),
        *done("bash", command="cd src && ls | head"),
        *done("bash", command="git commit -m 'x'"),
        *done("bash", command="make build"),
        *done("shell", command=["bash", "-lc", "npm test"]),
        *done("shell", command=["uv", "sync"]),
        *done("shell", command=42),
    ]
    assert find_activity(messages).commands == ("git commit -m 'x'", "make build", "npm test", "uv sync")


@pytest.mark.parametrize(
    ("line", "looks"),
    [
        ("grep -rn 'a > b' src", True),
        ("cat a 2>/dev/null | head", True),
        ("cat a > b", False),
        ("sed -i s/a/b/ c", False),
        ("find . -delete", False),
        ("ls; rm x", False),
    ],
)
def test_reading_is_distinguished_from_changing(line: str, looks: bool) -> None:  # noqa: FBT001 - a table
    """Pipes, redirections and quotes are understood as far as words tell."""
    assert only_reads(line) is looks
    assert bool(find_command(call("c", "bash", command=line))) is not looks


def test_the_plan_as_it_was_last_written_down() -> None:
    """To-do lists of any agent are read: objects with a state and a text."""
    first = [{"content": "a", "status": "pending"}]
    last = [{"step": "b", "status": "completed"}, {"step": "c", "status": "in_progress"}]
    messages = [
        *done("TodoWrite", todos=first),
        *done("update_plan", plan=last),
        *done("x", rows=[{"a": 1}], tags=["t"]),
    ]
    assert find_activity(messages).steps == (
        PlanStep(text="b", status="completed"),
        PlanStep(text="c", status="in_progress"),
    )


def test_an_id_that_is_used_again_takes_the_next_result() -> None:
    """Some agents count their calls again in each turn."""
    messages = [*done("bash", "boom", is_error=True, command="make"), *done("bash", "fine", command="test")]
    found = find_activity(messages)
    assert [failure.about for failure in found.failures] == ["make"]
    assert found.commands == ("test",)
