"""What the tools of the story print: invented, the same for the same seed, and of many kinds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeAlias

from holdfast.cli.story.words import (
    AREAS,
    CASES,
    COMMITS,
    ERRORS,
    EVENTS,
    FUNCTIONS,
    HEAD,
    MERCHANTS,
    PEOPLE,
    REASONS,
)

__all__ = ["MAKERS", "Maker", "said"]

Maker: TypeAlias = Callable[[Random, str], str]
_CURRENCIES: Final = ("EUR", "SEK", "CNY", "JPY", "PLN", "HUF", "GBP")
_STATES: Final = ("open", "queued", "running", "sent", "settled", "held", "closed")


def _hex(rng: Random, length: int = 8) -> str:
    return "".join(rng.choices("0123456789abcdef", k=length))


def _clock(rng: Random) -> str:
    return f"{rng.randrange(24):02d}:{rng.randrange(60):02d}:{rng.randrange(60):02d}.{rng.randrange(1000):03d}"


def _amount(rng: Random) -> str:
    return f"{rng.randrange(100, 900_000) / 100:.2f}"


def _fill(rng: Random, template: str, noun: str) -> str:
    return template.format(
        noun=noun,
        Noun="".join(word.capitalize() for word in noun.split("_")),
        NOUN=noun.upper(),
        number=rng.choice((50, 100, 128, 250, 500)),
        small=rng.randrange(3, 30),
        reason=rng.choice(REASONS),
        id=rng.randrange(1000, 99_999),
        currency=rng.choice(_CURRENCIES),
        state=rng.choice(_STATES),
        hex=_hex(rng, 12),
    )


def code(rng: Random, noun: str) -> str:
    """A module."""
    pieces = rng.sample(FUNCTIONS, k=rng.randrange(6, 9))
    return "\n".join(_fill(rng, piece, noun) for piece in (HEAD, *pieces))


def test_code(rng: Random, noun: str) -> str:
    """A module of tests."""
    lines = ["from decimal import Decimal", "", "import pytest", "", f"from tidepay import {noun}", ""]
    for case in rng.sample(CASES, k=9):
        amount, merchant = _amount(rng), rng.randrange(1000, 9999)
        lines += [
            "",
            f"def test_{case}(pool, clock) -> None:",
            f'    """{noun.capitalize()}: {case.replace("_", " ")}, {rng.choice(REASONS)}."""',
            f'    one = make_{noun}(merchant_id={merchant}, amount=Decimal("{amount}"))',
            f"    clock.advance(seconds={rng.randrange(1, 4000)})",
            f'    assert {noun}.total([one], currency="{rng.choice(_CURRENCIES)}").value == Decimal("{amount}")',
            "",
        ]
    return "\n".join(lines)


def ruby(rng: Random, noun: str) -> str:
    """A model of the old application."""
    name = noun.capitalize()
    lines = [f"class {name} < ApplicationRecord", "  belongs_to :merchant", "  has_many :events", ""]
    for case in rng.sample(CASES, k=14):
        lines += [f"  # {rng.choice(REASONS)}", f"  scope :{case}, -> {{ where(state: '{rng.choice(_STATES)}') }}", ""]
    return "\n".join([*lines, "end"])


def tests(rng: Random, noun: str) -> str:
    """A run of the tests."""
    total, cases = rng.randrange(28, 44), [*CASES, *(f"{case}_again" for case in CASES)]
    lines = ["============================= test session starts ==============================", "plugins: cov, xdist"]
    lines += [
        f"tests/{noun}/test_{rng.choice(AREAS)}.py::test_{case} PASSED [{rng.randrange(100):3d}%]"
        for case in rng.sample(cases, k=min(total, len(cases)))
    ]
    lines += [
        f"{rng.uniform(0.2, 3):.2f}s call     tests/{noun}/test_{rng.choice(AREAS)}.py::test_{case}"
        for case in rng.sample(CASES, k=4)
    ]
    return "\n".join([*lines, f"======== {total} tests run in {rng.uniform(2, 40):.2f}s ========"])


def trace(rng: Random, noun: str) -> str:
    """A log that ends in a stack trace."""
    kind, words = rng.choice(ERRORS)
    frames = []
    for area in rng.sample(AREAS, k=7):
        place = f"/app/src/tidepay/{area}/{rng.choice(('run', 'queue', 'store', 'worker'))}.py"
        frames += [
            f'  File "{place}", line {rng.randrange(20, 400)}, in {rng.choice(CASES)}',
            f"    {area}.{rng.choice(('take', 'post', 'close', 'load'))}({noun.replace('-', '_')}, now=clock())",
        ]
    ending = [*frames, f"tidepay.errors.{kind}: {_fill(rng, words, 'job')}"]
    return "\n".join([logs(rng, noun), "Traceback (most recent call last):", *ending])


def logs(rng: Random, noun: str) -> str:
    """Lines of a service's log."""
    lines = []
    for _ in range(rng.randrange(22, 34)):
        line: dict[str, object] = {
            "at": _clock(rng),
            "level": rng.choices(("info", "warning", "error"), weights=(12, 2, 1))[0],
            "event": rng.choice(EVENTS),
            "pod": f"{noun}-{_hex(rng, 5)}",
            "merchant": rng.randrange(1000, 40_000),
            "ms": rng.randrange(2, 900),
        }
        if line["level"] == "error":
            kind, words = rng.choice(ERRORS)
            line["error"] = f"{kind}: {_fill(rng, words, 'job')}"
        lines.append(json.dumps(line))
    return "\n".join(lines)


