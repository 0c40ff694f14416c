"""Extraction by a model: the whole text, proof for every fact, and nothing on its word alone."""

from __future__ import annotations

from threading import Event

import msgspec
import pytest

from holdfast.errors import ModelBusyError, ModelCancelledError, ModelOverflowError
from holdfast.memory import facts
from holdfast.memory.block import Detail, render
from holdfast.memory.extract import extract
from holdfast.messages import Message, Text
from holdfast.models.base import Reply
from holdfast.settings import Settings
from holdfast.tokens import count_messages
from support.conversations import MARKS
from support.fact_scripts import NOW, SCOPE, Script, fact, facts_json, learn, make_row, rows, shell

TALK = rows("Let us keep it simple: the API listens on port 8080.", "And the cache is Redis.")
PORT = {
    "content": "The API listens on port 8080.",
    "subject": "API",
    "slot": "port",
    "value": "8080",
    "message": 1,
    "quote": "the API listens on port 8080",
}


def allowing_delete() -> Settings:
    """Settings that let a model delete."""
    settings = Settings()
    return msgspec.structs.replace(settings, knowledge=msgspec.structs.replace(settings.knowledge, allow_delete=True))


def test_a_fact_has_its_proof() -> None:
    """A fact comes with its type, subject, slot, the number of the message and the words that prove it."""
    model = Script(facts_json(PORT))
    found = learn(TALK, model=model)
    (row,) = found.rows_to_add
    assert (row.type, row.subject, row.slot, row.evidence, row.quote) == ("config", "API", "port", (1,), PORT["quote"])
    assert row.time == TALK[0].message.timestamp
    assert (found.calls, found.actions, found.dropped, found.failure) == (1, (("ADD", 1),), (), "")
    (prompt,) = model.asked
    assert prompt.schema is not None
    assert "[1 user] Let us keep it simple" in prompt.messages[1].text
    assert "[2 user] And the cache is Redis." in prompt.messages[1].text


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"quote": "the API listens on port 9999"}, "the quote is not in the messages"),
        ({"quote": "API"}, "the quote is not in the messages"),
        ({"type": "gossip"}, "no such type"),
        ({"content": " "}, "empty or too long"),
        ({"content": "The API listens on port 8081."}, "nobody said 8081"),
        ({"content": "The key is ghp_aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1eF3hJ5"}, "a secret"),
        ({"content": "The key is [REDACTED:token]"}, "a secret"),
    ],
)
def test_what_cannot_be_proved_is_dropped_and_reported(change: dict[str, str], reason: str) -> None:
    """A fact without its quote, of no type, with a number no one said, or with a secret is not kept."""
    found = learn(TALK, model=Script(facts_json({**PORT, **change})))
    assert found.rows_to_add == ()
    (dropped,) = found.dropped
    assert dropped.reason == reason
    assert "ghp_" not in dropped.content


@pytest.mark.parametrize(
    "quote",
    ["The API  listens\non port ８０８０", "the API listens on port 8080", "`the API` listens on **port 8080**"],
)
def test_a_quote_may_differ_in_what_does_not_matter(quote: str) -> None:
    """Spaces, width, case and marks of emphasis are not what a quote is about."""
    assert len(learn(TALK, model=Script(facts_json({**PORT, "quote": quote}))).rows_to_add) == 1


def test_the_message_is_found_even_if_it_is_named_wrongly() -> None:
    """Evidence is the message that holds the quote."""
    (row,) = learn(TALK, model=Script(facts_json({**PORT, "message": 2}))).rows_to_add
    assert row.evidence == (1,)


def test_a_fact_keeps_to_the_language_of_the_conversation() -> None:
    """Where a model translates, the user's own words are kept instead."""
    conversation = rows("支付服务的端口是 8080，请记住。")
    said_so = {"content": "The payment service uses port 8080.", "quote": "支付服务的端口是８０８０"}
    (row,) = learn(conversation, model=Script(facts_json(said_so))).rows_to_add
    assert row.content == "支付服务的端口是８０８０"


@pytest.mark.parametrize(
    "answer",
    [
        "Here you are:\n```json\n%s\n```\nAnything else?",
        '{"facts": [%s,]}',
        "[%s]",
        "%s",
        '{"facts": [%s, {"type": "config", "content": "The ca',
        'I found "one" {thing}: %s',
    ],
)
def test_an_answer_is_read_with_patience(answer: str) -> None:
    """Fences, words around, trailing commas, a bare list, one object, an end that was cut off."""
    whole = facts_json(PORT)
    one = whole[len('{"facts": [') : -len("]}")]
    found = learn(TALK, model=Script(answer % (whole if "```" in answer else one)))
    assert [row.content for row in found.rows_to_add] == [PORT["content"]]
    assert found.calls == 1


