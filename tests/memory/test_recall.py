"""Recall: what comes back for a question, under a cap, and why nothing does."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from benchmarks.archive_rows import make_rows
from holdfast import Engine
from holdfast.embed.base import CachedEmbedder
from holdfast.embed.static import JointEmbedder, StaticEmbedder
from holdfast.index.vectors import quantise
from holdfast.memory.deadlines import Deadlines
from holdfast.memory.exclusion import exclude
from holdfast.memory.newest import Newest
from holdfast.memory.passage_search import find_passages, search
from holdfast.memory.query import RecallQuery, Shown, order_of
from holdfast.memory.quoter import quote_best
from holdfast.memory.recall import ALL_HERE_IN_WINDOW, ALL_IN_WINDOW, SHOWN, recall
from holdfast.messages import Message, Text, ToolCall, ToolResult
from holdfast.search.fuse import Order, Recipe, Weighted
from holdfast.search.relevance import GENEROUS, NORMAL, SHY
from holdfast.settings import Embedding, Settings
from holdfast.store.base import FactRow, Scope, Select, VectorRow
from holdfast.store.sqlite import SqliteStore
from holdfast.tokens import count_text
from support.conversations import MARKS
from support.embed_models import static_folder
from support.waiting import UNHURRIED

SCOPE = Scope(session="s")
MOMENT = 1_770_733_860_000  # 2026-02-10 14:31 UTC
MINUTE = 60_000
NAMES = ("Alder", "Birch", "Cedar", "Dogwood", "Elm", "Fir", "Ginkgo", "Hazel", "Ivy", "Juniper") * 6


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """An empty store."""
    with SqliteStore(tmp_path / "holdfast.db") as store:
        yield store


def say(store: SqliteStore, *texts: str, scope: Scope = SCOPE, role: str = "user", step: int = MINUTE) -> list[int]:
    """Archive messages, one every `step` milliseconds."""
    messages = [
        Message(role=role, parts=(Text(text=text),), timestamp=MOMENT + step * place)  # type: ignore[arg-type]
        for place, text in enumerate(texts)
    ]
    return store.add_messages(make_rows(messages, scope=scope))


def asking(*texts: str, **more: Any) -> RecallQuery:
    """A question to the session."""
    return replace(RecallQuery(texts=texts, scope=SCOPE), **more)


def embed(store: SqliteStore, embedder: CachedEmbedder | StaticEmbedder | JointEmbedder) -> None:
    """Give every passage its vectors."""
    rows = [
        VectorRow(
            space=embedder.space, passage=each.number, vectors=quantise(embedder.embed([each.text], kind="passage"))
        )
        for each in store.without_vectors(embedder.space, limit=1000)
    ]
    store.add_vectors(rows)


def test_archived_messages_come_back(store: SqliteStore) -> None:
    """The block holds the passage that answers, with its moment and its speaker, and counts its tokens."""
    say(store, "We deploy to Frankfurt on Tuesdays.", "Lunch was good today, thanks.")
    found = recall(store, asking("Where do we deploy?"))
    assert "[2026-02-10 user] We deploy to Frankfurt on Tuesdays." in found.block
    assert found.tokens == count_text(found.block)
    assert found.hits[0].parts.keyword > 0
    assert not found.reason


@pytest.mark.parametrize(
    ("answer", "comes"), [("7959677", True), ("7959677 " + "and more of the like " * 8, False)], ids=["curt", "long"]
)
def test_a_curt_answer_comes_with_its_question(store: SqliteStore, answer: str, *, comes: bool) -> None:
    """What a tool answered holds no word of the question; it is quoted behind one that does, where it is short."""
    say(store, *(f"Filler number {n} about nothing." for n in range(30)))
    say(store, "How many rows does the obsidian ledger have to move?")
    call = ToolCall(id="c", name="bash", arguments={"command": "psql -At -f count.sql"})
    result = ToolResult(call_id="c", content=(Text(text=answer),))
    turn = [Message(role="assistant", parts=(call,)), Message(role="tool", parts=(result,))]
    counted = store.add_messages(make_rows(turn, scope=SCOPE))[-1]
    say(store, "Thanks.", "42")
    question = asking("How many rows were there in the ledger?", cap=300)
    found = recall(store, question)
    assert (answer in found.block) == comes
    assert "42" not in found.block.split()
    assert answer not in recall(store, replace(question, neighbours=0)).block
    assert answer not in recall(store, replace(question, shown=Shown(messages={counted}))).block


def test_a_question_about_something_else_gets_no_block(store: SqliteStore) -> None:
    """Memory keeps silent, and gives the reason."""
    say(store, "We deploy to Frankfurt on Tuesdays.", "Lunch was good today, thanks.")
    question = asking("Explain quantum chromodynamics to a child")
    found = recall(store, question)
    assert found.block == ""
    assert found.reason.startswith(
        "no fact, and no passage of this conversation, matches the question (archive.cross_session"
    )
    assert recall(store, replace(question, across=True)).reason == "no stored fact or passage matches the question"


@pytest.mark.parametrize(
    ("said", "question"),
    [
        ("We deploy to Frankfurt on Tuesdays.", "When do we deploy to Frankfurt?"),
        ("我们每周二部署到法兰克福。", "我们什么时候部署到法兰克福？"),
        ("デプロイ先はフランクフルトです。", "デプロイ先はどこですか？"),
        ("배포 서버는 프랑크푸르트에 있습니다.", "배포 서버는 어디에 있습니까?"),
    ],
)
def test_a_match_in_the_window_is_the_reason_for_no_block(store: SqliteStore, said: str, question: str) -> None:
    """The question itself is in the window too, and is no match; neither is a message that is never recalled."""
    numbers = say(store, said, "Lunch was good today, thanks.", question)
    query = asking(question, across=True, shown=Shown(messages=set(numbers)))
    assert recall(store, query).reason == "the best match is already in the window"
    rows = store.read_messages(Select(scope=SCOPE, ids=(numbers[0],)))
    exclude(store, rows, excluded=True, time=MOMENT)
    assert recall(store, query).reason == "no stored fact or passage matches the question"


@pytest.mark.parametrize(
    ("said", "question"),
    [
        ("We deploy to Frankfurt on Tuesdays.", "When do we deploy to Frankfurt?"),
        ("我们每周二部署到法兰克福。", "我们什么时候部署到法兰克福？"),
        ("デプロイ先はフランクフルトです。", "デプロイ先はどこですか？"),
        ("배포 서버는 프랑크푸르트에 있습니다.", "배포 서버는 어디에 있습니까?"),
    ],
)
def test_nothing_is_searched_if_the_window_shows_everything(store: SqliteStore, said: str, question: str) -> None:
    """Of an automatic recall. What the window does not show, a fact or a passage, is found."""
    first, *shown = say(store, said, "Lunch was good today, thanks.", question)
    query = asking(question, is_automatic=True, shown=Shown(messages={first, *shown}))
    assert recall(store, query).reason == ALL_HERE_IN_WINDOW
    assert recall(store, replace(query, across=True)).reason == ALL_IN_WINDOW
    assert said in recall(store, replace(query, shown=Shown(messages=set(shown)))).block
    store.add_facts([FactRow(scope=SCOPE, id="f", type="decision", content=said, time=MOMENT)])
    assert said in recall(store, query).block


@pytest.mark.parametrize(
    ("earlier", "question"),
    [
        ("On which host does authentication listen?", "On which port does authentication listen?"),
        ("认证服务监听哪台主机？", "认证服务监听哪个端口？"),
    ],
)
def test_an_earlier_question_in_the_window_is_no_match(store: SqliteStore, earlier: str, question: str) -> None:
    """It has the words of the next one, and no answer."""
    numbers = say(store, earlier, "Lunch was good today, thanks.", question)
    query = asking(question, across=True, shown=Shown(messages=set(numbers)))
    assert recall(store, query).reason == "no stored fact or passage matches the question"


@pytest.mark.parametrize("question", ["How do whales breathe?", "Tell me everything about whales", "鲸鱼怎么呼吸？"])
def test_a_question_is_no_match_for_itself(store: SqliteStore, question: str) -> None:
    """It is archived and in the window before memory is asked."""
    numbers = say(store, "We deploy to Frankfurt on Tuesdays.", question)
    query = asking(question, across=True, shown=Shown(messages=set(numbers)))
    assert recall(store, query).reason == "no stored fact or passage matches the question"


@pytest.mark.parametrize(
    ("said", "question"),
    [
        ("The spare key hangs behind the boiler.", "Where do I look for a key once I locked myself out at midnight?"),
        ("备用钥匙挂在锅炉后面。", "半夜把自己锁在门外，到什么地方去找能开门的钥匙？"),
    ],
)
def test_a_question_does_not_raise_what_an_answer_needs(store: SqliteStore, said: str, question: str) -> None:
    """The question has all of its own words: an answer with one of them is weak next to it, but not next to others."""
    say(store, said, *(f"Page {number} of the novel is about sailing." for number in range(20)))
    numbers = say(store, question)
    assert said in recall(store, asking(question)).block
    assert said in recall(store, asking(question, shown=Shown(messages=set(numbers)))).block


@pytest.mark.parametrize(
    ("said", "question"),
    [
        (
            "The database listens on port 6543. Passwords are hashed with Argon2id. Priya is in charge of billing.",
            "Who should I ask about invoices?",
        ),
        ("计费模块由普丽娅负责，预发数据库监听 6543 端口，密码用 Argon2id 哈希。", "发票的事情我该问谁？"),
    ],
)
@pytest.mark.parametrize("times", [1, 12])
def test_a_question_may_be_asked_again_in_every_session(
    store: SqliteStore, said: str, question: str, times: int
) -> None:
    """Its earlier copies have all of its words and no answer. They take no room, and do not raise what one needs."""
    say(store, said, *(f"Page {number} of the novel is about sailing." for number in range(20)))
    before = recall(store, asking(question, across=True))
    for number in range(times):
        scope = Scope(session=f"later {number}")
        say(store, question, scope=scope)
        say(store, "I do not know; nothing in the repository says so.", scope=scope, role="assistant")
    again = recall(store, asking(question, across=True))
    assert said in before.block
    assert said in again.block
    assert question not in again.block
    assert again.confidence == pytest.approx(before.confidence, abs=0.1)


def test_a_question_is_left_out_with_vectors_too(store: SqliteStore, tmp_path: Path) -> None:
    """A copy of the question is the nearest vector of all, which says nothing about the answer."""
    embedder = StaticEmbedder.from_folder(static_folder(tmp_path / "model"))
    say(store, "my kitten sleeps", "quarter revenue", *(f"a dog called {name}" for name in NAMES[:10]))
    embed(store, embedder)
    question = "where is the cat?"
    before = recall(store, asking(question, across=True), embedder=embedder)
    for number in range(7):
        say(store, question, scope=Scope(session=f"later {number}"))
    embed(store, embedder)
    again = recall(store, asking(question, across=True), embedder=embedder)
    assert "my kitten sleeps" in again.block
    assert question not in again.block
    assert again.confidence == pytest.approx(before.confidence, abs=0.1)


def test_the_answer_of_that_time_comes_with_a_question_that_was_asked_before(store: SqliteStore) -> None:
    """A short reply has no word of the question; it is quoted because it followed the same question."""
    say(store, *(f"Filler number {number} about nothing." for number in range(30)))
    say(store, "How many rows does the obsidian ledger have to move?")
    say(store, "7959677.", role="assistant")
    say(store, "Thanks.")
    assert "7959677" in recall(store, asking("How many rows does the obsidian ledger have to move?")).block


def test_a_question_about_questions_finds_them(store: SqliteStore) -> None:
    """They answer it."""
    say(store, "Where do we deploy the shop to?")
    say(store, "Frankfurt, on Tuesdays.", role="assistant")
    say(store, *(f"The shop has the {name} banner in week {week}." for week, name in enumerate(NAMES)))
    assert "Where do we deploy" in recall(store, asking("Which question did I ask about the shop?", cap=300)).block


def test_an_answer_is_quoted_although_its_message_also_corrects_another(store: SqliteStore) -> None:
    """The sentence that corrects a worse quote does not take the place of the one that answers the question."""
    numbers = say(
        store,
        "The orchestra rehearses on Mondays. We talked about version 24559 of the importer.",
        f"We talked about version 41790 of the importer. {'Nobody has read the notes of the review so far. ' * 12}"
        "The rehearsals of the choir are in the canteen now.",
    )
    found = find_passages(store, asking("Where are the rehearsals of the choir?"), [], Deadlines.start(None, timer=int))
    older, later = [found.candidates.messages.tolist().index(number) for number in numbers]
    deadline = Deadlines.start(None, timer=int).end
    quotes = quote_best(found, room=1_000, known=[], deadline=deadline)
    assert [quote.passage for quote in quotes] == [later, older]
    corrections = replace(found.with_order(np.array([later])), quote_weights={"version": 1.0, "importer": 1.0})
    newest = Newest(found=corrections, passages={older: [later]})
    inserted = newest.insert(quotes, room=1_000, known=[], deadline=deadline)
    assert "canteen" in next(quote.text for quote in inserted if quote.passage == later)


def test_a_search_lists_the_question_too(store: SqliteStore) -> None:
    """Somebody who looks for what they asked finds it."""
    say(store, "We deploy to Frankfurt on Tuesdays.", "Where do we deploy?")
    assert "Where do we deploy?" in [hit.text for hit in search(store, asking("Where do we deploy?"))]


@pytest.mark.parametrize(
    "text", ["Thanks!", "go on", "Good morning", "👍", "谢谢", "继续", "ありがとう", "ok great", "Fine."]
)
def test_a_message_that_asks_nothing_gets_no_block(store: SqliteStore, text: str) -> None:
    """Also if it comes after a question, which has its answer already."""
    say(store, "Thanks for the Frankfurt notes, go on, good morning.", "谢谢，继续部署到法兰克福。")
    found = recall(store, asking("Where do we deploy, Frankfurt?", text))
    assert found.block == ""
    assert found.reason == "the message asks nothing"


def test_a_weak_match_gets_a_few_lines(store: SqliteStore) -> None:
    """One word in common may be chance, or all that the question and its answer share."""
    say(store, *(f"The {name} release went out in week {week}." for week, name in enumerate(NAMES)))
    say(store, "The canary gets 5 percent of the traffic for 40 minutes.")
    question = asking("For how many minutes do only some users see a change before everybody does?")
    found = recall(store, question)
    assert "40 minutes" in found.block
    assert 0 < found.tokens <= NORMAL.min_tokens
    shy = recall(store, replace(question, eagerness=SHY))
    assert (shy.block, shy.reason) == ("", 'a weak match was left out, because recall.eagerness is "shy"')


def test_a_strong_match_gets_what_it_needs(store: SqliteStore) -> None:
    """However shy recall is."""
    say(store, *(f"The {name} release went out in week {week}." for week, name in enumerate(NAMES * 5)))
    say(store, *(f"Step {number} of the Frankfurt migration moves the ledger tables." for number in range(40)))
    question = asking("Which steps of the Frankfurt migration move the ledger tables?")
    sizes = [recall(store, replace(question, eagerness=each)).tokens for each in (SHY, NORMAL, GENEROUS)]
    assert min(sizes) > 2 * NORMAL.min_tokens
    assert sizes[0] == sizes[2]


def test_an_empty_memory_prints_a_note(store: SqliteStore) -> None:
    """No rows, no block, no error; and no question finds nothing."""
    assert recall(store, asking("anything")).reason
    assert recall(store, asking()).reason
    assert search(store, asking()) == []


def test_quotes_are_in_order_oldest_first(store: SqliteStore) -> None:
    """Whatever the rank, a block is read like a conversation."""
    say(store, "The port is 8080.", "Which port? The port of the port service.", "Now the port is 9090.")
    block = recall(store, asking("port")).block
    assert block.index("8080") < block.index("Which port") < block.index("9090")


def test_passages_of_one_day_share_their_date(store: SqliteStore) -> None:
    """The date stands once before what was said on the same day of a session."""
    say(store, "The port is 8080.", "The port was 80.", step=1000)
    block = recall(store, asking("port")).block
    assert "[2026-02-10 user] The port is 8080.\n[user] The port was 80.\n</detail>" in block


def test_what_the_model_sees_is_not_recalled(store: SqliteStore) -> None:
    """Messages in the window stay out of the block."""
    first, _ = say(store, "The port is 8080.", "The port was 80 before.")
    found = recall(store, asking("port", shown=Shown(messages=[first])))
    assert [hit.text for hit in found.hits] == ["The port was 80 before."]


def test_other_sessions_are_seen_on_request_only(store: SqliteStore) -> None:
    """A session is its own; the agent's others are seen across."""
    say(store, "The port is 8080.", scope=Scope(session="other"))
    assert not recall(store, asking("port")).block
    assert recall(store, asking("port", across=True)).block
    say(store, "The port is 1234.", scope=Scope(tenant="else", session="s"))
    assert "1234" not in recall(store, asking("port", across=True)).block


