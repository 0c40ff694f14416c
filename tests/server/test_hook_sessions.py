"""Several sessions of a project through `holdfast hook`: a new one, `/clear`, a resumed one, a second terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.hooks import spool
from holdfast.server import client
from support.hook_host import Host
from support.waiting import stop_server, until

pytestmark = pytest.mark.usefixtures("words_only")
FACT = "The billing replica listens on port 5433, say the operators."
DETAIL = "Mirjam Okafor looks after the importer at night"
REPLY = "The replica is configured for port 5433 now."
QUESTION = "On which port does the billing replica listen?"
OVERVIEW = "<project-overview>"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """A host whose first session states a fact. Its server is stopped at the end."""
    monkeypatch.setenv("HOLDFAST_RECALL__DEADLINE_MS", "600000")  # the machine may be busy
    monkeypatch.setenv("HOLDFAST_TIMEOUT_MS", "600000")
    one = Host(tmp_path)
    assert one.run("SessionStart", source="startup") == ""
    one.write("user", FACT)
    one.write("assistant", REPLY)
    one.write("user", f"By the way, {DETAIL}, and Jonas by day.")
    one.write("assistant", "I see. The replica is done.")
    one.run("Stop")
    folder = str(one.home)
    until(lambda: client.find(folder) and not spool.names(folder))  # the server has read the transcript
    yield one
    stop_server(one.home)


def open_session(host: Host, name: str) -> dict[str, Any]:
    """Return the fields of the events of another session, which has no transcript yet."""
    return {"session_id": name, "transcript_path": str(host.file.with_name(f"{name}.jsonl"))}


@pytest.mark.variants
@pytest.mark.parametrize(
    ("source", "ending"),
    [("startup", None), ("startup", "prompt_input_exit"), ("clear", "clear")],
    ids=["a second terminal", "a new session", "clear"],
)
def test_another_session_of_the_project_remembers(host: Host, source: str, ending: str | None) -> None:
    """It begins with an overview, and recalls what the first one said; a session of another project does not."""
    if ending is not None:
        host.run("SessionEnd", reason=ending)
    other = open_session(host, "s2")
    overview = host.run("SessionStart", source=source, **other)
    if source == "clear":  # Gemini CLI drops what is returned then
        assert overview == ""
        overview = host.run("UserPromptSubmit", prompt="Good morning.", **other)
    assert OVERVIEW in overview
    assert DETAIL not in overview
    assert DETAIL in host.run("UserPromptSubmit", prompt="Who looks after the importer at night?", **other)
    stranger = open_session(host, "s3") | {"cwd": "/srv/blog"}
    assert host.run("SessionStart", source=source, **stranger) == ""
    assert host.run("UserPromptSubmit", prompt="Who looks after the importer at night?", **stranger) == ""


def test_the_overview_comes_once(host: Host) -> None:
    """Not with every prompt, and not when the session is resumed; a compaction removes it, so that it comes again."""
    other = open_session(host, "s2")
    assert OVERVIEW in host.run("SessionStart", source="startup", **other)
    assert OVERVIEW not in host.run("UserPromptSubmit", prompt=QUESTION, **other)
    assert host.run("SessionStart", source="resume", **other) == ""
    host.run("PreCompact", trigger="manual", **other)
    assert OVERVIEW in host.run("SessionStart", source="compact", **other)
    assert host.run("SessionStart", source="resume", **other) == ""


def test_a_session_without_an_overview_gets_one_when_it_is_resumed(host: Host) -> None:
    """It began before Holdfast was installed."""
    assert OVERVIEW in host.run("SessionStart", source="resume", **open_session(host, "s2"))


def test_a_session_whose_start_was_not_answered_gets_it_with_its_first_prompt(host: Host) -> None:
    """The server was not ready in time; the next prompt does not repeat it."""
    other = open_session(host, "s2")
    first = host.run("UserPromptSubmit", prompt="Have a look at the importer.", **other)
    assert OVERVIEW in first
    assert OVERVIEW not in host.run("UserPromptSubmit", prompt="Have a look at the ledger.", **other)


def test_a_session_that_keeps_its_name_begins_again(host: Host) -> None:
    """What its window showed before is recalled: the host has emptied it."""
    assert host.run("UserPromptSubmit", prompt=QUESTION) == ""
    host.run("SessionStart", source="clear")
    assert "5433" in host.run("UserPromptSubmit", prompt=QUESTION)


def test_sessions_can_be_kept_apart(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a new one begins with nothing, and recalls nothing of the others."""
    stop_server(host.home)
    until(lambda: not client.find(str(host.home)))  # until it has ended, it answers with the settings that it has
    monkeypatch.setenv("HOLDFAST_ARCHIVE__CROSS_SESSION", "false")
    other = open_session(host, "s2")
    assert host.run("SessionStart", source="startup", **other) == ""
    assert host.run("UserPromptSubmit", prompt=QUESTION, **other) == ""
