"""`holdfast serve`, `holdfast token`, `holdfast rpc` and `holdfast mcp`: memory for other programs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from holdfast.cli.opening import print_warnings, require
from holdfast.cli.options import as_json, home_option, tenant_option
from holdfast.cli.output import echo, print_result
from holdfast.errors import HoldfastError, InputError
from holdfast.hooks import spool
from holdfast.settings import folder_of
from holdfast.settings.loading import project_file

if TYPE_CHECKING:
    from holdfast.shared import SharedMemory

CHECK_SECONDS: Final = 5.0
"""How long a server may take to answer a check."""
_folder_option: Final = click.option(
    "--project",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A project with a separate memory, by archive.path in its settings; default the memory of the user.",
)
_speaks_json: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print errors as JSON. Answers are JSON in any case."
)


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=None, help="The port on 127.0.0.1; default 8790, 0 any.")
@click.option(
    "--socket",
    "socket_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A Unix socket to listen on instead of a port, for you only: its mode is 0600.",
)
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    metavar="[VENDOR=]URL",
    help="Send model requests to this address: all, or only those for anthropic= or openai= (default: the vendors').",
)
@click.option("--shadow", is_flag=True, help="Send every request unchanged; only record what would have been done.")
@click.option("--idle", type=click.FloatRange(min=1), default=None, help="Stop after this many seconds without use.")
@click.option("--check", is_flag=True, help="Only check that the server of this memory runs and answers.")
@_folder_option
@home_option
@as_json
def serve(
    *,
    port: int | None,
    socket_path: Path | None,
    upstreams: tuple[str, ...],
    shadow: bool,
    idle: float | None,
    check: bool,
    project: Path | None,
    home: Path | None,
    as_json: bool,
) -> None:
    """Serve memory to other programs: a proxy for model requests, and calls for plugins."""
    if port is not None and socket_path is not None:
        raise click.UsageError("--port and --socket: name one of them")
    require("holdfast serve", "starlette", "uvicorn", "httpx2", "jinja2", extra="server")
    from holdfast.cli.inspect import look_outside  # noqa: PLC0415 - it loads all checks
    from holdfast.server.process import DEFAULT_PORT, Server, refuse_other, run  # noqa: PLC0415 - an extra
    from holdfast.server.upstreams import Upstreams  # noqa: PLC0415 - an extra
    from holdfast.shared import find_memory  # noqa: PLC0415 - takes time

    memory = find_memory(home, project=None if project is None else project.absolute())
    if check:
        _check(memory, as_json=as_json)
        return
    targets = Upstreams.parse(upstreams)
    print_warnings(memory.warnings)
    refuse_other(memory.folder, memory=memory.name, on_demand=idle is not None)
    own = project_file(Path())
    if project is None and own is not None:
        echo(f"note: {own.absolute()} counts for the sessions of that folder alone, not for this server.", err=True)

    def announce(server: Server) -> None:
        if as_json:
            shown = {"url": server.url, "pid": server.pid, "home": str(memory.folder), "memory": memory.name}
            echo(json.dumps(shown))  # one line, for scripts
        else:
            how = "unchanged, as a shadow: what would have been done is only recorded" if shadow else "with memory"
            echo(f"Serving {engine._memory.store.place} on {server.url}. Ctrl-C stops it.", err=True)
            echo(f"Model requests go to {targets}, {how}.", err=True)
            if "://" in memory.store and engine.settings.server.identity == "credential":
                # Else a team would see only that nothing is recalled.
                header = "the header x-holdfast-token, whose value `holdfast token` prints"
                echo(f"Requests use the shared memory only with {header}.", err=True)

    is_needed = True
    while is_needed:
        with memory.open() as engine:
            is_gone = run(
                engine,
                home=memory.folder,
                memory=memory.name,
                port=DEFAULT_PORT if port is None else port,
                socket_path=socket_path,
                upstreams=targets,
                shadow=shadow,
                idle=idle,
                on_start=announce,
                outside=look_outside(memory),
            )
        # Nothing else would start a server that a person has started: agents would have no model. Hooks start theirs
        # with the next event, but the last event of a host that has ended may wait.
        is_needed = is_gone and (idle is None or bool(spool.names(str(memory.folder))))


def _check(memory: SharedMemory, *, as_json: bool) -> None:
    """Print the address of the server of a memory.

    Raises:
        HoldfastError: None runs, or it does not answer.
        InputError: The one that runs serves another memory.
    """
    from holdfast.server.process import find, say_other  # noqa: PLC0415 - an extra

    server = find(memory.folder)
    if server is None:
        raise HoldfastError(
            f"no server runs for {memory.name}: start one with `holdfast serve`, and the same --home or --project"
        )
    if not server.serves(memory.name):
        raise InputError(say_other(server, memory.name))
    server.call("ping", timeout=CHECK_SECONDS)
    shown = {"url": server.url, "pid": server.pid, "home": str(memory.folder), "memory": memory.name}
    print_result(shown, server.url, as_json=as_json)


@click.command()
@_folder_option
@home_option
@as_json
def token(*, project: Path | None, home: Path | None, as_json: bool) -> None:
    """Print the owner's token: model requests with it as x-holdfast-token get the owner's memory."""
    require("holdfast token", "starlette", extra="server")
    from holdfast.server.guard import OWNER_TOKEN_FILE, load_token  # noqa: PLC0415 - an extra
    from holdfast.shared import find_memory  # noqa: PLC0415 - takes time

    memory = find_memory(home, project=None if project is None else project.absolute())
    file = memory.folder / OWNER_TOKEN_FILE
    value = load_token(file)
    print_result({"token": value, "file": str(file)}, value, as_json=as_json)


@click.command()
@_folder_option
@home_option
@_speaks_json
def rpc(*, project: Path | None, home: Path | None, as_json: bool) -> None:  # noqa: ARG001 - every command has it
    """Answer calls, one JSON object a line, from standard input on standard output."""
    from holdfast.server.rpc import serve_calls  # noqa: PLC0415 - only for this
    from holdfast.shared import find_memory  # noqa: PLC0415 - takes time

    folder = None if project is None else project.absolute()

    def find() -> SharedMemory:
        return find_memory(home, project=folder)

    print_warnings(find().warnings)
    # Found again before it is opened again: somebody may have put a link there that leads elsewhere.
    serve_calls(
        lambda: find().open(background=False),
        sys.stdin.buffer,
        sys.stdout.buffer,
        project="" if folder is None else str(folder),
    )


@click.command()
@tenant_option
@click.option("--session", default="mcp", show_default=True, help="The session that new facts belong to.")
@click.option("--project", default=None, help="The project; default the current folder.")
@click.option("--agent", default="main", show_default=True, help="The agent.")
@click.option("--http", "port", type=click.IntRange(1, 65535), help="Serve streamable HTTP on this port of 127.0.0.1.")
@home_option
@_speaks_json
def mcp(
    *,
    tenant: str,
    session: str,
    project: str | None,
    agent: str,
    port: int | None,
    home: Path | None,
    as_json: bool,  # noqa: ARG001 - every command has it
) -> None:
    """Give memory to an MCP client as tools, over standard input and output or HTTP."""
    require("holdfast mcp", "mcp", extra="mcp")
    from holdfast.mcp import create_server  # noqa: PLC0415 - an extra
    from holdfast.shared import find_memory  # noqa: PLC0415 - takes time

    project = str(Path.cwd()) if project is None else project
    memory = find_memory(home, project=folder_of(project))
    print_warnings(memory.warnings)
    with memory.open() as engine:
        server = create_server(engine, session=session, tenant=tenant, project=project, agent=agent)
        if port is None:
            server.run("stdio")
            return
        require("holdfast mcp --http", "httptools", extra="mcp")
        import uvicorn  # noqa: PLC0415 - comes with the SDK

        from holdfast.server.connections import Limits, make_config  # noqa: PLC0415 - as above
        from holdfast.server.guard import Guard, load_token  # noqa: PLC0415 - as above

        file = memory.folder / "mcp.token"
        limit = engine.settings.server.max_request_bytes
        app = Guard(server.streamable_http_app(), token=load_token(file), max_bytes=limit)
        echo(f"Serving MCP on http://127.0.0.1:{port}/mcp. The token is in {file}. Ctrl-C stops it.", err=True)
        limits = Limits(connections=engine.settings.server.max_connections)
        uvicorn.Server(make_config(app, limits=limits, host="127.0.0.1", port=port)).run()
