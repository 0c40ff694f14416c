"""The life of a turn."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.errors import CompactionError, ModelBusyError, ModelError, ModelTimeoutError, StorageError
from holdfast.memory.block import strip_text
from holdfast.messages import ToolCall, Usage
from holdfast.models.base import Prompt
from holdfast.models.scripted import Answer, Scripted, ScriptedReply
from holdfast.providers import check, render
from holdfast.settings import Compaction, Embedding, MemoryFlush, Recall, Trim
from holdfast.tokens import count_json, count_messages
from holdfast.transcripts import read
from holdfast_agent import agent as agent_module
from holdfast_agent.agent import Agent
from holdfast_agent.commands import run
from holdfast_agent.settings import ChatSettings, SessionReset, SessionSettings, Workspace
from support.agent_fixture import BASE, AgentFixture, Watched, change_agent, talker
from support.chat_shell import FLUSH
from support.waiting import UNHURRIED

DAILY = SessionSettings(reset=SessionReset(mode="daily"))
KEY = "AKIAQ3EGRLWM5N7PXJ2K"


@pytest.fixture
def fixture(tmp_path: Path) -> AgentFixture:
    """An agent in a folder of its own."""
    return AgentFixture(tmp_path)


def prompts(agent: Agent) -> list[Prompt]:
    """Every request that the model saw."""
    assert isinstance(agent.model, Scripted)
    return agent.model.prompts


def calling(name: str, **arguments: object) -> ScriptedReply:
    """A reply that calls a tool."""
    return ScriptedReply(calls=(ToolCall(id=f"call_{name}", name=name, arguments=arguments),))


PORT_FACT = (
    '{"facts": [{"type": "config", "content": "The staging database listens on port 6543",'
    ' "quote": "the staging database listens on port 6543"}]}'
)
"""The answer of a model that reads the conversation for facts."""


class TestTurn:
    def test_a_word_is_answered_and_both_are_written_down(self, fixture: AgentFixture) -> None:
        """The answer comes piece by piece and as a whole, and the transcript is a session that any reader reads."""
        agent = fixture.agent(["Hello to you!"])
        turn = agent.say("Hello.")
        assert turn.text == "".join(fixture.view.texts) == "Hello to you!"
        assert (turn.steps, turn.interrupted) == (1, False)
        assert turn.usage.output > 0
        transcript = read(agent.conversation.transcript.file)
        assert transcript.format == "pi"
        assert [message.text for message in transcript.messages] == ["Hello.", "Hello to you!"]
        assert agent.conversation.entry.total_tokens > 0

    def test_a_workspace_that_cannot_be_prepared(self, tmp_path: Path) -> None:
        """The user gets a notice, and the conversation continues."""
        (tmp_path / "work").mkdir()
        (tmp_path / "work" / "memory").touch()
        fixture = AgentFixture(tmp_path, ChatSettings(embedding=Embedding(provider="none"), recall=UNHURRIED))
        agent = fixture.agent(["Hello to you!"])
        assert "work: cannot be written" in fixture.view.notices[0]
        assert agent.say("Hello.").text == "Hello to you!"

    def test_tools_run_until_the_model_is_done(self, fixture: AgentFixture) -> None:
        """Calls are answered in the workspace, their results go back, and the last words are the answer."""
        (fixture.folder / "work").mkdir()
        (fixture.folder / "work" / "port.txt").write_text("6543\n")
        agent = fixture.agent([calling("read", path="port.txt"), calling("bash", command="echo hi"), "It is 6543."])
        turn = agent.say("Which port?")
        assert (turn.text, turn.steps) == ("It is 6543.", 3)
        assert [call.name for call in fixture.view.calls] == ["read", "bash"]
        assert "6543" in fixture.view.results[0].text
        assert "6543" in str(prompts(agent)[1].messages[-1])

    def test_a_model_that_never_ends_is_stopped(self, fixture: AgentFixture, monkeypatch: pytest.MonkeyPatch) -> None:
        """After so many steps, a hundred, the user has the word again, and is told why."""
        assert agent_module.MAX_STEPS == 100
        monkeypatch.setattr(agent_module, "MAX_STEPS", 7)
        agent = fixture.agent(lambda _: calling("read", path="none.txt"))
        assert agent.say("Go.").steps == 7
        assert fixture.view.notices == ["Stopped after 7 steps. Send a message to continue."]

    def test_what_is_refused_does_not_run(self, fixture: AgentFixture) -> None:
        """Without the user's word no command runs; the model hears why."""
        fixture.allow = False
        agent = fixture.agent([calling("bash", command="touch no"), "Fine."])
        agent.say("Do it.")
        assert not (fixture.folder / "work" / "no").exists()
        assert fixture.view.results[0].is_error

    def test_it_goes_on_where_it_was(self, fixture: AgentFixture) -> None:
        """Another process continues with the same conversation: the model sees all that was said."""
        fixture.agent(["One."]).say("First?")
        agent = fixture.agent(["Two."])
        agent.say("Second?")
        assert [m.text for m in prompts(agent)[0].messages[1:]] == ["First?", "One.", "Second?"]

    def test_silence_is_not_shown(self, fixture: AgentFixture) -> None:
        """An answer that says there is nothing to say is written down and not seen; a heartbeat's neither."""
        agent = fixture.agent([ScriptedReply(pieces=("NO_", "REPLY")), "HEARTBEAT_OK"])
        assert agent.say("psst").text == ""
        assert agent.say("Read HEARTBEAT.md.", heartbeat=True).text == ""
        assert "NO_REPLY" not in "".join(fixture.view.texts)
        assert [m.text for m in read(agent.conversation.transcript.file).messages][1] == "NO_REPLY"

    def test_a_conversation_continues_after_a_model_failure(self, fixture: AgentFixture) -> None:
        """After a model failure the next call continues the conversation."""

        def busy(_: Prompt) -> Answer:
            raise ModelBusyError("busy", model="m")

        agent = fixture.agent(busy)
        with pytest.raises(ModelError):
            agent.say("Hello?")
        again = fixture.agent(["Here I am."])
        assert again.say("Still there?").text == "Here I am."
        assert check(render(prompts(again)[0].messages[1:], "anthropic"), "anthropic") == []


