"""A secret that was found in a text."""

from dataclasses import dataclass
from typing import Final

__all__ = ["Secret"]

_MASKS: Final = {
    **dict.fromkeys(
        ("authorization", "code", "cookie", "password", "token", "url-password", "url-token"), "[REDACTED]"
    ),
    "base64": "[REDACTED_B64]",
    "hex": "[REDACTED_HEX]",
}


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret in a text: the rule that found it, and its span."""

    rule: str
    start: int
    end: int

    @property
    def mask(self) -> str:
        """The text that replaces it."""
        return _MASKS.get(self.rule, f"[REDACTED:{self.rule}]")
