"""Install Holdfast into a host, and remove it again.

Every file that is changed is copied first. Removal puts the copy back byte for byte; if the host or the user has
changed a file since, only what Holdfast wrote is removed from it.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal

from holdfast.errors import InputError
from holdfast.files import write_private
from holdfast.hooks import json_text, marked_lines
from holdfast.hooks.hosts import ARGUMENTS, COMMAND_LINE, GO_ON, HOSTS, PROGRAM, TRUST, Block, Change, Copy, Host, Keys
from holdfast.programs import find_program, own_command

_RECORD: Final = "installed.json"
_OWN_HOOK: Final = re.compile(r'"command": ".*holdfast(?:\.exe)?(?:\\"|\')? hook(?: \|\| true)?"')
_OWN_SERVER: Final = re.compile(r'holdfast.*"mcp"[\],]')
_CAPITAL: Final = re.compile(r"(?<=.)(?=[A-Z])")

Action = Literal["create", "change", "keep", "remove"]
State = Literal["installed", "outdated", "not installed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One file of a host.

    Attributes:
        path: The file.
        before, after: Its content; None if there is no such file.
        part: What is changed in it.
    """

    path: Path
    before: bytes | None
    after: bytes | None
    part: Change

    @property
    def action(self) -> Action:
        """The kind of change."""
        if self.before == self.after:
            return "keep"
        if self.after is None:
            return "remove"
        return "create" if self.before is None else "change"


