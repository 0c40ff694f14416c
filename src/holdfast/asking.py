"""What can be asked of an open memory, and told to it, session by session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.memory.memory import Memory, Stats
from holdfast.memory.recall import Hit, Recall
from holdfast.memory.request import request_of
from holdfast.settings import Settings
from holdfast.store.base import FactRow, FactType, MessageRow, Scope, Select

__all__ = ["TURN", "Asking"]

TURN: Final = "turn"
"""The kind of the records that tell of past turns."""


class Asking:
    """The part of an engine that answers."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.memory.settings

    def recall(
        self,
        query: str,
        *,
        session: str,
        cap: int | None = None,
        tenant: str = "local",
        project: str = "",
        agent: str = "main",
    ) -> Recall:
        """The block that would be recalled for a question."""
        request = request_of(
            self.settings,
            (query,),
            scope=Scope(tenant=tenant, project=project, agent=agent, session=session),
            now=self.memory.clock(),
            cap=cap,
        )
        return self.memory.recall(request)

    def search(
        self,
        query: str,
        *,
        session: str,
        across: bool = True,
        limit: int = 10,
        tenant: str = "local",
        project: str = "",
        agent: str = "main",
    ) -> list[Hit]:
        """The passages that have most to do with a question, best first."""
        return self.memory.search(
            query, scope=Scope(tenant=tenant, project=project, agent=agent, session=session), across=across, limit=limit
        )

    def get(
        self,
        ids: Sequence[int],
        *,
        session: str,
        across: bool = True,
        around: int = 0,
        tenant: str = "local",
        project: str = "",
        agent: str = "main",
    ) -> list[MessageRow]:
        """Archived messages by number: what was pruned or trimmed, whole."""
        return self.memory.get(
            ids, scope=Scope(tenant=tenant, project=project, agent=agent, session=session), across=across, around=around
        )

    def remember(
        self,
        content: str,
        *,
        session: str,
        type: FactType = "decision",  # noqa: A002 - the domain's own word
        tenant: str = "local",
        project: str = "",
        agent: str = "main",
    ) -> FactRow:
        """Keep a fact."""
        return self.memory.remember(
            content, scope=Scope(tenant=tenant, project=project, agent=agent, session=session), type=type
        )

    def facts(
        self, *, session: str, across: bool = True, tenant: str = "local", project: str = "", agent: str = "main"
    ) -> list[FactRow]:
        """The facts that hold now."""
        return self.memory.facts(
            scope=Scope(tenant=tenant, project=project, agent=agent, session=session), across=across
        )

    def forget(
        self,
        *,
        session: str,
        ids: Sequence[int] | None = None,
        tenant: str = "local",
        project: str = "",
        agent: str = "main",
    ) -> int:
        """Forget messages for good; with none named, the whole session."""
        return self.memory.forget(scope=Scope(tenant=tenant, project=project, agent=agent, session=session), ids=ids)

    def forget_facts(
        self,
        ids: Sequence[str],
        *,
        session: str,
        across: bool = True,
        tenant: str = "local",
        project: str = "",
        agent: str = "main",
    ) -> int:
        """Forget facts for good."""
        return self.memory.forget(
            scope=Scope(tenant=tenant, project=project, agent=agent, session=session), fact_ids=ids, across=across
        )

    def timeline(
        self, *, session: str, tenant: str = "local", project: str = "", agent: str = "main"
    ) -> list[dict[str, Any]]:
        """The report of every past turn of a session, oldest first."""
        select = Select(
            kind="record", scope=Scope(tenant=tenant, project=project, agent=agent, session=session), name=TURN
        )
        return [dict(record.data) for record in self.memory.store.fetch(select)]

    def stats(self) -> Stats:
        """What memory holds, and what is missing."""
        return self.memory.stats()
