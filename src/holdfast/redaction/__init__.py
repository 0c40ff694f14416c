"""Mask secrets before anything is written to disk.

    redact("export GITHUB_TOKEN=ghp_…")   ->  "export GITHUB_TOKEN=[REDACTED:github-token]"

A text goes through three steps, each linear in its length: a cheap search for marks of secrets (most texts have
none and are returned as the same object), the exact rules for those marks, and the masks. docs/security.md says what
is masked and what is not, with figures.
"""

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any, Final, TypeAlias

from holdfast.redaction.commands import find_in_commands
from holdfast.redaction.formats import find_by_format, find_runs, load_rules
from holdfast.redaction.near import find_near_words
from holdfast.redaction.notations import find_after_words, find_in_value
from holdfast.redaction.secret import Secret
from holdfast.redaction.structures import find_in_structures

__all__ = ["JSON", "Secret", "find", "redact", "redact_value"]

JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"
"""A value that `json.loads` returns."""

_MIN_CHARS: Final = 8  # characters; nothing shorter holds a name and a secret
_MAX_PASSES: Final = 4
_MAX_KEPT_CHARS: Final = 32  # characters; enough for roles, kinds of blocks, formats and names of tools
_MAX_KEPT: Final = 256  # texts
_MIN_KEY_CHARS: Final = 20  # characters; a key of an object that could be a token


def redact(text: str) -> str:
    """Mask every secret in a text; return the same object if there is none. Redacting twice changes nothing."""
    # A mask can join what a long secret separated, so search again until nothing is found. Two passes are enough for
    # most texts; hostile text could need one for each of its lines.
    for _ in range(_MAX_PASSES):
        secrets = find(text)
        if not secrets:
            break
        text = _mask(text, secrets)
    return text


def find(text: str) -> list[Secret]:
    """Return the secrets in a text, in order and without overlap."""
    if len(text) < _MIN_CHARS:
        return []
    if len(text) <= _MAX_KEPT_CHARS:
        return list(_find_again(text))
    return _find(text)


@lru_cache(maxsize=_MAX_KEPT)
def _find_again(text: str) -> tuple[Secret, ...]:
    """Return the secrets in a short text: most are in every message, and take a third of the time to mask one."""
    return tuple(_find(text))


def _find(text: str) -> list[Secret]:
    plain = text.encode("ascii", "replace")  # one byte per character, so that positions stay
    lowered = plain.lower().decode()
    runs = find_runs(text, plain)
    return _merge(
        (
            *find_by_format(text, runs),
            *find_near_words(text, runs),
            *find_after_words(text, lowered),
            *find_in_commands(text, lowered),
            *find_in_structures(text, lowered),
        )
    )


def redact_value(value: JSON) -> JSON:
    """Mask every secret in a JSON value, also those named by their key; return the same object if there is none."""
    root: list[Any] = [value]
    changed = False
    todo: list[tuple[Any, str]] = [(root, "")]  # copies to fill in, and the key of each
    while todo:  # a loop, since hostile JSON nests deeper than calls may
        copy, above = todo.pop()
        for key, child in list(copy.items() if isinstance(copy, dict) else enumerate(copy)):
            if isinstance(child, str):
                secret = find_in_value(_get_name(copy, key, above), child)
                safe = redact(_mask(child, _merge((*find(child), secret))) if secret else child)
                if safe is not child:
                    copy[key], changed = safe, True
            elif isinstance(child, dict):
                copy[key] = _mask_keys(child)
                changed |= copy[key].keys() != child.keys()
                todo.append((copy[key], _get_name(copy, key, above)))
            elif isinstance(child, list):
                copy[key] = child.copy()
                todo.append((copy[key], _get_name(copy, key, above)))
    return root[0] if changed else value


@cache
def _rank(name: str) -> int:
    """Return how specific a rule is: one for a format comes before all others."""
    names = [rule.name for kind in ("tokens", "around", "anywhere") for rule in load_rules(kind)]
    return len(names) - names[::-1].index(name) - 1 if name in names else len(names)


def _merge(secrets: Iterable[Secret]) -> list[Secret]:
    """Sort secrets and remove overlaps: with the same start the more specific one stays, others are joined."""
    merged: list[Secret] = []
    for secret in sorted(secrets, key=lambda secret: (secret.start, _rank(secret.rule))):
        if not merged or secret.start >= merged[-1].end:
            merged.append(secret)
        elif secret.start > merged[-1].start or secret.rule == merged[-1].rule:
            last = merged.pop()
            merged.append(Secret(min(last.rule, secret.rule, key=_rank), last.start, max(last.end, secret.end)))
    return merged


def _mask(text: str, secrets: Iterable[Secret]) -> str:
    pieces: list[str] = []
    end = 0
    for secret in secrets:
        pieces += (text[end : secret.start], secret.mask)
        end = secret.end
    return "".join((*pieces, text[end:]))


def _get_name(copy: Any, key: str | int, above: str) -> str:
    """Return the name of a child: its key, the key of its list, or the `name` next to a `value`."""
    if not isinstance(key, str):
        return above
    beside = (copy.get("name") or copy.get("key")) if key == "value" else None
    return beside if isinstance(beside, str) else key


def _mask_keys(mapping: dict[str, Any]) -> dict[str, Any]:
    """Copy an object with the secrets in its keys masked; equal keys get a number."""
    if all(len(key) < _MIN_KEY_CHARS for key in mapping):
        return mapping.copy()
    copy: dict[str, Any] = {}
    for key, value in mapping.items():
        safe = redact(key) if len(key) >= _MIN_KEY_CHARS else key
        while safe in copy:
            safe = f"{safe}~{len(copy)}"
        copy[safe] = value
    return copy
