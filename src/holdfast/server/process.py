"""Run the server, and find or start the one of this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from holdfast.errors import HoldfastError, InputError
from holdfast.files import is_process_running, lock, only_process, open_private, write_private
from holdfast.programs import own_command, search_path
from holdfast.server import client
from holdfast.telemetry import Observer, add_observer

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.server.inspector.data import Outside
    from holdfast.server.upstreams import Upstreams

DEFAULT_PORT: Final = 8790
START_SECONDS: Final = 30.0
"""How long a server may take to start."""
IDLE_SECONDS: Final = 1_800.0
"""How long a server that was started on demand waits for another request before it stops."""
STOP_SECONDS: Final = 3
"""How long a server that is stopped waits for open replies."""
LOCK_SECONDS: Final = 1.0
"""How long a server that starts waits for the lock: `find` holds it for a moment to see whether it is free."""
MAX_OPEN_FILES: Final = 4_096
"""Files and connections that the server may have open. Many systems allow 1,024 unless a process asks for more."""
TRIM_SECONDS: Final = 5.0
"""How often free pages of the heap are given back: merging the index needs much for a moment."""
_HEAP: Final = {-8: 1, -3: 256 << 10, -1: 4 << 20}
"""Options of glibc's `mallopt`: the number of heaps, the size of arrays that are mapped, and what is returned."""
_started: Final[dict[Path, subprocess.Popen[bytes]]] = {}
"""Servers that this process has started. They outlive it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server, as its file describes it.

    Attributes:
        port: The port on 127.0.0.1; 0 if it listens on a Unix socket.
        socket_path: The path of the socket; empty if it listens on a port.
        idle: After how many seconds without a request it stops, if it was started on demand.
        memory: The name of the memory that it serves; empty if it is of an earlier version.
    """

    port: int
    pid: int
    token: str
    idle: float | None = None
    socket_path: str = ""
    memory: str = ""

    @property
    def url(self) -> str:
        """Its address."""
        return f"unix:{self.socket_path}" if self.socket_path else f"http://127.0.0.1:{self.port}"

    def serves(self, memory: str) -> bool:
        """Return whether it serves the memory of this name."""
        return client.serves(asdict(self), memory)

    def call(self, method: str, *, timeout: float = 30.0, **params: Any) -> Any:
        """Call a method and return its result.

        Raises:
            HoldfastError: The server does not answer, or answers with an error.
        """
        try:
            return client.call(asdict(self), method, params, timeout=timeout)
        except client.CallError as error:
            raise HoldfastError(str(error)) from error
        except (OSError, ValueError, OverflowError) as error:
            raise HoldfastError(f"the server at {self.url} does not answer: {error}") from error


def find(home: Path) -> Server | None:
    """Return the server that runs for a folder; None if there is none."""
    description = client.find(str(home))
    try:
        return None if description is None else Server(**description)
    except TypeError:  # of another version
        return None


def say_other(server: Server, memory: str) -> str:
    """Return what to do about a server that serves another memory than this one, from the same folder."""
    both = "start one of them with HOLDFAST_HOME set to another folder"
    if "://" not in server.memory + memory:
        both = "move one of them to another folder"
    return (
        f"process {server.pid} on {server.url} serves {server.memory}, not {memory}: name the memory that you mean "
        f"with --home or archive.path, or stop that server first. To serve both, {both}"
    )


