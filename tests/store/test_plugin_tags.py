"""Topics and entities, as the plugin tags its segments."""

import pytest

from holdfast.store.plugin_files import entities, topics


@pytest.mark.parametrize(
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
def test_topics_are_told_by_keywords(text: str, expected: list[str]) -> None:
    """An English keyword counts as a whole word, a Chinese one anywhere, in any case."""
    assert topics(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see https://example.org/a/b?c=d now", {"url": "https://example.org/a/b?c=d"}),
        ("mail me@example.org", {"email": "me@example.org"}),
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
def test_entities_are_told_by_patterns(text: str, expected: dict[str, str]) -> None:
    """Addresses, stocks, amounts, dates, people and projects are found where they stand."""
    found = entities(text)
    for kind, value in expected.items():
        entity = next(one for one in found if one["type"] == kind)
        assert entity["value"] == value
        assert text[entity["offset"] :].startswith(value)
    assert bool(found) == bool(expected)


def test_an_entity_is_named_once() -> None:
    """The same thing twice is one entity, at its first place; nothing is found inside an address."""
    found = entities("https://a.org/x/y and https://a.org/x/y")
    assert [(one["type"], one["offset"]) for one in found] == [("url", 0)]
