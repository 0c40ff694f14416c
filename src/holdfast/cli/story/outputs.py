"""Generate the tool output of the demo's session; the same seed makes the same output."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeAlias

__all__ = ["MAKERS", "Maker", "insert_lines"]

PEOPLE: Final = ("Ines Carvalho", "Jonah Whitlock", "Tomasz Gajda", "Priya Raman", "Wei Lan", "Aiko Brandt")
MERCHANTS: Final = (
    "Larkfield Books",
    "Copper Kettle",
    "海棠书店",
    "Velo Nord",
    "Birch & Bone",
    "青石茶行",
    "Atlas Optik",
    "Paper Lantern",
    "Mill Street Dental",
    "Sundog Cycles",
    "云杉户外",
    "Harrow Tools",
)
AREAS: Final = ("api", "jobs", "ledger", "payouts", "refunds", "settlement", "vault", "webhooks", "reconcile", "fees")
EVENTS: Final = (
    "payout.created",
    "payout.sent",
    "payout.settled",
    "refund.requested",
    "refund.accepted",
    "lease.renewed",
    "webhook.delivered",
    "ledger.posted",
    "key.matched",
    "file.read",
    "batch.closed",
    "limit.checked",
)
ERRORS: Final = (
    ("LookupError", "no account for merchant {id} in {currency}"),
    ("TimeoutError", "the bank did not answer within {small} s"),
    ("StateError", "a job in state {state} cannot be taken"),
    ("DecimalError", "{id} is not an amount in {currency}"),
    ("ConflictError", "key {hex} was used for another body"),
)
REASONS: Final = (
    "so that a retry finds the first answer",
    "because the bank rounds per line, not per file",
    "as finance reads it on paper",
    "or the cache keeps a stale rate",
    "since a pod may be replaced at any moment",
    "which harbor never did",
    "because two of them may arrive at once",
    "to keep the order of the ledger",
)
CASES: Final = (
    "empty_batch",
    "two_currencies",
    "closed_account",
    "late_file",
    "same_key_twice",
    "negative_fee",
    "clock_moves_back",
    "unknown_merchant",
    "large_amount",
    "zero_amount",
    "half_written_line",
    "retry_after_timeout",
    "partial_refund",
    "leap_day",
    "chinese_name",
    "trailing_blank",
    "missing_trailer",
    "limit_reached",
    "expired_lease",
    "second_worker",
    "rollback",
    "old_format",
    "long_reference",
    "many_small_lines",
)
COMMITS: Final = (
    "Read the {noun} once, {reason}",
    "Name the {noun} by what it holds",
    "Refuse a {noun} without a currency",
    "Test the {noun} with two workers",
    "Move the {noun} out of the handler",
    "Keep the order of every {noun}, {reason}",
    "Say which {noun} was meant in the error",
    "Drop the second copy of the {noun}",
    "Make the {noun} immutable",
    "Log less about each {noun}",
    "Take the clock as an argument in {noun}",
    "Document what a {noun} promises",
)

HEAD: Final = '''"""What tidepay knows of a {noun}."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal

from tidepay import db, errors, settings
from tidepay.money import Money

{NOUN}_LIMIT = {number}
{NOUN}_TTL = timedelta(minutes={small})


@dataclass(frozen=True, slots=True)
class {Noun}:
    """One {noun}, as the ledger sees it.

    It is never changed once it was posted, {reason}.
    """

    id: int
    merchant_id: int
    amount: Money
    state: str
    created_at: datetime
    reference: str = ""
'''

FUNCTIONS: Final = (
    '''
def load_{noun}(number: int) -> {Noun}:
    """The {noun} with this number, or an error that names it."""
    row = db.one("select * from {noun} where id = %s", number)
    if row is None:
        raise errors.Missing(f"{noun} {{number}} is not there; was it archived?")
    return {Noun}(**row)
''',
    '''
def open_{noun}s(*, merchant: int, limit: int = {NOUN}_LIMIT) -> Iterator[{Noun}]:
    """Those that still wait, oldest first, {reason}."""
    query = "select * from {noun} where merchant_id = %s and state = 'open' order by created_at, id limit %s"
    for row in db.many(query, merchant, limit):
        yield {Noun}(**row)
