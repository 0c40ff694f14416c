"""`holdfast hook`: answers a hook event of a host. It never fails, and the host never waits long for it.

The event is passed on to the server, which is started if none runs. If that fails or takes too long, the host goes on
without an answer. After two failures in a row memory is not asked for a while, and one line tells the user. Events
that only archive are stored in the spool first, where the server finds them whenever it runs.

Hosts run this before every prompt: while a server answers, nothing is loaded that is not imported at the top.
"""

from __future__ import annotations

import json
import os
import sys
import time

from holdfast.hooks import spool
from holdfast.hooks.breaker import MAX_FAILURES, PAUSE_SECONDS, Breaker, read_seconds
from holdfast.server import client

TYPE_CHECKING = False  # `typing` takes longer to import than a call takes
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Final

    from holdfast.memory.memory import Memory
    from holdfast.shared import SharedMemory

ANSWER_SECONDS: Final = read_seconds("HOLDFAST_TIMEOUT_MS", default=2.0)
"""How long a host waits for an answer, such as before a prompt."""
EXIT_SECONDS: Final = 0.2
"""How long a host waits at the end of a turn or of a session. The event is in the spool by then."""
ARCHIVING: Final = frozenset({"Stop", "AfterAgent", "SubagentStop", "SessionEnd", "PreCompact"})
"""Events that need no answer: the transcript of the host has everything that they are about."""
PRUNING: Final = frozenset({"PostToolUse", "AfterTool"})
"""Events that shorten a tool output, also in a new memory."""
MAX_WAITING: Final = 20
"""Events in the spool from which on a server that is not there has failed to start."""
STORE_NAME: Final = "holdfast.db"
"""As in `store.opening`."""
MAX_SETTINGS_BYTES: Final = 1 << 20
LOG: Final = "hooks.log"
MAX_LOG_READ: Final = 1 << 16
"""Bytes at the end of the log that are read for what the user was told. Each prompt reads them."""
IS_LINUX: bool = sys.platform.startswith("linux")
"""Whether the folders of the user are known without `platformdirs`."""


def parse(arguments: Sequence[str]) -> str | None:
    """Return the folder or address that the arguments of `holdfast hook` name, empty for none.

    None if there are other arguments, which only the command line knows.
    """
    rest = [argument for argument in arguments if argument != "--json"]
    if not rest:
        return ""
    if len(rest) == 1 and rest[0].startswith("--home="):
        return rest[0].removeprefix("--home=")
    if len(rest) == 2 and rest[0] == "--home":  # noqa: PLR2004 - a name and its value
        return rest[1]
    return None


def run(home: str) -> None:
    """Answer the event on standard input. `home` is the folder or address of the memory, empty for the settings."""
    output = answer(home, sys.stdin.buffer.read())
    if output:
        sys.stdout.buffer.write(json.dumps(output, ensure_ascii=False).encode() + b"\n")
    sys.stdout.flush()


def answer(home: str, data: bytes) -> dict[str, Any]:
    """Return the answer to an event; if memory fails, nothing, or the line about it that the host shows."""
    folder = _default_folder() if not home or "://" in home else home
    name = ""
    event = ""
    try:
        read = json.loads(data or b"{}")
        payload = read if isinstance(read, dict) else {}
        event = str(payload.get("hook_event_name") or "")
        if not event:  # no host waits for an answer, so that no server is started
            return {}
        project = str(payload.get("cwd") or os.getcwd())
        folder, name = _find_place(home, project)
        if event in ARCHIVING:
            _archive(folder, name, payload, lambda: _find_memory(home, project))
            return {}
        return _recall(folder, name, payload, lambda: _find_memory(home, project))
    except Exception as error:  # the host continues without memory  # noqa: BLE001
        return _count_failure(folder, name, event, error)


def _archive(folder: str, name: str, payload: Mapping[str, Any], find_memory: Callable[[], SharedMemory]) -> None:
    """Store an event, and let the server handle it. The host does not wait until it has."""
    spool.add(folder, payload, memory=name)
    if Breaker(folder).is_open:
        return
    server = client.find(folder)
    if server is not None and not client.serves(server, name):  # none can be started in its folder
        try:
            _answer_in_time(lambda: _take_in(find_memory(), payload))
        except TimeoutError:  # the event stays in the spool, and the next one of the session tries it again
            if len(spool.names(folder)) > MAX_WAITING:
                raise
        return
    if server is None:
        _start(find_memory())
        waiting = len(spool.names(folder))
        if waiting > MAX_WAITING:
            raise TimeoutError(f"{waiting} events wait for the server, which does not start: see server.log")
        return
    # What follows a compaction depends on it, and the host takes much longer for one anyway.
    timeout = ANSWER_SECONDS if payload["hook_event_name"] == "PreCompact" else EXIT_SECONDS
    try:
        client.call(server, "take_in", {"session": str(payload.get("session_id") or "")}, timeout=timeout)
    except (OSError, ValueError, client.CallError):  # it finds the event later
        return