def rows(rng: Random, noun: str) -> str:
    """The answer of a query."""
    lines = [f" {'id':>7} | {noun[:16]:<16} | {'merchant':<20} | {'amount':>10} | {'state':<8} | at"]
    lines.append("-" * 9 + "+" + "-" * 18 + "+" + "-" * 22 + "+" + "-" * 12 + "+" + "-" * 10 + "+" + "-" * 14)
    count = rng.randrange(14, 24)
    lines += [
        f" {rng.randrange(10_000, 999_999):>7} | {_hex(rng, 16)} | {rng.choice(MERCHANTS):<20} |"
        f" {_amount(rng):>10} | {rng.choice(_STATES):<8} | {_clock(rng)}"
        for _ in range(count)
    ]
    return "\n".join([*lines, f"({count} rows)"])


def ddl(rng: Random, noun: str) -> str:
    """A table, described."""
    columns = ["id | bigint | not null", "merchant_id | integer | not null", "amount | numeric(14,2) | not null"]
    columns += [f"{case} | {rng.choice(('text', 'timestamptz', 'boolean'))} | " for case in rng.sample(CASES, k=9)]
    return "\n".join([f'Table "public.{noun}"', *columns, "Indexes:", f'    "{noun}_pkey" PRIMARY KEY, btree (id)'])


def explain(rng: Random, noun: str) -> str:
    """A plan of a query."""
    return "\n".join(
        [
            f"Limit  (cost=0.43..{rng.uniform(50, 900):.2f} rows=50 width={rng.randrange(90, 200)})",
            f"  ->  Sort on {noun}  (cost=0.43..{rng.uniform(900, 90_000):.2f} rows={rng.randrange(900, 90_000)})",
            f"        Sort Key: created_at DESC, Memory: {rng.randrange(25, 900)}kB",
            f"        ->  Scan on {noun}  (actual time={rng.uniform(0, 9):.3f}..{rng.uniform(9, 4000):.3f})",
            f"              Buffers: shared hit={rng.randrange(100, 9000)} read={rng.randrange(100, 90_000)}",
            f"Planning Time: {rng.uniform(0.1, 2):.3f} ms",
        ]
    )


def grep(rng: Random, noun: str) -> str:
    """Where a word stands."""
    lines = []
    for _ in range(rng.randrange(18, 30)):
        place = f"src/tidepay/{rng.choice(AREAS)}/{rng.choice(('rules', 'store', 'api', 'run'))}.py"
        piece = rng.choice(FUNCTIONS).strip().splitlines()
        words = _fill(rng, rng.choice(piece[:4]), noun).strip() or f"{noun} = None"
        lines.append(f"{place}:{rng.randrange(8, 420)}: {words}")
    return "\n".join(sorted(lines))


