"""What a user can tell the agent itself, beginning with a slash."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from holdfast.agent import workspace
from holdfast.agent.loop import Agent
from holdfast.agent.sessions import SessionEntry
from holdfast.agent.tally import Purpose, Spent
from holdfast.agent.tools.notes import citation
from holdfast.errors import CompactionError, HoldfastError, InputError, ModelCancelledError
from holdfast.memory.facts import find
from holdfast.report import ContextReport
from holdfast.settings import LongTermEmbedding
from holdfast.store.base import FactRow
from holdfast.tokens import count_json, count_text

__all__ = ["COMMANDS", "Command", "Done", "complete", "is_command", "run", "short"]

_THOUSAND: Final = 1_000
_MILLION: Final = 1_000_000
_MINUTE: Final = 60_000
_MOST_PERCENT: Final = 999
_FOUND: Final = 6
_LONGEST_LINE: Final = 200


@dataclass(frozen=True, slots=True)
class Done:
    """What there is to show.

    Attributes:
        text: In words.
        report: What is to be drawn, for those who can.
        over: The conversation is left.
    """

    text: str = ""
    report: ContextReport | None = None
    over: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """Something that can be told: how it is written, what it does, and who does it."""

    usage: str
    help: str
    run: Callable[[Agent, str], Done]


def is_command(line: str, *, triggers: Sequence[str] = ()) -> bool:
    """Tell whether a line is for the agent itself: a slash command, or one of the words that start afresh."""
    return _is_trigger(line, triggers) or (
        line.startswith("/") and line[1:2].isalpha() and "/" not in line.split(maxsplit=1)[0][1:]
    )


def run(agent: Agent, line: str) -> Done:
    """Do what a line says. What goes wrong is said, and nothing more happens."""
    if _is_trigger(line, agent.settings.session.reset_triggers):
        line = "/new"
    name, _, rest = line.strip().removeprefix("/").partition(" ")
    name, _, colon = name.partition(":")
    command = COMMANDS.get(name.lower())
    if command is None:
        near = ", ".join(f"/{known}" for known in complete(f"/{name[:1]}")) or "/help"
        return Done(f"There is no /{name}. Did you mean {near}? /help lists all.")
    try:
        return command.run(agent, f"{colon} {rest}".strip())
    except HoldfastError as error:
        return Done(str(error))


def _is_trigger(line: str, triggers: Sequence[str]) -> bool:
    return line.strip().casefold() in {trigger.strip().casefold() for trigger in triggers}


def complete(start: str) -> list[str]:
    """The commands that begin so, without their slash."""
    wanted = start.removeprefix("/").lower()
    return [name for name in COMMANDS if name.startswith(wanted)]


def short(tokens: int) -> str:
    """A number of tokens in few characters: 950, 9.5k, 182k, 1.2m."""
    if tokens >= _MILLION:
        return f"{tokens / _MILLION:.1f}m"
    if tokens >= 10 * _THOUSAND:
        return f"{tokens // _THOUSAND}k"
    return f"{tokens / _THOUSAND:.1f}k" if tokens >= _THOUSAND else str(tokens)


# --- the conversation ----------------------------------------------------------


def _compact(agent: Agent, instructions: str) -> Done:
    try:
        done = agent.compact(instructions or None)
    except CompactionError as error:
        return Done(f"Compaction skipped: {error} · {_fullness(agent)}")
    except ModelCancelledError:
        return Done("Compaction called off. Nothing has changed.")
    return Done(f"Compacted ({short(done.tokens_before)} → {short(done.tokens_after)}) · {_fullness(agent)}")


def _fullness(agent: Agent) -> str:
    entry, window = agent.opened.entry, agent.limit
    share = min(_MOST_PERCENT, round(100 * entry.total_tokens / window))
    known = short(entry.total_tokens) if entry.total_tokens else "?"
    return f"Context {known}/{short(window)} ({share}%)"


def _status(agent: Agent, _: str) -> Done:
    agent.count_calls()
    entry, stats = agent.opened.entry, agent.engine.stats()
    cached = f" · cache {short(entry.cache_read)} read / {short(entry.cache_write)} written" if entry.cache_read else ""
    cost = f" · ${entry.estimated_cost_usd:.2f}" if entry.estimated_cost_usd else ""
    lasted = _duration(agent.sessions.clock() - (entry.session_started_at or entry.updated_at))
    lines = [
        f"Model: {agent.model.name} · window {short(agent.limit)}",
        f"{_fullness(agent)} · compactions {entry.compaction_count}",
        *_spent(entry, f"{cached}{cost}"),
        f"Session: {agent.opened.key} · {lasted} · {len(agent.history):,} messages · {agent.opened.session.file.name}",
        f"Memory: {stats.messages:,} messages · {stats.facts:,} facts · {stats.embedder or 'by words alone'}",
        *_long_term(agent),
    ]
    return Done("\n".join(lines))


def _spent(entry: SessionEntry, more: str) -> Iterator[str]:
    """What all model calls of the session took together, and for each purpose."""
    spent = {purpose: entry.spent(purpose) for purpose in ("conversation", *get_args(Purpose))}
    whole = sum(spent.values(), start=Spent())
    yield f"Tokens: {_counted(whole)}{more}"
    yield from (f"- {purpose}: {_counted(part)}" for purpose, part in spent.items() if part != Spent())


def _counted(spent: Spent) -> str:
    calls = f"{spent.calls} call" + ("s" if spent.calls != 1 else "")
    return f"{short(spent.input)} in / {short(spent.output)} out in {calls}"


def _long_term(agent: Agent) -> list[str]:
    """Where long-term memories rest and who embeds them, where that was set."""
    asked, found = agent.settings.long_term, list[str]()
    if asked.enabled and (asked.db_path is not None or asked.embedding != LongTermEmbedding()):
        with agent.memory_may_fail():
            kept, embedder = agent.memories, agent.memories.choice.embedder
            name = embedder.space.name if embedder is not None else "by words alone"
            found.append(f"Long-term: {len(kept.rows()):,} memories · {name} · {kept.memory.store.path}")
    return found


def _duration(milliseconds: int) -> str:
    minutes = max(0, milliseconds) // _MINUTE
    hours, days = minutes // 60, minutes // 1440
    if days:
        return f"{days} d {hours % 24} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"


def _new(agent: Agent, _: str) -> Done:
    opened = agent.reset()
    kept = f" The old one is kept in {opened.archived.name}." if opened.archived else ""
    return Done(f"A new conversation.{kept} What was learned in it stays.")


def _pin(agent: Agent, what: str) -> Done:
    """Pin a message by its number, or the last one of the user."""
    ids = _numbers(what) if what else _last_asked(agent)
    known = agent.engine.session(agent.session, agent=agent.agent).pin(ids)
    return Done(f"Pinned {known} message(s): they stay in every window." if known else "There is no such message.")


def _last_asked(agent: Agent) -> list[int]:
    asked = [item.id for item in agent.seen().items if item.message.role == "user" and item.id]
    return asked[-1:]


def _numbers(text: str) -> list[int]:
    words = text.replace(",", " ").split()
    if not all(word.isdecimal() for word in words):
        raise InputError(f"{text!r}: name messages by their numbers, such as /pin 12 13; /memory search finds them")
    return [int(word) for word in words]


def _undo_trim(agent: Agent, _: str) -> Done:
    count = agent.engine.session(agent.session, agent=agent.agent).undo_trim()
    return Done(f"{count} message(s) come back, as far as they fit." if count else "Nothing was trimmed.")


def _exit(_agent: Agent, _: str) -> Done:
    return Done(over=True)


def _help(_agent: Agent, _: str) -> Done:
    width = max(len(command.usage) for command in COMMANDS.values())
    return Done("\n".join(f"{command.usage:<{width}}  {command.help}" for command in COMMANDS.values()))


# --- the window ----------------------------------------------------------------

_MODES: Final = "Use: /context list, /context detail, /context json, or /context map."


def _context(agent: Agent, mode: str) -> Done:
    match mode:
        case "" | "map":
            return Done(report=agent.seen().report)
        case "list" | "show":
            return Done("\n".join(_listed(agent)))
        case "detail" | "deep":
            return Done("\n".join([*_listed(agent), *_detailed(agent)]))
        case "json":
            entry = agent.opened.entry.to_json()
            names = ("totalTokens", "inputTokens", "outputTokens", "contextTokens")
            session = {name: entry.get(name, 0) for name in names}
            data = {"report": agent.seen().report.to_json(), "session": session}
            return Done(json.dumps(data, ensure_ascii=False, indent=2, default=str))
        case _:
            return Done(f"There is no /context {mode}. {_MODES}")


def _listed(agent: Agent) -> Iterator[str]:
    settings, tools = agent.settings.workspace, agent.tools.tools()
    prompt = agent.messages()[0].text
    yield f"Workspace: {agent.root}"
    yield f"Bootstrap max/file: {settings.bootstrap_max_chars:,} chars"
    yield f"Bootstrap max/total: {settings.bootstrap_total_max_chars:,} chars"
    yield f"System prompt: {_sized(prompt)}"
    yield "Injected workspace files:"
    for file in workspace.context_files(agent.root, agent.settings, first_run=agent.is_first_run):
        yield f"- {file.name}: {file.status.upper()} | raw {file.raw_chars:,} chars | injected {_sized(file.text)}"
    schemas = sum(count_json(dict(tool.parameters)) for tool in tools)
    yield f"Tools: {len(tools)} (schemas ~{schemas:,} tok): {', '.join(tool.name for tool in tools)}"
    yield _fullness(agent)


def _sized(text: str) -> str:
    return f"{len(text):,} chars (~{count_text(text):,} tok)"


def _detailed(agent: Agent) -> Iterator[str]:
    yield "Tools by schema size:"
    sizes = {tool.name: count_json(dict(tool.parameters)) for tool in agent.tools.tools()}
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        yield f"- {name}: ~{size:,} tok"
    yield "The window:"
    for part in agent.seen().report.categories:
        yield f"- {part.name}: {part.tokens:,} tok"


# --- memory --------------------------------------------------------------------


def _memory(agent: Agent, what: str) -> Done:
    verb, _, rest = what.partition(" ")
    match verb:
        case "" | "show":
            return Done("\n".join(_shown(agent)))
        case "add" if rest:
            fact = agent.engine.session(agent.session, agent=agent.agent).remember(rest)
            return Done(f"Remembered: {fact.content}  ({fact.id})")
        case "forget" if rest:
            return Done(_forgotten(agent, rest))
        case "search" if rest:
            return Done("\n".join(_found(agent, rest)) or "Nothing found.")
        case _:
            return Done("Use: /memory show, /memory add TEXT, /memory forget ID, or /memory search WORDS.")


def _shown(agent: Agent) -> Iterator[str]:
    """The memory files of the workspace, newest note first, and the facts."""
    notes = sorted((agent.root / "memory").glob("**/*.md"), reverse=True)
    files = [path for path in (*(agent.root / name for name in workspace.MEMORY[:1]), *notes) if path.is_file()]
    yield "Files:" if files else "No memory files yet."
    for path in files:
        yield f"- {path.relative_to(agent.root)}: {path.stat().st_size:,} bytes"
    facts = _facts(agent)
    yield "Facts:" if facts else "No facts yet."
    yield from map(_fact_line, facts)


def _fact_line(fact: FactRow) -> str:
    return f"- [{fact.type}] {fact.content}  ({fact.id})"


def _facts(agent: Agent) -> list[FactRow]:
    """What is known here, with the memories that are kept elsewhere."""
    known = agent.engine.session(agent.session, agent=agent.agent).facts()
    with agent.memory_may_fail():
        known += agent.memories.rows() if agent.memories.apart else ()
    return known


def _forgotten(agent: Agent, wanted: str) -> str:
    if wanted.isdecimal():
        gone = agent.forget([int(wanted)])
    else:
        agent.sessions.forget((), facts=[fact.content for fact in _facts(agent) if fact.id == wanted])
        gone = agent.engine.session(agent.session, agent=agent.agent).forget_facts([wanted])
        with agent.memory_may_fail():
            gone += agent.memories.forget(wanted)
    return f"Forgotten: {gone}." if gone else f"Nothing is called {wanted}. /memory show lists facts with their ids."


def _found(agent: Agent, query: str) -> Iterator[str]:
    """What facts, notes and the archive say, each under its heading."""
    sources = {"Facts": _found_facts, "Notes": _found_notes, "Archive": _found_messages}
    for name, search in sources.items():
        lines = list(search(agent, query))
        if lines:
            yield f"{name}:"
            yield from lines


def _found_facts(agent: Agent, query: str) -> Iterator[str]:
    return (_fact_line(hit.fact) for hit in find(_facts(agent), query, limit=_FOUND))


def _found_notes(agent: Agent, query: str) -> Iterator[str]:
    if agent.notes is not None and agent.settings.workspace.access != "none":
        found = agent.notes.search(query, max_results=_FOUND)
        yield from (f"- {citation(hit.path, hit.start, hit.end)}: {_cut(hit.snippet)}" for hit in found.hits)


def _found_messages(agent: Agent, query: str) -> Iterator[str]:
    for hit in agent.engine.session(agent.session, agent=agent.agent).search(query, limit=_FOUND):
        yield f"- {hit.message}  {hit.score:.2f}  {hit.speaker}: {_cut(hit.text)}"


def _cut(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _LONGEST_LINE else words[:_LONGEST_LINE] + "…"


COMMANDS: Final[dict[str, Command]] = {
    "help": Command("/help", "This list.", _help),
    "compact": Command("/compact [WHAT TO MIND]", "Let a summary stand for what is old.", _compact),
    "status": Command("/status", "Model, context, tokens, cost, session, memory.", _status),
    "context": Command("/context [list|detail|json|map]", "What is in the window.", _context),
    "memory": Command("/memory show|add|forget|search", "What is remembered.", _memory),
    "pin": Command("/pin [NUMBER...]", "Keep messages in every window; without a number your last one.", _pin),
    "undo-trim": Command("/undo-trim", "Bring back what the last cut took out of the window.", _undo_trim),
    "new": Command("/new", "Begin a new conversation; the old one is kept.", _new),
    "reset": Command("/reset", "The same as /new.", _new),
    "exit": Command("/exit", "Leave.", _exit),
}
"""What can be told, by name."""
