"""A provider's reply with a malformed part: the rest is archived, and the conversation continues."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.testing.provider import Events, Raw
from support import patient

from .conftest import OWNER, Start

HEADERS = {"session-id": "s1", **OWNER}
ITEMS: list[dict[str, Any]] = [
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look first."}]},
    {"type": "reasoning", "id": "rs_1", "summary": "no list"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "The port is 5433."}]},
]


@pytest.mark.parametrize("is_stream", [False, True])
def test_one_item_of_a_response(start: Start, *, is_stream: bool) -> None:
    """Its items are archived once. The malformed one, which the provider would refuse, is not sent back."""
    events: list[Any] = [
        (None, {"type": "response.output_item.done", "output_index": index, "item": item})
        for index, item in enumerate(ITEMS)
    ]
    events.append((None, {"type": "response.completed", "response": {"id": "resp_1"}}))
    whole = Raw(200, {"id": "resp_1", "object": "response", "output": ITEMS}, {"content-type": "application/json"})
    question: list[dict[str, Any]] = [{"role": "user", "content": "Which port?"}]
    history = [*question, *ITEMS, {"role": "user", "content": "Why that one?"}]
    with start([Events(events) if is_stream else whole, "By chance."]) as server:
        for given in (question, history):
            body = {"model": "m", "input": given, "stream": is_stream}
            reply = patient.post(f"{server.url}/v1/responses", json=body, headers=HEADERS)
            assert reply.is_success
            assert "x-holdfast-warning" not in reply.headers
        assert server.provider.bodies[1]["input"] == [item for item in history if item is not ITEMS[1]]
        texts = [row.message.text for row in server.engine.session("s1").messages()]
    assert texts == ["Which port?", "I look first.", "", "The port is 5433.", "Why that one?", "By chance."]
