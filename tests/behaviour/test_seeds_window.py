"""What the seeds say about pruning, through an engine that grows turn by turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine
from holdfast.settings import Pruning, Settings
from support.agent_fixture import BASE
from support.waiting import UNHURRIED

MINUTE = 60_000
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}


class Clock:
    """A clock that is set by hand."""

    now = 1_790_000_000_000

    def __call__(self) -> int:
        return self.now


def open_engine(folder: Path, clock: Clock, **pruning: Any) -> Engine:
    """An engine with these settings of pruning."""
    settings = Settings(embedding=BASE.embedding, recall=UNHURRIED, pruning=Pruning(**pruning))
    return Engine.open(folder, settings=settings, background=False, clock=clock)


def grow(engine: Engine, provider: str, *, turns: int = 12, images: bool = False) -> list[dict[str, Any]]:
    """A conversation in which every turn reads a long file."""
    conversation: list[dict[str, Any]] = []
    for number in range(turns):
        conversation.append({"role": "user", "content": f"Read file {number}. 请读文件。"})
        engine.session("s").assemble(conversation, limit=60_000, provider=provider, format="anthropic")
        call = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {"path": f"{number}.txt"}}
        content = [{"type": "text", "text": f"line {number} of the file\n" * 500}, *([IMAGE] if images else [])]
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": content}
        conversation.append({"role": "assistant", "content": [call]})
        conversation.append({"role": "user", "content": [result]})
        conversation.append({"role": "assistant", "content": f"File {number} is fine."})
    return [*conversation, {"role": "user", "content": "And now?"}]


def pruned(engine: Engine, conversation: list[dict[str, Any]], provider: str) -> int:
    """How many results the next window prunes."""
    window = engine.session("s").assemble(conversation, limit=60_000, provider=provider, format="anthropic")
    return sum(change.kind == "pruned" for change in window.report.changes)


class TestCacheTtl:
    """`contextPruning` that no one set."""

    @pytest.mark.variants
    @pytest.mark.parametrize(
        ("provider", "settings", "is_pruned"),
        [
            ("anthropic", {}, True),
            ("openai_chat", {}, False),
            ("anthropic", {"mode": "off"}, False),
            ("openai_chat", {"mode": "cache-ttl"}, True),
        ],
    )
    def test_it_is_on_for_anthropic(
        self, tmp_path: Path, provider: str, settings: dict[str, Any], *, is_pruned: bool
    ) -> None:
        """Unset, `cache-ttl` after five minutes, also where another process continues; what is set counts."""
        clock = Clock()
        with open_engine(tmp_path, clock, **settings) as engine:
            conversation = grow(engine, provider)
            clock.now += 4 * MINUTE
            assert pruned(engine, conversation, provider) == 0
        conversation.append({"role": "assistant", "content": "Fine."})
        conversation.append({"role": "user", "content": "And later?"})
        clock.now += 6 * MINUTE
        with open_engine(tmp_path, clock, **settings) as engine:
            assert bool(pruned(engine, conversation, provider)) is is_pruned


class TestImages:
    """Image blocks are never trimmed."""

    @pytest.mark.variants
    @pytest.mark.parametrize(("mode", "is_pruned"), [("adaptive", False), ("cache-ttl", False), ("aggressive", True)])
    def test_a_result_with_an_image_stays_except_in_aggressive(
        self, tmp_path: Path, mode: Any, *, is_pruned: bool
    ) -> None:
        """The same results without images are pruned in every mode."""
        for images, expected in ((True, is_pruned), (False, True)):
            clock = Clock()
            with open_engine(tmp_path / str(images), clock, mode=mode) as engine:
                conversation = grow(engine, "anthropic", images=images)
                clock.now += 10 * MINUTE
                engine.session("s").assemble(conversation, limit=60_000, provider="anthropic", format="anthropic")
                kinds = {edit.kind for edit in engine.session("s").edits()}
                assert ("pruned" in kinds) is expected
