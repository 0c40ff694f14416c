"""I9 through every entry point: with any names of scopes, a reader sees only its own rows."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("jinja2", reason="the server extra is not installed")
pytest.importorskip("mcp", reason="the mcp extra is not installed")
import httpx2 as httpx
import uvicorn
from mcp import Client

from holdfast import Engine
from holdfast.cli import holdfast
from holdfast.errors import InputError
from holdfast.mcp import create_server
from holdfast.server.app import create_app
from holdfast.server.inspector.web import address, link
from holdfast.settings import Embedding, Settings
from holdfast.store.base import Scope
from support.strategies import examples
from support.waiting import PATIENCE

NAMES: Final = (
    *("a", "A", "b", "local", "main", "a/b", "/a", "../a", "a..b", "a\0", "a\0b", "%61", "a%00", "a%2Fb", "a+b"),
    *("a&b=c", "a'", "a' OR '1'='1", '"a"', "*", "%", "_", "?", "a*", "a%", "[a]", "a ", " a", "a\n", "a\t", "a#b"),
    *("a;b", "\uff41", "\u0430", "\u00e1", "a\u0301", "a\u200b", "a\u202e", "ß", "SS", "张三", "張三"),
    *("null", "None", "undefined", "0", "{}"),
)
"""Names that naive code takes for another name, a pattern, a path, a part of a statement or no name."""
PLAIN: Final = Scope(tenant="a", project="a", agent="a", session="a")
OWNERS: Final = tuple(
    dict.fromkeys(
        (
            *(replace(PLAIN, tenant=name) for name in ("", *NAMES)),
            *(replace(PLAIN, project=name) for name in ("", *NAMES)),
            *(replace(PLAIN, agent=name) for name in ("", *NAMES)),
            *(replace(PLAIN, session=name) for name in NAMES),
            *(Scope(tenant=tenant, session="a") for tenant in ("local", "", "a", "A")),
            Scope(tenant="local", project="a", agent="", session="a"),
            Scope(tenant="a/a", project="", agent="a", session="a"),
            Scope(tenant="a", project="a/a", agent="", session="a"),
        )
    )
)
"""The owners: they differ in one part, or only in where one part ends and the next begins."""
names = st.sampled_from(NAMES)
readers = st.one_of(
    st.sampled_from(OWNERS),
    st.builds(Scope, tenant=names, project=names, agent=names, session=names),
)


@dataclass(frozen=True, repr=False)
class Memory:
    """A memory of all owners, and a server over it."""

    home: Path
    engine: Engine
    numbers: dict[Scope, list[int]]
    client: httpx.Client
    token: str

    @property
    def all_numbers(self) -> list[int]:
        """The numbers of all messages of all owners."""
        return sorted(number for numbers in self.numbers.values() for number in numbers)

    @property
    def pages(self) -> str:
        """The path of the inspector, with its key."""
        return address("", self.token)


@pytest.fixture(scope="module", params=["sqlite", pytest.param("folder", marks=pytest.mark.nightly)])
def memory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    """Store a message, a turn and a fact for each owner, in a SQLite file or a memory-context folder."""
    home = tmp_path_factory.mktemp("ways")
    if request.param == "folder":
        (home / "segments.jsonl").touch()
    token = "secret"
    known = Settings(embedding=Embedding(provider="none"))
    with Engine.open(home, settings=known, background=False) as engine:
        numbers: dict[Scope, list[int]] = {}
        for number, owner in enumerate(OWNERS):
            session = engine.session(owner.session, tenant=owner.tenant, project=owner.project, agent=owner.agent)
            session.assemble([{"role": "user", "content": f"The harbour of owner{number}x is open."}], limit=8_000)
            session.remember(f"harbour owner{number}x")
            numbers[owner] = [row.id for row in session.messages()]
        server = uvicorn.Server(uvicorn.Config(create_app(engine, token=token), port=0, log_level="warning"))
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            threading.Event().wait(0.01)
        url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        with httpx.Client(base_url=url, follow_redirects=True, timeout=PATIENCE) as client:
            assert client.get(address("", token)).status_code == 200
            yield Memory(home=home, engine=engine, numbers=numbers, client=client, token=token)
        server.should_exit = True
        thread.join()


def owners_in(text: str) -> set[Scope]:
    """Return the owners whose words are in a text."""
    return {OWNERS[int(number)] for number in re.findall(r"owner(\d+)x", text)}


def of_agent(reader: Scope) -> set[Scope]:
    """Return the owners of the reader's tenant, project and agent."""
    return {owner for owner in OWNERS if replace(owner, session=reader.session) == reader}