@pytest.mark.parametrize("cap", [0, 1, 20, 40, 60, 100, 500, 4000])
def test_the_cap_holds(store: SqliteStore, cap: int) -> None:
    """Tags, headers, facts and quotes together are never more than the cap."""
    say(store, *(f"The port of service {number} is {8000 + number}. 端口是{8000 + number}。" for number in range(60)))
    store.add_facts([FactRow(scope=SCOPE, id="f", type="config", content="The port of the gateway is 443.", time=1)])
    found = recall(store, asking("which port 端口", cap=cap))
    assert count_text(found.block) == found.tokens <= cap
    assert bool(found.block) != bool(found.reason)


def test_facts_come_before_passages(store: SqliteStore) -> None:
    """A fact that answers is in the block, within its share."""
    say(store, "The port is 8080.")
    store.add_facts([FactRow(scope=SCOPE, id="f", type="config", content="The port is 8080.", time=1)])
    found = recall(store, asking("which port is it?"))
    assert "<knowledge>\n- [config] The port is 8080.\n</knowledge>" in found.block
    assert found.facts[0].fact.id == "f"


def test_the_words_that_prove_a_fact_are_not_quoted_again(store: SqliteStore) -> None:
    """A passage that says no more than the quote of a fact in the block is left out."""
    text = "It moved to port 7654."
    say(store, text, "The port of the gateway is discussed at length on another day.")
    output = FactRow(scope=SCOPE, id="f", type="config", content=f"the API: {text}", quote=text, time=1)
    store.add_facts([output])
    found = recall(store, asking("which port did it move to"))
    assert found.facts[0].fact.id == "f"
    assert text not in {hit.text for hit in found.hits}


