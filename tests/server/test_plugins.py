"""The plugins of pi and OpenCode while memory fails, and the JavaScript that all plugins share."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import Engine, providers
from holdfast.hooks.install import Installer
from holdfast.providers import check
from holdfast.tokens import count_messages
from support.failing_stores import FAULTS
from support.strategies import examples
from support.waiting import PATIENCE, until

NODE = shutil.which("node")
pytestmark = [
    pytest.mark.skipif(NODE is None, reason="there is no Node here"),
    pytest.mark.usefixtures("words_only"),
]
LIMIT = 8_000
WORDS = "The importer was looked at again, and its steps were written down for the next week. "
COMMANDS = {"missing": ["/no/such/python", "-I"], "hung": [sys.executable, "-c", "import sys; sys.stdin.read()"]}
HOSTS = {
    "pi": ("PI_CODING_AGENT_DIR", "extensions/holdfast.js"),
    "opencode": ("OPENCODE_CONFIG_DIR", "plugins/holdfast.js"),
}
"""The variable that names the folder of each host, and the plugin in it."""


@contextmanager
def run_host(
    name: str, home: Path, command: Sequence[str] = (), *, timeout: str = "", pause: str = "3600000", ui: str = "yes"
) -> Iterator[Any]:
    """Run the stand-in of a host with the plugin installed; yields a function that asks for a window."""
    assert NODE is not None
    variable, plugin = HOSTS[name]
    Installer(name, records=home / "records", environ={variable: str(home / "host")}, command=command).install()
    script = Path(__file__).with_name(f"{name}_host.mjs")
    timeout = timeout or ("300" if command else "300000")
    times = {"HOLDFAST_TIMEOUT_MS": timeout, "HOLDFAST_PAUSE_MS": pause, "PI_HOST_UI": ui}
    environ = {**os.environ, **times, "HOLDFAST_HOME": str(home / "memory"), "HOME": str(home)}
    with subprocess.Popen(
        [NODE, str(script), (home / "host" / plugin).as_uri()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environ,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps({"messages": messages, "limit": LIMIT}).encode() + b"\n")
            process.stdin.flush()
            data = json.loads(process.stdout.readline())
            return data["messages"], data["warnings"]

        yield ask
        process.stdin.close()
        assert process.wait(300) == 0


def say(role: str, text: str) -> dict[str, Any]:
    """A message of pi."""
    return {"role": role, "content": [{"type": "text", "text": text}]}


def use_tool(number: str, output: str) -> list[dict[str, Any]]:
    """A call and its result, as pi writes them."""
    call = {"type": "toolCall", "id": f"c{number}", "name": "read", "arguments": {"path": f"{number}.log"}}
    result = {**say("toolResult", output), "toolCallId": f"c{number}", "toolName": "read"}
    return [{"role": "assistant", "content": [call]}, result]


def long_history() -> list[dict[str, Any]]:
    """A session of about two windows that ends in the middle of a turn."""
    history: list[dict[str, Any]] = []
    for number in range(40):
        history += [say("user", f"{number}. {WORDS * 3}"), *use_tool(f"{number}", WORDS * 10)]
        history.append(say("assistant", f"Done with {number}."))
    return [*history, say("user", "Read the last log."), *use_tool("last", "18213 keys")]


@pytest.mark.variants
@pytest.mark.parametrize("name", sorted(HOSTS))
@pytest.mark.parametrize("fault", sorted(COMMANDS))
def test_without_a_process_the_newest_messages_stay(tmp_path: Path, name: str, fault: str) -> None:
    """Two calls wait for it. Then one line says that it is not asked, and no other line comes."""
    history = long_history()
    lines: list[str] = []
    with run_host(name, tmp_path, COMMANDS[fault]) as ask:
        for _ in range(4):
            messages, warnings = ask(history)
            lines += warnings
            assert LIMIT // 3 < count_messages(providers.read(messages, format="pi")) <= LIMIT
            assert messages == history[-len(messages) :]
            assert messages[0]["role"] == "user"
        assert len([line for line in lines if "2 times in a row" in line]) == 1
        assert len(lines) <= 2
        assert not warnings


@pytest.mark.variants
@pytest.mark.parametrize("name", sorted(HOSTS))
@pytest.mark.parametrize("fault", sorted(COMMANDS))
def test_memory_that_goes_on_failing_is_reported_once(tmp_path: Path, name: str, fault: str) -> None:
    """It is asked again after every pause, and no other line comes."""
    lines: list[str] = []
    with run_host(name, tmp_path, COMMANDS[fault], pause="1") as ask:
        for _ in range(5):
            lines += ask([say("user", "Read the last log.")])[1]
    assert len(lines) == 2
    assert "2 times in a row" in lines[1]


@pytest.mark.variants(first=True)
@pytest.mark.parametrize("fault", sorted(COMMANDS))
def test_without_a_screen_pi_prints_it(tmp_path: Path, fault: str, capfd: pytest.CaptureFixture[str]) -> None:
    """On standard error, next to the reply."""
    with run_host("pi", tmp_path, COMMANDS[fault], ui="none") as ask:
        for _ in range(4):
            assert ask([say("user", "Read the last log.")])[1] == []
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("holdfast: memory failed 2 times in a row")


@pytest.mark.variants(first=True)
@pytest.mark.parametrize("name", sorted(HOSTS))
def test_a_host_that_ends_does_not_wait_for_a_process_that_hangs(tmp_path: Path, name: str) -> None:
    """The process goes on alone: it is still there when the host has ended."""
    pids = tmp_path / "pids"
    wait = f"import os, time; open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(600)"
    with run_host(name, tmp_path, [sys.executable, "-c", wait], timeout="300000") as ask:
        ask([])  # starts it, and calls nothing
        until(lambda: pids.exists() and pids.read_text().endswith("\n"))
    (pid,) = map(int, pids.read_text().split())
    os.kill(pid, signal.SIGKILL)  # an error if it has ended


@pytest.mark.variants(first=True)
@pytest.mark.parametrize("name", sorted(HOSTS))
def test_a_store_that_fails_keeps_the_limit(tmp_path: Path, name: str) -> None:
    """The process answers, without the store."""
    history = long_history()
    with run_host(name, tmp_path) as ask:
        ask(history[:4])
        with FAULTS["newer"](tmp_path / "memory"):
            messages, _ = ask(history)
        assert count_messages(providers.read(messages, format="pi")) <= LIMIT
        assert [one["content"] for one in messages[-3:]] == [one["content"] for one in history[-3:]]


@pytest.mark.variants(first=True)
@pytest.mark.parametrize("name", sorted(HOSTS))
def test_a_deleted_store_is_replaced_while_the_host_runs(tmp_path: Path, name: str) -> None:
    """The next request brings the whole history to a new one."""
    history = long_history()
    with run_host(name, tmp_path) as ask:
        ask(history[:4])
        for file in (tmp_path / "memory").glob("holdfast.db*"):
            file.unlink()
        messages, warnings = ask(history)
        assert count_messages(providers.read(messages, format="pi")) <= LIMIT
        assert not warnings
    with Engine.open(tmp_path / "memory", background=False) as engine:
        assert sum(info.messages for info in engine.sessions()) == len(history)


def test_a_host_that_ends_at_once_does_not_wait_for_a_program_that_is_missing(tmp_path: Path) -> None:
    """It was never started, so that no event says that it has ended."""
    assert NODE is not None
    Installer("pi", records=tmp_path / "records", environ={"PI_CODING_AGENT_DIR": str(tmp_path)}).install()
    code = """
        const { Memory } = await import(process.argv[1]);
        const memory = new Memory({ command: "/no/such/holdfast" });
        memory.call("ping", {}).catch(() => {});
        await memory.close();
        console.log("closed");
    """
    module = tmp_path / "extensions" / "holdfast" / "memory.js"
    command = [NODE, "--input-type=module", "-e", code, module.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout == "closed\n"


# --- the newest messages that fit ------------------------------------------------------

FIT = """
import { createInterface } from "node:readline";
const { newestThatFit, estimateTokens } = await import(process.argv[1]);
for await (const line of createInterface({ input: process.stdin })) {
  const { messages, budget, questionFollows } = JSON.parse(line);
  const newest = newestThatFit(messages, budget, { questionFollows });
  console.log(JSON.stringify({ newest, tokens: newest.map(estimateTokens) }));
}
"""


@pytest.fixture(scope="module")
def fit() -> Iterator[Any]:
    """A function that asks the JavaScript for the newest messages that fit."""
    assert NODE is not None
    module = Path(__file__).parents[2] / "src" / "holdfast" / "hooks" / "newest.js"
    command = [NODE, "--input-type=module", "-e", FIT, module.as_uri()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:

        def ask(messages: list[dict[str, Any]], budget: int, *, question_follows: bool = False) -> list[dict[str, Any]]:
            assert process.stdin is not None
            assert process.stdout is not None
            request = {"messages": messages, "budget": budget, "questionFollows": question_follows}
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            newest: list[dict[str, Any]] = json.loads(process.stdout.readline())["newest"]
            return newest

        yield ask
        assert process.stdin is not None
        process.stdin.close()


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Turns with tool calls, some in parallel, some with a user message between call and result."""
    history: list[dict[str, Any]] = []
    texts = st.sampled_from(["word ", "日本語の長い文章。", "line of output\n"])
    for number in range(draw(st.integers(1, 8))):
        history.append(say("user", f"Request {number}: " + draw(texts) * draw(st.sampled_from([1, 60]))))
        for step in range(draw(st.integers(0, 3))):
            names = [f"{number}.{step}.{index}" for index in range(draw(st.integers(1, 2)))]
            made = [use_tool(name, draw(texts) * draw(st.sampled_from([1, 100, 400]))) for name in names]
            history.append({"role": "assistant", "content": [call["content"][0] for call, _ in made]})
            results = [result for _, result in made]
            if draw(st.integers(0, 4)) == 0:
                results.insert(1, say("user", "Request in between: stop it."))
            history += results
        history.append(say("assistant", f"Answer {number}."))
    return history[: len(history) - draw(st.integers(0, 1))]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories(), budget=st.sampled_from([1_500, 3_000, 100_000]), question_follows=st.booleans())