class Installer:
    """Installs Holdfast into one host.

    Args:
        name: The name of the host, one of `HOSTS`.
        records: The folder for what was changed, and for the copies of changed files.
        environ: The environment, which may name other folders.
        command: What runs `holdfast`: a program and its arguments, by default those of this installation.

    Raises:
        InputError: There is no such host.
    """

    def __init__(self, name: str, *, records: Path, environ: Mapping[str, str], command: Sequence[str] = ()) -> None:
        if name not in HOSTS:
            raise InputError(f"host {name!r} is not one of {', '.join(HOSTS)}")
        self.name = name
        self.host: Host = HOSTS[name]
        self.folder = Path(environ.get(self.host.variable) or self.host.folder).expanduser().absolute()
        self.command = list(command) or own_command()
        self._records = records / (_name_project(name, self.folder) if self.host.is_of_project else name)
        self._environ = environ

    @property
    def is_present(self) -> bool:
        """Whether the host is on this machine."""
        if self.folder.is_dir() and not self.host.is_of_project:
            return True
        return find_program(self.host.program, environ=self._environ, project=Path.cwd()) is not None

    @property
    def state(self) -> State:
        """Whether Holdfast is installed into the host, by this version."""
        changes = self.plan()
        if all(change.action == "keep" for change in changes):
            return "installed"
        return (
            "outdated" if any(change.before is not None for change in changes if _is_own(change)) else "not installed"
        )

    def plan(self) -> list[FileChange]:
        """List what an installation changes.

        Raises:
            InputError: A file of the host cannot be read, or cannot be changed without breaking it.
        """
        return list(self._plan())

    def install(self) -> list[FileChange]:
        """Change the files of the host, and return what was changed. What is up to date is kept."""
        changes = self.plan()
        record = self._read_record()
        for change in changes:
            if change.action != "keep" and change.after is not None:
                self._records.mkdir(parents=True, exist_ok=True)
                if str(change.path) not in record:  # copy a file before its first change
                    backup = self._records / f"{len(record)}-{change.path.name}"
                    folders = [str(folder) for folder in change.path.parents if not folder.exists()]
                    record[str(change.path)] = {
                        "backup": None if change.before is None else str(backup),
                        "folders": folders,
                    }
                    if change.before is not None:
                        write_private(backup, change.before)
                else:
                    self._update_backup(record[str(change.path)], change)
                record[str(change.path)]["after"] = _digest(change.after)
                write_private(self._records / _RECORD, json.dumps(record, indent=2).encode())
                change.path.parent.mkdir(parents=True, exist_ok=True)
                _write(change.path, change.after)
        return changes

    def _update_backup(self, entry: dict[str, Any], change: FileChange) -> None:
        """Take what the user has changed since the last installation into the copy, which a removal puts back."""
        if change.before is None or _digest(change.before) == entry["after"]:
            return
        name = f"{_digest(str(change.path).encode())[:12]}-{change.path.name}"
        backup = Path(entry["backup"] or self._records / name)
        without = _remove(change.part, change.before, _read_backup(entry), path=change.path, fill=self._fill)
        entry["backup"] = None if without is None else str(backup)
        if without is not None:
            write_private(backup, without)

    def plan_removal(self) -> list[FileChange]:
        """List what a removal changes."""
        record = self._read_record()
        wanted = {change.path: change for change in self._plan()}
        earlier = Copy(source="", target="")  # what an earlier version installed
        for path in map(Path, record):
            wanted.setdefault(path, FileChange(path=path, before=None, after=None, part=earlier))
        changes: list[FileChange] = []
        for path, change in wanted.items():
            current, entry = _read(path), record.get(str(path), {})
            before = _read_backup(entry)
            if current is None:
                continue
            if entry and _digest(current) == entry["after"]:
                after = before
            else:
                after = _remove(change.part, current, before, path=path, fill=self._fill)
            if after != current:
                changes.append(FileChange(path=path, before=current, after=after, part=change.part))
        return changes

    def uninstall(self) -> list[FileChange]:
        """Put back the files of the host, and return what was changed."""
        changes = self.plan_removal()
        made = [folder for entry in self._read_record().values() for folder in entry["folders"]]
        for change in changes:
            if change.after is None:
                change.path.unlink()
            else:
                _write(change.path, change.after)
        for folder in sorted(map(Path, made), key=lambda path: -len(path.parts)):
            with suppress(OSError):  # there are files of others in it
                folder.rmdir()
        shutil.rmtree(self._records, ignore_errors=True)
        return changes

    # --- planning ------------------------------------------------------------------

    def _plan(self) -> Iterator[FileChange]:
        for part in self.host.changes:
            if isinstance(part, Copy):
                with resources.as_file(resources.files("holdfast.hooks").joinpath(part.source)) as root:
                    for file in [root] if root.is_file() else sorted(filter(Path.is_file, root.rglob("*"))):
                        path = self.folder / part.target / file.relative_to(root)
                        data = self._fill_text(file.read_text("utf-8")).encode()
                        yield FileChange(path=path, before=_read(path), after=data, part=part)
                continue
            given = self._environ.get(part.variable) if isinstance(part, Keys) and part.variable else None
            path = Path(given).expanduser() if given else self.folder / part.file
            before = _read(path)
            yield FileChange(path=path, before=before, after=self._edit(part, before, path), part=part)

    def _edit(self, part: Keys | Block, before: bytes | None, path: Path) -> bytes:
        if isinstance(part, Keys):
            old = _decode(before, path)
            try:
                text = _add_keys(old, part, self._fill)
            except InputError as error:
                raise InputError(f"{path} was not changed: {error}") from error
            return before if before is not None and text == old else _encode(text, before)
        try:
            old = (before or b"").decode("utf-8-sig")
            _check(old, path)
        except ValueError as error:
            raise InputError(f"{path} is not valid, so it was not changed: {error}") from error
        try:
            text = marked_lines.insert(old, self._fill_text(part.text), under=part.under, replaces=part.replaces)
            _check(text, path)
        except InputError as error:
            raise InputError(f"{path} was not changed: {error}") from error
        except ValueError as error:
            raise InputError(f"{path} has settings of this name already: remove them first ({error})") from error
        return _encode(text, before)

    def _fill(self, value: Any) -> Any:
        """Put the command into a JSON value."""
        return json.loads(self._fill_text(json.dumps(value)))

    def _fill_text(self, text: str) -> str:
        """Put the command, and the trust in hooks, into a text with strings as in JSON."""
        program, *arguments = (json.dumps(word, ensure_ascii=False) for word in self.command)
        line = subprocess.list2cmdline(self.command) if os.name == "nt" else shlex.join(self.command)
        text = text.replace(f'"{PROGRAM}"', program)
        text = text.replace(f'"{ARGUMENTS}"', ", ".join(arguments))
        text = text.replace(COMMAND_LINE, json.dumps(line, ensure_ascii=False)[1:-1])
        text = text.replace(GO_ON, "" if os.name == "nt" else " || true")
        return text.replace(TRUST, self._trust()) if TRUST in text else text

    def _trust(self) -> str:
        """Return the lines by which Codex trusts its hooks: each by its place in the file, with its digest."""
        path = self.folder / "hooks.json"
        text = _decode(_read(path), path)
        lines: list[str] = []
        for part in self.host.changes:
            for name, items in part.items.items() if isinstance(part, Keys) else ():
                (group,) = self._fill(items)
                listed = json_text.get(text, name)
                listed = listed if isinstance(listed, list) else []
                kept = [item for item in listed if item == group or not _is_own_hook(item)]
                number = kept.index(group) if group in kept else len(kept)
                event = _CAPITAL.sub("_", name.removeprefix("hooks.")).lower()
                trusted = {"event_name": event, "hooks": [{"async": False, **hook} for hook in group["hooks"]]}
                digest = _digest(
                    json.dumps(trusted, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
                )
                for file in sorted({str(path), str(path.resolve())}):
                    key = json.dumps(f"{file}:{event}:{number}:0", ensure_ascii=False)
                    lines += [f"[hooks.state.{key}]", f'trusted_hash = "sha256:{digest}"']
        return "\n".join(lines)

    # --- what was changed ----------------------------------------------------------

    def _read_record(self) -> dict[str, dict[str, Any]]:
        data = _read(self._records / _RECORD)
        found: dict[str, dict[str, Any]] = json.loads(data) if data else {}
        return found


# --- consent ---------------------------------------------------------------------


def plan_host_model(settings_file: Path, model: str | None) -> FileChange:
    """Return the change of the user's settings that lets a model read sessions of hosts for facts, or no longer.

    Raises:
        InputError: The file has the setting already, outside of the lines that Holdfast wrote.
    """
    before = _read(settings_file)
    text = (before or b"").decode("utf-8-sig")
    part = Block(file=settings_file.name, text="host_model", under="[knowledge]")
    if model is None:
        after = marked_lines.remove(text)
    else:
        line = f"host_model = {json.dumps(model, ensure_ascii=False)}"
        after = marked_lines.insert(text, line, under=part.under)
    try:
        found = tomllib.loads(after).get("knowledge", {})
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f"{settings_file} sets knowledge.host_model already, or is not valid TOML: change it there ({error})"
        ) from error
    if found.get("host_model") != model:
        raise InputError(f"{settings_file} sets knowledge.host_model itself: change it there")
    data = _encode(after, before) if after or before is not None else None
    return FileChange(path=settings_file, before=before, after=data, part=part)


