"""Forgetting from the command line."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from desk import Desk
from holdfast.cli.memory import forget


def test_words_go_from_the_agents_own_transcripts_too(tmp_path: Path) -> None:
    """Memory and sessions share a home: of what is forgotten, by number or as a session, nothing is left in it."""
    desk = Desk(tmp_path, memory=tmp_path)
    agent = desk.agent(["Noted.", "Fine."])
    agent.say("The vault word is zanzibar9876.")
    agent.say("The other word is mombasa1234.")
    (number,) = {hit.message for hit in agent.engine.search("vault word zanzibar9876", session=agent.session, limit=1)}
    session = agent.session
    agent.engine.close()
    assert CliRunner().invoke(forget, [str(number), "--home", str(tmp_path), "--yes"]).exit_code == 0
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not any(b"zanzibar9876" in file.read_bytes() for file in files)
    assert any(b"mombasa1234" in file.read_bytes() for file in files)
    assert CliRunner().invoke(forget, ["--session", session, "--home", str(tmp_path), "--yes"]).exit_code == 0
    assert not any(b"mombasa1234" in file.read_bytes() for file in files if file.exists())
