"""A summary and facts from a real model on this machine."""

from __future__ import annotations

from pathlib import Path

from holdfast.engine import Engine
from holdfast.models import open_model
from holdfast.settings import Compaction, Embedding, ModelSettings, Settings
from support.conversations import reply, user
from support.local_model import local_model, needs_local_model

SETTINGS = Settings(
    model=ModelSettings(context_tokens=8_192),
    embedding=Embedding(provider="none"),
    compaction=Compaction(keep_recent_tokens=400, reserve_tokens=1_000, reserve_tokens_floor=0, timeout_seconds=300),
)


@needs_local_model
def test_a_small_model_writes_a_summary_and_extracts_facts(tmp_path: Path) -> None:
    """Whatever so small a model says: history is compacted, what must be kept is in it, and nothing is lost."""
    conversation = [user("Remember that the staging database listens on port 6543."), reply("Noted: port 6543.")]
    for number in range(6):
        conversation += [user(f"Step {number}: look at module {number}. " + "It is long. " * 20), reply("Fine. " * 20)]
    with local_model(context_tokens=8_192) as name:
        model = open_model(name, settings=SETTINGS)
        with Engine.open(tmp_path, settings=SETTINGS, model=model, background=False) as engine:
            done = engine.session("s").compact(conversation, limit=8_192)
            assert done.summary is not None
            assert done.summary.calls > 0
            assert done.tokens_after < done.tokens_before
            engine.work()
            asked = [*conversation, user("Which port does the staging database use?")]
            window = engine.session("s").assemble(asked, limit=8_192)
            archived = [row.message.text for row in engine.session("s").get(done.plan.ids)]
    assert archived == [item.message.text for item in done.plan.summarised]
    assert "6543" in str(window.render())
