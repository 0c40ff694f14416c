"""Memory for `llm`, as a command (`llm -m MODEL --holdfast s1 "..."`) and in Python.

    model = HoldfastMemory(engine, session="s1").wrap(llm.get_model("gpt-5.2"))

The conversation continues where the last process stopped, unless `llm` continues a conversation itself (`llm -c`).
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from holdfast.adapters._history import Placed, log, on_loop, place, read_history, require_extra, sync_engine

with require_extra("llm"):
    import llm
    from llm.parts import AttachmentPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

from holdfast.aio import AsyncEngine, in_thread
from holdfast.engine import Engine
from holdfast.exchange import Exchange, Exchanges, Write, find_refusal_in
from holdfast.messages import Image, Message, Opaque, Part, Role, Text, Thinking, ToolCall, ToolResult
from holdfast.session import Session
from holdfast.store.base import Select

M = TypeVar("M", llm.Model, llm.KeyModel, llm.AsyncModel, llm.AsyncKeyModel)

_ROLES: dict[str, Role] = {"system": "system", "assistant": "assistant", "tool": "tool"}


class HoldfastMemory:
    """The memory of one conversation with models of `llm`.

    Args:
        engine: The memory. If it has no model, the model itself writes summaries.
        session: The id of the conversation.
        tenant: The tenant that the memory belongs to, if several users share one store.
        project: The project that the session belongs to.
        agent: The agent that it belongs to.
        limit: The context window of the model; by default that of the settings or of the model.
    """

    def __init__(
        self,
        engine: Engine | AsyncEngine,
        *,
        session: str,
        tenant: str = "local",
        project: str = "",
        agent: str = "main",
        limit: int | None = None,
    ) -> None:
        self._session = sync_engine(engine).session(session, tenant=tenant, project=project, agent=agent)
        self._limit = limit

    def wrap(self, model: M) -> M:
        """Return a model of the same kind whose prompts have this memory; the given one has none.

        Args:
            model: The model, synchronous or asynchronous. It must send `prompt.messages`, as those of OpenAI do.
        """
        is_async = isinstance(model, llm.AsyncModel | llm.AsyncKeyModel)
        wrapped = copy.copy(model)
        memory = _Memory(model, self._session, self._limit)
        setattr(wrapped, "execute", memory.execute_async if is_async else memory.execute)  # noqa: B010 - it is a method
        return wrapped


class _Memory:
    """The memory of one model and conversation."""

    def __init__(self, model: Any, session: Session, limit: int | None) -> None:
        self._model = model
        self._session = session
        self._exchanges = Exchanges(limit)
        self._earlier: list[Message] | None = None

    def execute(self, prompt: llm.Prompt, stream: bool, response: Any, *args: Any, **more: Any) -> Iterator[Any]:  # noqa: FBT001 - as `llm` calls it
        """Send a prompt with its window; a window that is refused is sent again, smaller."""
        exchange = self._begin(prompt, self._write)
        response.on_done(lambda done: exchange.archive(_read(done.messages())))
        has_begun = False
        while True:
            try:
                for chunk in self._model.execute(self._fit(prompt, exchange), stream, response, *args, **more):
                    has_begun = True
                    yield chunk
            except Exception as error:
                if has_begun:
                    raise
                smaller = exchange.shrink(find_refusal_in(error))
                if smaller is None:
                    raise
                exchange = smaller
            else:
                return

    async def execute_async(
        self,
        prompt: llm.Prompt,
        stream: bool,  # noqa: FBT001 - as above
        response: Any,
        *args: Any,
        **more: Any,
    ) -> AsyncIterator[Any]:
        """Send a prompt with its window; a window that is refused is sent again, smaller."""
        exchange = await in_thread(self._begin, prompt, on_loop(self._write_async))

        async def keep(done: Any) -> None:
            await in_thread(exchange.archive, _read(await done.messages()))

        await response.on_done(keep)
        has_begun = False
        while True:
            try:
                fitted = self._fit(prompt, exchange)
                async for chunk in self._model.execute(fitted, stream, response, *args, **more):
                    has_begun = True
                    yield chunk
            except Exception as error:
                if has_begun:
                    raise
                smaller = await in_thread(exchange.shrink, find_refusal_in(error))
                if smaller is None:
                    raise
                exchange = smaller
            else:
                return

    def _begin(self, prompt: llm.Prompt, write: Write) -> Exchange:
        """Assemble the window of a prompt, in which the conversation of earlier processes comes first."""
        given: list[Any] = prompt.messages
        if self._earlier is None:
            is_fresh = all(message.role != "assistant" for message in given)
            self._earlier = self._read_archive() if is_fresh else []
        lead = _count_system(given)
        asked = read_history(
            [*_read(given[:lead]), *self._earlier, *_read(given[lead:])],
            model=self._model.model_id,
            tools=[
                {"name": one.name, "description": one.description or "", "parameters": getattr(one, "input_schema", {})}
                for one in prompt.tools
            ],
        )
        return self._exchanges.begin(self._session, asked, write=write, warn=log.warning)

    def _fit(self, prompt: llm.Prompt, exchange: Exchange) -> llm.Prompt:
        """Return the prompt with its window; the prompt itself if nothing was edited."""
        given: list[Any] = prompt.messages
        lead = _count_system(given)
        made = [*given[:lead], *map(_make, self._earlier or ()), *given[lead:]]
        placed = place(exchange)
        if placed is not None:
            made = [_render(one, made) for one in placed]
        return prompt if made == given else _copy(prompt, made)

    def _read_archive(self) -> list[Message]:
        """Read the conversation of earlier processes."""
        rows = self._session._memory.store.read_messages(Select(scope=self._session.scope))
        # Without id and time a message is known by its place, as when it was archived.
        return [replace(row.message, id=None, timestamp=None) for row in rows if row.message.role != "system"]

    def _write(self, messages: list[dict[str, Any]]) -> str:
        return str(self._model.prompt(messages=_prompts(messages), stream=False).text())

    async def _write_async(self, messages: list[dict[str, Any]]) -> str:
        return str(await self._model.prompt(messages=_prompts(messages), stream=False).text())


def _count_system(messages: Sequence[Any]) -> int:
    """Return 1 if the messages begin with a system prompt, else 0."""
    if messages and messages[0].role == "system":
        return 1
    return 0


def _prompts(messages: Sequence[dict[str, Any]]) -> list[llm.Message]:
    return [llm.Message(one["role"], [TextPart(one["content"])]) for one in messages]


def _copy(prompt: llm.Prompt, messages: Sequence[llm.Message]) -> llm.Prompt:
    return llm.Prompt(  # type: ignore[no-untyped-call]
        prompt.prompt,
        prompt.model,
        attachments=prompt.attachments,
        system=prompt.system,
        prompt_json=prompt.prompt_json,
        options=prompt.options,
        schema=prompt.schema,
        tools=prompt.tools,
        tool_results=prompt.tool_results,
        messages=messages,
        hide_reasoning=prompt.hide_reasoning,
    )


# --- messages ----------------------------------------------------------------


def _read(messages: Sequence[Any]) -> list[Message]:
    """Read messages, each as one canonical message."""
    return [
        Message(role=_ROLES.get(message.role, "user"), parts=tuple(map(_read_part, message.parts)))
        for message in messages
    ]


def _read_part(part: Any) -> Part:
    match part:
        case TextPart():
            return Text(text=part.text)
        case ReasoningPart(redacted=False):
            return Thinking(text=part.text)
        case ToolCallPart():
            return ToolCall(id=part.tool_call_id or "", name=part.name, arguments=part.arguments)
        case ToolResultPart():
            return ToolResult(
                call_id=part.tool_call_id or "",
                content=(Text(text=part.output),),
                is_error=part.exception is not None,
                name=part.name,
            )
        case AttachmentPart(attachment=attachment) if attachment is not None and _is_image(attachment):
            file: Any = attachment
            return Image(media_type=file.resolve_type(), data=file.base64_content())
        case _:
            return Opaque(kind=part.to_dict()["type"], data=part.to_dict())


def _is_image(attachment: Any) -> bool:
    return attachment.url is None and (attachment.resolve_type() or "").startswith("image/")


def _make(message: Message) -> llm.Message:
    """Make a message of the archive, a summary, or what a repair inserted."""
    parts = [_make_part(part) for part in message.parts]
    return llm.Message(message.role, [part for part in parts if part is not None])


def _make_part(part: Part) -> Any:
    match part:
        case Text():
            return TextPart(part.text)
        case Thinking():
            return ReasoningPart(part.text)
        case ToolCall():
            arguments = part.arguments if isinstance(part.arguments, dict) else {}
            return ToolCallPart(part.name, arguments, part.id or None)
        case ToolResult():
            return ToolResultPart(part.name or "unknown", part.text, part.call_id or None)
    return _make_other_part(part)


def _make_other_part(part: Part) -> Any:
    match part:
        case Image(data=str(data), media_type=kind):
            return llm.parts.Part.from_dict({"type": "attachment", "attachment": {"type": kind or "", "content": data}})
        case Opaque(data=dict(data)):
            return llm.parts.Part.from_dict(data)  # type: ignore[arg-type] # as it was written
    return None


def _render(placed: Placed, given: Sequence[Any]) -> llm.Message:
    """Return a message of a window: the given one itself if it was not edited."""
    old = None if placed.source is None else given[placed.source]
    if old is None:
        return _make(placed.message)
    if not placed.is_edited:
        return old  # type: ignore[no-any-return]
    known = {repr(_read_part(part)): part for part in old.parts}
    results = {part.tool_call_id: part for part in old.parts if isinstance(part, ToolResultPart)}
    parts = [known.get(repr(part)) or _edit(part, results) for part in placed.message.parts]
    return llm.Message(old.role, [part for part in parts if part is not None], old.provider_metadata)


def _edit(part: Part, results: dict[str | None, ToolResultPart]) -> Any:
    """Return a part that was edited or added: the result of a tool keeps all but its text."""
    if isinstance(part, ToolResult):
        old = results.get(part.call_id or None)
        if old is not None:
            return replace(old, output=part.text)
    return _make_part(part)
