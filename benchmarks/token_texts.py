"""Texts of every kind that a window holds: languages, code, and the output of tools. Made up, from a seed."""

from __future__ import annotations

import base64
import json
import random
import string
import uuid
from collections.abc import Callable, Mapping
from typing import Final

from benchmarks import load_texts

__all__ = ["PROSE", "texts"]

_TEXTS: Final[Mapping[str, Mapping[str, str]]] = load_texts("token_texts")
PROSE: Final = frozenset(_TEXTS["languages"])
"""The kinds for which too high an estimate costs most."""


def texts(*, size: int = 20_000, seed: int = 1) -> dict[str, str]:
    """Make a text of about `size` characters of every kind."""
    rng = random.Random(seed)  # noqa: S311 - the same texts every time
    fixed = {**_TEXTS["languages"], **_TEXTS["code"]}
    made = {kind: (text + "\n") * (size // len(text) + 1) for kind, text in fixed.items()}
    for kind, line in LINES.items():
        rows: list[str] = []
        length = 0
        while length < size:
            rows.append(line(rng))
            length += len(rows[-1]) + 1
        made[kind] = "\n".join(rows)
    return made


def _chars(rng: random.Random, alphabet: str, length: int) -> str:
    return "".join(rng.choices(alphabet, k=length))


def _hexdump(rng: random.Random) -> str:
    data = rng.randbytes(16)
    shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)
    return f"{rng.randrange(2**20) * 16:08x}  {data[:8].hex(' ')}  {data[8:].hex(' ')}  |{shown}|"


def _log(rng: random.Random) -> str:
    level = rng.choice(("INFO", "INFO", "DEBUG", "WARN", "ERROR"))
    return (
        f"2026-0{rng.randrange(1, 10)}-{rng.randrange(10, 29)}T{rng.randrange(10, 24)}:{rng.randrange(10, 60)}:"
        f"{rng.randrange(10, 60)}.{rng.randrange(1000):03}Z {level} [http-nio-8080-exec-{rng.randrange(20)}] "
        f"c.e.shop.OrderService request={rng.randbytes(6).hex()} status={rng.choice((200, 201, 404, 500))} "
        f"took={rng.randrange(2000)}ms"
    )


def _record(rng: random.Random) -> str:
    value = {
        "id": rng.randrange(10**7),
        "userName": rng.choice(("anna", "bo", "chen", "dimitri")),
        "isActive": rng.random() < 0.5,
        "balance": round(rng.random() * 1e4, 2),
        "tags": ["new", "eu-west-1"],
        "lastLogin": None,
    }
    return json.dumps(value, indent=rng.choice((None, 2)))


def _listing(rng: random.Random) -> str:
    name = f"{rng.choice(('report', 'index', 'utils', 'main'))}_{rng.randrange(100)}.py"
    return f"-rw-r--r--  1 deploy  staff  {rng.randrange(10**6):>8} Mar {rng.randrange(1, 29):>2} 10:{rng.randrange(10, 60)} {name}"


def _cells(rng: random.Random) -> str:
    return f"| {rng.choice(('alpha', 'beta', 'gamma')):<12} | {rng.random():>8.4f} | {rng.randrange(10**5):>8,} | {'ok':^6} |"


def _path(rng: random.Random) -> str:
    parts = (
        "src",
        "node_modules",
        ".pnpm",
        "components",
        "@types",
        "OrderList",
        "__tests__",
        "v2",
        "api-client",
        "dist",
    )
    return "/home/user/shop/" + "/".join(rng.sample(parts, 4)) + rng.choice((".tsx", ".test.js", "/index.d.ts"))


LINES: Final[Mapping[str, Callable[[random.Random], str]]] = {
    "JSON": _record,
    "logs with timestamps": _log,
    "file listing": _listing,
    "table": _cells,
    "box table": lambda rng: (
        f"│ {rng.choice(('alpha', 'beta')):<10} │ {rng.randrange(10**5):>7} │\n├{'─' * 12}┼{'─' * 9}┤"
    ),
    "paths": _path,
    "CSV of numbers": lambda rng: ",".join(f"{rng.uniform(-1000, 1000):.{rng.randrange(7)}f}" for _ in range(12)),
    "CSV of integers": lambda rng: ",".join(str(rng.randrange(10 ** rng.randrange(1, 9))) for _ in range(12)),
    "digits": lambda rng: _chars(rng, string.digits, 60),
    "hex": lambda rng: rng.randbytes(32).hex(),
    "upper-case hex": lambda rng: rng.randbytes(32).hex().upper(),
    "one line of hex": lambda rng: rng.randbytes(10_000).hex(),
    "hex bytes": lambda rng: ", ".join(f"0x{byte:02x}" for byte in rng.randbytes(12)) + ",",
    "hexdump": _hexdump,
    "UUIDs": lambda rng: str(uuid.UUID(bytes=rng.randbytes(16), version=4)),
    "base64": lambda rng: base64.b64encode(rng.randbytes(57)).decode(),
    "one line of base64": lambda rng: base64.b64encode(rng.randbytes(15_000)).decode(),
    "base32": lambda rng: base64.b32encode(rng.randbytes(40)).decode(),
    "base36": lambda rng: _chars(rng, string.ascii_lowercase + string.digits, 40),
    "random letters": lambda rng: _chars(rng, string.ascii_lowercase, 40),
    "random ASCII": lambda rng: _chars(rng, string.printable[:94], 60),
    "emoji": lambda rng: "".join(rng.choices(("😀", "🚀", "✅", "🎉", "👩‍💻", "🇩🇪", "❤️", "🔥", "👍🏽", " "), k=30)),
    "ANSI colours": lambda rng: (
        f"\x1b[{rng.randrange(30, 38)}m{rng.choice(('PASS', 'FAIL'))}\x1b[0m tests/test_{rng.randrange(99)}.py\x1b[2K\x1b[1G"
    ),
    "whitespace": lambda rng: " " * rng.randrange(80) + "\t" * rng.randrange(6) + "\n" * rng.randrange(3) + "}",
    "symbols": lambda rng: _chars(rng, string.punctuation, 60),
    "rare scripts": lambda rng: "".join(
        chr(rng.choice((0x1200, 0x1780, 0x0F40, 0x10A0, 0x0D05)) + rng.randrange(40)) for _ in range(30)
    ),
}
"""Kinds that are made line by line."""
