"""A new session recalls what was said in others if all of them belong to one person."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Engine, Settings
from holdfast.settings import Archive, Embedding
from holdfast.shared import find_memory
from holdfast.store.base import Scope
from support.conversations import reply, user
from support.waiting import UNHURRIED

QUIET = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
FACT = "The replica of the ledger listens on port 6543."
QUESTION = "Which port does the replica of the ledger listen on?"


def recall_elsewhere(engine: Engine, **scope: str) -> str:
    """State a fact in one session of the project `shop`, and return the window of another session that asks for it."""
    engine.session("first", project="shop").append([user(FACT), reply("Noted.")])
    return str(engine.session("second", **scope).assemble([user(QUESTION)], limit=20_000).render())


def test_a_personal_memory_recalls_the_other_sessions_of_a_project(tmp_path: Path) -> None:
    """It does not recall those of another project."""
    with Engine.open(tmp_path, settings=QUIET, background=False, personal=True) as engine:
        assert "6543" in recall_elsewhere(engine, project="shop")
        assert "6543" not in recall_elsewhere(engine, project="blog")


def test_a_library_does_not(tmp_path: Path) -> None:
    """Its sessions may belong to several people."""
    with Engine.open(tmp_path, settings=QUIET, background=False) as engine:
        assert "6543" not in recall_elsewhere(engine, project="shop")


@pytest.mark.parametrize("personal", [True, False])
@pytest.mark.parametrize("cross_session", [True, False])
def test_the_setting_decides(tmp_path: Path, *, personal: bool, cross_session: bool) -> None:
    """A seed's `crossSession: false` is honoured."""
    settings = Settings(embedding=Embedding(provider="none"), archive=Archive(cross_session=cross_session))
    with Engine.open(tmp_path, settings=settings, background=False, personal=personal) as engine:
        assert ("6543" in recall_elsewhere(engine, project="shop")) == cross_session


def test_other_callers_of_a_server_do_not(tmp_path: Path) -> None:
    """The key of a caller may belong to a program with many users."""
    with Engine.open(tmp_path, settings=QUIET, background=False, personal=True) as engine:
        stranger = {"project": "shop", "agent": "main@k-0123456789abcdef"}
        engine.session("first", **stranger).append([user(FACT), reply("Noted.")])
        window = engine.session("second", **stranger).assemble([user(QUESTION)], limit=20_000)
        assert "6543" not in str(window.render())
        assert not engine._memory.reach_of(Scope(agent="main@nobody"))


def test_hosts_and_servers_open_a_personal_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks, plugins, MCP and the proxy share one way to open a memory."""
    monkeypatch.setenv("HOLDFAST_EMBEDDING__PROVIDER", "none")
    with find_memory(tmp_path, project=None).open() as engine:
        assert "6543" in recall_elsewhere(engine, project="shop")
