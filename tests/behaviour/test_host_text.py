"""Text that hosts add to requests is archived, but not searched with, quoted or learned from.

The requests in `fixtures/requests` have the form in which each host sends them. The text of the host in them has the
words of the questions on purpose.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine
from holdfast.memory.extract import read_explicit
from holdfast.settings import Archive, Settings
from support.paths import FIXTURES
from support.waiting import UNHURRIED

HOSTS = sorted(path.stem for path in (FIXTURES / "requests").glob("*.json"))
DECOY = "The tool Replica listens on a port of your choice."
DOCUMENT = "Parcels of the shop go out with Valk Freight."
"""What the instructions of the project say, which Claude Code and Codex add to the first message."""
FACTS = {
    "On which port does the billing replica listen?": ("The billing replica listens on port 5433.", "5433"),
    "What is the discount of Nordwind AB?": ("Nordwind AB gets a discount of 12 percent.", "12 percent"),
    "Who is on call for the ledger?": ("Mirjam Okafor is on call for the ledger this month.", "Okafor"),
    "How many retries does the importer make?": ("The importer makes 22 retries, then it gives up.", "22 retries"),
    "How long does the canary run?": ("The canary runs for 40 minutes.", "40 minutes"),
    "退款期限是多少天？": ("退款期限是收货后三十五天。", "三十五天"),
}
SETTINGS = Settings(archive=Archive(cross_session=True), recall=UNHURRIED)


def read_request(host: str, question: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the format and the messages of a request that asks a question."""
    text = (FIXTURES / "requests" / f"{host}.json").read_text("utf-8")
    request = json.loads(text.replace("{question}", question))
    return request["format"], request["messages"]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine with an earlier session that states the facts, between other things."""
    with Engine.open(tmp_path_factory.mktemp("memory"), settings=SETTINGS, background=False) as one:
        history: list[dict[str, Any]] = []
        for fact, _ in FACTS.values():
            history.append({"role": "user", "content": fact})
            history.append({"role": "assistant", "content": "I have noted that."})
        one.session("earlier").assemble(history, limit=100_000, recall=False)
        one.work()
        yield one


@pytest.mark.variants
@pytest.mark.parametrize("host", HOSTS)
def test_every_question_recalls_its_fact_and_no_text_of_the_host(engine: Engine, host: str) -> None:
    """The result is the same as for the question alone."""
    for number, (question, (_, answer)) in enumerate(FACTS.items()):
        format_, messages = read_request(host, question)
        session = engine.session(f"{host}-{number}")
        window = session.assemble(messages, format=format_, provider=format_, limit=100_000)
        shown = "\n".join(message.text for message in window.messages)
        recalled = "".join(re.findall(r"(?s)<recalled-context.*?</recalled-context", shown))
        assert answer in recalled, (question, window.report.recall_reason)
        assert DECOY not in recalled


@pytest.mark.variants
@pytest.mark.parametrize("host", HOSTS)
def test_text_of_a_host_is_archived_and_nothing_else(tmp_path: Path, host: str) -> None:
    """It can be read with its message, but no search finds it, and it becomes no fact and no title."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        format_, messages = read_request(host, "Which port?")
        session = engine.session("s")
        session.assemble(messages, format=format_, provider=format_, limit=100_000)
        engine.work()
        rows = session.messages()
        archived = [row.message.text + "".join(result.text for result in row.message.results) for row in rows]
        assert DECOY in "\n".join(archived)
        assert read_explicit(rows) == []
        found = [*session.search("tool Replica choice"), *session.search("billing review needs a deadline")]
        assert not [hit for hit in found if "Replica" in hit.text or "billing" in hit.text]
        (info,) = engine.sessions()
        assert info.title in {"Look at the notes.", "Which port?"}


@pytest.mark.parametrize("host", ["claude_code", "codex"])
def test_instructions_of_the_project_can_be_found(tmp_path: Path, host: str) -> None:
    """A person wrote them. They are quoted if a question is about them and they have left the window."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        format_, messages = read_request(host, "Which port?")
        session = engine.session("s")
        session.assemble(messages, format=format_, provider=format_, limit=100_000)
        engine.work()
        assert DOCUMENT in session.search("Which carrier takes the parcels of the shop?")[0].text
        other = engine.session("other")
        window = other.assemble([{"role": "user", "content": "With whom do parcels of the shop go out?"}])
        assert "Valk Freight" in window.messages[-1].text
