"""The lines of a memory-context folder, and the rows they stand for.

What the plugin knows stands where the plugin looks for it; what only we know stands under `holdfast`, which it
does not look at.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, cast, get_args

from holdfast.messages import Message, Text
from holdfast.store.base import FactRow, FactType, MessageRow, Scope
from holdfast.store.codec import from_json, text_bytes, to_json
from holdfast.store.tagging import entities, topics

__all__ = [
    "OWN",
    "Unusable",
    "content_key",
    "content_of",
    "fact_digest",
    "fact_line",
    "findable_of",
    "message_of",
    "read_fact",
    "scope_from_json",
    "scope_of",
    "scope_to_json",
    "segment_line",
    "segment_problem",
    "tokens",
]

OWN: Final = "holdfast"
_ROLES: Final = frozenset({"user", "assistant"})
_TYPES: Final = frozenset(get_args(FactType))
_FACT_EXTRAS: Final = ("subject", "slot", "evidence", "quote", "pinned")


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why a line stands for nothing."""

    reason: str


def tokens(text: str) -> int:
    """How many tokens the plugin reckons a text has. It counts UTF-16 units, three to a token."""
    units = len(text.encode("utf-16-le", "surrogatepass")) // 2
    return max(1, math.ceil(units / 3))


# --- scopes ------------------------------------------------------------------


def scope_to_json(scope: Scope) -> list[str]:
    """A scope as it is kept."""
    return [scope.tenant, scope.project, scope.agent, scope.session]


def scope_of(data: Mapping[str, Any], session: str) -> Scope:
    """The scope of a line; one that is not ours belongs to its session alone."""
    own = data.get(OWN)
    if not isinstance(own, dict) or "scope" not in own:
        return Scope(session=session)
    return scope_from_json(own["scope"])


def scope_from_json(data: Sequence[str]) -> Scope:
    """The scope that `scope_to_json` wrote."""
    tenant, project, agent, session = data
    return Scope(tenant=tenant, project=project, agent=agent, session=session)


# --- segments ------------------------------------------------------------------


def content_of(row: MessageRow) -> str:
    """What of a message the plugin would keep: the words of a user or an assistant; nothing of noise."""
    if row.message.role not in _ROLES or not row.scope.session or not row.passages:
        return ""
    if row.message.calls or row.message.results:
        return row.message.text
    return "".join(passage.text for passage in row.passages)


def segment_line(row: MessageRow, content: str, *, name: str, now: int, own: Mapping[str, Any]) -> dict[str, Any]:
    """A message as a line of `segments.jsonl`."""
    time = row.message.timestamp
    named = [asdict(entity) for entity in entities(content)]
    line: dict[str, Any] = {
        "id": name,
        "sessionId": row.scope.session,
        "timestamp": now if time is None else time,
        "role": row.message.role,
        "content": content,
        "tokens": tokens(content),
        "metadata": {"topics": topics(content), "entities": named},
    }
    found = "".join(passage.text for passage in row.passages)
    plain = _plain(line) == row.message and row.message.origin is None
    more = ({} if plain else {"body": to_json(row.message)}) | ({} if found == content else {"text": found})
    return line | {OWN: {**own, **more}}


def findable_of(data: Mapping[str, Any]) -> str:
    """What can be found of a segment: its text, and what was called with it."""
    own = data.get(OWN)
    return str(own["text"] if isinstance(own, dict) and "text" in own else data["content"])


def segment_problem(data: Mapping[str, Any]) -> str | None:
    """Why a line of `segments.jsonl` is no segment; None where it is one."""
    time = data.get("timestamp")
    for wrong, reason in (
        (not data.get("id") or not isinstance(data["id"], str), "no id"),
        (not data.get("sessionId") or not isinstance(data["sessionId"], str), "no session"),
        (data.get("role") not in _ROLES, "not said by a user or an assistant"),
        (not isinstance(data.get("content"), str), "no text"),
        (isinstance(time, bool) or not isinstance(time, int | float) or time != time, "no time"),  # noqa: PLR0124 - NaN
    ):
        if wrong:
            return reason
    return None


def message_of(data: Mapping[str, Any]) -> Message:
    """The message that a line of `segments.jsonl` stands for."""
    own = data.get(OWN)
    if isinstance(own, dict) and "body" in own:
        return from_json(own["body"])
    return _plain(data)


def _plain(data: Mapping[str, Any]) -> Message:
    return Message(role=data["role"], parts=(Text(text=data["content"]),), timestamp=_whole(data["timestamp"]))


# --- facts ---------------------------------------------------------------------


def fact_line(row: FactRow, *, own: Mapping[str, Any] | None) -> dict[str, Any]:
    """A version of a fact as a line of `knowledge.jsonl`; `own` is None for one that belongs to the whole folder."""
    line: dict[str, Any] = {"id": row.id, "type": row.type, "content": row.content}
    if row.context:
        line["context"] = row.context
    line["timestamp"] = row.time
    if row.superseded_by is not None:
        line["supersededBy"] = row.superseded_by
    if row.deleted:
        line["_deleted"] = True
    extras = {key: value for key in _FACT_EXTRAS if (value := getattr(row, key))}
    kept = {**(own or {}), **extras}
    return line | {OWN: kept} if kept else line


def read_fact(data: Mapping[str, Any], *, before: FactRow | None) -> FactRow | Unusable:
    """The version of a fact that a line stands for; one that is only deleted keeps what it said before."""
    name = data.get("id")
    if not isinstance(name, str) or not name:
        return Unusable("no id")
    deleted = data.get("_deleted") is True
    if deleted and before is not None and "content" not in data:
        data = {"type": before.type, "content": before.content, **data}
    if data.get("type") not in _TYPES or not isinstance(data.get("content"), str):
        return Unusable("not a fact of a known type")
    after = data.get("supersededBy")
    return FactRow(
        scope=scope_of(data, ""),
        id=name,
        type=cast("FactType", data["type"]),
        content=data["content"],
        context=str(data.get("context") or ""),
        time=_whole(data.get("timestamp")),
        superseded_by=after if isinstance(after, str) else None,
        deleted=deleted,
        **_extras(data.get(OWN)),
    )


def _whole(number: object) -> int:
    return int(number) if isinstance(number, int | float) and math.isfinite(number) else 0


def _extras(own: object) -> dict[str, Any]:
    if not isinstance(own, dict):
        return {}
    return {key: tuple(value) if key == "evidence" else value for key, value in own.items() if key in _FACT_EXTRAS}


def fact_digest(name: str) -> str:
    """What is remembered of a forgotten fact."""
    return hashlib.sha256(b"fact:" + text_bytes(name)).hexdigest()[:32]


def content_key(scope: Scope, role: str, content: str) -> tuple[Scope, str, str]:
    """What the plugin tells segments apart by: session, role and a digest of the text."""
    return scope, role, hashlib.sha256(text_bytes(content)).hexdigest()[:16]
