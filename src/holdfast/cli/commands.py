"""The options of the commands that load the engine, readers or `rich`; their work is in the modules they import.

Help and wrong usage do not wait for these modules.
"""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from holdfast.cli.options import PLACE, add_options, as_json, home_option, opens_memory, tenant_option

_NO_CONVERSATION: Final = "name a transcript FILE, or a stored session with --session"
_file: Final = click.argument("file", type=click.Path(path_type=Path))
_file_or_session: Final = click.argument("file", type=click.Path(path_type=Path), required=False)
_format: Final = click.option(
    "--format", "format_", metavar="NAME", help="The format of the file (default: detect it)."
)
_replayed: Final = add_options(
    click.option("--turn", type=click.IntRange(min=1), help="Up to this request of the file; default the last."),
    click.option("--limit", type=click.IntRange(min=1000), help="Tokens of the window; default the model's."),
    click.option(
        "--reserve", type=click.IntRange(min=0), help="Tokens kept for the reply; default 20,000, at most a quarter."
    ),
    click.option("--position", type=click.Choice(["tail", "head"]), help="Where recalled blocks go."),
    click.option("--home", "--store", "home", type=PLACE, help="A memory to use; default a new one."),
)
_stored: Final = add_options(
    click.option("--session", help="Instead of a FILE: a stored session."),
    tenant_option,
    click.option("--project", default=None, help="The project of the stored session, if several have its name."),
    click.option("--agent", default=None, help="The agent of the stored session, if several have its name."),
)


@click.command()
@_file
@_format
@click.option("--full", is_flag=True, help="Show every message in full.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N messages.")
@home_option
@as_json
def show(**options: Any) -> None:
    """Show the transcript FILE of any known agent. FILE may also be the name of a session in memory."""
    from holdfast.cli.show import show_transcript

    show_transcript(**options)


@click.command()
@_file
@_format
@click.option(
    "--counter", "name", help="estimate, thirds, tiktoken:ENCODING or tokenizers:FILE; default tokens.counter."
)
@as_json
def tokens(**options: Any) -> None:
    """Count the tokens of the transcript FILE by role and part."""
    from holdfast.cli.show import print_tokens

    print_tokens(**options)


@click.command()
@_file_or_session
@_replayed
@_stored
@as_json
def context(*, file: Path | None, session: str | None, **options: Any) -> None:
    """Draw the window of a request of the transcript FILE, or of a stored session (--session)."""
    if file is None and not session:
        raise click.UsageError(_NO_CONVERSATION)
    from holdfast.cli.context import draw_context

    draw_context(file=file, session=session or "", **options)


@click.command()
@_file_or_session
@_replayed
@_stored
@click.option("--full", is_flag=True, help="Show every message that was kept, too.")
@as_json
def diff(*, file: Path | None, session: str | None, **options: Any) -> None:
    """Compare the transcript FILE, or a stored --session, with what was sent for one of its requests."""
    if file is None and not session:
        raise click.UsageError(_NO_CONVERSATION)
    from holdfast.cli.context import print_diff

    print_diff(file=file, session=session or "", **options)


@click.command()
@_file_or_session
@click.option("--limit", type=click.IntRange(min=1000), help="Of a FILE: tokens of the window; default the model's.")
@click.option("--reserve", type=click.IntRange(min=0), help="Of a FILE: tokens kept for the reply.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N requests.")
@opens_memory
@as_json
def timeline(*, file: Path | None, session: str | None, **options: Any) -> None:
    """Show the requests of a stored --session or of the transcript FILE: tokens, cuts, recalls, warnings."""
    if file is None and not session:
        raise click.UsageError(_NO_CONVERSATION)
    from holdfast.cli.timeline import print_timeline

    print_timeline(file=file, session=session or "", **options)


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--limit", type=click.IntRange(min=1000), default=32_000, show_default=True, help="Tokens of the window.")
@click.option(
    "--reserve", type=click.IntRange(min=0), help="Tokens kept for the reply; default 20,000, at most a quarter."
)
@click.option("--position", type=click.Choice(["tail", "head"]), default="tail", show_default=True)
@as_json
def replay(**options: Any) -> None:
    """Run transcripts turn by turn through the engine: windows, cuts, recalls, violations, time."""
    from holdfast.cli.replay import replay_transcripts

    replay_transcripts(**options)


@click.command()
@_file_or_session
@click.option("--instructions", metavar="TEXT", help="Additional instructions for the summary.")
@click.option("--dry-run", is_flag=True, help="Only show what would be summarised and kept.")
@click.option(
    "--model", "model_name", metavar="NAME", help="The model that summarises; default: none, a digest by rules."
)
@click.option("--limit", type=click.IntRange(min=1000), help="Tokens of the window; default the model's.")
@opens_memory
@as_json
def compact(*, file: Path | None, session: str | None, **options: Any) -> None:
    """Preview a compaction of the transcript FILE, or compact a stored --session."""
    if (file is None) == (session is None):
        raise click.UsageError(_NO_CONVERSATION)
    from holdfast.cli.compact import compact_conversation

    compact_conversation(file=file, session=session, **options)


@click.command()
@click.option("--limit", type=click.IntRange(min=16_000), default=32_000, show_default=True, help="Tokens in a window.")
@click.option("--save", type=click.Path(path_type=Path), help="Only write the session to this new file.")
@as_json
def demo(**options: Any) -> None:
    """Replay six weeks of work in a small window, then ask for what has left it. Needs no model and no key."""
    from holdfast.cli.demo import run_demo

    run_demo(**options)


@click.command("import")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--discover", is_flag=True, help="Import the sessions of every known agent on this machine.")
@click.option("--vectors/--no-vectors", default=True, show_default=True, help="Embed the imported messages now.")
@click.option(
    "--watch", is_flag=True, help="Keep running, and archive what is added to PATHS, or by the agents on this machine."
)
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=5.0,
    show_default=True,
    help="With --watch: seconds between checks.",
)
@click.option("--format", "format_", metavar="NAME", help="The format of PATHS, each one session (default: detect it).")
@opens_memory
@as_json
def import_(*, paths: tuple[Path, ...], discover: bool, watch: bool, format_: str | None, **options: Any) -> None:
    """Archive what is at PATHS: transcripts of any known agent, an export, a memory-context folder.

    Importing the same again changes nothing.
    """
    if not (paths or discover or watch):
        raise click.UsageError("name files or folders, or use --discover")
    if format_ is not None and (discover or not paths):
        raise click.UsageError("--format: name the files whose format it is; the agents on this machine have several")
    from holdfast.cli.importing import import_paths

    import_paths(paths=paths, discover=discover or not paths, watch=watch, format_=format_, **options)


@click.command()
@home_option
@click.option(
    "--repair", "mend", is_flag=True, help="Rebuild a damaged store from what is intact; the old file is kept."
)
@as_json
def doctor(**options: Any) -> None:
    """Check the installation, the settings, the memory and the agents on this machine."""
    from holdfast.cli.doctor import print_findings

    print_findings(**options)
