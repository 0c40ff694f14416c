"""OpenAI Responses: a flat list of items; each item is read as one message, so that it can be sent back untouched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, Final

from holdfast.errors import FormatError
from holdfast.messages import (
    Image,
    Message,
    Opaque,
    Part,
    RedactedThinking,
    ResultContent,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from holdfast.providers import rules, shaping, wire
from holdfast.providers.format import Format
from holdfast.providers.rules import Turn, Violation, Wire, blocks, kind, quote
from holdfast.providers.shaping import Log
from holdfast.providers.wire import Json, expect, wire_of

NAME: Final = "openai_responses"
ROLES: Final = wire.ROLES
MAX_NAME_CHARS: Final = 64
TEXT_FIELDS: Final = {"function_call": "arguments", "custom_tool_call": "input"}
"""The field of a call that holds text, by the type of the item."""
OUTPUT_REQUIRED: Final = frozenset({"function_call_output", "custom_tool_call_output"})
ASSISTANT_PARTS: Final = frozenset({"output_text", "refusal"})
_NOT_ARGUMENTS: Final = frozenset({"type", "id", "call_id", "status", "action"})


# --- reading -----------------------------------------------------------------


def read(data: Json, where: str) -> Message:
    """Read one input or output item."""
    item_kind = expect(data, "type", str, where, default="message")
    if item_kind == "message":
        role = wire.expect_role(data, ROLES, where, format=NAME)
        message_id = expect(data, "id", str, where, default="") or None
        content = _read_content(data.get("content"), f"{where}.content")
        return Message(role=role, parts=content, id=message_id).read_from(data, format=NAME)
    part = _read_item(data, item_kind, where).read_from(data, format=NAME)
    role = "tool" if isinstance(part, ToolResult) else "assistant"
    return Message(role=role, parts=(part,)).read_from(data, format=NAME)


def _read_content(content: Any, where: str) -> tuple[ResultContent, ...]:
    return wire.read_content(content, _PARTS, where, format=NAME, is_required=True)


def _read_image(data: Json, where: str) -> Image | Opaque:
    url = data.get("image_url")
    if isinstance(url, str):
        return wire.image_from_url(url)
    return wire.carry(data, where)  # the provider has it, under the id of a file


_PARTS: Final[dict[str, Callable[[Json, str], ResultContent]]] = {
    **dict.fromkeys(("input_text", "output_text", "text", "summary_text", "reasoning_text"), wire.read_text),
    **dict.fromkeys(("input_image", "computer_screenshot"), _read_image),
    "refusal": lambda data, where: Text(text=expect(data, "refusal", str, where)),
}


def _read_item(data: Json, item_kind: str, where: str) -> Part:
    has_call_id = isinstance(data.get("call_id"), str)
    if item_kind == "reasoning":
        listed = [*expect(data, "summary", list, where, default=[]), *expect(data, "content", list, where, default=[])]
        text = "\n\n".join(str(block.get("text", "")) for block in listed if isinstance(block, Mapping))
        signature = expect(data, "encrypted_content", str, where, default="")
        if not text:
            return RedactedThinking(data=signature)
        return Thinking(text=text, signature=signature or None)
    if item_kind.endswith("_call_output") or (item_kind.endswith("_output") and has_call_id):
        return _read_result(data, item_kind, where)
    if item_kind.endswith("_call") and has_call_id:
        return _read_call(data, item_kind, where)
    return Opaque(kind=item_kind, data=wire.limit_depth(data, where))


def _read_call(data: Json, item_kind: str, where: str) -> ToolCall:
    arguments: Mapping[str, Any] | str
    name = expect(data, "name", str, where, default="")
    if item_kind == "function_call":
        arguments = wire.decode_arguments(expect(data, "arguments", str, where, default=""))
    elif item_kind == "custom_tool_call":
        arguments = expect(data, "input", str, where, default="")
    else:  # local shell, computer and similar: the type of the item is the name of the tool
        name = item_kind.removesuffix("_call")
        action = data.get("action")
        if isinstance(action, Mapping):
            arguments = action
        else:
            arguments = {key: value for key, value in data.items() if key not in _NOT_ARGUMENTS}
    return ToolCall(id=data["call_id"], name=name, arguments=wire.limit_depth(arguments, where))


def _read_result(data: Json, item_kind: str, where: str) -> ToolResult:
    output = data.get("output")
    content: tuple[ResultContent, ...] = ()
    if isinstance(output, str | list):
        content = _read_content(output, f"{where}.output")
    elif isinstance(output, Mapping) and isinstance(output.get("type"), str):
        content = (wire.read_block(output, f"{where}.output", kinds=_PARTS, format=NAME),)
    elif output is not None or not item_kind.endswith("_call_output"):  # an output of unknown form, or in other fields
        content = (Opaque(kind=item_kind, data=wire.limit_depth(data, where)).read_from(data, format=NAME),)
    return ToolResult(call_id=expect(data, "call_id", str, where, default=str(data.get("id") or "")), content=content)


def read_system(value: Any, where: str) -> tuple[Part, ...]:
    """Read the instructions of a request."""
    if not isinstance(value, str):
        raise FormatError(f"expected a string, found {type(value).__name__}", where=where)
    return (Text(text=value),)


def link_reasoning(messages: Iterable[Message]) -> dict[str, str]:
    """Map the id of each item to the id of the reasoning item before it.

    The provider refuses an item that it has stored if that reasoning is missing.
    """
    links: dict[str, str] = {}
    reasoning = ""
    for message in messages:
        old = wire_of(message, NAME)
        item_id = old.get("id")
        if message.role != "assistant":
            reasoning = ""
        elif not isinstance(item_id, str):
            continue
        elif wire.kind_of(old) == "reasoning":
            reasoning = item_id
        elif reasoning:
            links[item_id] = reasoning
    return links


# --- recognising -------------------------------------------------------------

_OWN_PARTS: Final = frozenset({"input_text", "output_text", "input_image", "input_file"})
_OWN_ITEMS: Final = frozenset({"reasoning", "item_reference", "compaction"})


def is_own(data: Json) -> bool:
    """Return whether an item has a type or content parts that only Responses has."""
    item_kind = wire.kind_of(data)
    if item_kind in _OWN_ITEMS or item_kind.endswith(("_call", "_call_output")):
        return True
    return any(wire.kind_of(part) in _OWN_PARTS for part in wire.blocks_of(data))


# --- rendering ---------------------------------------------------------------


def render(messages: Sequence[Message]) -> list[Json]:
    """Render messages; each call, result and run of text becomes an item of its own."""
    return [item for message in messages for item in _render_message(message)]


def _render_message(message: Message) -> list[Json]:
    sent = message.wire(NAME)
    if sent is not None:
        return [sent]
    old = wire_of(message, NAME)
    is_message = bool(old) and wire.kind_of(old) in {"", "message"}
    in_content = (Text, Image, Opaque) if is_message else (Text, Image)
    origin = message.origin if is_message else None
    items: list[Json | None] = []
    for is_content, group in groupby(message.parts, key=lambda part: isinstance(part, in_content)):
        parts = tuple(group)
        if is_content:
            items.append(wire.rebuild(replace(message, parts=parts, origin=origin), _make_message, format=NAME))
            origin = None  # one item is one message: what follows is new
        else:
            items += [wire.rebuild(part, _make_item, format=NAME) for part in parts]
    return [item for item in items if item is not None]


def _make_message(message: Message, old: Json) -> Json | None:
    content = wire.render_content(
        message.parts, old.get("content"), partial(_make_part, role=message.role), format=NAME
    )
    if not content:
        return None
    role: str = "user" if message.role == "tool" else message.role
    if ROLES.get(old.get("role", "")) == role:  # another name of the same role
        role = old["role"]
    return {"role": role, "content": content}


def _make_part(part: ResultContent, old: Json, *, role: Role) -> Json | None:
    match part:
        case Text() if "refusal" in old:
            return {"type": "refusal", "refusal": part.text} if part.text else None
        case Text():
            part_kind = "output_text" if role == "assistant" else "input_text"
            return {"type": part_kind, "text": part.text} if part.text else None
        case Image():
            return {"type": "input_image", "image_url": wire.image_url(part)}
        case Opaque():
            return part.data if old else None


def _make_item(part: Part, old: Json) -> Json | None:
    match part:
        case ToolCall():
            return _make_call(part, old)
        case ToolResult():
            output = _make_output(part.content, old.get("output"))
            return {"type": "function_call_output", "call_id": part.call_id, "output": output}
        case Opaque():
            return part.data if old else None
        case _:
            return None  # reasoning is kept whole or dropped; another provider's cannot be sent here


def _make_call(call: ToolCall, old: Json) -> Json:
    if old.get("type") == "custom_tool_call":
        return {"call_id": call.id, "name": call.name, "input": wire.text_arguments(call.arguments)}
    if old.get("type", "function_call") == "function_call":
        fields = {"call_id": call.id, "name": call.name, "arguments": wire.encode_arguments(call.arguments)}
        return {"type": "function_call", **fields}
    arguments = wire.object_arguments(call.arguments)
    if isinstance(old.get("action"), Mapping):
        return {"call_id": call.id, "action": arguments}
    return {"call_id": call.id, **arguments}


def _make_output(content: Sequence[Part], old: object) -> object:
    if all(isinstance(block, Text) and not wire_of(block, NAME) for block in content) and not isinstance(old, list):
        return "\n".join(block.text for block in content if isinstance(block, Text))
    listed = old if isinstance(old, list) else []
    rendered = wire.render_content(content, listed, partial(_make_part, role="tool"), format=NAME)
    if not rendered:
        return ""
    if isinstance(old, Mapping):  # the output was one object, not a list
        return rendered[0]
    return rendered


def render_system(messages: Sequence[Message]) -> str:
    """Render the instructions of a request."""
    return "\n\n".join(message.text for message in messages)


# --- shape -------------------------------------------------------------------


def shape(messages: Sequence[Message], log: Log) -> list[Message]:
    """Change messages so that Responses accepts them."""
    shaped = shaping.assign_ids(messages, log, is_plain=False, is_unique=True)
    shaped = shaping.change_messages(shaped, _fit_message, log, "content")
    shaped = shaping.drop_empty(shaped, log)
    shaped = _renew_items(shaped, log)
    return _drop_last_reasoning(shaped, log)


def _fit_message(message: Message) -> Message:
    if shaping.has_client_fields(message):
        message = replace(message, origin=None)
    texts = ASSISTANT_PARTS if message.role == "assistant" else {"input_text"}
    fitted = shaping.change_parts(message, partial(_fit_part, texts=texts))
    return shaping.replace_pictures(fitted)


def _fit_part(part: Part, *, texts: AbstractSet[str]) -> Part | None:
    """Fit a part; `texts` are the types that a text may have."""
    old = wire_of(part, NAME)
    match part:
        case Text() if part.text:
            return part if wire.kind_of(old) in {"", *texts} else replace(part, origin=None)
        case ToolCall():
            key = TEXT_FIELDS.get(wire.kind_of(old))
            if key is not None and not isinstance(old.get(key), str):
                part = replace(part, origin=None)
            return shaping.fit_name(part, MAX_NAME_CHARS)
        case ToolResult():
            return _fit_result(part)
        case Thinking() | RedactedThinking() if isinstance(old.get("summary"), list):
            return part
        case Image() | Opaque() if not shaping.has_no_place(part, NAME):
            return part
    return None


def _fit_result(result: ToolResult) -> ToolResult:
    old = wire_of(result, NAME)
    if not result.content and wire.kind_of(old) in OUTPUT_REQUIRED and old.get("output") is None:
        return replace(result, content=(Text(text=shaping.NO_OUTPUT),))
    content = tuple(block for block in result.content if not shaping.has_no_place(block, NAME))
    if len(content) == len(result.content):
        return result
    return replace(result, content=content)


def _renew_items(messages: Sequence[Message], log: Log) -> list[Message]:
    """Send items without their ids if the provider would refuse them.

    The provider identifies an item by its id, which may occur once, and only after the reasoning item that was before
    it.
    """
    seen: set[str] = set()
    renewed: list[Message] = []
    for index, message in enumerate(messages):
        ids = _find_item_ids(message)
        if not seen.isdisjoint(ids):
            log.note("repeated-item", index, "sent an item that was there before without its id")
        elif not seen.issuperset(log.reasoning[item] for item in ids if item in log.reasoning):
            log.note("reasoning-missing", index, "sent an item whose reasoning is missing without its id")
        else:
            renewed.append(message)
            seen |= ids
            continue
        parts = tuple(replace(part, origin=None) for part in message.parts if not shaping.is_thinking(part))
        if parts:
            renewed.append(replace(message, parts=parts, origin=None))
        seen |= ids
    return renewed


def _find_item_ids(message: Message) -> set[str]:
    """Return the ids by which the provider knows a message and its parts."""
    ids: set[str] = set()
    for value in (message, *message.parts):
        old = wire_of(value, NAME)
        # The output of a local shell has the id of its call.
        is_id_of_call = "call_id" not in old and wire.kind_of(old).endswith("_output")
        if old.get("id") and not is_id_of_call:
            ids.add(str(old["id"]))
    return ids


def _drop_last_reasoning(messages: Sequence[Message], log: Log) -> list[Message]:
    """Drop reasoning that no item of the assistant follows."""
    left: list[Message] = []
    is_followed = False
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        parts = message.parts
        while parts and not is_followed and shaping.is_thinking(parts[-1]):
            parts = parts[:-1]
        if len(parts) != len(message.parts):
            log.note("reasoning-alone", index, "dropped reasoning that nothing follows")
            message = replace(message, parts=parts)
        if parts:
            left.append(message)
            is_followed = message.role == "assistant"
    return left[::-1]


# --- rules -------------------------------------------------------------------


def check(sent: Sequence[Wire]) -> list[Violation]:
    """List the rules of Responses that an item list breaks."""
    found: list[Violation] = []
    turns: list[Turn] = []
    for index, item in enumerate(sent):
        where = f"input[{index}]"
        call_id = str(item.get("call_id") or item.get("id", ""))  # the output of a local shell names its call by `id`
        calls = [call_id] if _is_call(item) else []
        results = [call_id] if _is_output(item) else []
        turns.append(Turn(where, calls, results, closes=False))
        if _is_message(item):
            found += _check_message(item, where)
        elif kind(item) == "reasoning":
            following = sent[index + 1] if index + 1 < len(sent) else None
            found += _check_reasoning_item(item, following, where)
        elif _is_call(item):
            found += _check_call(item, where)
        elif kind(item) in OUTPUT_REQUIRED and item.get("output") is None:
            found.append(Violation("empty-content", where, "a result without output"))
    found += rules.check_pairs(turns, is_unique=True)
    found += rules.check_unique(_list_items(sent), "repeated-item")
    return found


def check_reasoning(sent: Sequence[Wire], links: Mapping[str, str]) -> list[Violation]:
    """List the items that are there without the reasoning that they came after, by the links of `link_reasoning`."""
    found: list[Violation] = []
    seen: set[str] = set()
    for index, item in enumerate(sent):
        item_id = str(item.get("id") or "")
        if item_id in links and links[item_id] not in seen:
            what = f"{quote(item_id)} without its reasoning {quote(links[item_id])}"
            found.append(Violation("reasoning-missing", f"input[{index}]", what))
        seen.add(item_id)
    return found


def _is_message(item: Wire) -> bool:
    return kind(item) in {"", "message"}


def _is_call(item: Wire) -> bool:
    return kind(item).endswith("_call") and isinstance(item.get("call_id"), str)


def _is_output(item: Wire) -> bool:
    return kind(item).endswith("_output")


def _check_message(item: Wire, where: str) -> Iterator[Violation]:
    role = item.get("role")
    content = item.get("content")
    if role not in ROLES:
        yield Violation("role", where, f"unknown role {quote(role)}")
    if not content or (not isinstance(content, str) and not blocks(content)):
        yield Violation("empty-content", where, "no content")
    for part in blocks(content):
        if kind(part).endswith("_text") and not part.get("text"):
            yield Violation("blank-text", where, "a text part without text")
        if (role == "assistant") != (kind(part) in ASSISTANT_PARTS):
            yield Violation("part-role", where, f"{quote(kind(part))} in a message of the {role}")


def _check_reasoning_item(item: Wire, following: Wire | None, where: str) -> Iterator[Violation]:
    """An item of the assistant follows right after reasoning."""
    if not isinstance(item.get("summary"), list):
        yield Violation("reasoning", where, "reasoning without its summary list")
    if following is None or _is_output(following):
        is_followed = False
    elif _is_message(following):
        is_followed = following.get("role") == "assistant"
    else:
        is_followed = True
    if not is_followed:
        yield Violation("reasoning-alone", where, "no item of the assistant follows the reasoning")


def _check_call(item: Wire, where: str) -> Iterator[Violation]:
    if not 1 <= len(item["call_id"]) <= rules.MAX_ID_CHARS:
        yield Violation("id", where, f"call_id {quote(item['call_id'])}")
    if kind(item) in TEXT_FIELDS:
        if not rules.OPENAI_NAME.fullmatch(str(item.get("name", ""))):
            yield Violation("name", where, f"name {quote(item.get('name'))}")
        if not isinstance(item.get(TEXT_FIELDS[kind(item)]), str):
            yield Violation("arguments", where, "arguments are not text")


def _list_items(sent: Sequence[Wire]) -> Iterator[tuple[str, str]]:
    """Yield the place and id of each item that has one of its own; the output of a local shell has that of its call."""
    for index, item in enumerate(sent):
        item_id = item.get("id")
        is_id_of_call = _is_output(item) and "call_id" not in item
        if isinstance(item_id, str) and item_id and not is_id_of_call:
            yield f"input[{index}]", item_id


OPENAI_RESPONSES: Final = Format(
    name=NAME,
    read=read,
    render=render,
    is_own=is_own,
    shape=shape,
    check=check,
    list_key="input",
    system_keys=("instructions",),
    read_system=read_system,
    render_system=render_system,
)
