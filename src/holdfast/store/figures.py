"""Numbers of messages and turns that are added up in SQL: reported usage, tokens sent and saved, cuts, recalls, times.

The tables `usage` and `turns` are derived from messages and records. `update` reads the rows that are new since the
last call: nothing is written while a request is made, and a store of an earlier version, a copy or a repaired one has
its figures after the first calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.index.database import Database
from holdfast.index.scopes import scope_condition
from holdfast.messages import Usage
from holdfast.store.base import Grouping, Period, Scope, TurnFigures, TurnSum, UsageSum
from holdfast.store.codec import DAMAGE, clamp_time, decode_message, unpack_json
from holdfast.store.rows import Tables

TURN: Final = "turn"
"""The kind of the records that hold the reports of past turns."""
REPLY: Final = "reply"
"""The kind of the records about the replies to turns, by the key of the turn."""
CUTS: Final = frozenset({"trimmed", "compacted"})
"""The kinds of changes that remove messages from a window."""
STEPS: Final = {"quarter": 900_000, "hour": 3_600_000}
"""Milliseconds that are added up together."""
_BATCH: Final = 2_000
"""Rows that are read at a time."""
_MAX_NUMBER: Final = 2**40
_MAX_MODEL_CHARS: Final = 200
_ALL: Final = 2**62

# --- keeping them up to date --------------------------------------------------------------


def update(db: Tables) -> bool:
    """Add the figures of the next rows that are new; return whether there may be more.

    On a server, of one tenant. The caller has a write transaction.
    """
    has_more = _add_usage(db)
    return _add_turns(db) or has_more


def is_current(db: Tables) -> bool:
    """Return whether all rows were read."""
    for table, name in (("messages", "usage"), ("records", "turns")):
        (last,) = db.execute(f"SELECT coalesce(max(id), 0) FROM {table} WHERE {db.own}true").fetchone()
        if last > _read_mark(db, name):
            return False
    return True


def _read_mark(db: Database, name: str) -> int:
    found = db.execute(f"SELECT value FROM counters WHERE {db.own}name = ?", (name,)).fetchone()
    return 0 if found is None else int(found[0])


def _set_mark(db: Database, name: str, last: int) -> None:
    if _read_mark(db, name):
        db.execute(f"UPDATE counters SET value = ? WHERE {db.own}name = ?", (last, name))
    else:
        db.insert("counters", "name, value", [(name, last)])


def _add_usage(db: Database) -> bool:
    mark = _read_mark(db, "usage")
    query = f"SELECT id, scope, body FROM messages WHERE {db.own}id > ? ORDER BY id LIMIT ?"
    found = db.execute(query, (mark, _BATCH)).fetchall()
    rows: list[tuple[object, ...]] = []
    for number, scope, body in found:
        try:
            message = decode_message(body)
        except DAMAGE:  # whoever reads the message finds out
            continue
        usage = message.usage
        if usage is None or not usage.context:
            continue
        counts = (usage.input, usage.output, usage.cache_read, usage.cache_write)
        time = clamp_time(message.timestamp or 0)
        rows.append((number, scope, time, _clean(message.model or ""), *map(_clamp, counts)))
    db.insert("usage", "message, scope, time, model, input, output, cache_read, cache_write", rows)
    if found:
        _set_mark(db, "usage", found[-1][0])
    return len(found) == _BATCH


def _add_turns(db: Database) -> bool:
    mark = _read_mark(db, "turns")
    query = f"SELECT id, scope, kind, key, time, data FROM records WHERE {db.own}id > ? ORDER BY id LIMIT ?"
    found = db.execute(query, (mark, _BATCH)).fetchall()
    for number, scope, kind, key, time, data in found:
        if kind not in {TURN, REPLY}:
            continue
        try:
            fields = unpack_json(data)
            if kind == TURN:
                _add_turn(db, number, scope, time, fields)
            else:
                _add_reply(db, scope, key, fields)
        except DAMAGE:  # as above
            continue
    if found:
        _set_mark(db, "turns", found[-1][0])
    return len(found) == _BATCH


def _add_turn(db: Database, number: int, scope: int, time: int, report: Mapping[str, Any]) -> None:
    """Add a turn by its report, as `ContextReport.to_json` writes it. Older reports lack some of the fields."""
    kinds = {change["kind"] for change in report["changes"]}
    sent = _clamp(report["total_tokens"])
    whole = _clamp(report.get("whole_tokens", 0))
    question = _clamp(report.get("user_message", 0))
    saved = 0
    if whole:
        saved = whole - sent
    row = (
        number,
        scope,
        time,
        _clamp(report["turn"]),
        question,
        sent,
        saved,
        int(not CUTS.isdisjoint(kinds)),
        int("recalled" in kinds),
        0,
        int(report.get("failures", 0) > 0),
        _clamp(1000 * sum(report["milliseconds"].values())),
    )
    columns = "record, scope, time, turn, question, sent, saved, cut, recalled, followed, failed, microseconds"
    db.insert("turns", columns, [row])
    if report.get("lookups", 0) and question:
        mark = f"UPDATE turns SET followed = recalled WHERE {db.own}scope = ? AND question = ?"
        db.execute(mark, (scope, question))


def _add_reply(db: Database, scope: int, key: str, reply: Mapping[str, Any]) -> None:
    """Add what a record says about the reply to a turn."""
    milliseconds = reply.get("milliseconds")
    values = (
        _clamp(reply.get("message", 0)),
        int(milliseconds is not None),
        _clamp(milliseconds or 0),
        int(bool(reply.get("error"))),
    )
    turn = f"SELECT id FROM records WHERE {db.own}scope = ? AND kind = ? AND key = ?"
    found = db.execute(turn, (scope, TURN, key)).fetchone()
    if found is not None:
        change = f"UPDATE turns SET reply = ?, timed = ?, milliseconds = ?, refused = ? WHERE {db.own}record = ?"
        db.execute(change, (*values, found[0]))


def _clamp(number: float) -> int:
    """Return a number that every column can hold, and that can be added up."""
    return int(max(0, min(number, _MAX_NUMBER)))


def _clean(model: str) -> str:
    """Return the name of a model as text that every database can hold."""
    return model[:_MAX_MODEL_CHARS].replace("\0", "").encode(errors="replace").decode()


def remove(db: Database, kind: str, numbers: Sequence[int]) -> None:
    """Remove the figures of messages or records that are forgotten."""
    table, column = {"message": ("usage", "message"), "record": ("turns", "record")}[kind]
    db.executemany(f"DELETE FROM {table} WHERE {db.own}{column} = ?", [(number,) for number in numbers])


# --- adding up ----------------------------------------------------------------------------


def sum_usage(db: Tables, period: Period) -> list[UsageSum]:
    """Add up reported usage by model, and by session or time."""
    columns = "count(*), sum(input), sum(output), sum(cache_read), sum(cache_write)"
    found = _sum(db, "usage", f"model, {columns}", period, more=["model"])
    sums: list[UsageSum] = []
    for owner, start, model, replies, *counts in found:
        usage = Usage(
            input=int(counts[0]), output=int(counts[1]), cache_read=int(counts[2]), cache_write=int(counts[3])
        )
        sums.append(UsageSum(**_name(db, owner, start, by=period.by), model=model, replies=int(replies), usage=usage))
    return sums


def sum_turns(db: Tables, period: Period) -> list[TurnSum]:
    """Add up turns by session or time."""
    names = (
        "sent",
        "saved",
        "cut",
        "recalled",
        "followed",
        "failed",
        "refused",
        "microseconds",
        "timed",
        "milliseconds",
    )
    columns = ", ".join(f"sum({name})" for name in names)
    found = _sum(db, "turns", f"count(*), max(time), {columns}", period)
    sums: list[TurnSum] = []
    for owner, start, turns, last, *values in found:
        if not turns:  # the sum of nothing at all
            continue
        sent, saved, cuts, recalls, followed, failures, refusals, microseconds, replies, replying = map(int, values)
        sums.append(
            TurnSum(
                **_name(db, owner, start, by=period.by),
                turns=int(turns),
                last_time=int(last),
                sent=sent,
                saved=saved,
                cuts=cuts,
                recalls=recalls,
                followed=followed,
                failures=failures,
                refusals=refusals,
                assembling=microseconds / 1000,
                replies=replies,
                replying=replying,
            )
        )
    return sums


def read_turns(db: Tables, scope: Scope, *, first: int, last: int) -> list[TurnFigures]:
    """Read the figures of turns of a session, in order, with the usage that their replies reported."""
    condition, values = scope_condition(db, scope.required(()))
    # Of two processes at the same turn, the newest comes last.
    query = (
        "SELECT turn, turns.time, sent, saved, cut, recalled, followed, failed, refused, microseconds, timed,"
        " milliseconds, model, input, output, cache_read, cache_write"
        f" FROM turns LEFT JOIN usage ON {_join(db)}"
        f" WHERE {db.own.replace('tenant', 'turns.tenant')}turns.scope = (SELECT id FROM scopes WHERE {condition})"
        " AND turn >= ? AND turn <= ? ORDER BY turn, record"
    )
    found: list[TurnFigures] = []
    for row in db.execute(query, (*values, first, last)).fetchall():
        numbers = [int(number) for number in row[:12]]
        usage = None
        if row[12] is not None:
            sent, received, cache_read, cache_write = map(int, row[13:])
            usage = Usage(input=sent, output=received, cache_read=cache_read, cache_write=cache_write)
        found.append(
            TurnFigures(
                turn=numbers[0],
                time=numbers[1],
                sent=numbers[2],
                saved=numbers[3],
                is_cut=bool(numbers[4]),
                is_recalled=bool(numbers[5]),
                is_followed=bool(numbers[6]),
                is_failed=bool(numbers[7]),
                is_refused=bool(numbers[8]),
                assembling=numbers[9] / 1000,
                replying=numbers[11] if numbers[10] else None,
                model=row[12] or "",
                usage=usage,
            )
        )
    return found


def _join(db: Database) -> str:
    """Return the condition that a row of `usage` is about the reply to a turn."""
    condition = "usage.message = turns.reply"
    if db.own:
        condition += " AND usage.tenant = turns.tenant"
    return condition


def _sum(db: Tables, table: str, columns: str, period: Period, *, more: Sequence[str] = ()) -> list[Any]:
    """Return for each group the number of its scope, that of its time, and the sums; `more` columns divide it."""
    db.cache.scopes.load(db)
    groups: list[str] = []
    start = "0"
    owner = "-1"
    if period.by != "all":
        owner = "scope"
        groups.append(owner)
    if period.by in STEPS:
        start = f"time / {STEPS[period.by]}"
        groups.append(start)
    required = period.scope.required(period.across)
    condition = ""
    values: list[object] = []
    if required:
        clause, values = scope_condition(db, required)
        column = "scope"
        if "session" not in required:
            # The plus keeps SQLite from reading a whole table session by session: its index on times is the better one.
            column = "+scope"
        condition = f"{column} IN (SELECT id FROM scopes WHERE {clause}) AND "
    values.append(-_ALL if period.since is None else period.since)
    values.append(_ALL if period.until is None else period.until)
    query = f"SELECT {owner}, {start}, {columns} FROM {table} WHERE {db.own}{condition}time >= ? AND time < ?"
    groups += more
    if groups:
        query += f" GROUP BY {', '.join(groups)}"
    return db.execute(query, values).fetchall()


def _name(db: Tables, owner: int, start: int, *, by: Grouping) -> dict[str, Any]:
    """Return the fields of a sum that say what it is about."""
    scope: Scope | None = None
    if by != "all":
        scope = db.cache.scopes[owner]
    return {"scope": scope, "start": int(start) * STEPS.get(by, 0)}
