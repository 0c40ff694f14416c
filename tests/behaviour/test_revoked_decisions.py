"""A decision that a later session takes back is not given to a new session as one that holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Engine
from holdfast.messages import Message, Text

NOW = 1_790_000_000_000
HOUR = 3_600_000

REPLACED = {
    "instead of": (
        "We decided to use NATS for the event bus.",
        "We changed our mind: the event bus will be RabbitMQ instead of NATS.",
        "Which event bus do we use?",
    ),
    "moved": ("We agreed that deploys happen on Thursdays.", "Deploys moved to Tuesdays.", "When do we deploy?"),
    "no longer": (
        "We decided to use Postgres for the payout queue.",
        "The payout queue no longer lives in Postgres; it is in SQS.",
        "Where is the payout queue?",
    ),
    "zh, more": ("决定：装修预算是六万。", "装修预算加到八万了。", "装修预算是多少？"),
}
"""A decision, what takes it back with words that say so for certain, and a question about it."""
CORRECTED = {
    "forget": (
        "From now on, use pnpm and not npm.",
        "Forget what I said about pnpm, npm is fine again.",
        "Which package manager do we use?",
    ),
    "scratch": (
        "We decided to keep logs for 30 days.",
        "Scratch the 30 days for logs: the auditors want 90.",
        "How long do we keep logs?",
    ),
    "zh": ("我们决定用Redis做缓存。", "我们改主意了：缓存改用Valkey，不用Redis。", "我们用什么做缓存？"),
    "undo": (
        "We decided to use Elasticsearch for the product search.",
        "Undo that: no Elasticsearch for the product search.",
        "What do we use for the product search?",
    ),
    "off the table": (
        "Decision: the offsite is in Porto.",
        "Porto is off the table for the offsite, the flights are too expensive.",
        "Where is the offsite?",
    ),
    "back on": ("We decided to drop the mobile app.", "The mobile app is back on.", "What about the mobile app?"),
    "kept after all": (
        "We decided to drop support for Python 3.10.",
        "Regarding Python 3.10: we're keeping support for it, two big customers are stuck on it.",
        "Do we support Python 3.10?",
    ),
    "too expensive": (
        "We decided to use Auth0 for the login.",
        "Auth0 turned out too expensive for the login; Keycloak it is.",
        "What do we use for the login?",
    ),
    "a mistake, in two sentences": (
        "From now on we store all timestamps in local time with the zone.",
        "Storing timestamps in local time was a mistake. UTC everywhere, please.",
        "How do we store timestamps?",
    ),
    "what it names is the value": (
        "Decision: backups are retained for 30 days.",
        "Compliance says 30 days of backups isn't enough, retention goes up to 90.",
        "How long are backups retained?",
    ),
    "another date": (
        "We agreed that the party is on June 5.",
        "The party is now on June 12, not June 5.",
        "When is the party?",
    ),
    "zh, another date": (
        "我们把搬家的日期定在八月十五号了。",
        "搬家改成八月二十八号，不是十五号了。",
        "搬家的日期定在几号？",
    ),
    "a short sentence": (
        "We agreed that the newsletter is sent every Wednesday.",
        "The newsletter is paused until further notice.",
        "When is the newsletter sent?",
    ),
    "zh, stopped": (
        "我们决定采用微服务架构拆分订单系统。",
        "订单系统的微服务拆分叫停，先继续用单体。",
        "订单系统用什么架构？",
    ),
    "zh, not again": ("我们决定用MySQL存订单数据。", "订单数据别再用MySQL了，用TiDB。", "订单数据存在哪里？"),
    "zh, not enough": ("决定：日志保留30天。", "日志保留30天不够，保留90天。", "日志保留多久？"),
    "zh, about a test environment": (
        "我们决定用腾讯云部署测试环境。",
        "测试环境不放腾讯云了，迁到阿里云。",
        "测试环境部署在哪里？",
    ),
    "ja": (
        "社内チャットはSlackを使うことに決めました。",
        "社内チャットはやっぱりTeamsにします。",
        "社内チャットは何ですか？",
    ),
    "de": (
        "Wir haben beschlossen, die Handbücher mit Typst zu setzen.",
        "Die Handbücher setzen wir doch lieber mit LaTeX.",
        "Womit setzen wir die Handbücher?",
    ),
}
"""The same with words that only probably do."""
UNRELATED = {
    "a request": "Configure NATS on the event bus host, no longer on localhost.",
    "a question": "Is the event bus no longer NATS?",
    "another thing": "The build cache moved to the second disk.",
    "a plain statement": "NATS has a client for Go.",
}
"""What takes no decision back."""
HOLDING = {
    "another's": (
        "We decided to use Elasticsearch for the product search.",
        "My nephew no longer uses Elasticsearch for his school project.",
    ),
    "another's, all words": (
        "We decided to use Postgres for the job queue.",
        "My nephew no longer uses Postgres for the job queue of his club.",
    ),
    "another thing that ends": (
        "We decided to keep the old logo.",
        "The printer no longer prints the old logo properly.",
    ),
    "another environment": (
        "We agreed that the staging database is backed up every 6 hours.",
        "The production database is backed up every hour now.",
    ),
    "another environment, zh": ("我们决定用腾讯云部署测试环境。", "生产环境不用腾讯云了，改用阿里云。"),
    "somebody's wish": (
        "We decided to use Auth0 for the login.",
        "Jonas wanted to replace Auth0 with Keycloak for the login, but we stay with Auth0.",
    ),
    "a case that may come": (
        "We decided to use Terraform for the cloud setup.",
        "Should we ever replace Terraform for the cloud setup, Pulumi would be my choice.",
    ),
    "carried out": (
        "We decided to use Playwright for the end-to-end tests.",
        "The Selenium code is gone at last, all end-to-end tests run on Playwright instead of Selenium now.",
    ),
    "at home": (
        "We decided to use Terraform for the infrastructure.",
        "For the infrastructure of my homelab I dropped Terraform in favour of Ansible.",
    ),
    "work on it": (
        "We agreed that the SDK gets a changelog.",
        "I've listed the cancelled features in the changelog of the SDK.",
    ),
    "no change, zh": ("我们决定用 Figma 出设计稿。", "确认过了，设计稿继续用 Figma，不换。"),
    "another environment, ja": (
        "本番のデータベースはMySQLにすることに決めました。",
        "開発環境のデータベースはSQLiteに変更しました。",
    ),
    "a reminder": (
        "We decided to use MongoDB for the catalog.",
        "Please don't forget that we use MongoDB for the catalog.",
    ),
}
"""A decision, and what sounds as if it took it back."""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """A memory of one person."""
    with Engine.open(tmp_path, personal=True, background=False) as opened:
        yield opened


def state(engine: Engine, name: str, text: str, *, time: int) -> None:
    """State something in a session of its own, from which the facts are read."""
    session = engine.session(name)
    session.assemble([Message(role="user", parts=(Text(text=text),), timestamp=time)], limit=8_000)
    session.learn()
    engine.work()


def take_back(engine: Engine, decision: str, correction: str) -> None:
    """State a decision, and an hour later in another session what takes it back."""
    state(engine, "first", decision, time=NOW)
    state(engine, "second", correction, time=NOW + HOUR)


def begin(engine: Engine, name: str, text: str) -> str:
    """Return what the first request of a new session says."""
    window = engine.session(name).assemble([{"role": "user", "content": text}], limit=16_000)
    return "\n".join(message.text for message in window.messages)


@pytest.mark.parametrize(("decision", "correction", "question"), REPLACED.values(), ids=REPLACED)
def test_a_decision_that_was_taken_back_is_not_listed(
    engine: Engine, decision: str, correction: str, question: str
) -> None:
    """The correction is a fact, and takes its place; no session is named after what no longer holds."""
    take_back(engine, decision, correction)
    assert [fact.content for fact in engine.session("new").facts()] == [correction]
    for name, text in (("work", "Write the client."), ("question", question)):
        sent = begin(engine, name, text)
        assert correction in sent
        assert sent.count(decision) == sent.count(f"{decision} (may be outdated: see the later statement)")


@pytest.mark.parametrize(("decision", "correction", "question"), CORRECTED.values(), ids=CORRECTED)
def test_a_decision_that_was_probably_taken_back_is_marked(
    engine: Engine, decision: str, correction: str, question: str
) -> None:
    """Both are facts, and a reader sees which of them is the older one."""
    take_back(engine, decision, correction)
    for name, text in (("work", "Write the client."), ("question", question)):
        sent = begin(engine, name, text)
        assert correction in sent
        assert sent.count(decision) == sent.count(f"{decision} (may be outdated: see the later statement)") > 0


@pytest.mark.parametrize("text", UNRELATED.values(), ids=UNRELATED)
def test_a_decision_that_nobody_took_back_is_listed(engine: Engine, text: str) -> None:
    """It stays a fact, and is not marked."""
    decision = "We decided to use NATS for the event bus."
    take_back(engine, decision, text)
    assert decision in [fact.content for fact in engine.session("new").facts()]
    assert "outdated" not in begin(engine, "work", "Write the client.")


@pytest.mark.parametrize(("decision", "later"), HOLDING.values(), ids=HOLDING)
def test_a_decision_is_not_lost_to_a_statement_about_something_else(engine: Engine, decision: str, later: str) -> None:
    """It stays a fact, and neither the overview nor a list of decisions marks it."""
    take_back(engine, decision, later)
    assert decision in [fact.content for fact in engine.session("new").facts()]
    for name, text in (("work", "Write the client."), ("list", "What did we decide?")):
        sent = begin(engine, name, text)
        assert "outdated" not in sent
        assert "(later:" not in sent


def test_a_list_of_decisions_has_every_decision_once(engine: Engine) -> None:
    """In the words that the question lacks too; a decision that a session shows is not repeated as a fact."""
    state(engine, "first", "Decision: invoices are sent as PDF.", time=NOW)
    state(engine, "second", "From now on every pull request needs two reviewers.", time=NOW + HOUR)
    engine.session("third").remember("我们决定用Redis做缓存。")
    block = engine.session("new").recall("What did we decide so far?").block
    for decision in ("invoices are sent as PDF.", "every pull request needs two reviewers.", "我们决定用Redis做缓存。"):
        assert block.count(decision) == 1


def test_a_decision_of_another_month_is_marked_by_what_replaced_it_since(tmp_path: Path) -> None:
    """The correction is shown with it, although it is not from the month of the question."""
    decision, correction, _ = CORRECTED["undo"]
    with Engine.open(tmp_path, personal=True, background=False, clock=lambda: NOW) as engine:
        state(engine, "first", decision, time=NOW - 32 * 24 * HOUR)
        state(engine, "second", correction, time=NOW - HOUR)
        block = engine.session("new").recall("What did we decide last month?").block
    lines = [line for line in block.splitlines() if decision in line]
    assert lines
    assert all("outdated" in line or "(later:" in line for line in lines)


def test_the_decisions_of_the_last_session_are_no_chatter(engine: Engine) -> None:
    """Facts of other sessions, and what else was said, are left out."""
    state(engine, "first", "Decision: invoices are sent as PDF.", time=NOW)
    session = engine.session("second")
    texts = ("How many grams are in an ounce?", "Decision: the offsite is in Porto.", "Write a haiku about a printer.")
    history = [Message(role="user", parts=(Text(text=text),), timestamp=NOW + HOUR) for text in texts]
    session.assemble(history, limit=8_000)
    session.learn()
    engine.work()
    found = engine.session("new").recall("Which decisions did we make in the last session?")
    assert "Porto" in found.block
    assert "PDF" not in found.block
    assert "haiku" not in found.block


def test_a_session_that_only_asked_is_not_in_the_overview(engine: Engine) -> None:
    """Its title would be a question about other sessions."""
    state(engine, "first", "Decision: invoices are sent as PDF.", time=NOW)
    begin(engine, "asking", "What did we decide?")
    assert "What did we decide?" not in begin(engine, "work", "Write the client.")


def test_the_order_of_reading_does_not_matter(engine: Engine) -> None:
    """If the session with the correction is imported first, its words take nothing back that came after them."""
    decision, correction, _ = REPLACED["instead of"]
    state(engine, "second", correction, time=NOW)
    state(engine, "first", decision, time=NOW + HOUR)
    assert [fact.content for fact in engine.session("new").facts()] == [decision]


@pytest.mark.parametrize(
    "text",
    [
        "Remember that the gate code is 1122. Wait, no, 2211.",
        "Decision: we ship on June 5. Hmm, no, make that June 12.",
        "Remember that the rent is 900 euros. Sorry, 950.",
        "Please remember that Karla is the owner of billing. Or was it Tim? Yes, Tim.",
        "Every pull request must have two approvals. Just kidding, one is enough.",
        "We decided to use Redis for the cache. No we didn't, I mixed that up.",
        "We moved the API to port 9090. And moved it back an hour later.",
        "请记住会议在周三。说错了，是周四。",
        "我们决定用Redis做缓存。算了，不用了。",
    ],
)
def test_what_the_next_sentence_takes_back_is_no_fact(engine: Engine, text: str) -> None:
    """The passage has both sentences, and a new session that asks gets them."""
    state(engine, "first", text, time=NOW)
    assert engine.session("first").facts() == []


@pytest.mark.parametrize(
    "text",
    [
        "We decided to use Godot for the game.",
        "We decided to use Redis for this story.",
        "Remember that the play begins at eight.",
        "Decision: the sample app uses Svelte.",
        "From now on nobody ever pushes to main directly.",
        "We decided to use the toy example store as the demo shop.",
    ],
)
def test_a_decision_about_a_game_or_a_story_is_a_fact(engine: Engine, text: str) -> None:
    """Stories are tasks in many teams."""
    state(engine, "first", text, time=NOW)
    assert [fact.content for fact in engine.session("first").facts()] == [text]


@pytest.mark.parametrize(
    "rest",
    [
        "No exceptions.",
        "Wait for Tim before you open it.",
        "Sorry, it took me 3 hours to answer.",
        "No, keep it for now.",
        "Actually it was cheaper than the last one.",
        "Make that table wider.",
        "Rather short question: who has the beamer?",
        "Just kidding about the cake yesterday.",
        "算了，不早了，我先睡了。",
    ],
)
def test_what_the_next_sentence_does_not_take_back_is_a_fact(engine: Engine, rest: str) -> None:
    """Not each "no" takes something back."""
    stated = "Remember that the gate code is 1122."
    state(engine, "first", f"{stated} {rest}", time=NOW)
    assert [fact.content for fact in engine.session("first").facts()] == [stated]


def test_what_the_next_message_takes_back_is_no_fact(engine: Engine) -> None:
    """And a new session gets both messages."""
    session = engine.session("first")
    texts = ("Remember that the code of the gate is 1122.", "Wait, no, it is 2211.")
    session.assemble([Message(role="user", parts=(Text(text=text),), timestamp=NOW) for text in texts], limit=8_000)
    session.learn()
    engine.work()
    assert session.facts() == []


@pytest.mark.parametrize(
    "text",
    [
        "Imagine you are a pirate. From now on, answer only in rhymes for this story.",
        "For this exercise assume the following. From now on the VAT is 25 percent.",
        "The old handbook said this. Every release must have three signatures. We threw it away.",
        "Here is a scene. Decision: the queen will marry the baker.",
        "From now on, write all replies in JSON for the next three examples.",
        "记住，这只是一个例句：公司总部在杭州。",
    ],
)
def test_a_story_or_an_exercise_states_no_fact(engine: Engine, text: str) -> None:
    """Nor does what others wrote."""
    state(engine, "first", text, time=NOW)
    assert engine.session("first").facts() == []


@pytest.mark.parametrize(
    "later",
    [
        "We decided to use NATS for the metrics instead of StatsD.",
        "We considered to use NATS instead of Kafka for the order events, but stayed with Kafka.",
        "Competitor X decided to use NATS instead of Kafka for the order events.",
        "Our intern believes we should use NATS instead of Kafka for the order events.",
        "Use NATS instead of Kafka for the order events in the toy example.",
    ],
)
def test_a_decision_about_something_else_takes_nothing_back(engine: Engine, later: str) -> None:
    """Nor does one of others, or one that was not taken."""
    decision = "We decided to use Kafka for the order events."
    state(engine, "first", decision, time=NOW)
    state(engine, "second", later, time=NOW + HOUR)
    assert decision in [fact.content for fact in engine.session("new").facts()]
    assert "Kafka" in engine.session("new").recall("Which message system do the order events use?").block


def test_a_decision_holds_again_if_what_took_it_back_is_forgotten(engine: Engine) -> None:
    """Nobody has forgotten the decision."""
    decision, correction, question = REPLACED["instead of"]
    state(engine, "first", decision, time=NOW)
    state(engine, "second", correction, time=NOW + HOUR)
    assert [fact.content for fact in engine.session("new").facts()] == [correction]
    engine.session("second").forget()
    assert [fact.content for fact in engine.session("new").facts()] == [decision]
    assert "NATS" in engine.session("new").recall(question).block
