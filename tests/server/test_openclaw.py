"""The plugin for OpenClaw, called as OpenClaw calls it. `python -m benchmarks openclaw` runs it in the real host."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine
from holdfast.settings import Settings
from waiting import PATIENCE

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="there is no Node here")
PLUGIN = Path(str(resources.files("holdfast.hooks"))) / "openclaw" / "index.js"
BUDGET = 4_000
KEY = "agent:main:x"
FILLER = "The importer was looked at again, and its steps were written down for the review of the next week. "


class Host:
    """A process that has loaded the plugin."""

    def __init__(self, home: Path, command: str) -> None:
        assert NODE is not None
        self.home = home
        environ = {**os.environ, "HOLDFAST_HOME": str(home), "HOME": str(home)}
        environ["HOLDFAST_RECALL__DEADLINE_MS"] = "600000"  # a busy machine recalls what any other does
        self.process = subprocess.Popen(
            [NODE, str(Path(__file__).with_name("openclaw_host.mjs")), PLUGIN.as_uri(), command],
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
    opened = Host(tmp_path_factory.mktemp("memory"), str(Path(sys.executable).with_name("holdfast")))
    yield opened
    opened.close()


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
        assert "7391" not in text_of(asked.assemble("stranger", [], question))

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
        done = host.call("compact", **target, force=True, currentTokenCount=9_000, compactionTarget="budget")
        assert done["compacted"]
        assert host.assemble("refused", history, "Go on, please.")["estimatedTokens"] < before


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


def test_without_memory_the_host_goes_on(tmp_path: Path) -> None:
    """It says why in its log."""
    broken = Host(tmp_path, str(tmp_path / "nothing"))
    history = [say("user", "Hello there, importer.", 1)]
    assert broken.assemble("s", history, "Go on.")["messages"] == history
    assert "nothing" in broken.warnings[0]
    broken.close()
