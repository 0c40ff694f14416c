"""Topics and entities of a text, as the memory-context plugin tags its segments: by keyword and by pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["Entity", "entities", "topics"]

_KEYWORDS: Final = {
    "programming": "code coding function bug debug compile refactor typescript javascript python java rust golang git"
    " 代码 编程 函数 调试 编译 重构",
    "api": "api endpoint rest graphql webhook http request response 接口 请求 响应",
    "database": "database sql postgres postgresql mysql sqlite mongodb redis schema migration 数据库 查询 索引 表结构",
    "ai": "ai llm gpt claude gemini model embedding prompt agent 模型 人工智能 大模型 向量 提示词",
    "finance": "stock price invest investment revenue budget invoice payment 股票 价格 投资 基金 收入 预算 支付",
    "project": "project milestone deadline roadmap sprint release task 项目 里程碑 截止 任务 发布 迭代",
    "schedule": "meeting calendar schedule appointment reminder tomorrow 会议 日程 安排 预约 提醒 明天",
    "travel": "travel flight hotel trip ticket visa 旅行 航班 酒店 机票 签证 出差",
    "health": "health doctor hospital medicine exercise sleep 健康 医生 医院 药 运动 睡眠",
    "email": "email mail inbox gmail outlook 邮件 邮箱 收件箱",
    "chat": "chat message slack telegram discord wechat feishu 聊天 消息 微信 飞书 群",
    "settings": "setting settings config configuration preference option 设置 配置 偏好 选项",
}
_ENGLISH: Final = {
    name: frozenset(word for word in words.split() if word.isascii()) for name, words in _KEYWORDS.items()
}
_CHINESE: Final = {
    name: tuple(word for word in words.split() if not word.isascii()) for name, words in _KEYWORDS.items()
}
_WORD: Final = re.compile(r"[^\W_]+")
_HAN: Final = "\u4e00-\u9fff"
_FIRST: Final = {
    "url": re.compile(r"https?://[^\s<>\"'`，。）]{1,2000}"),
    "email": re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"),
}
_THEN: Final = {
    "stock": re.compile(r"(?<!\d)\d{6}(?!\d)|\$[A-Z]{1,5}\b"),
    "amount": re.compile(
        r"[¥￥$]\s?\d[\d,]{0,20}(?:\.\d{1,4})?[万亿]?|\d[\d,]{0,20}(?:\.\d{1,4})?\s?(?:万元|亿元|元|万|亿)"
    ),
    "date": re.compile(
        r"(?<!\d)\d{4}-\d{1,2}-\d{1,2}(?!\d)|(?:\d{4}年)?\d{1,2}月\d{1,2}[日号]|今天|明天|后天|昨天|前天|[上下本]周[一二三四五六日天]?|[上下本]个?月"
    ),
    "person": re.compile(rf"(?:@|找|问|跟|给|和|让|请|叫)([{_HAN}]{{2,4}})"),
    "project": re.compile(
        r"(?<![\w/.])[\w.-]{1,64}(?:/[\w.-]{1,64}){1,8}|\b[A-Z][a-z0-9]{1,40}(?:[A-Z][a-z0-9]{0,40}){1,8}\b"
    ),
}


@dataclass(frozen=True, slots=True)
class Entity:
    """Something that a text names: what kind of thing, its name, and where it stands."""

    type: str
    value: str
    offset: int


def topics(text: str) -> list[str]:
    """What a text is about, of twelve topics: an English keyword counts as a whole word, a Chinese one anywhere."""
    words = set(_WORD.findall(text.lower()))
    return [
        name
        for name, english in _ENGLISH.items()
        if not english.isdisjoint(words) or any(word in text for word in _CHINESE[name])
    ]


def entities(text: str) -> list[Entity]:
    """What a text names, each once, kind by kind. An address is taken whole before anything in it can be."""
    found: dict[tuple[str, str], Entity] = {}
    rest = text
    for kind, pattern in _FIRST.items():
        for entity in _all(kind, pattern, rest):
            found.setdefault((kind, entity.value), entity)
        rest = pattern.sub(lambda match: " " * len(match.group()), rest)
    for kind, pattern in _THEN.items():
        for entity in _all(kind, pattern, rest):
            found.setdefault((kind, entity.value), entity)
    return list(found.values())


def _all(kind: str, pattern: re.Pattern[str], text: str) -> Iterator[Entity]:
    group = pattern.groups
    for match in pattern.finditer(text):
        yield Entity(kind, match.group(group), match.start(group))
