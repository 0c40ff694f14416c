"""A report gives the reason there is no block, and which model the request goes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from holdfast import Engine, Settings, Window
from holdfast.settings import Embedding, ModelSettings, Recall
from support.failing_stores import FailingStore, open_engine

SETTINGS = Settings(embedding=Embedding(provider="none"), recall=Recall(deadline_ms=600_000))
FACT = {"role": "user", "content": "The vault code is 8841-tulip."}
NOTED = {"role": "assistant", "content": "Noted."}
ASKED = {"role": "user", "content": "Which vault code is it?"}
PICTURE = {
    "role": "user",
    "content": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}],
}


def grow(turns: int = 30) -> list[dict[str, Any]]:
    """Return a conversation that does not fit, with a fact at its beginning and a question about it at its end."""
    conversation: list[dict[str, Any]] = [FACT, NOTED]
    for number in range(turns):
        conversation.append({"role": "user", "content": f"Look at ledger {number}. " + f"wharf{number} " * 60})
        conversation.append({"role": "assistant", "content": f"Ledger {number} is fine."})
    return [*conversation, ASKED]


def assemble(engine: Engine, conversation: list[dict[str, Any]], **options: Any) -> Window:
    """Make a small window."""
    return engine.session("s").assemble(conversation, **{"limit": 4_000, **options})


class TestReasons:
    def test_there_is_a_block(self, tmp_path: Path) -> None:
        """Then there is no reason; if the request is repeated, the question has its block already."""
        with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
            window = assemble(engine, grow())
            assert (window.report.recalled != (), window.report.recall_reason) == (True, "")
            again = assemble(engine, grow())
            assert (again.report.recalled, again.report.recall_reason) == ((), "this question has its block already")

    def test_there_is_no_room(self, tmp_path: Path) -> None:
        """A block would be smaller than the minimum."""
        settings = msgspec.structs.replace(SETTINGS, recall=Recall(hard_cap_tokens=10, deadline_ms=600_000))
        with Engine.open(tmp_path, settings=settings, background=False) as engine:
            assert assemble(engine, grow()).report.recall_reason == "the messages leave no room for a block"
            window = assemble(engine, grow()[:-1], question=ASKED["content"])
            assert window.report.recall_reason == "the messages leave no room for a block"

    def test_the_question_has_no_words(self, tmp_path: Path) -> None:
        """A picture is not searched for, and no earlier message has words."""
        with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
            window = assemble(engine, [PICTURE])
            assert window.report.recall_reason == "the question has no words"

    def test_a_picture_after_words_recalls_for_these_words(self, tmp_path: Path) -> None:
        """The newest message with words is the question."""
        with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
            window = assemble(engine, [*grow(), NOTED, PICTURE])
            assert (window.report.recalled != (), window.report.recall_reason) == (True, "")

    def test_memory_fails(self, tmp_path: Path) -> None:
        """The warning gives the reason."""
        store = FailingStore(tmp_path / "store.db", kinds=frozenset({"search"}), first=0, count=10**6)
        with open_engine(store, SETTINGS) as engine:
            window = assemble(engine, grow())
        assert window.report.recall_reason == "memory failed"
        assert any("the disk is gone" in warning for warning in window.report.warnings)


class TestModel:
    def test_the_model_of_a_request(self, tmp_path: Path) -> None:
        """It is that of the call, or that of the settings; stored reports have it too."""
        known = msgspec.structs.replace(SETTINGS, model=ModelSettings(name="anthropic/claude-x"))
        for folder, settings in (("a", SETTINGS), ("b", known)):
            with Engine.open(tmp_path / folder, settings=settings, background=False) as engine:
                found = [assemble(engine, [ASKED], **option).report.model for option in ({}, {"model": "gpt-x"})]
                assert found == [settings.model.name, "gpt-x"]
                assert [report.model for report in engine.session("s").timeline()] == found
