"""The MCP server, as the official client uses it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import httpx2 as httpx
import pytest
from mcp import Client, ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, Implementation, TextContent

from holdfast import Engine
from holdfast.mcp import create_server
from holdfast.memory.sessions import read_host
from holdfast.settings import Settings
from support import patient
from support.forked import Holdfast
from support.waiting import UNHURRIED, until


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A memory with one conversation of the project `shop`."""
    with Engine.open(tmp_path / "memory", settings=Settings(), background=False) as engine:
        session = engine.session("s1", project="shop")
        session.append(
            [
                {"role": "user", "content": "The billing replica listens on port 5433."},
                {"role": "assistant", "content": "I will use 5433 for the billing replica."},
            ]
        )
        engine.session("s3", project="shop").append([{"role": "user", "content": "Which port has the replica?"}])
        engine.session("s2", project="other").append([{"role": "user", "content": "The other replica is on 9999."}])
    return tmp_path / "memory"


def test_the_tools_over_standard_input_and_output(home: Path) -> None:
    """Search finds the project's words alone, facts are stored and found, forgotten messages are gone."""

    async def use() -> None:
        arguments = ["-m", "holdfast", "mcp", "--home", str(home), "--project", "shop"]
        parameters = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
        about = Implementation(name="编辑器 editor", version="1")
        async with stdio_client(parameters) as streams, ClientSession(*streams, client_info=about) as client:
            await client.initialize()

            async def call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
                result = await client.call_tool(tool, arguments)
                assert result.structured_content is not None, result.content
                return dict(result.structured_content)

            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == {
                "archive_describe",
                "archive_expand",
                "archive_get",
                "memory_forget",
                "memory_get",
                "memory_recall",
                "memory_search",
                "memory_store",
                "memory_timeline",
            }
            for tool in tools.values():
                assert tool.output_schema
                assert tool.annotations is not None
                assert tool.annotations.read_only_hint == (tool.name not in {"memory_store", "memory_forget"})
            hints = tools["memory_forget"].annotations
            assert hints is not None
            assert hints.destructive_hint
            question = {"query": "which port has the replica?"}
            found = await call("memory_search", question)
            assert "Which port has the replica?" not in [one["text"] for one in found["excerpts"]]  # being answered
            assert (await call("memory_search", {"query": "a recipe for pancakes"}))["excerpts"] == []
            numbers = [one["message"] for one in found["excerpts"]]
            assert any("5433" in one["text"] for one in found["excerpts"])
            assert not any("9999" in one["text"] for one in found["excerpts"])
            stored = await call("memory_store", {"content": "Deploys happen on Tuesdays."})
            assert (await call("memory_get", {"fact": stored["id"][:8]}))["content"] == "Deploys happen on Tuesdays."
            assert "5433" in str(await call("archive_get", {"numbers": numbers}))
            assert "5433" in (await call("memory_recall", {"question": question["query"]}))["block"]
            assert await call("memory_timeline", {"session": "s1"}) == {"requests": []}
            assert (await client.call_tool("memory_get", {"fact": ""})).is_error
            failed = await client.call_tool("memory_store", {"content": " "})
            assert failed.is_error
            assert "nothing to remember" in str(failed.content)
            resource = await client.read_resource("holdfast://sessions")
            assert "s1" in str(resource)
            assert "s2" not in str(resource)
            assert "Tuesdays" in str(await client.read_resource("holdfast://facts"))
            prompt = await client.get_prompt("what_did_we_decide", {"about": "ports"})
            assert "memory_search" in str(prompt)
            assert (await call("memory_forget", {"messages": numbers}))["rows"] >= len(numbers)
            assert not (await call("memory_search", question))["excerpts"]

    anyio.run(use)
    with Engine.open(home, settings=Settings(), background=False) as engine:
        (fact,) = engine.session("s1", project="shop").facts()
        assert read_host(engine._memory.store, fact.scope) == "编辑器 editor"