def test_an_answer_that_is_no_json_is_asked_for_once_more() -> None:
    """The second answer counts; after a second failure the messages are left for later, and it is said why."""
    model = Script("I would rather not.", facts_json(PORT))
    assert len(learn(TALK, model=model).rows_to_add) == 1
    assert "not JSON" in model.asked[1].messages[-1].text
    found = learn(TALK, model=Script("I would rather not."))
    assert (found.calls, found.unread, found.rows_to_add) == (2, (1, 2), ())
    assert "not JSON" in found.failure


def test_nothing_to_learn_is_an_answer() -> None:
    """An empty list is not asked for again."""
    found = learn(TALK, model=Script('{"facts": []}'))
    assert (found.calls, found.failure, found.rows_to_add) == (1, "", ())


def test_the_whole_text_is_read_in_as_few_calls_as_it_needs() -> None:
    """Every message is shown once; a long one is cut and shown in parts."""
    conversation = rows(*(f"Message {number}: " + "word " * 400 for number in range(40)), "long " * 20_000)
    model = Script('{"facts": []}', context_tokens=20_000)
    found = learn(conversation, model=model)
    shown = "\n".join(prompt.messages[1].text for prompt in model.asked)
    assert all(shown.count(f"Message {number}: ") == 1 for number in range(40))
    assert shown.count("long ") >= 19_990
    assert found.calls == len(model.asked) <= 9
    assert learn(conversation[:40], model=Script('{"facts": []}')).calls == 1


def test_a_batch_that_is_too_long_after_all_is_halved() -> None:
    """An overflow, and an answer that ran out of room, are met with smaller parts; that ends."""
    overflow = ModelOverflowError("too long", model="scripted/one")
    model = Script(overflow, facts_json(PORT), '{"facts": []}')
    found = learn(TALK, model=model)
    assert (len(found.rows_to_add), found.calls, found.unread) == (1, 3, ())
    cut = Reply(message=Message(role="assistant", parts=(Text(text='{"facts": ['),)), stop="length")
    found = learn(TALK, model=Script(cut, facts_json(PORT), '{"facts": []}'))
    assert (len(found.rows_to_add), found.calls) == (1, 3)
    hopeless = learn(TALK, model=Script(overflow))
    assert hopeless.unread == (1, 2)
    assert hopeless.calls <= 3


@pytest.mark.parametrize("window", [2_000, 4_096, 8_192, 32_000, 200_000])
@pytest.mark.parametrize("word", ["word ", "字"])
def test_a_request_leaves_room_for_its_answer(window: int, word: str) -> None:
    """Instructions, known facts, messages and the answer fit the model's window, also when it is asked again."""
    known = [fact(f"The port of service {number} is {number}.") for number in range(400)]
    conversation = rows(*(f"{number} " + word * 200 for number in range(30)))
    nonsense = Reply(message=Message(role="assistant", parts=(Text(text=word * 500),)))
    model = Script(nonsense, '{"facts": []}', context_tokens=window)
    learn(conversation, known=known, model=model)
    assert len(model.asked) > 1
    for prompt in model.asked:
        assert count_messages(prompt.messages) + prompt.max_tokens <= window


def test_a_request_about_unclear_facts_leaves_room_for_its_answer() -> None:
    """Of more pairs than fit, the first are asked about."""
    names = [f"service {number} {'of the shop ' * 10}".strip() for number in range(30)]
    texts = [f"We should run {name} on port 8080." for name in names]
    known = [fact(f"{name} listens on port 7070.", subject=name, slot="port") for name in names]
    found = [
        {**PORT, "subject": name, "content": text, "quote": text, "message": place}
        for place, (name, text) in enumerate(zip(names, texts, strict=True), 1)
    ]
    model = Script(facts_json(*found), '{"answers": []}', context_tokens=8_192)
    learn(rows(*texts), known=known, model=model)
    (last,) = [prompt for prompt in model.asked if prompt.schema is None]
    assert "New 1: " in last.messages[0].text
    assert "New 30: " not in last.messages[0].text
    assert count_messages(last.messages) + last.max_tokens <= 8_192


