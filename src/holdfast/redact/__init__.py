"""Secrets masked before anything touches disk.

    redact("export GITHUB_TOKEN=ghp_…")   ->  "export GITHUB_TOKEN=[REDACTED:github-token]"

A text goes through three steps, each linear in its length: a cheap look for anything that could betray a
secret (most texts end here and come back as the same object), the exact rules for what was seen, and the
masks. What is masked and what is left alone, with figures, is in docs/security.md.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from holdfast.redact.commands import secrets_in_commands
from holdfast.redact.keyed import secret_of, secrets_after_words
from holdfast.redact.rules import ANYWHERE, TOKENS, Secret
from holdfast.redact.shaped import secrets_by_shape

__all__ = ["JSON", "Secret", "find", "redact", "redact_value"]

JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"
"""What `json.loads` gives."""

_SHORTEST: Final = 8  # characters; nothing shorter holds a name and a secret
_RANKS: Final = {rule.name: rank for rank, rule in enumerate((*TOKENS, *ANYWHERE))}
_LONG_KEY: Final = 20  # characters; a key of an object that could be a token


def redact(text: str) -> str:
    """The text with every secret masked; the same object if there is none. Redacting twice changes nothing."""
    # A mask can bring together what a long secret kept apart, so look again until nothing is found.
    # No rule accepts a mask, so every round leaves less to mask.
    while secrets := find(text):
        text = _masked(text, secrets)
    return text


def find(text: str) -> list[Secret]:
    """The secrets in the text, in order and without overlap."""
    if len(text) < _SHORTEST:
        return []
    plain = text.encode("ascii", "replace")  # one byte a character: positions stay
    lowered = plain.lower().decode()
    return _merged(
        (*secrets_by_shape(text, plain), *secrets_after_words(text, lowered), *secrets_in_commands(text, lowered))
    )


def redact_value(value: JSON) -> JSON:
    """The JSON value with every secret masked, also those known by their key; the same object if there is none."""
    root: list[Any] = [value]
    changed = False
    todo: list[tuple[Any, str]] = [(root, "")]  # copies to be filled in, and the key that they stand under
    while todo:  # a loop, since hostile JSON nests deeper than calls may
        copy, above = todo.pop()
        for key, child in list(copy.items() if isinstance(copy, dict) else enumerate(copy)):
            if isinstance(child, str):
                safe = _redact_named(_name(copy, key, above), child)
                if safe is not child:
                    copy[key], changed = safe, True
            elif isinstance(child, dict):
                copy[key] = _with_safe_keys(child)
                changed |= copy[key].keys() != child.keys()
                todo.append((copy[key], _name(copy, key, above)))
            elif isinstance(child, list):
                copy[key] = child.copy()
                todo.append((copy[key], _name(copy, key, above)))
    return root[0] if changed else value


def _merged(found: Iterable[Secret]) -> list[Secret]:
    """In order of place, without overlap: of two that start together the more telling one stays, else they join."""
    merged: list[Secret] = []
    for secret in sorted(found, key=lambda secret: (secret.start, _RANKS.get(secret.rule, len(_RANKS)))):
        if not merged or secret.start >= merged[-1].end:
            merged.append(secret)
        elif secret.start > merged[-1].start:
            last = merged.pop()
            rule = min(last.rule, secret.rule, key=lambda rule: _RANKS.get(rule, len(_RANKS)))
            merged.append(Secret(rule, last.start, max(last.end, secret.end)))
    return merged


def _masked(text: str, secrets: Iterable[Secret]) -> str:
    pieces: list[str] = []
    end = 0
    for secret in secrets:
        pieces += (text[end : secret.start], secret.mask)
        end = secret.end
    return "".join((*pieces, text[end:]))


def _redact_named(name: str, text: str) -> str:
    """The text masked, as a whole if the name that it stands under calls it a secret."""
    secret = secret_of(name, text)
    return redact(_masked(text, _merged((*find(text), secret))) if secret else text)


def _name(copy: Any, key: str | int, above: str) -> str:
    """What a child is called: its key, the key of its list, or the `name` beside a `value`."""
    if not isinstance(key, str):
        return above
    beside = (copy.get("name") or copy.get("key")) if key == "value" else None
    return beside if isinstance(beside, str) else key


def _with_safe_keys(mapping: dict[str, Any]) -> dict[str, Any]:
    """A copy with secrets in its keys masked. Keys that become the same are kept apart by a number."""
    if all(len(key) < _LONG_KEY for key in mapping):
        return mapping.copy()
    copy: dict[str, Any] = {}
    for key, value in mapping.items():
        safe = redact(key) if len(key) >= _LONG_KEY else key
        while safe in copy:
            safe = f"{safe}~{len(copy)}"
        copy[safe] = value
    return copy