def write_change(change: FileChange) -> None:
    """Write a planned change of a settings file."""
    if change.action == "keep" or change.after is None:
        return
    change.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(change.path, change.after)


# --- files -----------------------------------------------------------------------


def _name_project(name: str, folder: Path) -> str:
    """Name the records of a host that is installed into one project."""
    return f"{name}-{_digest(str(folder).encode())[:12]}"


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def _read_backup(entry: Mapping[str, Any]) -> bytes | None:
    """Read the copy of a file that was there before the installation."""
    return _read(Path(entry["backup"])) if entry.get("backup") else None


def _write(path: Path, data: bytes) -> None:
    """Replace a file at once; an existing one keeps its mode, and a link its target."""
    path = path.resolve()
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    write_private(path, data)
    path.chmod(mode)


def _check(text: str, path: Path) -> None:
    """Raise a ValueError if a TOML or YAML file is not valid."""
    if path.suffix == ".toml":
        tomllib.loads(text)
    else:
        marked_lines.check_yaml(text)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _is_own(change: FileChange) -> bool:
    """Return whether a file is there only with Holdfast, or has something of it."""
    return isinstance(change.part, Copy) or b"holdfast" in (change.before or b"")


def _remove(
    part: Change, current: bytes, before: bytes | None, *, path: Path, fill: Callable[[Any], Any]
) -> bytes | None:
    """Remove what an installation wrote from a file that was changed since."""
    if isinstance(part, Copy):
        return before
    if isinstance(part, Block):
        text = marked_lines.remove(current.decode("utf-8-sig"))
        is_as_before = text.rstrip() == (before or b"").decode("utf-8-sig").rstrip()
        return before if is_as_before else _encode(text, current)
    old = _decode(before, path)
    text = _remove_keys(_decode(current, path), old, part, fill)
    new_comments = set(json_text.list_comments(text)) - set(json_text.list_comments(old))
    if json_text.parse(text) == json_text.parse(old) and not new_comments:
        return before  # at most the host has written it again, perhaps without the comments
    return _encode(text, current)


