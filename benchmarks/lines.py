"""How many facts are recalled that are one line of a long log, table, code or diff.

All text is generated with a fixed seed: 60 facts in ten formats, English and Chinese, each in the middle of a message
of about 5,000 characters of lines of the same format, among messages without one. A plain question is asked about each.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

from benchmarks.archive_rows import make_rows
from benchmarks.recall import embed_all
from holdfast.embed.base import Embedder
from holdfast.memory.query import RecallQuery
from holdfast.memory.recall import recall
from holdfast.messages import Message, Text
from holdfast.store.base import Scope
from holdfast.store.sqlite import SqliteStore

__all__ = ["Fact", "make_facts", "make_messages", "measure"]

LONG: Final = 5_000
SHORT: Final = 800
_SCOPE: Final = Scope(session="lines")

Line: TypeAlias = Callable[[Random], str]


@dataclass(frozen=True, slots=True)
class Fact:
    """A line, what is asked about it, the words that answer, and what the lines around it look like."""

    line: str
    question: str
    answer: str
    around: Line


_PARTS: Final = ("worker", "pool", "shard", "cache", "batch", "socket", "tenant", "queue", "index", "upload", "session")
_ACTIONS: Final = ("started", "finished", "retried", "skipped", "accepted", "rejected", "flushed", "closed", "expired")
_CHINESE_PARTS: Final = ("任务", "连接", "缓存", "分片", "请求", "队列", "索引", "会话", "工单", "租户", "上传", "节点")
_CHINESE_ACTIONS: Final = ("已启动", "已完成", "重试", "跳过", "已接受", "被拒绝", "已刷新", "已关闭", "超时")
_SERVICES: Final = ("billing-gateway", "ledger-sync", "avatar-store", "harbour-api", "mail-relay", "price-feed")
_PEOPLE: Final = ("Halvorsen", "Kowalski", "Okafor", "Lindqvist", "Moreau", "Tanaka")
_CHINESE_SERVICES: Final = ("结算网关", "账本同步", "头像存储", "港口接口", "邮件中转", "行情推送")
_CHINESE_PEOPLE: Final = ("李婉清", "周明远", "陈立群", "赵思齐", "孙雅文", "吴启航")


def _stamp(chance: Random) -> str:
    return f"2026-03-{chance.randint(1, 28):02d}T{chance.randint(0, 23):02d}:{chance.randint(0, 59):02d}:07Z"


def _log(chance: Random) -> str:
    part, action = chance.choice(_PARTS), chance.choice(_ACTIONS)
    return f"{_stamp(chance)} INFO  [{part}-{chance.randint(1, 40)}] {part} {chance.randint(100, 99999)} {action}"


def _json_log(chance: Random) -> str:
    part, action = chance.choice(_PARTS), chance.choice(_ACTIONS)
    return (
        f'{{"ts":"{_stamp(chance)}","level":"info","part":"{part}","event":"{action}","ms":{chance.randint(1, 900)}}}'
    )


def _code(chance: Random) -> str:
    part, action = chance.choice(_PARTS), chance.choice(_ACTIONS)
    return chance.choice(
        (
            f"    def {action}_{part}(self, {part}_id: int) -> None:",
            f"        self._{part}s[{part}_id] = {part.title()}({chance.randint(1, 99)})",
            f"        if {part}.state != State.{action.upper()}:",
        )
    )


def _diff(chance: Random) -> str:
    return chance.choice("+- ") + _code(chance)


def _row(chance: Random) -> str:
    part, action = chance.choice(_PARTS), chance.choice(_ACTIONS)
    return f"{part}-{chance.randint(1, 999)},{action},{chance.random() * 90:.2f},{_stamp(chance)[:10]}"


def _test(chance: Random) -> str:
    part, action = chance.choice(_PARTS), chance.choice(_ACTIONS)
    return f"tests/test_{part}.py::test_{part}_{action} PASSED [{chance.randint(1, 99):>3}%]"


def _chinese_log(chance: Random) -> str:
    about = f"[{chance.randint(1, 40)}] {chance.choice(_CHINESE_PARTS)} {chance.randint(100, 99999)}"
    return f"{_stamp(chance)} 信息 {about} {chance.choice(_CHINESE_ACTIONS)}, 耗时 {chance.randint(1, 900)} 毫秒"


def _chinese_table(chance: Random) -> str:
    part, action = chance.choice(_CHINESE_PARTS), chance.choice(_CHINESE_ACTIONS)
    return f"| {part} | {chance.randint(1, 9999)} | {action} | {chance.randint(1, 99)}% |"


def _chinese_config(chance: Random) -> str:
    part, about = chance.choice(_PARTS), chance.choice(_CHINESE_PARTS)
    return f"  {part}_{chance.randint(1, 99)}: {chance.randint(1, 900)}  # {about}"


def make_facts(*, seed: int = 1) -> list[Fact]:
    """Make 60 facts, six in each of ten formats."""
    chance = Random(seed)  # noqa: S311 - text for a benchmark
    return [fact for number in range(len(_SERVICES)) for fact in _make_facts(number, chance)]


def _make_facts(place: int, chance: Random) -> Iterator[Fact]:
    """Yield one fact of each format."""
    name, person = _SERVICES[place], _PEOPLE[place]
    port, hours, limit, seconds = (str(chance.randint(2_000, 9_900)) for _ in range(4))
    day = f"2027-{chance.randint(1, 12):02d}-{chance.randint(1, 28):02d}"
    part = _PARTS[place]
    yield Fact(f"{_stamp(chance)} WARN  {name} now listens on port {port}", f"Which port does {name} use?", port, _log)
    yield Fact(
        f'{{"ts":"{_stamp(chance)}","level":"warn","certificate":"{name}","event":"expires","on":"{day}"}}',
        f"When does the certificate of {name} expire?",
        day,
        _json_log,
    )
    yield Fact(
        f"MAX_{name.upper().replace('-', '_')}_RETRIES = {limit}",
        f"How many retries may {name} make at most?",
        limit,
        _code,
    )
    yield Fact(
        f"+  timeout_seconds: {seconds}  # webhook of {name}",
        f"What is the timeout of the {name} webhook?",
        seconds,
        _diff,
    )
    yield Fact(f"contact-{name},{person},on call,{day}", f"Who is on call as the contact for {name}?", person, _row)
    yield Fact(
        f"tests/test_{part}.py::test_rounding_of_{name.replace('-', '_')} FAILED: {hours} != 10.49",
        f"What did the rounding test of {name} get instead of 10.49?",
        hours,
        _test,
    )
    name, person = _CHINESE_SERVICES[place], _CHINESE_PEOPLE[place]
    port, limit, minutes = (str(chance.randint(2_000, 9_900)) for _ in range(3))
    yield Fact(f"{_stamp(chance)} 警告 {name}改用端口 {port}", f"{name}现在用哪个端口?", port, _chinese_log)
    yield Fact(f"| {name}负责人 | {person} | 值班 | 1 |", f"{name}的负责人是谁?", person, _chinese_table)
    yield Fact(f"  retries: {limit}  # {name}的重试上限", f"{name}的重试上限是多少?", limit, _chinese_config)
    yield Fact(
        f"{_stamp(chance)} 信息 {name}的备份保留 {minutes} 小时", f"{name}的备份保留多少小时?", minutes, _chinese_log
    )


def make_messages(facts: Sequence[Fact], *, messages: int, seed: int = 1) -> list[str]:
    """Make so many messages, with the facts evenly among them; those without one are shorter."""
    chance = Random(seed)  # noqa: S311 - text for a benchmark
    places = {number * messages // len(facts): fact for number, fact in enumerate(facts)}
    kinds = list(dict.fromkeys(fact.around for fact in facts))
    return [_write(places.get(number), chance.choice(kinds), chance) for number in range(messages)]


def _write(fact: Fact | None, around: Line, chance: Random) -> str:
    size, line = (SHORT, around) if fact is None else (LONG, fact.around)
    found: list[str] = []
    held = 0
    while held < size:
        found.append(line(chance))
        held += len(found[-1]) + 1
    if fact is not None:
        found.insert(len(found) // 2, fact.line)
    return "\n".join(found)


def measure(*, messages: int, embedder: Embedder | None, seed: int = 1) -> dict[str, Any]:
    """Count the facts whose answer is in the block, with vectors and by words alone; and the mean size of a block."""
    facts = make_facts(seed=seed)
    texts = make_messages(facts, messages=messages, seed=seed)
    said = [Message(role="user", parts=(Text(text=text),), timestamp=number) for number, text in enumerate(texts, 1)]
    found: dict[str, Any] = {"facts": len(facts), "messages": messages, "systems": {}, "missed": {}}
    with tempfile.TemporaryDirectory() as folder, SqliteStore(Path(folder) / "bench.db") as store:
        store.add_messages(make_rows(said, scope=_SCOPE))
        if embedder is not None:
            embed_all(store, embedder)
        for name, vectors in {"with vectors": embedder, "by words": None}.items():
            answers = [
                recall(store, RecallQuery(texts=(fact.question,), scope=_SCOPE), embedder=vectors) for fact in facts
            ]
            missed = [
                fact.question for fact, answer in zip(facts, answers, strict=True) if fact.answer not in answer.block
            ]
            tokens = round(sum(answer.tokens for answer in answers) / len(answers), 1)
            found["systems"][name] = {"found": len(facts) - len(missed), "of": len(facts), "tokens": tokens}
            found["missed"][name] = missed
    return found
