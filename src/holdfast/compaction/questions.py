"""What a model is asked when it is to tell a history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.compaction import frame
from holdfast.compaction.audit import Misses
from holdfast.compaction.dialogue import quoted
from holdfast.compaction.language import Language
from holdfast.compaction.sections import HEADINGS
from holdfast.prompts import load
from holdfast.settings import Compaction
from holdfast.text import head

__all__ = ["Questions"]

_LONGEST: Final = 800
"""Characters of instructions and of the last request that every question repeats."""
_HEADINGS: Final = ", ".join(HEADINGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """The questions about one plan.

    Attributes:
        settings: What summaries are to keep exactly and to look out for.
        instructions: What this one is to look out for.
        request: The user's last request.
        language: The language of the conversation.
        words: How long a summary may be.
    """

    settings: Compaction
    instructions: str | None
    request: str
    language: Language | None
    words: int

    def history(self, text: str, previous: str) -> str:
        """Tell this text; or go on with the summary so far, where there is one."""
        material = f"{_tagged('conversation', text)}{_previous(previous)}"
        if previous:
            return load("summary_update", material=material, rules=self._rules, headings=_HEADINGS)
        return load("summary", material=material, rules=self._rules)

    def prefix(self, text: str, previous: str) -> str:
        """Tell the beginning of a turn; or go on with it."""
        return load(
            "summary_prefix", material=f"{_tagged('conversation', text)}{_previous(previous)}", rules=self._rules
        )

    def merge(self, texts: Sequence[str], previous: str) -> str:
        """Make one summary of several."""
        parts = "\n\n".join(_tagged("partial-summary", quoted(text)) for text in texts)
        return load("summary_merge", material=f"{parts}{_previous(previous)}", rules=self._rules, headings=_HEADINGS)

    def revise(self, text: str, misses: Misses) -> str:
        """Write a summary again with what it lacks."""
        material = _tagged("summary", quoted(text))
        missing = quoted(str(misses))
        return load("summary_revise", material=material, missing=missing, rules=self._rules, headings=_HEADINGS)

    @property
    def _rules(self) -> str:
        asked = (self.settings.custom_instructions, self.instructions)
        rules = [load("summary_rules", words=str(self.words), language=self._language), self._exactly]
        rules += [f"The user's last request is: {self._quote(self.request)}"] if self.request else []
        rules += [f"Additional focus: {self._quote(text)}" for text in asked if text]
        return "\n\n".join(rule for rule in rules if rule)

    @property
    def _language(self) -> str:
        return f", {self.language}" if self.language not in {None, "Latin script"} else ""

    @property
    def _exactly(self) -> str:
        match self.settings.identifier_policy:
            case "strict":
                return load("summary_identifiers")
            case "custom":
                return self._quote(self.settings.identifier_instructions or "")
            case _:
                return ""

    def _quote(self, text: str) -> str:
        return quoted(head(text.strip(), _LONGEST))


def _tagged(tag: str, text: str) -> str:
    return f"<{tag}>\n{text}\n</{tag}>"


def _previous(text: str) -> str:
    return "\n\n" + _tagged("previous-summary", quoted(frame.without_lists(text))) if text else ""