def test_every_line_gets_an_answer(home: Path) -> None:
    """Also one that is no JSON, no request, or has half of a surrogate pair; blank lines and answers get none."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "client", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }

    def call(number: int, tool: str, **arguments: str) -> str:
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})

    lines = [
        "this is not json",
        "[]",
        '{"jsonrpc": "2.0", "id": 5, "method": 7}',
        "",
        '{"jsonrpc": "2.0", "id": 6, "error": {"code": 1, "message": "an answer of the client"}}',
        call(7, "memory_search", query="half \ud83d surrogate of the billing replica"),
        call(8, "memory_store", content="半分 \ud83d は倉庫の鍵です"),
    ]
    command = ["mcp", "--home", str(home), "--project", "shop"]
    with Holdfast[str](*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in lines:
            process.stdin.write(f"{line}\n")
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(5)]
        assert process.communicate()[0] == ""
    refused = [(one["id"], one["error"]["code"]) for one in answers if "error" in one]
    assert refused == [(None, -32700), (None, -32600), (5, -32600)]
    results = {one["id"]: one["result"]["structuredContent"] for one in answers if "result" in one}
    assert "5433" in str(results[7]["excerpts"])
    assert results[8]["content"] == "半分 \ufffd は倉庫の鍵です"


def test_what_left_the_window_is_described_and_shown(tmp_path: Path) -> None:
    """Without a session it is the newest of the project; a cut of another project is not found."""
    home = tmp_path / "cut"
    settings = Settings(recall=UNHURRIED)
    with Engine.open(home, settings=settings, background=False) as engine:
        history = [{"role": "user", "content": f"{number}. 倉庫の鍵 " + "the importer " * 150} for number in range(20)]
        engine.session("long", project="shop").assemble(history, limit=4_000, reserve=500)
        engine.session("other", project="elsewhere").assemble(history, limit=4_000, reserve=500)

    async def use(engine: Engine) -> None:
        async with Client(create_server(engine, session="mcp", project="shop")) as client:
            described = (await client.call_tool("archive_describe", {})).structured_content
            assert described is not None
            assert described["session"] == "long"
            cut = described["cuts"][-1]
            assert cut["kind"] == "trimmed"
            assert cut["reason"]
            assert cut["time"]
            assert cut["tokens"] > 0
            assert "倉庫の鍵" in cut["about"][0]
            texts: list[str] = []
            start: int | None = 0
            while start is not None:
                values = {"cut": cut["cut"], "session": "long", "start": start}
                shown = (await client.call_tool("archive_expand", values)).structured_content
                assert shown is not None
                texts += [message["text"] for message in shown["messages"]]
                start = shown["next"]
            assert texts == [message["content"] for message in history[: len(texts)]]
            assert len(texts) == len(cut["messages"])
            elsewhere = await client.call_tool("archive_describe", {"session": "other"})
            assert elsewhere.is_error
            assert "no session 'other'" in str(elsewhere.content)
            failed = await client.call_tool("archive_expand", {"cut": 999, "session": "long"})
            assert failed.is_error
            assert "archive_describe" in str(failed.content)

    with Engine.open(home, settings=settings, background=False) as engine:
        anyio.run(use, engine)


def test_streamable_http_needs_the_token_and_a_name_of_this_machine(home: Path) -> None:
    """The token stays the same from one start to the next, in a file of its owner alone."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/mcp"
    command = ["mcp", "--home", str(home), "--project", "shop", "--http", str(port)]
    process = Holdfast[bytes](*command, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        assert b"mcp.token" in process.stderr.readline()
        file = home / "mcp.token"
        assert file.stat().st_mode & 0o777 == 0o600
        until(lambda: _status(url) == 401)
        token = {"authorization": f"Bearer {file.read_text()}"}
        assert _status(url, **token, host="evil.example") == 403
        assert _status(url, **token, origin="https://example.com") == 403

        async def use() -> None:
            async with (
                httpx.AsyncClient(headers=token) as http,
                streamable_http_client(url, http_client=http) as streams,
                ClientSession(streams[0], streams[1]) as client,
            ):
                await client.initialize()
                found = await client.call_tool("memory_search", {"query": "which port has the replica?"})
                assert "5433" in str(found.structured_content)
                assert "s1" in str(await client.read_resource("holdfast://sessions"))

        anyio.run(use)
    finally:
        process.terminate()
        process.communicate()


def _status(url: str, **headers: str) -> int:
    try:
        return patient.post(url, json={}, headers=headers).status_code
    except httpx.HTTPError:
        return 0


WRONG_CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("memory_search", {}, "wrong arguments of memory_search: query: Field required"),
    ("memory_search", {"query": ""}, "give the words to search for"),
    ("memory_search", {"query": "port", "limit": "many"}, "limit: Input should be a valid integer"),
    ("memory_search", {"query": "port", "limit": 0}, "limit: Input should be greater than or equal to 1"),
    ("memory_search", {"query": "port", "limit": 51}, "limit: Input should be less than or equal to 50"),
    (
        "memory_search",
        {"query": "port", "限": 1},
        "memory_search: 限: there is no such argument; it takes query, limit",
    ),
    ("memory_get", {"fact": ""}, "no current fact has the id '': memory_search lists ids"),
    ("memory_get", {"fact": "没有"}, "no current fact has the id '没有': memory_search lists ids"),
    ("memory_store", {"content": ""}, "give the fact in a sentence"),
    ("memory_store", {"content": "x", "type": "y"}, "type: Input should be 'decision', "),
    ("memory_store", {"content": "鍵" * 2_001}, "at most 2,000 characters, and this one 2,001: "),
    (
        "memory_recall",
        {"question": "port?", "max_tokens": 5},
        "max_tokens: Input should be greater than or equal to 64",
    ),
    ("memory_recall", {}, "wrong arguments of memory_recall: question: Field required"),
    ("memory_forget", {}, "give `facts` by id or `messages` by number; memory_search lists both"),
    ("memory_forget", {"facts": ["nope"], "messages": [999]}, "there is no nope, 999; memory_search lists"),
    ("memory_forget", {"messages": ["a"]}, "messages.0: Input should be a valid integer"),
    ("memory_forget", {"facts": [""]}, "an id is empty; memory_search lists ids"),
    ("archive_get", {"numbers": []}, "no number is given; memory_search gives numbers"),
    ("archive_get", {"numbers": [1], "around": 21}, "around: Input should be less than or equal to 20"),
    ("archive_describe", {"last": 101}, "last: Input should be less than or equal to 100"),
    ("memory_timeline", {"last": 0}, "last: Input should be greater than or equal to 1"),
    ("archive_get", {"numbers": [998, 999]}, "no archived message has one of these numbers: 998, 999; memory_search"),
    ("archive_describe", {"session": "nope"}, "no session 'nope': the resource holdfast://sessions lists them"),
    ("archive_expand", {"cut": 999}, "has no cut 999: archive_describe lists the numbers"),
    ("archive_expand", {"cut": 1, "session": "s2"}, "no session 's2': the resource holdfast://sessions lists them"),
    ("memory_timeline", {"session": "nope"}, "no session 'nope': the resource holdfast://sessions lists them"),
]


