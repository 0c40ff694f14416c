"""Real hosts against a scripted model: `make test-hosts`.

Three turns with tools, a compaction with a useless summary, then a question whose answer only the archive has. pi is
fast enough for `make nightly`, if it is in the cache.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import Engine
from holdfast.models.scripted import ScriptedReply
from holdfast.settings import Settings
from holdfast.testing.provider import overflow
from support.host_model import Model, shown, shown_without_recall
from support.host_programs import Program, read_files
from support.waiting import until

pytestmark = pytest.mark.nightly
IS_ASKED = bool(os.environ.get("HOLDFAST_TEST_HOSTS"))
RECORDINGS = os.environ.get("HOLDFAST_RECORDINGS")
"""A folder for the requests that scripts/draw_hosts.py draws."""
FACT = "The billing replica listens on port 5433"
QUESTION = "On which port does the billing replica listen?"
OTHER = "What number do clients connect to for the copy of the invoicing database?"
LONG = "seq -f %090g 1 250"
MIDDLE = f"{125:090d}"


def test_a_conversation_through_a_compaction(
    host: Program, model: Model, record_property: Callable[[str, object], None]
) -> None:
    """What the summary lost is in the request that carries the question, and the files of the host come back."""
    if not host.compacts:
        pytest.skip(f"{host.name} cannot be made to compact without a person")
    before = read_files(host.home)
    assert json.loads(host.holdfast("install", host.name, "--json"))["changes"]

    model.expect([ScriptedReply(calls=(host.call(1, f"echo {FACT}"),)), ScriptedReply(text="Seen.")])
    host.turn("Look at the notes of the billing service.")
    before_compaction = model.bodies[-1]
    assert FACT in shown(before_compaction)
    model.expect([ScriptedReply(calls=(host.call(2, LONG),)), ScriptedReply(text="Counted.")])
    host.turn("Count to two hundred and fifty.")
    assert not host.prunes or MIDDLE not in shown(model.bodies[-1])
    model.expect(
        [ScriptedReply(calls=(host.call(3, "seq 1 30"),)), ScriptedReply(text="Counted again.", usage=host.last_usage)]
    )
    host.turn("Count to thirty.")
    host.compact()
    model.expect([*([overflow()] if host.refuses else []), ScriptedReply(text="Fine.")])
    host.turn(QUESTION)

    requests = [body for body in model.bodies if body.get("tools") and QUESTION in shown(body)]
    request = requests[1 if host.refuses else 0]
    assert host.refuses or "5433" not in shown_without_recall(request)  # else the summary is Holdfast's own
    assert "5433" in shown(request)
    record_property("own words", "yes")
    if RECORDINGS:
        recording = {"before": before_compaction, "after": request}
        Path(RECORDINGS, f"{host.name}.json").write_text(json.dumps(recording), "utf-8")

    with Engine.open(host.home / "memory", settings=Settings(), background=False) as engine:
        (scope,) = engine.sessions()
        session = engine.session(scope.id, project=scope.project)
        rows = session.get(range(1, 100))
        assert bool(session.timeline()) == host.has_window
        results = [result.text for row in rows for result in row.message.results]
        assert any(FACT in text for text in results)
        assert not host.prunes or any(MIDDLE in text for text in results)
        assert host.refuses or scope.project == str(host.work)

    found = json.loads(
        host.holdfast("import", "--discover", "--no-vectors", "--json", "--home", f"{host.home / 'other'}")
    )
    assert (found["problems"], found["messages"] >= 11) == ([], True)

    host.holdfast("uninstall", host.name)
    after = read_files(host.home)
    assert {path: after.get(path) for path in before} == before
    assert not [path for path in after if "holdfast" in path.name.lower() and not {"memory", "other"} & {*path.parts}]
    record_property("uninstall", "yes")


def test_a_second_session_of_the_project_remembers_the_first(
    host: Program, model: Model, record_property: Callable[[str, object], None]
) -> None:
    """Its first request has an overview and the answer, which only the first session has seen; a third one too.

    A fourth one asks in other words. Whether these find the answer depends on the embedder: the table says it.
    """
    note = json.loads(host.holdfast("install", host.name, "--json"))["notes"][-1]
    assert "remembers the earlier sessions of its project" in note
    model.expect([ScriptedReply(calls=(host.call(1, f"echo {FACT}"),)), ScriptedReply(text="I read the notes.")])
    host.turn("Look at the notes of the billing service.")
    until(lambda: is_archived(host))
    for _ in range(2):
        host.begin_session()
        model.expect([ScriptedReply(text="Fine.")])
        before = len(model.bodies)
        host.turn(QUESTION)
        request = next(body for body in model.bodies[before:] if body.get("tools") and QUESTION in shown(body))
        assert "5433" not in shown_without_recall(request)
        assert "5433" in shown(request)
        assert "I read the notes." in shown(request)
        assert len(re.findall("(?:<|&lt;)project-overview", shown(request))) == 1
    record_property("own words", "yes")
    record_property("new session", "yes")
    host.begin_session()
    model.expect([ScriptedReply(text="Fine.")])
    before = len(model.bodies)
    host.turn(OTHER)
    request = next(body for body in model.bodies[before:] if body.get("tools") and OTHER in shown(body))
    record_property("other words", "yes" if "5433" in shown(request) else "no")


def is_archived(host: Program) -> bool:
    """Whether the memory has the reply of the first turn: hooks do not wait until the server has read a transcript."""
    found = json.loads(host.holdfast("search", "I read the notes", "--json"))
    return "I read the notes." in json.dumps(found)