def test_a_fact_does_not_hide_the_rest_of_its_message(store: SqliteStore) -> None:
    """A passage of which half is a fact is quoted where the other half is about the question."""
    fact = "Remember that the beta launch happens on May 5."
    say(store, f"The beta launch code is PURPLE-RHINO. {fact}", f"So be it: {fact}")
    store.add_facts([FactRow(scope=SCOPE, id="f", type="decision", content=fact, quote=fact, time=1)])
    found = recall(store, asking("What is the beta launch code?"))
    assert found.facts
    assert [hit.text for hit in found.hits] == [f"The beta launch code is PURPLE-RHINO. {fact}"]


def test_a_fact_is_recalled_though_no_passage_is_relevant(store: SqliteStore) -> None:
    """Facts have a test of their own."""
    say(store, "Lunch was good today, thanks.")
    store.add_facts([FactRow(scope=SCOPE, id="f", type="config", content="The gateway port is 443", time=1)])
    found = recall(store, asking("gateway port"))
    assert "<knowledge>" in found.block
    assert "<detail>" not in found.block


def test_the_newest_message_weighs_most(store: SqliteStore) -> None:
    """Earlier messages of the user help, the last one decides."""
    say(store, "The cat is called Miro.", "The port is 8080.")
    assert search(store, asking("the cat", "the port"))[0].text == "The port is 8080."
    assert {hit.text for hit in search(store, asking("the cat", "the port"))} == {
        "The cat is called Miro.",
        "The port is 8080.",
    }


