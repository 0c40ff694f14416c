"""Which settings files count in full, what the others may set, and what the user has trusted.

A settings file in the working directory or in the folder of a project may come from somebody else: from a repository
that was cloned, or an archive that was unpacked. It may set the keys in `PROJECT_KEYS` and nothing else, until the user
runs `holdfast trust`. Where a file lies is decided by its own place, before any link is followed. What is trusted is
remembered with a digest of its content, so a file that changes has to be trusted again.
"""

import json
import os
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from holdfast.errors import SettingsError

__all__ = [
    "PROJECT_KEYS",
    "SETTINGS_FILES",
    "forget_trust",
    "is_project_file",
    "is_trusted",
    "links_out_of",
    "record_trust",
    "trust_file",
    "trusted",
]

SETTINGS_FILES: Final = ("holdfast.toml", "openclaw.json")

PROJECT_KEYS: Final = frozenset(
    {
        "agent.block_streaming",
        "agent.context_tokens",
        "agent.timezone",
        "compaction.enabled",
        "compaction.identifier_policy",
        "compaction.keep_recent_tokens",
        "compaction.max_history_share",
        "compaction.memory_flush.enabled",
        "compaction.memory_flush.force_flush_transcript_bytes",
        "compaction.memory_flush.max_failures",
        "compaction.memory_flush.soft_threshold",
        "compaction.memory_flush.soft_threshold_tokens",
        "compaction.mode",
        "compaction.quality_guard.enabled",
        "compaction.quality_guard.max_retries",
        "compaction.recent_turns_preserve",
        "compaction.reserve_tokens",
        "compaction.reserve_tokens_floor",
        "compaction.timeout_seconds",
        "memory.citations",
        "memory_search.chunking.overlap",
        "memory_search.chunking.tokens",
        "memory_search.query.hybrid.candidate_multiplier",
        "memory_search.query.hybrid.enabled",
        "memory_search.query.hybrid.mmr.enabled",
        "memory_search.query.hybrid.mmr.relevance_weight",
        "memory_search.query.hybrid.temporal_decay.enabled",
        "memory_search.query.hybrid.temporal_decay.half_life_days",
        "memory_search.query.hybrid.text_weight",
        "memory_search.query.hybrid.vector_weight",
        "memory_search.query.max_results",
        "memory_search.query.min_score",
        "pruning.hard_clear.enabled",
        "pruning.hard_clear_ratio",
        "pruning.keep_last_assistants",
        "pruning.min_prunable_tool_chars",
        "pruning.mode",
        "pruning.soft_trim.head_chars",
        "pruning.soft_trim.max_chars",
        "pruning.soft_trim.tail_chars",
        "pruning.soft_trim_ratio",
        "pruning.tools.allow",
        "pruning.tools.deny",
        "pruning.ttl",
        "recall.deadline_ms",
        "recall.hard_cap_tokens",
        "recall.knowledge_share",
        "recall.max_facts",
        "recall.max_window_share",
        "recall.min_query_chars",
        "recall.min_score",
        "recall.neighbours",
        "recall.position",
        "recall.query_messages",
        "search.bm25_weight",
        "search.fusion",
        "search.mmr.enabled",
        "search.mmr.relevance_weight",
        "search.time_decay",
        "search.vector_weight",
        "trim.enabled",
        "trim.hysteresis",
        "trim.min_query_chars",
        "trim.protected_recent",
        "workspace.bootstrap_max_chars",
        "workspace.bootstrap_total_max_chars",
    }
)
"""What an untrusted settings file may set: sizes, thresholds and orders of the window.

Not in the list, and so refused: what is run, loaded, fetched or asked; where text is sent, read or written; words that
go into a prompt; masking; what the agent may do; and what lets one conversation see another. A new setting is refused
until it is added here.
"""


