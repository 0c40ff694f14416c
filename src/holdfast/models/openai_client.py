"""What both of OpenAI's interfaces share: its SDK, an address, and its errors."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import MissingExtraError
from holdfast.models.vendor import Draft, Vendor, plain, tls
from holdfast.providers.wire import Json, kind_of

if TYPE_CHECKING:
    import openai

__all__ = ["OWN_URL", "connected", "is_strict"]

OWN_URL: Final = "https://api.openai.com/v1"
"""Where OpenAI itself lives."""
_FAILED: Final = frozenset({"error", "response.failed"})


def connected(
    name: str,
    *,
    create: Callable[[openai.AsyncOpenAI, dict[str, Any]], Awaitable[Any]],
    draft: Callable[[], Draft],
    optional: Mapping[str, re.Pattern[str]],
    api_key: str | None,
    base_url: str | None,
) -> Vendor:
    """OpenAI's SDK, ready to send bodies to an address.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        import openai  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtraError("a model of OpenAI or of a local server", extra="openai") from None

    async def events(body: Json, seconds: float | None) -> AsyncIterator[Any]:
        # A fresh client for each call: a pool of connections belongs to one event loop, and so to one call.
        client = openai.AsyncOpenAI(
            api_key=api_key or "none",
            base_url=base_url or OWN_URL,
            max_retries=0,
            timeout=openai.DEFAULT_TIMEOUT if seconds is None else seconds,
            http_client=openai.DefaultAsyncHttpx2Client(verify=tls()),
        )
        async with client, await create(client, dict(body)) as stream:
            async for event in stream:
                data = plain(event)
                if isinstance(data, Mapping) and kind_of(data) in _FAILED:
                    raise openai.APIError("the response failed", stream.response.request, body=_error(data))
                yield data

    return Vendor(
        model=name,
        events=events,
        draft=draft,
        timeouts=(openai.APITimeoutError,),
        broken=(openai.APIConnectionError,),
        refusals=(openai.OpenAIError,),
        optional=optional,
    )


def _error(event: Json) -> Any:
    """What is said in an event that ends a response early; its type is that of the event, not of the error."""
    response = event.get("response")
    if isinstance(response, Mapping):
        return response.get("error")
    return {key: event.get(key) for key in ("code", "message")}


def is_strict(schema: Any) -> bool:
    """Tell whether a schema keeps OpenAI's rules for a promise: objects are closed, and every field is required."""
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, Mapping):
        return True
    fields = schema.get("properties")
    closed = not isinstance(fields, Mapping) or (
        schema.get("additionalProperties") is False and set(schema.get("required", ())) == set(fields)
    )
    return closed and all(map(is_strict, schema.values()))