def start(home: Path, *, options: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> bool:
    """Start a server for a memory that stops when idle, and do not wait for it; whether none was started before.

    The options of `holdfast serve`, and variables next to those of this process, choose the memory; by default the one
    in the folder `home`.
    """
    home = home.absolute()
    which = ("--home", str(home)) if options is None else options
    command = own_command("serve", *which, "--port", "0", "--idle", str(IDLE_SECONDS), "--json")
    variables = {**os.environ, **(environ or {}), "PATH": search_path(os.environ, project=Path.cwd())}
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open_private(home / "server.log") as output:
        if _is_starting(home, output):
            return False
        _started[home] = subprocess.Popen(  # noqa: S603 - our own command
            command,
            cwd=home,  # not the project that a hook runs in
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return True


def _is_starting(home: Path, log: IO[bytes]) -> bool:
    """Return whether a server was started that has not ended: a second one would only wait to take its place.

    The log stays locked as long as a server has it open. On Windows that cannot be, and a server counts when it has
    its own lock. Of two that are started there at the same moment one ends, and its caller waits for the other.
    """
    if sys.platform == "win32":
        return is_process_running(home / client.LOCK)
    return not lock(log)


def find_or_start(home: Path, *, options: Sequence[str] | None = None) -> Server:
    """Return the server of a memory; if none runs, one is started that stops when idle, as `start` does.

    Raises:
        HoldfastError: It ended, or did not start in time.
    """
    home = home.absolute()
    end = time.monotonic() + START_SECONDS
    is_started = False
    while (server := find(home)) is None:
        has_ended = is_started and _started[home].poll() is not None
        has_failed = has_ended and not is_process_running(home / client.LOCK)  # else another one was faster
        if has_failed or time.monotonic() > end:
            raise HoldfastError(f"the server did not start: see {home / 'server.log'}")
        is_started = is_started or start(home, options=options)  # not while an earlier one stops
        time.sleep(0.05)
    return server


def refuse_other(home: Path, *, memory: str, on_demand: bool) -> None:
    """Refuse to serve a memory if a server of another one runs for the folder and would not make room.

    This is for the time before the memory is opened, because that creates its files.

    Raises:
        InputError: There is such a server.
    """
    other = find(home)
    if other is not None and not other.serves(memory) and (other.idle is None or on_demand):
        raise InputError(say_other(other, memory))


@contextmanager
def _only_server(home: Path, *, memory: str, on_demand: bool) -> Iterator[None]:
    """Hold the lock of the server of a folder. A server that was started on demand makes room for one that was not.

    Raises:
        InputError: Another server runs for this folder.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    end = time.monotonic() + LOCK_SECONDS
    is_asked = False
    while True:
        with only_process(home / client.LOCK) as is_only:
            if is_only:
                (home / client.FILE).unlink(missing_ok=True)  # of one that was killed
                yield
                return
        other = find(home)
        if other is not None and other.idle is not None and not on_demand and not is_asked:
            is_asked = True
            end = time.monotonic() + STOP_SECONDS + START_SECONDS
            os.kill(other.pid, signal.SIGTERM)
        if time.monotonic() > end:
            if other is not None and not other.serves(memory):
                raise InputError(say_other(other, memory))
            where = "another process" if other is None else f"process {other.pid} on {other.url}"
            raise InputError(f"{home} is served by {where}: use that server, or stop it first")
        time.sleep(0.02)


def run(
    engine: Engine,
    *,
    home: Path,
    memory: str,
    port: int,
    socket_path: Path | None = None,
    upstreams: Upstreams | None,
    shadow: bool = False,
    idle: float | None = None,
    on_start: Callable[[Server], None] = lambda _: None,
    outside: Outside | None = None,
) -> bool:
    """Serve until stopped, or until nothing was asked for `idle` seconds; return whether the store is gone.

    Without upstreams nothing is forwarded. It listens on a port of 127.0.0.1, or on a Unix socket if `socket_path`
    names one. `memory` is the name of what it serves, by which clients know whether it is theirs. It also stops if the
    file of the store was deleted, moved or replaced.

    Raises:
        InputError: The port or the path cannot be used, or another server runs for this folder.
    """
    import asyncio  # noqa: PLC0415 - slow to import
    import logging  # noqa: PLC0415 - as above

    import uvicorn  # noqa: PLC0415 - an extra, and slow to import

    from holdfast.server.app import create_app  # noqa: PLC0415 - as above
    from holdfast.server.connections import Limits, make_config  # noqa: PLC0415 - as above
    from holdfast.server.guard import (  # noqa: PLC0415 - as above
        OWNER_TOKEN_FILE,
        Activity,
        load_token,
        make_token,
    )
    from holdfast.server.logs import log_operation, start_log  # noqa: PLC0415 - as above
    from holdfast.server.metrics import Metrics  # noqa: PLC0415 - as above
    from holdfast.server.rpc import Rpc  # noqa: PLC0415 - as above
    from holdfast.store.connection import find_file_number  # noqa: PLC0415 - as above

    _allow_open_files(MAX_OPEN_FILES)
    trim_heap = _share_heap()
    activity = Activity()
    token = make_token()
    rpc = Rpc(engine, home=home, memory=memory)
    store = engine._memory.store
    file_number = find_file_number(str(store.path))
    settings = engine.settings.server
    observers: list[Observer] = []
    metrics = None
    if settings.metrics:
        metrics = Metrics(lambda: {"holdfast_open_requests": activity.open_requests})
        observers.append(metrics)
    if settings.log_format == "json":
        observers.append(log_operation)
    app = create_app(
        engine,
        token=token,
        owner_token=load_token(home / OWNER_TOKEN_FILE),
        upstreams=upstreams,
        shadow=shadow,
        activity=activity,
        outside=outside,
        rpc=rpc,
        is_on_demand=idle is not None,
        metrics=metrics,
    )
    server = uvicorn.Server(
        make_config(
            app,
            limits=Limits(connections=settings.max_connections),
            log_config=None,
            lifespan="on",
            timeout_graceful_shutdown=STOP_SECONDS,
        )
    )

    log = logging.getLogger("holdfast.server")
    start_log(settings.log_format)
    # The proxy logs why it has ended a reply in its middle.
    logging.getLogger("uvicorn.error").addFilter(lambda record: "without completing" not in record.msg)

    path = "" if socket_path is None else str(socket_path.absolute())
    is_gone = False

    async def serve(bound: socket.socket) -> None:
        nonlocal is_gone
        used = 0 if path else bound.getsockname()[1]
        described = Server(port=used, socket_path=path, pid=os.getpid(), token=token, idle=idle, memory=memory)
        task = asyncio.create_task(server.serve(sockets=[bound]))
        while not server.started and not task.done():
            await asyncio.wait({task}, timeout=0.01)
        write_private(home / client.FILE, json.dumps(asdict(described)).encode())
        on_start(described)
        trimmed = time.monotonic()
        while not task.done():
            with suppress(HoldfastError):  # they stay, and are tried again
                await asyncio.to_thread(rpc.take_in)
                await asyncio.to_thread(rpc.look_again)
            await asyncio.wait({task}, timeout=1.0)
            if find_file_number(str(store.path)) != file_number and not server.should_exit:
                log.warning("%s was deleted, moved or replaced, so it is served no longer", store.place)
                _remove_description(home, token)
                is_gone = True
                server.should_exit = True
            if time.monotonic() > trimmed + TRIM_SECONDS:
                await asyncio.to_thread(trim_heap)
                trimmed = time.monotonic()
            if idle is not None and activity.idle_seconds > idle:
                server.should_exit = True
        await task

    with ExitStack() as stack:
        for observer in observers:
            stack.enter_context(add_observer(observer))
        stack.enter_context(_only_server(home, memory=memory, on_demand=idle is not None))
        bound = stack.enter_context(_listen(port, socket_path))
        # uvicorn raises the signal again once it has stopped, inside of its task.
        signal.signal(signal.SIGTERM, lambda *_: setattr(server, "should_exit", True))
        try:
            asyncio.run(serve(bound))
        finally:
            _remove_description(home, token)
    return is_gone


def _remove_description(home: Path, token: str) -> None:
    """Delete the file that describes this server; that of another stays, if the folder was deleted meanwhile."""
    file = home / client.FILE
    with suppress(OSError, ValueError):
        if json.loads(file.read_bytes()).get("token") == token:
            file.unlink()


def _allow_open_files(count: int) -> None:
    """Allow this process as many open files, as far as the system does. A request needs two connections."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if most == resource.RLIM_INFINITY else min(count, most)
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _share_heap() -> Callable[[], object]:
    """Let all threads allocate from one heap, if the C library can, and return what gives its free pages back.

    Else each thread keeps what it once needed. Large arrays do not go into it: the library would put them there after
    the first one is freed.
    """
    import ctypes  # noqa: PLC0415 - as above

    try:
        library = ctypes.CDLL(None)
        for option, value in _HEAP.items():
            library.mallopt(option, value)
        return partial(library.malloc_trim, 0)
    except (AttributeError, OSError, TypeError):
        return lambda: None


def _listen(port: int, path: Path | None) -> AbstractContextManager[socket.socket]:
    """Bind a port, or a Unix socket if there is a path."""
    if path is None:
        return _bind(port)
    from holdfast.server.unix_socket import listen  # noqa: PLC0415 - as above

    return listen(path)


def _bind(port: int) -> socket.socket:
    # asyncio turns Nagle's algorithm off only if the protocol is named; with it, a token may wait 40 ms.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(("127.0.0.1", port))
    except OSError as error:
        bound.close()
        raise InputError(
            f"port {port} of 127.0.0.1: {error.strerror}; name another with --port, or 0 for any"
        ) from error
    return bound
