"""The trial inside OpenClaw: 36 turns of work in a small window, then 15 questions about what was said in passing.

The host is the real one, with its gateway. The model is a script: it calls a tool where the user asks for it, and every
summary that it is asked for says "We worked on several things." The request of the last turn of work is refused once
as too long, so that a compaction with this summary takes place before the questions. Counted is whether the answer to a
question is in the request that carries the question.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import httpx2

from holdfast.engine import Engine
from holdfast.errors import InputError
from holdfast.hooks.install import Installer
from holdfast.programs import own_command
from holdfast.settings import Settings

TURNS: Final = 36
TOOL_TURNS: Final = frozenset({2, 5, 9, 13, 17, 21, 26, 31})
WINDOW: Final = 32_000
TURN_CHARS: Final = 5_400
"""Characters of a turn: 1,350 tokens."""
SUMMARY: Final = "We worked on several things."
KEY: Final = "agent:main:trial"
STARTUP_SECONDS: Final = 240
STARTS: Final = 4
TURN_SECONDS: Final = 180
RPC_PID: Final = "rpc.pid"
FAULT_TURNS: Final = range(18, 28)
"""The turns of a fault; a process is killed before the first one and after the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that is said in passing, and the question about it; none for what a later fact changes.

    `other` asks the same in other words.
    """

    turn: int
    kind: str
    place: str
    text: str
    question: str = ""
    answer: str = ""
    other: str = ""

    def ask(self, words: str) -> str:
        """Return the question in the fact's own words, or in other ones; empty if there is none."""
        return self.other if words == "other" else self.question


FACTS: Final = ("openclaw", "openclaw-2", "openclaw-3", "openclaw-4", "openclaw-5")
"""The sets of facts. The gate of recall was tuned with the first one in view; the third, the fourth and the fifth also
ask in other words. Two faults of recall were corrected with the third and the fourth in view, and one that a question
of the fifth in its own words showed (docs/openclaw.md)."""


def load_facts(name: str = FACTS[0]) -> list[Fact]:
    """Load a set of facts of the trial."""
    data = tomllib.loads((Path(__file__).parent / "data" / f"{name}.toml").read_text("utf-8"))
    return [Fact(**row) for row in data["facts"]]


# --- the conversation ----------------------------------------------------------------

_PARTS: Final = (
    "importer",
    "scheduler",
    "mail gateway",
    "invoice view",
    "session store",
    "upload path",
    "rate limiter",
)
_ACTIONS: Final = ("split", "retry", "cache", "profile", "rename", "batch", "log", "test")
_SENTENCES: Final = (
    "I looked at the {part} again and the {action} step still takes longer than it should.",
    "The test for the {part} passes locally but it was red twice on the build machine, port {number} was in use.",
    "Could you {action} the part of the {part} that reads the configuration, and leave the rest alone?",
    "The dashboard shows {number} requests a minute for the {part}, which is about what we had last week.",
    "A colleague asked whether the {part} could {action} its work in groups of {number}.",
    "In the meantime the {part} writes a line for every {action}, and nobody reads these lines.",
    "We talked about version {number} of the {part} and agreed to look at it after the release.",
    "The error budget of the {part} is fine, the database behind it is not the reason.",
)


def _filler(rng: random.Random, chars: int) -> str:
    """Write sentences about work, with numbers that are nobody's answer."""
    lines: list[str] = []
    while sum(map(len, lines)) < chars:
        values = {"part": rng.choice(_PARTS), "action": rng.choice(_ACTIONS), "number": rng.randrange(20_000, 60_000)}
        lines.append(rng.choice(_SENTENCES).format(**values))
    return " ".join(lines)


