"""The block of a turn: what memory says beyond what is seen, and where it goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from holdfast.context.budget import Budget
from holdfast.context.edits import Edit, Item, apply
from holdfast.context.place import allowance, cleared, place
from holdfast.conversation import Conversation
from holdfast.memory.block import Fact, fact_line
from holdfast.memory.memory import Memory
from holdfast.memory.recall import Recall
from holdfast.memory.request import Request
from holdfast.tokens import TokenCounter
from holdfast.turn import Turn

__all__ = ["Recalling"]

_LEAST_BLOCK: Final = 64


@dataclass(frozen=True, slots=True)
class Recalling:
    """Memory, asked for one turn of a session. What it says, and why where it says nothing, is kept with the turn."""

    memory: Memory
    talk: Conversation
    turn: Turn
    count: TokenCounter

    def edits(self, asked: Request, items: tuple[Item, ...], limits: Budget) -> tuple[Edit, ...]:
        """The edits that place what memory says beyond what is seen; earlier blocks give way where there is no room."""
        recall = self.memory.settings.recall
        if not recall.automatic or self.memory.settings.slots.memory == "none":
            switch = "slots.memory is none" if recall.automatic else "recall.automatic is off"
            self.turn.recall = Recall(reason=switch)
            return ()
        room = allowance(items, limits, position=recall.position) if any(asked.texts) else 0
        room_made = cleared(items, limits, position=recall.position) if any(asked.texts) else ()
        if room_made:
            bare = apply(items, room_made)
            most = allowance(bare, limits, position=recall.position)
            edit = self._block(replace(asked, cap=most), bare)
            if edit is None or self._is_news(items):
                return (*room_made, edit) if edit else ()
        if room < _LEAST_BLOCK:
            self.turn.recall = Recall(reason="this question has its block already, or there is no room for one")
            return ()
        edit = self._block(replace(asked, cap=room), items)
        return () if edit is None else (edit,)

    def _is_news(self, items: Sequence[Item]) -> bool:
        """Whether the best of what was just found, or half of it, is in no earlier block that is still seen."""
        found, seen = self.turn.recall, self.talk.quoted(items)
        blocks = "\n".join(item.block.text for item in items if item.block)
        if any(fact_line(Fact(type=hit.fact.type, text=hit.fact.content)) not in blocks for hit in found.facts):
            return True
        new = [hit for hit in found.hits if hit.passage not in seen]
        best = max(found.hits, key=lambda hit: hit.score, default=None)
        return best in new or 2 * len(new) >= max(1, len(found.hits))

    def _block(self, asked: Request, items: Sequence[Item]) -> Edit | None:
        """The edit that places the block for a question; None where memory says nothing."""
        request = replace(asked, quoted=self.talk.quoted(items))
        found = self.memory.recall(request)
        if not found.block and len(request.texts) > 1:  # what was said before may have led away from the question
            found = self.memory.recall(replace(request, texts=request.texts[-1:]))
        chosen = self.memory.settings.embedding.provider == "none"  # what was chosen is no trouble
        self.turn.recall = replace(found, notes=()) if chosen else found
        return place(
            items,
            found.block,
            position=self.memory.settings.recall.position,
            ids=sorted({hit.message for hit in found.hits}),
            passages=[hit.passage for hit in found.hits],
            count=self.count,
        )
