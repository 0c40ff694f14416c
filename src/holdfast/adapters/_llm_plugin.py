"""The plugin of the `llm` command: the option `--holdfast`. Internal: `llm` loads it, at every start."""

from __future__ import annotations

from typing import Any, Final

import click
from llm import hookimpl

KEY: Final = "holdfast.adapters.llm"


@hookimpl
def register_commands(cli: click.Group) -> None:
    """Add the option to the commands that ask a model."""
    for name in ("prompt", "chat"):
        option = click.Option(
            ["--holdfast"],
            metavar="SESSION",
            help="Continue this conversation of your Holdfast memory.",
            callback=_start,
            expose_value=False,
        )
        cli.commands[name].params.append(option)


def _start(context: click.Context, _: click.Parameter, session: str | None) -> None:
    """Open the memory if a session is named."""
    if session is not None:
        from holdfast.engine import Engine  # noqa: PLC0415 - takes time, and is not needed without the option
        from holdfast.errors import HoldfastError  # noqa: PLC0415

        try:
            engine = context.with_resource(Engine.open())
        except HoldfastError as error:
            raise click.ClickException(str(error)) from error
        context.meta[KEY] = (engine, session)


@hookimpl(trylast=True)
def register_models(model_aliases: list[Any]) -> None:
    """Give the models memory if the command names a session."""
    context = click.get_current_context(silent=True)
    if context is not None and KEY in context.meta:
        from holdfast.adapters.llm import HoldfastMemory  # noqa: PLC0415 - as above

        engine, session = context.meta[KEY]
        memory = HoldfastMemory(engine, session=session)
        for one in model_aliases:
            one.model = memory.wrap(one.model)
            one.async_model = one.async_model and memory.wrap(one.async_model)
