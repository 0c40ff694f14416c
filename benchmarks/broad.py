"""How many of the facts on a subject are in the block of a question that asks for all of them.

25 facts about 5 subjects are stated once each: over five sessions of a project, and in one long session. The first
session has many messages that name a subject and say nothing about it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.other_words import make_tool_loop
from holdfast import Engine
from holdfast.settings import Archive, Settings

__all__ = ["QUESTIONS", "SUBJECTS", "measure"]

SUBJECTS: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "payment service": (
        ("The payment service listens on port 8461.", "8461"),
        ("Priya Raman owns the payment service.", "Priya Raman"),
        ("The payment service is written in Kotlin.", "Kotlin"),
        ("We retry a charge of the payment service four times.", "four times"),
        ("The payment service stores its state in CockroachDB.", "CockroachDB"),
    ),
    "customer portal": (
        ("Logins of the customer portal expire after 21 days.", "21 days"),
        ("The customer portal is hosted in Frankfurt.", "Frankfurt"),
        ("The customer portal uses Keycloak for accounts.", "Keycloak"),
        ("The beta of the customer portal starts on 4 March.", "4 March"),
        ("Freja Lund translates the customer portal.", "Freja Lund"),
    ),
    "billing export": (
        ("The billing export is a CSV with semicolons.", "semicolons"),
        ("The billing export runs at 02:35 UTC.", "02:35"),
        ("Marit Solheim checks the billing export.", "Marit Solheim"),
        ("The billing export goes to the bucket tern-bills.", "tern-bills"),
        ("The billing export keeps files for 45 days.", "45 days"),
    ),
    "订单服务": (
        ("订单服务部署在上海机房。", "上海机房"),
        ("订单服务的负责人是林晓彤。", "林晓彤"),
        ("订单服务用的消息队列是 RocketMQ。", "RocketMQ"),
        ("订单服务每天凌晨三点备份。", "凌晨三点"),
        ("订单服务的限流是每分钟六百次。", "六百次"),
    ),
    "検索基盤": (
        ("検索基盤は Typesense を使っています。", "Typesense"),
        ("検索基盤の担当は佐藤さんです。", "佐藤"),
        ("検索基盤のノードは三台です。", "三台"),
        ("検索基盤の索引は毎週日曜日に作り直します。", "日曜日"),
        ("検索基盤は大阪で動いています。", "大阪"),
    ),
}
QUESTIONS: Final[Mapping[str, Sequence[str]]] = {
    "payment service": ("Tell me everything about the payment service", "What do we know about the payment service?"),
    "customer portal": ("Tell me everything about the customer portal.", "Give me an overview of the customer portal"),
    "billing export": (
        "Summarize all that we said about the billing export",
        "What do you remember about the billing export?",
    ),
    "订单服务": ("关于订单服务我们都知道些什么？", "总结一下关于订单服务的所有内容"),
    "検索基盤": ("検索基盤について知っていることを教えて", "検索基盤についてすべて教えてください"),
}
_TASKS: Final = 30
"""Messages of the first session that name a subject and say nothing about it."""
_SESSIONS: Final = 5
_SMALL_CAP: Final = 600
_LIMIT: Final = 16_000


def measure() -> dict[str, Any]:
    """Ask for every subject in two ways, and count the facts in the blocks."""
    systems: dict[str, Any] = {}
    for name, sessions in (("five sessions", _SESSIONS), ("one session", 1)):
        for cap in (None, _SMALL_CAP):
            systems[name if cap is None else f"{name}, {cap} tokens"] = _ask(sessions=sessions, cap=cap)
    return {"systems": systems}


def _ask(*, sessions: int, cap: int | None) -> dict[str, Any]:
    stated: list[list[str]] = [[] for _ in range(sessions)]
    for subject, facts in SUBJECTS.items():
        for number, (text, _) in enumerate(facts):
            stated[number % sessions].append(text)
        stated[0] += [f"Run step {number} of the plan for {subject}." for number in range(_TASKS)]
    settings = Settings(archive=Archive(cross_session=sessions > 1))
    found: list[int] = [0, 0]
    tokens = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        Engine.open(Path(folder), settings=settings, background=False) as engine,
    ):
        for number, texts in enumerate(stated):
            history = make_tool_loop(texts, turns=2 * len(texts) + 10, seed=number + 1)
            engine.session(f"s{number}").assemble(history, limit=_LIMIT, recall=False)
        engine.work()
        for subject, questions in QUESTIONS.items():
            for way, question in enumerate(questions):
                recall = engine.session(f"s{sessions - 1}").recall(question, cap=cap)
                found[way] += sum(answer in recall.block for _, answer in SUBJECTS[subject])
                tokens += recall.tokens
    return {"facts": 25, "first question": found[0], "second question": found[1], "tokens": tokens / 10}