def _recall(
    folder: str, name: str, payload: Mapping[str, Any], find_memory: Callable[[], SharedMemory]
) -> dict[str, Any]:
    """Ask the server for the answer to an event. If none runs, one is started, and a prompt is answered here."""
    breaker = Breaker(folder)
    if breaker.is_open:
        return {}
    server = client.find(folder)
    is_other = server is not None and not client.serves(server, name)
    if server is not None and not is_other:
        try:
            output: dict[str, Any] = client.call(server, "hook", payload, timeout=ANSWER_SECONDS)
        except TimeoutError as error:
            reason = f"process {server['pid']}, the server, has not answered within {ANSWER_SECONDS:g} seconds"
            raise TimeoutError(reason) from error
        breaker.recover()
        return output
    memory = find_memory()
    event = str(payload.get("hook_event_name") or "")
    is_beginning = event == "SessionStart" and payload.get("source") == "startup"
    is_new = "://" not in memory.store and not os.path.exists(memory.store) and not spool.names(folder)
    if is_beginning or (is_new and event not in PRUNING):  # nothing is recalled
        output = {}
    else:
        output = _answer_in_time(lambda: _ask_store(memory, payload))
        breaker.recover()
    if server is not None:
        return output | _report_other(folder, name, server)
    try:
        _start(memory)
    except OSError as error:  # nothing can be archived, but what is there can be recalled
        output |= _count_failure(folder, name, event, error)
    return output


