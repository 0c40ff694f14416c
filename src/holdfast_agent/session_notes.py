"""Notes that an agent writes about its conversation: before a compaction, and when a conversation ends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Event
from typing import Final
from unicodedata import category, normalize

from holdfast.calls import Deadline
from holdfast.compaction.digest import make_digest
from holdfast.compaction.flush import FlushPrompt, strip_silence
from holdfast.compaction.sections import wrap_summary
from holdfast.compaction.tool_calls import find_activity
from holdfast.context.validate import validate
from holdfast.errors import InputError, ModelError, ModelOverflowError, ModelRefusedError, StorageError
from holdfast.messages import Message, Text, ToolResult
from holdfast.models.base import Model, Prompt
from holdfast.moments import utc
from holdfast.prompts import load
from holdfast.redaction import redact
from holdfast.text import head
from holdfast.tokens import count_json, count_messages
from holdfast.transcripts import journal, read
from holdfast_agent.paths import Bounds, locate
from holdfast_agent.sessions import Conversation, id_of
from holdfast_agent.toolbox import Toolbox

MAX_FLUSH_STEPS: Final = 8
MAX_FLUSH_TOKENS: Final = 2_048
MIN_FLUSH_TOKENS: Final = 128
"""With fewer tokens for a reply, the model is not asked for notes."""
MAX_DIGEST_TOKENS: Final = 4_000

MAX_NOTE_MESSAGES: Final = 15
"""The last messages that are in the note of a conversation."""
NAMING_SECONDS: Final = 10.0
"""How long a model may take to name a conversation."""
MAX_QUOTE_CHARS: Final = 400
"""Characters of each message for the model that names the conversation."""
MAX_NAME_TOKENS: Final = 1_024
MAX_SLUG_CHARS: Final = 40
MAX_SLUG_WORDS: Final = 6
_COMMAND: Final = re.compile(r"/[^\W\d_][^\s/]*(?:\s|$)")


def run_flush(
    window: Sequence[Message],
    prompt: FlushPrompt,
    *,
    model: Model,
    tools: Toolbox,
    limit: int,
    seconds: float,
    cancel: Event | None = None,
) -> None:
    """Run the silent turn in which the model writes its notes. Its messages are stored nowhere else.

    `limit` are the tokens of a whole request: a server may refuse one whose longest reply does not fit. The whole turn
    may take `seconds`.
    """
    deadline = Deadline.after(seconds)
    addition = Text(text=prompt.system)
    messages = list(window)
    if messages and messages[0].role == "system":
        messages[0] = replace(messages[0], parts=(*messages[0].parts, addition), origin=None)
    else:
        messages.insert(0, Message(role="system", parts=(addition,)))
    messages.append(Message(role="user", parts=(Text(text=prompt.user),)))
    tool_tokens = sum(count_json(tool.to_json()) for tool in tools.tools())
    results: list[ToolResult] = []
    for _ in range(MAX_FLUSH_STEPS):
        ready = validate(messages, model.provider).messages
        room = limit - count_messages(ready) - tool_tokens
        if room < MIN_FLUSH_TOKENS:
            if any(result.name == "write" and not result.is_error for result in results):
                return
            raise ModelOverflowError("the window has no room for notes", model=model.name, limit=limit)
        question = Prompt(messages=ready, tools=tools.tools(), max_tokens=min(MAX_FLUSH_TOKENS, room))
        reply = model.ask(question, timeout=deadline.remaining, cancel=cancel)
        if not reply.message.calls:
            writes = [result for result in results if result.name == "write"]
            if writes and all(result.is_error for result in writes):
                raise StorageError(writes[-1].text, path=prompt.path)
            return
        answers = tools.run_all(reply.message.calls, cancel=cancel)
        results += answers
        messages += [reply.message, Message(role="tool", parts=tuple(answers))]
    raise ModelRefusedError(f"the notes were not finished after {MAX_FLUSH_STEPS} steps", model=model.name)


def digest_history(history: Sequence[Message], *, window: int) -> list[Message]:
    """Return the digest and the last user message that begin the successor of a conversation that fits no window."""
    requests = [message for message in history if message.role == "user"]
    last = requests[-1].text if requests else ""
    limit = min(MAX_DIGEST_TOKENS, window // 10)
    digest = make_digest(history, limit=limit, activity=find_activity(history), request=last)
    messages = [Message(role="user", parts=(Text(text=wrap_summary(digest)),))]
    if requests:
        messages.append(Message(role="user", parts=requests[-1].parts))
    return messages


def write_session_note(
    conversation: Conversation,
    *,
    time: int,
    bounds: Bounds,
    model: Model | None = None,
    mask: bool = True,
    cancel: Event | None = None,
) -> Path | None:
    """Write a note of the conversation before this one to a new file; None if there is nothing to write.

    The model names the note; without a name in time, or if `cancel` is set, it is named by hour and minute.
    """
    if conversation.archived is None:
        return None
    lines = last_words(read(conversation.archived).messages, mask=mask)
    if not lines:
        return None
    if not bounds.writable:
        raise InputError("the workspace is read-only (agent.workspace.access)")
    moment = utc(time)
    name = _ask_for_name(lines, model, cancel) or f"{moment:%H%M}"
    source = "terminal" if conversation.why == "asked" else f"{conversation.why} reset"
    document = (
        f"# Session: {moment:%Y-%m-%d %H:%M:%S} UTC",
        "",
        f"- **Session Key**: {conversation.key}",
        f"- **Session ID**: {id_of(conversation.archived)}",
        f"- **Source**: {source}",
        "",
        "## Conversation Summary",
        "",
        *lines,
        "",
    )
    stem = f"memory/{moment:%Y-%m-%d}-{name}"
    for number in count(1):
        path = locate(bounds, f"{stem}.md" if number == 1 else f"{stem}-{number}.md").path
        try:
            journal.create(path, ["\n".join(document).encode("utf-8", "replace")])
        except StorageError as error:
            if not isinstance(error.__cause__, FileExistsError):
                raise
        else:
            return path
    return None  # pragma: no cover - there is always a free name


def last_words(messages: Sequence[Message], *, mask: bool = True) -> list[str]:
    """Return the last messages of user and agent as `role: text`, without commands and silent replies."""
    lines: list[str] = []
    for message in reversed(messages):
        if message.role not in {"user", "assistant"}:
            continue
        text = strip_silence(message.text).strip()
        if not text or _COMMAND.match(text):
            continue
        if mask:
            text = redact(text)
        lines.append(f"{message.role}: {text}")
        if len(lines) == MAX_NOTE_MESSAGES:
            break
    lines.reverse()
    return lines


def _ask_for_name(lines: Sequence[str], model: Model | None, cancel: Event | None) -> str:
    """Let a model name the conversation; empty if there is none, or it fails or takes too long."""
    if model is None:
        return ""
    words = "\n".join(head(line, MAX_QUOTE_CHARS) for line in lines)
    question = Message(role="user", parts=(Text(text=load("session_name", words=words)),))
    prompt = Prompt(messages=(question,), max_tokens=MAX_NAME_TOKENS)
    try:
        return make_slug(model.ask(prompt, timeout=NAMING_SECONDS, cancel=cancel).text)
    except ModelError:
        return ""


def make_slug(text: str) -> str:
    """Make a name a part of a file name, in any script; empty if it is no name, such as a whole sentence."""
    letters = ""
    for letter in normalize("NFC", text).lower():
        is_word = category(letter)[0] in "LMN"  # letters, marks and numbers
        letters += letter if is_word else " "
    words = letters.split()
    slug = "-".join(words)
    if len(words) > MAX_SLUG_WORDS or len(slug) > MAX_SLUG_CHARS:
        return ""
    return slug
