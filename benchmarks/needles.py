"""Needles: things that are said once in a long conversation, and what a user asks about them much later.

Each is made anew from a seed: a stretch of conversation that says it in passing, a question in other words, and the
exact words that answer it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from holdfast.messages import Message, Text, ToolCall, ToolResult

__all__ = ["KINDS", "OFF_TOPIC", "Needle", "needles"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Needle:
    """One thing to be remembered.

    Attributes:
        kind: What it is, such as a path or a decision.
        said: The messages that say it.
        question: What is asked about it.
        answer: The words that must be found.
    """

    kind: str
    said: tuple[Message, ...]
    question: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """How a needle is put; every text is filled in with drawn values.

    Attributes:
        user: What the user says.
        command: What is run for it, with what comes out of it.
        output: What comes out.
        reply: What the assistant says at last.
        question: What is asked.
        answer: What answers it.
    """

    user: str
    reply: str
    question: str
    answer: str
    command: str = ""
    output: str = ""


_LOG: Final = (
    "[{time}] starting {name}\n[{time}] reading configuration\n[{time}] 12 workers ready\n[{time}] batch 1 of {count}\n"
    "[{time}] batch 2 of {count}\n"
)

_FORMS: Final[dict[str, tuple[_Form, ...]]] = {
    "path": (
        _Form(
            user="Please split the retry policy of the {name} off, the client file is too long.",
            reply="Done: the retry policy of the {name} is in {path} now, the client only imports it.",
            question="Where does the code live that decides about retries in the {name}?",
            answer="{path}",
        ),
        _Form(
            user="For the {name} the only file you may touch is {path}, the rest is generated.",
            reply="Understood.",
            question="Which file was I allowing you to edit by hand for the {name}?",
            answer="{path}",
        ),
        _Form(
            user="Where are the fixtures of the {name}?",
            command="git ls-files | grep -i {word}",
            output="{path}\n",
            reply="There is one file for them.",
            question="Under which path did we find the fixtures for the {name}?",
            answer="{path}",
        ),
    ),
    "command": (
        _Form(
            user="Run the reconciliation of the {name} once more, please.",
            command="./bin/reconcile --target {word} --since {date} --dry-run --batch {count}",
            output="0 differences\n",
            reply="No differences.",
            question="How exactly did we start the reconciliation of the {name}? I need all of its options.",
            answer="--since {date} --dry-run --batch {count}",
        ),
        _Form(
            user="To rebuild the {name} use `make {word} JOBS={small} PROFILE=lean-{number}`, nothing else works.",
            reply="I will use that.",
            question="What do I have to type to build the {name} again?",
            answer="make {word} JOBS={small} PROFILE=lean-{number}",
        ),
        _Form(
            user="Take a profile of the {name}.",
            command="py-spy record --rate {count} --duration {small} --output {word}-{number}.svg --pid 4711",
            output="Wrote flame graph\n",
            reply="The flame graph is written.",
            question="With which flags was the {name} profiled?",
            answer="--rate {count} --duration {small} --output {word}-{number}.svg",
        ),
    ),
    "exit_code": (
        _Form(
            user="Verify the {name} before we go on.",
            command="make verify-{word}",
            output=_LOG + "[{time}] verification stopped\nmake: process finished with exit code {code}\n",
            reply="The verification did not pass, I will look into it.",
            question="Which status did the verification of the {name} end with?",
            answer="exit code {code}",
        ),
        _Form(
            user="What happens if the {name} runs out of disk?",
            reply="I tried it: the {name} stops at once and returns exit status {code}, without a message.",
            question="What does the {name} return when the disk is full?",
            answer="exit status {code}",
        ),
    ),
    "error": (
        _Form(
            user="The import of the {name} broke last night, have a look.",
            command="tail -n 6 /var/log/{word}/import.log",
            output=_LOG + "[{time}] ERROR ShardMismatch: shard {small} expected {number} rows, found {count}\n",
            reply="One shard does not add up.",
            question="What was the exact message when the import of the {name} failed?",
            answer="shard {small} expected {number} rows, found {count}",
        ),
        _Form(
            user="Start the {name} on my machine.",
            command="{word} serve --port {port}",
            output=_LOG + "OSError: cannot bind {word}.sock: lease {hash} is held by another owner\n",
            reply="It does not come up yet.",
            question="Why did the {name} refuse to start, what did it complain about?",
            answer="lease {hash} is held by another owner",
        ),
        _Form(
            user="Our customers see this from the {name}: 'quota window W-{number} is sealed until {date}'.",
            reply="That comes from the limiter.",
            question="What do customers get to read from the {name}?",
            answer="quota window W-{number} is sealed until {date}",
        ),
    ),
    "id": (
        _Form(
            user="The outage of the {name} is filed as INC-{number}{small}, link it in the change log.",
            reply="Linked.",
            question="Under which ticket do we track the outage of the {name}?",
            answer="INC-{number}{small}",
        ),
        _Form(
            user="Which build of the {name} is live?",
            reply="Live is build {hash} of the {name}, rolled out on {date}.",
            question="What is the identifier of the {name} build in production?",
            answer="{hash}",
        ),
        _Form(
            user="Create the queue for the {name}.",
            command="queuectl create {word} --fifo",
            output="created\nqueue-id: q-{hash}\n",
            reply="The queue is there.",
            question="What id did the queue of the {name} get?",
            answer="q-{hash}",
        ),
    ),
    "number": (
        _Form(
            user="Did the index help the {name}?",
            reply="Yes: the p95 of the {name} went down from {number} ms to {count} ms.",
            question="How slow is the {name} at the 95th percentile since the index?",
            answer="to {count} ms",
        ),
        _Form(
            user="The {name} listens on port {port}, put that into the compose file.",
            reply="It is in the compose file.",
            question="On what port can I reach the {name}?",
            answer="port {port}",
        ),
        _Form(
            user="How many rows does the {name} have to move?",
            command="psql -At -c 'select count(*) from {word}_events'",
            output="{number}{count}\n",
            reply="That many rows are in {word}_events, all of them have to be moved by the {name}.",
            question="How many rows were in the events table of the {name}?",
            answer="{number}{count}",
        ),
    ),
    "decision": (
        _Form(
            user="Let us settle it: the {name} keeps its sessions in {store}, because of the eviction rules.",
            reply="Agreed, I will set that up.",
            question="What did we choose as the place for the sessions of the {name}?",
            answer="sessions in {store}",
        ),
        _Form(
            user="What do you suggest for the {name}, polling or webhooks?",
            reply="We go with polling every {small} seconds for the {name}; webhooks get lost behind the proxy.",
            question="How does the {name} learn about changes, what was our choice?",
            answer="polling every {small} seconds",
        ),
        _Form(
            user="I have decided that {person} owns the {name} from now on, ask there before you change its schema.",
            reply="Noted.",
            question="Who is responsible for the {name}?",
            answer="{person}",
        ),
    ),
    "correction": (
        _Form(
            user="No, that is wrong: the nightly run of the {name} begins at {clock} UTC, not at midnight.",
            reply="Sorry, corrected.",
            question="At what time does the {name} start at night?",
            answer="{clock} UTC",
        ),
        _Form(
            user="You got the {name} wrong. Its limit is {count} requests a minute, not a second.",
            reply="You are right, I have changed it.",
            question="What is the rate limit of the {name}?",
            answer="{count} requests a minute",
        ),
        _Form(
            user="Not main! Work on the {name} belongs on the branch {word}/{store}-{small}.",
            reply="I have moved the commits.",
            question="Which branch should I use for the {name}?",
            answer="{word}/{store}-{small}",
        ),
    ),
    "chinese": (
        _Form(
            user="记住,{zh}的对账任务改到每天凌晨{zh_hour}点{zh_minute}分跑。",
            reply="好的,已经改了。",
            question="{zh}的对账现在几点开始?",
            answer="凌晨{zh_hour}点{zh_minute}分",
        ),
        _Form(
            user="{zh}以后由{zh_person}负责,改表结构之前先问一下。",
            reply="明白。",
            question="谁在管{zh}?",
            answer="{zh_person}",
        ),
        _Form(
            user="{zh}为什么这么慢?",
            reply="原因找到了:{zh}的连接池只有{small}个连接,我把它调成了{count}个。",
            question="{zh}的连接池最后调到多少?",
            answer="调成了{count}个",
        ),
    ),
}
KINDS: Final = tuple(_FORMS)
"""What there is to be remembered."""

_FIRST: Final = (
    "kestrel juniper marlin obsidian saffron tundra lattice quill ember cobalt willow gannet"
    " basalt osprey thistle zephyr anvil heron meridian pumice larkspur isthmus falcon sequoia"
)
_SECOND: Final = "importer gateway scheduler ledger exporter notifier"
_ZH: Final = (
    "灯塔网关 海狸账本 木星队列 松鼠调度器 青瓷服务 骆驼导入器 白鹭接口 琥珀缓存 石榴索引 云雀报表 竹简归档 磐石存储"
    " 北斗路由 蓝鲸流水线 芦苇代理 萤火监控 雪松鉴权 桂花通知 麒麟结算 杜鹃搜索 银杏任务 苍鹰巡检 荷叶配置 鲲鹏网络"
)
_STORES: Final = "Valkey ScyllaDB FoundationDB Garnet KeyDB Tarantool RocksDB LMDB Hazelcast Ignite Aerospike Dragonfly"
_PEOPLE: Final = (
    "Ines Okafor;Tomasz Brandt;Leila Haddad;Piotr Nyqvist;Marisol Vega;Henrik Aalto;Noor Siddiqui;Bao Linh Tran;"
    "Greta Folger;Dario Conti;Amara Diallo;Yusuf Kaplan"
)
_ZH_PEOPLE: Final = "欧阳清 司徒远 慕容雪 上官宁 端木磊 东方晓 南宫瑶 诸葛恒 尉迟峰 百里川 公孙澜 令狐岩"
_ZH_MINUTES: Final = "十一 十二 十三 十四 十六 十七 十八 十九 二十一 二十二 二十三 二十四 三十六 三十七 四十八 五十二"


def needles(chance: Random, *, each: int) -> list[Needle]:
    """So many needles of each kind, at most 24; no two of a kind are about the same subject."""
    kinds = _SECOND.split()
    names = [f"{word} {kinds[number % len(kinds)]}" for number, word in enumerate(_FIRST.split())]
    return [
        _needle(kind, name, zh, chance)
        for kind in KINDS
        for name, zh in zip(chance.sample(names, each), chance.sample(_ZH.split(), each), strict=True)
    ]


def _needle(kind: str, name: str, zh: str, chance: Random) -> Needle:
    form = chance.choice(_FORMS[kind])
    values = _values(name, zh, chance)
    said = [_spoken("user", form.user.format_map(values))]
    if form.command:
        said += _run(form.command.format_map(values), form.output.format_map(values), f"call_{values['hash']}")
    said.append(_spoken("assistant", form.reply.format_map(values)))
    return Needle(
        kind=kind,
        said=tuple(said),
        question=form.question.format_map(values),
        answer=form.answer.format_map(values),
    )


def _values(name: str, zh: str, chance: Random) -> dict[str, Any]:
    word = name.partition(" ")[0]
    folder, file = chance.sample(["limits", "policy", "core", "wire", "state", "edges", "intake"], 2)
    return {
        "name": name,
        "word": word,
        "zh": zh,
        "path": f"services/{word}/{folder}/{file}_{chance.randint(100, 999)}.py",
        "date": f"2026-0{chance.randint(1, 9)}-{chance.randint(10, 28)}",
        "time": f"{chance.randint(10, 23)}:{chance.randint(10, 59)}:{chance.randint(10, 59)}",
        "clock": f"0{chance.randint(1, 9)}:{chance.randint(10, 59)}",
        "count": chance.randint(113, 989),
        "number": chance.randint(2011, 9887),
        "small": chance.randint(12, 88),
        "port": chance.randint(20_011, 48_991),
        "code": chance.randint(65, 245),
        "hash": f"{chance.getrandbits(40):010x}",
        "store": chance.choice(_STORES.split()),
        "person": chance.choice(_PEOPLE.split(";")),
        "zh_person": chance.choice(_ZH_PEOPLE.split()),
        "zh_hour": chance.choice("一二三四五六"),
        "zh_minute": chance.choice(_ZH_MINUTES.split()),
    }


def _spoken(role: Any, words: str) -> Message:
    return Message(role=role, parts=(Text(text=words),))


def _run(command: str, output: str, call: str) -> list[Message]:
    """A command and what came out of it."""
    return [
        Message(role="assistant", parts=(ToolCall(id=call, name="bash", arguments={"command": command}),)),
        Message(role="tool", parts=(ToolResult(call_id=call, content=(Text(text=output),), name="bash"),)),
    ]


OFF_TOPIC: Final[Sequence[str]] = (
    "How long do I have to boil an egg so that the yolk stays soft?",
    "Which wine goes with grilled sea bass?",
    "What is the capital of Mongolia?",
    "Who painted the ceiling of the Sistine Chapel?",
    "How do I get red wine stains out of a linen tablecloth?",
    "What should I pack for a week of hiking in Patagonia?",
    "Can you recommend a poem about autumn?",
    "Why do cats purr when they sleep?",
    "How tall is Mount Kilimanjaro?",
    "What is the offside rule in football?",
    "How often should I water a bonsai in winter?",
    "Which vitamins are in carrots?",
    "What did Napoleon do on Saint Helena?",
    "How do I teach my daughter to ride a bicycle?",
    "What is a good present for a golden wedding anniversary?",
    "Explain the plot of Hamlet in three sentences.",
    "Is it safe to eat mussels in summer?",
    "How do whales breathe during long dives?",
    "Which moons does Jupiter have?",
    "How do I fold a paper crane?",
    "What is the difference between baroque and rococo?",
    "How much sleep does a toddler need?",
    "Why is the sky red at sunset?",
    "Which muscles does rowing train?",
    "How do bees find their way back to the hive?",
    "What are the ingredients of a classic ratatouille?",
    "Who won the Nobel Prize in Literature in 1982?",
    "How do I tune a violin without a tuner?",
    "What is the best season to see the northern lights?",
    "How is Parmesan cheese made?",
    "红烧肉怎么做才不腻?",
    "北京到西安坐高铁要几个小时?",
    "李白最有名的诗是哪一首?",
    "孩子发烧了应该怎么办?",
    "养金鱼多久换一次水?",
    "太极拳适合老年人练吗?",
    "怎么挑选一个熟透的西瓜?",
    "故宫是哪一年建成的?",
    "感冒的时候能不能喝牛奶?",
    "月亮为什么会有圆缺?",
    "学钢琴从几岁开始比较好?",
    "中秋节为什么要吃月饼?",
    "怎样才能睡得更好?",
    "世界上最大的沙漠在哪里?",
    "绿茶和红茶有什么区别?",
    "大熊猫一天要吃多少竹子?",
    "羽毛球的发球规则是什么?",
    "冬天去哈尔滨旅游穿什么衣服?",
    "怎么去掉衣服上的油渍?",
    "《红楼梦》里林黛玉是怎么死的?",
    "跑步之后膝盖疼怎么办?",
    "春天适合在阳台上种什么花?",
    "彩虹是怎么形成的?",
    "饺子馅怎么调才好吃?",
    "长城一共有多长?",
    "猫不吃东西是什么原因?",
    "写春联有什么讲究?",
    "海水为什么是咸的?",
    "怎么跟邻居商量噪音的事?",
    "第一次坐飞机要注意什么?",
)
"""Questions that have nothing to do with the work of an agent, English and Chinese."""
