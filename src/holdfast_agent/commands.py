"""The slash commands of `holdfast chat`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, get_args

from holdfast.compaction.dialogue import one_line
from holdfast.errors import CompactionError, HoldfastError, InputError, ModelCancelledError
from holdfast.memory.facts import find
from holdfast.report import ContextReport
from holdfast.store.base import FactRow
from holdfast.text import plural, shorten_number
from holdfast.tokens import count_json, count_text
from holdfast_agent import workspace
from holdfast_agent.agent import Agent
from holdfast_agent.note_files import NoteHit
from holdfast_agent.sessions import Purpose, Spent
from holdfast_agent.settings import LongTermEmbedding
from holdfast_agent.tools import cite
from holdfast_agent.view import CommandResult, format_age

MAX_PERCENT: Final = 999
MAX_HITS: Final = 6
"""The maximum number of hits of each kind that `/memory search` shows."""
MAX_LINE_CHARS: Final = 200


Run: TypeAlias = Callable[[Agent, str], CommandResult | str | Iterable[str]]
"""The function of a command: it gets the agent and the text after the name."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its usage, its help text, and its function."""

    usage: str
    help: str
    run: Run


COMMANDS: Final[dict[str, Command]] = {}
"""The commands by name, in the order in which they are listed."""


def command(usage: str) -> Callable[[Run], Run]:
    """Add a function to the commands, under the first word of its usage. Its docstring is the help text."""

    def add(run: Run) -> Run:
        COMMANDS[usage.split(maxsplit=1)[0].removeprefix("/")] = Command(usage, run.__doc__ or "", run)
        return run

    return add


def is_command(line: str, *, triggers: Sequence[str] = ()) -> bool:
    """Whether a line is a slash command, or one of the words that begin a new conversation."""
    if _is_trigger(line, triggers):
        return True
    if not line.startswith("/") or not line[1:2].isalpha():
        return False
    first_word = line.split(maxsplit=1)[0]
    is_path = "/" in first_word[1:]
    return not is_path


def run(agent: Agent, line: str) -> CommandResult:
    """Run a command. Errors are returned as text."""
    if _is_trigger(line, agent.settings.agent.session.reset_triggers):
        line = "/new"
    name, _, rest = line.strip().removeprefix("/").partition(" ")
    name, _, colon = name.partition(":")  # OpenClaw also takes `/compact: instructions`
    command = COMMANDS.get(name.lower())
    if command is None:
        near = ", ".join(f"/{known}" for known in complete(f"/{name[:1]}")) or "/help"
        return CommandResult(f"There is no /{name}. Did you mean {near}? /help lists all.")
    try:
        shown = command.run(agent, f"{colon} {rest}".strip())
        if isinstance(shown, CommandResult):
            return shown
        if isinstance(shown, str):
            return CommandResult(shown)
        return CommandResult("\n".join(shown))
    except HoldfastError as error:
        return CommandResult(str(error))


def _is_trigger(line: str, triggers: Sequence[str]) -> bool:
    return line.strip().casefold() in {trigger.strip().casefold() for trigger in triggers}


def complete(start: str) -> list[str]:
    """List the commands with this prefix, without their slash."""
    prefix = start.removeprefix("/").lower()
    return [name for name in COMMANDS if name.startswith(prefix)]


def _format_fullness(agent: Agent) -> str:
    used = agent.used_tokens
    percentage = min(MAX_PERCENT, round(100 * used / agent.limit, 1))
    return f"Context {shorten_number(used)}/{shorten_number(agent.limit)} ({percentage:g}%)"


def _format_usage(spent: Spent) -> str:
    calls = f"{spent.calls} call" + ("s" if spent.calls != 1 else "")
    return f"{shorten_number(spent.input)} in / {shorten_number(spent.output)} out in {calls}"


def _list_long_term(agent: Agent) -> Iterator[str]:
    """Yield the path and the embedder of long-term memories, if they are set."""
    settings = agent.settings.agent.long_term
    if settings.enabled and (settings.db_path is not None or settings.embedding != LongTermEmbedding()):
        with agent.guard_memory():
            memories = agent.memories
            embedder = memories.choice.embedder
            name = "by words alone" if embedder is None else embedder.space.name
            yield f"Long-term: {len(memories.rows()):,} memories · {name} · {memories.memory.store.place}"


