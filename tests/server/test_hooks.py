"""Hook events, as Claude Code sends them, through the command that it runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import Engine
from holdfast.hooks.handlers import MAX_HOSTS, MAX_REPLY_TRIES, HostHooks
from holdfast.memory.memory import Memory
from holdfast.messages import Message, Text
from holdfast.models.scripted import Scripted
from holdfast.server.process import find
from holdfast.settings import Archive, Embedding, Recall, Settings
from holdfast.store.base import Scope, Select
from support.forked import run_holdfast
from support.full_disk import largest_file
from support.hook_host import Host
from support.learning_model import count_extractions, depot_model
from support.waiting import UNHURRIED, stop_server, until

pytestmark = pytest.mark.usefixtures("words_only")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """A host whose server is stopped at the end."""
    monkeypatch.setenv("HOLDFAST_RECALL__DEADLINE_MS", "600000")  # the machine may be busy
    monkeypatch.setenv("HOLDFAST_TIMEOUT_MS", "600000")
    one = Host(tmp_path)
    yield one
    stop_server(one.home)


def test_a_conversation_through_a_compaction(host: Host) -> None:
    """What the window shows is not recalled; what a compaction removed is, and its details are put back."""
    host.run("SessionStart", source="startup")
    until(lambda: find(host.home))
    assert host.run("UserPromptSubmit", prompt="Where does the billing replica listen?") == ""
    host.write("user", "The billing replica listens on port 5433, say the operators.")
    host.write("assistant", "I will use port 5433 for the billing replica.")
    host.run("Stop")
    assert host.run("UserPromptSubmit", prompt="Where does the billing replica listen?") == ""
    host.write("user", "Deploy commit 4f9c2ab7e1 to /srv/billing/app.toml now.")
    host.write("assistant", "Deployed 4f9c2ab7e1.")
    host.run("Stop")
    host.run("PreCompact", trigger="manual")
    host.write("user", "We worked on several things.", isCompactSummary=True)
    back = host.run("SessionStart", source="compact")
    assert "4f9c2ab7e1" in back
    assert "5433" in host.run("UserPromptSubmit", prompt="Where does the billing replica listen?")


def test_a_new_session_gets_an_overview_of_the_project(tmp_path: Path) -> None:
    """So does one that was compacted; a cleared one gets it with its first prompt, a resumed one has it already."""
    host = Host(tmp_path)
    host.write("user", "The billing replica listens on port 5433, say the operators.")
    host.write("assistant", "The replica is configured for port 5433 now.")
    with Engine.open(host.home, settings=Settings(recall=UNHURRIED), background=False, personal=True) as engine:
        hooks = HostHooks(engine._memory)
        assert hooks.handle(host.payload("SessionStart", source="startup")) == {}
        hooks.handle(host.payload("Stop"))
        started = hooks.handle(host.payload("SessionStart", source="startup", session_id="s2"))
        assert hooks.handle(host.payload("SessionStart", source="clear", session_id="s2")) == {}
        cleared = hooks.handle(host.payload("UserPromptSubmit", prompt="Look at the importer.", session_id="s2"))
        for output in (started, cleared):
            context = output["hookSpecificOutput"]["additionalContext"]
            assert "<project-overview>" in context
            assert "The replica is configured for port 5433 now." in context
        assert hooks.handle(host.payload("SessionStart", source="resume", session_id="s2")) == {}
        other = hooks.handle(host.payload("SessionStart", source="startup", session_id="s3", cwd="/srv/blog"))
        assert other == {}
        engine._memory.ingest([Message(role="user", parts=(Text(text=context),))], scope=Scope(session="s4"))
        assert engine._memory.store.read_messages(Select(scope=Scope(session="s4"))) == []


def test_an_overview_is_no_larger_than_a_block(tmp_path: Path) -> None:
    """If the settings allow no block at all, there is no overview either, at the start or with the first prompt."""
    host = Host(tmp_path)
    host.write("user", "计费副本监听端口 5433。")
    host.write("assistant", "The replica is configured for port 5433 now.")
    none = Settings(recall=Recall(hard_cap_tokens=0))
    with Engine.open(host.home, settings=none, background=False, personal=True) as engine:
        hooks = HostHooks(engine._memory)
        hooks.handle(host.payload("Stop"))
        new = {"session_id": "s2", "transcript_path": ""}
        assert hooks.handle(host.payload("SessionStart", source="startup", **new)) == {}
        assert hooks.handle(host.payload("UserPromptSubmit", prompt="计费副本监听哪个端口？", **new)) == {}


def test_the_first_prompt_gets_the_overview_that_the_start_missed(tmp_path: Path) -> None:
    """The server may still be starting when the session does; later prompts get no overview."""
    host = Host(tmp_path)
    host.write("user", "The billing replica listens on port 5433, say the operators.")
    host.write("assistant", "The replica is configured for port 5433 now.")
    with Engine.open(host.home, settings=Settings(recall=UNHURRIED), background=False, personal=True) as engine:
        hooks = HostHooks(engine._memory)
        hooks.handle(host.payload("Stop"))
        new = {"session_id": "s2", "transcript_path": ""}
        output = hooks.handle(host.payload("UserPromptSubmit", prompt="Rename the folder.", **new))
        assert "<project-overview>" in output["hookSpecificOutput"]["additionalContext"]
        output = hooks.handle(host.payload("UserPromptSubmit", prompt="Rename it back.", **new))
        assert "<project-overview>" not in json.dumps(output)
        hooks.handle(host.payload("SessionStart", source="startup", **{**new, "session_id": "s3"}))
        output = hooks.handle(host.payload("UserPromptSubmit", prompt="Rename it.", **{**new, "session_id": "s3"}))
        assert "<project-overview>" not in json.dumps(output)


QUESTION = "Where does the billing replica listen?"


def test_a_compaction_inside_a_turn(tmp_path: Path) -> None:
    """The prompt of the turn is recalled for once more: the compaction has removed what the window showed."""
    host = Host(tmp_path)
    host.write("user", "The billing replica listens on port 5433, say the operators.")
    host.write("assistant", "I will use port 5433 for the billing replica.")
    with Engine.open(host.home, settings=Settings(recall=UNHURRIED), background=False) as engine:
        hooks = HostHooks(engine._memory)
        assert hooks.handle(host.payload("UserPromptSubmit", prompt=QUESTION)) == {}
        hooks.handle(host.payload("PreCompact", trigger="auto"))
        output = hooks.handle(host.payload("SessionStart", source="compact", compact_summary="Several things."))
        assert "5433" in output["hookSpecificOutput"]["additionalContext"]
        assert hooks.handle(host.payload("UserPromptSubmit", prompt="")) == {}


def test_a_request_that_gemini_compressed_gets_what_it_lost(tmp_path: Path) -> None:
    """The request is compared with the archive, since every one is announced as one that will be compressed."""
    host = Host(tmp_path)
    host.write("user", "The billing replica listens on port 5433, say the operators.")
    host.write("assistant", "I will use port 5433 for the billing replica.")
    whole = [{"role": line["type"], "content": line["message"]["content"]} for line in host.lines]
    asked = {"role": "user", "content": QUESTION}
    with Engine.open(host.home, settings=Settings(recall=UNHURRIED), background=False) as engine:
        hooks = HostHooks(engine._memory)
        assert hooks.handle(host.payload("BeforeModel", llm_request={"messages": whole})) == {}
        assert hooks.handle(host.payload("BeforeAgent", prompt=QUESTION)) == {}
        assert hooks.handle(host.payload("BeforeModel", llm_request={"messages": [*whole, asked]})) == {}
        short = [{"role": "user", "content": "We worked on several things."}, asked, {"role": "model", "content": ""}]
        for _ in range(2):  # a change of one request does not last
            output = hooks.handle(host.payload("BeforeModel", llm_request={"messages": short}))
            changed = output["hookSpecificOutput"]["llm_request"]["messages"]
            assert [changed[0], changed[2]] == [short[0], short[2]]
            assert changed[1]["content"].startswith(QUESTION)
            assert "5433" in changed[1]["content"]
        assert hooks.handle(host.payload("BeforeModel", llm_request={"messages": None})) == {}


@pytest.mark.parametrize("event", ["PostToolUse", "AfterTool"])
def test_a_very_long_output_is_archived_whole_and_shortened(tmp_path: Path, event: str) -> None:
    """Its shape stays, because the host accepts no other."""
    host = Host(tmp_path)
    lines = "\n".join(f"{number}: {'x' * 40}" for number in range(2_000))
    stream = "llmContent" if event == "AfterTool" else "stdout"
    fields = {"tool_name": "Bash", "tool_use_id": "call_1", "tool_response": {stream: lines, "interrupted": False}}
    with Engine.open(host.home, settings=Settings(recall=UNHURRIED), background=False) as engine:
        output = HostHooks(engine._memory).handle(host.payload(event, **fields))
        if event == "AfterTool":
            assert output["decision"] == "deny"
            text = output["reason"]
        else:
            changed = output["hookSpecificOutput"]["updatedToolOutput"]
            assert changed["interrupted"] is False
            text = changed["stdout"]
        assert len(text) < 20_000
        assert text.startswith("0: x")
        (row,) = engine.session("s1", project="/srv/shop").get([int(text.partition("message ")[2].split()[0])])
        assert row.message.results[0].text.startswith(lines)
        image = {"tool_response": [{"type": "image", "data": "A" * 90_000}]}
        assert HostHooks(engine._memory).handle(host.payload(event, **image)) == {}
        short = {"tool_response": {"stdout": "done"}, "tool_name": "Bash"}
        assert HostHooks(engine._memory).handle(host.payload(event, **short)) == {}


def test_another_process_recalls_nothing_that_the_window_shows(host: Host) -> None:
    """It knows from the store how far the transcript was archived, and what the window shows."""
    host.write("user", "The billing replica listens on port 5433, say the operators.")
    host.write("assistant", "I will use port 5433 for the billing replica.")
    prompt = host.payload("UserPromptSubmit", prompt="Where does the billing replica listen?")
    for _ in range(2):
        with Engine.open(host.home, settings=Settings(recall=UNHURRIED), background=False) as engine:
            hooks = HostHooks(engine._memory)
            hooks.handle(host.payload("Stop"))
            assert hooks.handle(prompt) == {}
    other = {**prompt, "session_id": "s2", "transcript_path": ""}
    with Engine.open(
        host.home, settings=Settings(archive=Archive(cross_session=True), recall=UNHURRIED), background=False
    ) as engine:
        block = HostHooks(engine._memory).handle(other)["hookSpecificOutput"]["additionalContext"]
        assert "5433" in block
        assert "</recalled-context" in block.splitlines()[-1]  # it is whole


def test_a_turn_archives_what_is_new_in_the_transcript(host: Host) -> None:
    """Also in another process; a transcript that was rewritten is read from its beginning."""
    notified: list[int] = []
    for turn in range(4):
        with Engine.open(host.home, settings=Settings(recall=UNHURRIED), background=False) as engine:
            hooks = HostHooks(engine._memory, notify=lambda: notified.append(1))
            host.write("user", f"Question {turn} about the replica.")
            host.write("assistant", f"Answer {turn} about the replica.")
            for _ in range(3):
                hooks.handle(host.payload("Stop"))
            assert len(notified) == turn + 1
            assert sum(info.messages for info in engine.sessions()) == 2 * (turn + 1)
    host.lines = host.lines[:2]
    host.write("user", "Another question after going back.")
    with Engine.open(host.home, settings=Settings(recall=UNHURRIED), background=False) as engine:
        HostHooks(engine._memory).handle(host.payload("Stop"))
        assert sum(info.messages for info in engine.sessions()) == 9


def test_the_state_of_many_sessions_is_bounded(host: Host) -> None:
    """What is dropped from memory is read from the store again."""
    host.write("user", "The billing replica listens on port 5433, say the operators.")
    prompt = host.payload("UserPromptSubmit", prompt="Where does the billing replica listen?")
    with Engine.open(host.home, settings=Settings(recall=UNHURRIED), background=False) as engine:
        hooks = HostHooks(engine._memory)
        hooks.handle(host.payload("Stop"))
        for number in range(MAX_HOSTS + 1):
            hooks.handle({**host.payload("Stop"), "session_id": f"other-{number}", "transcript_path": ""})
        assert hooks.handle(prompt) == {}


def test_a_failure_is_logged_and_the_host_continues(host: Host) -> None:
    """With an empty answer, exit code 0 and nothing on the screen."""
    host.home.mkdir()
    (host.home / "holdfast.db").write_text("this is no database" * 1000)
    assert host.run("UserPromptSubmit", prompt="Where does it listen?") == ""
    log = host.home / "hooks.log"
    assert log.read_text("utf-8").count("\n") == 1
    assert log.stat().st_mode & 0o777 == 0o600
    done = run_holdfast("doctor", "--home", str(host.home), "--json", check=False)
    findings = [finding["what"] for finding in json.loads(done.stdout)["findings"]]
    assert [what for what in findings if what.startswith("hook: ") and "StorageError" in what]
    (extras,) = [what for what in findings if what.startswith("extras: ")]
    assert {"mcp", "server"} <= set(extras.removeprefix("extras: ").partition(";")[0].split(", "))


def test_wrong_settings_are_logged_and_the_host_continues(tmp_path: Path) -> None:
    """The folder of the memory is not known then: the log is in the default one."""
    environ = {**os.environ, "HOLDFAST_HOME": str(tmp_path / "memory"), "HOLDFAST_RECALL__HARD_CAP_TOKENS": "many"}
    data = json.dumps({"hook_event_name": "UserPromptSubmit", "session_id": "s1", "prompt": "Where?"})
    done = run_holdfast("hook", stdin=data, env=environ)
    assert (done.stdout, done.stderr) == ("", "")
    assert "SettingsError" in (tmp_path / "memory" / "hooks.log").read_text("utf-8")


@pytest.mark.parametrize("reply", ["The replica is on port 5433.", '"5433" は、レプリカのポートです。'])
def test_a_turn_that_ends_before_its_transcript_is_written_is_archived_whole(tmp_path: Path, reply: str) -> None:
    """The event has the reply, so that its absence is known; a transcript that never has it is archived as it is."""
    host = Host(tmp_path)
    host.write("user", "Where does the billing replica listen?")
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            host.write("assistant", reply)

    with Engine.open(host.home, settings=Settings(recall=UNHURRIED), background=False) as engine:
        hooks = HostHooks(engine._memory, wait=wait)
        hooks.handle(host.payload("Stop", last_assistant_message=reply))
        assert len(waits) == 2
        rows = engine.session("s1", project="/srv/shop").messages()
        assert [row.message.text for row in rows][-1] == reply
        host.write("user", "And the ledger?")
        hooks.handle(host.payload("Stop", last_assistant_message="Something else."))
        assert len(waits) == 2 + MAX_REPLY_TRIES
        assert len(engine.session("s1", project="/srv/shop").messages()) == 3


def test_events_that_are_not_known_get_an_empty_answer(tmp_path: Path) -> None:
    """Also those without a session."""
    with Engine.open(tmp_path, settings=Settings(recall=UNHURRIED), background=False) as engine:
        hooks = HostHooks(engine._memory)
        assert hooks.handle({"hook_event_name": "PreToolUse", "session_id": "s1"}) == {}
        assert hooks.handle({"hook_event_name": "Stop"}) == {}
        assert hooks.handle({"hook_event_name": "Stop", "session_id": "s1", "transcript_path": "/nowhere"}) == {}
        assert not engine.sessions()


class TestLearning:
    """What the sessions of hosts teach, and to whom they are shown."""

    def open(self, folder: Path, model: Scripted | None, clock: Callable[[], int]) -> tuple[Engine, HostHooks]:
        settings = Settings(embedding=Embedding(provider="none"))
        memory = Memory.open(folder / "memory", settings=settings, clock=clock)
        engine = Engine(memory, model=depot_model(name="summaries"), reader=model, is_for_hosts=True)
        reader_of = engine._find_resources("").learner.reader
        hooks = HostHooks(memory, find_reader=lambda _: reader_of, notify=engine._notify, notify_end=engine._notify_end)
        return engine, hooks

    def test_a_session_that_ends_is_read(self, tmp_path: Path) -> None:
        """By the model that the user chose for hosts, and by it alone."""
        host, model = Host(tmp_path), depot_model()
        engine, hooks = self.open(tmp_path, model, lambda: 1_800_000_000_000)
        host.write("user", "Depot north closes at 17:45.")
        host.write("assistant", "Noted.")
        hooks.handle(host.payload("Stop"))
        assert engine.work() == 0
        hooks.handle(host.payload("SessionEnd"))
        engine.work()
        session = engine.session("s1", project="/srv/shop")
        assert [fact.content for fact in session.facts()] == ["Depot north closes at 17:45"]
        host.write("user", "Depot south closes at 18:15.")
        hooks.handle(host.payload("PreCompact", trigger="auto"))
        engine.work()
        assert [fact.content for fact in session.facts()][1:] == ["Depot south closes at 18:15"]
        assert count_extractions(model) == 2
        engine.close()

    def test_a_session_that_ends_is_read_at_once(self, tmp_path: Path) -> None:
        """Though idle sessions were looked for a moment ago: the next session may begin at once."""
        host = Host(tmp_path)
        engine, hooks = self.open(tmp_path, None, lambda: 1_800_000_000_000)
        host.write("user", "Remember that the north depot closes at 17:45.")
        hooks.handle(host.payload("Stop"))
        while engine._work_in_background():
            pass
        hooks.handle(host.payload("SessionEnd"))
        while engine._work_in_background():
            pass
        assert [fact.content for fact in engine.session("s1", project="/srv/shop").facts()]
        engine.close()

    def test_without_consent_no_model_sees_it(self, tmp_path: Path) -> None:
        """The rules read it when the session is idle."""
        host, now = Host(tmp_path), [1_800_000_000_000]
        engine, hooks = self.open(tmp_path, None, lambda: now[0])
        host.write("user", "Remember that the north depot closes at 17:45.")
        hooks.handle(host.payload("Stop"))
        assert engine.work() == 0
        now[0] += 700_000
        engine.work()
        (fact,) = engine.session("s1", project="/srv/shop").facts()
        assert "17:45" in fact.content
        assert isinstance(engine.model, Scripted)
        assert engine.model.prompts == []
        engine.close()


class TestQuoted:
    """What earlier blocks in the window quote, which a new block does not repeat."""

    FILLER = " ".join(f"Line {number} of the report describes the weather of that morning." for number in range(120))
    REPORT = f"The billing replica listens on port 5433. {FILLER} The ledger closes its books at 23:40 on Fridays."

    def prompt(self, hooks: HostHooks, host: Host, text: str) -> str:
        output = hooks.handle(host.payload("UserPromptSubmit", prompt=text, session_id="s2"))
        return str(output.get("hookSpecificOutput", {}).get("additionalContext", ""))

    @pytest.fixture
    def opened(self, tmp_path: Path) -> Iterator[tuple[Host, Engine]]:
        """A host, and a memory with a long message of an earlier session."""
        host = Host(tmp_path)
        host.write("user", self.REPORT)
        host.write("assistant", "I have read the report.")
        settings = Settings(archive=Archive(cross_session=True), recall=UNHURRIED)
        with Engine.open(host.home, settings=settings, background=False) as engine:
            HostHooks(engine._memory).handle(host.payload("Stop"))
            host.file = tmp_path / "other.jsonl"
            yield host, engine

    def test_a_passage_that_was_quoted_in_part_comes_again(self, opened: tuple[Host, Engine]) -> None:
        """With the part that is asked for then; a part that was quoted is not repeated."""
        host, engine = opened
        hooks = HostHooks(engine._memory)
        first = self.prompt(hooks, host, QUESTION)
        assert "5433" in first
        assert "23:40" not in first
        second = self.prompt(hooks, host, "At what time does the ledger close its books?")
        assert "23:40" in second
        assert "5433" not in self.prompt(hooks, host, QUESTION)
        assert "23:40" not in self.prompt(hooks, host, "When does the ledger close its books on Fridays?")

    def test_another_process_does_not_hide_the_rest_of_a_passage(self, opened: tuple[Host, Engine]) -> None:
        """It knows only the passages that were quoted whole."""
        host, engine = opened
        assert "5433" in self.prompt(HostHooks(engine._memory), host, QUESTION)
        second = self.prompt(HostHooks(engine._memory), host, "At what time does the ledger close its books?")
        assert "23:40" in second

    def test_what_a_compaction_removed_comes_again(self, opened: tuple[Host, Engine]) -> None:
        """Its blocks left the window with it."""
        host, engine = opened
        hooks = HostHooks(engine._memory)
        assert "5433" in self.prompt(hooks, host, QUESTION)
        hooks.handle(host.payload("PreCompact", trigger="auto", session_id="s2"))
        assert "5433" in self.prompt(hooks, host, QUESTION)


def test_a_full_disk_does_not_hide_what_is_archived(tmp_path: Path) -> None:
    """Nothing can be stored, and the prompt gets what it asks for all the same."""
    host = Host(tmp_path)
    host.write("user", "The billing replica listens on port 5433, say the operators.")
    with Engine.open(host.home, settings=Settings(recall=UNHURRIED), background=False, personal=True) as engine:
        HostHooks(engine._memory).handle(host.payload("Stop"))
        host.file.write_text("")
        host.lines.clear()
        host.write("user", "The importer is at batch 12.")
        hooks = HostHooks(engine._memory)
        prompt = {"prompt": "Where does the billing replica listen?", "session_id": "s2"}
        with largest_file(1):
            output = hooks.handle(host.payload("UserPromptSubmit", **prompt))
        assert "5433" in output["hookSpecificOutput"]["additionalContext"]
