"""Hooks before and after a compaction, in a program and in `holdfast chat`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from holdfast import Engine, Hooks
from holdfast.compaction.events import Compacted, Compacting, SummaryRequest, SummaryResult
from holdfast.errors import CompactionError, ModelCancelledError, SettingsError
from holdfast.settings import Compaction, Settings
from holdfast_agent.settings import load as load_settings
from support.agent_fixture import BASE, AgentFixture, talker
from support.chat_shell import Shell
from support.waiting import PATIENCE, UNHURRIED

LIMIT = 8_000


def conversation(turns: int = 30) -> list[dict[str, Any]]:
    """A conversation that is long enough to be compacted."""
    messages: list[dict[str, Any]] = []
    for number in range(turns):
        messages.append({"role": "user", "content": f"Look at module {number}. 请看模块。" + f"detail{number} " * 60})
        messages.append({"role": "assistant", "content": f"Module {number} is fine."})
    return messages


def open_engine(folder: Path, hooks: Hooks, *, seconds: int = 300) -> Engine:
    """Open an engine that compacts when it is asked to; a hook may take `seconds`."""
    compaction = Compaction(auto="off", timeout_seconds=seconds)
    settings = Settings(embedding=BASE.embedding, recall=UNHURRIED, compaction=compaction)
    return Engine.open(folder, settings=settings, hooks=hooks, background=False)


class TestListeners:
    """`before_compaction` and `after_compaction`."""

    def test_events_name_session_agent_project_counts_and_tokens(self, tmp_path: Path) -> None:
        """Before and after, in this order, whatever the listener takes."""
        heard: list[Compacting | Compacted] = []
        hooks = Hooks(listeners=[heard.append], workspace="/work", message_provider="irc")
        with open_engine(tmp_path, hooks) as engine:
            done = engine.session("s", project="shop", agent="coder").compact(conversation(), limit=LIMIT)
            hooks.wait(PATIENCE)
        gone, kept = len(done.plan.summarised), len(done.plan.kept)
        owner: dict[str, Any] = {
            "session": "s",
            "agent": "coder",
            "project": "shop",
            "workspace": "/work",
            "session_key": "s",
            "message_provider": "irc",
            "summarised": gone,
        }
        assert heard == [
            Compacting(**owner, messages=gone + kept, tokens=done.tokens_before),
            Compacted(**owner, messages=kept + 1, tokens_before=done.tokens_before, tokens_after=done.tokens_after),
        ]

    def test_a_slow_listener_does_not_delay_a_compaction(self, tmp_path: Path) -> None:
        """It still runs when the compaction is recorded; its failure is in the next report."""
        go, ended = Event(), Event()

        def slow(event: Compacting | Compacted) -> None:
            go.wait(PATIENCE)
            if isinstance(event, Compacted):
                ended.set()
            raise RuntimeError("slow and broken")

        hooks = Hooks(listeners=[slow])
        messages = conversation()
        with open_engine(tmp_path, hooks) as engine:
            engine.session("s").compact(messages, limit=LIMIT)
            assert [edit.kind for edit in engine.session("s").edits()] == ["compacted"]
            assert not ended.is_set()
            go.set()
            hooks.wait(PATIENCE)
            window = engine.session("s").assemble([*messages, {"role": "user", "content": "Go on."}], limit=LIMIT)
            assert "hook slow: RuntimeError('slow and broken')" in window.report.warnings


class TestSummary:
    """`session_before_compact`: the extension point."""

    def test_it_gets_instructions_and_returns_a_full_result(self, tmp_path: Path) -> None:
        """What it returns is the summary; its details stand over those found by rule."""
        asked: list[SummaryRequest] = []

        def mine(request: SummaryRequest) -> SummaryResult:
            asked.append(request)
            return SummaryResult(
                text="模块都看过了。 All modules were looked at.", details={"ticket": 7, "readFiles": ["a.py"]}
            )

        with open_engine(tmp_path, Hooks(summary=mine)) as engine:
            done = engine.session("s").compact(conversation(), limit=LIMIT, instructions="Mind the modules.")
        assert asked[0].instructions == "Mind the modules."
        assert not asked[0].cancel.is_set()
        assert asked[0].event.messages == len(asked[0].plan.summarised) + len(asked[0].plan.kept)
        shown = done.to_json()
        assert shown["summary"] == "模块都看过了。 All modules were looked at."
        assert shown["details"] == {"readFiles": ["a.py"], "modifiedFiles": [], "toolFailures": [], "ticket": 7}

    def test_it_may_cancel(self, tmp_path: Path) -> None:
        """Then nothing changes."""
        with open_engine(tmp_path, Hooks(summary=lambda _: SummaryResult(cancel=True))) as engine:
            with pytest.raises(CompactionError, match="cancelled the compaction"):
                engine.session("s").compact(conversation(), limit=LIMIT)
            assert engine.session("s").edits() == ()

    def test_a_cancelled_compaction_is_signalled_to_it(self, tmp_path: Path) -> None:
        """The user's cancel reaches the hook, which need not end by itself."""
        cancel, signalled = Event(), Event()

        def waits(request: SummaryRequest) -> None:
            cancel.set()
            if request.cancel.wait(PATIENCE):
                signalled.set()

        with open_engine(tmp_path, Hooks(summary=waits)) as engine:
            with pytest.raises(ModelCancelledError):
                engine.session("s").compact(conversation(), limit=LIMIT, cancel=cancel)
            assert engine.session("s").edits() == ()
        assert signalled.wait(PATIENCE)

    @pytest.mark.parametrize(
        ("answer", "seconds", "complaint"),
        [
            (lambda request: request.cancel.wait(PATIENCE) and None, 1, "not done after 1 s"),
            (lambda _: {"summary": "no"}, 300, "return a text, a SummaryResult"),
            (lambda _: SummaryResult(text="x", details={"bad": object()}), 300, "return a text, a SummaryResult"),
        ],
    )
    def test_without_a_usable_answer_the_engine_writes_it(
        self, tmp_path: Path, answer: Any, seconds: int, complaint: str
    ) -> None:
        """Too late, or of another kind: the warning says so."""
        with open_engine(tmp_path, Hooks(summary=answer), seconds=seconds) as engine:
            done = engine.session("s").compact(conversation(), limit=LIMIT)
        assert done.summary is not None
        assert done.summary.rung == "digest"
        assert any(complaint in warning for warning in done.warnings)


