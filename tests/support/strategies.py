"""What hypothesis draws from: JSON as programs write it, wire messages of every format, canonical messages.

Texts hold what breaks naive code: CJK, emoji made of several code points, half surrogates, combining marks,
control characters. Wire messages carry fields that no one knows, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st

from holdfast.messages import (
    Image,
    Message,
    Opaque,
    Part,
    RedactedThinking,
    ResultContent,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)

CALL_SPELLINGS: Final = ("tool_use", "toolUse", "toolCall", "functionCall")
RESULT_IDS: Final = ("toolCallId", "toolUseId", "tool_use_id", "call_id")

Wire = dict[str, Any]


def examples(number: int) -> int:
    """Return how many examples a test tries if 100 are usual: fewer in `make test`, four times 100 in `make fuzz`."""
    most = settings().max_examples
    least = 5
    if most <= 5:  # `make test`
        least = 3
    return max(min(number, least), number * most // 100)


# --- JSON --------------------------------------------------------------------

_SAMPLES: Final = (
    "",
    " ",
    "Fix the webhook",
    "修复签名验证的错误",
    "設定ファイルを読み込む",
    "웹훅 서명을 고쳐 주세요",
    "👩‍👩‍👧‍👦🇩🇪👍🏽",
    "e\u0301\u0302\u0303",
    "half \ud83d surrogate",
    "\x00\x1b[31m\u202e",
    "```python\nprint('a')\n```",
    '{"looks": "like JSON"}',
    "</summary>",
)


def texts() -> st.SearchStrategy[str]:
    """Any text, half surrogates included."""
    anything = st.text(st.characters(exclude_categories=()), max_size=12)
    return st.one_of(st.sampled_from(_SAMPLES), anything)


def _names() -> st.SearchStrategy[str]:
    return st.one_of(st.sampled_from(["read", "run_command", "mcp__files__search"]), st.text(max_size=6))


def _ids() -> st.SearchStrategy[str]:
    return st.one_of(st.sampled_from(["toolu_01", "call_2", "c|fc_3"]), st.text(max_size=4))


def json_values() -> st.SearchStrategy[Any]:
    """Any JSON value, nested a little, with integers that no float can hold."""
    numbers = st.one_of(st.integers(), st.just(2**200), st.floats(allow_nan=False, allow_infinity=False))
    leaves = st.one_of(st.none(), st.booleans(), numbers, texts())
    return st.recursive(leaves, lambda inner: st.lists(inner, max_size=2) | _dictionaries(inner), max_leaves=4)


def _dictionaries(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Wire]:
    return st.dictionaries(st.text(max_size=3), values, max_size=2)


def objects() -> st.SearchStrategy[Wire]:
    """A JSON object."""
    return _dictionaries(json_values())


_FOREIGN: Final = st.dictionaries(st.sampled_from(["x_a", "x_b"]), json_values(), max_size=2)
_UNKNOWN: Final[st.SearchStrategy[Wire]] = st.just({}) | _FOREIGN


@st.composite
def damaged(draw: st.DrawFn, wires: st.SearchStrategy[list[Wire]]) -> Any:
    """A message list in which one value somewhere was replaced by any other."""
    return _replaced(draw, draw(wires))


def _replaced(draw: st.DrawFn, value: Any) -> Any:
    inside = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if not inside or draw(st.integers(0, 4)) == 0:
        return draw(json_values())
    key = draw(st.sampled_from(inside))
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[key] = _replaced(draw, value[key])
    return changed


def _some(always: Wire, optional: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Wire]:
    """An object with the fields that are always there, some of the optional ones, and unknown ones, in any order."""
    required = {key: value if isinstance(value, st.SearchStrategy) else st.just(value) for key, value in always.items()}
    known = st.fixed_dictionaries(required, optional=optional)
    return st.builds(_mixed, known, _UNKNOWN, st.integers(0, 5))


def _mixed(known: Wire, unknown: Wire, turn: int) -> Wire:
    items = [*known.items(), *unknown.items()]
    return dict(items[turn:] + items[:turn])


def _listed(*blocks: st.SearchStrategy[Wire]) -> st.SearchStrategy[list[Wire]]:
    return st.lists(st.one_of(*blocks), max_size=3)


def _base64() -> st.SearchStrategy[str]:
    return st.sampled_from(["aGVsbG8=", "iVBORw0KGgo"])


def _data_urls() -> st.SearchStrategy[str]:
    return st.sampled_from(["data:image/png;base64,aGVsbG8=", "https://example.com/a.png", "data:,plain"])


_CACHE: Final = {"cache_control": st.just({"type": "ephemeral", "ttl": "1h"})}
_COUNTS: Final = st.integers(0, 300_000)

# --- Anthropic ---------------------------------------------------------------


def _anthropic_images() -> st.SearchStrategy[Wire]:
    inline = _some({"type": "base64", "media_type": "image/png", "data": _base64()}, {})
    sources = st.one_of(
        inline, _some({"type": "url", "url": _data_urls()}, {}), st.just({"type": "file", "file_id": "f1"})
    )
    return _some({"type": "image", "source": sources}, _CACHE)


def _anthropic_results() -> st.SearchStrategy[Wire]:
    inside = _listed(
        _some({"type": "text", "text": texts()}, _CACHE),
        _anthropic_images(),
        _some({"type": "search_result", "title": texts()}, {}),
        _some({"type": "tool_result", "content": texts()}, {}),
    )
    optional = {"content": texts() | inside | st.none(), "is_error": st.booleans(), **_CACHE}
    return _some({"type": "tool_result", "tool_use_id": _ids()}, optional)


def _anthropic_texts() -> st.SearchStrategy[Wire]:
    return _some({"type": "text", "text": texts()}, {"citations": st.just([{"cited_text": "x"}]), **_CACHE})


def _anthropic_documents() -> st.SearchStrategy[Wire]:
    return _some({"type": "document", "source": objects()}, {"title": texts(), **_CACHE})


def _anthropic_blocks() -> tuple[st.SearchStrategy[Wire], ...]:
    return (
        _anthropic_texts(),
        _some({"type": "thinking", "thinking": texts()}, {"signature": texts()}),
        _some({"type": "redacted_thinking", "data": _base64()}, {}),
        _some({"type": "tool_use", "id": _ids(), "name": _names(), "input": objects()}, _CACHE),
        _some({"type": "server_tool_use", "id": _ids(), "name": "web_search", "input": objects()}, {}),
        _some(
            {"type": "web_search_tool_result", "tool_use_id": _ids(), "content": st.lists(objects(), max_size=2)}, {}
        ),
        _anthropic_documents(),
        _some({"type": "novelty"}, {"text": json_values()}),
        _anthropic_images(),
    )


def anthropic() -> st.SearchStrategy[Wire]:
    """One message of Anthropic's Messages API."""
    usage = st.fixed_dictionaries({"input_tokens": _COUNTS, "output_tokens": _COUNTS}) | objects()
    envelope = {"id": _ids(), "type": st.just("message"), "model": _names(), "usage": usage | st.none()}
    reply = envelope | {"stop_reason": st.sampled_from(["end_turn", "tool_use", None])}
    asked = _listed(_anthropic_texts(), _anthropic_images(), _anthropic_documents())
    # Results are there twice, so that they are two thirds of the blocks.
    answered = _listed(_anthropic_results(), _anthropic_results(), _anthropic_texts())
    return st.one_of(
        _some({"role": st.sampled_from(["user", "assistant", "system"]), "content": texts()}, {}),
        _some({"role": "user", "content": asked}, {}),
        _some({"role": "user", "content": answered}, {}),
        _some({"role": "assistant", "content": _listed(*_anthropic_blocks())}, reply),
    )


