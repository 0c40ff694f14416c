"""Statements that take the place of earlier ones."""

from __future__ import annotations

import pytest

from holdfast.patterns import compile_once, load
from holdfast.search.corrections import _FLAGS, Earlier, Later, Rarity, Statement, split_statements
from support.cases import each

CORRECTIONS = [
    "The worker is no longer used.",
    "We do not need it any more.",
    "It doesn't run anymore.",
    "Use Redis instead.",
    "From now on the limit is 20.",
    "As of today it is 9443.",
    "Correction: the port is 8443.",
    "We changed our minds about the cache.",
    "The limit was raised from 10 to 22.",
    "We moved the nightly job to Friday.",
    "The database was migrated.",
    "The service was renamed.",
    "The old parser was replaced.",
    "The flag is deprecated.",
    "Forget the second idea.",
    "Nora left, and Emil took over.",
    "It is 45 seconds, not 30.",
    "The answer was wrong.",
    "30 seconds were too short, really.",
    "Since yesterday it runs in Frankfurt.",
    "Scratch that date.",
    "On second thought, 25 minutes.",
    "It slipped to April 2.",
    "The cluster was switched off.",
    "We need it from today.",
    "Frau Weber ist nicht mehr da.",
    "Ab sofort erst um neun.",
    "超时改成45秒。",
    "会议挪到周六。",
    "不要用 DEBUG 了。",
    "週報はやっぱり水曜日です。",
    "我们不再使用这个队列。",
    "从现在起用新的端口。",
    "今後は金曜日に実行します。",
    "ポートを9443に変更しました。",
    "이제부터 포트는 9443입니다.",
    "담당자가 바뀌었습니다.",
]


def is_superseded(earlier: str, later: str, *, asked: frozenset[str] = frozenset()) -> bool:
    """Tell whether a later text takes the place of a statement, all words being equally rare."""
    statement = split_statements(earlier)[0]
    return Earlier.read(statement, Rarity.of({}), asked=asked).is_superseded(Later.read(later))


@each("text", CORRECTIONS)
def test_every_strong_word_is_found_by_its_hint(text: str) -> None:
    """Most statements have no hint and are not searched for patterns."""
    words = load("corrections")["words"]
    assert compile_once(words["strong"], _FLAGS).search(text.casefold())
    assert any(hint in text.casefold() for hint in words["hints"])


@each(
    ("earlier", "later"),
    [
        ("The port of the gateway is 8443.", "The port of the gateway is 9443 now."),
        ("The request timeout is 30 seconds.", "The request timeout is 45 seconds, not 30."),
        ("The billing team is in the Berlin office.", "The billing team is in the Lisbon office."),
        ("Feature flags live in Unleash.", "Unleash is no longer used for feature flags."),
        ("The rate limit for partners is 100 requests a minute.", "Actually let's say 250 requests for partners."),
        ("The demo is on Tuesday at 10.", "The demo got pushed to Thursday at 14."),
        ("Backups go to the bucket lf-cold.", "Backups now go to the bucket lf-deep."),
        ("I live in Porto.", "I live in Lisbon now."),
        ("订单服务的超时是30秒。", "订单服务的超时改成45秒。"),
        ("后台数据库连接池的大小定为 20 个。", "连接池改成 35 吧，20 个不够用。"),
        ("デプロイは木曜日に行います。", "今後、デプロイは金曜日に行います。"),
        ("게이트웨이 포트는 8443입니다.", "게이트웨이 포트는 9443으로 변경되었습니다."),
    ],
)
def test_a_later_statement_about_the_same_subject_takes_its_place(earlier: str, later: str) -> None:
    """Also with another number, another name, or in other words."""
    assert is_superseded(earlier, later)


@each(
    ("earlier", "later"),
    [
        ("The upload limit is 48 MB.", "The upload limit is 48 MB, as agreed."),
        ("The port of the gateway is 8443.", "The port of the gateway is 8443."),
        ("The port of the gateway is 8443.", "Is the port of the gateway 9443?"),
        ("The request timeout is 30 seconds.", "The kitchen gets a new table in 45 days."),
        ("Feature flags live in Unleash.", "The office in Porto is no longer rented."),
        ("I am volunteering at the shelter.", "Last week I dropped off what I baked for the shelter."),
        ("I love this series.", "I am loving it to experiment with flavours right now."),
        ("Gate 3 is open.", "Gate 4 is open."),
        ("I am sure that the turtles are happy.", "I am not sure why the turtles walk so slowly."),
    ],
)
def test_a_repetition_a_question_and_another_subject_do_not(earlier: str, later: str) -> None:
    """The earlier statement still holds."""
    assert not is_superseded(earlier, later)


@pytest.mark.parametrize(
    "line",
    [
        "2026-03-01 12:00:01 INFO  pool size=20 used=17 wait=3ms",
        "2026-03-09T03:42:07Z INFO [upload-29] upload 42 ms finished, rename the helper and run the tests.",
        "| gateway | 8443 | 30 | 12 |",
        "assert x[3] == {1: 2, 3: 4}",
        "@@ -12,7 +12,7 @@",
        '{"port": 8443, "ttl": 30}',
        "Is the port 8443?",
    ],
)
def test_lines_of_logs_tables_and_code_and_questions_are_no_statements(line: str) -> None:
    """Their numbers differ from line to line."""
    assert split_statements(line) == []


@pytest.mark.parametrize("text", ["The port is 8443.", "TTL is 30 s.", "端口是8443。", "Ports 8443 and 9443 are open"])
def test_a_short_sentence_with_a_number_is_a_statement(text: str) -> None:
    """Values are often stated so."""
    assert split_statements(text) == [Statement.read(text)]
