"""Messages as Anthropic takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from holdfast.context.pairing import is_blank
from holdfast.context.shape.parts import (
    NO_OUTPUT,
    SHOWN_BELOW,
    Ids,
    Log,
    bare,
    begun,
    edited,
    identified,
    is_stray,
    is_thought,
    join,
    named,
    placed,
    prompted,
    runs,
    unpictured,
    without_empty,
)
from holdfast.formats import leading_system
from holdfast.formats.wire import kept, object_arguments, sealed_elsewhere
from holdfast.messages import (
    Message,
    Opaque,
    Part,
    RedactedThinking,
    ResultContent,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

__all__ = ["shape"]

NAME: Final = "anthropic"
_LONGEST_NAME: Final = 128
_REPLY_FIELDS: Final = frozenset({"id", "type", "model", "usage", "stop_reason", "stop_sequence", "container"})


def shape(messages: Sequence[Message], log: Log) -> list[Message]:
    """Messages that are in order already, as Anthropic takes them."""
    messages = prompted(messages, log)
    lead = leading_system(messages, NAME)
    said = identified(messages[lead:], Ids(plain=True, unique=True), log)
    said = placed(said, _sayable, log, "content")
    said = [joined for run in runs(without_empty(said, log)) for joined in _joined(run, log)]
    said = without_empty(placed(said, _thought, log, "thinking"), log)
    said = _ended(begun(_instructed(said, log), log), log)
    return [*messages[:lead], *said]


# --- parts -------------------------------------------------------------------


def _sayable(message: Message) -> Message:
    old = kept(message, NAME)
    spoken = "user" if message.role == "tool" else message.role
    if _REPLY_FIELDS.intersection(old) or old.get("role", spoken) != spoken or is_stray(message):
        message = replace(message, origin=None)
    says = any(isinstance(part, Text) and not is_blank(part) for part in message.parts)
    return _beside(unpictured(edited(message, partial(_part, says=says))))


def _beside(message: Message) -> Message:
    """The message with what an error must not hold, anything but text, behind its results."""
    moved: list[ResultContent] = []

    def worded(part: Part) -> Part:
        if not isinstance(part, ToolResult) or not part.is_error or all(isinstance(b, Text) for b in part.content):
            return part
        moved.extend(block for block in part.content if not isinstance(block, Text))
        texts = tuple(block for block in part.content if isinstance(block, Text) and not is_blank(block))
        return replace(part, content=texts or (Text(text=SHOWN_BELOW),))

    new = edited(message, worded)
    return replace(new, parts=(*new.parts, *moved)) if moved else message


def _part(part: Part, *, says: bool) -> Part | None:
    match part:
        case Text():
            return part if part.text and (says or not is_blank(part)) else None
        case Thinking() | RedactedThinking():
            return _honest(part)
        case ToolCall():
            return _asked(named(part, _LONGEST_NAME))
        case ToolResult():
            return _answer(part)
        case _:
            return None if bare(part, NAME) else part


def _asked(call: ToolCall) -> ToolCall:
    old = kept(call, NAME)
    if old and old.get("input") is None:
        return replace(call, origin=None)
    arguments = object_arguments(call.arguments)
    return call if arguments is call.arguments else replace(call, arguments=arguments)


def _honest(part: Thinking | RedactedThinking) -> Part | None:
    """Thinking that Anthropic sealed, or else its words, where there are any."""
    seal, words = (part.signature, part.text) if isinstance(part, Thinking) else (part.data, "")
    if seal and not sealed_elsewhere(part):
        return part
    return Text(text=words) if words.strip() else None


def _answer(result: ToolResult) -> ToolResult:
    content: tuple[ResultContent, ...] = tuple(filter(_is_sayable, result.content))
    if result.is_error and all(map(is_blank, content)):
        content = (Text(text=NO_OUTPUT),)
    return result if content == result.content else replace(result, content=content)


def _is_sayable(block: ResultContent) -> bool:
    """Tell whether a block may stand in a result: what we know, and no text block without text."""
    empty = isinstance(block, Text) and not block.text and bool(kept(block, NAME))
    return not empty and not bare(block, NAME)


def _ended(messages: list[Message], log: Log) -> list[Message]:
    """A reply that is to be continued must not end in white space."""
    last = messages[-1] if messages else None
    if last is None or last.role != "assistant" or not last.parts or not isinstance(last.parts[-1], Text):
        return messages
    text = last.parts[-1].text
    if text == text.rstrip():
        return messages
    log.note("trailing-space", len(messages) - 1, "cut white space off the end of the last reply")
    tail = (replace(last.parts[-1], text=text.rstrip()),) if text.strip() else ()
    return [*messages[:-1], replace(last, parts=(*last.parts[:-1], *tail))]


# --- turns -------------------------------------------------------------------


def _joined(run: Sequence[Message], log: Log) -> list[Message]:
    """One side's messages, together where one by one they would be refused."""
    groups: list[list[Message]] = []
    for message in run:
        if groups and _belongs(groups[-1], message):
            groups[-1].append(message)
        else:
            groups.append([message])
    return [_one(group, log) for group in _neighbours(groups)]