def commits(rng: Random, noun: str) -> str:
    """The last commits with the files they touched."""
    lines = []
    for template in rng.sample(COMMITS, k=rng.randrange(6, 10)):
        area = rng.choice(AREAS)
        lines += [
            f"commit {_hex(rng, 40)}",
            f"Author: {rng.choice(PEOPLE)}",
            "",
            f"    {_fill(rng, template, noun)}",
            "",
            f" src/tidepay/{area}/{noun}.py      | {rng.randrange(2, 60)} +++--",
            f" tests/{area}/test_{noun}.py   | {rng.randrange(2, 90)} ++++-",
            "",
        ]
    return "\n".join(lines)


def diff(rng: Random, noun: str) -> str:
    """A change, as git shows it."""
    lines = []
    for piece in rng.sample(FUNCTIONS, k=6):
        lines += [f"--- a/src/tidepay/{noun}.py", f"+++ b/src/tidepay/{noun}.py", f"@@ -{rng.randrange(9, 300)},9 @@"]
        lines += [rng.choice((" ", " ", "+", "-")) + line for line in _fill(rng, piece, noun).strip().splitlines()]
    return "\n".join(lines)


def yaml(rng: Random, noun: str) -> str:
    """A configuration."""
    lines = [f"# {noun}: {rng.choice(REASONS)}", f"name: {noun}", "spec:"]
    for area in rng.sample(AREAS, k=8):
        lines += [
            f"  {area}:",
            f"    replicas: {rng.randrange(1, 12)}",
            f"    timeoutSeconds: {rng.randrange(5, 120)}",
            f"    resources: {{cpu: {rng.randrange(1, 8) * 250}m, memory: {rng.randrange(1, 8) * 256}Mi}}",
            f"    note: {rng.choice(REASONS)}",
        ]
    return "\n".join(lines)


def pods(rng: Random, noun: str) -> str:
    """What runs."""
    lines = [f"{'NAME':<34} READY  STATUS   RESTARTS  AGE   NODE"]
    for _ in range(14):
        name = f"{noun}-{_hex(rng, 9)}-{_hex(rng, 5)}"
        state = rng.choices(("Running", "Pending"), weights=(12, 1))[0]
        lines.append(
            f"{name:<34} 1/1    {state}  {rng.randrange(3)}         {rng.randrange(1, 72)}h"
            f"   node-{rng.randrange(1, 19):02d}"
        )
    return "\n".join(lines)


def metrics(rng: Random, noun: str) -> str:
    """A series over time."""
    labels = [f'{noun}{{area="{area}"}}' for area in rng.sample(AREAS, k=3)]
    lines = []
    for label in labels:
        level = rng.uniform(0.5, 300)
        lines += [f"{label} {_clock(rng)} {level * rng.uniform(0.7, 1.4):.3f}" for _ in range(12)]
    return "\n".join(lines)


def tree(rng: Random, noun: str) -> str:
    """A folder, listed."""
    lines = [f"{noun}:"]
    for area in AREAS:
        cases = rng.sample(CASES, k=4)
        lines += [f"{noun}/{area}:", *(f"{rng.randrange(300, 90_000):>8}  {case}.py" for case in cases)]
    return "\n".join(lines)


def prose(rng: Random, noun: str) -> str:
    """A page of documentation."""
    lines = [f"# {noun.capitalize()}", ""]
    for template in rng.sample(COMMITS, k=9):
        owner = rng.choice(PEOPLE).split()[0]
        lines += [f"- {_fill(rng, template, noun)}. {owner} looks after it, {rng.choice(REASONS)}.", ""]
    return "\n".join(lines)