# --- JSON ------------------------------------------------------------------------


def _decode(data: bytes | None, path: Path) -> str:
    """Decode a JSON file; a file that is empty or not there is an empty object.

    Raises:
        InputError: It is not a JSON object.
    """
    try:
        text = (data or b"").decode("utf-8-sig")
        if not text.strip():
            return "{}\n"
        found = json_text.parse(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON, so it was not changed: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} is not a JSON object, so it was not changed")
    return text


def _encode(text: str, like: bytes | None) -> bytes:
    """Encode a text, with a byte order mark if the file has one."""
    return text.encode("utf-8-sig" if (like or b"").startswith(codecs.BOM_UTF8) else "utf-8")


def _is_own_hook(item: Any) -> bool:
    """Return whether an item of a list runs `holdfast hook`, also one of an installation in another place."""
    return _OWN_HOOK.search(json.dumps(item)) is not None


def _is_own_server(value: Any) -> bool:
    """Return whether a value describes the MCP server, also one of an installation in another place."""
    return isinstance(value, dict) and _OWN_SERVER.search(json.dumps(value)) is not None


def _add_keys(text: str, part: Keys, fill: Callable[[Any], Any]) -> str:
    for name, value in part.values.items():
        wanted = fill(value)
        if json_text.get(text, name) != wanted:
            text = json_text.set_value(text, name, wanted)
    for name, items in [*part.items.items(), *part.present.items()]:
        if name in part.items or json_text.get_raw(text, name) is not None:
            text = _add_items(text, name, [fill(item) for item in items])
    return text


def _add_items(text: str, name: str, wanted: list[Any]) -> str:
    """Add items to a list, in place of hooks of an installation elsewhere."""
    text = json_text.remove_items(text, name, lambda item: item not in wanted and _is_own_hook(item))
    for item in wanted:
        listed = json_text.get(text, name)
        if not isinstance(listed, list) or item not in listed:
            text = json_text.append(text, name, item)
    return text


def _remove_keys(text: str, old: str, part: Keys, fill: Callable[[Any], Any]) -> str:
    """Remove what `_add_keys` added; values that were there before come back."""
    for name, value in part.values.items():
        found = json_text.get(text, name)
        if found == fill(value) or _is_own_server(found):
            raw = json_text.get_raw(old, name)
            text = json_text.remove(text, name) if raw is None else json_text.set_raw(text, name, raw)
    for name, items in [*part.items.items(), *part.present.items()]:
        text = _remove_items(text, old, name, [fill(item) for item in items])
    return _remove_blank(text, old, part)


def _remove_items(text: str, old: str, name: str, added: list[Any]) -> str:
    """Remove items that were added to a list; those that were in it before stay."""
    before = json_text.get(old, name)
    theirs = [item for item in before if not _is_own_hook(item)] if isinstance(before, list) else []
    unwanted = [item for item in added if item not in theirs]
    return json_text.remove_items(text, name, lambda item: item in unwanted or _is_own_hook(item))


def _remove_blank(text: str, old: str, part: Keys) -> str:
    """Remove the objects and lists that were made for values and are empty now."""
    lists = [*part.items, *part.present]
    parents = [parent for name in [*part.values, *lists] for parent in _list_parents(name)]
    for path in [*lists, *parents]:
        if json_text.is_blank(text, path):
            raw = json_text.get_raw(old, path)
            if raw is None:
                text = json_text.remove(text, path)
            elif json_text.is_blank(old, path):
                text = json_text.set_raw(text, path, raw)
    return text


def _list_parents(name: str) -> list[str]:
    """List the names of the objects around a value, the innermost first and the root last."""
    keys = name.split(".")
    return [".".join(keys[:depth]) for depth in range(len(keys) - 1, -1, -1)]
