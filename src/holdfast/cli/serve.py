"""`holdfast serve`, `holdfast rpc` and `holdfast mcp`: memory for other programs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from holdfast.cli.opening import load_settings, require, store_of
from holdfast.cli.options import as_json, home_option, tenant_option
from holdfast.cli.output import echo


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=None, help="The port on 127.0.0.1; default 8790, 0 any.")
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    metavar="[VENDOR=]URL",
    help="Where model requests go: for all, or for anthropic= or openai= alone; default the vendors' own addresses.",
)
@click.option("--shadow", is_flag=True, help="Send every request as it came; only record what would have been done.")
@click.option("--idle", type=click.FloatRange(min=1), default=None, help="Stop after this many seconds without use.")
@home_option
@as_json
def serve(
    *, port: int | None, upstreams: tuple[str, ...], shadow: bool, idle: float | None, home: Path | None, as_json: bool
) -> None:
    """Serve memory to other programs: a proxy for model requests, and calls for plugins."""
    require("holdfast serve", "starlette", "uvicorn", "httpx2", "jinja2", extra="server")
    from holdfast.cli.inspect import look_outside  # noqa: PLC0415 - it loads all checks
    from holdfast.engine import Engine  # noqa: PLC0415 - takes time
    from holdfast.server.process import DEFAULT_PORT, Server, run  # noqa: PLC0415 - an extra
    from holdfast.server.proxy import Upstreams  # noqa: PLC0415 - an extra

    settings = load_settings()
    folder, targets = store_of(home).parent, Upstreams.parse(upstreams)

    def announce(server: Server) -> None:
        if as_json:
            echo(json.dumps({"url": server.url, "pid": server.pid, "home": str(folder)}))  # one line, for scripts
        else:
            how = "unchanged, as a shadow: what would have been done is only recorded" if shadow else "with memory"
            echo(f"Serving {engine.memory.store.place} on {server.url}. Ctrl-C stops it.", err=True)
            echo(f"Model requests go to {targets}, {how}.", err=True)

    with Engine.open(home, settings=settings) as engine:
        run(
            engine,
            home=folder,
            port=DEFAULT_PORT if port is None else port,
            upstreams=targets,
            shadow=shadow,
            idle=idle,
            on_start=announce,
            outside=look_outside(home),
        )


@click.command()
@home_option
def rpc(*, home: Path | None) -> None:
    """Answer calls, one JSON object a line, from standard input on standard output."""
    from holdfast.engine import Engine  # noqa: PLC0415 - takes time
    from holdfast.server.rpc import Rpc  # noqa: PLC0415 - only for this

    with Engine.open(home, settings=load_settings()) as engine:
        Rpc(engine).serve(sys.stdin.buffer, sys.stdout.buffer)


@click.command()
@tenant_option
@click.option("--session", default="mcp", show_default=True, help="The session that new facts belong to.")
@click.option("--project", default=None, help="The project; default the current folder.")
@click.option("--agent", default="main", show_default=True, help="The agent.")
@click.option("--http", "port", type=click.IntRange(1, 65535), help="Serve streamable HTTP on this port of 127.0.0.1.")
@home_option
def mcp(*, tenant: str, session: str, project: str | None, agent: str, port: int | None, home: Path | None) -> None:
    """Give memory to an MCP client as tools, over standard input and output or HTTP."""
    require("holdfast mcp", "mcp", extra="mcp")
    from holdfast.engine import Engine  # noqa: PLC0415 - takes time
    from holdfast.mcp import create_server  # noqa: PLC0415 - an extra

    project = str(Path.cwd()) if project is None else project
    with Engine.open(home, settings=load_settings()) as engine:
        server = create_server(engine, session=session, tenant=tenant, project=project, agent=agent)
        if port is None:
            server.run("stdio")
            return
        require("holdfast mcp --http", "httptools", extra="mcp")
        import uvicorn  # noqa: PLC0415 - comes with the SDK

        from holdfast.server.connections import Limits, make_config  # noqa: PLC0415 - as above
        from holdfast.server.guard import Guard, load_token  # noqa: PLC0415 - as above

        file = store_of(home).parent / "mcp.token"
        app = Guard(server.streamable_http_app(), token=load_token(file))
        echo(f"Serving MCP on http://127.0.0.1:{port}/mcp. The token is in {file}. Ctrl-C stops it.", err=True)
        limits = Limits(connections=engine.settings.server.max_connections)
        uvicorn.Server(make_config(app, limits=limits, host="127.0.0.1", port=port)).run()
