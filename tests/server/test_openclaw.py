"""The plugin for OpenClaw, called as OpenClaw calls it. `python -m benchmarks openclaw` runs it in the real host."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from holdfast import Engine, providers
from holdfast.hooks.install import Installer
from holdfast.settings import Settings
from holdfast.tokens import count_messages
from support.failing_stores import FAULTS
from support.waiting import PATIENCE, until

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="there is no Node here")
BUDGET = 4_000
NEARLY_FULL = {"force": True, "currentTokenCount": 9_000, "compactionTarget": "budget"}
"""How OpenClaw compacts before a request that may become too long."""
REFUSED = {**NEARLY_FULL, "runtimeContext": {"trigger": "overflow"}}
"""And after one that the provider refused."""
KEY = "agent:main:x"
FILLER = "The importer was looked at again, and its steps were written down for the review of the next week. "


class Host:
    """A process that has loaded the plugin."""

    def __init__(self, home: Path, command: Sequence[str] = (), *, timeout_ms: int = 300_000) -> None:
        assert NODE is not None
        self.home = home
        state = {"OPENCLAW_STATE_DIR": str(home / "openclaw")}
        Installer("openclaw", records=home / "records", environ=state, command=command).install()
        plugin = home / "openclaw" / "extensions" / "holdfast" / "index.js"
        environ = {**os.environ, "HOLDFAST_HOME": str(home), "HOME": str(home)}
        environ["HOLDFAST_RECALL__DEADLINE_MS"] = "600000"  # a busy machine recalls what any other does
        self.process = subprocess.Popen(
            [NODE, str(Path(__file__).with_name("openclaw_host.mjs")), plugin.as_uri(), str(timeout_ms)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ,
        )
        self.warnings: list[str] = []

    def call(self, method: str, **params: Any) -> Any:
        """Make a call."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"method": method, "params": params}).encode() + b"\n")
        self.process.stdin.flush()
        data = json.loads(self.process.stdout.readline())
        self.warnings = data["warnings"]
        return data.get("answer")

    def assemble(
        self, session: str, messages: list[dict[str, Any]], prompt: str, *, is_first: bool = True, key: str = KEY
    ) -> Any:
        """Ask for the window of a request: the first of its turn, or one after a tool call."""
        limits = {"maxOutputTokens": 1_000} if is_first else {"promptTokenBudget": 8_000}
        return self.call(
            "assemble",
            sessionId=session,
            sessionKey=key,
            messages=messages,
            prompt=prompt,
            tokenBudget=BUDGET if is_first else 7_000,
            model="m1",
            runtimeSettings={"limits": limits},
        )

    def commit(self, session: str, messages: list[dict[str, Any]], turn: str, *, key: str = KEY) -> Any:
        """Commit a turn."""
        params = {"sessionId": session, "sessionKey": key, "messages": messages, "advancementKey": turn}
        return self.call("commitTurn", **params)

    def close(self) -> None:
        """End the process: nothing keeps it running."""
        with self.process:
            assert self.process.stdin is not None
            self.process.stdin.close()
            assert self.process.wait(PATIENCE) == 0

    def texts(self, session: str) -> list[str]:
        """Read what is archived."""
        with Engine.open(self.home, settings=Settings(), background=False) as engine:
            rows = engine.session(session, project="/work").get(list(range(1, 200)), across=False)
            return [row.message.text for row in rows]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Start a host for all tests; each has its own session."""
    host = Host(tmp_path_factory.mktemp("memory"))
    yield host
    host.close()


def say(role: str, text: str, time: int) -> dict[str, Any]:
    """Make a message of OpenClaw."""
    return {"role": role, "content": [{"type": "text", "text": text}], "timestamp": time}


def text_of(answer: Any) -> str:
    """Return the texts of a window."""
    return "\n".join(part["text"] for message in answer["messages"] for part in message["content"])


def converse(host: Host, session: str, turns: int, first: str) -> list[dict[str, Any]]:
    """Take turns that fill more than the window."""
    history: list[dict[str, Any]] = []
    for number in range(turns):
        host.call("turn")
        text = first if number == 0 else f"{number}. {FILLER * 14}"
        host.assemble(session, history, text)
        turn = [say("user", text, 2 * number + 1), say("assistant", f"Done with {number}. {FILLER}", 2 * number + 2)]
        assert host.commit(session, turn, f"{session}-{number}") == {"status": "committed"}
        history += turn
    return history


def test_its_sessions_have_its_name(host: Host) -> None:
    """The list of sessions shows where a conversation is from."""
    converse(host, "named", 1, "Which port?")
    with Engine.open(host.home, settings=Settings(), background=False) as engine:
        assert {one.host for one in engine.sessions() if one.id == "named"} == {"OpenClaw"}


class TestTurns:
    def test_what_left_the_window_is_before_the_question(self, host: Host) -> None:
        history = converse(host, "recalled", 12, "The staging database listens on port 6543.")
        answer = host.assemble("recalled", history, "Which port does the staging database listen on?")
        assert "6543" not in text_of({"messages": answer["messages"][:-1]})
        assert "6543" in text_of({"messages": answer["messages"][-1:]})
        assert answer["messages"][-1]["role"] == "user"
        assert "archive_search" in answer["systemPromptAddition"]
        assert host.warnings == []

    def test_a_question_is_archived_once(self, host: Host) -> None:
        converse(host, "once", 3, "Who signs off the review?")
        texts = host.texts("once")
        assert len(texts) == 6
        assert texts.count("Who signs off the review?") == 1

    def test_a_turn_that_is_committed_again_is_a_duplicate(self, host: Host) -> None:
        turn = [say("user", "The freeze starts on 14 December.", 1), say("assistant", "Noted.", 2)]
        answers = [host.commit("again", turn, "key")["status"] for _ in range(2)]
        assert answers == ["committed", "duplicate"]
        assert len(host.texts("again")) == 2

    def test_texts_of_the_host_are_not_archived(self, host: Host) -> None:
        own = [say("user", "(session bootstrap)", 1), say("user", "[Earlier messages are not shown.]", 2)]
        host.assemble("texts", [*own, say("assistant", "How can I help you today?", 3)], "Rename the importer, please.")
        assert host.texts("texts") == ["How can I help you today?"]

    def test_a_call_and_its_result_are_archived_once(self, host: Host) -> None:
        """OpenClaw shows them with another id and without details later."""

        def turn(number: str, **more: Any) -> list[dict[str, Any]]:
            call = {"type": "toolCall", "id": number, "name": "read", "arguments": {"path": "a.log"}}
            result = {**say("toolResult", "18213 keys", 3), "toolCallId": number, "toolName": "read", "isError": False}
            asked = {**say("assistant", "", 2), "content": [call], "stopReason": "toolUse"}
            return [say("user", "Read a.log", 1), asked, {**result, **more}, say("assistant", "Seen.", 4)]

        host.commit("ids", turn("call_1", details={"bytes": 10}), "ids")
        host.call("turn")
        host.assemble("ids", turn("call1"), "How many keys are there?")
        assert len(host.texts("ids")) == 4

    def test_later_requests_of_a_turn_get_the_same_window(self, host: Host) -> None:
        history = converse(host, "loop", 6, "The relay runs on host seven.")
        first = host.assemble("loop", history, "Where does the relay run?")
        again = host.assemble("loop", first["messages"], "Where does the relay run?", is_first=False)
        assert again == first

    @pytest.mark.parametrize(
        ("session", "key"), [("internal-session-effects-1", KEY), ("quiet", "agent:main:dashboard:incognito-1")]
    )
    def test_tasks_of_the_host_and_incognito_sessions_stay_out(self, host: Host, session: str, key: str) -> None:
        history = [say("user", f"{number}. {FILLER * 14}", number) for number in range(20)]
        answer = host.assemble(session, history, "Write a title.", key=key)
        assert answer["messages"] == history[-len(answer["messages"]) :]
        assert 0 < len(answer["messages"]) < 20
        host.commit(session, history, "title", key=key)
        assert host.texts(session) == []


class TestSubagents:
    """A subagent of another agent has a session of its own in the memory of its parent."""

    CHILD = "agent:research:subagent:1"

    @pytest.fixture
    def asked(self, host: Host) -> Host:
        """A host in which a parent has told a fact, and its subagent has found something."""
        host.assemble("parent", [], "Look into the mirror of the packages.", key=KEY)
        context = {"sessionId": "parent", "sessionKey": KEY, "workspaceDir": "/work"}
        host.call("archive_remember", context=context, values={"content": "The packages come from mirror Quokka."})
        host.call("prepareSubagentSpawn", parentSessionKey=KEY, childSessionKey=self.CHILD)
        host.call("turn")
        host.assemble("child", [], "Find the index.", key=self.CHILD)
        found = say("assistant", "The mirror of the packages keeps its index on host Wombat, port 7391.", 2)
        host.commit("child", [say("user", "Find the index.", 1), found], "child", key=self.CHILD)
        host.call("onSubagentEnded", childSessionKey=self.CHILD, reason="completed")
        return host

    def test_the_parent_recalls_what_it_found(self, asked: Host) -> None:
        assert len(asked.texts("child")) == 2
        asked.call("turn")
        question = "On which host and port is the index of the mirror of the packages?"
        assert "7391" in text_of(asked.assemble("parent", [], question))

    def test_it_sees_the_facts_of_its_parent(self, asked: Host) -> None:
        asked.call("turn")
        answer = asked.assemble("child", [], "From which mirror do the packages come?", key=self.CHILD)
        assert "Quokka" in text_of(answer)


class TestCompaction:
    def test_the_summary_replaces_older_messages(self, host: Host) -> None:
        history = converse(host, "compacted", 8, "The relay listens on port 7443.")
        target = {"sessionId": "compacted", "sessionKey": KEY, "tokenBudget": 8_000}
        done = host.call("compact", **target, force=True, compactionTarget="threshold")
        assert done["compacted"]
        assert done["result"]["tokensAfter"] < done["result"]["tokensBefore"]
        assert "7443" in done["result"]["summary"]
        host.call("turn")
        shown = text_of(host.assemble("compacted", history, "Go on, please."))
        assert done["result"]["summary"].split("\n")[0] in shown

    def test_the_window_is_smaller_after_one_that_was_refused(self, host: Host) -> None:
        history = converse(host, "refused", 8, "The relay is ready.")
        before = host.assemble("refused", history, "Go on, please.")["estimatedTokens"]
        target = {"sessionId": "refused", "sessionKey": KEY, "tokenBudget": 8_000}
        done = host.call("compact", **target, **REFUSED)
        assert done["compacted"]
        assert host.assemble("refused", history, "Go on, please.")["estimatedTokens"] < before

    def test_a_compaction_before_a_request_leaves_the_window_as_large_as_it_was(self, host: Host) -> None:
        """Also if it is made before every request: none of them was refused. A cut leaves more than a third of it."""
        history = converse(host, "nearly", 6, "The relay is ready.")
        target = {"sessionId": "nearly", "sessionKey": KEY, "tokenBudget": 8_000}
        done = [host.call("compact", **target, **NEARLY_FULL) for _ in range(6)]
        assert done[0]["compacted"]
        assert all(one["compacted"] or "already under target" in one["reason"] for one in done)
        for number in range(10):
            history += [say("user", f"{number}. {FILLER * 14}", 100 + number), say("assistant", "Done.", 100 + number)]
        host.call("turn")
        assert host.assemble("nearly", history, "Go on, please.")["estimatedTokens"] > BUDGET // 3

    def test_an_incognito_session_is_not_stopped_by_a_compaction(self, host: Host) -> None:
        """OpenClaw gives a turn up if a compaction before it fails."""
        target = {"sessionId": "quiet", "sessionKey": "agent:main:dashboard:incognito-1", "tokenBudget": 8_000}
        assert "already under target" in host.call("compact", **target, **NEARLY_FULL)["reason"]


class TestTools:
    def test_the_archive_is_searched_and_shown(self, host: Host) -> None:
        host.commit("tools", [say("user", "The budget for GPUs is 2,750 euros.", 1)], "tools")
        context = {"sessionId": "tools", "sessionKey": KEY, "workspaceDir": "/work"}
        found = host.call("archive_search", context=context, values={"query": "GPU budget"})["content"][0]["text"]
        number = int(found[1 : found.index("]")])
        shown = host.call("archive_get", context=context, values={"ids": [number]})["content"][0]["text"]
        assert shown == f"[{number}] user: The budget for GPUs is 2,750 euros."
        kept = host.call("archive_remember", context=context, values={"content": "GPUs cost 2,750 euros a month."})
        assert "2,750" in kept["content"][0]["text"]

    def test_what_left_the_window_is_described_and_shown(self, host: Host) -> None:
        """Messages that were removed, those that a summary replaced, and the output of a tool, word for word."""
        context = {"sessionId": "cuts", "sessionKey": KEY, "workspaceDir": "/work"}

        def use(tool: str, **values: Any) -> str:
            return str(host.call(tool, context=context, values=values)["content"][0]["text"])

        assert use("archive_describe") == "Nothing has left the window yet."
        history = [say("user", "Der Schlüssel liegt unter 植木鉢。", 1), say("assistant", "Noted.", 1)]
        for number in range(20):
            history += [say("user", f"{number}. {FILLER * 14}", 2 + number), say("assistant", "Done.", 2 + number)]
        host.commit("cuts", history, "cuts")
        host.assemble("cuts", history, "Go on, please.")
        described = use("archive_describe")
        assert "messages removed" in described
        assert "tokens (" in described
        number = int(re.findall(r"Cut (\d+), ", described)[0])
        shown = use("archive_expand", cut=number)
        start = re.search(r"start (\d+)\.$", shown)
        while start is not None:  # a call shows so much at a time
            more = use("archive_expand", cut=number, start=int(start[1]))
            shown += more
            start = re.search(r"start (\d+)\.$", more)
        assert f"1. {FILLER * 14}".strip() in shown
        target = {"sessionId": "cuts", "sessionKey": KEY, "tokenBudget": 8_000}
        assert host.call("compact", **target, **NEARLY_FULL)["compacted"]
        assert "replaced by a summary" in use("archive_describe", last=1)

    def test_the_output_of_a_tool_is_shown_whole(self, host: Host) -> None:
        call = {"type": "toolCall", "id": "c1", "name": "exec", "arguments": {"command": "make 测试"}}
        result = {"role": "toolResult", "toolCallId": "c1", "toolName": "exec", "isError": False, "timestamp": 3}
        messages = [
            say("user", "Run the tests.", 1),
            {**say("assistant", "", 2), "content": [call]},
            {**result, "content": [{"type": "text", "text": "two tests failed"}]},
        ]
        host.commit("outputs", messages, "outputs")
        context = {"sessionId": "outputs", "sessionKey": KEY, "workspaceDir": "/work"}
        found = host.call("archive_search", context=context, values={"query": "tests failed"})["content"][0]["text"]
        number = int(found[1 : found.index("]")])
        shown = host.call("archive_get", context=context, values={"ids": [number], "around": 1})["content"][0]["text"]
        assert "two tests failed" in shown
        assert "make 测试" in shown


def long_history(turns: int = 60) -> list[dict[str, Any]]:
    """A history of about five windows, with tool calls."""
    history: list[dict[str, Any]] = []
    for number in range(turns):
        call = {"type": "toolCall", "id": f"c{number}", "name": "read", "arguments": {"path": "a.log"}}
        result = {**say("toolResult", f"{number}. {FILLER}", 3), "toolCallId": f"c{number}", "toolName": "read"}
        history += [say("user", f"{number}. {FILLER * 3}", 1), {**say("assistant", "", 2), "content": [call]}, result]
        history.append(say("assistant", f"Done with {number}.", 4))
    return history


def require_window(answer: Any, history: list[dict[str, Any]]) -> None:
    """The newest messages are there, whole turns of them, and they fit."""
    kept = answer["messages"]
    assert kept
    assert kept == history[-len(kept) :]
    assert kept[0]["role"] == "user"
    assert BUDGET // 2 < count_messages(providers.read(kept, format="pi")) <= BUDGET
    assert answer["estimatedTokens"] <= BUDGET
    assert "promptAuthority" not in answer  # OpenClaw would check the size of the whole history


HANG = "import sys; sys.stdin.read()"
ANSWER = """
import json, os, sys
if os.path.exists(sys.argv[1]):
    sys.stdin.read()