class TestMemory:
    def test_no_secret_is_written_down_and_the_model_still_sees_it(self, fixture: AgentFixture) -> None:
        """While the conversation is open the model can use a key; the transcript and who resumes it do not have it."""
        (fixture.folder / "work").mkdir()
        (fixture.folder / "work" / "env").write_text(f"aws {KEY}\n")
        agent = fixture.agent([calling("read", path="env"), f"I will use {KEY}.", "Again."])
        agent.say(f"My key is {KEY}.")
        agent.say("And?")
        assert str(prompts(agent)[-1].messages).count(KEY) == 3
        files = [file for file in fixture.folder.rglob("*") if file.is_file() and file.name != "env"]
        assert not any(KEY.encode() in file.read_bytes() for file in files)
        again = fixture.agent(["Yes."])
        stored = again.engine.stats().messages
        again.say("Still there?")
        assert KEY not in str(prompts(again)[0].messages)
        assert again.engine.stats().messages == stored + 2  # the question and the answer: the rest is known

    def test_a_lost_one_is_made_up_for_by_the_transcript(self, fixture: AgentFixture) -> None:
        """Where memory knows nothing of a compaction the transcript's summary stands, in each resumption alike."""
        agent = fixture.agent(talker(lambda _: "filler words " * 600))
        for number in range(8):
            agent.say(f"Tell me about module {number}.")
        agent.compact()
        agent.engine.close()
        shutil.rmtree(fixture.folder / "memory")
        for _ in range(2):
            again = fixture.agent(talker(lambda _: "Yes, the module is there. " * 40))
            assert "Talk about modules." in again.history[0].text
            again.say("Tell me more about module 3.")
            again.session.pin([1])  # an edit, and no compaction
            again.engine.close()

    def test_a_failure_of_it_is_reported_and_blocks_nothing(
        self, fixture: AgentFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where the archive can neither be read nor written, the model is asked all the same."""
        agent = fixture.agent(["One.", "Two.", "Three."])
        agent.say("First.")

        def full(*_: object, **__: object) -> list[int]:
            raise StorageError("the disk is full", path=fixture.folder)

        for name in ("add_messages", "merge_messages", "add_facts", "add_records", "add_jobs"):
            monkeypatch.setattr(type(agent.engine._memory.store), name, full)
        assert agent.say("Second.").text == "Two."
        for name in ("read_messages", "read_passages", "read_facts", "read_records"):
            monkeypatch.setattr(type(agent.engine._memory.store), name, full)
        assert agent.say("Third.").text == "Three."
        assert any("the disk is full" in notice for notice in fixture.view.notices)


class TestInterrupt:
    def test_a_reply_that_is_broken_off_is_kept_as_such(self, fixture: AgentFixture) -> None:
        """What was heard of it stays, marked; the session is valid and continues."""
        agent = fixture.agent([ScriptedReply(pieces=("Let me ", "think ", "about it"), delay=0.05)])
        fixture.view.on_text = agent.cancel.set
        turn = agent.say("Well?")
        assert turn.interrupted
        assert agent.history[-1].is_broken
        fixture.view = Watched()
        again = fixture.agent(["Done thinking."])
        assert again.say("And?").text == "Done thinking."
        assert check(render(prompts(again)[0].messages[1:], "anthropic"), "anthropic") == []

    def test_before_it_has_begun(self, fixture: AgentFixture) -> None:
        """What was called off a moment too early is called off; it counts once."""
        agent = fixture.agent(["One.", "Two."])
        agent.cancel.set()
        assert agent.say("Well?").interrupted
        assert agent.say("And?").text == "One."

    def test_in_a_tool(self, fixture: AgentFixture) -> None:
        """A command that is called off ends, every call has its result, and the turn is over."""
        agent = fixture.agent([calling("bash", command="sleep 60"), "never sent"])
        fixture.view.on_call = agent.cancel.set
        turn = agent.say("Sleep.")
        assert turn.interrupted
        assert turn.steps == 1
        assert [m.role for m in agent.history] == ["user", "assistant", "tool"]


class TestRoom:
    def test_a_long_conversation_flushes_and_compacts_and_forgets_nothing(self, fixture: AgentFixture) -> None:
        """Before each compaction notes are written; no request is over the window; what left it is recalled."""
        fixture.settings = replace(
            BASE,
            compaction=Compaction(reserve_tokens=4_000, reserve_tokens_floor=0, keep_recent_tokens=3_000),
            trim=Trim(enabled=False),
        )
        agent = fixture.agent(talker(lambda text: f"Noted: {text[:30]} " + "filler words " * 450), window=16_000)
        agent.say("Remember: the vault word is zanzibar.")
        for number in range(14):
            agent.say(f"Step {number}: what about module {number}? " + f"detail{number} " * 240)
        assert agent.conversation.entry.compaction_count >= 2
        notes = list((fixture.folder / "work" / "memory").glob("*.md"))
        assert notes
        entry = agent.conversation.entry
        assert notes[0].read_text().count("- x") == entry.compaction_count + entry.is_flushed
        asked = [prompt for prompt in prompts(agent) if prompt.tools]
        assert all(count_messages(prompt.messages) <= 16_000 for prompt in asked)
        agent.say("What is the vault word?")
        assert "zanzibar" in prompts(agent)[-1].messages[-1].text
        assert any("Compacted" in notice for notice in fixture.view.notices)
        entries = [json.loads(line) for line in agent.conversation.transcript.file.read_text().splitlines()]
        compactions = [entry for entry in entries if entry["type"] == "compaction"]
        assert len(compactions) == agent.conversation.entry.compaction_count
        assert all(entry["tokensBefore"] > entry["details"]["tokensAfter"] for entry in compactions)
        assert "Pre-compaction" not in agent.conversation.transcript.file.read_text()

    def test_trimming_spares_compactions(self, fixture: AgentFixture) -> None:
        """Where trimming keeps the windows that are sent below the threshold, no one waits for a summary."""
        agent = fixture.agent(talker(lambda text: f"Noted: {text[:30]} " + "filler words " * 240), window=16_000)
        for number in range(22):
            agent.say(f"Step {number}: what about module {number}? " + f"detail{number} " * 130)
        reports = agent.session.timeline()
        assert sum(change.kind == "trimmed" for turn in reports for change in turn.changes) >= 2
        assert max(turn.total_tokens for turn in reports) <= 14_000
        assert agent.conversation.entry.compaction_count == 0

    def test_a_reply_may_take_what_the_window_leaves(self, fixture: AgentFixture) -> None:
        """At most what is reserved before the first reply, and always what is reserved then."""
        agent = fixture.agent(talker(lambda _: "filler words " * 450), window=16_000)
        for number in range(10):
            agent.say(f"Step {number}: what about module {number}? " + f"detail{number} " * 240)
        reports = agent.session.timeline()
        asked = [prompt.max_tokens for prompt in prompts(agent)]
        assert max(asked) == 4_000
        assert 2_000 <= min(asked) < 4_000
        assert reports[-1].reserved_tokens == 2_000

    def test_without_recall_compactions_make_room(self, fixture: AgentFixture) -> None:
        """Without recall nothing brings a message back, so none is trimmed, whatever the user asks."""
        fixture.settings = replace(BASE, recall=Recall(enabled=False))
        agent = fixture.agent(talker(lambda text: f"Noted: {text[:30]} " + "filler words " * 450), window=16_000)
        for number in range(20):
            agent.say(f"Step {number}: what about module {number}? " + f"d{number} " * (21 * number % 123))
        reports = agent.session.timeline()
        assert [change.reason for turn in reports for change in turn.changes if change.kind == "trimmed"] == []
        assert max(turn.total_tokens for turn in reports) <= 14_000
        assert agent.conversation.entry.compaction_count >= 2

    def test_by_hand(self, fixture: AgentFixture) -> None:
        """A compaction can be asked for, with instructions; the model tells it."""
        agent = fixture.agent(talker(lambda _: "filler words " * 600))
        for number in range(4):
            agent.say(f"Step {number}. " + "more words " * 600)
        done = agent.compact("Mind the ports")
        assert done.tokens_after < done.tokens_before
        assert any("Mind the ports" in m.text for prompt in prompts(agent) for m in prompt.messages)
        assert agent.conversation.entry.compaction_count == 1

    def test_a_flush_that_fails_does_not_stop_anything(self, fixture: AgentFixture) -> None:
        """After so many failures the compaction continues without notes, and the user gets a notice."""
        fixture.settings = replace(BASE, compaction=Compaction(memory_flush=MemoryFlush(max_failures=1)))

        def answer(prompt: Prompt) -> Answer:
            if "Pre-compaction memory flush" in prompt.messages[-1].text:
                raise ModelBusyError("busy", model="m")
            return "filler words " * 600

        agent = fixture.agent(answer)
        for number in range(4):
            agent.say(f"Step {number}. " + "more words " * 600)
        agent.compact()
        assert any("without them" in notice for notice in fixture.view.notices)
        assert agent.conversation.entry.compaction_count == 1

    def test_without_anything_to_compact_no_notes_are_written(self, fixture: AgentFixture) -> None:
        """The user does not wait for a model before hearing it."""
        agent = fixture.agent(talker(lambda _: "Hello."))
        agent.say("Hello.")
        agent.say("Hello again.")
        assert run(agent, "/compact").text.startswith("Compaction skipped")
        assert not any(FLUSH in prompt.messages[-1].text for prompt in prompts(agent))

    def test_a_flush_that_failed_is_not_tried_again_in_the_same_turn(self, fixture: AgentFixture) -> None:
        """The user waits for the answer: a slow model would take its time twice."""
        fixture.settings = replace(BASE, trim=Trim(enabled=False))
        flushes = 0

        def answer(prompt: Prompt) -> Answer:
            nonlocal flushes
            if FLUSH in prompt.messages[-1].text:
                flushes += 1
                raise ModelTimeoutError("no answer", model="m")
            return "filler words " * 300 if prompt.tools else "## Goal\nTalk about modules.\n"

        agent = fixture.agent(answer, window=8_192)
        most = 0
        for number in range(8):
            before = flushes
            agent.say(f"Step {number}. " + "more words " * 300)
            most = max(most, flushes - before)
        assert agent.conversation.entry.compaction_count >= 1
        assert most == 1
        assert any("compaction.timeout_seconds" in notice for notice in fixture.view.notices)

    @pytest.mark.variants
    @pytest.mark.parametrize("window", [4_096, 8_192])
    @pytest.mark.parametrize("word", ["word ", "字"])
    def test_a_flush_leaves_room_for_its_notes(self, fixture: AgentFixture, window: int, word: str) -> None:
        """Messages, tools and the notes that may be written fit the window together, in every step."""
        agent = fixture.agent(talker(lambda _: word * 100), window=window)
        for number in range(12):
            agent.say(f"Step {number}. " + word * 60)
            with suppress(CompactionError):
                agent.compact()
        asked = [prompt for prompt in prompts(agent) if any(FLUSH in each.text for each in prompt.messages)]
        assert len(asked) > 2
        for prompt in asked:
            tools = sum(count_json(tool.to_json()) for tool in prompt.tools)
            assert count_messages(prompt.messages) + tools + prompt.max_tokens <= window

    def test_a_reply_that_is_cut_off_is_reported(self, fixture: AgentFixture) -> None:
        """The user sees that the model had more to say, and what to do."""
        agent = fixture.agent([ScriptedReply(text="It has three parts: the", stop="length"), "All of it."])
        agent.say("Explain it.")
        (notice,) = fixture.view.notices
        assert "cut off" in notice
        agent.say("Continue.")
        assert len(fixture.view.notices) == 1

    def test_a_summary_by_rules_is_reported(self, fixture: AgentFixture) -> None:
        """The user sees that the model has not written it, why, and which setting gives it more time."""

        def answer(prompt: Prompt) -> Answer:
            if not prompt.tools:
                raise ModelTimeoutError("no answer within 120 s", model="m")
            return "filler words " * 600

        agent = fixture.agent(answer)
        for number in range(4):
            agent.say(f"Step {number}. " + "more words " * 600)
        agent.compact()
        (notice,) = [each for each in fixture.view.notices if "no answer within 120 s" in each]
        assert "rules" in notice
        assert "compaction.timeout_seconds" in notice

    def test_a_read_only_workspace_is_reported_once(self, fixture: AgentFixture) -> None:
        """Where notes cannot be written none are, and the user hears it once."""
        fixture.settings = change_agent(BASE, workspace=Workspace(skip_bootstrap=True, access="ro"))
        agent = fixture.agent(talker(lambda _: "filler words " * 600))
        for number in range(4):
            agent.say(f"Step {number}. " + "more words " * 600)
        agent.compact()
        agent.compact()
        assert sum("read-only" in notice for notice in fixture.view.notices) == 1


class TestMemories:
    def test_what_the_agent_keeps_is_recalled_in_every_conversation(self, fixture: AgentFixture) -> None:
        """A long-term memory comes into the block of a question that it has to do with, also after a reset."""
        agent = fixture.agent([calling("memory_store", text="The cat of the user is called Momo"), "Noted.", "Momo."])
        agent.say("Please keep in mind what my cat is called.")
        agent.reset()
        agent.say("What is the cat of the user called?")
        assert "called Momo" in prompts(agent)[-1].messages[-1].text
        assert "called Momo" not in agent.history[0].text

    def test_preferences_are_in_the_overview_of_every_conversation(self, fixture: AgentFixture) -> None:
        """Whatever is asked first; they belong to the agent, not to a project."""
        kept = calling("memory_store", text="The user prefers short answers", category="preference")
        agent = fixture.agent([kept, "Noted.", "Hello."])
        agent.say("Please keep in mind how I like answers.")
        agent.reset()
        agent.say("Good morning, nice weather today.")
        sent = prompts(agent)[-1].messages[-1].text
        assert "The user prefers short answers" in sent.partition("<project-overview>")[2]


class TestReset:
    def test_a_new_conversation_gets_only_the_facts_of_the_old_one(self, fixture: AgentFixture) -> None:
        """And an overview. The old transcript is kept, and what was learned in it is queued."""
        agent = fixture.agent(["Noted.", "Hi.", PORT_FACT])
        agent.say("Remember that the staging database listens on port 6543.")
        old = agent.session
        session = agent.reset()
        assert session.archived is not None
        assert session.archived.exists()
        agent.say("Hello.")
        (sent,) = prompts(agent)[1].messages[1:]
        assert "Remember that the staging database listens on port 6543." in sent.text
        assert strip_text(sent.text, agent.engine._memory.marks) == "Hello."
        agent.engine.work()
        assert any("6543" in fact.content for fact in old.facts())

    def test_what_ended_while_nothing_ran_is_learned_from_too(self, fixture: AgentFixture) -> None:
        """A conversation that is over when the next process begins leaves its facts, and the user gets a notice."""
        fixture.settings = change_agent(fixture.settings, session=DAILY)
        before = fixture.agent(["Noted."])
        before.say("Remember that the staging database listens on port 6543.")
        before.close()
        fixture.now += 48 * 3_600_000
        agent = fixture.agent([PORT_FACT])
        assert agent.session.id != before.session.id
        agent.engine.work()
        assert any("6543" in fact.content for fact in agent.session.facts())
        assert any("A new conversation begins (daily reset)" in notice for notice in fixture.view.notices)

    def test_the_day_ends(self, fixture: AgentFixture) -> None:
        """After the hour of the daily reset the next word begins a new conversation, and the user gets a notice."""
        fixture.settings = change_agent(fixture.settings, session=DAILY)
        agent = fixture.agent(["One.", "Two."])
        agent.say("First.")
        fixture.now += 48 * 3_600_000
        agent.say("Second.")
        assert len(agent.history) == 2
        assert any("daily" in notice for notice in fixture.view.notices)

    def test_by_default_a_conversation_goes_on_for_weeks(self, fixture: AgentFixture) -> None:
        """Neither a night nor a long pause ends it."""
        agent = fixture.agent(["One.", "Two."])
        agent.say("First.")
        fixture.now += 21 * 24 * 3_600_000
        agent.say("Second.")
        assert [message.text for message in agent.history] == ["First.", "One.", "Second.", "Two."]


def test_what_it_costs_is_added_up(fixture: AgentFixture) -> None:
    """Tokens of every step are counted for the session."""
    reply = ScriptedReply(text="a", usage=Usage(input=100, output=10, cache_read=50))
    agent = fixture.agent([reply, reply])
    agent.say("x")
    agent.say("y")
    entry = agent.conversation.entry
    assert (entry.input_tokens, entry.output_tokens, entry.cache_read) == (200, 20, 100)
