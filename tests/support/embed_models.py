"""Small models and a small endpoint, made where a test needs them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

Array = npt.NDArray[Any]

WORDS = ("[UNK]", "cat", "kitten", "dog", "revenue", "quarter", "猫", "你", "好")
VECTORS = np.array(
    [[9, 9, 9], [1, 0, 0], [1, 0.2, 0], [0, 1, 0], [0, 0, 1], [0, 0.1, 1], [1, 0.1, 0], [0.5, 0.5, 0], [0.5, 0, 0.5]],
    np.float32,
)

_NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "int8": "I8"}


def save_safetensors(path: Path, arrays: Mapping[str, Array], *, names: Mapping[str, str] | None = None) -> None:
    """Write arrays as safetensors; `names` gives another name to an array's type."""
    header: dict[str, Any] = {"__metadata__": {"format": "np"}}
    at = 0
    for name, array in arrays.items():
        kind = (names or {}).get(name, _NAMES.get(array.dtype.name, "F32"))
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + b"".join(array.tobytes() for array in arrays.values()))


def save_tokenizer(path: Path, words: Sequence[str] = WORDS) -> None:
    """Write a tokenizer that knows these words, the first of them for those it does not know."""
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token=words[0]))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path))


def static_folder(folder: Path, vectors: Array = VECTORS, *, words: Sequence[str] = WORDS) -> Path:
    """A folder with a static model."""
    folder.mkdir(parents=True, exist_ok=True)
    save_safetensors(folder / "model.safetensors", {"embeddings": vectors})
    save_tokenizer(folder / "tokenizer.json", words)
    return folder


def wordllama_package(place: Path) -> tuple[Path, Path]:
    """The `wordllama` package with a small model, in code that must not run; its table and its tokenizer."""
    root = place / "wordllama"
    table = root / "weights" / "l2_supercat_256.safetensors"
    tokenizer = root / "tokenizers" / "l2_supercat_tokenizer_config.json"
    for path in (table, tokenizer):
        path.parent.mkdir(parents=True, exist_ok=True)
    (root / "__init__.py").write_text("raise RuntimeError('imported')")
    save_safetensors(table, {"embedding.weight": VECTORS.astype(np.float16)})
    save_tokenizer(tokenizer)
    return table, tokenizer


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What the endpoint says next. A reply that hangs says nothing until the endpoint closes."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    hangs: bool = False
    drips: bool = False


@dataclass(frozen=True)
class Seen:
    """What the endpoint was sent."""

    path: str
    headers: Mapping[str, str]
    body: Any


class Endpoint(ThreadingHTTPServer):
    """A local HTTP server that gives its replies in order, the last one again and again."""

    daemon_threads = True

    def __init__(self, *replies: Reply) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies = list(replies)
        self.seen: list[Seen] = []
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def next_reply(self) -> Reply:
        """The reply that is due."""
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        body = json.loads(self.rfile.read(length))
        self.server.seen.append(Seen(self.path, dict(self.headers.items()), body))
        self._say(self.server.next_reply(), body)

    def do_GET(self) -> None:
        self.server.seen.append(Seen(self.path, dict(self.headers.items()), None))
        self._say(self.server.next_reply(), None)

    def _say(self, reply: Reply, body: Any) -> None:
        if reply.hangs:
            self.server.closing.wait()
            return
        said = reply.body(body) if callable(reply.body) else reply.body
        raw = said if isinstance(said, bytes) else json.dumps(said).encode()
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(raw) + (1 << 20) * reply.drips))
        self.end_headers()
        self.wfile.write(raw)
        while reply.drips and not self.server.closing.wait(0.02):
            self.wfile.write(b" ")
            self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # the name is given
        """Say nothing."""


@contextmanager
def endpoint(*replies: Reply) -> Iterator[Endpoint]:
    """An endpoint that runs as long as the test looks at it."""
    with Endpoint(*replies) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.closing.set()
            server.shutdown()
            thread.join()
