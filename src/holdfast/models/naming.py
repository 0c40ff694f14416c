"""Open a model from its name, or make one of a plain function. Nothing is sent here."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from threading import Event
from typing import Any, Final

from holdfast.calls import Deadline, start_thread
from holdfast.errors import InputError, ModelBusyError, ModelError, ModelRefusedError, SettingsError
from holdfast.messages import Message, Text
from holdfast.models.anthropic import AnthropicModel
from holdfast.models.base import Model, OnText, Prompt, Reply, check_cancelled, check_deadline
from holdfast.models.openai import OpenAIModel, ResponsesModel
from holdfast.models.retry import Fallback, Retrying
from holdfast.models.scripted import Echo, Scripted
from holdfast.providers import render
from holdfast.providers.models import context_tokens
from holdfast.settings import Settings

_CANCEL_POLL_SECONDS: Final = 0.05
_SIMILAR: Final = 0.75
"""How much of a name has to agree with that of a service for it to be suggested: `nope` is not `openai`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An OpenAI-compatible service: its address, and the environment variables with its key and another address."""

    url: str = ""
    keys: tuple[str, ...] = ()
    address: str = ""
    responses: bool = False

    def open(self, name: str, model: str, window: int | None, environ: Mapping[str, str]) -> Model:
        """Open a model of the service."""
        other = environ.get(self.address, "") if self.address else ""
        is_address = not other or other.startswith(("http://", "https://"))
        # Ollama's variable is often only a host and a port.
        url = (other.rstrip("/") if is_address else f"http://{other.rstrip('/')}/v1") or self.url
        if not url:
            raise SettingsError(f"no address: set the environment variable {self.address}", source=name)
        if self.keys and not other:  # a self-hosted server may need no key
            key: str | None = _read_key(name, self.keys, environ)
        else:  # OpenAI's key is sent only if OpenAI's variables configure the address
            key = environ.get("OPENAI_API_KEY") if self.address == "OPENAI_BASE_URL" else None
        kind = ResponsesModel if self.responses else OpenAIModel
        return Retrying(model=kind(model, name=name, api_key=key, base_url=url, context_tokens=window))


_TABLES: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("endpoints.toml").read_text("utf-8"))
ENDPOINTS: Final = {name: Endpoint(**fields) for name, fields in _TABLES["services"].items()}
"""The OpenAI-compatible services, by the word before the slash."""


def open_model(name: str, *, settings: Settings, environ: Mapping[str, str] | None = None) -> Model:
    """Open a model by name, with retries and with the fallback models of the settings.

    A name is `anthropic/NAME`, `openai/NAME`, another service of `ENDPOINTS`, `http://host:port/v1#NAME`,
    `scripted:FILE`, `echo`, or a bare name that begins like a well-known model, such as `claude-opus-5`. If it is
    unknown or a key is missing, a SettingsError says which variable to set.
    """
    variables = os.environ if environ is None else environ
    names = dict.fromkeys((name, *settings.model.fallbacks))
    window = settings.model.context_tokens
    # The configured window is that of the first model; the others have their own.
    models = [_open(one, window if one == name else None, variables) for one in names]
    return models[0] if len(models) == 1 else Fallback(models)


def as_model(given: object, *, settings: Settings) -> Model:
    """Return a model for what a caller passes: a name (see `open_model`), a model, or a plain function."""
    if isinstance(given, str):
        return open_model(given, settings=settings)
    if isinstance(given, Model):
        return given
    if callable(given):
        return FunctionModel(given, context_tokens=context_tokens("", override=settings.model.context_tokens))
    kind = type(given).__name__
    raise InputError(f"model: expected a name, a Model or a function from messages to text, found {kind}")


class FunctionModel:
    """A model that is a plain function of messages.

    The function gets the messages as Chat Completions dicts (`role`, `content`), the system prompt first, and returns
    the text of the reply. An exception counts as a busy provider.
    """

    def __init__(self, function: Callable[[list[dict[str, Any]]], object], *, context_tokens: int) -> None:
        self._function = function
        self.name = str(getattr(function, "__name__", type(function).__name__))
        self.provider = "openai_chat"
        self.context_tokens = context_tokens

    def ask(
        self, prompt: Prompt, *, timeout: float | None = None, cancel: Event | None = None, on_text: OnText = None
    ) -> Reply:
        """Call the function on a thread; see `Model.ask`. After a time-out or cancellation its result is ignored."""
        check_cancelled(cancel, self.name)
        deadline = Deadline.after(timeout)
        messages = [dict(message) for message in render(prompt.messages, "openai_chat")]
        call = start_thread(lambda: self._function(messages), name="holdfast-function")
        while not call.done():
            left = deadline.remaining
            wait([call], timeout=_CANCEL_POLL_SECONDS if left is None else min(_CANCEL_POLL_SECONDS, left))
            check_cancelled(cancel, self.name)
            if not call.done():
                check_deadline(deadline, self.name)
        if (error := call.exception()) is not None:
            ours = ModelBusyError(f"{type(error).__name__}: {error}", model=self.name)
            raise error if isinstance(error, ModelError) else ours
        text = call.result()
        if not isinstance(text, str):
            kind = type(text).__name__
            raise ModelRefusedError(f"the function returned {kind}: return the reply as a str", model=self.name)
        if on_text is not None:
            on_text(text)
        return Reply(message=Message(role="assistant", parts=(Text(text=text),), model=self.name))


def _open(name: str, window: int | None, environ: Mapping[str, str]) -> Model:
    if name == "echo":
        return Echo(context_tokens=context_tokens(name, override=window))
    if name.startswith("scripted:"):
        return Scripted.from_file(name.removeprefix("scripted:"), context_tokens=context_tokens("", override=window))
    if name.startswith(("http://", "https://")):
        url, _, model = name.partition("#")
        if not model:
            raise SettingsError("no model name: write it after the address: http://host:port/v1#NAME", source=name)
        key, url = environ.get("OPENAI_API_KEY"), url.rstrip("/")
        return Retrying(model=OpenAIModel(model, name=name, api_key=key, base_url=url, context_tokens=window))
    service, slash, model = name.partition("/")
    if not slash:
        service, model = _TABLES["prefixes"].get(name.split("-", maxsplit=1)[0].lower(), ""), name
    if service == "anthropic":
        return _open_anthropic(name, model, window, environ)
    if service in ENDPOINTS and model:
        return ENDPOINTS[service].open(name, model, window, environ)
    word = name.partition("/")[0]
    raise SettingsError(
        f"no model is called that: write anthropic/NAME, {'/NAME, '.join(ENDPOINTS)}/NAME, "
        "http://host:port/v1#NAME, scripted:FILE or echo.",
        source=name,
        nearest=[f"{near}/" for near in get_close_matches(word, ["anthropic", *ENDPOINTS], n=1, cutoff=_SIMILAR)],
    )


def _read_key(name: str, variables: Sequence[str], environ: Mapping[str, str]) -> str:
    key = next((environ[variable] for variable in variables if environ.get(variable)), None)
    if key is None:
        raise SettingsError(f"no key: set the environment variable {' or '.join(variables)}", source=name)
    return key


def _open_anthropic(name: str, model: str, window: int | None, environ: Mapping[str, str]) -> Model:
    key = _read_key(name, ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), environ)
    token = None if environ.get("ANTHROPIC_API_KEY") else key
    url = environ.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com"
    own = AnthropicModel(model, api_key=None if token else key, auth_token=token, base_url=url, context_tokens=window)
    return Retrying(model=own)
