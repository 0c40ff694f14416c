"""One request on its way: the clock of its steps, and what went wrong and was passed over."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from holdfast.context.budget import Budget
from holdfast.context.edits import Edit, Item, messages, tokens
from holdfast.context.finish import Finished
from holdfast.conversation import Conversation
from holdfast.errors import HoldfastError, WindowError
from holdfast.memory.recall import Recall
from holdfast.messages import Opaque, ToolResult
from holdfast.report import ContextReport, categories, change, workspace_files

__all__ = ["Turn"]


@dataclass(slots=True)
class Turn:
    """What is known of a request while it is made.

    Attributes:
        milliseconds: How long each step took.
        warnings: What went wrong and was passed over.
        recall: What memory said.
        tool: The name of the tool that shows archived messages, where the model has one.
        provider: Whose rules the window must keep.
    """

    milliseconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    recall: Recall = field(default_factory=Recall)
    tool: str = ""
    provider: str = ""

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.milliseconds[name] = round((time.perf_counter() - start) * 1000, 3)

    @contextmanager
    def guard(self, name: str) -> Iterator[None]:
        """Time a step in which memory may fail: the request goes on, and the report says so."""
        with self.step(name):
            try:
                yield
            except WindowError:
                raise
            except HoldfastError as error:
                self.warnings.append(f"{name}: {error}")

    def report(
        self,
        talk: Conversation,
        limits: Budget,
        *,
        items: Sequence[Item],
        new: Sequence[Edit],
        finished: Finished,
    ) -> ContextReport:
        """What there is to say about the window that was made. It is the session's next turn."""
        talk.turn += 1
        new = (*(edit for edit in talk.edits[talk.reported or 0 :] if edit.kind == "compacted"), *new)
        talk.reported = len(talk.edits)
        total = talk.sent_tokens = tokens(items) + limits.overhead
        sent = zip(messages(items), (item.total for item in items), strict=True)
        return ContextReport(
            session=talk.scope.session,
            turn=talk.turn,
            total_tokens=total,
            raw_max_tokens=limits.window,
            limit_source=limits.source,
            reserved_tokens=limits.reserve,
            percentage=round(100 * total / limits.window, 1),
            categories=categories(items, budget=limits),
            changes=tuple(change(edit) for edit in new),
            recalled=self.recall.hits,
            recall_reason=self.recall.reason,
            prefix_kept=talk.prefix_kept(list(sent)),
            repairs=(*talk.stripped, *map(str, finished.repairs)),
            warnings=tuple(dict.fromkeys((*self.warnings, *self.recall.notes, *_carried(items)))),
            milliseconds=self.milliseconds,
            files=workspace_files(items),
            token_scale=limits.scale,
            is_calibrated=talk.scale is not None,
        )


def _carried(items: Sequence[Item]) -> list[str]:
    """What is said about blocks that are sent as they came, because nothing is known of what they hold."""
    parts = [part for item in items for part in item.message.parts]
    inside = (block for part in parts if isinstance(part, ToolResult) for block in part.content)
    kinds = sorted({part.kind for part in (*parts, *inside) if isinstance(part, Opaque)})
    return [f"carried as they came, not understood and not searchable: {', '.join(kinds)}"] if kinds else []