''',
    '''
def total(found: Iterable[{Noun}], *, currency: str) -> Money:
    """What they come to in one currency; others are an error, not a conversion."""
    amount = Decimal(0)
    for one in found:
        if one.amount.currency != currency:
            raise errors.CurrencyMismatch(one.amount.currency, currency)
        amount += one.amount.value
    return Money(amount.quantize(Decimal("0.01"), ROUND_HALF_EVEN), currency)
''',
    '''
def close_{noun}(one: {Noun}, *, now: datetime) -> bool:
    """Close it once; the second caller is told that it was too late, {reason}."""
    changed = db.execute(
        "update {noun} set state = 'closed', closed_at = %s where id = %s and state = 'open'", now, one.id
    )
    return changed == 1
''',
    '''
def expired(one: {Noun}, *, now: datetime) -> bool:
    """Tell whether its time is over. The clock comes in, {reason}."""
    return now - one.created_at > {NOUN}_TTL
''',
    '''
def retry_{noun}(one: {Noun}, *, tries: int) -> timedelta | None:
    """How long to wait before the next try; None where it should be held instead."""
    if tries >= {small}:
        return None
    delay = timedelta(seconds=2**tries)
    return min(delay, settings.{NOUN}_MAX_DELAY)
''',
    '''
def parse_{noun}(line: str) -> {Noun}:
    """Read one line of the bank's file; columns are counted from 1 in their manual, from 0 here."""
    try:
        number, amount = int(line[0:12]), Decimal(line[12:26].strip()) / 100
    except ValueError as error:
        raise errors.BadLine(line[:40]) from error
    currency, reference = line[26:29], line[29:64].rstrip()
    return {Noun}(number, int(line[64:74]), Money(amount, currency), "open", datetime.now(UTC), reference)
''',
    '''
def group_{noun}s(found: Iterable[{Noun}]) -> dict[tuple[int, str], list[{Noun}]]:
    """By merchant and currency, in the order they came, {reason}."""
    grouped: dict[tuple[int, str], list[{Noun}]] = {{}}
    for one in found:
        grouped.setdefault((one.merchant_id, one.amount.currency), []).append(one)
    return grouped
''',
    '''
def post_{noun}(one: {Noun}, *, debit: str, credit: str) -> int:
    """Book it on two accounts in one transaction; the number of the posting is returned."""
    with db.transaction() as tx:
        posting = tx.insert("posting", kind="{noun}", reference=one.reference, at=one.created_at)
        tx.insert("posting_line", posting_id=posting, account=debit, amount=one.amount.value)
        tx.insert("posting_line", posting_id=posting, account=credit, amount=-one.amount.value)
    return posting
''',
    '''
def explain_{noun}(one: {Noun}) -> str:
    """One sentence for the dashboard, {reason}."""
    if one.state == "held":
        return f"On hold since {{one.created_at:%d %b}}: the bank refused it {small} times."
    if one.state == "closed":
        return f"{{one.amount}} were sent on {{one.created_at:%d %b %Y}} with reference {{one.reference}}."
    return f"{{one.amount}} will be sent with the next batch."
''',
    '''
class {Noun}Store:
    """Where they rest. One for each process; the pool behind it is shared."""

    def __init__(self, pool: db.Pool, *, batch: int = {number}) -> None:
        self._pool = pool
        self._batch = batch

    def take(self, worker: str, *, now: datetime) -> list[{Noun}]:
        """Rows that nobody else has, marked with a lease."""
        with self._pool.transaction() as tx:
            query = "select * from {noun} where lease_until < %s for update skip locked limit %s"
            rows = tx.many(query, now, self._batch)
            tx.execute("update {noun} set worker = %s where id = any(%s)", worker, [row["id"] for row in rows])
        return [{Noun}(**row) for row in rows]
''',
)

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
"""The generator of each kind of output, by its name in the story."""


def insert_lines(output: str, lines: Sequence[str], rng: Random) -> str:
    """Insert the lines of the story into the second half of an output."""
    if not lines:
        return output
    printed = output.splitlines()
    place = rng.randrange(len(printed) // 2, len(printed))
    return "\n".join([*printed[:place], *lines, *printed[place:]])