def of_session(reader: Scope) -> set[Scope]:
    """Return the owner that is the reader, if there is one."""
    return {owner for owner in OWNERS if owner == reader}


# --- the library ---------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(reader=readers)
@example(reader=PLAIN)
def test_the_library(memory: Memory, reader: Scope) -> None:
    """Sessions and listings of the engine."""
    whose = {"tenant": reader.tenant, "project": reader.project, "agent": reader.agent}
    engine = memory.engine
    session = engine.session(reader.session, **whose)
    assert {row.scope for row in session.messages()} == of_session(reader)
    assert {row.scope for row in session.get(memory.all_numbers, around=3)} == of_agent(reader)
    assert {row.scope for row in session.get(memory.all_numbers, across=False, around=3)} == of_session(reader)
    assert {row.scope for row in session.facts()} == of_agent(reader)
    assert {row.scope for row in session.facts(across=False)} == of_session(reader)
    assert owners_in(str(session.search("harbour", limit=500))) == of_agent(reader)
    assert owners_in(str(engine.search("harbour", limit=500, **whose))) == of_agent(reader)
    assert owners_in(session.recall("the harbour", across=True, cap=20_000).block) <= of_agent(reader)
    assert len(session.timeline()) == len(of_session(reader))
    of_tenant = {one for one in OWNERS if one.tenant == reader.tenant}
    listed = engine.sessions(tenant=reader.tenant, project=reader.project, agent=reader.agent)
    assert {info.scope for info in listed} == of_agent(reader)
    assert {info.scope for info in engine.sessions(tenant=reader.tenant)} == of_tenant


def test_the_list_of_all_sessions(memory: Memory) -> None:
    """Without a tenant, the engine lists every session of every owner."""
    assert {info.scope for info in memory.engine.sessions()} == set(OWNERS)


@pytest.mark.parametrize("part", ["tenant", "project", "agent", "session"])
def test_half_a_surrogate_pair_is_no_name(memory: Memory, part: str) -> None:
    """No store can keep it: the error says so, in the library and over HTTP."""
    with pytest.raises(InputError, match=f"{part}=.*UTF-8"):
        memory.engine.session(**{"id": "a", "tenant": "a"} | {"id" if part == "session" else part: "a\ud800"})
    params = asdict(PLAIN) | {part: "a\ud800", "ids": memory.all_numbers}
    answer = post_call(memory, "get", params)
    assert answer["error"]["type"] == "InputError"


# --- calls of plugins ----------------------------------------------------------------


