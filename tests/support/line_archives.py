"""Text that is read line by line (logs, tables, code, diffs), with facts planted in it, and plain questions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

MESSAGE: Final = 5_000
"""Characters of one message."""


@dataclass(frozen=True, slots=True)
class Planted:
    """A line, what is asked about it, and the words that answer."""

    line: str
    question: str
    answer: str


ENGLISH: Final = (
    Planted(
        "the staging ledger listens on port 47113 since the move", "Which port does the staging ledger use?", "47113"
    ),
    Planted("NOTE Priya owns the rotation of the signing certificates", "Who owns the signing certificates?", "Priya"),
    Planted(
        "WARN quota for tenant bluefin raised to 7300 requests", "What is the quota of tenant bluefin?", "7300 requests"
    ),
    Planted("decision: invoices are archived in Reykjavik, not in Dublin", "Where are invoices archived?", "Reykjavik"),
    Planted(
        "backup window moved to 03:40 because of the vacuum job", "When does the backup window start now?", "03:40"
    ),
    Planted(
        "libharbor pinned to 2.14.9, newer ones corrupt tiles",
        "Which version of libharbor are we pinned to?",
        "2.14.9",
    ),
    Planted("checkout outage root cause: expired DNS delegation", "What caused the checkout outage?", "expired DNS"),
    Planted("the quarterly audit of the warehouse starts on 17 October", "When is the warehouse audit?", "17 October"),
    Planted("customer Halvorsen asked for exports as parquet", "Which export format did Halvorsen want?", "parquet"),
    Planted("feature flag amber-lantern stays off until legal agrees", "Is the amber-lantern flag on?", "stays off"),
    Planted(
        "tickets about refunds go to the queue moss-garden", "Which queue gets tickets about refunds?", "moss-garden"
    ),
    Planted("max upload for avatars is 640 KB as agreed with design", "How large may an avatar upload be?", "640 KB"),
)

CHINESE: Final = (
    Planted("预发环境的账本服务改用端口 47113", "预发环境的账本服务用哪个端口?", "47113"),
    Planted("签名证书的轮换由李婉清负责", "签名证书的轮换由谁负责?", "李婉清"),
    Planted("租户蓝鳍的配额提高到 7300 次", "租户蓝鳍的配额是多少?", "7300"),
    Planted("决定: 发票归档在雷克雅未克", "发票归档在哪里?", "雷克雅未克"),
    Planted("备份窗口改到凌晨 03:40", "备份窗口改到什么时候?", "03:40"),
    Planted("海港库固定在 2.14.9 版", "海港库固定在哪个版本?", "2.14.9"),
    Planted("结算中断的根本原因是域名委派过期", "结算中断的原因是什么?", "域名委派过期"),
    Planted("仓库的季度盘点从十月十七日开始", "仓库的季度盘点什么时候开始?", "十月十七日"),
    Planted("客户赫尔曼要求导出为列式文件", "客户赫尔曼要求导出成什么格式?", "列式文件"),
    Planted("琥珀灯笼这个开关在法务同意前保持关闭", "琥珀灯笼这个开关开了吗?", "保持关闭"),
    Planted("退款工单转到苔园队列", "退款工单转到哪个队列?", "苔园"),
    Planted("头像上传的上限是 640 KB", "头像上传的上限是多少?", "640 KB"),
)

OFF_TOPIC: Final = (
    "How long do I have to boil an egg so that the yolk stays soft?",
    "Which wine goes with grilled sea bass?",
    "Who painted the ceiling of the Sistine Chapel?",
    "What should I pack for a week of hiking in Patagonia?",
    "How often should I water a bonsai in winter?",
    "How do whales breathe during long dives?",
    "红烧肉怎么做才不腻?",
    "李白最有名的诗是哪一首?",
    "养金鱼多久换一次水?",
    "怎么挑选一个熟透的西瓜?",
)

_NOUNS: Final = (
    *("worker", "pool", "shard", "cache", "batch", "request", "socket", "tenant", "queue", "index", "upload"),
    *("session", "ticket", "invoice", "job"),
)
_VERBS: Final = ("started", "finished", "retried", "skipped", "accepted", "rejected", "flushed", "closed", "expired")
_CHINESE_NOUNS: Final = ("任务", "连接", "缓存", "分片", "请求", "队列", "索引", "会话", "工单", "发票", "租户", "上传")
_CHINESE_VERBS: Final = ("已启动", "已完成", "重试", "跳过", "已接受", "被拒绝", "已刷新", "已关闭", "超时")

Line: TypeAlias = Callable[[Random], str]


def _stamp(chance: Random) -> str:
    moment = (chance.randint(1, 28), chance.randint(0, 23), chance.randint(0, 59), chance.randint(0, 59))
    return "2026-03-{:02d}T{:02d}:{:02d}:{:02d}Z".format(*moment)


def _words(chance: Random) -> tuple[str, str]:
    return chance.choice(_NOUNS), chance.choice(_VERBS)


def _log(chance: Random) -> str:
    noun, verb = _words(chance)
    about = f"[{noun}-{chance.randint(1, 40)}] {noun} {chance.randint(100, 99999)}"
    return f"{_stamp(chance)} INFO {about} {verb} in {chance.randint(1, 900)} ms"


def _access(chance: Random) -> str:
    asked = f"GET /v2/{chance.choice(_NOUNS)}s/{chance.randint(100, 99999)} HTTP/1.1"
    client = f"10.0.{chance.randint(0, 255)}.{chance.randint(0, 255)}"
    return f'{client} - - [{_stamp(chance)}] "{asked}" {chance.choice((200, 404, 500))} {chance.randint(90, 9000)}'


def _table(chance: Random) -> str:
    noun, verb = _words(chance)
    return f"{chance.randint(1000, 99999)},{noun},{verb},{chance.random() * 100:.2f},{_stamp(chance)}"


def _grid(chance: Random) -> str:
    noun, verb = _words(chance)
    return f"| {noun:<10} | {chance.randint(1, 9999):>6} | {verb:<10} | {chance.randint(1, 99):>3}% |"


def _code(chance: Random) -> str:
    noun, verb = _words(chance)
    return chance.choice(
        (
            f"    def {verb}_{noun}(self, {noun}_id: int) -> None:",
            f"        self._{noun}s[{noun}_id] = {noun.title()}({chance.randint(1, 99)})",
            f"        if {noun}.state != State.{verb.upper()}:",
            f"            raise {noun.title()}Error(f'{noun} {{{noun}_id}} {verb}')",
            f"        return [{noun} for {noun} in self._{noun}s if {noun}.{verb}]",
        )
    )


def _diff(chance: Random) -> str:
    return chance.choice("+- ") + _code(chance)


def _chinese_log(chance: Random) -> str:
    about = f"[{chance.randint(1, 40)}] {chance.choice(_CHINESE_NOUNS)} {chance.randint(100, 99999)}"
    return f"{_stamp(chance)} 信息 {about} {chance.choice(_CHINESE_VERBS)}, 耗时 {chance.randint(1, 900)} 毫秒"


def _chinese_table(chance: Random) -> str:
    noun, verb = chance.choice(_CHINESE_NOUNS), chance.choice(_CHINESE_VERBS)
    return f"| {noun} | {chance.randint(1, 9999)} | {verb} | {chance.randint(1, 99)}% |"


KINDS: Final[dict[str, Sequence[Line]]] = {
    "logs": (_log, _access),
    "tables": (_table, _grid),
    "code": (_code,),
    "diffs": (_diff,),
    "mixed": (_log, _access, _table, _grid, _code, _diff, _chinese_log, _chinese_table),
    "chinese": (_chinese_log, _chinese_table),
}


def outputs(
    kind: str, facts: Sequence[Planted], *, count: int, size: int = MESSAGE, around: int = MESSAGE, seed: int = 1
) -> list[str]:
    """So many messages, the facts spread evenly over them, each one line in the middle of `size` characters.

    The messages without a fact have `around` characters.
    """
    chance = Random(seed)  # noqa: S311 - text for a test
    places = {(number * count) // len(facts): fact.line for number, fact in enumerate(facts)}
    return [
        _output(chance, KINDS[kind], planted=places.get(number), size=size if number in places else around)
        for number in range(count)
    ]


def _output(chance: Random, lines: Sequence[Line], *, planted: str | None, size: int) -> str:
    """Characters of one kind of line, with one that is planted in the middle."""
    line = chance.choice(lines)
    found: list[str] = []
    held = 0
    while held < size:
        if planted is not None and held >= size // 2:
            found.append(f"{_stamp(chance)} {planted}" if line in {_log, _access, _chinese_log} else planted)
            planted = None
        found.append(line(chance))
        held += len(found[-1]) + 1
    return "\n".join(found)
