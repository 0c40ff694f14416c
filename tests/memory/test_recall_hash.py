"""Recall with hash vectors, which know no meaning: as many answers as by words alone."""

import json
from pathlib import Path
from random import Random

import pytest

from holdfast import Engine
from holdfast.settings import Embedding, Recall, Settings, load

SAID = (
    "周末我们带女儿去了西湖,她最喜欢断桥。",
    "新来的会计叫赵敏,下周一开始上班。",
    "打印机坏了,维修师傅说要等到星期四。",
    "生产库的主机搬到了成都机房,旧的那台已经下线。",
    "晚上吃了火锅,有点辣。",
    "合同编号改成了 HT-2207,请以后都用这个。",
)
QUESTIONS = {
    "新来的会计叫什么名字?": "赵敏",
    "打印机什么时候能修好?": "星期四",
    "生产库的主机现在在哪个机房?": "成都",
    "合同编号改成了多少?": "HT-2207",
}


@pytest.mark.parametrize("model", ["hash", "none"])
def test_chinese_questions_are_answered_with_hash_vectors(tmp_path: Path, model: str) -> None:
    """4 of 4, by the settings that an existing openclaw.json holds; a question about something else gets no block."""
    path = tmp_path / "openclaw.json"
    path.write_text(json.dumps({"agents": {"defaults": {"memoryContext": {"embeddingModel": model}}}}))
    settings = load(files=(path,), environ={}, recall={"deadline_ms": 600_000}).settings
    with Engine.open(tmp_path / "memory", settings=settings, background=False) as engine:
        engine.session("s").append([{"role": "user", "content": text} for text in SAID])
        engine.work()
        assert (engine._memory.embedder is None) == (model == "none")
        for question, answer in QUESTIONS.items():
            window = engine.session("s").assemble([{"role": "user", "content": question}], limit=200_000)
            assert answer in "".join(hit.text for hit in window.report.recalled)
            assert answer in engine.session("s").recall(question).block
        assert not engine.session("s").recall("鲸鱼怎么呼吸?").block


@pytest.mark.variants
@pytest.mark.parametrize(
    ("like", "cap"),
    [
        ("Migra tenan colum lon 00{} addte {} tenanco.", 450),
        ("Longish {} migrationals of {}: tenantry columnist takers.", 500),  # it has stems of the question
        ("Longish {} migrationals of {}: tenantry columnist takers.", 1_000),
    ],
)
def test_the_best_passage_by_words_is_quoted_though_it_takes_most_of_a_small_block(
    tmp_path: Path, like: str, cap: int
) -> None:
    """Japanese takes more tokens; what is like the question by its letters alone takes few."""
    seeded = Random(3)  # noqa: S311 - the same log every time
    words = ("注文", "在庫", "請求書", "利用者", "倉庫", "決済", "記録", "予約")
    log = [
        f"{n + 1}番：{''.join(seeded.choices(words, k=4))}の処理は完了しました、番号{seeded.randrange(10**5)}。"
        for n in range(40)
    ]
    log.insert(20, "0047_add_tenant_column: 3821 ms")
    parts = (
        "importer",
        "queue",
        "invoices",
        "login pages",
        "nightly report",
        "cache",
        "templates",
        "metrics",
        "shards",
        "budget",
    )
    said = list[str]()
    for n in range(150):
        said.append(like.format(n * 37, parts[n % 10]))
        said.append(f"Part {n * 91} of the {parts[n * 7 % 10]} is as last week.")
    settings = Settings(embedding=Embedding(provider="hash"), recall=Recall(deadline_ms=600_000))
    with Engine.open(tmp_path, settings=settings, background=False) as engine:
        session = engine.session("s")
        session.append(
            [
                {"role": "assistant" if number % 2 else "user", "content": text}
                for number, text in enumerate([*said, "Show the log.", "\n".join(log)])
            ]
        )
        engine.work()
        assert "3821 ms" in session.recall("How long did migration 0047_add_tenant_column take?", cap=cap).block