def test_a_recalled_block_is_not_found_again(store: SqliteStore) -> None:
    """What was recalled and came back in a message is not archived, so it cannot be recalled (I7)."""
    say(store, "The port is 8080.")
    block = recall(store, asking("port"), marks=MARKS).block
    message = Message(role="user", parts=(Text(text=f"{block}\n\nThanks for that, noted."),))
    store.add_messages(make_rows([message], scope=SCOPE, marks=MARKS))
    assert [hit.text for hit in search(store, asking("port 8080")) if "8080" in hit.text] == ["The port is 8080."]


def test_vectors_find_what_words_do_not(store: SqliteStore, tmp_path: Path) -> None:
    """With a static model a question finds what means the same, and the parts say so."""
    say(store, "my kitten", "quarter revenue", "a dog")
    embedder = CachedEmbedder(JointEmbedder([StaticEmbedder.from_folder(static_folder(tmp_path / "model"))]))
    embed(store, embedder)
    best = search(store, asking("cat"), embedder=embedder)[0]
    assert best.text == "my kitten"
    assert best.parts.vector == pytest.approx(1)
    assert best.parts.share == 0
    assert "my kitten" in recall(store, asking("cat"), embedder=embedder).block


def test_a_search_for_a_word_that_is_nowhere_finds_nothing(store: SqliteStore, tmp_path: Path) -> None:
    """Of all passages one is always the nearest, but that alone is no match; a score says how good the match is."""
    say(store, "my kitten", "quarter revenue", "a dog", "The berth for the ferry is 7.")
    words = ("[UNK]", "xyzzy", "kitten", "dog", "revenue", "quarter", "ferry")
    vectors = np.array(
        [[0, 0, 1, 0], [1, 0, 0, 0], [0.3, 1, 0, 0], [0, 1, 0.2, 0], [0, 0, 1, 1], [0, 0, 0, 1], [0, 1, 1, 0]],
        np.float32,
    )
    model = static_folder(tmp_path / "model", vectors, words=words)
    embedder = CachedEmbedder(JointEmbedder([StaticEmbedder.from_folder(model)]))
    embed(store, embedder)
    assert search(store, asking("xyzzy"), embedder=embedder) == []
    assert search(store, asking("berth"), embedder=embedder)[0].score >= 1
    assert search(store, asking("berth xyzzy"), embedder=embedder)[0].score < 0.7


