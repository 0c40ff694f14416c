"""Models without a provider: `Scripted` follows a script, `Echo` describes what it would have sent.

    call = ToolCall(id="c1", name="ls", arguments={})
    model = Scripted(["Hello!", ScriptedReply(calls=(call,)), ModelBusyError("busy")])

A scripted model keeps every prompt, counts tokens as `holdfast.tokens` does, and rejects what does not fit its window.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Lock
from typing import Any, Final, Literal, TypeAlias

import msgspec

from holdfast.calls import Deadline
from holdfast.errors import (
    InputError,
    ModelBusyError,
    ModelError,
    ModelOverflowError,
    ModelRefusedError,
    ModelTimeoutError,
)
from holdfast.messages import Message, Part, Text, Thinking, ToolCall, Usage
from holdfast.models.base import OnText, Prompt, Reply, check_cancelled, check_deadline
from holdfast.text import clip, plural
from holdfast.tokens import count_json, count_message, count_messages

_POLL_SECONDS: Final = 0.02
_MAX_ECHO_CHARS: Final = 500
_WORDS: Final = re.compile(r"\s*\S+\s*|\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """One scripted reply; `usage` and `stop` are estimated unless they are given.

    `pieces` is the text in the pieces that it arrives in, by default word by word, with a pause of `delay` seconds
    before each. With `repeat` every later prompt gets this reply too.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    thinking: str = ""
    signature: str | None = None
    pieces: tuple[str, ...] = ()
    usage: Usage | None = None
    stop: str = ""
    delay: float = 0.0
    repeat: bool = False

    @property
    def words(self) -> str:
        """All of the text."""
        return "".join(self.pieces) or self.text

    @property
    def arriving(self) -> Sequence[str]:
        """The text in the pieces that it arrives in."""
        return self.pieces or _WORDS.findall(self.text)

    def reply(self, prompt: Prompt, *, model: str) -> Reply:
        """Return this reply to a prompt."""
        thinking = (Thinking(text=self.thinking, signature=self.signature),) if self.thinking else ()
        texts = (Text(text=self.words),) if self.words else ()
        parts: tuple[Part, ...] = (*thinking, *texts, *self.calls)
        stop = self.stop or ("tools" if self.calls else "end")
        message = Message(role="assistant", parts=parts, model=model, stop=stop)
        usage = self.usage or Usage(input=prompt_tokens(prompt), output=count_message(message))
        return Reply(message=replace(message, usage=usage), usage=usage, stop=stop)


@dataclass(frozen=True, slots=True)
class Hang:
    """No reply, until the call times out or is cancelled."""


Answer: TypeAlias = str | ScriptedReply | Message | ModelError | Hang
Step: TypeAlias = Answer | Callable[[Prompt], Answer]
"""A step of a script: text, a reply, a message, an error to raise, silence, or a function from a prompt to one."""


def prompt_tokens(prompt: Prompt) -> int:
    """Count the tokens of a prompt: its messages, its tools and its schema."""
    schema = 0 if prompt.schema is None else count_json(prompt.schema)
    return count_messages(prompt.messages) + _tool_tokens(prompt) + schema


def _tool_tokens(prompt: Prompt) -> int:
    return sum(
        count_json({"name": tool.name, "description": tool.description, "parameters": tool.parameters})
        for tool in prompt.tools
    )


class Scripted:
    """A model that follows a script. Threads may share it.

    `steps` has one step for each prompt, or is a function that is called for every prompt. A prompt that is longer than
    `context_tokens` raises ModelOverflowError.
    """

    def __init__(
        self,
        steps: Sequence[Step] | Callable[[Prompt], Answer] = (),
        *,
        name: str = "scripted",
        provider: str = "anthropic",
        context_tokens: int = 200_000,
    ) -> None:
        self._steps = _iterate_steps(steps)
        self.name = name
        self.provider = provider
        self.context_tokens = context_tokens
        self._lock = Lock()
        self.prompts: list[Prompt] = []

    @classmethod
    def from_file(cls, path: Path | str, *, context_tokens: int = 200_000) -> Scripted:
        """Read a script of JSON objects, one on a line; blank lines and `#` are skipped. An error names the line."""
        try:
            lines = Path(path).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: the script cannot be read: {error}") from error
        steps = [
            _read_step(line, number, path)
            for number, line in enumerate(lines, start=1)
            if line.strip() and not line.lstrip().startswith("#")
        ]
        return cls(steps, name=f"scripted:{path}", context_tokens=context_tokens)

    def ask(
        self, prompt: Prompt, *, timeout: float | None = None, cancel: Event | None = None, on_text: OnText = None
    ) -> Reply:
        """Return the next reply of the script; see `Model.ask`. A prompt that does not fit uses up no step."""
        deadline = Deadline.after(timeout)
        check_cancelled(cancel, self.name)
        check_deadline(deadline, self.name)
        answer = self._next_answer(prompt)
        match answer:
            case ModelError():
                raise copy.copy(answer)
            case Hang():
                _pause(None, deadline, cancel, self.name)
                raise AssertionError("an endless pause has ended")  # pragma: no cover - it ends only by an error
            case str():
                said = ScriptedReply(text=answer)
            case Message():
                said = ScriptedReply(text=answer.text, calls=answer.calls, usage=answer.usage, stop=answer.stop or "")
            case ScriptedReply():
                said = answer
        for piece in said.arriving:
            _pause(said.delay, deadline, cancel, self.name)
            if on_text is not None:
                on_text(piece)
        reply = said.reply(prompt, model=self.name)
        return replace(reply, message=replace(answer, usage=reply.usage)) if isinstance(answer, Message) else reply

    def _next_answer(self, prompt: Prompt) -> Answer:
        tokens = prompt_tokens(prompt)
        with self._lock:
            self.prompts.append(prompt)
            if tokens > self.context_tokens:
                raise ModelOverflowError(
                    f"the prompt has {tokens:,} tokens, the window {self.context_tokens:,}",
                    model=self.name,
                    limit=self.context_tokens,
                    requested=tokens,
                )
            step = next(self._steps, None)
        if step is None:
            count = len(self.prompts) - 1
            raise ModelRefusedError(
                f"the script is over after {count} replies: add another, or let the last one repeat", model=self.name
            )
        return step(prompt) if callable(step) else step


