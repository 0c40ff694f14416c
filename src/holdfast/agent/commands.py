"""The slash commands of `holdfast chat`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from holdfast.agent import workspace
from holdfast.agent.agent import Agent
from holdfast.agent.sessions import SessionEntry
from holdfast.agent.tally import Purpose, Spent
from holdfast.agent.tools.memory import cite
from holdfast.errors import CompactionError, HoldfastError, InputError, ModelCancelledError
from holdfast.memory.facts import find
from holdfast.report import ContextReport
from holdfast.settings import LongTermEmbedding
from holdfast.store.base import FactRow
from holdfast.tokens import count_json, count_text

__all__ = ["COMMANDS", "Command", "CommandResult", "complete", "is_command", "run", "short"]

_THOUSAND: Final = 1_000
_MILLION: Final = 1_000_000
_MINUTE: Final = 60_000
MAX_PERCENT: Final = 999
MAX_HITS: Final = 6
MAX_LINE_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command shows.

    Attributes:
        text: The text.
        report: A report to draw, in a terminal.
        is_exit: Whether the user leaves.
    """

    text: str = ""
    report: ContextReport | None = None
    is_exit: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its usage, its help text, and its function."""

    usage: str
    help: str
    run: Callable[[Agent, str], CommandResult]


def is_command(line: str, *, triggers: Sequence[str] = ()) -> bool:
    """Whether a line is a slash command, or one of the words that begin a new conversation."""
    return _is_trigger(line, triggers) or (
        line.startswith("/") and line[1:2].isalpha() and "/" not in line.split(maxsplit=1)[0][1:]
    )


def run(agent: Agent, line: str) -> CommandResult:
    """Run a command. Errors are returned as text."""
    if _is_trigger(line, agent.settings.session.reset_triggers):
        line = "/new"
    name, _, rest = line.strip().removeprefix("/").partition(" ")
    name, _, colon = name.partition(":")
    command = COMMANDS.get(name.lower())
    if command is None:
        near = ", ".join(f"/{known}" for known in complete(f"/{name[:1]}")) or "/help"
        return CommandResult(f"There is no /{name}. Did you mean {near}? /help lists all.")
    try:
        return command.run(agent, f"{colon} {rest}".strip())
    except HoldfastError as error:
        return CommandResult(str(error))


def _is_trigger(line: str, triggers: Sequence[str]) -> bool:
    return line.strip().casefold() in {trigger.strip().casefold() for trigger in triggers}


def complete(start: str) -> list[str]:
    """List the commands with this prefix, without their slash."""
    prefix = start.removeprefix("/").lower()
    return [name for name in COMMANDS if name.startswith(prefix)]


def short(tokens: int) -> str:
    """Format a number of tokens: 950, 9.5k, 182k, 1.2m."""
    if tokens >= _MILLION:
        return f"{tokens / _MILLION:.1f}m"
    if tokens >= 10 * _THOUSAND:
        return f"{tokens // _THOUSAND}k"
    return f"{tokens / _THOUSAND:.1f}k" if tokens >= _THOUSAND else str(tokens)


# --- the conversation ----------------------------------------------------------


def _compact(agent: Agent, instructions: str) -> CommandResult:
    try:
        done = agent.compact(instructions or None)
    except CompactionError as error:
        return CommandResult(f"Compaction skipped: {error} · {_format_fullness(agent)}")
    except ModelCancelledError:
        return CommandResult("Compaction cancelled. Nothing has changed.")
    return CommandResult(
        f"Compacted ({short(done.tokens_before)} → {short(done.tokens_after)}) · {_format_fullness(agent)}"
    )


def _format_fullness(agent: Agent) -> str:
    entry, window = agent.opened.entry, agent.limit
    share = min(MAX_PERCENT, round(100 * entry.total_tokens / window))
    known = short(entry.total_tokens) if entry.total_tokens else "?"
    return f"Context {known}/{short(window)} ({share}%)"


def _status(agent: Agent, _: str) -> CommandResult:
    agent.save_tally()
    entry, stats = agent.opened.entry, agent.engine.stats()
    cached = f" · cache {short(entry.cache_read)} read / {short(entry.cache_write)} written" if entry.cache_read else ""
    cost = f" · ${entry.estimated_cost_usd:.2f}" if entry.estimated_cost_usd else ""
    age = _format_duration(agent.sessions.clock() - (entry.session_started_at or entry.updated_at))
    lines = [
        f"Model: {agent.model.name} · window {short(agent.limit)}",
        f"{_format_fullness(agent)} · compactions {entry.compaction_count}",
        *_list_usage(entry, f"{cached}{cost}"),
        f"Session: {agent.opened.key} · {age} · {len(agent.history):,} messages · {agent.opened.transcript.file.name}",
        f"Memory: {stats.messages:,} messages · {stats.facts:,} facts · {stats.embedder or 'by words alone'}",
        *_list_long_term(agent),
    ]
    return CommandResult("\n".join(lines))


def _list_usage(entry: SessionEntry, more: str) -> Iterator[str]:
    """Yield the usage of all model calls of the session together, and for each purpose."""
    spent = {purpose: entry.spent(purpose) for purpose in ("conversation", *get_args(Purpose))}
    whole = sum(spent.values(), start=Spent())
    yield f"Tokens: {_format_usage(whole)}{more}"
    yield from (f"- {purpose}: {_format_usage(part)}" for purpose, part in spent.items() if part != Spent())


def _format_usage(spent: Spent) -> str:
    calls = f"{spent.calls} call" + ("s" if spent.calls != 1 else "")
    return f"{short(spent.input)} in / {short(spent.output)} out in {calls}"


def _list_long_term(agent: Agent) -> list[str]:
    """Return where long-term memories are stored and what embeds them, if that is set."""
    settings, lines = agent.settings.long_term, list[str]()
    if settings.enabled and (settings.db_path is not None or settings.embedding != LongTermEmbedding()):
        with agent.guard_memory():
            memories, embedder = agent.memories, agent.memories.choice.embedder
            name = embedder.space.name if embedder is not None else "by words alone"
            lines.append(f"Long-term: {len(memories.rows()):,} memories · {name} · {memories.memory.store.path}")
    return lines


def _format_duration(milliseconds: int) -> str:
    minutes = max(0, milliseconds) // _MINUTE
    hours, days = minutes // 60, minutes // 1440
    if days:
        return f"{days} d {hours % 24} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"


def _new(agent: Agent, _: str) -> CommandResult:
    opened = agent.reset()
    kept = f" The old one is kept in {opened.archived.name}." if opened.archived else ""
    return CommandResult(f"A new conversation.{kept} What was learned in it stays.")


def _pin(agent: Agent, numbers: str) -> CommandResult:
    """Pin messages by number, or the last one of the user."""
    words = numbers.replace(",", " ").split()
    if not all(word.isdecimal() for word in words):
        raise InputError(f"{numbers!r}: name messages by their numbers, such as /pin 12 13; /memory search finds them")
    ids = [int(word) for word in words]
    if not words:
        ids = [item.id for item in agent.last_window().items if item.message.role == "user" and item.id][-1:]
    count = agent.session.pin(ids)
    text = f"Pinned {count} message(s): they stay in every window." if count else "There is no such message."
    return CommandResult(text)


def _undo_trim(agent: Agent, _: str) -> CommandResult:
    count = agent.session.undo_trim()
    return CommandResult(
        f"The last trim removed {count} message(s). They come back as far as they fit."
        if count
        else "Nothing was trimmed."
    )


def _exit(_agent: Agent, _: str) -> CommandResult:
    return CommandResult(is_exit=True)


def _help(_agent: Agent, _: str) -> CommandResult:
    width = max(len(command.usage) for command in COMMANDS.values())
    return CommandResult("\n".join(f"{command.usage:<{width}}  {command.help}" for command in COMMANDS.values()))


# --- the window ----------------------------------------------------------------

_MODES: Final = "Use: /context list, /context detail, /context json, or /context map."


def _context(agent: Agent, mode: str) -> CommandResult:
    match mode:
        case "" | "map":
            return CommandResult(report=agent.last_window().report)
        case "list" | "show":
            return CommandResult("\n".join(_list_context(agent)))
        case "detail" | "deep":
            return CommandResult("\n".join([*_list_context(agent), *_list_details(agent)]))
        case "json":
            entry = agent.opened.entry.to_json()
            names = ("totalTokens", "inputTokens", "outputTokens", "contextTokens")
            session = {name: entry.get(name, 0) for name in names}
            data = {"report": agent.last_window().report.to_json(), "session": session}
            return CommandResult(json.dumps(data, ensure_ascii=False, indent=2, default=str))
        case _:
            return CommandResult(f"There is no /context {mode}. {_MODES}")


def _list_context(agent: Agent) -> Iterator[str]:
    settings, tools = agent.settings.workspace, agent.tools.tools()
    prompt = agent.build_messages()[0].text
    yield f"Workspace: {agent.root}"
    yield f"Bootstrap max/file: {settings.bootstrap_max_chars:,} chars"
    yield f"Bootstrap max/total: {settings.bootstrap_total_max_chars:,} chars"
    yield f"System prompt: {_size(prompt)}"
    yield "Injected workspace files:"
    for file in workspace.context_files(agent.root, agent.settings, first_run=agent.is_first_run):
        yield f"- {file.name}: {file.status.upper()} | raw {file.raw_chars:,} chars | injected {_size(file.text)}"
    schemas = sum(count_json(dict(tool.parameters)) for tool in tools)
    yield f"Tools: {len(tools)} (schemas ~{schemas:,} tok): {', '.join(tool.name for tool in tools)}"
    yield _format_fullness(agent)


def _size(text: str) -> str:
    return f"{len(text):,} chars (~{count_text(text):,} tok)"


def _list_details(agent: Agent) -> Iterator[str]:
    yield "Tools by schema size:"
    sizes = {tool.name: count_json(dict(tool.parameters)) for tool in agent.tools.tools()}
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        yield f"- {name}: ~{size:,} tok"
    yield "The window:"
    for part in agent.last_window().report.categories:
        yield f"- {part.name}: {part.tokens:,} tok"


# --- memory --------------------------------------------------------------------


def _memory(agent: Agent, what: str) -> CommandResult:
    verb, _, rest = what.partition(" ")
    match verb:
        case "" | "show":
            return CommandResult("\n".join(_list_memory(agent)))
        case "add" if rest:
            fact = agent.session.remember(rest)
            return CommandResult(f"Remembered: {fact.content}  ({fact.id})")
        case "forget" if rest:
            return CommandResult(_forget(agent, rest))
        case "search" if rest:
            return CommandResult("\n".join(_search(agent, rest)) or "Nothing found.")
        case _:
            return CommandResult("Use: /memory show, /memory add TEXT, /memory forget ID, or /memory search WORDS.")


def _list_memory(agent: Agent) -> Iterator[str]:
    """Yield the memory files of the workspace, newest note first, and the facts."""
    notes = sorted((agent.root / "memory").glob("**/*.md"), reverse=True)
    files = [path for path in (*(agent.root / name for name in workspace.MEMORY[:1]), *notes) if path.is_file()]
    yield "Files:" if files else "No memory files yet."
    for path in files:
        yield f"- {path.relative_to(agent.root)}: {path.stat().st_size:,} bytes"
    facts = _list_facts(agent)
    yield "Facts:" if facts else "No facts yet."
    yield from map(_fact_line, facts)


def _fact_line(fact: FactRow) -> str:
    return f"- [{fact.type}] {fact.content}  ({fact.id})"


def _list_facts(agent: Agent) -> list[FactRow]:
    """List the facts of the project, and the long-term memories of the agent."""
    rows = {row.id: row for row in agent.session.facts()}
    with agent.guard_memory():
        rows |= {row.id: row for row in agent.memories.rows()}
    return list(rows.values())


def _forget(agent: Agent, wanted: str) -> str:
    """Forget a message by its number, or a fact by its id."""
    if wanted.isdecimal():
        count = agent.forget([int(wanted)])
    else:
        agent.sessions.forget((), facts=[fact.content for fact in _list_facts(agent) if fact.id == wanted])
        count = agent.session.forget_facts([wanted])
        with agent.guard_memory():
            count += agent.memories.forget(wanted)
    return f"Forgotten: {count}." if count else f"Nothing is called {wanted}. /memory show lists facts with their ids."


def _search(agent: Agent, query: str) -> Iterator[str]:
    """Search facts, notes and the archive; yield the hits of each under a heading."""
    facts = [_fact_line(hit.fact) for hit in find(_list_facts(agent), query, limit=MAX_HITS)]
    notes: list[str] = []
    if agent.notes is not None and agent.settings.workspace.access != "none":
        hits = agent.notes.search(query, max_results=MAX_HITS).hits
        notes = [f"- {cite(hit.path, hit.start, hit.end)}: {_shorten(hit.snippet)}" for hit in hits]
    archive = [
        f"- {hit.message}  {hit.score:.2f}  {hit.speaker}: {_shorten(hit.text)}"
        for hit in agent.session.search(query, limit=MAX_HITS)
    ]
    for heading, lines in {"Facts:": facts, "Notes:": notes, "Archive:": archive}.items():
        yield from (heading, *lines) if lines else ()


def _shorten(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= MAX_LINE_CHARS else words[:MAX_LINE_CHARS] + "…"


COMMANDS: Final[dict[str, Command]] = {
    "help": Command("/help", "This list.", _help),
    "compact": Command("/compact [INSTRUCTIONS]", "Replace older history by a summary.", _compact),
    "status": Command("/status", "Model, context, tokens, cost, session, memory.", _status),
    "context": Command("/context [list|detail|json|map]", "Show what is in the window.", _context),
    "memory": Command("/memory show|add|forget|search", "Show, add, forget or search what is remembered.", _memory),
    "pin": Command("/pin [NUMBER...]", "Keep messages in every window; without a number your last one.", _pin),
    "undo-trim": Command("/undo-trim", "Bring back what the last trim removed from the window.", _undo_trim),
    "new": Command("/new", "Begin a new conversation; the old one is kept.", _new),
    "reset": Command("/reset", "The same as /new.", _new),
    "exit": Command("/exit", "Leave.", _exit),
}
"""The commands by name."""