def _neighbours(groups: Sequence[list[Message]]) -> list[list[Message]]:
    """The groups, neighbours that will be rendered anew together: they are rendered as one."""
    found: list[list[Message]] = []
    for group in groups:
        spoken = found and "system" not in {found[-1][-1].role, group[0].role}
        if spoken and _is_made(found[-1]) and _is_made(group):
            found[-1] = [*found[-1], *group]
        else:
            found.append(group)
    return found


def _belongs(group: Sequence[Message], message: Message) -> bool:
    """Tell whether a message cannot stand apart from those before it."""
    last = group[-1]
    if "system" in {message.role, last.role}:
        return False
    if message.role != "assistant":
        return bool(last.results and message.results)  # the results of one batch go together
    return _is_open(group) or (is_thought(group[0].parts[0]) and not any(map(is_thought, message.parts)))


def _is_open(group: Sequence[Message]) -> bool:
    """Tell whether a reply cannot end here: after a call only results may follow, after a thought something must."""
    return is_thought(group[-1].parts[-1]) or any(message.calls for message in group)


def _is_made(group: Sequence[Message]) -> bool:
    """Tell whether these will be rendered anew."""
    return len(group) > 1 or not kept(group[0], NAME) or not _is_sorted(group[0])


def _is_sorted(message: Message) -> bool:
    """Tell whether results come first."""
    return all(isinstance(part, ToolResult) for part in message.parts[: len(message.results)])


def _one(group: Sequence[Message], log: Log) -> Message:
    if len(group) == 1 and _is_sorted(group[0]):
        return group[0]
    if any(kept(message, NAME) for message in group):
        log.note("joined", None, f"put {len(group)} message(s) of one side together, results first")
    return join(group)


def _thought(message: Message) -> Message:
    """Thinking stands first and is followed by something, or it is not there at all."""
    parts = message.parts
    while parts and is_thought(parts[-1]):
        parts = parts[:-1]
    if parts and not (is_thought(parts[0]) or isinstance(parts[0], Opaque)):
        parts = tuple(part for part in parts if not is_thought(part))
    return message if len(parts) == len(message.parts) else replace(message, parts=parts)


def _instructed(messages: Sequence[Message], log: Log) -> list[Message]:
    """Instructions in the middle of a conversation where they may stand; elsewhere the user says them."""
    found = list(messages)
    for index, message in enumerate(messages):
        if message.role != "system":
            continue
        before = messages[index - 1].role if index else "system"
        following = messages[index + 1].role if index + 1 < len(messages) else "assistant"
        if not kept(message, NAME) or before not in {"user", "tool"} or following != "assistant":
            log.note("system-place", index, "let the user say an instruction that cannot stand here")
            found[index] = replace(message, role="user")
    return found