def answer(rng: Random, noun: str) -> str:
    """An answer in JSON."""
    checks = {area: {"ok": True, "ms": rng.randrange(1, 90), "build": _hex(rng, 7)} for area in AREAS}
    return json.dumps({"name": noun, "status": "ok", "checks": checks}, indent=1)


def table(rng: Random, noun: str) -> str:
    """Lines of a CSV file."""
    lines = [f"{noun}_id,account,currency,amount,reference"]
    for _ in range(30):
        account = f"{rng.randrange(1000, 9999)}-{rng.choice(AREAS)}"
        lines.append(
            f"{rng.randrange(10**6)},{account},{rng.choice(_CURRENCIES)},{_amount(rng)},{rng.choice(MERCHANTS)}"
        )
    return "\n".join(lines)


def fixed(rng: Random, noun: str) -> str:
    """Lines of a bank's file."""
    lines = [f"01{noun.upper():<20}2026022700001"]
    for number in range(18):
        name = rng.choice(MERCHANTS[:2])
        lines.append(f"05{number:08d}{rng.randrange(10**9):014d}{rng.choice(_CURRENCIES)}{name:<35}")
    return "\n".join([*lines, f"99{18:08d}{rng.randrange(10**9):014d}"])


def mypy(rng: Random, noun: str) -> str:
    """What the type checker says."""
    lines = []
    for case in rng.sample(CASES, k=14):
        place = f"src/{noun}/{rng.choice(AREAS)}/{rng.choice(('api', 'run'))}.py:{rng.randrange(9, 300)}"
        lines.append(f'{place}: error: Argument "{case}" has incompatible type "object"; expected "Money"  [arg-type]')
    return "\n".join(lines)


def edited(rng: Random, noun: str) -> str:
    """What an edit says."""
    start = rng.randrange(10, 300)
    piece = _fill(rng, rng.choice(FUNCTIONS), noun).strip().splitlines()[:6]
    lines = [f"{start + offset:>5}  {line}" for offset, line in enumerate(piece)]
    return "\n".join(["The file was changed. Around the change it reads:", *lines])


def applied(rng: Random, noun: str) -> str:
    """What a deploy says."""
    steps = [f"[{number}/5] {rng.choice(AREAS)}/{noun}: ok ({rng.randrange(1, 40)} s)" for number in range(1, 6)]
    return "\n".join([*steps, f"done, revision {_hex(rng, 10)}"])


def migration(rng: Random, noun: str) -> str:
    """What the migration tool says."""
    return f"Generating migrations/versions/{_hex(rng, 4)}_{noun}.py ... done"


def sql_file(rng: Random, noun: str) -> str:
    """A migration."""
    lines = [f'revision = "{_hex(rng, 12)}"', f'down_revision = "{_hex(rng, 12)}"', "", "def upgrade() -> None:"]
    lines += [
        f'    op.execute("alter table {noun} add column if not exists {case} text")' for case in rng.sample(CASES, k=6)
    ]
    back = ["def downgrade() -> None:", f"    raise NotImplementedError  # {rng.choice(REASONS)}"]
    return "\n".join([*lines, "", *back])


MAKERS: Final[dict[str, Maker]] = {
    "applied": applied,
    "code": code,
    "commits": commits,
    "csv": table,
    "ddl": ddl,
    "diff": diff,
    "edited": edited,
    "explain": explain,
    "fixed": fixed,
    "grep": grep,
    "json": answer,
    "logs": logs,
    "metrics": metrics,
    "migration": migration,
    "mypy": mypy,
    "pods": pods,
    "prose": prose,
    "rows": rows,
    "ruby": ruby,
    "sqlfile": sql_file,
    "testcode": test_code,
    "tests": tests,
    "trace": trace,
    "tree": tree,
    "yaml": yaml,
}
"""Each kind of output by the name that the story uses."""


def said(output: str, lines: Sequence[str], rng: Random) -> str:
    """An output with the lines that the story asks for, somewhere in it."""
    if not lines:
        return output
    made = output.splitlines()
    place = rng.randrange(len(made) // 2, len(made))
    return "\n".join([*made[:place], *lines, *made[place:]])
