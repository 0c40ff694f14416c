"""A long tool loop, as each provider's client writes it: from one plain message to any number of turns.

Every turn asks, thinks, calls one to three tools at once and gets their results; some fail, some show a picture,
and some turns bring an instruction where the format allows one in the middle of a conversation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["TALKS", "Step", "Talk", "word"]

Wire = dict[str, Any]
PIXEL = "iVBORw0KGgo="
PICTURE = f"data:image/png;base64,{PIXEL}"


def word(turn: int, number: int) -> str:
    """A word that stands in one tool result and nowhere else."""
    return f"zq{turn:03d}x{number}k"


@dataclass(frozen=True)
class Step:
    """What one request adds to the conversation, and whether the first of it is a reply of the model."""

    wires: list[Wire]
    replied: int = 0
    """How many of the messages the model wrote."""
    results: dict[str, int] | None = None
    """Each result's own word, and which of the messages holds it."""


@dataclass(frozen=True)
class Turn:
    """What happens in a turn, whatever the format."""

    number: int

    @property
    def calls(self) -> list[str]:
        return [f"call_{self.number:03d}_{index}" for index in range(1 + self.number % 3)]

    @property
    def thinks(self) -> bool:
        return self.number % 2 == 0

    @property
    def shows(self) -> bool:
        return self.number % 11 == 0

    @property
    def instructs(self) -> bool:
        return self.number % 40 == 13

    def fails(self, index: int) -> bool:
        return self.number % 7 == 0 and index == 0

    def question(self) -> str:
        if self.number % 10 == 0:
            return f"What was it that {word(self.number - 9, 0)} found? 找到了什么?"
        return f"step{self.number:03d}: 请继续{self.number:03d}"

    def output(self, index: int) -> str:
        lines = "\n".join(f"line {line} of part {self.number}: ok 正常" for line in range(4 + self.number % 9))
        return f"{word(self.number, index)} found\n{lines}"


class Talk:
    """A conversation in one format."""

    format = ""

    def first(self) -> Wire:
        """The one plain message that it begins with."""
        return {"role": "user", "content": "list"}

    def asked(self, turn: Turn) -> list[Wire]:
        """What the user says."""
        raise NotImplementedError

    def called(self, turn: Turn) -> list[Wire]:
        """The model's calls."""
        raise NotImplementedError

    def answered(self, turn: Turn) -> tuple[list[Wire], list[int]]:
        """The results, and which message holds each."""
        raise NotImplementedError

    def said(self, turn: Turn) -> list[Wire]:
        """The model's last words of the turn."""
        raise NotImplementedError

    def steps(self, turns: int) -> Iterator[Step]:
        """The requests, two a turn: after the question, and after the results."""
        before: list[Wire] = []
        for number in range(1, turns + 1):
            turn = Turn(number)
            asked = [self.first()] if number == 1 else self.asked(turn)
            yield Step([*before, *asked], replied=len(before))
            called = self.called(turn)
            answered, places = self.answered(turn)
            words = {word(number, index): len(called) + place for index, place in enumerate(places)}
            yield Step([*called, *answered], replied=len(called), results=words)
            before = self.said(turn)


class Anthropic(Talk):
    """Anthropic's Messages."""

    format = "anthropic"

    def asked(self, turn: Turn) -> list[Wire]:
        if turn.shows:
            source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
            return [{"role": "user", "content": [{"type": "image", "source": source}, _text(turn.question())]}]
        cached = {**_text(turn.question()), "cache_control": {"type": "ephemeral"}}
        content: Any = [cached] if turn.number % 3 == 0 else turn.question()
        instruction = [{"role": "system", "content": f"Be brief in turn {turn.number}."}] if turn.instructs else []
        return [{"role": "user", "content": content}, *instruction]

    def _thought(self, turn: Turn) -> list[Wire]:
        signed = {"type": "thinking", "thinking": f"I look at part {turn.number}.", "signature": f"Sig{turn.number}="}
        return [signed] if turn.thinks else []

    def called(self, turn: Turn) -> list[Wire]:
        uses = [
            {"type": "tool_use", "id": call, "name": "read", "input": {"part": turn.number, "how": None}}
            for call in turn.calls
        ]
        return [{"role": "assistant", "content": [*self._thought(turn), _text(f"Reading {turn.number}."), *uses]}]

    def answered(self, turn: Turn) -> tuple[list[Wire], list[int]]:
        results: list[Wire] = []
        for index, call in enumerate(turn.calls):
            content: Any = turn.output(index)
            if turn.shows and not turn.fails(index):
                source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
                content = [_text(content), {"type": "image", "source": source}]
            failed = {"is_error": True} if turn.fails(index) else {}
            results.append({"type": "tool_result", "tool_use_id": call, "content": content, **failed})
        return [{"role": "user", "content": results}], [0] * len(results)

    def said(self, turn: Turn) -> list[Wire]:
        return [{"role": "assistant", "content": [*self._thought(turn), _text(f"Part {turn.number} is fine.")]}]


