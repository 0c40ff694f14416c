"""What the agent of `holdfast chat` does with its files, its settings and its replies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.errors import ModelBusyError, ModelError, ModelOverflowError
from holdfast.messages import Usage
from holdfast.models.base import Prompt
from holdfast.models.scripted import Answer, ScriptedReply
from holdfast.text import shorten_number
from holdfast_agent.commands import run
from support.agent_fixture import AgentFixture, talker
from support.chat_shell import FLUSH, Shell


class TestOverflow:
    """A compaction that an overflow made necessary."""

    def test_a_compaction_is_recorded_though_the_retry_fails(self, tmp_path: Path) -> None:
        """Engine, sessions.json and transcript agree at once, and the next compaction has its own flush."""
        flushes: list[str] = []
        failing = [True]

        def answer(prompt: Prompt) -> Answer:
            last = prompt.messages[-1].text
            if FLUSH in last:
                flushes.append(last)
                return "NO_REPLY"
            if not prompt.tools:
                return "## Goal\nTalk about modules.\n"
            if "Overflow" in last and failing[0]:
                if any("Talk about modules" in message.text for message in prompt.messages):
                    return ModelBusyError("busy", model="m")
                return ModelOverflowError("prompt is too long", model="m", status=400)
            return "filler words " * 300

        fixture = AgentFixture(tmp_path)
        agent = fixture.agent(answer)
        for number in range(4):
            agent.say(f"Step {number}. " + "more words " * 300)
        with pytest.raises(ModelError):
            agent.say("Overflow now.")
        compacted = [edit for edit in agent.session.edits() if edit.kind == "compacted"]
        stored = json.loads((agent.sessions.folder / "sessions.json").read_text())[agent.conversation.key]
        entries = [json.loads(line) for line in agent.conversation.transcript.file.read_text().splitlines()]
        assert len(compacted) == stored["compactionCount"] == sum(e["type"] == "compaction" for e in entries) == 1
        failing[0] = False
        for number in range(4):
            agent.say(f"Later {number}. " + "more words " * 300)
        agent.compact()
        assert len(flushes) == 2


class TestPlace:
    """Where memory rests."""

    def test_archive_path_is_honoured(self, shell: Shell) -> None:
        """Memory and sessions are where `archive.path` says."""
        shell.toml(f'[archive]\npath = "{shell.folder / "mine"}"\n')
        assert shell.chat("Hello.\n", "Hi.")[:2] == (0, "Hi.\n")
        assert (shell.folder / "mine" / "holdfast.db").exists()
        assert list((shell.folder / "mine" / "agents" / "main" / "sessions").glob("*.jsonl"))
        assert not (shell.folder / "home").exists()

    def test_storage_path_is_honoured(self, shell: Shell) -> None:
        """`memoryContext.storagePath` of openclaw.json says the same."""
        shell.openclaw(memoryContext={"storagePath": str(shell.folder / "mine")}, skipBootstrap=True)
        assert shell.chat("Hello.\n", "Hi.")[:2] == (0, "Hi.\n")
        assert (shell.folder / "mine" / "holdfast.db").exists()

    def test_an_address_is_an_error(self, shell: Shell) -> None:
        """An address where no server is makes no folder of that name, and its password is not shown."""
        shell.toml('[archive]\npath = "postgresql://me:hunter2@127.0.0.1:9/memory"\n')
        code, _, output = shell.chat("Hello.\n", "Hi.")
        assert code == 1
        assert "postgresql://127.0.0.1:9/memory" in output
        assert "hunter2" not in output
        assert list((shell.folder / "here").iterdir()) == []


class TestWorkspace:
    """The folder of the agent."""

    def test_a_workspace_that_is_named_is_made(self, shell: Shell) -> None:
        """`agents.defaults.workspace`: the folder and its files are there after the first run."""
        place = shell.folder / "a" / "workspace"
        shell.openclaw(workspace=str(place))
        assert shell.chat("Hello.\n", "Hi.")[0] == 0
        assert {"AGENTS.md", "SOUL.md", "BOOTSTRAP.md", "memory"} <= {path.name for path in place.iterdir()}
        assert list((shell.folder / "here").iterdir()) == []

    def test_skip_bootstrap_makes_the_folder_alone(self, shell: Shell) -> None:
        """`skipBootstrap: true` writes no files."""
        place = shell.folder / "workspace"
        shell.openclaw(workspace=str(place), skipBootstrap=True)
        assert shell.chat("Hello.\n", "Hi.")[0] == 0
        assert list(place.iterdir()) == []

    def test_skip_bootstrap_false_is_honoured(self, shell: Shell) -> None:
        """An explicit `skipBootstrap: false` writes the files into the working directory; without it none are."""
        assert shell.chat("Hello.\n", "Hi.")[0] == 0
        assert list((shell.folder / "here").iterdir()) == []
        shell.openclaw(skipBootstrap=False)
        assert shell.chat("Hello.\n", "Hi.")[0] == 0
        assert (shell.folder / "here" / "AGENTS.md").exists()

    def test_notes_that_cannot_be_written_are_reported_and_not_done(self, tmp_path: Path) -> None:
        """The user gets a notice, sessions.json has the failure, and the flush stays due."""
        fixture = AgentFixture(tmp_path)
        agent = fixture.agent(talker(lambda _: "filler words " * 300))
        for number in range(8):
            agent.say(f"Step {number}. " + "more words " * 300)
        (agent.root / "memory").write_text("in the way")
        agent.flush()
        assert any("Notes could not be written" in notice for notice in fixture.view.notices)
        assert agent.conversation.entry.memory_flush_failure_count == 1
        assert agent.conversation.entry.memory_flush_compaction_count is None
        (agent.root / "memory").unlink()
        agent.flush()
        assert list((agent.root / "memory").glob("*.md"))
        assert agent.conversation.entry.to_json()["memoryFlushCompactionCount"] == 0

    def test_a_workspace_that_cannot_be_made_is_reported(self, shell: Shell) -> None:
        """The user gets a notice at the start."""
        (shell.folder / "file").write_text("in the way")
        shell.openclaw(workspace=str(shell.folder / "file" / "workspace"))
        code, _, output = shell.chat("Hello.\n", "Hi.")
        assert code == 0
        assert "cannot be written" in output


class TestMemoryCommand:
    """`/memory`."""

    @pytest.mark.parametrize(
        ("fact", "note", "text", "query"),
        [
            (
                "The staging port is 6543.",
                "The staging port was 5432 in May.",
                "The staging port was closed on Monday.",
                "staging port",
            ),
            ("测试端口是 6543。", "五月的测试端口是 5432。", "周一测试端口关了。", "测试端口"),
        ],
    )
    def test_search_prints_the_source_of_each_hit(
        self,
        shell: Shell,
        fact: str,
        note: str,
        text: str,
        query: str,
    ) -> None:
        """Facts, notes and the archive are searched, each under its name."""
        (shell.folder / "here" / "memory").mkdir()
        (shell.folder / "here" / "memory" / "2026-05-01.md").write_text(f"# May\n\n{note}\n", "utf-8")
        code, shown, _ = shell.chat(f"/memory add {fact}\n{text}\n/memory search {query}\n", "Yes.")
        assert code == 0
        found = shown.partition("Facts:")[2]
        facts, _, rest = found.partition("Notes:")
        notes, _, archive = rest.partition("Archive:")
        assert fact in facts
        assert "memory/2026-05-01.md#L" in notes
        assert note in notes
        assert text in archive

    def test_search_lists_neither_the_question_nor_what_is_unrelated(self, shell: Shell) -> None:
        """A question that was just asked has the words of the search, and says nothing."""
        text = "The staging port was closed on Monday.\nThe cake was good.\nWhich staging port was it?\n"
        _, shown, _ = shell.chat(f"{text}/memory search staging port\n", "Noted.", "Good.", "6543.")
        found = shown.partition("Archive:")[2]
        assert "closed on Monday" in found
        assert "Which staging port" not in found
        assert "cake" not in found

    def test_search_without_a_hit(self, shell: Shell) -> None:
        """Where nothing is found, nothing is listed."""
        assert "Nothing found." in shell.chat("/memory search zanzibar\n", "Yes.")[1]

    def test_show_lists_files_and_facts(self, shell: Shell) -> None:
        """The memory files of the workspace, and the facts with their ids."""
        assert "No memory files yet.\nNo facts yet." in shell.chat("/memory show\n", "Yes.")[1]
        (shell.folder / "here" / "memory").mkdir()
        (shell.folder / "here" / "memory" / "2026-05-01.md").write_text("May.\n")
        (shell.folder / "here" / "MEMORY.md").write_text("Long.\n")
        _, shown, _ = shell.chat("/memory add The port is 6543.\n/memory show\n", "Yes.")
        for words in ("- MEMORY.md: 6 bytes", "- memory/2026-05-01.md: 5 bytes", "[decision] The port is 6543."):
            assert words in shown


class TestSilence:
    """What a model says when it has nothing to say."""

    @pytest.mark.variants
    @pytest.mark.parametrize(
        ("pieces", "shown"),
        [
            (["NO_", "REPLY"], ""),
            (["HEARTBEAT", "_OK"], ""),
            (['{"action": ', '"NO_REPLY"}'], ""),
            (["I saved it.\n", "\nNO_RE", "PLY"], "I saved it.\n"),
            (["All is well. ", "HEARTBEAT_OK"], "All is well.\n"),
            (["已保存。\n", "NO_REPLY", "\n"], "已保存。\n"),
            (["NO_REPLY", "\n\nI saved it."], "I saved it.\n"),
            (["NO_REPLY I ", "saved it."], "I saved it.\n"),
            (["`NO_REPLY` is", " what I say."], "`NO_REPLY` is what I say.\n"),
            (["NO_REPLY_ON", " is a flag."], "NO_REPLY_ON is a flag.\n"),
            (["HEARTBEAT_OK", "AY?"], "HEARTBEAT_OKAY?\n"),
            (['{"action": ', '"deploy"}'], '{"action": "deploy"}\n'),
        ],
    )
    def test_nothing_of_it_is_streamed_and_no_answer_is_lost(self, shell: Shell, pieces: list[str], shown: str) -> None:
        """On the last line, inside of JSON, in pieces: a user sees the answer alone."""
        assert shell.chat("Hello.\n", {"pieces": pieces, "text": "".join(pieces)})[:2] == (0, shown)


class TestStatus:
    """`/status`."""

    def test_every_model_call_is_counted_by_its_purpose(self, tmp_path: Path) -> None:
        """What the lines of `/status` add up to is what the provider counted, in this process and after it."""
        counted: dict[str, list[int]] = {}

        def answer(prompt: Prompt) -> Answer:
            last = prompt.messages[-1]
            flushing = any(FLUSH in message.text for message in prompt.messages[-3:])
            purpose = "flush" if flushing else "conversation" if prompt.tools else "extraction" if prompt.schema else ""
            figures = counted.setdefault(purpose or "summaries", [0, 0, 0])
            figures[0], figures[1], figures[2] = figures[0] + 1, figures[1] + 1_000, figures[2] + 10
            text = {"flush": "NO_REPLY", "extraction": '{"facts": []}', "": "## Goal\nTalk.\n"}.get(purpose)
            return ScriptedReply(
                text=text or f"{last.text[:9]} filler words " * 200, usage=Usage(input=1_000, output=10)
            )

        fixture = AgentFixture(tmp_path)
        agent = fixture.agent(answer)
        for number in range(8):
            agent.say(f"Step {number}. " + "more words " * 300)
        agent.compact()
        stored = json.loads((agent.sessions.folder / "sessions.json").read_text())[agent.conversation.key]
        assert "inputTokens" not in stored  # cleared with the compaction, as hosts that read the file expect
        assert "outputTokens" not in stored
        agent.session.learn()
        agent.engine.work()
        shown = run(agent, "/status").text
        assert set(counted) == {"conversation", "summaries", "flush", "extraction"}
        for purpose, (calls, sent, came) in counted.items():
            assert f"- {purpose}: {shorten_number(sent)} in / {shorten_number(came)} out in {calls} call" in shown
        total = [sum(column) for column in zip(*counted.values(), strict=True)]
        assert f"Tokens: {shorten_number(total[1])} in / {shorten_number(total[2])} out in {total[0]} calls" in shown
        agent.close()
        again = fixture.agent(answer)
        assert (
            f"Tokens: {shorten_number(total[1])} in / {shorten_number(total[2])} out in {total[0]} calls"
            in run(again, "/status").text
        )
        again.close()
