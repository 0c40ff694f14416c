"""The engine: from a whole history to a window that fits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from holdfast.aio import AsyncSession
from holdfast.engine import Engine
from holdfast.errors import WindowTooSmallError
from holdfast.memory.block import OPEN
from holdfast.messages import Message, Text
from holdfast.providers import check
from holdfast.settings import Embedding, Pruning, Settings
from holdfast.store.base import FactRow, Scope
from support.conversations import answer, call, reply, results, user
from support.embed_models import static_folder
from support.waiting import UNHURRIED, until

QUIET = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
LIMIT = 20_000


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """An engine over a memory of its own, by words alone."""
    with Engine.open(tmp_path / "memory", settings=QUIET) as engine:
        yield engine


def make_message(role: str, text: str) -> dict[str, Any]:
    """A message as a client sends it."""
    return {"role": role, "content": text}


def long_talk(turns: int) -> list[dict[str, Any]]:
    """A conversation of so many questions and answers, about 700 tokens a turn, with one fact at the start."""
    conversation = [make_message("system", "You are a careful engineer.")]
    conversation += [
        make_message("user", "Remember: the staging database listens on port 6543."),
        make_message("assistant", "Noted: port 6543."),
    ]
    for turn in range(turns):
        conversation.append(
            make_message("user", f"Step {turn}: please refactor module number {turn}. " + f"detail{turn} " * 90)
        )
        conversation.append(make_message("assistant", f"Module {turn} is done. " + f"change{turn} " * 90))
    return conversation


def test_a_restarted_program_continues_from_the_archive(tmp_path: Path) -> None:
    """Its window is the one that it gets with the conversation it kept: what left before does not come back."""
    conversation, asked = long_talk(60), make_message("user", "Which module was last?")
    with Engine.open(tmp_path, settings=QUIET) as engine:
        engine.session("other").append([make_message("user", "Another conversation.")])
        engine.session("s").assemble(conversation[:-1], limit=LIMIT)
        engine.session("s").compact(conversation[:-1], limit=LIMIT)
        engine.session("s").append(conversation[-1:])
    windows = []
    for is_kept in (False, True):
        with Engine.open(tmp_path, settings=QUIET) as engine:
            history = conversation[1:] if is_kept else [row.message for row in engine.session("s").messages()][1:]
            windows.append(engine.session("s").assemble([conversation[0], *history, asked], limit=LIMIT).render())
    assert windows[0] == windows[1]
    assert len(windows[0]) < len(conversation) / 2


class TestAssemble:
    def test_what_fits_comes_back_as_it_was(self, engine: Engine) -> None:
        """A short conversation is sent byte for byte as it was handed in."""
        conversation = long_talk(2)
        window = engine.session("s").assemble(conversation, limit=LIMIT)
        assert json.dumps(window.render()) == json.dumps(conversation)
        assert window.report.changes == ()

    def test_what_does_not_fit_is_cut_to_the_limit_and_stays_valid(self, engine: Engine) -> None:
        """A long conversation is trimmed below the limit, and every provider would take it."""
        window = engine.session("s").assemble(long_talk(60), limit=LIMIT)
        assert window.report.total_tokens <= LIMIT
        assert any(change.kind == "trimmed" for change in window.report.changes)
        for provider in ("openai_chat", "anthropic", "openai_responses"):
            assert check(window.render(provider), provider) == []

    def test_a_cut_keeps_what_the_question_is_about(self, engine: Engine) -> None:
        """What has most to do with the question is the last to leave the window."""
        conversation = [*long_talk(60), make_message("user", "Which port does the staging database listen on?")]
        window = engine.session("s").assemble(conversation, limit=LIMIT)
        assert any(change.kind == "trimmed" for change in window.report.changes)
        assert "6543" in str(window.render())

    def test_what_left_the_window_is_recalled_when_it_is_asked_for(self, engine: Engine) -> None:
        """A fact that an earlier request trimmed away is in the block of the request that needs it."""
        conversation = [
            *long_talk(60),
            make_message("user", "Please summarise the changes to module number 57 and detail57."),
        ]
        assert "6543" not in str(engine.session("s").assemble(conversation, limit=LIMIT).render())
        conversation += [
            make_message("assistant", "Done."),
            make_message("user", "Which port does the staging database listen on?"),
        ]
        newest = str(engine.session("s").assemble(conversation, limit=LIMIT).render()[-1])
        assert OPEN in newest
        assert "6543" in newest

    @pytest.mark.parametrize("limit", [8_000, 16_000])
    def test_another_line_of_a_passage_that_was_quoted_in_part_is_recalled(self, engine: Engine, limit: int) -> None:
        """A question about one row of a table, and later one about another row of it."""
        names = "amber birch cedar delta ember fjord grove haven inlet jetty knoll ledge marsh north otter plaza tower"
        rows = [
            f"| {name} | replica set {n} | {4000 + 37 * n} ms | 负责人{n} |" for n, name in enumerate(names.split())
        ]
        conversation = [make_message("user", "\n".join(["| name | set | lag | owner |", *rows])), *long_talk(60)[1:]]
        for name, lag in (("birch", 4037), ("tower", 4592), ("ledge", 4407)):
            conversation.append(make_message("user", f"What is the lag of the replica {name}?"))
            assert f"{lag} ms" in str(engine.session("s").assemble(conversation, limit=limit).render())
            conversation.append(make_message("assistant", "I see."))

    def test_a_passage_with_more_of_the_question_than_any_other_is_recalled(self, engine: Engine) -> None:
        """Also where earlier blocks have most of the rest, and another passage scores higher."""
        seeded = Random(3)  # noqa: S311 - the same log every time
        words = ("订单", "库存", "发票", "用户", "仓库", "支付", "日志", "缓存", "任务")
        lines = [
            f"第{i + 1}条：{''.join(seeded.choices(words, k=4))}，编号{seeded.randrange(10**5)}。" for i in range(40)
        ]
        lines.insert(25, "grafana.service: listening on 0.0.0.0:3917 (dashboards)")
        conversation = list[dict[str, Any]]()
        for n in range(60):
            log = lines if n == 1 else [f"12:{n:02}:{i:02} INFO worker-{i} queued batch={i * n}" for i in range(60)]
            conversation.append(
                make_message("user", f"The database of harbour {n} listens on port {6000 + n}. Look at it.")
            )
            conversation.append(make_message("assistant", f"Let me look at {n}."))
            conversation += [make_message("user", "\n".join(log)), make_message("assistant", "Done.")]
        conversation.append(make_message("user", "On which port does the database of harbour 3 listen?"))
        engine.session("s").assemble(conversation, limit=6_000)
        conversation += [make_message("assistant", "6003."), make_message("user", "Which port does grafana listen on?")]
        assert "3917" in str(engine.session("s").assemble(conversation, limit=6_000).render())

    def test_a_block_of_facts_alone_is_reported(self, engine: Engine) -> None:
        """The report names the facts by their ids."""
        fact = engine.session("other").remember("The staging database listens on port 6543.", type="config")
        asked = make_message("user", "Which port does the staging database listen on?")
        report = engine.session("s").assemble([asked], limit=LIMIT).report
        assert [change.kind for change in report.changes] == ["recalled"]
        assert (report.recalled, report.recalled_facts) == ((), (fact.id,))
        assert engine.session("s").timeline() == [report]

    def test_what_is_not_in_a_block_is_not_reported_as_recalled(self, engine: Engine) -> None:
        """A question whose answer is in an earlier block gets none, and the report gives the reason."""
        keeper, reasons = "lighthouse keeper on shift", set[str]()
        conversation = list[dict[str, Any]]()
        for n in range(80):
            conversation.append(make_message("user", f"Harbour {n} has its {keeper} {n}. " + f"note{n} " * 80))
            conversation.append(make_message("assistant", f"Noted {n}."))
        for n, name in enumerate(("Which harbour has its", "And which harbour has its", "Again:", "Harbour with")):
            conversation += [make_message("assistant", f"Answer {n}."), make_message("user", f"{name} {keeper} 3?")]
            report = engine.session("s").assemble(conversation, limit=8_000).report
            assert bool(report.recalled) == any(change.kind == "recalled" for change in report.changes)
            reasons.add(report.recall_reason)
        assert reasons >= {"", "the best matches are in earlier blocks in the window"}

    def test_a_short_question_counts_more_than_earlier_messages(self, engine: Engine) -> None:
        """Where the last messages together say something else, the newest one alone is looked for."""
        conversation = [make_message("user", "The vault word is zanzibar."), *long_talk(60)[1:]]
        conversation += [make_message("user", "Summarise detail117, please, and detail116 too.")]
        assert "zanzibar" not in str(engine.session("s").assemble(conversation, limit=LIMIT).render())
        conversation += [make_message("assistant", "Done."), make_message("user", "What is the vault word?")]
        assert "zanzibar" in str(engine.session("s").assemble(conversation, limit=LIMIT).render()[-1])

    def test_nothing_is_lost(self, engine: Engine) -> None:
        """Every message of a conversation that was cut can be had back from the archive."""
        conversation = long_talk(60)
        engine.session("s").assemble(conversation, limit=LIMIT)
        rows = engine.session("s").get(range(1, len(conversation) + 1))
        assert [row.message.text for row in rows] == [message["content"] for message in conversation]

    def test_a_window_only_grows_between_two_cuts(self, engine: Engine) -> None:
        """Without a cut the request before is a beginning of the next one, block and all."""
        conversation = long_talk(60)
        for turn in range(6):
            conversation.append(
                make_message("user", f"Which port does the staging database listen on, question {turn}?")
            )
            window = engine.session("s").assemble(conversation, limit=LIMIT)
            if turn:
                assert window.report.prefix_kept == 1.0
            conversation.append(make_message("assistant", "6543."))

    def test_another_process_renders_the_same(self, tmp_path: Path) -> None:
        """What was trimmed and recalled is recorded: a new engine sends the same window."""
        conversation = [*long_talk(60), make_message("user", "Which port does the staging database listen on?")]
        with Engine.open(tmp_path, settings=QUIET) as first:
            sent = first.session("s").assemble(conversation, limit=LIMIT).render()
        with Engine.open(tmp_path, settings=QUIET) as second:
            assert second.session("s").assemble(conversation, limit=LIMIT).render() == sent

    def test_a_block_that_comes_back_is_not_archived(self, engine: Engine) -> None:
        """A client that sends the recalled block as a part of its history does not feed it to the memory."""
        conversation = [*long_talk(60), make_message("user", "Which port does the staging database listen on?")]
        echoed = [dict(message) for message in engine.session("s").assemble(conversation, limit=LIMIT).render()]
        engine.session("s").assemble([*echoed, make_message("assistant", "6543")], limit=LIMIT)
        rows = engine.session("s").get(range(1, 1000))
        assert all("<recalled-context" not in row.message.text for row in rows)

    def test_what_must_stay_and_does_not_fit_is_a_typed_error(self, engine: Engine) -> None:
        """A system prompt larger than the window is refused before anything is sent."""
        with pytest.raises(WindowTooSmallError):
            engine.session("s").assemble(
                [make_message("system", "x " * 40_000), make_message("user", "hello there")], limit=8_000
            )

    def test_memory_trouble_does_not_block_a_request(self, engine: Engine) -> None:
        """With the store gone the request passes as it came, and the report gives the reason."""
        conversation = long_talk(2)
        engine.session("s").assemble(conversation, limit=LIMIT)
        engine._memory.store.close()
        window = engine.session("s").assemble([*conversation, make_message("user", "and now?")], limit=LIMIT)
        assert window.render()[-1] == make_message("user", "and now?")
        assert window.report.warnings

    def test_a_client_that_goes_back_is_followed(self, engine: Engine) -> None:
        """When the end of a conversation is rewritten, the window is that of the new one."""
        conversation = long_talk(3)
        engine.session("s").assemble([*conversation, make_message("user", "first try, please")], limit=LIMIT)
        window = engine.session("s").assemble([*conversation, make_message("user", "second try, please")], limit=LIMIT)
        assert window.items[-1].message.text == "second try, please"
        assert all(item.message.text != "first try, please" for item in window.items)


class TestReport:
    def test_the_tokens_add_up(self, engine: Engine) -> None:
        """Used, reserved and free tokens are the whole window."""
        report = engine.session("s").assemble(long_talk(10), limit=LIMIT).report
        assert sum(category.tokens for category in report.categories) == LIMIT
        used = sum(category.tokens for category in report.categories if category.kind == "used")
        assert used == report.total_tokens

    def test_every_turn_is_kept(self, engine: Engine) -> None:
        """The timeline shows the report of each past turn, and survives a new engine."""
        conversation = long_talk(1)
        engine.session("s").assemble(conversation, limit=LIMIT)
        engine.session("s").assemble([*conversation, make_message("user", "go on, please")], limit=LIMIT)
        assert [turn.turn for turn in engine.session("s").timeline()] == [1, 2]
        assert engine.session("other").timeline() == []

    def test_a_clock_that_is_absurdly_wrong_blocks_nothing(self, engine: Engine) -> None:
        """A message from the far future is archived like any other, and questions about dates still work."""
        engine.session("s").append(
            [Message(role="user", parts=(Text(text="The vault word is zanzibar."),), timestamp=10**20)]
        )
        window = engine.session("s").assemble(
            [make_message("user", "What was the vault word in March 2026?")], limit=LIMIT
        )
        assert not window.report.warnings


class TestBeyondWhatIsSeen:
    def test_what_was_pruned_away_is_recalled(self, tmp_path: Path) -> None:
        """A tool result of which only a stub is left can be recalled where the question is about the rest."""
        pruned = Settings(
            embedding=Embedding(provider="none"),
            pruning=Pruning(mode="aggressive", min_prunable_tool_chars=0),
            recall=UNHURRIED,
        )
        filler = "".join(f"Nothing of note happened on day {day}, said the log. " for day in range(300))
        log = f"{filler}The ladder of the gannet is tennag. {filler}"
        conversation = [user("Look."), reply("", call("c0", command="cat log")), results(answer("c0", log))]
        for number in range(1, 6):
            conversation += [reply("", call(f"c{number}")), results(answer(f"c{number}", f"other {number} " * 2_500))]
        conversation += [reply("Seen."), user("What is the ladder of the gannet?")]
        with Engine.open(tmp_path, settings=pruned, background=False) as engine:
            window = engine.session("s").assemble(conversation, limit=100_000)
        assert any(change.kind == "pruned" for change in window.report.changes)
        assert "tennag" in str(window.render()[-1])

    def test_a_message_that_was_quoted_in_part_can_be_quoted_again(self, engine: Engine) -> None:
        """What an earlier block shows of a long message does not hide the rest of it."""
        filler = "".join(f"Nothing of note happened on day {day}, said the log. " for day in range(120))
        text = f"The anthem of the kestrel is letsrek. {filler}The ladder of the gannet is tennag."
        engine.session("s").append([make_message("assistant", text)])
        conversation = [make_message("user", "What is the anthem of the kestrel?")]
        assert "letsrek" in str(engine.session("s").assemble(conversation, limit=100_000).render())
        conversation += [make_message("assistant", "I see."), make_message("user", "What is the ladder of the gannet?")]
        assert "tennag" in str(engine.session("s").assemble(conversation, limit=100_000).render()[-1])


class TestKeeping:
    def test_a_pinned_message_comes_back_and_stays(self, engine: Engine) -> None:
        """What the user pins returns to the window, though it was trimmed, and no later cut takes it."""
        conversation = [*long_talk(60), make_message("user", "Please summarise module number 57 and detail57.")]
        window = engine.session("s").assemble(conversation, limit=LIMIT)
        assert "6543" not in str(window.render())
        (number,) = {hit.message for hit in engine.session("s").search("Remember staging database port", limit=1)}
        assert engine.session("s").pin([number]) == 1
        conversation += [*long_talk(30)[3:], make_message("user", "And detail29?")]
        again = engine.session("s").assemble(conversation, limit=LIMIT)
        assert "listens on port 6543" in str(again.render()[:6])
        assert again.report.total_tokens <= LIMIT
        engine.session("s").pin([number], pinned=False)
        conversation += [*long_talk(30)[3:], make_message("user", "And detail28, once more?")]
        assert "listens on port 6543" not in str(engine.session("s").assemble(conversation, limit=LIMIT).render()[:6])

    def test_a_cut_can_be_undone_where_there_is_room(self, engine: Engine) -> None:
        """What the last cut took comes back when it is asked for and fits."""
        conversation = [*long_talk(30), make_message("user", "Please summarise detail27.")]
        before = engine.session("s").assemble(conversation, limit=20_000)
        cut = sum(len(change.ids) for change in before.report.changes if change.kind == "trimmed")
        assert cut
        assert engine.session("s").undo_trim() == cut
        after = engine.session("s").assemble(conversation, limit=35_000)
        assert len(after.items) == len(conversation)
        assert engine.session("another").undo_trim() == 0

    def test_edits_of_two_processes_are_all_kept(self, tmp_path: Path) -> None:
        """Two engines that edit the same session at once lose no edit of each other."""
        conversation = [*long_talk(3), make_message("user", "Go on.")]
        with (
            Engine.open(tmp_path, settings=QUIET) as one,
            Engine.open(tmp_path, settings=QUIET) as other,
        ):
            ids = [item.id for item in one.session("s").assemble(conversation, limit=LIMIT).items]
            other.session("s").assemble(conversation, limit=LIMIT)
            one.session("s").pin(ids[1:2])
            other.session("s").pin(ids[2:3])
            for engine in (one, other):
                shown = engine.session("s").assemble(conversation, limit=LIMIT).items
                assert [item.id for item in shown if item.pinned] == ids[1:3]


class TestForgetting:
    def test_what_was_made_of_a_message_goes_with_it(self, tmp_path: Path) -> None:
        """A forgotten message is gone from recorded blocks and reports, and from the file, down to its bytes."""
        canary = "zanzibar9876543"
        with Engine.open(tmp_path, settings=QUIET) as engine:
            conversation = [make_message("user", f"Remember: the vault word is {canary}."), *long_talk(60)[1:]]
            conversation += [make_message("user", "Summarise detail117, please.")]
            engine.session("s").assemble(conversation, limit=LIMIT)
            conversation += [make_message("assistant", "Done."), make_message("user", "What is the vault word?")]
            window = engine.session("s").assemble(conversation, limit=LIMIT)
            assert canary in str(window.render()[-1])
            ids = [hit.message for hit in window.report.recalled if canary in hit.text]
            # A fact that the background has read from the message is forgotten and counted too.
            assert engine.session("s").forget(ids=ids) - len(ids) in {0, 1}
            assert canary not in str(engine.session("s").timeline())
        assert not any(canary.encode() in file.read_bytes() for file in tmp_path.iterdir())

    def test_a_fact_goes_with_what_it_rests_on(self, engine: Engine) -> None:
        """Facts whose evidence is forgotten are forgotten; others stay."""
        (number,) = engine.session("s").append([make_message("user", "We ship on Friday.")])
        scope = Scope(session="s")
        shipped = FactRow(scope=scope, id="a", type="decision", content="Ship on Friday.", evidence=(number,))
        engine._memory.store.add_facts([shipped])
        engine.session("s").remember("Tea is at four.")
        engine.session("s").forget(ids=[number])
        assert [fact.content for fact in engine.session("s").facts()] == ["Tea is at four."]


class TestBackground:
    def test_new_messages_are_embedded_meanwhile(self, tmp_path: Path) -> None:
        """What is archived gets its vectors without anybody waiting for it."""
        settings = Settings(embedding=Embedding(provider="hash"))
        with Engine.open(tmp_path, settings=settings) as engine:
            engine.session("s").append([make_message("user", "The quick brown fox jumps over the lazy dog.")])
            until(lambda: engine.stats().embedded)
            assert engine.stats().embedded == 1

    def test_without_a_worker_it_waits_for_a_call(self, tmp_path: Path) -> None:
        """Where there is no thread, the work is done when it is asked for."""
        settings = Settings(embedding=Embedding(provider="hash"))
        with Engine.open(tmp_path, settings=settings, background=False) as engine:
            engine.session("s").append([make_message("user", "The quick brown fox jumps over the lazy dog.")])
            assert engine.stats().embedded == 0
            assert engine.work() == 1
            assert engine.stats().embedded == 1


def test_a_search_lists_passages_that_match_the_question(tmp_path: Path) -> None:
    """With vectors every passage is more or less near: those that are far and share no word are left out."""
    words = ("[UNK]", "cat", "whiskers", "name", "pet", "weather")
    vectors = [[0, 0, 0.01], [1, 0, 0], [0.2, 0, 0], [0, 0.1, 0], [1, 0.1, 0], [0, 0, 1]]
    folder = static_folder(tmp_path / "model", np.array(vectors, np.float32), words=words)
    settings = Settings(embedding=Embedding(provider="local", model=str(folder)))
    with Engine.open(tmp_path / "memory", settings=settings, background=False) as engine:
        session = engine.session("s")
        for text in ("cat whiskers", "weather", "name of the weather"):
            session.append([{"role": "user", "content": text}])
        engine.work()
        assert [hit.text for hit in session.search("pet")] == ["cat whiskers"]


class TestRepr:
    def test_objects_have_a_short_representation(self, tmp_path: Path) -> None:
        """None of them prints the conversation."""
        with Engine.open(tmp_path, settings=QUIET, background=False) as engine:
            session = engine.session("s1", project="shop")
            window = session.assemble([{"role": "user", "content": "Where does it listen?"}], limit=20_000)
            assert repr(engine) == f"<Engine {str(tmp_path / 'holdfast.db')!r}>"
            assert repr(session) == "<Session 's1' tenant='local' project='shop' agent='main'>"
            assert repr(AsyncSession(session)) == "<AsyncSession 's1' tenant='local' project='shop' agent='main'>"
            assert repr(window) == f"<Window of 1 messages, {window.tokens} tokens, for 'openai_chat'>"
        assert repr(engine).endswith("closed>")