def post_call(memory: Memory, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Make a call over HTTP."""
    answer = memory.client.post(
        "/holdfast/rpc",
        content=json.dumps({"id": 1, "method": method, "params": params}),
        headers={"authorization": f"Bearer {memory.token}"},
    )
    return dict(answer.json())


def call(memory: Memory, method: str, params: dict[str, Any]) -> Any:
    """Make a call that succeeds, and return its result."""
    answer = post_call(memory, method, params)
    assert "error" not in answer, answer
    return answer["result"]


@settings(max_examples=examples(40))
@given(reader=readers)
@example(reader=PLAIN)
def test_calls_of_plugins(memory: Memory, reader: Scope) -> None:
    """Every call that reads."""
    whose = asdict(reader)
    numbers = memory.all_numbers
    assert owners_in(str(call(memory, "search", {**whose, "query": "harbour", "limit": 500}))) == of_agent(reader)
    assert owners_in(str(call(memory, "get", {**whose, "ids": numbers, "around": 3}))) == of_agent(reader)
    assert owners_in(str(call(memory, "describe", whose))) <= of_session(reader)
    assert owners_in(str(call(memory, "facts", whose))) == of_agent(reader)
    assert owners_in(str(call(memory, "facts", {**whose, "across": False}))) == of_session(reader)
    found = call(memory, "recall", {**whose, "query": "the harbour", "across": True, "cap": 20_000})
    assert owners_in(str(found)) <= of_agent(reader)
    assert (call(memory, "report", whose) is not None) == bool(of_session(reader))
    owner = {"tenant": reader.tenant, "project": reader.project, "agent": reader.agent}
    assert {_scope(row) for row in call(memory, "sessions", owner)} == of_agent(reader)
    of_tenant = call(memory, "sessions", {"tenant": reader.tenant})
    assert {_scope(row) for row in of_tenant} == {one for one in OWNERS if one.tenant == reader.tenant}
    assert {_scope(row) for row in call(memory, "sessions", {})} == {one for one in OWNERS if one.tenant == "local"}


def _scope(row: dict[str, Any]) -> Scope:
    return Scope(tenant=row["tenant"], project=row["project"], agent=row["agent"], session=row["session"])


# --- MCP -----------------------------------------------------------------------------


@settings(max_examples=examples(25))
@given(reader=readers)
@example(reader=PLAIN)
def test_mcp(memory: Memory, reader: Scope) -> None:
    """Every tool and resource that reads."""

    async def use() -> None:
        server = create_server(memory.engine, **asdict(reader))
        async with Client(server) as client:

            async def tool(name: str, *, is_there: bool = True, **arguments: Any) -> str:
                result = await client.call_tool(name, arguments)
                assert result.is_error is not is_there, result.content
                return f"{result.content} {result.structured_content}"

            has_session = bool(of_session(reader))
            described = await tool("archive_describe", session=reader.session, last=100, is_there=has_session)
            shown = await tool("archive_get", numbers=memory.all_numbers, around=3, is_there=bool(of_agent(reader)))

            assert owners_in(await tool("memory_search", query="harbour", limit=50)) <= of_agent(reader)
            assert owners_in(await tool("memory_recall", question="harbour", max_tokens=20_000)) <= of_agent(reader)
            assert owners_in(shown) == of_agent(reader)
            assert owners_in(described) <= of_session(reader)
            assert owners_in(str(await client.read_resource("holdfast://facts"))) == of_agent(reader)
            listed = json.loads(_resource_text(await client.read_resource("holdfast://sessions")))
            assert {replace(reader, session=row["session"]) for row in listed} == of_agent(reader)
            assert sum(row["messages"] for row in listed) == len(of_agent(reader))
            timeline = await client.call_tool("memory_timeline", {"session": reader.session})
            assert timeline.is_error is not has_session
            if has_session:
                assert timeline.structured_content is not None
                assert len(timeline.structured_content["requests"]) == 1

    anyio.run(use)


def _resource_text(result: Any) -> str:
    return str(result.contents[0].text)


# --- commands ------------------------------------------------------------------------


def options(memory: Memory, **parts: str | None) -> list[str]:
    """Return the options of a command that name a scope; None leaves one out."""
    given = [f"--{name}={value}" for name, value in parts.items() if value is not None]
    return [*given, f"--home={memory.home}", "--json"]


@pytest.fixture(scope="module")
def run(memory: Memory) -> Callable[..., str]:
    """Run a command and return what it prints; empty if it refuses."""
    environment = {"HOLDFAST_EMBEDDING__PROVIDER": "none", "HOLDFAST_HOME": str(memory.home)}

    def invoke(*arguments: str) -> str:
        result = CliRunner(env=environment).invoke(holdfast, list(arguments))
        assert result.exit_code in {0, 1}, result.output
        return result.stdout

    return invoke


@settings(max_examples=examples(12))
@given(reader=readers, names_agent=st.booleans())
@example(reader=PLAIN, names_agent=True)
@example(reader=replace(PLAIN, agent=""), names_agent=True)
@example(reader=Scope(tenant="local", session="a"), names_agent=False)
def test_commands(memory: Memory, run: Callable[..., str], reader: Scope, names_agent: bool) -> None:  # noqa: FBT001
    """Every command that reads, with all parts of a scope named or only some."""
    agent = reader.agent if names_agent else None
    whose = {"tenant": reader.tenant, "project": reader.project, "agent": agent}
    visible = {one for one in OWNERS if replace(one, session="", agent=agent or "") == _without(reader, agent)}
    visible = {one for one in visible if agent is None or one.agent == agent}
    owner = options(memory, **whose)
    session = options(memory, **whose, session=reader.session)
    own = {one for one in visible if one.session == reader.session}
    assert owners_in(run("search", "harbour", "--limit=500", *owner)) == visible
    assert owners_in(run("search", "harbour", "--limit=500", *session)) == own
    numbers = [str(number) for number in memory.all_numbers]
    assert owners_in(run("get", *numbers, "--around=2", *owner)) == visible
    assert owners_in(run("get", *numbers, "--around=2", *session)) == own
    assert owners_in(run("facts", *owner)) == visible
    assert owners_in(run("facts", *session)) == own
    assert owners_in(run("recall", "the harbour", "--cap=20000", *owner)) <= visible
    if names_agent:
        assert owners_in(run("get", *session)) == own
        assert len(json.loads(run("timeline", *session) or "[]")) == len(own)


def _without(reader: Scope, agent: str | None) -> Scope:
    return replace(reader, session="", agent=agent or "")


@settings(max_examples=examples(6))
@given(reader=readers, form=st.sampled_from(["jsonl", "markdown", "folder"]))
@example(reader=PLAIN, form="jsonl")
@example(reader=replace(PLAIN, agent=""), form="markdown")
def test_exports(
    memory: Memory, run: Callable[..., str], tmp_path_factory: pytest.TempPathFactory, reader: Scope, form: str
) -> None:
    """An export has the rows of the owner that the options name."""
    target = tmp_path_factory.mktemp("exports") / "out"
    whose = options(memory, tenant=reader.tenant, project=reader.project, agent=reader.agent)
    run("export", str(target), f"--to={form}", *whose)
    files = [file for file in target.rglob("*.jsonl") if file.is_file()] if form == "folder" else [target]
    text = "".join(file.read_text("utf-8") for file in files)
    assert owners_in(text) == of_agent(reader)


def test_listings_of_all_tenants_name_them(memory: Memory, run: Callable[..., str]) -> None:
    """`holdfast sessions` and `holdfast stats` are for the owner of the memory: they cover all tenants, and say so."""
    rows = json.loads(run("sessions", f"--home={memory.home}", "--json"))["sessions"]
    assert {_scope(row) for row in rows} == set(OWNERS)
    for command in ("sessions", "stats"):
        assert "of all tenants" in run(command, "--help")
    page = memory.client.get(memory.pages).text
    assert "of all tenants" in page


# --- the inspector -------------------------------------------------------------------


@settings(max_examples=examples(20))
@given(reader=readers)
@example(reader=PLAIN)
@example(reader=replace(PLAIN, tenant=""))
@example(reader=replace(PLAIN, agent=""))
@example(reader=Scope(tenant="local", session="a"))
def test_pages_of_the_inspector(memory: Memory, reader: Scope) -> None:
    """A page about a session shows that session, and a link to a session leads to no other.

    It also shows the block of its last turn, in which there may be facts of the agent.
    """

    def text(path: str, **more: object) -> str:
        return str(memory.client.get(link(memory.pages + path, reader, **more)).text)

    assert of_session(reader) <= owners_in(text("session")) <= of_agent(reader)
    assert owners_in(text("session/messages", before=10_000)) == of_session(reader)
    assert owners_in(text("turn", turn=1, page=1)) <= of_agent(reader)
    for number in memory.all_numbers[:: max(1, len(memory.all_numbers) // 10)]:
        assert owners_in(text("download", message=number)) <= of_session(reader)
    for number in memory.numbers.get(reader, []):
        assert owners_in(text("download", message=number)) == of_session(reader)
        assert owners_in(text("erase", message=number)) == of_session(reader)
    answer = text("ask", q="the harbour", cap=20_000, rows=1)
    assert owners_in(answer) <= of_agent(reader)


def test_every_listed_session_is_reached_by_its_link(memory: Memory) -> None:
    """The list of sessions, and the choice for a question, name each session with all parts of its scope."""
    listed: set[Scope] = set()
    page = ""
    start = 0
    while start == 0 or 'data-more="' in page:
        page = memory.client.get(memory.pages + "sessions", params={"start": start}).text
        links = re.findall(r'<a href="(session\?[^"]*)"', page)
        for each in links:
            listed |= owners_in(memory.client.get(memory.pages + each.replace("&amp;", "&")).text)
        start += len(links)
    assert listed == set(OWNERS)
    choices = re.findall(r'<option value="(\?[^"]*session=[^"]*)"', memory.client.get(memory.pages + "ask").text)
    assert len(choices) == len(OWNERS)
    answer = memory.client.get(
        memory.pages + "ask", params={"q": "the harbour", "in": choices[0].replace("&amp;", "&")}
    )
    without_choices = re.sub(r"<option.*?</option>", "", answer.text, flags=re.DOTALL)  # they have titles
    assert len(owners_in(without_choices)) == 1