# --- OpenAI Chat Completions -------------------------------------------------


def _chat_parts() -> tuple[st.SearchStrategy[Wire], ...]:
    source = _some({"url": _data_urls()}, {"detail": st.just("high")})
    return (
        _some({"type": "text", "text": texts()}, _CACHE),
        _some({"type": "image_url", "image_url": source}, {}),
        _some({"type": "input_audio", "input_audio": objects()}, {}),
        _some({"type": "file", "file": objects()}, {}),
        _some({"type": "refusal", "refusal": texts()}, {}),
    )


def _argument_texts() -> st.SearchStrategy[str]:
    return st.one_of(
        st.sampled_from(["", "{}", '{ "path" : "a.txt" }', '{"a": 1.0, "b": [true]}', "not json", "[1]"]), texts()
    )


def _chat_calls() -> st.SearchStrategy[Wire]:
    function = _some({"name": _names(), "arguments": _argument_texts()}, {})
    custom = _some({"name": _names(), "input": texts()}, {})
    return st.one_of(
        _some({"id": _ids(), "type": "function", "function": function}, {"index": st.integers(0, 3)}),
        _some({"id": _ids(), "type": "custom", "custom": custom}, {}),
    )


def chat() -> st.SearchStrategy[Wire]:
    """One message of Chat Completions."""
    text, image, audio, file, refusal = _chat_parts()
    content = st.one_of(st.none(), texts(), _listed(text, refusal))
    reply = {
        "tool_calls": st.lists(_chat_calls(), max_size=3) | st.none(),
        "reasoning_content": texts() | st.none(),
        "refusal": texts() | st.none(),
        "function_call": _some({"name": _names(), "arguments": _argument_texts()}, {}),
        "name": _names(),
    }
    asked = texts() | _listed(text, image, audio, file)
    answered = texts() | _listed(text, image)
    return st.one_of(
        _some({"role": st.sampled_from(["system", "developer", "user"]), "content": asked}, {"name": _names()}),
        _some({"role": "assistant", "content": content}, reply),
        _some({"role": "tool", "tool_call_id": _ids(), "content": answered}, {"name": _names()}),
        _some({"role": "function", "name": _names(), "content": texts()}, {}),
    )


