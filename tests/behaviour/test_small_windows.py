"""Agents in small windows: what is reserved, how often windows are cut, and that old tool output is shortened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine
from holdfast.report import ContextReport
from holdfast.settings import Embedding, Settings
from support.waiting import UNHURRIED

SETTINGS = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
OUTPUTS = {
    "en": "{step}: def handle(request):  # called by the router, see the tests\n",
    "zh": "第{step}行：处理请求，参见测试和路由。\n",
    "ja": "{step}行目：リクエストを処理する。テストを参照。\n",
    "ko": "{step}번째 줄: 요청을 처리한다. 테스트를 참고.\n",
}


def work(engine: Engine, *, steps: int, limit: int, output: str, reply: str = "") -> list[ContextReport]:
    """Run an OpenAI loop with one call in each step, and return the report of every request."""
    session = engine.session("s")
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are careful."},
        {"role": "user", "content": "Find out why the webhook answers twice."},
    ]
    reports: list[ContextReport] = []
    for step in range(steps):
        window = session.assemble(messages, limit=limit)
        assert window.provider == "openai_chat"
        assert window.tokens <= limit - window.report.reserved_tokens
        reports.append(window.report)
        call = {"id": f"c{step}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": reply or None, "tool_calls": [call]})
        text = "".join(output.format(step=1000 * step + line) for line in range(5 + 4 * (step % 7)))
        messages.append({"role": "tool", "tool_call_id": f"c{step}", "content": text})
    return reports


def is_cut(report: ContextReport) -> bool:
    """Return whether the request does not begin with all of the one before."""
    return report.prefix_kept is not None and report.prefix_kept < 1


@pytest.mark.variants(first=True)
@pytest.mark.parametrize(
    "language", [name if name in {"en", "zh"} else pytest.param(name, marks=pytest.mark.nightly) for name in OUTPUTS]
)
def test_old_output_is_shortened_in_an_openai_loop_and_only_when_the_window_is_cut(
    tmp_path: Path, language: str
) -> None:
    """Between two cuts every request begins with the one before, and cuts are rare."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        reports = work(engine, steps=40, limit=8_000, output=OUTPUTS[language])
    cuts = [report for report in reports if is_cut(report)]
    pruned = [report for report in reports if any(change.kind == "pruned" for change in report.changes)]
    assert pruned
    assert {report.turn for report in pruned} <= {report.turn for report in cuts}
    assert len(cuts) <= len(reports) / 5


def test_short_replies_leave_more_room_for_messages(tmp_path: Path) -> None:
    """An eighth of the window is reserved, instead of a quarter before the first reply."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        reports = work(engine, steps=30, limit=8_000, output=OUTPUTS["en"])
    assert reports[0].reserved_tokens == 2_000
    assert {report.reserved_tokens for report in reports[1:]} == {1_000}
    assert max(report.percentage for report in reports) > 75


def test_long_replies_keep_the_reserve(tmp_path: Path) -> None:
    """The next one may be as long."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        reports = work(engine, steps=6, limit=16_000, output=OUTPUTS["en"], reply="a long explanation " * 900)
    assert reports[-1].reserved_tokens == 4_000


def test_thinking_that_is_only_reported_counts_as_part_of_a_reply(tmp_path: Path) -> None:
    """The reply is short, but the model needed 1,800 tokens for it."""
    reply: dict[str, Any] = {
        "role": "assistant",
        "content": "Yes.",
        "usage": {"prompt_tokens": 20, "completion_tokens": 1_800, "total_tokens": 1_820},
    }
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        session = engine.session("s")
        asked: list[dict[str, Any]] = [{"role": "user", "content": "Is the port 9090?"}]
        session.assemble(asked, limit=16_000)
        session.append([reply])
        history = [*asked, reply, {"role": "user", "content": "Why?"}]
        assert session.assemble(history, limit=16_000).report.reserved_tokens == 2_700


def test_a_reserve_of_the_caller_is_kept(tmp_path: Path) -> None:
    """Short replies do not change it: a provider may refuse a request whose maximum reply does not fit."""
    history = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        assert engine.session("s").assemble(history, limit=16_000, reserve=6_000).report.reserved_tokens == 6_000


def test_earlier_blocks_stay_if_a_new_one_needs_no_more_room_than_they_leave(tmp_path: Path) -> None:
    """Seven questions get their answers, and every request begins with the one before."""
    known = {
        "Which colour is the harbour crane painted?": "The harbour crane is painted teal.",
        "What discount does Nordwind get?": "Nordwind gets a discount of 12 percent.",
        "退款期限是收货后多少天？": "退款期限是收货后二十八天。",
        "How often does the importer retry?": "The importer retries 6 times.",
        "Where do feature flags live?": "Feature flags live in Unleash.",
        "デプロイ先はどのリージョンですか？": "デプロイ先は東京リージョンです。",
        "Where are backups stored?": "Backups are stored in Reykjavik.",
    }
    messages: list[dict[str, str]] = []
    for number, statement in enumerate(known.values()):
        messages.append({"role": "user", "content": f"{statement} " + f"zq{number}x " * 30})
        messages.append({"role": "assistant", "content": f"Noted {number}."})
    for number in range(60):
        messages.append({"role": "user", "content": f"Look at module {number}. " + f"detail{number} " * 120})
        messages.append({"role": "assistant", "content": f"Module {number} is fine."})
    messages.append({"role": "user", "content": "Please summarise detail58 and detail59."})
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        session = engine.session("s")
        session.assemble(messages, limit=16_000, reserve=2_000)
        for question, statement in known.items():
            messages.append({"role": "assistant", "content": "I see."})
            messages.append({"role": "user", "content": question})
            window = session.assemble(messages, limit=16_000, reserve=2_000)
            # A block may have the answer to the next question too.
            assert any(statement in message.text for message in window.messages)
            assert window.report.prefix_kept == 1.0