def _list_context(agent: Agent, *, with_details: bool) -> Iterator[str]:
    settings = agent.settings.agent.workspace
    sizes = {tool.name: count_json(dict(tool.parameters)) for tool in agent.tools.tools()}
    yield f"Workspace: {agent.root}"
    yield f"Bootstrap max/file: {settings.bootstrap_max_chars:,} chars"
    yield f"Bootstrap max/total: {settings.bootstrap_total_max_chars:,} chars"
    yield f"System prompt: {_size(agent.build_messages()[0].text)}"
    yield "Injected workspace files:"
    files = workspace.context_files(agent.root, agent.settings.agent, first_run=agent.is_first_run)
    for file in files:
        if file.status != "missing":
            yield f"- {file.name}: {file.status.upper()} | raw {file.raw_chars:,} chars | injected {_size(file.text)}"
    missing = [file.name for file in files if file.status == "missing"]
    if missing:
        yield f"- none of these: {', '.join(missing)}"
    yield f"Tools: {len(sizes)} (schemas ~{sum(sizes.values()):,} tok): {', '.join(sizes)}"
    yield _format_fullness(agent)
    if with_details:
        yield "Tools by schema size:"
        for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
            yield f"- {name}: ~{size:,} tok"
        yield "The window:"
        report = agent.measure()
        for part in report.categories if report is not None else ():
            yield f"- {part.name}: {part.tokens:,} tok"


def _size(text: str) -> str:
    return f"{len(text):,} chars (~{count_text(text):,} tok)"


def _list_memory(agent: Agent) -> Iterator[str]:
    """Yield the memory files of the workspace, newest note first, and the facts."""
    notes = sorted((agent.root / "memory").glob("**/*.md"), reverse=True)
    files = [path for path in (agent.root / workspace.MEMORY[0], *notes) if path.is_file()]
    yield "Files:" if files else "No memory files yet."
    for path in files:
        yield f"- {path.relative_to(agent.root)}: {path.stat().st_size:,} bytes"
    facts = _list_facts(agent)
    yield "Facts:" if facts else "No facts yet."
    for fact in facts:
        yield _format_fact(fact)


def _format_fact(fact: FactRow) -> str:
    return f"- [{fact.type}] {fact.content}  ({fact.id})"


def _list_facts(agent: Agent) -> list[FactRow]:
    """List the facts of the project and the long-term memories, each once: a memory may be among the facts."""
    rows = {row.id: row for row in agent.session.facts()}
    with agent.guard_memory():
        for row in agent.memories.rows():
            rows[row.id] = row
    return list(rows.values())


def _forget(agent: Agent, wanted: str) -> str:
    """Forget a message by its number, or a fact by its id."""
    if wanted.isdecimal():
        count = agent.forget([int(wanted)])
    else:
        texts = [fact.content for fact in _list_facts(agent) if fact.id == wanted]
        agent.sessions.forget((), facts=texts)
        count = agent.session.forget_facts([wanted])
        with agent.guard_memory():
            if agent.memories.forget(wanted):
                count += 1
    if not count:
        return f"Nothing is called {wanted}. /memory show lists facts with their ids."
    return f"Forgotten: {count}."


def _search(agent: Agent, query: str) -> Iterator[str]:
    """Search facts, notes and the archive; yield the hits of each under a heading."""
    facts = find(_list_facts(agent), query, limit=MAX_HITS)
    if facts:
        yield "Facts:"
    for fact in facts:
        yield _format_fact(fact.fact)
    notes: Sequence[NoteHit] = ()
    if agent.notes is not None and agent.settings.agent.workspace.access != "none":
        notes = agent.notes.search(query, max_results=MAX_HITS).hits
    if notes:
        yield "Notes:"
    for note in notes:
        yield f"- {cite(note.path, note.start, note.end)}: {one_line(note.snippet, MAX_LINE_CHARS)}"
    passages = agent.session.search(query, limit=MAX_HITS)
    if passages:
        yield "Archive:"
    for hit in passages:
        yield f"- {hit.message}  {hit.score:.2f}  {hit.speaker}: {one_line(hit.text, MAX_LINE_CHARS)}"


# --- the commands, in the order of /help ---


@command("/help")
def show_help(_agent: Agent, _: str) -> Iterator[str]:
    """This list."""
    width = max(len(command.usage) for command in COMMANDS.values())
    return (f"{command.usage:<{width}}  {command.help}" for command in COMMANDS.values())


@command("/compact [INSTRUCTIONS]")
def compact(agent: Agent, instructions: str) -> str:
    """Replace older history with a summary."""
    before = agent.used_tokens
    try:
        done = agent.compact(instructions or None)
    except CompactionError as error:
        return f"Compaction skipped: {error} · {_format_fullness(agent)}"
    except ModelCancelledError:
        return "Compaction cancelled. Nothing has changed."
    return f"{agent.describe_compaction(done, before=before)}\n{_format_fullness(agent)}"