for line in sys.stdin:
    window = {"messages": [], "block": "", "tokens": 0, "has_memory": True}
    print(json.dumps({"id": json.loads(line)["id"], "result": window}), flush=True)
"""
"""Answers as `holdfast rpc` does, unless a file existed when it started."""


class TestAMemoryThatFails:
    """In a session that is longer than its window."""

    COMMANDS: ClassVar = {"missing": ["/no/such/holdfast"], "hung": [sys.executable, "-c", HANG]}

    @pytest.mark.variants(first=True)
    @pytest.mark.parametrize("fault", sorted(COMMANDS))
    def test_without_a_process_the_newest_messages_stay(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
    ) -> None:
        """Two calls wait for it. Then one line says that it is not asked, and OpenClaw may compact by itself."""
        monkeypatch.setenv("HOLDFAST_PAUSE_MS", "3600000")
        history = long_history()
        host = Host(tmp_path, self.COMMANDS[fault], timeout_ms=300)
        assert host.call("info")["ownsCompaction"]
        assert host.call("bootstrap") == {"bootstrapped": False}
        require_window(host.assemble("s", history, "Go on."), history)
        assert [line for line in host.warnings if "2 times in a row" in line]
        assert not host.call("info")["ownsCompaction"]
        host.call("turn")
        for _ in range(3):
            host.call("turn")
            require_window(host.assemble("s", history, "Go on."), history)
            assert host.warnings == []
        assert host.commit("s", history[-4:], "key") == {"status": "committed"}  # else it would not be asked again
        host.close()

    def test_a_window_that_is_refused_is_made_smaller(self, tmp_path: Path) -> None:
        history = long_history()
        host = Host(tmp_path, self.COMMANDS["missing"], timeout_ms=300)
        before = host.assemble("s", history, "Go on.")
        target = {"sessionId": "s", "sessionKey": KEY, "tokenBudget": BUDGET}
        done = host.call("compact", **target, **REFUSED)
        assert done["compacted"]
        host.call("turn")
        after = host.assemble("s", history, "Go on.")
        assert after["estimatedTokens"] <= 0.75 * BUDGET < before["estimatedTokens"]
        host.close()

    def test_a_compaction_is_left_to_the_host(self, tmp_path: Path) -> None:
        """Here there is no OpenClaw that could do it, and the reason says so."""
        host = Host(tmp_path, self.COMMANDS["missing"], timeout_ms=300)
        target = {"sessionId": "s", "sessionKey": KEY, "tokenBudget": BUDGET}
        done = host.call("compact", **target, force=True, compactionTarget="threshold")
        assert not done["compacted"]
        assert "the host could not compact either" in done["reason"]
        assert "already under target" in host.call("compact", **target, **NEARLY_FULL)["reason"]
        host.close()

    def test_a_store_that_fails_is_not_an_error(self, tmp_path: Path) -> None:
        """The process answers with the newest messages that fit, and OpenClaw may compact until the store works."""
        history = long_history()
        host = Host(tmp_path)
        host.assemble("s", history[:8], "Go on.")
        assert host.call("info")["ownsCompaction"]
        with FAULTS["newer"](tmp_path):
            for _ in range(2):
                host.call("turn")
                answer = host.assemble("s", history, "Go on.")
                assert 0 < count_messages(providers.read(answer["messages"], format="pi")) <= BUDGET
                assert answer["messages"][-1]["content"] == history[-1]["content"]
                assert not host.call("info")["ownsCompaction"]
                turn = [say("user", "The relay is on port 7443.", 9), say("assistant", "Noted.", 10)]
                assert host.commit("s", turn, "missed") == {"status": "committed"}
        assert len(host.texts("s")) == 8
        turn = [say("user", "And the mirror on 7391.", 11), say("assistant", "Noted.", 12)]
        assert host.commit("other", turn, "next") == {"status": "committed"}
        assert host.texts("s")[-2:] == ["The relay is on port 7443.", "Noted."]  # kept, and sent with the next turn
        assert len(host.texts("s")) == 10
        host.call("turn")
        host.assemble("s", history, "Go on.")
        assert host.call("info")["ownsCompaction"]
        host.close()

    def test_after_the_store_was_deleted_the_next_request_fills_a_new_one(self, tmp_path: Path) -> None:
        """OpenClaw sends its whole history, and neither it nor its gateway has to be restarted."""
        history = long_history()[:100]
        host = Host(tmp_path)
        host.assemble("s", history[:8], "Go on.")
        for file in tmp_path.glob("holdfast.db*"):
            file.unlink()
        host.call("turn")
        answer = host.assemble("s", history, "Go on.")
        assert 0 < count_messages(providers.read(answer["messages"], format="pi")) <= BUDGET
        assert host.call("info")["ownsCompaction"]
        assert not host.warnings
        assert len(host.texts("s")) == len(history)
        host.close()

    def test_a_process_that_hung_is_replaced_after_the_pause(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One line says that memory answers."""
        monkeypatch.setenv("HOLDFAST_PAUSE_MS", "3000")
        (tmp_path / "hang").touch()
        history = long_history(10)
        host = Host(tmp_path, [sys.executable, "-I", "-S", "-c", ANSWER, str(tmp_path / "hang")], timeout_ms=300)
        for _ in range(2):
            host.call("turn")
            host.assemble("s", history, "Go on.")
        assert any("2 times in a row" in line for line in host.warnings)
        (tmp_path / "hang").unlink()

        lines: list[str] = []

        def is_back() -> bool:
            host.call("turn")
            lines.extend(host.warnings)  # a late answer may have come before this call
            host.assemble("s", history, "Go on.")
            lines.extend(host.warnings)
            return any("memory answers again" in line for line in lines)

        until(is_back)
        assert host.call("info")["ownsCompaction"]
        host.close()


def test_a_program_that_prints_other_lines_does_not_end_the_host(tmp_path: Path) -> None:
    """They are no answers."""
    host = Host(tmp_path, [sys.executable, "-c", "print('Welcome', flush=True); print('[1]', flush=True)"])
    history = [say("user", "Hello there, importer.", 1)]
    assert host.assemble("s", history, "Go on.")["messages"] == history
    host.close()
