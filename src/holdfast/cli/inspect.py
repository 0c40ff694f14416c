"""`holdfast ui`: open the inspector."""

from __future__ import annotations

import json
import os
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast import settings as configuration
from holdfast.cli.opening import print_warnings, require
from holdfast.cli.options import as_json, home_option
from holdfast.cli.output import echo
from holdfast.errors import InputError, SettingsError
from holdfast.programs import search_path

if TYPE_CHECKING:
    from holdfast.server.inspector.data import Outside
    from holdfast.shared import SharedMemory
    from holdfast_agent.settings import ChatSettings


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="The port on 127.0.0.1, if no server runs yet; default any.",
)
@click.option("--open/--no-open", "opens", default=True, help="Whether to open it in the browser.")
@home_option
@as_json
def ui(*, port: int, opens: bool, home: Path | None, as_json: bool) -> None:
    """Show in the browser what was sent, what left, what came back and why."""
    require("holdfast ui", "starlette", "uvicorn", "httpx2", "jinja2", extra="server")
    from holdfast.server.inspector.web import address  # noqa: PLC0415 - an extra
    from holdfast.server.process import Server, find, refuse_other, run  # noqa: PLC0415 - an extra
    from holdfast.shared import find_memory  # noqa: PLC0415 - takes time

    memory = find_memory(home, project=Path.cwd())
    print_warnings(memory.warnings)
    folder = memory.folder.resolve()

    def show(server: Server) -> None:
        url = address(server.url, server.token)
        if as_json:
            shown = {"url": url, "pid": server.pid, "home": str(folder), "memory": memory.name}
            echo(json.dumps(shown))  # one line, for scripts
        else:
            echo(url)
        if opens:
            # It looks for browsers by name, and starts what it finds.
            os.environ["PATH"] = search_path(os.environ, project=Path.cwd())
            webbrowser.open(url)

    refuse_other(folder, memory=memory.name, on_demand=False)
    running = find(folder)
    if running is not None and not running.serves(memory.name):
        running = None  # it makes room
    if running is not None and running.socket_path:
        raise InputError(
            f"process {running.pid} serves this memory on {running.url}, which no browser can open: stop it first"
        )
    if running is not None:
        show(running)
        return
    with memory.open() as engine:
        run(
            engine,
            home=folder,
            memory=memory.name,
            port=port,
            upstreams=None,
            on_start=show,
            outside=look_outside(memory),
        )


def look_outside(memory: SharedMemory) -> Outside:
    """Find what the inspector shows from outside the store: checks, settings and notes."""
    from holdfast.server.inspector.data import Health, Note, Outside  # noqa: PLC0415 - an extra

    def load_settings() -> configuration.Loaded[ChatSettings] | None:
        """Load the settings of the engine and of the agent, as they are now; None if a file is wrong."""
        from holdfast_agent.settings import load  # noqa: PLC0415 - takes time

        try:
            if memory.owner is None:
                return load(files=configuration.user_files())
            return load(files=configuration.default_files(folder=memory.owner), project=memory.owner)
        except SettingsError:  # `check_all` says what is wrong
            return None

    def health(is_thorough: bool) -> Health:
        from holdfast.cli.doctor import check_all  # noqa: PLC0415 - takes time
        from holdfast.providers.wire import find as find_value  # noqa: PLC0415 - takes time
        from holdfast_agent.settings import CHAT  # noqa: PLC0415 - takes time

        loaded = load_settings()
        settings: list[tuple[str, str, str]] = []
        if loaded is not None:
            values = configuration.as_dict(loaded.settings, schema=CHAT)
            for name, source in loaded.origins.items():
                value = find_value(values, name)
                settings.append((name, "" if value is None else json.dumps(value, ensure_ascii=False), source))
        findings = check_all(memory.store, project=memory.owner, is_thorough=is_thorough)
        return Health(findings=[(one.level, one.what) for one in findings], settings=settings, is_thorough=is_thorough)

    def notes() -> list[Note]:
        from holdfast_agent.note_files import find_notes  # noqa: PLC0415 - takes time

        loaded = load_settings()
        workspace = loaded.settings.agent.workspace.path if loaded is not None else None
        if not workspace:
            return []
        found = find_notes(Path(workspace).expanduser().resolve())
        return [Note(path=one.name, text=one.path.read_text(errors="replace")) for one in found]

    return Outside(health=health, notes=notes)