COMMAND = """\
import json, sys, time
time.sleep(0.3)
given = json.load(sys.stdin)
with open("heard.jsonl", "a") as out:
    out.write(json.dumps(given) + "\\n")
if given["event"] == "session_before_compact":
    print(json.dumps({"summary": "By a command.", "details": {"ticket": 7}}))
elif given["event"] == "after_compaction":
    sys.exit("it broke")
"""


class TestChat:
    """Hooks of `holdfast chat`."""

    def talk(self, shell: Shell) -> tuple[int, str, str]:
        """A conversation with a compaction."""
        lines = "".join(f"Step {number}. {'more words ' * 300}\n" for number in range(8))
        steps = ["filler words " * 300] * 8
        return shell.chat(f"{lines}/compact Mind the steps.\n", *steps, *["NO_REPLY"] * 8, window=200_000)

    def test_commands_of_the_users_settings_run(self, shell: Shell) -> None:
        """They read the events as JSON; the summary with its details is in the transcript; a failure is shown."""
        script = shell.folder / "hook.py"
        script.write_text(COMMAND)
        run = json.dumps(f"{sys.executable} {script}")
        shell.toml(f"[agent.hooks]\nbefore_compaction = [{run}]\nafter_compaction = [{run}]\nsummary = {run}\n")
        code, shown, output = self.talk(shell)
        assert code == 0
        assert "Compacted (" in shown
        assert "it broke" in output
        events = [json.loads(line) for line in (shell.folder / "here" / "heard.jsonl").read_text().splitlines()]
        found = {event["event"]: event for event in events}
        assert set(found) == {"before_compaction", "session_before_compact", "after_compaction"}
        for event in events:
            assert event["agentId"] == "main"
            assert event["workspaceDir"] == str(shell.folder / "here")
            assert event["sessionKey"] == "agent:main:main"
            assert event["messageProvider"] == "terminal"
            assert event["messageCount"] > 0
            assert event["tokenCount"] > 0
        assert found["session_before_compact"]["customInstructions"] == "Mind the steps."
        assert "Step 0" in json.dumps(found["session_before_compact"]["messagesToSummarize"])
        (transcript,) = (shell.folder / "home" / "agents" / "main" / "sessions").glob("*.jsonl")
        entry = next(
            entry for entry in map(json.loads, transcript.read_text().splitlines()) if entry["type"] == "compaction"
        )
        assert (entry["summary"], entry["fromHook"], entry["details"]["ticket"]) == ("By a command.", True, 7)
        asked = found["session_before_compact"]
        assert asked["firstKeptEntryId"] == entry["firstKeptEntryId"] != ""
        assert asked["tokensBefore"] == asked["tokenCount"]
        assert asked["settings"] == {"reserveTokens": 20_000}

    def test_functions_of_the_users_modules_run(self, shell: Shell) -> None:
        """`module:function` is imported; one that does not exist is an error that names the setting."""
        (shell.folder / "lib").mkdir()
        (shell.folder / "lib" / "my_seed_hooks.py").write_text(
            "heard = []\n"
            "def before(event):\n    heard.append(event)\n"
            "from holdfast.compaction.events import SummaryResult\n"
            "def cancels(request):\n    return SummaryResult(cancel=True)\n"
        )
        shell.patch.syspath_prepend(str(shell.folder / "lib"))
        shell.toml('[agent.hooks]\nbefore_compaction = ["my_seed_hooks:before"]\nsummary = "my_seed_hooks:cancels"\n')
        _, shown, _ = self.talk(shell)
        assert "Compaction skipped: hook cancels cancelled the compaction" in shown
        assert sys.modules["my_seed_hooks"].heard[0].workspace == str(shell.folder / "here")
        shell.toml('[agent.hooks]\nsummary = "my_seed_hooks:nothing"\n')
        code, _, output = shell.chat("Hello.\n", "Hi.")
        assert code == 1
        assert "hooks.summary: my_seed_hooks:nothing cannot be imported" in output

    def test_a_projects_file_cannot_set_them(self, shell: Shell) -> None:
        """What a cloned repository says is refused, and said."""
        here = shell.folder / "here"
        (here / "holdfast.toml").write_text('[agent.hooks]\nbefore_compaction = ["touch bad"]\nsummary = "touch bad"\n')
        code, _, output = self.talk(shell)
        assert code == 0
        assert "agent.hooks.before_compaction, agent.hooks.summary" in output
        assert not (here / "bad").exists()
        with pytest.raises(SettingsError, match="hooks"):
            load_settings(environ={}, agent={"hooks": {"during": "x"}})


def test_a_desk_agent_reports_the_failure_of_a_hook(tmp_path: Path) -> None:
    """The user of a conversation sees it as a notice."""

    def broken(_: object) -> None:
        raise RuntimeError("no")

    fixture = AgentFixture(tmp_path)
    agent = fixture.agent(talker(lambda _: "filler words " * 300), hooks=Hooks(listeners=[broken]))
    for number in range(8):
        agent.say(f"Step {number}. " + "more words " * 300)
    agent.compact()
    agent.close()
    assert fixture.view.notices.count("hook broken: RuntimeError('no')") == 2