def test_an_answer_that_repeats_itself_is_not_asked_for_in_parts() -> None:
    """A model in a loop would fill every answer: what is complete counts, and without that the answer is unusable."""
    conversation = rows(*(f"Message {number} says nothing." for number in range(30)), TALK[0].message.text)
    known = facts_json({**PORT, "message": 31}).removesuffix("]}")
    loop = ', {"content": "The user is polite."' * 50
    for text, count in ((known + loop, 1), ('{"facts": [{"content": "' + "very " * 200, 0)):
        cut = Reply(message=Message(role="assistant", parts=(Text(text=text),)), stop="length")
        found = learn(conversation, model=Script(cut))
        assert (found.calls, len(found.rows_to_add)) == (1, count)
        assert found.is_unusable == (count == 0)


@pytest.mark.parametrize("words", ["the API listens on port 8080", "the API of the shop: its port"])
def test_a_sentence_is_no_slot(words: str) -> None:
    """A weak model repeats the sentence in every field; a slot like that would never be replaced."""
    read = {**PORT, "subject": PORT["content"], "slot": words, "questions": [PORT["content"], "Which port?"]}
    (row,) = learn(TALK, model=Script(facts_json(read))).rows_to_add
    assert (row.subject, row.slot) == ("", "")
    assert row.questions == ("Which port?",)


def test_a_failing_model_leaves_its_messages_unread() -> None:
    """What was read stays; the rest is named for another try, and the model is not asked again."""
    conversation = rows(*(f"{number} " + "word " * 900 for number in range(8)))
    busy = ModelBusyError("rate limit", model="scripted/one")
    model = Script('{"facts": []}', busy, context_tokens=10_000)
    found = learn(conversation, model=model)
    assert found.calls == 2
    assert 0 < len(found.unread) < 8
    assert "rate limit" in found.failure
    cancelled = Script(ModelCancelledError("called off"))
    stopped = extract(
        TALK, scope=SCOPE, model=cancelled, known=(), settings=Settings(), now=NOW, timeout=1.0, cancel=Event()
    )
    assert stopped.unread == (1, 2)


def test_doing_it_again_adds_nothing() -> None:
    """The same messages and the same answer give no new rows, also after the fact was replaced."""
    model = Script(facts_json(PORT))
    known = list(learn(TALK, model=model).rows_to_add)
    assert learn(TALK, known=known, model=model).rows_to_add == ()
    known += learn(rows("We moved the API to port 9090.", first=7), known=known).rows_to_add
    assert [row.content for row in facts.current(known)] == ["We moved the API to port 9090."]
    assert learn(TALK, known=known, model=model).rows_to_add == ()


def test_known_facts_are_shown_to_the_model() -> None:
    """So that it can use the same names and need not repeat them; the newest where there are too many."""
    known = [fact(f"Fact number {number} " + "x" * 400, subject="API", slot=f"s{number}") for number in range(400)]
    model = Script('{"facts": []}', context_tokens=20_000)
    learn(TALK, known=known, model=model)
    prompt = model.asked[0].messages[0].text
    assert "[config] API / s399: Fact number 399" in prompt
    assert "Fact number 1 " not in prompt


def test_only_the_rules_decide_what_is_clear() -> None:
    """A new value of a known property replaces it with no question to the model."""
    known = [fact("The API listens on port 7070.", subject="the API", slot="port", evidence=())]
    found = learn(TALK, known=known, model=Script(facts_json(PORT)))
    assert (found.calls, found.actions) == (1, (("SUPERSEDE", 1),))


@pytest.mark.parametrize(
    ("action", "left"),
    [
        ("SUPERSEDE", {"new"}),
        ("UPDATE", {"new"}),
        ("ADD", {"old", "new"}),
        ("NONE", {"old"}),
        ("DELETE", {"old", "new"}),
    ],
)
def test_the_model_is_asked_about_the_unclear_ones(action: str, left: set[str]) -> None:
    """A quote that only supposes something replaces nothing by rule; the model may say that it does, but not delete."""
    conversation = rows("We should run the API on port 8080. Yes, do it.")
    known = [fact("The API listens on port 7070.", id="old", subject="API", slot="port")]
    read = {**PORT, "quote": "run the API on port 8080"}
    model = Script(facts_json(read), f'{{"answers": [{{"new": 1, "action": "{action}", "old": "old"}}]}}')
    found = learn(conversation, known=known, model=model)
    assert found.calls == 2
    standing = facts.current([*known, *found.rows_to_add])
    assert {"old" if row.id == "old" else "new" for row in standing} == left
    assert "DELETE" not in model.asked[1].messages[0].text