def test_a_search_for_one_chinese_word_finds_its_english_counterpart(store: SqliteStore) -> None:
    """As a whole question does."""
    say(store, "The gateway listens on port 8443.", "Lunch was good today.")
    assert [hit.text for hit in search(store, asking("端口"))] == ["The gateway listens on port 8443."]


def test_static_vectors_are_not_trusted_with_scripts_without_spaces(store: SqliteStore, tmp_path: Path) -> None:
    """For a Chinese question words decide, whatever a static table says."""
    say(store, "猫在哪里", "dog dog dog")
    embedder = StaticEmbedder.from_folder(static_folder(tmp_path / "model"))
    embed(store, embedder)
    assert search(store, asking("猫在哪"), embedder=embedder)[0].text == "猫在哪里"


def test_a_chinese_near_miss_gets_a_short_block(store: SqliteStore, tmp_path: Path) -> None:
    """A few words in common are enough for a few lines, also if the vectors do not know the script."""
    say(store, "发布窗口改到周四晚上八点", "今天午饭吃面条", "猫在睡觉", "会议室在三楼")
    embedder = StaticEmbedder.from_folder(static_folder(tmp_path / "model"))
    embed(store, embedder)
    near = recall(store, asking("周四几点开始发布新版本软件"), embedder=embedder)
    assert near.confidence < NORMAL.high
    assert "周四晚上八点" in near.block
    assert near.tokens <= NORMAL.min_tokens


