"""What the invented outputs are made of: names, reasons, and pieces of code with a gap for their subject."""

from __future__ import annotations

from typing import Final

__all__ = ["AREAS", "CASES", "COMMITS", "ERRORS", "EVENTS", "FUNCTIONS", "HEAD", "MERCHANTS", "PEOPLE", "REASONS"]

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