def test_what_is_kept_fits_and_is_valid(
    fit: Any,
    history: list[dict[str, Any]],
    budget: int,
    question_follows: bool,  # noqa: FBT001 - drawn
) -> None:
    """Whole units in their order, from a message of the user on, with the last request unless the question follows."""
    newest = fit(history, budget, question_follows=question_follows)
    assert count_messages(providers.read(newest, format="pi")) <= budget
    assert not newest or newest[0]["role"] == "user"
    assert not newest or check(newest, "pi") == []
    calls = [part["id"] for one in newest if one["role"] == "assistant" for part in one["content"] if "id" in part]
    results = [one["toolCallId"] for one in newest if one["role"] == "toolResult"]
    known = [one["toolCallId"] for one in history if one["role"] == "toolResult"]
    assert set(results) == set(calls) & set(known)
    if budget == 100_000:
        assert newest == history
    if not question_follows:
        assert [one for one in history if one["role"] == "user"][-1] in newest


def test_the_beginning_stays_while_a_history_grows(fit: Any) -> None:
    """Cuts go in steps, so that the provider's cache holds between them."""
    history = long_history()
    starts = []
    for _ in range(30):
        history += [say("assistant", "Yes."), say("user", "Go on, please. " + WORDS)]
        starts.append(json.dumps(fit(history, LIMIT)[0]))
    assert 1 <= len(set(starts)) <= 6


def test_an_oversized_result_is_shortened(fit: Any) -> None:
    """The last request and its call stay."""
    history = [say("user", "Read it."), *use_tool("big", "line of output\n" * 5_000)]
    newest = fit(history, 2_000)
    assert [one["role"] for one in newest] == ["user", "assistant", "toolResult"]
    assert "line of output" in newest[2]["content"][0]["text"]
    assert count_messages(providers.read(newest, format="pi")) <= 2_000


def test_a_summary_of_the_host_stays(fit: Any) -> None:
    """It stands for what the host has dropped."""
    summary = {"role": "compactionSummary", "summary": "We moved the importer.", "tokensBefore": 9, "timestamp": 1}
    newest = fit([summary, *long_history()], 3_000)
    assert newest[0] == summary
    assert newest[1]["role"] == "user"