# --- OpenAI Responses --------------------------------------------------------


def _response_parts() -> tuple[st.SearchStrategy[Wire], ...]:
    return (
        _some({"type": "input_text", "text": texts()}, {}),
        _some({"type": "output_text", "text": texts()}, {"annotations": st.just([])}),
        _some({"type": "input_image", "image_url": _data_urls()}, {"detail": st.just("auto")}),
        _some({"type": "input_image", "file_id": "f1"}, {}),
        _some({"type": "input_file", "file_data": _data_urls()}, {"filename": texts()}),
        _some({"type": "refusal", "refusal": texts()}, {}),
    )


def _response_calls() -> st.SearchStrategy[Wire]:
    text, _, image, _, file, _ = _response_parts()
    output = texts() | _listed(text, image, file)
    screenshot = _some({"type": "computer_screenshot", "image_url": _data_urls()}, {})
    called = {"call_id": _ids()}
    return st.one_of(
        _some({"type": "function_call", **called, "name": _names(), "arguments": _argument_texts()}, {"id": _ids()}),
        _some({"type": "custom_tool_call", **called, "name": _names(), "input": texts()}, {"id": _ids()}),
        _some({"type": "local_shell_call", **called, "action": objects()}, {"status": st.just("completed")}),
        _some({"type": "apply_patch_call", **called, "operation": objects()}, {}),
        _some({"type": "function_call_output", **called, "output": output}, {}),
        _some({"type": "custom_tool_call_output", **called, "output": output}, {}),
        _some({"type": "computer_call_output", **called, "output": screenshot}, {}),
        _some({"type": "tool_search_output", **called, "tools": st.lists(objects(), max_size=2)}, {}),
        _some({"type": "local_shell_call_output", "id": _ids()}, {"output": objects()}),
    )


