"""Statements that take the place of earlier ones."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter
from itertools import chain, permutations

import pytest

from holdfast.memory.query import weigh_terms
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
    "Change of plan: we deploy on Tuesdays.",
    "Frau Weber ist nicht mehr da.",
    "Ab sofort erst um neun.",
    "超时改成45秒。",
    "会议挪到周六。",
    "不要用 DEBUG 了。",
    "週報はやっぱり水曜日です。",
    "我们不再使用这个队列。",
    "从现在起用新的端口。",
    "预算加到八万了。",
    "今後は金曜日に実行します。",
    "ポートを9443に変更しました。",
    "이제부터 포트는 9443입니다.",
    "담당자가 바뀌었습니다.",
]

UNRELATED = [
    "The trial lasts 14 days.",
    "Passwords expire after 90 days.",
    "Session cookies last 7 days.",
    "Audit logs must be kept 730 days, not 400.",
    "Invoices are due within 30 days.",
    "Refunds take 5 days, not 3.",
    "The standup is on Mondays.",
    "We deploy on Thursdays.",
    "The free plan has 3 seats.",
    "The worker pool has 8 threads now.",
    "The cache TTL is 60 seconds.",
    "The request timeout was raised to 45 seconds.",
    "Uploads are limited to 25 MB.",
    "Attachments in mails may have 10 MB from now on.",
    "We decided to host in Frankfurt.",
    "We decided to use Postgres instead of MySQL.",
    "We agreed to write tests first.",
    "Ivo leads the mobile team now.",
    "The discount for students is 20 percent.",
    "VAT is 19 percent from next year.",
    "Backups start at 02:00.",
    "The newsletter goes out at 09:30 from now on.",
    "Meetings start at 10:00, not 9:30.",
    "日志保留 30 天。",
    "试用期是14天。",
    "密码有效期改成90天。",
    "每周三发布。",
    "周会改到周五。",
    "图片存储用 MinIO。",
    "ログは30日間保存します。",
    "パスワードの有効期限は90日に変更しました。",
    "リリースは火曜日です。",
    "定例会議は木曜日に変わりました。",
    "로그는 30일 동안 보관합니다.",
    "비밀번호는 90일로 변경되었습니다.",
    "Die Testphase dauert 14 Tage.",
    "Passwörter gelten ab sofort 90 Tage.",
    "I prefer tabs over spaces.",
    "I want reviews within 2 days from now on.",
    "Please keep answers under 100 words.",
    "Commit messages must be below 72 characters from now on.",
]
"""Statements about different things, many of them with a number of the same unit, or a word of correction."""


def is_superseded(earlier: str, later: str, *, asked: frozenset[str] = frozenset()) -> bool:
    """Return whether a later text takes the place of a statement, all words being equally rare."""
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
        ("I want us to deploy on Thursdays only.", "Change of plan: we deploy on Tuesdays instead of Thursdays."),
        ("I want us to deploy on Thursdays only.", "Change of plan: we deploy on Tuesdays."),
        ("I think that audit logs are kept for 400 days.", "Legal wrote: audit logs must be kept 730 days, not 400."),
        ("We decided to host in Frankfurt.", "We decided to host in Dublin after all."),
        ("We keep it for 3 days.", "We keep it for 5 days now."),
        ("The export of the shop has at most 2,000 rows.", "I would say 8,000 rows for the export, not 2,000."),
        ("We deploy on Tuesdays instead of Thursdays.", "We deploy on Mondays from now on."),
        ("The shop is not open on Fridays.", "From now on the shop is open on Fridays, Nora helps out."),
        ("The order service retries 3 times.", "The order service retries 5 times."),
        ("Backups of the order service take 30 minutes.", "The nightly backups of the order service take 45 minutes."),
        ("订单服务的超时是30秒。", "订单服务的超时改成45秒。"),
        ("后台数据库连接池的大小定为 20 个。", "连接池改成 35 吧，20 个不够用。"),
        ("デプロイは木曜日に行います。", "今後、デプロイは金曜日に行います。"),
        ("게이트웨이 포트는 8443입니다.", "게이트웨이 포트는 9443으로 변경되었습니다."),
        ("캐시 만료 시간은 60초입니다.", "캐시 만료 시간은 120초로 변경되었습니다."),
        ("배포는 수요일에 합니다.", "이제부터 배포는 금요일에 합니다."),
        ("Anna owns billing.", "Anna left, so billing is owned by Tom."),
        ("Anna owns billing.", "Anna left the company."),
        ("We agreed that the party is on June 5.", "The party is now on June 12, not June 5."),
        ("My dentist is Dr. Okafor.", "My dentist is Dr. Lind now."),
        ("我们把搬家的日期定在八月十五号了。", "搬家改成八月二十八号，不是十五号了。"),
        ("装修预算是六万。", "装修预算加到八万了。"),
        ("The limit for partners is 20.", "The customer asked for it, so the limit for partners is 50 now."),
        ("接口的限流是每分钟200次。", "客户建议放宽，接口的限流已经改成每分钟350次了。"),
        ("MATCH_TIMEOUT_MS=900", "We raised the match timeout to 1400."),
        (
            "The staging cluster lives in eu-west-1.",
            "The staging cluster lives in eu-central-1 as of this morning.",
        ),
        ("We run the integration tests on CircleCI.", "Turns out CircleCI is too slow for the integration tests."),
        ("We deploy with Ansible.", "We are moving the deploys from Ansible to Terraform."),
        ("The frontend is written in Vue.", "We've been rewriting the frontend in Svelte."),
        ("We log with winston.", "Please stop using winston, pino does the logging in all services."),
        ("The memory limit of the worker pods is 512Mi.", "I bumped the memory limit of the worker pods to 2Gi."),
        ("We ship the new onboarding on March 14.", "The onboarding launch slips to April 2."),
        ("Marta owns the payments module.", "Marta handed the payments module over to Daria."),
        ("We'll store the session tokens in Redis.", "Turns out the session tokens need Postgres, Redis loses them."),
        (
            "The invoices get rendered with wkhtmltopdf.",
            "The invoices get rendered with WeasyPrint, as wkhtmltopdf is old.",
        ),
        ("I report to Helena.", "I report to Marcus instead."),
        ("For the search we use Solr, version 8.", "Change of plan: for the search we use Meilisearch, version 1.9."),
        ("我住在杭州。", "我搬家了，现在住在苏州。"),
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
        ("The trial lasts 14 days.", "Passwords expire after 90 days."),
        ("The trial lasts 14 days.", "We decided to keep logs for 60 days, not 45."),
        ("Session cookies last 7 days.", "Legal came back to us: audit logs must be kept 730 days, not 400."),
        ("We decided to host in Frankfurt.", "We decided to keep logs for 60 days, not 45."),
        ("Cookies of the portal last 7 days.", "The audit logs of the portal must be kept 730 days, not 400."),
        ("We deploy on Tuesdays instead of Thursdays.", "Change of plan: we deploy on Tuesdays."),
        ("Audit logs are kept 60 days, not 45.", "As I said, audit logs are kept 60 days and not 45."),
        ("The discount for students is 20 percent.", "VAT is 19 percent from next year."),
        ("The order service retries 3 times.", "The mail service retries 5 times."),
        ("The staging database has 4 replicas.", "The production database has 9 replicas."),
        ("The web frontend is deployed on Tuesdays.", "The mobile frontend is deployed on Thursdays."),
        ("支付服务的超时是 30 秒。", "订单服务的超时是 60 秒。"),
        ("注文サービスの上限は20件です。", "配送サービスの上限は50件です。"),
        ("결제 서비스의 제한은 30초입니다.", "주문 서비스의 제한은 60초입니다."),
        ("试用期是14天。", "密码有效期改成90天。"),
        ("ログは30日間保存します。", "パスワードの有効期限は90日に変更しました。"),
        ("로그는 30일 동안 보관합니다.", "비밀번호는 90일로 변경되었습니다."),
        ("캐시 만료 시간은 60초입니다.", "로그인 제한 시간은 30초로 변경되었습니다."),
        ("배포는 수요일에 합니다.", "이제부터 회식은 금요일에 합니다."),
        ("Anna owns billing.", "Anna left early today because of the storm."),
        ("The gym is open until 22:00 on Mondays.", "The gym is open until 18:00 on Saturdays."),
        ("Our main queue is RabbitMQ.", "Jonas thinks we should use Kafka instead of RabbitMQ, but I disagree."),
        ("The upload limit is 25 MB.", 'A customer wrote: "the upload limit should be 100 MB instead of 25 MB".'),
        ("The retry limit is 5.", "It is not true that the retry limit was changed to 10."),
        ("Support tickets go to Anna.", "Anna is out, she has the flu until Friday."),
        ("The keys are with Tobias.", "Tobias handed in his vacation request to Ines."),
        ("Anna owns billing.", "Anna left a note on the ticket."),
        ("The limit for partners is 20.", "A customer asked for a limit of 50 for partners, but we kept it."),
        ("接口的限流是每分钟200次。", "有人建议把接口的限流改成每分钟350次。"),
        ("We agreed that the party is on June 5.", "The exam is on July 5, not June 5."),
        ("We agreed that the party is on June 5.", "The party is on June 5, not July 5."),
        ("We agreed that the party is on June 5.", "The exam is not on June 5 but the party is."),
        ("支付接口超时改成15秒，不是8秒了。", "搬家改成八月二十八号，不是十五号了。"),
        ("上传上限改成50MB，不是20MB了。", "搬家改成八月二十八号，不是十五号了。"),
        ("退款期限改成14天，不是28天了。", "午餐改成三道菜，不是四道了。"),
        ("午餐改成两荤一素，不是三荤了。", "搬家换成周末，不是周五了。"),
        ("装修预算是六万。", "请把小王加到群里。"),
        ("我们决定用腾讯云部署测试环境。", "老王提到两次测试环境的部署。"),
        ("MATCH_TIMEOUT_MS=1400", "Oskar has moved to the matching team, Mei looks after couriers from today."),
        ("I am sure that the turtles are happy.", "I am not sure why the turtles walk so slowly."),
        ("Every bug gets a severity label.", "I moved the bug about the severity label dropdown to the next sprint."),
        ("The trial period is 30 days.", "Our biggest competitor switched from a trial period of 30 days to 14 days."),
    ],
)
def test_a_repetition_a_question_and_another_subject_do_not(earlier: str, later: str) -> None:
    """The earlier statement still holds."""
    assert not is_superseded(earlier, later)


ONLY_THE_ANSWER = [
    ("How does Lena like her coffee?", "Lena likes it black.", "We use ruff instead of black for formatting Python."),
    (
        "Where is the spare key?",
        "The spare key is at the neighbour's.",
        "From now on parcels are left at the neighbour's.",
    ),
    ("Who does the intern work with?", "The intern works with Paul.", "We use Paula instead of Paul for the fair."),
    ("What does our blog run on?", "Our blog runs on Hugo.", "We moved the docs from Hugo to MkDocs."),
]
ENDED = [
    ("Where do feature flags live?", "Feature flags live in Unleash.", "Unleash is no longer used."),
    ("What does our CI run on?", "Our CI runs on Jenkins.", "Jenkins is gone, every pipeline lives in GitHub Actions."),
    ("Who is our dentist?", "Our dentist is Dr. Weber.", "Dr. Weber retired, so we go to Dr. Okafor for our teeth."),
]


@pytest.mark.parametrize(("question", "earlier", "later"), [*ONLY_THE_ANSWER, *ENDED])
def test_what_has_only_the_answer_in_common_must_end_it(question: str, earlier: str, later: str) -> None:
    """The answer may be true of two things: it is corrected only if the later statement says that just that ended."""
    statement = Statement.read(earlier)
    texts = Later.read(later)
    rarity = Rarity.of(dict.fromkeys(statement.terms | texts.terms, 5.0))
    is_corrected = Earlier.read(statement, rarity, asked=weigh_terms((question,))).is_superseded(texts)
    assert is_corrected == ((question, earlier, later) in ENDED)


def test_statements_about_different_things_do_not_correct_each_other() -> None:
    """They share units, days, words of duration and forms of words."""
    passages = {text: split_statements(text)[0] for text in UNRELATED}
    counts = Counter(chain.from_iterable(statement.terms for statement in passages.values()))
    rarity = Rarity.of({term: math.log(1 + len(UNRELATED) / count) for term, count in counts.items()})
    wrong: list[tuple[str, str]] = []
    for earlier, later in permutations(UNRELATED, 2):
        if Earlier.read(passages[earlier], rarity, asked=()).is_superseded(Later.read(later)):
            wrong.append((earlier, later))
    assert wrong == []


def test_the_terms_of_a_statement_have_one_order() -> None:
    """That of a set differs between processes, and the same question would get another block in each."""
    earlier = Earlier.read(Statement.read("The importer reads orders from the bucket."), Rarity.of({}), asked=())
    assert list(earlier.weights) == sorted(earlier.weights)
    assert len(earlier.weights) > 1


@each(
    ("text", "count"),
    [
        ("My dentist is Dr. Lind now. She is new.", 2),
        ("Prof. Weber, e.g. on Mondays.", 1),
        ("Ask the Dr.\nThe port is 8443.", 2),
        ("Kafka vs. NATS was decided.", 1),
    ],
)
def test_an_abbreviation_ends_no_statement(text: str, count: int) -> None:
    """The end of a line does."""
    assert len(split_statements(text)) == count


@pytest.mark.parametrize(("rarity", "is_expected"), [(1.0, False), (4.0, True)])
def test_a_word_of_most_of_the_archive_is_no_subject(rarity: float, *, is_expected: bool) -> None:
    """In a project about orders, many statements have the word."""
    words = {"order": rarity, "day": 5.0, "paid": 5.0, "chang": 5.0, "ship": 5.0, "within": 5.0}
    earlier = Earlier.read(Statement.read("Orders are paid within 14 days."), Rarity.of(words), asked=())
    later = Later.read("We give orders 3 days from now on.")
    assert earlier.is_superseded(later) is is_expected


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


@each(
    "text",
    [
        "Show me the log of batch 56.",
        "Please show me the last 20 lines.",
        "看一下第56批的处理日志。",
        "请帮我查一下最近3天的日志。",
        "麻烦检查一下第2个任务。",
        "给我看看前20行。",
        "56番のログを見せてください。",
        "直近3日間のログを確認してください。",
        "56번째 로그를 보여 주세요.",
        "최근 3일 로그를 확인해 주세요.",
    ],
)
def test_a_request_to_look_at_something_states_nothing(text: str) -> None:
    """The number in it names a batch or says how much to show."""
    assert Statement.read(text).is_request


@each(
    "text",
    [
        "Add a limit of 20 rows.",
        "Show 20 rows per page.",
        "Check the queue every 30 minutes.",
        "请用制表符缩进。",
        "每次提交前检查一下测试。",
        "请每30分钟检查队列。",
        "インデントはタブを使ってください。",
        "デプロイの前に必ずログを確認してください。",
        "들여쓰기는 탭을 사용해 주세요.",
        "배포 전에 항상 로그를 확인해 주세요.",
    ],
)
def test_a_rule_is_no_request(text: str) -> None:
    """It may be corrected later."""
    assert not Statement.read(text).is_request


MEASURING = """
from holdfast.search.corrections import Earlier, Rarity, Statement

text = "The importer of the billing service writes invoices to the bucket of the northern region every second Monday"
statement = Statement.read(text)
rarity = Rarity.of({term: 1 / (3 + place) for place, term in enumerate(sorted(statement.terms))})
earlier = Earlier.read(statement, rarity, asked=())
print(repr(earlier.measure(statement.topic & Statement.read(text[12:70]).topic)), repr(rarity.weigh(statement.terms)))
"""


def test_the_share_of_a_statement_is_the_same_in_every_process() -> None:
    """A sum of floats depends on its order, and the order of a set differs between processes."""
    found: set[str] = set()
    for seed in map(str, range(8)):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", MEASURING], env=environment, check=True, capture_output=True, text=True
        )
        found.add(done.stdout)
    (measured,) = found
    assert measured