def _log(rng: random.Random, chars: int, line: str = "") -> str:
    """Write a log with one line in the middle."""
    rows: list[str] = []
    while sum(map(len, rows)) < chars:
        part, moment = rng.choice(_PARTS).replace(" ", "-"), f"2026-03-0{rng.randrange(1, 9)}T0{rng.randrange(10)}:15:0"
        rows.append(
            f"{moment}{rng.randrange(10)}Z INFO {part} request={rng.randrange(10**6)} took={rng.randrange(90)}ms"
        )
    return "\n".join([*rows[: len(rows) // 2], *([line] if line else []), *rows[len(rows) // 2 :]])


def make_turn(number: int, facts: list[Fact], workspace: Path) -> str:
    """Write what the user says in a turn; a log that a tool shall read is written to the workspace."""
    rng = random.Random(number)  # noqa: S311 - texts, not secrets
    fact = next((one for one in facts if one.turn == number), None)
    said = fact.text if fact else ""
    if number in TOOL_TURNS:
        file = workspace / "logs" / f"turn-{number}.log"
        file.parent.mkdir(exist_ok=True)
        is_in_tool = fact is not None and fact.place == "tool"
        file.write_text(_log(rng, TURN_CHARS // 2, said if is_in_tool else ""), "utf-8")
        said = f"{'' if is_in_tool else said} Please read logs/turn-{number}.log and tell me what you see."
        return f"{_filler(rng, TURN_CHARS // 6)} {said} {_filler(rng, TURN_CHARS // 6)}"
    if fact and fact.place == "log":
        log = f"```\n{_log(rng, TURN_CHARS // 3, said)}\n```"
        return f"{_filler(rng, TURN_CHARS // 6)}\n{log}\n{_filler(rng, TURN_CHARS // 8)}"
    return f"{_filler(rng, TURN_CHARS // 3)} {said} {_filler(rng, TURN_CHARS // 3)}"


def make_reply(seed: int) -> str:
    """Write what the assistant says."""
    return "I see. " + _filler(random.Random(seed), TURN_CHARS // 4)  # noqa: S311 - as above


# --- the model -----------------------------------------------------------------------


def _answer(body: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a request as the script says: a message of an OpenAI chat completion."""
    if not body.get("tools"):
        return {"role": "assistant", "content": SUMMARY}
    *_, last = [message for message in body["messages"] if "OPENCLAW_INTERNAL_CONTEXT" not in json.dumps(message)]
    asked = re.search(r"Please read (logs/turn-\d+\.log)", json.dumps(last))
    if last["role"] == "user" and asked:
        call = {"name": "read", "arguments": json.dumps({"path": asked[1]})}
        number = f"call_{abs(hash(asked[1])) % 10**8}"
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": number, "type": "function", "function": call}],
        }
    return {"role": "assistant", "content": make_reply(len(json.dumps(last)))}


_TOO_LONG: Final = {
    "message": f"This model's maximum context length is {WINDOW} tokens. You requested {WINDOW + 4_000} tokens.",
    "type": "invalid_request_error",
    "code": "context_length_exceeded",
}


class _Model(BaseHTTPRequestHandler):
    """Speaks the chat completions of OpenAI, streaming or not."""

    server: ScriptedModel
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer, and keep the request."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append((time.time(), body))
        if self.server.has_no_summaries and not body.get("tools"):
            return self._send(500, "application/json", json.dumps({"error": {"message": "overloaded"}}).encode())
        if self.server.is_refusing and body.get("tools"):
            self.server.is_refusing = False
            return self._send(400, "application/json", json.dumps({"error": _TOO_LONG}).encode())
        message = self.server.answer(body)
        used = len(json.dumps(body)) // 4
        usage = {"prompt_tokens": used, "completion_tokens": 12, "total_tokens": used + 12}
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        base = {"id": f"c{len(self.server.requests)}", "created": int(time.time()), "model": body.get("model")}
        if body.get("stream"):
            calls = [{"index": at, **call} for at, call in enumerate(message.get("tool_calls", []))]
            delta = {**message, **({"tool_calls": calls} if calls else {})}
            chunks: list[dict[str, Any]] = [
                {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
                {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
                {"choices": [], "usage": usage},
            ]
            lines = [json.dumps({**base, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
            data = "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()
        else:
            choice = {"index": 0, "message": message, "finish_reason": reason}
            data = json.dumps({**base, "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
        return self._send(200, "text/event-stream" if body.get("stream") else "application/json", data)

    def _send(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class ScriptedModel(ThreadingHTTPServer):
    """A model server on this machine, and the requests that it got.

    It may refuse the next one as too long, and all that ask for a summary.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Model)
        self.answer: Callable[[Mapping[str, Any]], dict[str, Any]] = _answer
        self.requests: list[tuple[float, dict[str, Any]]] = []
        self.is_refusing = False
        self.has_no_summaries = False


# --- the host ------------------------------------------------------------------------

_RECORDER: Final = '''"""Passes calls on to `holdfast rpc`, and records how long each took."""
import json, subprocess, sys, threading, time
child = subprocess.Popen({command!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
with open({pid!r}, "w") as file:
    file.write(str(child.pid))
started = {{}}
def answers():
    with open({log!r}, "a") as log:
        for line in child.stdout:
            ended = time.perf_counter()
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            answer = json.loads(line)
            method, begun = started.pop(answer.get("id"), ("", ended))
            row = {{"method": method, "ms": 1000 * (ended - begun), "error": answer.get("error")}}
            log.write(json.dumps(row) + "\\n")
            log.flush()
thread = threading.Thread(target=answers)
thread.start()
for line in sys.stdin.buffer:
    call = json.loads(line)
    started[call.get("id")] = (call.get("method"), time.perf_counter())
    child.stdin.write(line)
    child.stdin.flush()
child.stdin.close()
thread.join()
'''


def _write_settings(
    folder: Path, *, model: int, port: int, agents: Mapping[str, Any], plugin: Mapping[str, Any], mode: str
) -> None:
    models = [{"id": "m1", "name": "m1", "contextWindow": WINDOW, "maxTokens": 4_000}]
    provider = {"baseUrl": f"http://127.0.0.1:{model}/v1", "apiKey": "x", "api": "openai-completions", "models": models}
    settings = {
        "gateway": {
            "mode": "local",
            "port": port,
            "bind": "loopback",
            "auth": {"mode": "token", "token": "trial"},
            "http": {"endpoints": {"chatCompletions": {"enabled": True}}},
        },
        "agents": {
            "defaults": {
                "workspace": str(folder / "work"),
                "model": {"primary": "scripted/m1"},
                "skipBootstrap": True,
                **({"compaction": {"mode": mode}} if mode else {}),
            },
            **agents,
        },
        "models": {"providers": {"scripted": provider}},
        **({"plugins": {"entries": {"holdfast": {"config": plugin}}}} if plugin else {}),
    }
    (folder / "home" / ".openclaw").mkdir(parents=True)
    (folder / "work").mkdir()
    (folder / "home" / ".openclaw" / "openclaw.json").write_text(json.dumps(settings, indent=2))


def find_host(folder: Path | None) -> list[str]:
    """Return the command of OpenClaw: of an npm folder, else that on the PATH.

    Raises:
        InputError: There is none.
    """
    if folder is None:
        found = shutil.which("openclaw")
        if found is None:
            raise InputError("OpenClaw is not installed: npm install openclaw, and name its folder with --openclaw")
        return [found]
    program = folder / "node_modules" / "openclaw" / "openclaw.mjs"
    node = next(folder.parent.glob("*/node_modules/node-linux-*/bin/node"), None)
    if not program.exists():
        raise InputError(f"{program} does not exist: npm install openclaw in {folder}")
    return [str(node or shutil.which("node") or "node"), str(program)]


@contextmanager
def run_gateway(
    command: list[str],
    folder: Path,
    *,
    with_memory: bool = True,
    agents: Mapping[str, Any] | None = None,
    plugin: Mapping[str, Any] | None = None,
    peer: Path | None = None,
    mode: str = "",
) -> Iterator[tuple[ScriptedModel, str]]:
    """Run the gateway of OpenClaw in an empty home, in front of a scripted model.

    `agents` adds to that setting, `plugin` are options of our plugin. `peer` is the folder of another plugin, which is
    installed as its users do. `mode` is that of OpenClaw's own compaction.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    model = ScriptedModel()
    threading.Thread(target=model.serve_forever, daemon=True).start()
    _write_settings(
        folder, model=model.server_address[1], port=port, agents=agents or {}, plugin=plugin or {}, mode=mode
    )
    environ = {**os.environ, "HOME": str(folder / "home"), "HOLDFAST_HOME": str(folder / "memory"), "NO_COLOR": "1"}
    environ["PATH"] = f"{Path(command[0]).parent}{os.pathsep}{environ['PATH']}"
    summaries = {"HOLDFAST_COMPACTION__MODEL": "openai/m1", "OPENAI_API_KEY": "x"}
    environ |= {**summaries, "OPENAI_BASE_URL": f"http://127.0.0.1:{model.server_address[1]}/v1"}
    if with_memory:
        recorder = folder / "recorder"
        log = str(folder / "calls.jsonl")
        pid = str(folder / RPC_PID)
        recorder.write_text(_RECORDER.format(command=own_command("rpc"), log=log, pid=pid))
        state = {"OPENCLAW_STATE_DIR": str(folder / "home" / ".openclaw")}
        Installer(
            "openclaw", records=folder / "records", environ=state, command=[sys.executable, str(recorder)]
        ).install()
    url = f"http://127.0.0.1:{port}"
    with (folder / "gateway.log").open("wb") as output:
        if peer is not None:
            install = [*command, "plugins", "install"]
            run = partial(subprocess.run, env=environ, cwd=folder / "work", check=True)
            known = run([*install, "--help"], capture_output=True, text=True).stdout
            # Older versions ask nothing, and refuse --force for a folder.
            agreed = ["--force", "--accept-capabilities"] if "--accept-capabilities" in known else []
            run([*install, *agreed, "--link", str(peer)], stdout=output, stderr=output)
        start = partial(
            subprocess.Popen,
            [*command, "gateway", "run"],
            env=environ,
            stdout=output,
            stderr=output,
            cwd=folder / "work",
        )
        gateway = start()
        for _ in range(STARTS - 1):  # on a busy machine it gives up when a check takes longer than five seconds
            if _is_ready(url, gateway):
                break
            gateway.terminate()
            gateway.wait(60)
            gateway = start()
        try:
            if not _is_ready(url, gateway):
                raise InputError(f"the gateway of OpenClaw does not start: see {folder / 'gateway.log'}")
            yield model, url
        finally:
            gateway.terminate()
            gateway.wait(60)
            model.shutdown()
            model.server_close()


def _is_ready(url: str, gateway: subprocess.Popen[Any]) -> bool:
    """Wait until the gateway answers; False where it has ended, or takes too long."""
    end = time.monotonic() + STARTUP_SECONDS
    while time.monotonic() < end and gateway.poll() is None:
        try:
            if httpx2.get(f"{url}/v1/models", headers={"authorization": "Bearer trial"}, timeout=5).status_code == 200:
                return True
        except httpx2.TransportError:
            time.sleep(1)
    return False


# --- the trial -----------------------------------------------------------------------


def _break(fault: str, *, turn: int, folder: Path, model: ScriptedModel) -> None:
    """Cause a fault, or end it, before a turn."""
    is_begun, is_over = turn == FAULT_TURNS.start, turn == FAULT_TURNS.stop
    if not is_begun and not is_over:
        return
    if fault == "no summaries":
        model.has_no_summaries = is_begun
    elif fault == "killed":
        os.kill(int((folder / RPC_PID).read_text()), signal.SIGKILL)
    elif fault == "hung":
        os.kill(int((folder / RPC_PID).read_text()), signal.SIGSTOP if is_begun else signal.SIGCONT)
    elif fault == "deleted" and is_begun:
        for file in (folder / "memory").glob("holdfast.db*"):
            file.unlink()


def measure(
    facts: list[Fact],
    *,
    command: list[str],
    folder: Path,
    with_memory: bool = True,
    words: str = "own",
    peer: Path | None = None,
    mode: str = "",
    fault: str = "",
    progress: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Run the trial in an empty folder, and count the answers that are in the request with their question.

    A run asks in own words or in other words, and not both: the block of one question may answer the other.
    """
    asked = [fact for fact in facts if fact.ask(words)]
    failed: list[str] = []
    seconds: list[float] = []
    found: dict[str, bool] = {}
    sent: dict[str, int] = {}
    with run_gateway(command, folder, with_memory=with_memory, peer=peer, mode=mode) as (model, url):

        def say(text: str) -> list[dict[str, Any]]:
            """Take a turn, and return the requests that the model got."""
            known, begun = len(model.requests), time.monotonic()
            headers = {"authorization": "Bearer trial", "x-openclaw-session-key": KEY}
            body = {"model": "openclaw", "messages": [{"role": "user", "content": text}]}
            answer = httpx2.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=TURN_SECONDS)
            seconds.append(time.monotonic() - begun)
            if answer.status_code != 200 or "I see." not in answer.text:
                failed.append(f"{answer.status_code}: {answer.text[:200]}")
            progress(1)
            return [body for _, body in model.requests[known:]]

        for number in range(1, TURNS + 1):
            model.is_refusing = number == TURNS
            _break(fault, turn=number, folder=folder, model=model)
            say(make_turn(number, facts, folder / "work"))
        for fact in asked:
            question = fact.ask(words)
            requests = [body for body in say(question) if question in _texts(body)]
            found[fact.kind] = any(fact.answer in _conversation(body) for body in requests[:1])
            sent[fact.kind] = max((len(_texts(body)) // 4 for body in requests), default=0)
            with (folder / "requests.jsonl").open("a") as file:
                file.writelines(json.dumps(body) + "\n" for body in requests[:1])
        summaries = sum(not body.get("tools") for _, body in model.requests)
    return {
        "facts": len(asked),
        "compactions": count_compactions(folder / "memory") if with_memory else None,
        "answered": sum(found.values()),
        "by_fact": found,
        "request_tokens": sent,
        "tokens_p50": sorted(sent.values())[len(sent) // 2],
        "summary_calls": summaries,
        "turns": TURNS + len(asked),
        "failed": len(failed),
        "failures": failed[:5],
        "seconds_a_turn": round(sorted(seconds)[len(seconds) // 2], 2),
        "calls": _latency(folder / "calls.jsonl"),
    }


def count_compactions(home: Path) -> int:
    """Count the compactions that Holdfast has made in all sessions."""
    with Engine.open(home, settings=Settings(), background=False) as engine:
        sessions = [engine.session(one.id, project=one.project, agent=one.agent) for one in engine.sessions()]
        return sum(edit.kind == "compacted" for session in sessions for edit in session.edits())


def _texts(body: Mapping[str, Any]) -> str:
    """Return everything that a request says to the model, as text."""
    return "\n".join(_text(message.get("content")) for message in body["messages"])


def _conversation(body: Mapping[str, Any]) -> str:
    """Return what a request says without the system prompt, whose words are the host's: "Temporal Context"."""
    return "\n".join(_text(message.get("content")) for message in body["messages"] if message["role"] != "system")


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())


def _latency(log: Path) -> dict[str, dict[str, float]]:
    """Return how long the calls of the plugin took, by method; the first ones start the process."""
    if not log.exists():
        return {}
    rows: Sequence[dict[str, Any]] = [json.loads(line) for line in log.read_text().splitlines()]
    times: dict[str, list[float]] = {}
    for row in rows:
        times.setdefault(row["method"], []).append(row["ms"])
    return {
        method: {
            "calls": len(all_ms),
            "first_ms": round(all_ms[0], 1),
            "p50_ms": round(sorted(all_ms[1:] or all_ms)[len(all_ms[1:]) // 2], 1),
            "max_ms": round(max(all_ms[1:] or all_ms), 1),
            "errors": sum(1 for row in rows if row["method"] == method and row["error"]),
        }
        for method, all_ms in times.items()
    }