def _iterate_steps(steps: Sequence[Step] | Callable[[Prompt], Answer]) -> Iterator[Step]:
    while callable(steps):
        yield steps
    for step in steps:
        yield step
        while isinstance(step, ScriptedReply) and step.repeat:
            yield step


def _pause(seconds: float | None, deadline: Deadline, cancel: Event | None, model: str) -> None:
    """Wait for a number of seconds, or forever; the deadline and a cancellation end the wait with an error."""
    pause = Deadline.after(seconds)
    event = cancel or Event()
    while True:
        check_cancelled(cancel, model)
        check_deadline(deadline, model)
        left = pause.remaining
        if left == 0.0:
            return
        event.wait(_POLL_SECONDS if left is None else min(_POLL_SECONDS, left))


class Echo:
    """A model that replies with the number of messages, tokens and tools it received, and the last user message.

    It shows what would be sent, without a key and without sending anything.
    """

    name, provider = "echo", "anthropic"

    def __init__(self, *, context_tokens: int = 200_000) -> None:
        self.context_tokens = context_tokens

    def ask(
        self,
        prompt: Prompt,
        *,
        timeout: float | None = None,  # noqa: ARG002 - it takes no time
        cancel: Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """Describe the prompt; see `Model.ask`."""
        check_cancelled(cancel, self.name)
        counts, tokens = Counter[str](), Counter[str]()
        for message in prompt.messages:
            counts[message.role] += 1
            tokens[message.role] += count_message(message)
        texts = [message.text for message in prompt.messages if message.role == "user"]
        last = clip(texts[-1] if texts else "", head=_MAX_ECHO_CHARS, tail=_MAX_ECHO_CHARS // 5)
        used = f"{prompt_tokens(prompt):,} of {self.context_tokens:,} tokens"
        lines = [f"I would have sent {plural(len(prompt.messages), 'message')}, {used}:"]
        lines += [f"- {role}: {plural(count, 'message')}, {tokens[role]:,} tokens" for role, count in counts.items()]
        if prompt.tools:
            names = ", ".join(tool.name for tool in prompt.tools)
            lines.append(f"- {plural(len(prompt.tools), 'tool')}, {_tool_tokens(prompt):,} tokens: {names}")
        else:
            lines.append("- no tools")
        lines += [
            f"The last user message: {last or '(none)'}",
        ]
        said = ScriptedReply(text="\n".join(lines))
        if on_text is not None:
            on_text(said.text)
        return said.reply(prompt, model=self.name)


# --- scripts on disk ---------------------------------------------------------


class _Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] | str = {}
    id: str = ""


class _Usage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


_ErrorKind = Literal["overflow", "busy", "timeout", "refused"]


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a line."""

    text: str = ""
    pieces: tuple[str, ...] = ()
    thinking: str = ""
    signature: str | None = None
    calls: tuple[_Call, ...] = ()
    usage: _Usage | None = None
    stop: str = ""
    delay: float = 0.0
    repeat: bool = False
    hang: bool = False
    error: _ErrorKind | None = None
    message: str = ""
    retry_after: float | None = None


_SAID_FIELDS: Final = ("text", "pieces", "thinking", "signature", "stop", "delay", "repeat")
_DECODER: Final = msgspec.json.Decoder(_Line)
_ERRORS: Final[dict[_ErrorKind, Callable[[str], ModelError]]] = {
    "overflow": ModelOverflowError,
    "timeout": ModelTimeoutError,
    "refused": ModelRefusedError,
}


def _read_step(text: str, number: int, path: Path | str) -> Step:
    try:
        line = _DECODER.decode(text)
    except msgspec.MsgspecError as error:
        raise InputError(f"{path}:{number}: not a line of a script: {error}") from error
    if line.hang:
        return Hang()
    if line.error is not None:
        message = line.message or f"the script says {line.error}"
        if line.error == "busy":
            return ModelBusyError(message, retry_after=line.retry_after)
        return _ERRORS[line.error](message)
    calls = enumerate(line.calls, start=1)
    return ScriptedReply(
        **{name: getattr(line, name) for name in _SAID_FIELDS},
        calls=tuple(
            ToolCall(id=call.id or f"call_{number}_{index}", name=call.name, arguments=call.arguments)
            for index, call in calls
        ),
        usage=None if line.usage is None else Usage(**msgspec.structs.asdict(line.usage)),
    )
