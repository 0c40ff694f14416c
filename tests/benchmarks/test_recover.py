"""What can be had back after many compactions: the needles, the conversations, and the figures."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import bench, print_recovery
from benchmarks.recover import COMPACTIONS, KINDS, OFF_TOPIC, ROUNDS, USELESS, Needle, conversations, measure, needles
from holdfast.cli.demo import session_lines
from holdfast.engine import Engine
from holdfast.errors import InputError
from holdfast.messages import Message
from holdfast.providers import check, render
from holdfast.text import is_unsegmented
from holdfast.tokens import count_messages
from holdfast.transcripts import read
from support.conversations import reply, system, user

WORDS = {"embedding": {"provider": "none"}}


def made(seed: int = 1, each: int = 20) -> list[Needle]:
    """Needles of a seed."""
    return needles(Random(seed), each=each)  # noqa: S311 - chance, not secrecy


def words(message: Message) -> str:
    """What a message says, calls and results included."""
    return " ".join([message.text, *(str(c.arguments) for c in message.calls), *(r.text for r in message.results)])


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> list[Message]:
    """The first days of the long session of our own."""
    file = tmp_path_factory.mktemp("talk") / "long.jsonl"
    file.write_text("\n".join(session_lines()[:140]), "utf-8")
    return list(read(file).messages)


class TestNeedles:
    def test_the_answer_is_not_in_the_question(self) -> None:
        """Every needle says its answer once, in a valid exchange, and the question does not give it away."""
        for needle in made():
            text = " ".join(map(words, needle.said))
            assert text.count(needle.answer) == 1
            assert needle.answer not in needle.question
            assert check(render(needle.said, "anthropic"), "anthropic") == []

    def test_there_are_as_many_of_each_kind(self) -> None:
        """All nine kinds, no question twice, the same for the same seed and others for another."""
        found = made()
        assert [sum(needle.kind == kind for needle in found) for kind in KINDS] == [20] * 9
        assert len({needle.question for needle in found}) == len(found)
        assert made() == found != made(seed=2)

    def test_off_topic_questions_come_in_two_languages(self) -> None:
        """At least fifty, English and Chinese, each once."""
        chinese = [question for question in OFF_TOPIC if any(map(is_unsegmented, question))]
        assert len(set(OFF_TOPIC)) == len(OFF_TOPIC) >= 50
        assert len(chinese) == len(OFF_TOPIC) // 2


class TestConversations:
    def test_transcripts_are_joined_without_loss_or_repetition(self) -> None:
        """Long enough for all compactions, no message twice, no system prompt in the middle."""
        transcripts = [
            [system(), *(user(f"{name} {number} " + "word " * 50) for number in range(40))] for name in "abcdef"
        ]
        first, second = conversations(transcripts, count=2, seed=3, every=200)
        assert min(count_messages(first), count_messages(second)) >= ROUNDS * 200
        texts = [message.text for message in (*first, *second)]
        assert len(set(texts)) == len(texts)
        assert all(message.role == "user" for message in first)
        assert conversations(transcripts, count=9, seed=3, every=10**6)[0] != first

    def test_nothing_to_join_is_reported(self) -> None:
        """With what to do."""
        with pytest.raises(InputError, match="name files or folders"):
            conversations([[system()]], count=1, seed=1)


class TestFigures:
    @pytest.mark.nightly
    def test_what_left_the_window_is_had_back(self, talk: list[Message]) -> None:
        """With useless summaries the baselines lose what is far away, and memory does not."""
        received: list[int] = []
        found = measure([talk], useless=True, limit=40_000, each=1, tables=WORDS, progress=received.append)
        assert sum(received) >= ROUNDS - 1
        assert found["needles"] == len(KINDS) * len(COMPACTIONS)
        assert set(found["by_compactions"]) == set(map(str, COMPACTIONS))
        assert set(found["by_type"]) == set(KINDS)
        far = found["by_compactions"]["20"]
        assert far["holdfast"] > 0.8 > far["last_n"]
        assert far["summary_only"] == 0
        assert 0 < found["largest_block"] <= found["cap"] == 4_000
        assert found["offtopic_questions"] == len(OFF_TOPIC)
        assert len(found["missed"]) == round(
            sum((1 - row["holdfast"]) * row["needles"] for row in found["by_compactions"].values())
        )

    @pytest.mark.nightly
    def test_an_engine_without_memory_would_be_found_out(self, talk: list[Message]) -> None:
        """Where nothing is recalled, what is far away is missed, and no question gets a block."""
        found = measure([talk], useless=True, limit=40_000, each=1, tables={**WORDS, "recall": {"enabled": False}})
        assert found["by_compactions"]["20"]["holdfast"] < 0.2
        assert found["offtopic_injected"] == 0
        assert found["largest_block"] == 0

    @pytest.mark.nightly
    def test_the_command_prints_both_summarisers(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """JSON with the promised fields, tables for people; a request larger than the window is passed over."""
        file = tmp_path / "talk.json"
        messages = [user("Look. " + "word " * 40), reply("Seen. " + "more " * 40)] * 30
        messages.insert(56, user("huge " * 9_000))
        file.write_text(json.dumps(render(messages, "openai_chat")), "utf-8")
        command = ["recover", str(file), "--limit", "10000", "--talks", "1", "--each", "1"]
        found = json.loads(CliRunner().invoke(bench, [*command, "--json"]).stdout)
        for figures in (found, found["digest"]):
            for key in ("cap", "by_compactions", "by_type", "by_distance", "offtopic_injected"):
                assert key in figures
        assert found["summariser"] == "useless"
        assert found["cap"] == 1_000
        print_recovery("summaries by rule", found["digest"])
        shown = capsys.readouterr().out
        for title in ("summaries by rule", "compactions", "tokens since", "exit_code", "off topic"):
            assert title in shown


def test_a_useless_summary_is_in_the_window_unchanged(tmp_path: Path) -> None:
    """The stub stands for everything: nothing of what was said is left but what is recent."""
    from benchmarks.recover import _engine  # noqa: PLC0415 - as the bench opens it
    from holdfast.settings import Embedding, Settings  # noqa: PLC0415 - as above

    quiet = Settings(embedding=Embedding(provider="none"))
    engine: Engine
    with _engine(str(tmp_path), quiet, useless=True) as engine:
        messages = [user(f"Turn {number} " + "word " * 200) for number in range(40)]
        done = engine.session("s").compact(messages, limit=40_000)
        assert done.summary is not None
        assert done.summary.text == USELESS
