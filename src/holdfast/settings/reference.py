"""The reference of all settings, written from the schema."""

import json
from collections.abc import Iterator
from datetime import timedelta
from itertools import groupby

import msgspec

from holdfast.settings.schema import Settings
from holdfast.settings.table import Setting, settings_table, struct_of
from holdfast.settings.values import spell_duration

__all__ = ["reference"]

_INTRODUCTION = """\
# Settings

<!-- Written by `python -m holdfast.settings`. Change the schema, then run `make docs`. -->

Everything has a default; nothing needs to be set. A value may come from several places. The first that has one counts:

1. **Keyword arguments**, a mapping for each section: `load(recall={"position": "head"})`.
2. **The environment**: `HOLDFAST_<SECTION>__<FIELD>`, two underscores for each dot. Lists are JSON or separated by
   commas. An empty variable counts as not set.
3. **`holdfast.toml`**, first of the project, then of the user (in the platform's folder for configuration).
4. **`openclaw.json`** (JSON5), at `$OPENCLAW_CONFIG_PATH` or `~/.openclaw/openclaw.json`.
5. **The defaults** below.

```toml
[recall]
hard_cap_tokens = 3000

[compaction.memory_flush]
soft_threshold = 0.7

[pruning]
mode = "cache-ttl"
ttl = "1h30m"
```

* **Strict.** An unknown name, a value of the wrong kind or out of range is an error that names the file, the setting
  and what was expected, or the nearest name. Everything is checked, also what a stronger source overrides.
* **Two spellings.** `pruning = "adaptive"` is short for its `mode`, in `openclaw.json` as well. `soft_threshold` (a
  share of the window in use) and `soft_threshold_tokens` (tokens before the threshold) say the same: the one from the
  stronger source counts, and one source may hold only one of them.
* **Durations** are `90s`, `5m`, `1h30m`, `2d`; a bare number is minutes. **Sizes** are bytes, or `512kb`, `2mb`.
* **Secrets** may be written as `${NAME}`, which stands for the environment variable; `$${NAME}` stands for itself. They
  never show in errors, reports or representations. No other setting is expanded.
* **The rest of `openclaw.json`** (gateway, channels, other plugins) is left to its owner and named in
  `Loaded.ignored`, as is a key that rests where only OpenClaw can read it. A name that looks like a slip of ours is an
  error. Where one setting has two places in the file, the one listed first counts. With `--agent NAME` the entry of
  that id in `agents.list` counts before `agents.defaults`. `Loaded.without_effect` says what cannot work here, and why.
* **Files of a project**, in the working directory, may set only what cannot do harm until you run `holdfast trust`
  ([security.md](security.md#settings-of-a-project)). What is refused is named in `Loaded.refused` and on stderr.
* `HOLDFAST_HOME` is where data rests, not a setting.
"""


def reference() -> str:
    """The whole page, in Markdown."""
    titles = {field.name: struct_of(field.type) for field in msgspec.structs.fields(Settings)}
    page = [_INTRODUCTION]
    for section, rows in groupby(settings_table(), key=lambda row: row.key.partition(".")[0]):
        struct = titles[section]
        promise = struct.__doc__ if struct else ""
        page.append(f"## `{section}`\n\n{promise}\n\n" + "\n".join(_table(rows)) + "\n")
    return "\n".join(page)


def _table(rows: Iterator[Setting]) -> Iterator[str]:
    yield "| setting | kind | default | what it does, and its other names |"
    yield "| --- | --- | --- | --- |"
    for row in rows:
        names = [row.variable, *row.openclaw]
        told = f"{row.description}<br>{' · '.join(f'`{name}`' for name in names)}"
        yield f"| `{row.key}` | {row.kind} | {_default(row.default)} | {told} |"


def _default(value: object) -> str:
    match value:
        case None:
            return "unset"
        case timedelta():
            return f'`"{spell_duration(value)}"`'
        case _:
            return f"`{json.dumps(value)}`"
