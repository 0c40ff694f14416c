"""A question that asks for all there is on a subject gets a line of every session and message about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.other_words import make_tool_loop
from holdfast import Engine
from holdfast.memory.query import find_subject
from holdfast.settings import Archive, Embedding, Recall, Settings
from support.cases import each

FACTS = (
    "The payment service listens on port 8461.",
    "Priya Raman owns the payment service.",
    "The payment service is written in Kotlin.",
    "We retry a charge of the payment service four times.",
)


@each(
    ("question", "subject"),
    [
        ("Tell me everything about the payment service", "payment service"),
        ("What do we know about the payment service?", "payment service"),
        ("Give me an overview of our customer portal.", "customer portal"),
        ("关于订单服务我们都知道些什么？", "订单服务"),
        ("検索基盤について知っていることを教えて", "検索基盤"),
        ("주문 서비스에 대해 아는 것을 모두 알려줘", "주문 서비스"),
        ("Summarise all that I noted on the payment service", "payment service"),
        ("Summarise everything I noted on the payment service", "payment service"),
        ("Give me all notes on the payment service", "payment service"),
        ("Give me a summary of what we know about the payment service", "payment service"),
        ("Could you summarize everything we've discussed about the payment service so far?", "payment service"),
        ("List all decisions about the payment service.", "payment service"),
        ("总结一下关于订单服务的所有内容", "订单服务"),
        ("列出所有关于订单服务的", "订单服务"),
        ("请给我所有关于订单服务的笔记", "订单服务"),
        ("帮我总结一下订单服务的所有信息", "订单服务"),
        ("我们对订单服务了解多少？", "订单服务"),
        ("Summarise this file", ""),
        ("Give me a summary of this file", ""),
        ("Show all tests on main", ""),
        ("告诉我这个文件的所有内容", ""),
        ("总结一下这个文件的内容", ""),
        ("Which port does the payment service use?", ""),
        ("All of the tests fail", ""),
        ("订单服务的负责人是谁？", ""),
    ],
)
def test_the_subject_of_a_broad_question(question: str, subject: str) -> None:
    """Any other question has none."""
    assert find_subject(question) == subject


@pytest.mark.variants(first=True)
@pytest.mark.parametrize("sessions", [1, 4])
def test_every_fact_on_a_subject_is_recalled(tmp_path: Path, sessions: int) -> None:
    """Many messages that only name the subject do not take the room of those that say something about it."""
    settings = Settings(
        archive=Archive(cross_session=sessions > 1), recall=Recall(hard_cap_tokens=600, deadline_ms=600_000)
    )
    with Engine.open(tmp_path, settings=settings, background=False) as engine:
        for number in range(sessions):
            stated = list(FACTS[number::sessions])
            if number == 0:
                stated += [f"Run step {step} of the plan for the payment service." for step in range(30)]
            history = make_tool_loop(stated, turns=2 * len(stated) + 10, seed=number)
            engine.session(f"s{number}").assemble(history, limit=8_000, recall=False)
        engine.work()
        block = engine.session(f"s{sessions - 1}").recall("Tell me everything about the payment service").block
    assert [fact for fact in FACTS if fact not in block] == []


def test_of_a_service_some_say_only_its_name(tmp_path: Path) -> None:
    """A statement about "billing" is about the billing service; one about another service is not."""
    with Engine.open(tmp_path, settings=Settings(embedding=Embedding(provider="none")), background=False) as engine:
        session = engine.session("s")
        said = ["The billing service is written in Kotlin.", "Billing runs on three pods.", "The mail service is old."]
        session.append([{"role": "user", "content": text} for text in said])
        block = session.recall("What do we know about the billing service?").block
        assert [text in block for text in said] == [True, True, False]