def responses() -> st.SearchStrategy[Wire]:
    """One item of OpenAI Responses."""
    text, output_text, image, stored_image, file, refusal = _response_parts()
    summary = st.lists(_some({"type": "summary_text", "text": texts()}, {}), max_size=2)
    kept = {"id": _ids(), "status": st.just("completed"), "type": st.just("message")}
    asked = texts() | _listed(text, image, stored_image, file)
    return st.one_of(
        _some(
            {"role": st.sampled_from(["user", "system", "developer"]), "content": asked}, {"type": st.just("message")}
        ),
        _some({"role": "assistant", "content": texts() | _listed(output_text, refusal)}, kept),
        _some({"type": "reasoning", "summary": summary}, {"id": _ids(), "encrypted_content": _base64() | st.none()}),
        _some({"type": "web_search_call", "id": _ids()}, {"action": objects()}),
        _some({"type": "item_reference", "id": _ids()}, {}),
        _response_calls(),
    )


# --- pi and OpenClaw ---------------------------------------------------------


def _pi_calls() -> st.SearchStrategy[Wire]:
    spelled = {"tool_use": "input", "toolUse": "input", "toolCall": "arguments", "functionCall": "args"}
    return st.one_of(
        *(
            _some(
                {"type": kind, "id": _ids(), "name": _names(), spelled[kind]: objects()}, {"thoughtSignature": texts()}
            )
            for kind in CALL_SPELLINGS
        ),
        _some({"type": "functionCall", "call_id": _ids(), "name": _names(), "arguments": _argument_texts()}, {}),
    )


def _pi_images() -> st.SearchStrategy[Wire]:
    source = _some({"type": "base64", "media_type": "image/png", "data": _base64()}, {})
    own = _some({"type": "image", "data": _base64(), "mimeType": "image/png"}, {})
    return st.one_of(own, _some({"type": "image", "source": source}, {}))


def _pi_results() -> st.SearchStrategy[Wire]:
    text = _some({"type": "text", "text": texts()}, {})
    content = texts() | _listed(text, _pi_images(), _pi_calls())
    optional = {"toolName": _names(), "details": json_values(), "isError": st.booleans(), "timestamp": _COUNTS}
    roles = st.sampled_from(["toolResult", "tool", "tool_result"])
    return st.one_of(*(_some({"role": roles, key: _ids(), "content": content}, optional) for key in RESULT_IDS))


def pi() -> st.SearchStrategy[Wire]:
    """One message of a pi or OpenClaw session."""
    text = _some({"type": "text", "text": texts()}, {"textSignature": texts()})
    thinking = _some(
        {"type": "thinking", "thinking": texts()}, {"thinkingSignature": texts(), "redacted": st.booleans()}
    )
    usage = st.fixed_dictionaries({"input": _COUNTS, "output": _COUNTS, "totalTokens": _COUNTS, "cost": objects()})
    reply = {
        "api": st.sampled_from(["anthropic-messages", "openai-responses"]),
        "usage": usage,
        "stopReason": st.sampled_from(["stop", "toolUse", "error", "aborted"]),
        "timestamp": _COUNTS,
    }
    bash = {"command": texts(), "output": texts(), "exitCode": st.integers(0, 2)}
    return st.one_of(
        _some({"role": st.sampled_from(["user", "custom"]), "content": texts() | _listed(text, _pi_images())}, {}),
        _some({"role": "assistant", "content": _listed(text, thinking, _pi_calls())}, reply),
        _pi_results(),
        _some({"role": "bashExecution", **bash}, {"excludeFromContext": st.booleans()}),
        _some({"role": st.sampled_from(["branchSummary", "compactionSummary"]), "summary": texts()}, {}),
        _some({"role": "tool_call", "name": _names(), "params": objects()}, {"timestamp": texts()}),
    )


# --- Gemini ------------------------------------------------------------------


def _gemini_files(inline: str, file: str, media_type: str, uri: str) -> st.SearchStrategy[Wire]:
    kinds = st.sampled_from(["image/png", "application/pdf"])
    return st.one_of(
        _some({inline: _some({media_type: kinds, "data": _base64()}, {})}, {}),
        _some({file: _some({media_type: kinds, uri: _data_urls()}, {})}, {}),
    )