def test_every_error_of_a_tool_says_the_fix(home: Path) -> None:
    """For wrong arguments, missing ones, and ids that do not exist or belong to another project."""

    async def use() -> None:
        with Engine.open(home, settings=Settings(), background=False) as engine:
            async with Client(create_server(engine, session="mcp", project="shop")) as client:
                for tool, arguments, message in WRONG_CALLS:
                    result = await client.call_tool(tool, arguments)
                    (content,) = result.content
                    assert result.is_error, (tool, arguments)
                    assert isinstance(content, TextContent)
                    assert message in content.text
                    assert "pydantic" not in content.text
                    assert "Error executing" not in content.text
                with pytest.raises(MCPError, match="Missing required arguments") as refused:
                    await client.get_prompt("what_did_we_decide", {"subject": "ports"})
                assert refused.value.code == INVALID_PARAMS
                shown = await client.call_tool("memory_timeline", {})
                assert not shown.is_error
                half = [{"role": "user", "content": "half \ud83d surrogate"}]
                engine.session("half", project="shop").append(half)
                found = await client.call_tool("memory_search", {"query": "half surrogate"})
                assert "half \ufffd surrogate" in str(found.structured_content)
                forgotten = await client.call_tool("memory_forget", {"facts": ["nope"], "messages": [1]})
                assert forgotten.structured_content == {"rows": 1, "missing": ["nope"]}

    anyio.run(use)