def test_settings_choose_the_order() -> None:
    """Fusion, weights, decay, the least score and variety come from the settings."""
    given = {
        "search": {
            "fusion": "weighted",
            "vector_weight": 0.6,
            "bm25_weight": 0.4,
            "time_decay": 0.9,
            "mmr": {"enabled": True},
        },
        "recall": {"min_score": 0.5},
    }
    assert order_of(msgspec.convert(given, Settings)) == Order(
        fusion="weighted", weighted=Weighted(vector=0.6, keyword=0.4, decay=0.9, least=0.5), variety=0.7
    )
    assert order_of(Settings()) == Order()


@pytest.mark.parametrize("order", [Order(fusion="weighted"), Order(fusion="rrf"), Order(variety=0.5)])
def test_every_order_answers(store: SqliteStore, order: Order) -> None:
    """Each way of ordering finds the passage and stays within the cap."""
    say(store, "The port is 8080.", "The port is 8080!", "Lunch is at noon.")
    found = recall(store, asking("The port is 8080", order=order))
    assert "8080" in found.block
    assert found.tokens <= 4000


def test_variety_parts_copies(store: SqliteStore) -> None:
    """With variety asked for, a near copy stands behind another passage."""
    say(store, "The port is 8080 for the api.", "The port is 8080 for the api!", "A port is a harbour too.")
    plain = [hit.text for hit in search(store, asking("port 8080 api"))]
    varied = [hit.text for hit in search(store, asking("port 8080 api", order=Order(variety=0.3)))]
    assert plain[1].endswith("api!") or plain[0].endswith("api!")
    assert varied[1] == "A port is a harbour too."


