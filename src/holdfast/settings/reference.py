"""Write the reference of all settings, `docs/settings.md`."""

import json
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.settings.schema import spell_duration
from holdfast.settings.sources import AGENT_TABLE
from holdfast.settings.table import Schema, Setting, struct_of

COMMON: Final = (
    "model.name",
    "model.context_tokens",
    "archive.path",
    "archive.cross_session",
    "recall.hard_cap_tokens",
    "recall.eagerness",
    "embedding.provider",
    "compaction.model",
    "pruning.mode",
    "agent.session.reset.mode",
)
"""The settings that people change. The page begins with them."""


def render_reference(schema: Schema[Any]) -> str:
    """Return the reference in Markdown: the common settings, those of the engine, those of the agent."""
    introduction = Path(__file__).with_name("reference.md").read_text("utf-8")
    rows = {row.key: row for row in schema.rows}
    parts = [introduction.replace("<!-- common -->", _render_common(rows[key] for key in COMMON))]
    parts.append("## The engine\n\nThe library, the server and all commands read these settings.\n")
    for name, section in _list_sections(schema.struct):
        if name != AGENT_TABLE:
            parts.append(_render_section(name, section, schema.rows))
            continue
        parts.append("## The agent\n\nOnly `holdfast chat` reads these settings, which are in the table `[agent]`.\n")
        own = [row for row in schema.rows if row.key.rpartition(".")[0] == AGENT_TABLE]
        parts.append(_render_section(AGENT_TABLE, section, own))
        for below, subsection in _list_sections(section):
            parts.append(_render_section(f"{AGENT_TABLE}.{below}", subsection, schema.rows))
    return "\n".join(parts)


def _list_sections(struct: type[msgspec.Struct]) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    for field in msgspec.structs.fields(struct):
        section = struct_of(field.type)
        if section is not None:
            yield field.name, section


def _render_common(rows: Iterable[Setting]) -> str:
    header = ("| setting | default | when to change it |", "| --- | --- | --- |")
    lines = (f"| `{row.key}` | {_show_default(row)} | {row.when} |" for row in rows)
    return "\n".join((*header, *lines))


def _render_section(name: str, section: type[msgspec.Struct], rows: Iterable[Setting]) -> str:
    lines = [
        f"### `{name}`",
        "",
        section.__doc__ or "",
        "",
        "| setting | kind | default | what it does, its other names | when to change it |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        if row.key.startswith(f"{name}."):
            names = " · ".join(f"`{other}`" for other in (row.variable, *row.openclaw))
            lines.append(
                f"| `{row.key}` | {row.kind} | {_show_default(row)} | {row.description}<br>{names} | {row.when} |"
            )
    return "\n".join(lines) + "\n"


def _show_default(row: Setting) -> str:
    if row.default is None:
        return "unset"
    default = row.default
    if isinstance(default, timedelta):
        default = spell_duration(default)
    return f"`{json.dumps(default)}`"