def _text(text: str) -> Wire:
    return {"type": "text", "text": text}


class Chat(Talk):
    """OpenAI's Chat Completions."""

    format = "openai_chat"

    def asked(self, turn: Turn) -> list[Wire]:
        instruction = [{"role": "developer", "content": f"Be brief in turn {turn.number}."}] if turn.instructs else []
        content: Any = turn.question()
        if turn.shows:
            content = [_text(content), {"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}}]
        return [*instruction, {"role": "user", "content": content}]

    def called(self, turn: Turn) -> list[Wire]:
        thought = {"reasoning_content": f"I look at part {turn.number}."} if turn.thinks else {}
        calls = [
            {"id": call, "type": "function", "function": {"name": "read", "arguments": f'{{ "part": {turn.number} }}'}}
            for call in turn.calls
        ]
        return [{"role": "assistant", "content": None, **thought, "tool_calls": calls}]

    def answered(self, turn: Turn) -> tuple[list[Wire], list[int]]:
        texts = [f"{'Error: ' * turn.fails(index)}{turn.output(index)}" for index in range(len(turn.calls))]
        results = [
            {"role": "tool", "tool_call_id": call, "content": text}
            for call, text in zip(turn.calls, texts, strict=True)
        ]
        return results, list(range(len(results)))

    def said(self, turn: Turn) -> list[Wire]:
        return [{"role": "assistant", "content": f"Part {turn.number} is fine.", "refusal": None}]


class Responses(Talk):
    """OpenAI's Responses."""

    format = "openai_responses"

    def asked(self, turn: Turn) -> list[Wire]:
        instruction = [{"role": "developer", "content": f"Be brief in turn {turn.number}."}] if turn.instructs else []
        content: Any = turn.question()
        if turn.shows:
            content = [{"type": "input_text", "text": content}, {"type": "input_image", "image_url": PICTURE}]
        return [*instruction, {"role": "user", "content": content}]

    def _reasoned(self, turn: Turn, step: str) -> list[Wire]:
        summary = [{"type": "summary_text", "text": f"Look at part {turn.number}."}] if turn.number % 4 == 0 else []
        sealed = {"encrypted_content": f"gAAA{step}{turn.number}"}
        item = {"type": "reasoning", "id": f"rs_{turn.number}{step}", "summary": summary, **sealed}
        return [item] if turn.thinks else []

    def called(self, turn: Turn) -> list[Wire]:
        calls = [
            {
                "type": "function_call",
                "id": f"fc_{call}",
                "call_id": call,
                "name": "read",
                "arguments": json.dumps({"part": turn.number}),
                "status": "completed",
            }
            for call in turn.calls
        ]
        return [*self._reasoned(turn, "a"), *calls]

    def answered(self, turn: Turn) -> tuple[list[Wire], list[int]]:
        results: list[Wire] = []
        for index, call in enumerate(turn.calls):
            output: Any = turn.output(index)
            if turn.shows:
                output = [{"type": "input_text", "text": output}, {"type": "input_image", "image_url": PICTURE}]
            results.append({"type": "function_call_output", "call_id": call, "output": output})
        return results, list(range(len(results)))

    def said(self, turn: Turn) -> list[Wire]:
        text = {"type": "output_text", "text": f"Part {turn.number} is fine.", "annotations": []}
        message = {"type": "message", "id": f"msg_{turn.number}", "role": "assistant", "content": [text]}
        return [*self._reasoned(turn, "b"), {**message, "status": "completed"}]


class Pi(Talk):
    """pi and OpenClaw."""

    format = "pi"

    def asked(self, turn: Turn) -> list[Wire]:
        picture = [{"type": "image", "data": PIXEL, "mimeType": "image/png"}] if turn.shows else []
        time = 1_770_000_000_000 + turn.number
        return [{"role": "user", "content": [_text(turn.question()), *picture], "timestamp": time}]

    def _reply(self, turn: Turn, content: list[Wire], stop: str) -> list[Wire]:
        thinking = {"type": "thinking", "thinking": f"Part {turn.number}?", "thinkingSignature": f"S{turn.number}"}
        usage = {"input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 15}
        made = {"api": "anthropic-messages", "provider": "anthropic", "model": "m", "usage": usage, "stopReason": stop}
        return [{"role": "assistant", "content": [*([thinking] if turn.thinks else []), *content], **made}]

    def called(self, turn: Turn) -> list[Wire]:
        calls = [
            {"type": "toolCall", "id": call, "name": "read", "arguments": {"part": turn.number}} for call in turn.calls
        ]
        return self._reply(turn, calls, "toolUse")

    def answered(self, turn: Turn) -> tuple[list[Wire], list[int]]:
        picture = [{"type": "image", "data": PIXEL, "mimeType": "image/png"}] if turn.shows else []
        results = [
            {
                "role": "toolResult",
                "toolCallId": call,
                "toolName": "read",
                "content": [_text(turn.output(index)), *picture],
                "details": {"lines": 4},
                "isError": turn.fails(index),
                "timestamp": 1_770_000_100_000 + turn.number,
            }
            for index, call in enumerate(turn.calls)
        ]
        return results, list(range(len(results)))

    def said(self, turn: Turn) -> list[Wire]:
        return self._reply(turn, [_text(f"Part {turn.number} is fine.")], "stop")


class Gemini(Talk):
    """Gemini's contents. Every other turn has calls without ids, matched by name and order."""

    format = "gemini"

    def first(self) -> Wire:
        return {"role": "user", "parts": [{"text": "list"}]}

    def asked(self, turn: Turn) -> list[Wire]:
        picture = [{"inlineData": {"mimeType": "image/png", "data": PIXEL}}] if turn.shows else []
        return [{"role": "user", "parts": [{"text": turn.question()}, *picture]}]

    def _id(self, turn: Turn, call: str) -> Wire:
        return {"id": call} if turn.thinks else {}

    def called(self, turn: Turn) -> list[Wire]:
        thought = [{"text": f"Part {turn.number}?", "thought": True}] if turn.thinks else []
        calls: list[Wire] = [
            {"functionCall": {**self._id(turn, call), "name": "read", "args": {"part": turn.number}}}
            for call in turn.calls
        ]
        calls[0]["thoughtSignature"] = f"Sig{turn.number}"
        return [{"role": "model", "parts": [*thought, *calls]}]

    def answered(self, turn: Turn) -> tuple[list[Wire], list[int]]:
        parts: list[Wire] = []
        for index, call in enumerate(turn.calls):
            key = "error" if turn.fails(index) else "output"
            response: Wire = {key: turn.output(index)}
            if turn.number % 5 == 0:
                response = {"stdout": turn.output(index), "code": 0}
            parts.append({"functionResponse": {**self._id(turn, call), "name": "read", "response": response}})
        role = "function" if turn.number % 3 == 0 else "user"
        return [{"role": role, "parts": parts}], [0] * len(parts)

    def said(self, turn: Turn) -> list[Wire]:
        signed = [{"text": "", "thoughtSignature": f"End{turn.number}"}] if turn.thinks else []
        return [{"role": "model", "parts": [{"text": f"Part {turn.number} is fine."}, *signed]}]


TALKS = {talk.format: talk for talk in (Anthropic(), Chat(), Responses(), Pi(), Gemini())}
