"""What stands for history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.compaction.audit import Misses
from holdfast.compaction.ladder import Rung

__all__ = ["Details", "Summary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """What programs read beside a summary: files, failed calls by tool and message, and what a hook adds."""

    read_files: tuple[str, ...] = ()
    modified_files: tuple[str, ...] = ()
    tool_failures: tuple[tuple[str, str], ...] = ()
    other: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The details as session files hold them."""
        return {
            "readFiles": list(self.read_files),
            "modifiedFiles": list(self.modified_files),
            "toolFailures": [{"toolName": tool, "summary": summary} for tool, summary in self.tool_failures],
            **self.other,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What stands for history.

    Attributes:
        text: The summary itself, as a session file holds it.
        told: The same as the window says it, in its frame.
        tokens: What `told` takes as a message.
        rung: The step of the ladder that it comes from.
        calls: How often a model was asked.
        misses: What the model's own words lacked, and was put in by rule.
        warnings: What went wrong on the way.
        details: Files and failures, for programs.
        from_hook: Whether a hook wrote it.
    """

    text: str
    told: str
    tokens: int
    rung: Rung
    calls: int = 0
    misses: Misses = field(default_factory=Misses)
    warnings: tuple[str, ...] = ()
    details: Details = field(default_factory=Details)
    from_hook: bool = False
