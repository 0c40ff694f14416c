"""Whether a short question is answered that follows a long message about something else.

All text is generated with a fixed seed: 20 facts, English and Chinese, among messages like the long one. A question of
so few words is read together with the message before it, which must not take its place.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from benchmarks.archive_rows import make_rows
from benchmarks.recall import embed_all
from holdfast.embed.base import Embedder
from holdfast.memory.query import RecallQuery, select_texts
from holdfast.memory.recall import recall
from holdfast.messages import Message, Text
from holdfast.store.base import Scope
from holdfast.store.sqlite import SqliteStore

__all__ = ["FACTS", "make_long", "measure"]

_SCOPE: Final = Scope(session="followups")

FACTS: Final = (
    ("By the way, Halvorsen got an amber badge last week.", "Halvorsen's badge?", "amber"),
    ("Kowalski sits in room 418 from now on.", "Which room, Kowalski?", "418"),
    ("The kiln is fired on Thursdays only.", "When's the kiln fired?", "Thursdays"),
    ("Our locksmith is Ferreira, she also has the spare keys.", "Who's our locksmith?", "Ferreira"),
    ("The heron cam streams on port 8554.", "Heron cam port?", "8554"),
    ("I parked the trailer behind the old dairy.", "Where's the trailer?", "dairy"),
    ("Oksana is allergic to cashews.", "Oksana's allergy?", "cashews"),
    ("Dinner with the Lindqvists is on the 23rd.", "Lindqvist dinner?", "23rd"),
    ("The greenhouse thermostat stays at 17 degrees.", "Greenhouse thermostat?", "17"),
    ("My passport is in the blue tin on the shelf.", "And my passport?", "blue tin"),
    ("The sailing club moved its mooring to pier 6.", "Which mooring?", "pier 6"),
    ("Tanaka prefers the harpsichord recording of 1982.", "Tanaka's recording?", "1982"),
    ("顺便说一下，李婉清的工牌是琥珀色的。", "李婉清的工牌？", "琥珀色"),
    ("窑炉只在星期四点火。", "窑炉哪天点火？", "星期四"),
    ("温室的恒温器设在十七度。", "温室恒温器？", "十七度"),
    ("我的护照放在架子上的蓝色铁盒里。", "护照呢？", "蓝色铁盒"),
    ("吴启航对腰果过敏。", "吴启航过敏？", "腰果"),
    ("备用钥匙在锁匠费雷拉那里。", "备用钥匙？", "费雷拉"),
    ("帆船俱乐部搬到了六号码头。", "帆船俱乐部？", "六号码头"),
    ("周明远的婚礼定在二十三号。", "周明远婚礼？", "二十三号"),
)
"""What was said, what is asked, and the words that answer."""

_PARTS: Final = ("invoice export", "search index", "login page", "mail queue", "price table", "backup job", "import")
_DEEDS: Final = ("rewrite", "measure", "postpone", "split", "document", "test again", "review with the team")
_WHY: Final = ("the customers wait for it", "the old one is slow", "nobody knows how it works", "it failed in March")
_CHINESE_PARTS: Final = ("发票导出", "搜索索引", "登录页面", "邮件队列", "价格表", "备份任务", "数据导入")
_CHINESE_DEEDS: Final = ("重写", "测量", "推迟", "拆分", "补文档", "再测一遍", "和团队评审")


def make_long(chance: Random, *, chinese: bool, sentences: int = 40) -> str:
    """Write a long message about plans."""
    texts: list[str] = []
    for _ in range(sentences):
        if chinese:
            part, deed = chance.choice(_CHINESE_PARTS), chance.choice(_CHINESE_DEEDS)
            texts.append(f"关于{part}，我们应该先{deed}，第{chance.randint(2, 9)}周之前完成，因为客户在等。")
        else:
            part, deed, why = chance.choice(_PARTS), chance.choice(_DEEDS), chance.choice(_WHY)
            texts.append(f"As for the {part}, we should {deed} it before week {chance.randint(2, 50)}, because {why}.")
    return " ".join(texts)


def measure(*, messages: int, embedder: Embedder | None, seed: int = 1) -> dict[str, Any]:
    """Ask every question alone and after a long message, with vectors and by words alone."""
    chance = Random(seed)  # noqa: S311 - nothing secret
    said = [make_long(chance, chinese=number % 3 == 2, sentences=6) for number in range(messages)]
    for number, (statement, _, _) in enumerate(FACTS):
        said.insert((number + 1) * len(said) // (len(FACTS) + 1), statement)
    longs = [make_long(chance, chinese=not question.isascii()) for _, question, _ in FACTS]
    with tempfile.TemporaryDirectory() as folder, SqliteStore(Path(folder) / "bench.db") as store:
        store.add_messages(make_rows([Message(role="user", parts=(Text(text=text),)) for text in said], scope=_SCOPE))
        if embedder is not None:
            embed_all(store, embedder)

        def ask(before: Sequence[str], used: Embedder | None) -> dict[str, Any]:
            blocks = []
            for number, (_, question, _) in enumerate(FACTS):
                texts = select_texts((question, *before[number : number + 1]), max_texts=3)
                blocks.append(recall(store, RecallQuery(texts=texts, scope=_SCOPE), embedder=used))
            missed = [fact[1] for fact, found in zip(FACTS, blocks, strict=True) if fact[2] not in found.block]
            tokens = sum(found.tokens for found in blocks) / len(blocks)
            return {"answered": len(FACTS) - len(missed), "tokens": round(tokens, 1), "missed": ", ".join(missed)}

        systems = {"words": ask((), None), "words, after a long message": ask(longs, None)}
        if embedder is not None:
            systems |= {"vectors": ask((), embedder), "vectors, after a long message": ask(longs, embedder)}
    return {"facts": len(FACTS), "messages": len(said), "systems": systems}