def test_deleting_has_to_be_allowed() -> None:
    """With the setting, a model may take a fact out of sight; its history stays."""
    conversation = rows("We should run the API on port 8080. Yes, do it.")
    known = [fact("The API listens on port 7070.", id="old", subject="API", slot="port")]
    read = {**PORT, "quote": "run the API on port 8080"}
    model = Script(facts_json(read), '{"answers": [{"new": 1, "action": "DELETE", "old": "old"}]}')
    found = learn(conversation, known=known, model=model, settings=allowing_delete())
    assert "DELETE" in model.asked[1].messages[0].text
    assert [row.deleted for row in found.rows_to_add if row.id == "old"] == [True]


@pytest.mark.parametrize(
    "answer",
    ['{"new": 9, "action": "SUPERSEDE", "old": "old"}', '{"new": 1, "action": "SUPERSEDE", "old": "pinned"}', "no"],
)
def test_a_model_can_only_choose_among_rivals(answer: str) -> None:
    """An answer about a fact that was not asked about changes nothing."""
    conversation = rows("We should run the API on port 8080. Yes, do it.")
    known = [
        fact("The API listens on port 7070.", id="old", subject="API", slot="port"),
        fact("The door is green.", id="door", subject="door", slot="color"),
    ]
    read = {**PORT, "quote": "run the API on port 8080"}
    found = learn(conversation, known=known, model=Script(facts_json(read), answer))
    assert all(row.superseded_by is None for row in found.rows_to_add)


def test_a_model_that_fails_while_judging_costs_nothing() -> None:
    """The new fact stands next to the old one, and the report gives the reason."""
    conversation = rows("We should run the API on port 8080. Yes, do it.")
    known = [fact("The API listens on port 7070.", id="old", subject="API", slot="port")]
    model = Script(facts_json({**PORT, "quote": "run the API on port 8080"}), ModelBusyError("later"))
    found = learn(conversation, known=known, model=model)
    assert (len(found.rows_to_add), found.unread) == (1, ())
    assert "later" in found.failure


def test_recalled_text_is_not_shown_to_the_model() -> None:
    """Blocks that memory placed are taken out before anything is asked, and noise is left out."""
    block = render([], [Detail(role="user", time=0, text="old words")], MARKS)
    conversation = [make_row(1, block), make_row(2, "ok"), *rows("The rest.", first=3)]
    model = Script('{"facts": []}')
    learn(conversation, model=model, marks=MARKS)
    shown = model.asked[0].messages[1].text
    assert shown == "[3 user] The rest."


def test_tool_output_is_shown_by_its_ends() -> None:
    """A long result is shortened, and the call is shown with it."""
    conversation = [
        *shell(1, "make", "start " + "x" * 5_000 + " the end"),
        make_row(3, "Thanks, that is what I needed.", name="Ann"),
    ]
    model = Script('{"facts": []}')
    learn(conversation, model=model)
    shown = model.asked[0].messages[1].text
    assert "[1 assistant] bash: command: make" in shown
    assert "the end" in shown
    assert "[3 user Ann]" in shown
    assert len(shown) < 2_000


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("Remember that the staging database listens on port 6543.", "the staging database listens on port 6543"),
        ("请记住：测试环境的数据库端口是 7321。", "测试环境的数据库端口是 7321"),
    ],
)
def test_what_is_explicit_is_read_even_if_the_model_misses_it(text: str, content: str) -> None:
    """A weak model answers with nothing, or with facts that nobody stated: then it must not be worse than the rules."""
    invented = facts_json({"content": "The user likes tea.", "quote": "I like tea very much"})
    for answer in ('{"facts": []}', invented):
        found = learn(rows(text, "Thanks, and good night to you."), model=Script(answer))
        (row,) = found.rows_to_add
        assert content.casefold() in row.content.casefold()
        assert row.evidence == (1,)
    assert len(found.dropped) == 1


def test_what_the_model_has_read_is_not_read_by_rule_as_well() -> None:
    """Neither from the same message, nor what is known from an earlier one."""
    text = "Remember that the API listens on port 8080."
    model = Script(facts_json({**PORT, "content": "Port 8080 is that of the API."}))
    known = list(learn(rows(text), model=model).rows_to_add)
    assert [row.content for row in known] == ["Port 8080 is that of the API."]
    assert learn(rows(text, first=2), known=known, model=Script('{"facts": []}')).rows_to_add == ()


