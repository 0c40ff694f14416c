"""`holdfast learn`: the facts in what was archived."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from holdfast.cli.opening import open_memory, opens_memory, scope_of
from holdfast.cli.output import as_json, emit_json, printable
from holdfast.cli.progress import Progress
from holdfast.errors import InputError
from holdfast.memory.learning import EXTRACT, queue
from holdfast.memory.learning import learn as learn_next
from holdfast.memory.memory import Memory
from holdfast.models import open_model
from holdfast.models.base import Model
from holdfast.store.base import Select

__all__ = ["learn"]

_ALL = 2**31


@click.command()
@click.option("--model", "name", metavar="NAME", help="The model that reads; default knowledge.model, else the rules.")
@opens_memory
@as_json
def learn(*, name: str | None, home: Path | None, as_json: bool, **whose: Any) -> None:
    """Extract facts from what was archived or imported, of one --session or of all.

    What a model has read is not read by it again. An interrupted run goes on where it was.
    """
    scope, across = scope_of(**whose)
    with open_memory(home) as memory:
        if not memory.settings.knowledge.extraction:
            raise InputError("knowledge.extraction is off: switch it on to extract facts")
        named = name or memory.settings.knowledge.model
        model = open_model(named, settings=memory.settings) if named else None
        if not memory.store.fetch(Select(kind="message", scope=scope, across=across, limit=1)):
            where = f"no message of session {whose['session']}" if whose["session"] else "nothing"
            raise InputError(f"{where} is archived; `holdfast import` archives transcripts")
        before = memory.store.counts()["facts"]
        read = queue(memory, scope=scope, across=across, reader=model.name if model else "rules")
        problems = _read_all(memory, model)
        facts = memory.store.counts()["facts"] - before
    if as_json:
        emit_json({"messages": read, "facts": facts, "model": model.name if model else None, "problems": problems})
        return
    for problem in problems:
        click.echo(printable(problem), err=True)
    by = printable(model.name) if model else "the rules"
    click.echo(f"{read:,} messages read by {by}, {facts:,} new facts.")


def _read_all(memory: Memory, model: Model | None) -> list[str]:
    """Do every job that waits; what went wrong on the way is returned."""
    problems: dict[str, None] = {}
    with Progress(len(memory.store.waiting(EXTRACT, limit=_ALL))) as progress:
        while (found := learn_next(memory, model)) is not None:
            progress.advance(1, f"{found.calls} calls" if model else "")
            if found.trouble:
                problems[found.trouble] = None
    return list(problems)
