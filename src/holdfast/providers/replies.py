"""Put the reply of a model together, from the events of its stream or from its bytes as they pass by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from holdfast.json_text import decode_json
from holdfast.providers.incoming import is_item, wrap_malformed
from holdfast.providers.rules import blocks
from holdfast.providers.wire import decode_arguments, encode_arguments

if TYPE_CHECKING:
    import httpx2 as httpx

Json: TypeAlias = dict[str, Any]

MAX_REPLY_BYTES: Final = 64 * 2**20
"""A longer reply passes without being collected."""
_DELTAS: Final = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("partial_json", "input"),
    "compaction_delta": ("content", "content"),
}
"""For each delta of Anthropic: the field that holds the text, and the field of the block that it continues."""
_CHAT_TEXTS: Final = ("content", "reasoning_content", "reasoning", "refusal")
_LAST_EVENTS: Final = frozenset({"response.completed", "response.incomplete"})
_TEXT_EVENTS: Final = frozenset(
    f"response.{name}.delta" for name in ("output_text", "function_call_arguments", "custom_tool_call_input")
)
_ITEM_EVENTS: Final = frozenset({"response.output_item.added", *_TEXT_EVENTS})

OPENINGS: Final = frozenset({"message_start", "response.created", "response.queued", "response.in_progress"})
"""The events of a stream that may come before an error that refuses the request."""


class AnthropicStream:
    """A streamed reply of the Messages API. `add` returns the text of an event; `body` the reply in one piece.

    It `has_ended` with the event that has the reason: clients may leave before the one after it, which has no content.
        It
    `is_whole` if nothing of it is missing, also if it breaks off now.
    """

    def __init__(self) -> None:
        self.has_ended = False
        self._reply: Json = {}
        self._blocks: dict[int, Json] = {}
        self._added: dict[int, dict[str, list[str]]] = {}
        self._citations: dict[int, list[Any]] = {}

    @property
    def is_whole(self) -> bool:  # noqa: D102 - see the class
        return self.has_ended

    def add(self, event: Mapping[str, Any], /) -> str:  # noqa: D102 - see the class
        index = event.get("index")
        at = index if isinstance(index, int) else 0
        match event:
            case {"type": "message_start", "message": Mapping() as message}:
                self._reply = dict(message)
            case {"type": "content_block_start", "content_block": Mapping() as block}:
                self._blocks[at] = _without_nulls(block)
                self._added[at] = {}
                self._citations.pop(at, None)
            case {"type": "content_block_delta", "delta": Mapping() as delta} if at in self._blocks:
                source, target = _DELTAS.get(str(delta.get("type")), ("", ""))
                self._added[at].setdefault(target, []).append(get_text(delta, source))
                if "citation" in delta:
                    self._citations.setdefault(at, []).append(delta["citation"])
                return get_text(delta, source) if source == "text" else ""
            case {"type": "message_delta", "delta": Mapping() as delta}:
                # Later counts are totals.
                usage = _without_nulls(self._reply.get("usage")) | _without_nulls(event.get("usage"))
                self._reply |= {**_without_nulls(delta), "usage": usage}
                self.has_ended |= bool(delta.get("stop_reason"))
            case {"type": "message_stop"}:
                self.has_ended = True
        return ""

    def body(self) -> Json:  # noqa: D102 - see the class
        content: list[Json] = []
        for index, block in sorted(self._blocks.items()):
            texts = {key: "".join(pieces) for key, pieces in self._added[index].items() if key}
            arguments = texts.pop("input", "")
            whole = block | {key: f"{block.get(key) or ''}{text}" for key, text in texts.items()}
            if index in self._citations:
                cited = block.get("citations")
                first = cited if isinstance(cited, list) else []
                whole["citations"] = [*first, *self._citations[index]]
            content.append(whole | {"input": decode_arguments(arguments)} if arguments else whole)
        return {**self._reply, "content": content}


class ChatStream:
    """A streamed reply of Chat Completions; see `AnthropicStream`. `stop` is why it ended."""

    def __init__(self) -> None:
        self.stop = ""
        self._reply: Json = {}
        self._texts: dict[str, list[str]] = {}
        self._calls: list[Json] = []
        self._call_at: dict[int, Json] = {}  # the last call with each index

    @property
    def has_ended(self) -> bool:  # noqa: D102 - see the class
        return bool(self.stop)

    @property
    def is_whole(self) -> bool:  # noqa: D102 - see the class
        return self.has_ended

    def add(self, event: Mapping[str, Any], /) -> str:  # noqa: D102 - see the class
        self._reply |= {key: event[key] for key in ("id", "model", "usage") if event.get(key)}
        text = ""
        for choice in [one for one in blocks(event.get("choices")) if not one.get("index")][:1]:  # one goes on
            self.stop = get_text(choice, "finish_reason") or self.stop
            for delta in blocks([choice.get("delta")]):
                pieces = {key: _join_texts(delta[key]) for key in _CHAT_TEXTS if isinstance(delta.get(key), str | list)}
                for key, piece in pieces.items():
                    self._texts.setdefault(key, []).append(piece)
                text += pieces.get("content", "")
                for fragment in blocks(delta.get("tool_calls")):
                    self._add(fragment)
        return text

    def _add(self, fragment: Mapping[str, Any]) -> None:
        call = self._call(fragment)
        call.update((key, value) for key, value in fragment.items() if value and key not in call)
        for function in blocks([fragment.get("function")]):
            whole, known = function.get("arguments"), call["function"]
            known["name"] = known["name"] or get_text(function, "name")
            piece = encode_arguments(whole) if isinstance(whole, Mapping) else get_text(function, "arguments")
            known["arguments"].append(piece)

    def _call(self, fragment: Mapping[str, Any]) -> Json:
        """Return the call that a fragment belongs to: the one with its index, unless its id starts a new call.

        Without an index, a fragment with a name starts a call, and others continue the last one.
        """
        index = fragment.get("index")
        call_id = get_text(fragment, "id")
        known: Json | None = None
        if isinstance(index, int):
            known = self._call_at.get(index)
        else:
            index = len(self._calls)
            is_new = any(function.get("name") for function in blocks([fragment.get("function")]))
            if self._calls and not is_new:
                known = self._calls[-1]
        if known is not None:
            is_other = call_id and known.get("id") and call_id != known["id"]
            if not is_other:
                return known
        call: Json = {"index": index, "function": {"name": "", "arguments": []}}
        self._calls.append(call)
        self._call_at[index] = call
        return call

    def body(self) -> Json:  # noqa: D102 - see the class
        texts = {key: "".join(pieces) for key, pieces in self._texts.items()}
        calls: list[Json] = []
        for call in self._calls:
            function = {**call["function"], "arguments": "".join(call["function"]["arguments"])}
            fields = {key: value for key, value in call.items() if key != "index"}
            calls.append({"type": "function", **fields, "function": function})
        content = texts.pop("content", None if calls else "")
        message: Json = {"role": "assistant", "content": content, **{key: text for key, text in texts.items() if text}}
        message |= {"tool_calls": calls} if calls else {}
        return {**self._reply, "choices": [{"index": 0, "message": message, "finish_reason": self.stop}]}


class ResponsesStream:
    """A streamed reply of Responses; see `AnthropicStream`. Items arrive whole, after their text in pieces."""

    def __init__(self) -> None:
        self._begun: set[int] = set()
        self._items: dict[int, Json] = {}
        self._calls: dict[int, Json] = {}
        self._texts: dict[int, list[str]] = {}
        self._id = ""
        self._response: Json | None = None

    @property
    def has_ended(self) -> bool:  # noqa: D102 - see the class
        return self._response is not None

    @property
    def is_whole(self) -> bool:
        """Whether all that has begun is done, and it is an answer. Until the reply has ended, more may follow."""
        if self.has_ended:
            return True
        has_answer = any(item.get("type") != "reasoning" for item in self._items.values())
        return has_answer and self._begun <= self._items.keys()

    def add(self, event: Mapping[str, Any], /) -> str:  # noqa: D102 - see the class
        index = event.get("output_index")
        place = index if isinstance(index, int) else len(self._items)
        if get_text(event, "type") in _ITEM_EVENTS:
            self._begun.add(place)
        match event:
            case {"type": "response.output_item.added", "item": {"type": "function_call" | "custom_tool_call"} as call}:
                self._calls[place], self._texts[place] = dict(call), []
            case {"type": str(kind), "delta": str(text)} if kind in _TEXT_EVENTS:
                self._texts.setdefault(place, []).append(text)
                return "" if place in self._calls else text
            case {"type": "response.output_item.done", "item": Mapping() as item}:
                self._items[place] = dict(item)
            case {"type": "response.created", "response": Mapping() as response}:
                self._id = get_text(response, "id")
            case {"type": str(kind), "response": Mapping() as response} if kind in _LAST_EVENTS:
                self._response = dict(response)
        return ""

    def body(self) -> Json:  # noqa: D102 - see the class
        items: list[Json] = []
        for place in sorted({*self._items, *self._texts}):
            text = "".join(self._texts.get(place, ()))
            part: Json = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
            if place in self._calls:
                key = "arguments" if self._calls[place]["type"] == "function_call" else "input"
                part = {**self._calls[place], key: text}
            items.append(self._items.get(place) or part)  # what has come of one that was cut
        response = self._response or {"id": self._id}
        return {**response, "output": blocks(response.get("output")) or items}  # some services leave them out there


_STREAMS: Final[dict[str, type[AnthropicStream | ChatStream | ResponsesStream]]] = {
    "anthropic": AnthropicStream,
    "openai_chat": ChatStream,
}


class ReplyCollector:
    """Collects one reply of a provider, streamed as server-sent events or as one JSON body.

    It `has_begun` when an event of a stream has come that is not its opening, and `is_complete` with the last one.
    `error` is the provider's error inside a stream, as it came, and `id` that of a reply that is over. A reply of more
    than `max_bytes` `is_too_large` and not collected.
    """

    def __init__(self, format: str, *, is_stream: bool, max_bytes: int = MAX_REPLY_BYTES) -> None:
        self.has_begun = False
        self.is_complete = False
        self.error = ""
        self.id = ""
        self.format = format
        self.is_too_large = False
        self.size = 0
        self._is_stream = is_stream
        self._max_bytes = max_bytes
        self._bytes = bytearray()
        self._data: list[bytes] = []
        self._stream = _STREAMS.get(format, ResponsesStream)()

    def feed(self, chunk: bytes) -> None:
        """Add bytes of the reply."""
        self.size += len(chunk)
        if self.size > self._max_bytes:
            self.give_up()
        if self.is_too_large:
            return
        self._bytes += chunk
        if self._is_stream and (b"\n" in chunk or b"\r" in chunk):
            lines = bytes(self._bytes).splitlines(keepends=True)
            self._bytes.clear()
            if not lines[-1].endswith(b"\n"):  # \r may be half of \r\n
                self._bytes += lines.pop()
            for line in lines:
                self._read_line(line)

    def give_up(self) -> None:
        """Collect no more, and forget what was collected."""
        self.is_too_large = True
        self._bytes = bytearray()
        self._data = []
        self._stream = _STREAMS.get(self.format, ResponsesStream)()

    @property
    def is_cut(self) -> bool:
        """Whether a stream that is over broke off before all of the reply had come."""
        is_read = self._is_stream and not self.is_too_large
        return is_read and bool(self.error or not (self.is_complete or self._stream.is_whole))

    def messages(self) -> list[Json]:
        """Return the messages of a reply that is over, as the next request would contain them; none if it was cut."""
        received = self.received()
        return [] if self.is_cut else received

    def received(self) -> list[Json]:
        """Return what has come of the messages of a reply that is over, also if it was cut."""
        if self.is_too_large:
            return []
        if not self._is_stream:
            return self._read(load_json(bytes(self._bytes)))
        self._read_line(bytes(self._bytes))  # a stream may end without an empty line
        self._read_line(b"")
        self._bytes.clear()
        return self._read(self._stream.body())

    def _read(self, body: Json) -> list[Json]:
        self.id = get_text(body, "id")
        return read_reply(body, self.format)

    def _read_line(self, line: bytes) -> None:
        """Read a line of a stream. An empty one ends an event."""
        if line.startswith(b"data:"):
            self._data.append(line[5:].strip())
        elif self._data and not line.rstrip(b"\r\n"):
            data = b"\n".join(self._data)
            self._data.clear()
            value = load_json(data)
            kind = get_text(value, "type")
            self.has_begun |= kind not in OPENINGS and data != b"[DONE]"
            if value.get("error") or kind in {"error", "response.failed"}:
                self.error = self.error or data.decode(errors="replace")
            self._stream.add(value)
            # In a chat, usage follows what ends it; not every server sends [DONE].
            self.is_complete |= data == b"[DONE]" or (self.format != "openai_chat" and self._stream.has_ended)


def read_reply(body: Mapping[str, Any], format: str) -> list[Json]:
    """Return the messages of a whole reply body, as the next request would contain them."""
    if format == "openai_responses":
        output = body.get("output")
        items = output if isinstance(output, list) else []
        return [item if is_item(item) else wrap_malformed(item) for item in items if item is not None]
    if format == "gemini":
        candidates = blocks(body.get("candidates"))
        content = candidates[0].get("content") if candidates else None
        return [dict(content)] if isinstance(content, Mapping) else []
    message = dict(body)
    if "choices" in body:
        choices = blocks(body["choices"])
        chosen = choices[0].get("message") if choices else None
        message = {**(chosen if isinstance(chosen, Mapping) else {}), "usage": body.get("usage")}
    has_content = any(message.get(key) for key in (*_CHAT_TEXTS, "tool_calls", "function_call"))
    return [{"role": "assistant", "content": None, **message}] if has_content else []


def is_stream(sent: httpx.Response) -> bool:
    """Return whether a reply is streamed as server-sent events."""
    return str(sent.headers.get("content-type", "")).startswith("text/event-stream")


def get_text(data: Mapping[str, Any], key: str) -> str:
    """Return a field that is a text; empty if it is missing or something else."""
    value = data.get(key)
    return value if isinstance(value, str) else ""


def _join_texts(value: str | list[Any]) -> str:
    """Return a text, also if a server sends it as a list of parts."""
    return value if isinstance(value, str) else "".join(get_text(part, "text") for part in blocks(value))


def _without_nulls(data: Any) -> Json:
    """Return the fields of an object that are not null; none if it is not an object."""
    return {key: value for key, value in data.items() if value is not None} if isinstance(data, Mapping) else {}


def load_json(data: bytes) -> Json:
    """Decode a JSON object; an empty one if there is none."""
    try:
        value = decode_json(data or b"{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
