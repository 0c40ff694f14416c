"""However full a window is, it has room for a small block, and never shows an outdated value alone."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast import Engine
from holdfast.settings import Settings
from support.strategies import examples
from support.waiting import UNHURRIED

WORDS = ("report", "morning", "weather", "table", "column", "north", "river", "paint", "market", "sample", "harbour")


@dataclass(frozen=True)
class Change:
    """A statement, the later one that replaces it, a question, and the new value."""

    old: str
    new: str
    question: str
    fresh: str


CHANGES = (
    Change("We cap the retries of the importer at 6.", "The retry cap of the importer was raised to 22.",
           "What is the retry cap of the importer?", "22"),
    Change("The discount of Nordwind AB is 12 percent.", "The discount of Nordwind AB is 15 percent now.",
           "What is the discount of Nordwind AB?", "15 percent"),
    Change("Feature flags live in Unleash.", "Unleash is no longer used, LaunchDarkly took over.",
           "Where do feature flags live?", "LaunchDarkly"),
    Change("退款期限是收货后二十八天。", "退款期限改成收货后三十五天。", "退款期限是收货后多少天？", "三十五天"),
    Change("デプロイ先は東京リージョンです。", "デプロイ先は大阪リージョンに変更しました。",
           "デプロイ先はどのリージョンですか？", "大阪リージョン"),
    Change("배포 서버의 포트는 8080입니다.", "배포 서버의 포트를 9090으로 변경했습니다.",
           "배포 서버의 포트는 몇 번인가요?", "9090"),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A conversation about something else in which a value changes, and the limit of the last request.

    `sizes` are the words of a message, of the output of a tool after it (0 for no call), and of the reply. The old
    statement is in the first message, the new one in the message with the number `later`; both have `around` words
    before and after them.
    """

    change: Change
    sizes: list[tuple[int, int, int]]
    later: int
    around: int
    limit: int


def fill(count: int, seed: int) -> str:
    """Make text that is about nothing in the question."""
    return " ".join(WORDS[(seed + place * (seed % 5 + 1)) % len(WORDS)] for place in range(count)) + "."


def make_history(case: Case) -> list[dict[str, Any]]:
    """Make the conversation before the question."""
    history: list[dict[str, Any]] = []
    for turn, (words, output, reply) in enumerate(case.sizes):
        text = fill(words, turn)
        if turn == 0:
            text = f"{fill(case.around, turn)} {case.change.old} {fill(case.around, turn + 1)}"
        elif turn == case.later:
            text = f"{fill(case.around, turn)} {case.change.new} {fill(case.around, turn + 1)}"
        history.append({"role": "user", "content": text})
        if output:
            call = {"id": f"call_{turn}", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
            history.append({"role": "assistant", "content": None, "tool_calls": [call]})
            history.append({"role": "tool", "tool_call_id": f"call_{turn}", "content": fill(output, turn)})
        history.append({"role": "assistant", "content": fill(reply, turn + 3)})
    return history


sizes = st.tuples(st.integers(3, 900), st.sampled_from([0, 0, 40, 900]), st.integers(3, 900))
cases = st.builds(
    Case,
    change=st.sampled_from(CHANGES),
    sizes=st.lists(sizes, min_size=3, max_size=10),
    later=st.integers(1, 2),
    around=st.sampled_from([0, 0, 30, 150]),
    limit=st.integers(1_500, 12_000),
)


@settings(max_examples=examples(25))
@given(case=cases)
@example(case=Case(CHANGES[0], [(9, 0, 9), (9, 0, 9), *[(400, 0, 500)] * 4], 1, 0, 3_000))
@example(case=Case(CHANGES[2], [(9, 0, 9), (9, 0, 9), *[(700, 0, 900)] * 4], 1, 150, 8_000))
@example(case=Case(CHANGES[3], [(9, 0, 9), (9, 0, 9), *[(200, 40, 200)] * 4], 1, 150, 1_500))
def test_the_newest_value_is_shown_however_full_the_window_is(case: Case) -> None:
    """It is in the window or in a block, so that no old value is shown alone, and the limit holds."""
    history = make_history(case)
    with (
        tempfile.TemporaryDirectory() as folder,
        Engine.open(Path(folder), settings=Settings(recall=UNHURRIED), background=False) as engine,
    ):
        session = engine.session("s")
        session.assemble(history, limit=200_000, recall=False)
        engine.work()
        window = session.assemble([*history, {"role": "user", "content": case.change.question}], limit=case.limit)
        shown = "\n".join(message.text for message in window.messages)
        assert case.change.fresh in shown, window.report.recall_reason
        assert window.tokens <= case.limit
