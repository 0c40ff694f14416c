"""Forgetting from the command line."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from holdfast.cli.commands import doctor
from holdfast.cli.memory import forget, remember
from holdfast.engine import Engine
from holdfast.messages import Message, Text
from holdfast_agent.note_files import find_sessions, read_messages
from holdfast_agent.notes import Notes
from holdfast_agent.settings import Experimental, MemorySearch
from holdfast_agent.terminal import MaskedHistory
from support.agent_fixture import BASE, AgentFixture, change_agent
from support.conversations import user
from support.stores import add_unreadable_job


def run(command: object, *arguments: str, home: Path) -> str:
    """What a command prints; it must succeed."""
    done = CliRunner().invoke(command, [*arguments, "--home", str(home)])  # type: ignore[arg-type]
    assert done.exit_code == 0, done.output
    return done.stdout


def files_with(home: Path, word: str) -> list[str]:
    """The files under a folder in which a word stands."""
    return [file.name for file in home.rglob("*") if file.is_file() and word.encode() in file.read_bytes()]


def test_words_go_from_the_agents_own_transcripts_too(tmp_path: Path) -> None:
    """Memory and sessions share a home: of what is forgotten, by number or as a session, nothing is left in it."""
    fixture = AgentFixture(tmp_path, memory=tmp_path)
    agent = fixture.agent(["Noted.", "Fine."])
    agent.say("The vault word is zanzibar9876.")
    agent.say("The other word is mombasa1234.")
    (number,) = {hit.message for hit in agent.session.search("vault word zanzibar9876", limit=1)}
    session = agent.session.id
    agent.engine.close()
    run(forget, str(number), "--yes", home=tmp_path)
    assert files_with(tmp_path, "zanzibar9876") == []
    assert files_with(tmp_path, "mombasa1234")
    run(forget, "--session", session, "--yes", home=tmp_path)
    assert files_with(tmp_path, "mombasa1234") == []


def test_words_go_from_the_index_of_notes(tmp_path: Path) -> None:
    """Past sessions are searched with the notes: the index, its vectors and its free pages keep no forgotten word."""
    searched = MemorySearch(
        provider="hash", sources=("memory", "sessions"), experimental=Experimental(session_memory=True)
    )
    fixture = AgentFixture(tmp_path, settings=change_agent(BASE, memory_search=searched), memory=tmp_path)
    agent = fixture.agent(["Noted.", "Fine."])
    agent.say("The vault word is zanzibar9876.")
    agent.say("The other word is mombasa1234.")
    (number,) = {hit.message for hit in agent.session.search("vault word zanzibar9876", limit=1)}
    with Notes(agent.root, fixture.settings, tmp_path / "notes-main.db", sessions=agent.sessions.folder) as notes:
        notes.sync(whole=True)
        assert "zanzibar9876" in notes.search("vault word").hits[0].snippet
        agent.engine.close()
        run(forget, str(number), "--yes", home=tmp_path)
        assert files_with(tmp_path, "zanzibar9876") == []
        found = notes.search("other word mombasa1234", max_results=1)
        assert "mombasa1234" in found.hits[0].snippet
        assert files_with(tmp_path, "zanzibar9876") == []


def test_words_go_from_the_index_of_qmd(tmp_path: Path) -> None:
    """Exports of sessions and QMD's index of them are made again when QMD next looks; other exports stay."""
    fixture = AgentFixture(tmp_path, memory=tmp_path)
    agent = fixture.agent(["Noted.", "Fine."])
    agent.say("The vault word is zanzibar9876.")
    (number,) = {hit.message for hit in agent.session.search("vault word zanzibar9876", limit=1)}
    agent.reset()
    agent.say("The other word is mombasa1234.")
    agent.engine.close()
    qmd = agent.sessions.folder.parent / "qmd"
    (qmd / "sessions").mkdir(parents=True)
    for source in find_sessions(agent.sessions.folder):
        text = str(read_messages(source.path, mask=True))
        (qmd / "sessions" / f"{source.path.name}.md").write_text(text, "utf-8")
    (qmd / "cache" / "qmd").mkdir(parents=True)
    (qmd / "cache" / "qmd" / "index.sqlite").write_bytes(b"zanzibar9876")
    run(forget, str(number), "--yes", home=tmp_path)
    assert files_with(tmp_path, "zanzibar9876") == []
    assert any(name.endswith(".md") for name in files_with(tmp_path, "mombasa1234"))


