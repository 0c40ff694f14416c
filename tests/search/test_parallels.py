"""Two statements of one form about two things: both hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.search.corrections import Earlier, Later, Rarity, Statement, are_about_two_things

DATA = Path(__file__).parents[2] / "benchmarks" / "data"
TWO_THINGS = [
    ("My daughter is allergic to peanuts.", "My son is no longer allergic to peanuts."),
    ("Grandma takes 5 mg of Ramipril in the morning.", "Grandpa takes 10 mg of Ramipril in the morning."),
    ("The discount for Nordbank is 12 percent.", "The discount for Suedbank is 15 percent now."),
    ("Anna moved to the platform team.", "Ben moved to the data team."),
    ("Flat 3 pays 900 euros of rent.", "Flat 5 pays 1100 euros of rent."),
    ("Ticket PAY-311 is blocked by the bank.", "Ticket PAY-312 is no longer blocked by the bank."),
    ("My meeting with Karla is on Tuesday at 10:00.", "My meeting with Tim was moved to Thursday at 15:00."),
    ("The cluster in Oslo runs Kubernetes 1.28.", "The cluster in Bergen was upgraded to Kubernetes 1.31."),
    ("Invoices are sent as PDF by email.", "Reminders are no longer sent as PDF by email."),
    ("The EU office closes at 18:00.", "From now on the US office closes at 16:00."),
    ("We decided to use Kafka for the order events.", "We decided to use NATS for the metrics instead of StatsD."),
    ("Remember that Nordbank pays in euros.", "From now on Suedbank pays in dollars."),
    ("Remember that the staging API runs on port 8080.", "Correction: the admin API runs on port 9090."),
    ("Run 1 took 41 seconds.", "Run 2 took 39 seconds."),
    ("web-01 has 16 GB of memory.", "web-02 was upgraded to 32 GB of memory."),
    ("We charge 19% VAT in Germany.", "We charge 20% VAT in Austria."),
    ("My flight to Oslo leaves at 07:40.", "My flight back from Oslo leaves at 19:05."),
    ("Mein Bruder wohnt in Graz.", "Meine Schwester wohnt jetzt in Linz."),
    ("北京机房的带宽是500M。", "上海机房的带宽升到1G了。"),
    ("会议室A能坐12个人。", "会议室B现在能坐20个人。"),
    ("客户张三的折扣是八折。", "客户李四的折扣改成七折。"),
    ("大阪支店の会議は月曜日です。", "東京支店の会議は火曜日に変更になりました。"),
    ("서울 지점 회의는 월요일입니다.", "부산 지점 회의는 화요일로 변경되었습니다."),
]
CHANGES = [
    ("My meeting with Karla is on Tuesday at 10:00.", "My meeting with Karla was moved to Thursday at 15:00."),
    ("We use Kafka for the order events.", "From now on we use NATS for the order events."),
    ("We decided to use Kafka for the order events.", "We decided to use NATS for them instead of Kafka."),
    ("Marta owns the billing module.", "Kofi owns the billing module now."),
    ("Staging uses Postgres 14.", "Staging is on MySQL 8 now."),
    ("The API requires a token.", "The API no longer accepts tokens."),
    ("We send mail through Mailgun.", "Outgoing mail goes through Postmark, Mailgun is no longer used."),
    ("The launch date is 2026-05-04.", "The launch date is 2026-06-15."),
    ("The config lives in /etc/lint/base.toml.", "The config lives in /srv/lint/strict.toml."),
    ("The rate limit is 100 requests per minute.", "I bumped it to 250 requests a minute."),
    ("发布日期是5月4日。", "发布日期推迟到6月15日。"),
    ("周会是每周三下午。", "周会挪到周五上午了。"),
    ("The report is sent to Olga every Monday.", "From now on the report is sent to Viktor every Thursday."),
    ("The CI uses Jenkins with 4 workers.", "From now on the CI uses Buildkite with 6 workers."),
    ("The loan costs 3.1 percent at Sparkasse.", "Correction: the loan costs 2.7 percent at Volksbank."),
    ("The backup runs at 02:00 on atlas.", "Correction: the backup runs at 03:30 on hermes."),
    ("The gym is open from 6 to 22.", "From now on the gym is open from 7 to 21."),
    ("We run 3 replicas with 512 MB.", "From now on we run 5 replicas with 768 MB."),
    ("小宝的钢琴课每周三由陈老师上。", "从现在起小宝的钢琴课每周六由刘老师上。"),
    ("会议室周一9点到11点归我们用。", "会议室改成周三10点到12点归我们用。"),
]


def differ(earlier: str, later: str) -> bool:
    """Return whether two statements are about two things."""
    return are_about_two_things(Statement.read(earlier), Statement.read(later))


@pytest.mark.parametrize(("earlier", "later"), TWO_THINGS)
def test_another_name_and_another_value_are_two_things(earlier: str, later: str) -> None:
    """Then the later statement replaces nothing, whatever it says about a change."""
    assert differ(earlier, later)
    known = Earlier.read(Statement.read(earlier), Rarity.of({}), asked=())
    assert not known.is_superseded(Later.read(later))


@pytest.mark.parametrize(("earlier", "later"), CHANGES)
def test_a_change_is_about_one_thing(earlier: str, later: str) -> None:
    """It differs in its value, which may be a name, or denies what the earlier one says."""
    assert not differ(earlier, later)


def test_no_known_change_is_taken_for_another_thing() -> None:
    """Those of the sheets of facts and of corrections."""
    pairs = [(one["first"], one["second"]) for one in json.loads((DATA / "conflicts.json").read_text())["pairs"]]
    for name in ("corrections.json", "corrections-2.json"):
        for one in json.loads((DATA / name).read_text())["corrections"]:
            pairs.append((one["first"], one["correction"]))
    assert len(pairs) == 90
    assert [pair for pair in pairs if differ(*pair)] == []
