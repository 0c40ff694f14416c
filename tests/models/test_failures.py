"""What a provider's answer stands for, from its status, its body and its headers."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from holdfast.errors import ModelBusyError, ModelError, ModelOverflowError, ModelRefusedError
from holdfast.models.client import error_from_response, retry_after
from support.cases import each


def anthropic(kind: str, message: str) -> dict[str, Any]:
    """An error as Anthropic writes it."""
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def openai(message: str, *, code: str | None = None, kind: str = "invalid_request_error") -> dict[str, Any]:
    """An error as OpenAI writes it."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


@each(
    ("status", "body", "kind"),
    [
        (400, anthropic("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), ModelOverflowError),
        (413, anthropic("request_too_large", "Request exceeds the maximum size"), ModelOverflowError),
        (400, openai("Please shorten it.", code="context_length_exceeded"), ModelOverflowError),
        (400, {"error": {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 9}}, ModelOverflowError),
        (400, [{"error": {"message": "The input token count (9) exceeds the maximum"}}], ModelOverflowError),
        (500, {"detail": "the request exceeds the available context size"}, ModelOverflowError),
        (400, b"prompt is too long", ModelOverflowError),
        (400, '{"error": {"message": "prompt is too long"}}', ModelOverflowError),
        (400, None, ModelOverflowError),
        (None, anthropic("invalid_request_error", "prompt is too long"), ModelOverflowError),
        (429, anthropic("rate_limit_error", "too many tokens: prompt is too long"), ModelBusyError),
        (413, openai("tokens per minute (TPM): Limit 6000", code="rate_limit_exceeded"), ModelBusyError),
        (529, anthropic("overloaded_error", "Overloaded"), ModelBusyError),
        (200, anthropic("overloaded_error", "Overloaded"), ModelBusyError),
        (None, openai("The server had an error", kind="server_error"), ModelBusyError),
        (500, "<html>", ModelBusyError),
        (503, "", ModelBusyError),
        (504, "", ModelBusyError),
        (408, "", ModelBusyError),
        (409, "", ModelBusyError),
        (501, "", ModelRefusedError),
        (429, openai("You exceeded your current quota", code="insufficient_quota"), ModelRefusedError),
        (400, anthropic("invalid_request_error", "Your credit balance is too low"), ModelRefusedError),
        (401, anthropic("authentication_error", "invalid x-api-key"), ModelRefusedError),
        (402, "", ModelRefusedError),
        (403, "", ModelRefusedError),
        (404, openai("The model does not exist", code="model_not_found"), ModelRefusedError),
        (413, "a picture is too wide", ModelRefusedError),
        (422, {"detail": [{"msg": "field required"}]}, ModelRefusedError),
        (200, anthropic("invalid_request_error", "messages: empty"), ModelRefusedError),
    ],
)
def test_an_answer_becomes_the_matching_error(status: int | None, body: object, kind: type[ModelError]) -> None:
    """Too long, busy and refused are distinguished, whatever shape the body has; the status goes along."""
    error = error_from_response("m", status=status, body=body)
    assert type(error) is kind, str(error)
    assert (error.model, error.status) == ("m", status)


def test_an_overflow_carries_its_figures() -> None:
    """What the provider told of limit and request is data on the error."""
    error = error_from_response(
        "m", status=400, body={"error": {"type": "exceed_context_size_error", "n_prompt_tokens": 9, "n_ctx": 8}}
    )
    assert isinstance(error, ModelOverflowError)
    assert (error.requested, error.limit) == (9, 8)


def test_an_error_has_the_fix_and_hides_keys() -> None:
    """The message has the status, a hint and the provider's words on one line, without secrets."""
    key = "sk-ant-api03-" + "A1b2C3d4" * 12
    error = error_from_response("anthropic/x", status=401, body=anthropic("authentication_error", f"bad\nkey {key}"))
    assert str(error).startswith("anthropic/x: HTTP 401: the key was refused: check it: authentication_error: bad key")
    assert key not in str(error)
    assert str(error_from_response("m", status=500)).endswith("no message")


def test_a_hostile_body_is_no_trouble() -> None:
    """Bodies that nest, repeat or are enormous give an error like any other."""
    deep: Any = "prompt is too long"
    for _ in range(500):
        deep = {"error": deep}
    assert isinstance(error_from_response("m", status=400, body=deep), ModelOverflowError)  # nothing can be read in it
    assert len(str(error_from_response("m", status=401, body="x" * 1_000_000))) < 1_000
    assert isinstance(error_from_response("m", status=401, body="[" * 100_000), ModelRefusedError)


@each(
    ("headers", "text", "expected"),
    [
        ({"Retry-After": "7"}, "", 7.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, "", 0.25),
        ({"retry-after": "-1"}, "", None),
        ({"retry-after": "soon"}, "", None),
        ({"retry-after": "1e9"}, "", 86_400.0),
        ({"retry-after": format_datetime(datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC), usegmt=True)}, "", 30.0),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:30 -0000"}, "", 30.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, "", 0.0),
        ({}, "Please try again in 1.5s.", 1.5),
        ({}, "try again in 2m3s", 123.0),
        ({}, "Please retry in 120ms", 0.12),
        ({}, '"retryDelay": "33s"', 33.0),
        ({}, "come back later", None),
    ],
)
def test_when_to_come_back_is_read(headers: dict[str, str], text: str, expected: float | None) -> None:
    """The wait is read from the headers, as a number or a date, else from the words."""
    now = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    assert retry_after(headers, text, now=now) == expected


def test_a_busy_error_has_the_time_to_retry() -> None:
    """The wait is data on the error."""
    error = error_from_response("m", status=429, body="", headers={"retry-after": "3"})
    assert isinstance(error, ModelBusyError)
    assert error.retry_after == 3.0
