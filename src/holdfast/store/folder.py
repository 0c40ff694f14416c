"""A memory-context folder as the home of a memory: a files store that also knows how much it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from holdfast.search.columns import Floats
from holdfast.search.embed.base import Space
from holdfast.store.base import Gap, Job, PassageText, Scope
from holdfast.store.files import FilesStore

__all__ = ["FolderStore"]


class FolderStore(FilesStore):
    """A files store with what a memory asks of its store beside the five things that every store can do."""

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self.folder

    @property
    def readonly(self) -> bool:
        """Whether it cannot be written."""
        return not self._writable

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """None: lines that cannot be read are `problems`, and belong to nobody."""
        return ()

    def counts(self) -> dict[str, int]:
        """How many messages, passages, sessions and facts there are, and how many bytes they take."""
        with self._current():
            state = self._state
            scopes = {entry.scope for entry in state.messages.values()} | {fact.scope for fact in state.facts.values()}
            return {
                "messages": len(state.messages),
                "passages": len(self._indexed().kept()),
                "sessions": len(scopes),
                "facts": len({(fact.scope, fact.id) for fact in state.facts.values()}),
                "bytes": sum(file.stat().st_size for file in self.folder.iterdir() if file.is_file()),
            }

    def sessions(self) -> dict[Scope, int]:
        """How many messages each session has; the session with the newest message comes first."""
        with self._current():
            newest_first = sorted(self._state.messages.values(), key=lambda entry: -entry.number)
            return dict(Counter(entry.scope for entry in newest_first))

    def embedded(self, space: Space) -> int:
        """How many passages have vectors in this space."""
        with self._current():
            return len(self._indexed().kept()) - len(self._without(space))

    def without_vectors(self, space: Space, *, limit: int) -> list[PassageText]:
        """Passages that have no vectors in this space yet, oldest first, whosever they are."""
        with self._current():
            return [self._passage(number) for number in self._without(space)[:limit]]

    def _without(self, space: Space) -> list[int]:
        _, rows = self._vectors(space)
        return [number for number in self._indexed().kept() if not self._has_vectors(number, rows)]

    def _has_vectors(self, number: int, rows: Mapping[str, Floats]) -> bool:
        """Tell whether each window of a passage has a vector, or its message has only one for all of it."""
        index = self._indexed()
        message, _ = index.places[number]
        name, windows = self._state.messages[message].name, index.windows(message)
        if len(windows) == 1 or not any(f"{name}#{place}" in rows for place in range(len(windows))):
            return name in rows
        own = index.inner.columns.window_range(number)
        return all(f"{name}#{window - windows.start}" in rows for window in own)

    def waiting(self, name: str, *, limit: int) -> list[Job]:
        """Jobs of this kind, oldest first, whosever they are."""
        with self._current():
            jobs = [job for _, job in sorted(self._state.jobs.items()) if job.kind == name]
            return jobs[:limit]