def _long(words: Sequence[str]) -> str:
    return " ".join(f"Sentence {place} says {word} and little else of note." for place, word in enumerate(words))


def test_of_a_long_message_the_right_stretch_is_quoted(store: SqliteStore) -> None:
    """A reply of many thousand characters does not eat the cap."""
    words = ["nothing"] * 40 + ["frankfurt"] + ["nothing"] * 40
    say(store, _long(words), role="assistant")
    say(store, *(f"Question {number} about frankfurt?" for number in range(4)))
    found = recall(store, asking("frankfurt"))
    quoted = next(hit.text for hit in found.hits if hit.speaker == "assistant")
    assert "frankfurt" in quoted
    assert len(quoted) < 1000


def test_of_a_long_message_the_sentence_with_the_rare_word_is_quoted(store: SqliteStore) -> None:
    """Four words of the question that are everywhere tell less than two that are nowhere else."""
    filler = [f"Nothing else happened on day {number} of that long month at sea. " for number in range(16)]
    common = "The server wrote the file of the log to the disk. "
    rare = "A marmoset chewed through the yellow cable there. "
    say(store, "".join([*filler[:4], common, *filler[4:11], rare, *filler[11:]]))
    say(store, *(f"The server wrote log file {number} to disk {number % 3}." for number in range(80)))
    found = recall(store, asking("Did a marmoset chew on the server while it wrote the log file to disk?", cap=300))
    assert any("marmoset chewed" in hit.text for hit in found.hits)


@pytest.mark.parametrize("words", [0, 60])
def test_a_block_has_more_short_quotes_and_fewer_long_ones(store: SqliteStore, words: int) -> None:
    """The same block made without regard to their length has fewer short ones, and more long ones."""
    filler = [" ".join(f"{chr(97 + place % 26)}x{number}{place}" for place in range(words)) for number in range(60)]
    names = ["billing", *(f"{letter}ount" for letter in "bcdfghjklmnpr")]
    messages = [f"The {names[number % 14]} service uses port {8000 + number}. {filler[number]}" for number in range(60)]
    say(store, *messages)
    counts, plain = (
        len(recall(store, asking("Which port does the billing service use?", order=order), marks=MARKS).hits)
        for order in (Order(), Order(recipe=Recipe(brevity=0.0, plenty=0.0)))
    )
    assert counts < plain if words else counts > plain


@pytest.mark.parametrize(
    "pasted",
    [
        " ".join(f"harbour{number}" for number in range(80)),
        "".join(map(chr, range(0x4E00, 0x4E00 + 90))),
    ],
    ids=["words", "chinese"],
)
def test_a_long_text_that_another_session_has_too_can_be_asked(store: SqliteStore, pasted: str) -> None:
    """Terms that only other sessions have count as absent: there may be more of them than terms that are scored."""
    say(store, pasted, scope=Scope(session="other"))
    say(store, "The office is in Oslo.")
    assert recall(store, asking(pasted)).hits == ()


