"""Run one memory system in its own environment: messages and questions in, ranked passages and times out.

The driver starts `python -P worker.py ADAPTER CLASS` with the Python of the system's environment, so nothing of
Holdfast is imported here. Both sides write one JSON object per line:

* `{"open": FOLDER}` begins with an empty memory in a folder, and is answered by `{}`.
* `{"add": [{"id", "session", "time", "role", "speaker", "plain", "text"}, ...]}` is answered by `{"wall", "cpu"}`.
* `{"ask": {"text", "time"}, "limit", "budgets"}` is answered by `{"found": [...], "wall", "cpu"}`. A passage that is
  found has `text` and either the `id` of its message or the `session` that it was cut from. A system that makes the
  text of a prompt itself answers with `{"blocks": {budget: text}, ...}` instead.
* `{"embed": [text, ...]}` from here is answered by `{"vectors": base64 of 32-bit floats}`: every system gets the same
  vectors, and the time that they take is not counted.
"""

import array
import base64
import importlib.util
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TextIO, TypeVar

T = TypeVar("T")


class Driver:
    """The connection to the driver."""

    def __init__(self, receive: TextIO, send: TextIO) -> None:
        self._receive = receive
        self._send = send
        self._lock = threading.Lock()
        self.waited = 0.0
        self.waited_cpu = 0.0

    def read(self) -> dict[str, Any]:
        """Read the next request; an empty one at the end."""
        line = self._receive.readline()
        return dict(json.loads(line)) if line else {}

    def write(self, value: dict[str, Any]) -> None:
        """Send an answer."""
        self._send.write(json.dumps(value) + "\n")
        self._send.flush()

    def embed(self, texts: list[str]) -> list[list[float]]:
        """Get the vectors of texts."""
        start = time.perf_counter()
        start_cpu = time.process_time()
        with self._lock:  # some systems embed in threads
            self.write({"embed": texts})
            answer = self.read()
        floats = array.array("f", base64.b64decode(answer["vectors"])).tolist()
        size = len(floats) // max(1, len(texts))
        vectors = [floats[number * size : (number + 1) * size] for number in range(len(texts))]
        self.waited += time.perf_counter() - start
        self.waited_cpu += time.process_time() - start_cpu
        return vectors

    def measure(self, call: Callable[[], T]) -> tuple[T, dict[str, float]]:
        """Return the result of a call and its seconds, without those of embedding."""
        self.waited = 0.0
        self.waited_cpu = 0.0
        start = time.perf_counter()
        start_cpu = time.process_time()
        result = call()
        wall = time.perf_counter() - start - self.waited
        cpu = time.process_time() - start_cpu - self.waited_cpu
        return result, {"wall": wall, "cpu": cpu}


def serve(make_system: Callable[[Path, Any], Any], driver: Driver) -> None:
    """Answer requests until there are no more."""
    system: Any = None
    while request := driver.read():
        if "open" in request:
            if hasattr(system, "close"):
                system.close()
            system = make_system(Path(request["open"]), driver.embed)
            driver.write({})
        elif "add" in request:
            _, spent = driver.measure(partial(system.add, request["add"]))
            driver.write(spent)
        elif hasattr(system, "recall"):
            blocks: dict[str, str] = {}
            spent = {}
            for budget in request["budgets"]:
                blocks[str(budget)], spent = driver.measure(partial(system.recall, request["ask"], budget))
            driver.write({"blocks": blocks, **spent})  # the time of the last budget, the largest one
        else:
            found, spent = driver.measure(partial(system.search, request["ask"]["text"], request["limit"]))
            driver.write({"found": found, **spent})


def main(adapter: str, name: str) -> None:
    """Serve a system, a class of an adapter."""
    # What a system prints must not get between the lines for the driver.
    send = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    spec = importlib.util.spec_from_file_location("adapter", adapter)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{adapter}: not a module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    serve(getattr(module, name), Driver(sys.stdin, send))


if __name__ == "__main__":
    main(*sys.argv[1:])
