"""Topics and entities, as the plugin tags its segments."""

import pytest

from holdfast.store.plugin_files import entities, topics
from support.cases import each


@each(
    ("text", "expected"),
    [
        ("Fix the bug in the parser", ["programming"]),
        ("The REST API returns 500", ["api"]),
        ("把数据库迁移到新服务器", ["database"]),
        ("Book a flight and a hotel", ["travel"]),
        ("debugging rapid apiary", []),
        ("配置微信提醒", ["schedule", "chat", "settings"]),
        ("CODE!", ["programming"]),
        ("用api吗", []),
        ("", []),
    ],
)
def test_topics_are_recognised_by_keywords(text: str, expected: list[str]) -> None:
    """An English keyword counts as a whole word, a Chinese one anywhere, in any case."""
    assert topics(text) == expected


@each(
    ("text", "expected"),
    [
        ("see https://example.org/a/b?c=d now", {"url": "https://example.org/a/b?c=d"}),
        ("see https://example.org/a, or ask", {"url": "https://example.org/a"}),
        ("(https://example.org/a.b).", {"url": "https://example.org/a.b"}),
        ("read https://example.org/Cat_(animal); then", {"url": "https://example.org/Cat_(animal)"}),
        ("**https://example.org/x**!", {"url": "https://example.org/x"}),
        ("看 https://example.org/路径、然后", {"url": "https://example.org/路径"}),
        ("see [it](https://example.org/y?a=1&b=2)", {"url": "https://example.org/y?a=1&b=2"}),
        ("mail me@example.org", {"email": "me@example.org"}),
        ("mail me@example.org.", {"email": "me@example.org"}),
        ("the host 192.168.0.17 is down", {"ip": "192.168.0.17"}),
        ("ping 10.0.0.1:8080, please", {"ip": "10.0.0.1"}),
        ("on fe80::1ff:fe23:4567:890a now", {"ip": "fe80::1ff:fe23:4567:890a"}),
        ("on [2001:db8::1]:443", {"ip": "2001:db8::1"}),
        ("ask @anna_k about it", {"person": "anna_k"}),
        ("@Ben-Li, look", {"person": "Ben-Li"}),
        ("请 @张三 看一下", {"person": "张三"}),
        ("buy 600519 or $AAPL", {"stock": "600519"}),
        ("about ¥1,200.50万 left", {"amount": "¥1,200.50万"}),
        ("due 2026-02-10", {"date": "2026-02-10"}),
        ("明天见", {"date": "明天"}),
        ("找张三丰 问一下", {"person": "张三丰"}),
        ("look at src/payment/webhook.ts", {"project": "src/payment/webhook.ts"}),
        ("the KnowledgeStore class", {"project": "KnowledgeStore"}),
        ("nothing here", {}),
    ],
)
def test_entities_are_recognised_by_patterns(text: str, expected: dict[str, str]) -> None:
    """Addresses, stocks, amounts, dates, people and projects are found where they stand."""
    found = entities(text)
    for kind, value in expected.items():
        entity = next(one for one in found if one["type"] == kind)
        assert entity["value"] == value
        assert text[entity["offset"] :].startswith(value)
    assert bool(found) == bool(expected)


@pytest.mark.parametrize(
    "text", ["version 1.2.3.4.5", "999.1.1.1", "at 10:30:15 today", "std::vector", "a user@", "@ home", "x::y"]
)
def test_what_only_looks_like_an_address_is_none(text: str) -> None:
    """Versions, times and names of code are neither addresses nor people."""
    assert not [one for one in entities(text) if one["type"] in {"ip", "person", "url", "email"}]


def test_an_entity_is_named_once() -> None:
    """The same thing twice is one entity, at its first place; nothing is found inside an address."""
    found = entities("https://a.org/x/y and https://a.org/x/y")
    assert [(one["type"], one["offset"]) for one in found] == [("url", 0)]
