"""`holdfast learn`: extract facts from archived messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from holdfast.cli.opening import open_memory, opens_memory, scope_of
from holdfast.cli.output import as_json, echo, emit_json
from holdfast.cli.progress import Progress
from holdfast.errors import InputError
from holdfast.memory.learning import EXTRACT, queue
from holdfast.memory.learning import learn as learn_next
from holdfast.memory.memory import Memory
from holdfast.models import open_model
from holdfast.models.base import Model
from holdfast.store.base import Select

__all__ = ["learn"]

_NO_LIMIT = 2**31


@click.command()
@click.option("--model", "name", metavar="NAME", help="The model that extracts; default knowledge.model, else rules.")
@opens_memory
@as_json
def learn(*, name: str | None, home: Path | None, as_json: bool, **whose: Any) -> None:
    """Extract facts from archived messages, of one --session or of all.

    A model does not read the same messages twice. An interrupted run continues where it stopped.
    """
    scope, across = scope_of(**whose)
    with open_memory(home) as memory:
        if not memory.settings.knowledge.extraction:
            raise InputError("knowledge.extraction is off: set it to true to extract facts")
        if not memory.store.read_messages(Select(scope=scope, across=across, limit=1)):
            where = f"no message of session {whose['session']}" if whose["session"] else "nothing"
            raise InputError(f"{where} is archived; `holdfast import` archives transcripts")
        name = name or memory.settings.knowledge.model
        model = open_model(name, settings=memory.settings) if name else None
        reader = model.name if model else "rules"
        before = memory.store.counts()["facts"]
        read = queue(memory, scope=scope, across=across, reader=reader)
        problems = _run_jobs(memory, model)
        facts = memory.store.counts()["facts"] - before
    if as_json:
        emit_json({"messages": read, "facts": facts, "model": reader if model else None, "problems": problems})
        return
    for problem in problems:
        echo(problem, err=True)
    echo(f"{read:,} messages read by {reader if model else 'the rules'}, {facts:,} new facts.")


def _run_jobs(memory: Memory, model: Model | None) -> list[str]:
    """Run every waiting job; return the problems."""
    problems: dict[str, None] = {}
    with Progress(len(memory.store.waiting(EXTRACT, limit=_NO_LIMIT))) as progress:
        while (result := learn_next(memory, model)) is not None:
            progress.advance(1, f"{result.calls} calls" if model else "")
            if result.trouble:
                problems[result.trouble] = None
    return list(problems)