def gemini() -> st.SearchStrategy[Wire]:
    """One content of Gemini."""
    signed = {"thoughtSignature": _base64()}
    text = _some({"text": texts()}, {"thought": st.booleans(), **signed})
    named = {"name": _names()}
    call = _some(named, {"id": _ids(), "args": objects()})
    files = _gemini_files("inlineData", "fileData", "mimeType", "fileUri")
    answer = st.one_of(st.fixed_dictionaries({"output": texts()}), st.fixed_dictionaries({"error": texts()}), objects())
    response = _some({**named, "response": answer}, {"id": _ids(), "parts": st.lists(files, max_size=1)})
    code = _some({"executableCode": _some({"language": "PYTHON", "code": texts()}, {})}, {})
    spelled = _gemini_files("inline_data", "file_data", "mime_type", "file_uri")
    return st.one_of(
        _some({"role": "user", "parts": _listed(text, files, spelled)}, {}),
        _some({"role": "model", "parts": _listed(text, _some({"functionCall": call}, signed), code)}, {}),
        _some({"role": "model", "parts": _listed(_some({"function_call": call}, signed))}, {}),
        _some(
            {
                "role": st.sampled_from(["user", "function"]),
                "parts": _listed(_some({"functionResponse": response}, {})),
            },
            {},
        ),
        _some({"parts": _listed(text)}, {}),
    )


WIRE: Final[dict[str, st.SearchStrategy[list[Wire]]]] = {
    "anthropic": st.lists(anthropic(), max_size=3),
    "openai_chat": st.lists(chat(), max_size=3),
    "openai_responses": st.lists(responses(), max_size=3),
    "pi": st.lists(pi(), max_size=3),
    "gemini": st.lists(gemini(), max_size=3),
}
"""Message lists of every format."""

# --- canonical ---------------------------------------------------------------


def _texts() -> st.SearchStrategy[Text]:
    return st.builds(Text, text=texts())


def _images() -> st.SearchStrategy[Image]:
    inline = st.builds(Image, media_type=st.just("image/png"), data=_base64())
    return st.one_of(inline, st.builds(Image, url=st.just("https://example.com/a.png")))


def _opaques() -> st.SearchStrategy[Opaque]:
    return st.builds(Opaque, kind=st.sampled_from(["document", "novelty"]), data=json_values())


def _thoughts() -> st.SearchStrategy[Part]:
    signed = st.builds(Thinking, text=texts(), signature=st.none() | _base64())
    return st.one_of(signed, st.builds(RedactedThinking, data=_base64()))


def _calls() -> st.SearchStrategy[ToolCall]:
    return st.builds(ToolCall, id=_ids(), name=_names(), arguments=objects() | texts())


def _results() -> st.SearchStrategy[ToolResult]:
    content: st.SearchStrategy[Sequence[ResultContent]] = st.lists(_texts() | _images() | _opaques(), max_size=3)
    return st.builds(
        ToolResult, call_id=_ids(), content=content.map(tuple), is_error=st.booleans(), name=st.none() | _names()
    )


def _said(role: str, *parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Message]:
    return st.builds(
        Message,
        role=st.just(role),
        parts=st.lists(st.one_of(*parts), max_size=3).map(tuple),
        id=st.none() | _ids(),
        timestamp=st.none() | st.integers(0, 2**41),
        usage=st.none() | st.builds(Usage, input=_COUNTS, output=_COUNTS),
        stop=st.sampled_from([None, "stop", "error", "aborted"]),
    )


def messages() -> st.SearchStrategy[Message]:
    """One canonical message, as no format in particular made it."""
    return st.one_of(
        _said("system", _texts()),
        _said("user", _texts(), _images(), _opaques()),
        _said("assistant", _texts(), _thoughts(), _calls(), _opaques()),
        _said("tool", _results(), _results(), _texts()),
    )


def conversations() -> st.SearchStrategy[list[Message]]:
    """A list of canonical messages in any order, sense or none."""
    return st.lists(messages(), max_size=4)
