"""`holdfast doctor`: check the installation, and explain how to fix problems."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from shutil import disk_usage
from typing import Any, Final, Literal

from rich.text import Text as Styled

from holdfast import __version__, transcripts
from holdfast import settings as configuration
from holdfast.cli.console import open_console
from holdfast.cli.install import find_missing_extras, open_installer
from holdfast.cli.opening import EXTRAS, has_extra
from holdfast.cli.output import emit_json, human_bytes, terminal_width, wrap
from holdfast.embed import Choice, choose
from holdfast.errors import HoldfastError, MissingExtraError
from holdfast.hooks.hosts import HOSTS
from holdfast.memory.archive import passages_of
from holdfast.memory.block import open_marks
from holdfast.memory.learning_state import read_state
from holdfast.memory.memory import Memory
from holdfast.settings.loading import PROJECT_FILE, Loaded, user_file_places
from holdfast.settings.schema import Secret
from holdfast.store.base import Store
from holdfast.store.connection import is_writable
from holdfast.store.folder import FolderStore
from holdfast.store.keys import describe_source, find_key
from holdfast.store.opening import database_file, default_path, open_server, server_address, store_file
from holdfast.store.repair import Cut, list_lost, repair
from holdfast.store.sqlite import SqliteStore
from holdfast.store.upkeep import Health, check
from holdfast.text import plural, printable
from holdfast_agent.settings import ChatSettings
from holdfast_agent.settings import load as load_settings
from holdfast_memory.distribution import explain_other_project, find_other_projects, install_command

Level = Literal["ok", "note", "wrong"]
_MARKS: Final[dict[Level, tuple[str, str]]] = {"ok": ("✓", "green"), "note": ("·", "yellow"), "wrong": ("✗", "red")}
_LANCEDB: Final = "~/.openclaw/memory/lancedb"
"""The default folder of OpenClaw's long-term memories."""
_MIN_FREE_BYTES: Final = 100_000_000
_HOOK_FAILURES: Final = 3
"""The number of newest failures of hooks that are shown."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    level: Level
    what: str


def print_findings(*, home: Path | None, mend: bool, as_json: bool) -> None:
    """Run every check, and print what was found."""
    findings = check_all(home, project=Path(), mend=mend)
    if as_json:
        emit_json({"version": __version__, "findings": [asdict(one) for one in findings]})
    else:
        screen = open_console()
        width = terminal_width()
        for one in findings:
            mark, colour = _MARKS[one.level]
            line = f"{mark} {printable(one.what)}"
            if width is not None:
                line = wrap(line, width=width, indent=2)
            screen.print(Styled(mark, style=colour).append(line.removeprefix(mark), style="default"), soft_wrap=True)
    if any(one.level == "wrong" for one in findings):
        sys.exit(1)


def check_all(
    home: Path | str | None, *, project: Path | None, mend: bool = False, is_thorough: bool = True
) -> list[Finding]:
    """Run every check, with the settings of a project or with those of the user alone.

    Without `is_thorough`, those are left out that read every row of the store.
    """
    system = f"{platform.system()} {platform.machine()}"
    installed = [
        Finding("ok", f"holdfast {__version__}, Python {platform.python_version()}, {system}"),
        Finding("ok", f"SQLite {sqlite3.sqlite_version}"),
    ]
    installed += [Finding("wrong", explain_other_project(project)) for project in find_other_projects()]
    installed.append(Finding("ok", _describe_extras()))
    files = configuration.user_files() if project is None else configuration.default_files(folder=project)
    try:
        loaded = load_settings(files=files)
    except HoldfastError as error:
        settings = ChatSettings()
        problems = [Finding("wrong", str(error))]
    else:
        settings = loaded.settings
        problems = [Finding("ok", _describe_sources(files, loaded=loaded, project=project))]
        problems += map(partial(Finding, "note"), (*loaded.warnings, *loaded.without_effect))
        if loaded.ignored:
            others = ", ".join(sorted(loaded.ignored))
            problems.append(Finding("note", f"settings of other programs that were ignored: {others}"))
    choice = choose(settings.embedding, allow_remote=settings.embedding.allow_remote)
    address = server_address(home, settings=settings)
    try:
        file = default_path() if address else store_file(home, settings=settings)
    except HoldfastError as error:
        return [*installed, *problems, Finding("wrong", str(error))]
    checks = _Checks(
        settings,
        choice,
        file,
        folder=file if address else file.parent,
        address=address,
        mend=mend,
        is_thorough=is_thorough,
    )
    memory = (*checks.models(), *checks.search(), *checks.memory(), *checks.disk())
    return [*installed, *problems, *memory, *checks.hooks(), *checks.agents()]


def _describe_extras() -> str:
    """Name the extras that are installed, and the others. One that the settings need is a finding of its own."""
    installed = [extra for extra in EXTRAS if has_extra(extra)]
    missing = [extra for extra in EXTRAS if extra not in installed]
    shown = f"extras: {', '.join(installed) or 'none'}"
    if missing:
        shown += f"; not installed: {', '.join(missing)} ({install_command('NAME')} adds one)"
    return shown


def _describe_sources(files: Sequence[Path], *, loaded: Loaded[Any], project: Path | None) -> str:
    """Name the files and variables that set something; without a file, the places where one would be read."""
    prefix = "environment: "
    variables = sorted(origin.removeprefix(prefix) for origin in loaded.origins.values() if origin.startswith(prefix))
    used = [file for file in files if file not in loaded.left_out]
    sources = ", ".join((*map(str, used), *variables))
    shown = f"settings from {sources or 'the defaults'}"
    if files:
        return shown
    own = [] if project is None else [project.absolute() / PROJECT_FILE]
    places = ", ".join(str(place) for place in (*own, *user_file_places()))
    return f"{shown}; no settings file was found at {places}"


def _describe_encryption(source: str | None) -> str:
    from holdfast.store.cipher import describe_cipher  # noqa: PLC0415 - an extra

    return f"encrypted by {describe_cipher()}, the key from {describe_source(source or '')}"


def _list_health(health: Health, *, repair: str) -> Iterator[Finding]:
    counts = ", ".join(plural(number, name[:-1]) for name, number in health.counts.items() if number)
    yield Finding(
        "ok" if health.sound else "note", f"{health.path}: {counts or ('damaged' if health.damage else 'empty')}"
    )
    for damage in health.damage:
        yield Finding("wrong", damage if "--repair" in damage else f"{damage}: {repair}")
    for trouble in health.index:
        yield Finding("wrong", f"{trouble}: run `holdfast reindex`")
    for warning in health.warnings:
        yield Finding("note", warning)


def _repair_damage(file: Path, *, key: Secret | None) -> Finding:
    """Repair a store if it is damaged. Another one stays as it is: the new file would need new vectors."""
    health = check(file, key=key)
    if not health.damage:
        return Finding("ok", "nothing is damaged, so nothing was repaired")

    def make_cut(store: Store) -> Cut:
        return partial(passages_of, marks=open_marks(store))  # recalled text must not be indexed

    repaired = repair(file, key=key, cutter=make_cut)
    return Finding("note" if repaired.lost else "ok", repaired.summary)


_NO_SESSIONS: Final = (
    "no agent has left sessions in its usual folder: holdfast import FILE reads those of another folder,"
    " holdfast install HOST stores new ones"
)


@dataclass(frozen=True, slots=True)
class _Checks:
    """The checks of one memory and of the agents on this machine."""

    settings: ChatSettings
    choice: Choice
    file: Path
    folder: Path
    address: str | None
    mend: bool
    is_thorough: bool

    def models(self) -> Iterator[Finding]:
        """Open the models that the settings name, and look for their tokenizer. Nothing is sent."""
        from holdfast.models import open_model  # noqa: PLC0415 - only for this

        compaction = self.settings.compaction
        names = {
            "compaction.model": compaction.model,
            "compaction.memory_flush.model": compaction.memory_flush.model,
            "knowledge.model": self.settings.knowledge.model,
            "knowledge.host_model": self.settings.knowledge.host_model,
            "model.name": self.settings.model.name,
        }
        for key, name in names.items():
            try:
                if name:
                    open_model(name, settings=self.settings)
            except HoldfastError as error:
                # Other ways in than `holdfast chat` only look up the window of this model.
                level: Level = "note" if key == "model.name" else "wrong"
                yield Finding(level, f"{key}: {error}")
        counter = self.settings.tokens.counter
        if counter in EXTRAS and not has_extra(counter):
            yield Finding("wrong", f"tokens.counter: {MissingExtraError(f'counting with {counter}', extra=counter)}")

    def search(self) -> Iterator[Finding]:
        embedding = self.settings.embedding
        is_named = embedding.provider not in {"auto", "none"} or embedding.base_url is not None
        level: Level = "ok"
        if self.choice.embedder is None:
            level = "wrong" if is_named else "note"
        for reason in self.choice.reasons:
            yield Finding(level, f"embedding: {reason}")
        agent = self.settings.agent
        if agent.memory_search.backend == "qmd":
            from holdfast_agent.qmd import missing_command  # noqa: PLC0415 - only for this

            missing = missing_command(agent.memory_search, project=Path.cwd())
            if missing is None:
                yield Finding("ok", f"search of notes: {agent.memory_search.qmd.command}")
            else:
                yield Finding("note", f"search of notes: the built-in index, {missing}")
        table = Path(agent.long_term.db_path or _LANCEDB).expanduser() / "memories.lance"
        if table.is_dir():
            yield Finding(
                "note", f"{table}: memories of OpenClaw in LanceDB, which are not read here: store them again"
            )

    def memory(self) -> Iterator[Finding]:
        file, database = self.file, database_file(self.file)
        try:
            if self.address:
                with open_server(self.address, self.settings, timeout=0) as server:
                    yield from _list_health(
                        server.check(is_thorough=self.is_thorough), repair="restore it from a backup of the server"
                    )
                    yield from self.learning(server)
                return
            if not file.exists():
                yield Finding("note", f"no memory at {file} yet: holdfast import --discover")
                return
            if database.exists():
                key = find_key(self.settings.archive.encryption_key)
                if self.mend:
                    yield _repair_damage(database, key=key)
                yield from self.database(database, key=key)
                if key is not None:  # it is the right one, else this is not reached
                    yield Finding("ok", _describe_encryption(self.settings.archive.encryption_key))
            if file.is_dir():  # a memory-context folder
                with FolderStore(file, readonly=True) as store:
                    counts = ", ".join(
                        f"{number:,} {name}" for name, number in store.counts().items() if name != "bytes"
                    )
                    yield Finding("ok", f"{file}: {counts}")
                    for problem in store.problems:
                        yield Finding("note", f"{file / problem.file}:{problem.line}: {problem.reason}")
        except HoldfastError as error:
            yield Finding("wrong", str(error))

    def learning(self, store: Store) -> Iterator[Finding]:
        """Report what delays the extraction of facts."""
        memory = Memory(store=store, settings=self.settings, choice=self.choice)
        for problem in read_state(store, self.settings, now=memory.clock()).problems:
            yield Finding("note", problem)

    def database(self, file: Path, *, key: Secret | None) -> Iterator[Finding]:
        health = check(file, key=key, is_thorough=self.is_thorough)
        yield from _list_health(health, repair="run `holdfast doctor --repair`")
        if health.damage and self.is_thorough:
            named = "\n".join(health.damage)
            lost = [what for what in list_lost(file, key=key) if what not in named]
            if lost:
                yield Finding("wrong", f"lost whether the store is repaired or not: {'; '.join(lost)}")
        if health.sound:
            with SqliteStore(file, key=key) as store:
                yield from self.learning(store)
        if health.sound and self.choice.embedder is not None:
            with SqliteStore(file, key=key) as store:
                missing = Memory(store=store, settings=configuration.Settings(), choice=self.choice).missing()
            for note in missing:
                yield Finding("note", f"search: {note}")

    def disk(self) -> Iterator[Finding]:
        """Report a memory that cannot be written, and a disk that is almost full."""
        file = self.file.absolute()
        folder = next(place for place in (file, *file.parents) if place.is_dir())
        for place in dict.fromkeys((folder, database_file(file))):
            if place.exists() and not is_writable(place):
                yield Finding("note", f"{place} is read-only, so nothing can be archived: make it writable")
        if (free := disk_usage(folder).free) < _MIN_FREE_BYTES:
            yield Finding("note", f"{folder}: only {human_bytes(free)} of the disk are free: make room")

    def hooks(self) -> Iterator[Finding]:
        """Show the newest failures of `holdfast hook`, which hosts do not show."""
        file = self.folder / "hooks.log"
        lines = file.read_text("utf-8", "replace").splitlines() if file.is_file() else []
        if lines:
            yield Finding(
                "note",
                f"{plural(len(lines), 'failure')} of hooks in {file}; delete it once they are fixed. The newest:",
            )
        for line in lines[-_HOOK_FAILURES:]:
            yield Finding("note", f"hook: {line}")

    def agents(self) -> Iterator[Finding]:
        """List the sessions of agents, check the installations into them, and name agents without one."""
        places = transcripts.default_places(os.environ, Path.home())
        for place in places:
            number = len(list(transcripts.sessions(place.folder)))
            yield Finding("ok", f"{place.agent}: {plural(number, 'session')} in {place.folder}")
        if not places:
            yield Finding("note", _NO_SESSIONS)
        for name in HOSTS:
            try:
                installer = open_installer(name, memory=self.folder)
                state = installer.state
            except HoldfastError as error:
                yield Finding("wrong", f"{name}: {error}")
                continue
            title = installer.host.title
            missing = find_missing_extras(installer.host)
            if state == "installed" and missing:
                yield Finding("wrong", f"installed into {title}, and packages are missing: {install_command(*missing)}")
            elif state == "installed":
                yield Finding("ok", f"installed into {title}")
            elif state == "outdated":
                yield Finding("wrong", f"{title} has an incomplete or older installation: holdfast install {name}")
            elif installer.is_present:
                yield Finding("note", f"{title} is on this machine: holdfast install {name} gives it memory")