def _answer_in_time(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a function returns, or fail if that takes too long. It is left to itself then."""
    from threading import Thread  # noqa: PLC0415 - only without a server

    outputs: list[dict[str, Any]] = []
    errors: list[Exception] = []

    def work_here() -> None:
        try:
            outputs.append(work())
        except Exception as error:  # it is raised below  # noqa: BLE001
            errors.append(error)

    thread = Thread(target=work_here, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    if errors:
        raise errors[0]
    if not outputs:
        raise TimeoutError(f"reading the memory took longer than {ANSWER_SECONDS:g} seconds")
    return outputs[0]


def _ask_store(memory: SharedMemory, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Answer an event in this process."""
    from contextlib import suppress  # noqa: PLC0415 - only without a server

    from holdfast.errors import HoldfastError  # noqa: PLC0415 - as above
    from holdfast.hooks.handlers import HostHooks  # noqa: PLC0415 - as above

    with _open(memory, payload) as opened:
        hooks = HostHooks(opened)
        with suppress(HoldfastError, OSError):  # the server tries it again, and the event may be answered without it
            hooks.take_in(str(memory.folder), memory=memory.name, session=str(payload.get("session_id") or ""))
        return hooks.handle(payload)


def _take_in(memory: SharedMemory, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Handle the events of a session that wait, in this process."""
    from holdfast.hooks.handlers import HostHooks  # noqa: PLC0415 - only without a server

    with _open(memory, payload) as opened:
        session = str(payload.get("session_id") or "")
        HostHooks(opened).take_in(str(memory.folder), memory=memory.name, session=session)
    return {}


def _open(memory: SharedMemory, payload: Mapping[str, Any]) -> Memory:
    """Open a memory with the settings of the project, by words alone: a model takes time to load."""
    from msgspec.structs import replace  # noqa: PLC0415 - only without a server

    from holdfast.memory.memory import Memory  # noqa: PLC0415 - as above
    from holdfast.settings import folder_of  # noqa: PLC0415 - as above

    settings = memory.projects.load(folder_of(str(payload.get("cwd") or ""))).settings
    by_words = replace(settings, embedding=replace(settings.embedding, provider="none"))
    return Memory.open(memory.store, settings=by_words, is_personal=True)


# --- the memory and its server ---------------------------------------------------


def _find_place(home: str, project: str) -> tuple[str, str]:
    """Return the folder of the memory of a project, and its name, as `SharedMemory.name` is."""
    folder = find_folder(home, project=project)
    if folder is not None:
        return folder, os.path.realpath(os.path.join(folder, STORE_NAME))
    memory = _find_memory(home, project)
    return str(memory.folder), memory.name


def find_folder(home: str, *, project: str) -> str | None:
    """Return the folder of the memory of a project; None if its settings have to be read for that.

    They have to if one of the files has the word "archive", or if the place is not an absolute path to a folder.
    """
    if not home:
        config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
        files = [os.path.join(config, "holdfast", "holdfast.toml"), os.path.join(project, "holdfast.toml")]
        is_set = any(name.startswith("HOLDFAST_ARCHIVE") for name in os.environ)
        is_set |= "://" in os.environ.get("HOLDFAST_HOME", "")  # it is refused
        if not IS_LINUX or is_set or any(map(_may_name_archive, files)):
            return None
    folder = home or _default_folder()
    has_store = os.path.exists(os.path.join(folder, STORE_NAME))
    if not os.path.isabs(folder) or folder.endswith(".db") or not (has_store or _is_empty(folder)):
        return None
    return folder


def _may_name_archive(path: str) -> bool:
    if not os.path.isfile(path):  # a pipe would block
        return False
    if os.path.getsize(path) > MAX_SETTINGS_BYTES:
        return True
    with open(path, "rb") as file:
        return b"archive" in file.read()


def _is_empty(folder: str) -> bool:
    """Return whether a folder has no memory yet, also none of OpenClaw's plugin."""
    return not any(os.path.exists(os.path.join(folder, name)) for name in ("segments.jsonl", "knowledge.jsonl"))


def _default_folder() -> str:
    """Return `$HOLDFAST_HOME`, else the platform's data folder, as `store.opening.default_path` does.

    If the variable is an address, which `default_path` refuses, that is written to the log of the platform's folder.
    """
    home = os.environ.get("HOLDFAST_HOME")
    if home and "://" not in home:
        return os.path.expanduser(home)
    if IS_LINUX:
        data = os.environ.get("XDG_DATA_HOME", "")
        return os.path.join(data if data.strip() else os.path.expanduser("~/.local/share"), "holdfast")
    from platformdirs import user_data_dir  # noqa: PLC0415 - takes time

    return str(user_data_dir("holdfast", appauthor=False))


def _find_memory(home: str, project: str) -> SharedMemory:
    from holdfast.settings import folder_of  # noqa: PLC0415 - takes time
    from holdfast.shared import find_memory  # noqa: PLC0415 - as above

    return find_memory(home or None, project=folder_of(project))


def _start(memory: SharedMemory) -> None:
    """Start the server of a memory, and do not wait for it."""
    from holdfast.server.process import start  # noqa: PLC0415 - takes time

    environ: dict[str, str] = {}
    if memory.owner is not None:
        options = ["--project", str(memory.owner)]
    elif "://" in memory.store:
        options = []
        environ["HOLDFAST_ARCHIVE__PATH"] = memory.store  # not as an argument: an address may contain a password
    else:
        options = ["--home", memory.store]
    start(memory.folder, options=options, environ=environ)


# --- failures --------------------------------------------------------------------


def _report_other(folder: str, name: str, server: Mapping[str, Any]) -> dict[str, Any]:
    """Log that the server of the folder serves another memory, and return the line that the host shows, once."""
    line = (
        f"process {server['pid']}, the server that runs in {folder}, serves {server['memory']}, not {name}: the agent "
        f"uses {name} without a server, which takes longer. Stop that server, or start it with HOLDFAST_HOME set to "
        "another folder; or name its memory as archive.path"
    )
    try:
        with open(os.path.join(folder, LOG), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MAX_LOG_READ))
            is_known = line.encode("utf-8", "replace") in file.read()
    except OSError:
        is_known = False
    if is_known:
        return {}
    _log(folder, line)
    return {"systemMessage": f"Holdfast: {line}"}


def _count_failure(folder: str, name: str, event: str, error: Exception) -> dict[str, Any]:
    """Log a failure, and return the line that the host shows if memory is not asked from now on."""
    _log(folder, f"{type(error).__name__}: {error}")
    breaker = Breaker(folder)
    try:
        breaker.fail()
        is_new = breaker.failures == MAX_FAILURES
    except OSError:  # it cannot be stored that the user knows, so each session begins with it
        is_new = event == "SessionStart"
    if breaker.failures > MAX_FAILURES and isinstance(error, TimeoutError):
        _end_hung_server(folder, name)
    if not is_new:
        return {}
    line = (
        f"Holdfast fails, so the agent runs without memory ({type(error).__name__}: {error}). It is tried again every "
        f"{PAUSE_SECONDS:g} seconds, and transcripts are archived then. For details: holdfast doctor"
    )
    return {"systemMessage": line}


def _end_hung_server(folder: str, name: str) -> None:
    """End a server that was started on demand and has not answered for a while; the next event starts another."""
    server = client.find(folder)
    if server is not None and server.get("idle") is not None and client.serves(server, name):
        import signal  # noqa: PLC0415 - only for this

        try:
            os.kill(server["pid"], getattr(signal, "SIGKILL", signal.SIGTERM))
        except OSError:  # it has just ended
            return


def _log(folder: str, text: str) -> None:
    line = f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}\n"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = os.path.join(folder, LOG)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(line.encode("utf-8", "replace"))
    except OSError:  # nothing can be stored there
        return