@pytest.mark.parametrize(
    ("text", "fact", "says"),
    [
        ("Which port has the gateway?", "The gateway port is 443.", "1 fact and 1 passage match the question"),
        ("Which port has the gateway?", "", "1 passage matches the question"),
        ("网关的端口是多少？", "", "1 passage matches the question"),
        ("Who paints the lighthouse?", "", ""),
    ],
)
def test_a_block_says_what_it_was_made_for(store: SqliteStore, text: str, fact: str, says: str) -> None:
    """In words that quote neither the question nor what was found: both may be forgotten."""
    say(store, "The gateway 网关的端口 listens on port 8443.")
    if fact:
        store.add_facts([FactRow(scope=SCOPE, id="f", type="config", content=fact, time=1)])
    assert recall(store, asking(text), marks=MARKS).match == says


def test_a_question_that_needs_the_messages_before_it_says_so(store: SqliteStore) -> None:
    """It alone has no word of what is found."""
    say(store, "The staging gateway listens on port 8443.")
    found = recall(store, asking("Which port has the staging gateway?", "And what was it again?"), marks=MARKS)
    assert found.match == "1 passage matches the question and what was said before it"


@pytest.mark.parametrize(("cap", "is_known"), [(74, False), (600, True)])
def test_the_reason_says_what_keeps_the_answer_out(store: SqliteStore, cap: int, *, is_known: bool) -> None:
    """Earlier blocks are named only if they have the answer, and not if there is no room for it."""
    answer = "The staging database listens on port 6543."
    say(store, answer, "The kettle in the kitchen is blue.")
    shown = Shown(blocks=["The kettle in the kitchen is blue."])
    if is_known:
        shown = Shown(blocks=[*shown.blocks, answer])
    found = recall(store, asking("Which port does the staging database listen on?", cap=cap, shown=shown))
    assert found.block == ""
    assert (found.reason == SHOWN) == is_known
    assert is_known or found.reason == "nothing fits into 74 tokens"


FIRST = "The retry limit of the importer is 12."
LAST = "The retry limit of the importer was raised to 14."
NOTES = f"{FIRST}\n\n{'The rest of the notes is about something else, and is long. ' * 70}\n\n{LAST}"


@pytest.mark.parametrize("has_fact", [False, True], ids=["alone", "with a fact from it"])
def test_a_message_does_not_replace_itself(store: SqliteStore, *, has_fact: bool) -> None:
    """Notes say in two passages what was and what is. No later message or fact says that the first is outdated."""
    (number,) = store.add_messages(make_rows([Message(role="user", parts=(Text(text=NOTES),))], scope=SCOPE))
    say(store, "Lunch was good today, thanks.")
    if has_fact:
        fact = FactRow(scope=SCOPE, id="f", type="decision", content=LAST, quote=LAST, evidence=(number,), time=MOMENT)
        store.add_facts([fact])
    found = recall(store, asking("What is the retry limit of the importer?", cap=2_000))
    assert FIRST in found.block
    assert LAST in found.block
    assert "outdated" not in found.block
    assert not any(hit.replaced_by for hit in found.hits)


def test_a_message_that_replaces_another_one_twice_is_named_once(store: SqliteStore) -> None:
    """Two passages of it do."""
    say(store, FIRST, NOTES.replace("is 12", "was raised to 13"), "Lunch was good today, thanks.")
    found = recall(store, asking("What is the retry limit of the importer?", cap=2_000))
    assert [(hit.message, hit.replaced_by) for hit in found.hits][:3] == [(1, (2,)), (2, ()), (2, ())]


def test_the_result_of_a_call_is_quoted_with_it(tmp_path: Path) -> None:
    """It has no word of the question, which the request and the call have."""
    rows = "\n".join(f"| {name} | {amount} |" for name, amount in (("Bergmann", 880), ("Kestrel Optik", 3412)))
    call = {"id": "c1", "type": "function", "function": {"name": "sql", "arguments": '{"query": "select * from open"}'}}
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "Show me who still owes us something."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": f"| name | amount |\n|---|---|\n{rows}"},
        {"role": "assistant", "content": "Two of them."},
    ]
    settings = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
    with Engine.open(tmp_path, settings=settings, background=False, personal=True) as engine:
        engine.session("s").append(history)
        for number in range(30):
            engine.session("s").append([{"role": "user", "content": f"Look at module {number} of the importer."}])
        assert "Kestrel Optik | 3412" in engine.session("new").recall("Who owes us the most?").block
