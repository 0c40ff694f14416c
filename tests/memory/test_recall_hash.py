"""Chinese questions with the hash vectors of an existing openclaw.json: as many answers as by words alone."""

import json
from pathlib import Path

import pytest

from holdfast import Engine
from holdfast.settings import load

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
    settings = load(files=(path,), environ={}, recall={"deadline_ms": 60_000}).settings
    with Engine.open(tmp_path / "memory", settings=settings, background=False) as engine:
        engine.session("s").append([{"role": "user", "content": text} for text in SAID])
        engine.work()
        assert (engine.memory.embedder is None) == (model == "none")
        for question, answer in QUESTIONS.items():
            window = engine.session("s").assemble([{"role": "user", "content": question}], limit=200_000)
            assert answer in "".join(hit.text for hit in window.report.recalled)
            assert answer in engine.session("s").recall(question).block
        assert not engine.session("s").recall("鲸鱼怎么呼吸?").block