@command("/status")
def status(agent: Agent, _: str) -> Iterator[str]:
    """Model, context, tokens, cost, session, memory."""
    agent.save_tally()
    entry = agent.conversation.entry
    yield f"Model: {agent.model.name} · window {shorten_number(agent.limit)}"
    yield f"{_format_fullness(agent)} · compactions {entry.compaction_count}"
    spent = {purpose: entry.spent(purpose) for purpose in ("conversation", *get_args(Purpose))}
    tokens = _format_usage(sum(spent.values(), start=Spent()))
    if entry.cache_read:
        tokens += f" · cache {shorten_number(entry.cache_read)} read / {shorten_number(entry.cache_write)} written"
    if entry.estimated_cost_usd:
        tokens += f" · ${entry.estimated_cost_usd:.2f}"
    yield f"Tokens: {tokens}"
    for purpose, part in spent.items():
        if part.calls:
            yield f"- {purpose}: {_format_usage(part)}"
    age = format_age(agent.sessions.clock() - (entry.session_started_at or entry.updated_at))
    yield f"Session: {agent.conversation.key} · {age} · {plural(len(agent.history), 'message')}"
    yield f"Transcript: {agent.conversation.transcript.file.name}"
    stats = agent.engine.stats()
    counts = f"{plural(stats.messages, 'message')} · {plural(stats.facts, 'fact')}"
    yield f"Memory: {counts} · {stats.vectors or stats.embedder or 'by words alone'}"
    yield from _list_long_term(agent)


@command("/context [list|detail|json|map]")
def context(agent: Agent, mode: str) -> CommandResult | str | Iterable[str]:
    """Show what is in the window."""
    match mode:
        case "" | "map":
            return CommandResult(report=_expect_report(agent))
        case "list" | "show" | "detail" | "deep":
            return _list_context(agent, with_details=mode in {"detail", "deep"})
        case "json":
            entry = agent.conversation.entry.to_json()
            names = ("totalTokens", "inputTokens", "outputTokens", "contextTokens")
            session = {name: entry.get(name, 0) for name in names}
            data = {"report": _expect_report(agent).to_json(), "session": session}
            return json.dumps(data, ensure_ascii=False, indent=2, default=str)
        case _:
            return f"There is no /context {mode}. Use: /context list, /context detail, /context json, or /context map."


def _expect_report(agent: Agent) -> ContextReport:
    report = agent.measure()
    if report is None:
        raise InputError("The conversation is empty. Send a message first.")
    return report


@command("/memory show|add|forget|search")
def memory(agent: Agent, what: str) -> str | Iterable[str]:
    """Show, add, forget or search what is remembered."""
    verb, _, rest = what.partition(" ")
    match verb:
        case "" | "show":
            return _list_memory(agent)
        case "add" if rest:
            fact = agent.session.remember(rest)
            return f"Remembered: {fact.content}  ({fact.id})"
        case "forget" if rest:
            return _forget(agent, rest)
        case "search" if rest:
            return "\n".join(_search(agent, rest)) or "Nothing found."
        case _:
            return "Use: /memory show, /memory add TEXT, /memory forget ID, or /memory search WORDS."


@command("/pin [NUMBER...]")
def pin(agent: Agent, numbers: str) -> str:
    """Keep messages in every window; without a number your last one."""
    words = numbers.replace(",", " ").split()
    if not all(word.isdecimal() for word in words):
        raise InputError(f"{numbers!r}: name messages by their numbers, such as /pin 12 13; /memory search finds them")
    ids = [int(word) for word in words]
    if not words:
        ids = [item.id for item in agent.last_window().items if item.message.role == "user" and item.id][-1:]
    count = agent.session.pin(ids)
    agent.forget_measure()
    if not count:
        return "There is no such message."
    return f"Pinned {plural(count, 'message')}: kept in every window."


@command("/undo-trim")
def undo_trim(agent: Agent, _: str) -> str:
    """Bring back what the last trim removed from the window."""
    count = agent.session.undo_trim()
    agent.forget_measure()
    if not count:
        return "Nothing was trimmed."
    return f"The last trim removed {plural(count, 'message')}, which comes back as far as there is room."


@command("/new")
def begin_new(agent: Agent, _: str) -> str:
    """Begin a new conversation; the old one is kept."""
    conversation = agent.reset()
    kept = f" The old one is kept in {conversation.archived.name}." if conversation.archived else ""
    return f"A new conversation.{kept} The facts that were learned in it are kept."


@command("/reset")
def reset(agent: Agent, _: str) -> CommandResult | str | Iterable[str]:
    """The same as /new."""
    return begin_new(agent, _)


@command("/exit")
def leave(_agent: Agent, _: str) -> CommandResult:
    """Leave."""
    return CommandResult(is_exit=True)
