"""Events of hosts that wait for the server: one small file each, in the folder of the memory.

A host that ends does not wait until its transcript is archived. The event is stored, and the server handles it when it
can. The file names the transcript of the host and has no text of it. A host waits for `add`, so nothing slow is
imported here.
"""

from __future__ import annotations

import json
import os
import time

TYPE_CHECKING = False  # `typing` takes longer to import than storing an event takes
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

FOLDER: Final = "spool"
LOCK: Final = "lock"
"""The file in it that the process has locked that handles an event."""
MAX_EVENTS: Final = 1_000
"""Events that are kept if no server ever takes them. A later one of a session stands for the earlier ones."""
_FIELDS: Final = ("hook_event_name", "session_id", "transcript_path", "cwd", "source", "trigger")
"""What is stored of an event. The others may have text of the conversation, with secrets that nobody has masked."""


def add(home: str, payload: Mapping[str, Any], *, memory: str = "") -> None:
    """Store an event in the folder of a memory, readable by its owner alone. Memories of one folder differ by name.

    Raises:
        OSError: It cannot be stored.
    """
    folder = os.path.join(home, FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    stored = {name: payload[name] for name in _FIELDS if isinstance(payload.get(name), str)}
    if memory:
        stored["memory"] = memory
    path = os.path.join(folder, f"{time.time_ns():020d}-{os.getpid()}.json")
    descriptor = os.open(f"{path}.part", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps(stored).encode())
        os.rename(f"{path}.part", path)
    except OSError:  # the disk is full, for example
        os.unlink(f"{path}.part")
        raise
    for name in names(home)[:-MAX_EVENTS]:
        remove(home, name)


def names(home: str) -> list[str]:
    """Return the names of the events that wait, oldest first."""
    try:
        found = os.listdir(os.path.join(home, FOLDER))
    except OSError:
        return []
    return sorted(name for name in found if name.endswith(".json"))


def read(home: str, name: str) -> dict[str, Any] | None:
    """Return an event; None if it was handled meanwhile. A file that is not an event is an empty one."""
    try:
        with open(os.path.join(home, FOLDER, name), "rb") as file:
            event = json.load(file)
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def remove(home: str, name: str) -> None:
    """Delete an event."""
    try:
        os.unlink(os.path.join(home, FOLDER, name))
    except FileNotFoundError:  # another process was faster
        pass