def test_without_a_model_only_what_is_explicit_is_read() -> None:
    """A plain statement needs a model; a correction does not."""
    found = learn([*TALK, *rows("We moved the API to port 9090.", first=3)])
    assert [(row.slot, row.evidence) for row in found.rows_to_add] == [("port", (3,))]
    assert found.calls == 0


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Let's go with Kafka", "use NATS instead of Kafka"),
        ("Let's go with Kafka for the event bus.", "Actually, use NATS instead of Kafka."),
        ("Decision: use Kafka for all events.", "Let's switch from Kafka to NATS."),
        ("决定：用 Kafka 做消息队列。", "改用 NATS，不用 Kafka 了。"),
        ("We moved the API to port 8080.", "The API moved to port 7654."),
        (
            "Decision: the gateway keeps access logs for 45 days.",
            "Correction: the gateway keeps access logs for 60 days, not 45; legal asked for it.",
        ),
        ("记住：导出任务每天六点运行。", "更正：导出任务每天七点运行，不是六点。"),
    ],
)
def test_a_decision_is_superseded_by_one_that_names_it(first: str, second: str) -> None:
    """What is said to be replaced no longer holds; other facts do."""
    kept = "Decision: use Postgres for storage."
    learned = learn(rows(first, kept, second))
    held = [row.content for row in facts.current(learned.rows_to_add)]
    assert held == [kept, second]


@pytest.mark.parametrize("text", ["It moved to port 7654.", "It has been moved to port 7654."])
def test_a_pronoun_is_the_only_thing_with_that_property(text: str) -> None:
    """The only fact of the same property says what "it" is; among several it replaces nothing."""
    first = "We moved the API to port 8080."
    learned = learn(rows(first, text))
    held = facts.current(learned.rows_to_add)
    assert [(row.subject, row.content, row.quote) for row in held] == [("the API", f"the API: {text}", text)]
    two = (first, "We moved the gateway to port 9090.")
    assert [row.content for row in facts.current(learn(rows(*two, text)).rows_to_add)] == list(two)
    assert learn(rows(text)).rows_to_add == ()


def test_a_pronoun_in_the_reply_of_a_model_is_resolved_too() -> None:
    """A recorded reply that repeats "it" as the subject replaces the port that is known."""
    known = list(learn(TALK, model=Script(facts_json(PORT))).rows_to_add)
    reply = facts_json(
        {
            **PORT,
            "content": "It moved to port 7654.",
            "subject": "it",
            "value": "7654",
            "message": 3,
            "quote": "it moved to port 7654",
        }
    )
    found = learn(rows("By the way, it moved to port 7654.", first=3), known=known, model=Script(reply))
    assert [row.content for row in facts.current([*known, *found.rows_to_add])] == ["API: It moved to port 7654."]


def test_what_is_only_asked_or_ambiguous_replaces_nothing() -> None:
    """A question is no decision, and of two decisions that name the old value no rule can tell which is over."""
    two = ("Decision: Kafka for orders.", "Decision: Kafka for the audit trail.")
    learned = learn(rows(*two, "Should we use NATS instead of Kafka?", "Use NATS instead of Kafka."))
    assert [row.content for row in facts.current(learned.rows_to_add)] == [*two, "Use NATS instead of Kafka."]


def test_a_correction_replaces_what_a_model_read() -> None:
    """The same subject and slot are superseded, whoever read the older fact; another subject is left alone."""
    known = list(learn(TALK, model=Script(facts_json(PORT))).rows_to_add)
    other = learn(rows("We moved the API gateway to port 9090.", first=3), known=known)
    assert known[0] in facts.current([*known, *other.rows_to_add])
    found = learn(rows("We moved the API from port 8080 to port 9090.", first=3), known=known)
    assert [row.content for row in facts.current([*known, *found.rows_to_add])] == [
        "We moved the API from port 8080 to port 9090."
    ]


def test_extraction_can_be_turned_off() -> None:
    """With the setting off nothing is read and no one is asked."""
    settings = Settings()
    off = msgspec.structs.replace(settings, knowledge=msgspec.structs.replace(settings.knowledge, extraction=False))
    model = Script(facts_json(PORT))
    assert learn(TALK, model=model, settings=off).rows_to_add == ()
    assert model.asked == []


def test_a_message_without_a_time_is_dated_now() -> None:
    """Facts always have a time, so that they can be asked for as of a moment."""
    (row,) = learn([make_row(1, "API_PORT=8080", timed=False)]).rows_to_add
    assert row.time == NOW