def test_words_go_from_the_prompt_history(tmp_path: Path) -> None:
    """What was typed is forgotten with the message or the fact that it became; other lines stay."""
    fixture = AgentFixture(tmp_path, memory=tmp_path)
    agent = fixture.agent(["Noted."])
    typed = MaskedHistory(lambda: tmp_path)
    for line in ("The vault word\nis 桑给巴尔9876.", "/memory add The code is mombasa1234.", "no", "not that"):
        typed.store_string(line)
    agent.say("The vault word\nis 桑给巴尔9876.")
    numbers = agent.session.append([user("no")])
    numbers += [hit.message for hit in agent.session.search("vault word 桑给巴尔9876", limit=1)]
    agent.engine.close()
    fact = json.loads(run(remember, "The code is mombasa1234.", "--json", home=tmp_path))["id"]
    run(forget, *map(str, numbers), fact, "--yes", home=tmp_path)
    assert files_with(tmp_path, "桑给巴尔9876") == []
    assert files_with(tmp_path, "mombasa1234") == []
    assert list(typed.load_history_strings()) == ["not that"]
    assert (tmp_path / "chat_history").stat().st_mode & 0o777 == 0o600


def test_words_go_from_damaged_copies_of_the_store(tmp_path: Path) -> None:
    """A damaged file that a repair has kept cannot be changed row by row: it goes, and that is said."""
    with Engine.open(tmp_path, settings=BASE, background=False) as engine:
        (number,) = engine.session("s").append([user("The vault word is zanzibar9876.")])
    add_unreadable_job(tmp_path / "holdfast.db")
    run(doctor, "--repair", home=tmp_path)
    assert len(list(tmp_path.glob("*.damaged.*"))) == 1
    said = run(forget, str(number), "--yes", home=tmp_path)
    assert "Damaged copies of the store were deleted." in said
    assert files_with(tmp_path, "zanzibar9876") == []
    assert list(tmp_path.glob("*.damaged.*")) == []


def test_a_number_is_not_taken_for_the_beginning_of_a_fact_id(tmp_path: Path) -> None:
    """`forget 4` forgets message 4, though the id of a fact that is named too begins with a 4."""
    with Engine.open(tmp_path, settings=BASE, background=False) as engine:
        known = [engine.session("s").remember(f"Gate {gate} is green.").id for gate in range(60)]
        fact = next(name for name in known if name[0].isdigit() and name[0] != "0")
        messages = [{"role": "user", "content": f"word{number}"} for number in range(9)]
        numbers = engine.session("s").append(messages)
    run(forget, fact[0], fact, "--yes", home=tmp_path)
    with Engine.open(tmp_path, settings=BASE, background=False) as engine:
        left = [row.id for row in engine.session("s").get(numbers)]
        assert left == [number for number in numbers if number != int(fact[0])]


def test_rows_of_an_agent_that_cannot_have_files_are_forgotten(tmp_path: Path) -> None:
    """A library may call an agent anything; no file of another agent is touched for it."""
    odd = Message(role="user", parts=(Text(text="The vault word is zanzibar9876."),), id="e0000001")
    with Engine.open(tmp_path, settings=BASE, background=False) as engine:
        engine.session("s", agent="../main").append([odd])
    run(forget, "--session", "s", "--agent", "../main", "--yes", home=tmp_path)
    assert files_with(tmp_path, "zanzibar9876") == []