def is_project_file(path: Path, *, project: Path | None) -> bool:
    """Tell whether a settings file lies in the working directory or the project's folder, and not among the user's own.

    The file itself may be a link: where it leads does not count.
    """
    folders = (Path(), *([project] if project is not None else []))
    return any(_is_same(path.parent, folder) for folder in folders) and not any(
        _is_same(path.parent, own) for own in (trust_file().parent, Path.home() / ".openclaw")
    )


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them does not exist
        return False


# --- what the user trusted -------------------------------------------------------


def trust_file() -> Path:
    """The file in which `holdfast trust` remembers."""
    import platformdirs  # noqa: PLC0415 - most runs read no file of a project

    return platformdirs.user_config_path("holdfast") / "trusted.json"


def trusted() -> dict[str, str]:
    """Return the digest of everything that is trusted, by its path.

    Raises:
        SettingsError: The file cannot be read.
    """
    file = trust_file()
    try:
        found = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SettingsError("cannot be read: delete it, then trust again what you trust", source=str(file)) from error
    return {str(path): str(digest) for path, digest in found.items()} if isinstance(found, dict) else {}


def is_trusted(path: Path, content: bytes) -> bool:
    """Tell whether the user trusted this content in this place. Nothing is trusted where that cannot be read."""
    try:
        return trusted().get(_place(path)) == sha256(content).hexdigest()
    except SettingsError:
        return False


def record_trust(contents: Mapping[Path, bytes]) -> dict[str, str]:
    """Remember the content of files, and the targets of links, as trusted; return what was added.

    Raises:
        SettingsError: The file cannot be read or written.
    """
    new = {_place(path): sha256(content).hexdigest() for path, content in contents.items()}
    _write(trusted() | new)
    return new


def forget_trust(path: Path) -> list[str]:
    """Trust nothing in this folder, or at this place, any more; return what was trusted.

    Raises:
        SettingsError: The file cannot be read or written.
    """
    known, at = trusted(), _place(path)
    real = os.path.realpath(path)  # a link to a folder stands for both
    gone = [each for each in known if any(Path(each).is_relative_to(place) for place in (at, real))]
    if gone:
        _write({each: digest for each, digest in known.items() if each not in gone})
    return gone


def _place(path: Path) -> str:
    """Where a file or a link itself lies: links in the folders above it are followed, the last step is not."""
    absolute = os.path.abspath(path)  # noqa: PTH100 - resolve() would follow the last step
    return os.path.join(os.path.realpath(os.path.dirname(absolute)), os.path.basename(absolute))  # noqa: PTH118, PTH119, PTH120


def _write(digests: Mapping[str, str]) -> None:
    file = trust_file()
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
            json.dump(dict(sorted(digests.items())), out, indent=2)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(file)
    except OSError as error:
        raise SettingsError(f"cannot be written: {error.strerror}", source=str(file)) from error


# --- stores that are links -------------------------------------------------------


def links_out_of(folder: Path, place: Path) -> dict[Path, bytes]:
    """Return where a place that is named inside of a folder leads out of it: itself or a file in it, with its target.

    The target is the content by which `is_trusted` and `record_trust` know a link. A place that is named elsewhere does
    not lead out of the folder.
    """
    if not Path(os.path.abspath(place)).is_relative_to(os.path.abspath(folder)):  # noqa: PTH100 - as it is written
        return {}
    inside = Path(os.path.realpath(folder))
    targets = {path: Path(os.path.realpath(path)) for path in (place, *_entries(place))}
    return {path: os.fsencode(target) for path, target in targets.items() if not target.is_relative_to(inside)}


def _entries(place: Path) -> Iterable[Path]:
    """The links directly in a store's folder, and those that SQLite would use beside a store's file."""
    try:
        if place.is_dir():
            return [Path(entry.path) for entry in os.scandir(place) if entry.is_symlink()]
    except OSError:
        return []
    beside = [place.with_name(f"{place.name}{end}") for end in ("-wal", "-shm", "-journal")]
    return [path for path in beside if path.is_symlink()]
