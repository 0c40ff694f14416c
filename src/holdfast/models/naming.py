"""From a model's name to the model: who it is, where it lives, which key it needs. Nothing is sent here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final

from holdfast.errors import InputError, SettingsError
from holdfast.models.base import Model
from holdfast.models.echo import Echo
from holdfast.models.function import FunctionModel
from holdfast.models.retry import Fallback, Retrying
from holdfast.models.scripted import Scripted
from holdfast.providers.models import context_tokens
from holdfast.settings import Settings

__all__ = ["ENDPOINTS", "Endpoint", "as_model", "open_model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where an OpenAI-compatible service lives.

    Attributes:
        url: Its usual address; empty where it has none.
        keys: The environment variables that may hold its key; empty where none is needed.
        address: The environment variable that names another address.
        responses: Whether it is spoken to by Responses, not by Chat Completions.
    """

    url: str = ""
    keys: tuple[str, ...] = ()
    address: str = ""
    responses: bool = False


_OPENAI: Final = Endpoint(url="https://api.openai.com/v1", keys=("OPENAI_API_KEY",), address="OPENAI_BASE_URL")

ENDPOINTS: Final = {
    "openai": _OPENAI,
    "openai-responses": replace(_OPENAI, responses=True),
    "compatible": Endpoint(address="OPENAI_BASE_URL"),
    "ollama": Endpoint(url="http://localhost:11434/v1", address="OLLAMA_HOST"),
    "llamacpp": Endpoint(url="http://localhost:8080/v1"),
    "lmstudio": Endpoint(url="http://localhost:1234/v1"),
    "vllm": Endpoint(url="http://localhost:8000/v1"),
    "deepseek": Endpoint(url="https://api.deepseek.com/v1", keys=("DEEPSEEK_API_KEY",)),
    "gemini": Endpoint(
        url="https://generativelanguage.googleapis.com/v1beta/openai", keys=("GEMINI_API_KEY", "GOOGLE_API_KEY")
    ),
    "groq": Endpoint(url="https://api.groq.com/openai/v1", keys=("GROQ_API_KEY",)),
    "mistral": Endpoint(url="https://api.mistral.ai/v1", keys=("MISTRAL_API_KEY",)),
    "moonshot": Endpoint(url="https://api.moonshot.ai/v1", keys=("MOONSHOT_API_KEY",)),
    "openrouter": Endpoint(url="https://openrouter.ai/api/v1", keys=("OPENROUTER_API_KEY",)),
    "xai": Endpoint(url="https://api.x.ai/v1", keys=("XAI_API_KEY",)),
    "zai": Endpoint(url="https://api.z.ai/api/paas/v4", keys=("ZAI_API_KEY",)),
}
"""The services that speak as OpenAI does, by the word before the slash."""

_BARE: Final = {
    "claude": "anthropic",
    "gpt": "openai",
    "chatgpt": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "gemini": "gemini",
}
_ANTHROPIC_KEYS: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


def open_model(name: str, *, settings: Settings, environ: Mapping[str, str] | None = None) -> Model:
    """The model of this name, with retries, and with the fallback models of the settings behind it.

    Args:
        name: `anthropic/NAME`, `openai/NAME`, another service of `ENDPOINTS`, `http://host:port/v1#NAME`,
            `scripted:FILE`, `echo`, or a bare name of which everybody knows whose it is.
        settings: `agent.context_tokens` and `agent.fallback_models` count.
        environ: The environment variables; unset, those of the process.

    Raises:
        SettingsError: Nobody is called that, or the key is missing; the message says which variable to set.
        MissingExtraError: The SDK is not installed; the message is the line that installs it.
        InputError: The script cannot be read.
    """
    variables = os.environ if environ is None else environ
    names = dict.fromkeys((name, *settings.agent.fallback_models))
    window = settings.agent.context_tokens
    # What was said of the window is about the first one; the others have their own.
    models = [_opened(one, window if one == name else None, variables) for one in names]
    return models[0] if len(models) == 1 else Fallback(models)


def as_model(given: object, *, settings: Settings) -> Model:
    """Return a model for what a caller hands in: a name, a model, or a plain function.

    Raises:
        InputError: It is none of these; see `open_model` for names.
    """
    if isinstance(given, str):
        return open_model(given, settings=settings)
    if isinstance(given, Model):
        return given
    if callable(given):
        return FunctionModel(given, context_tokens=context_tokens("", override=settings.agent.context_tokens))
    kind = type(given).__name__
    raise InputError(f"model: expected a name, a Model or a function from messages to text, found {kind}")


def _opened(name: str, window: int | None, environ: Mapping[str, str]) -> Model:
    if name == "echo":
        return Echo(context_tokens=context_tokens(name, override=window))
    if name.startswith("scripted:"):
        return Scripted.from_file(name.removeprefix("scripted:"), context_tokens=context_tokens("", override=window))
    if name.startswith(("http://", "https://")):
        return _at_url(name, window, environ)
    service, slash, model = name.partition("/")
    if not slash:
        service, model = _known(name), name
    if service == "anthropic":
        return _anthropic(name, model, window, environ)
    if service not in ENDPOINTS or not model:
        raise _unknown(name)
    return _compatible(name, model, ENDPOINTS[service], window, environ)


def _known(name: str) -> str:
    """Whose model a bare name is."""
    words = name.split("-", maxsplit=1)[0].lower()
    if words not in _BARE:
        raise _unknown(name)
    return _BARE[words]


def _unknown(name: str) -> SettingsError:
    services = ["anthropic", *ENDPOINTS]
    return SettingsError(
        f"no model is called that: write anthropic/NAME, {', '.join(f'{one}/NAME' for one in ENDPOINTS)}, "
        "http://host:port/v1#NAME, scripted:FILE or echo.",
        source=name,
        nearest=[f"{near}/" for near in get_close_matches(name.partition("/")[0], services, n=1)],
    )


def _key(name: str, keys: tuple[str, ...], environ: Mapping[str, str]) -> str:
    found = next((environ[key] for key in keys if environ.get(key)), None)
    if found is None:
        raise SettingsError(f"no key: set the environment variable {' or '.join(keys)}", source=name)
    return found


def _anthropic(name: str, model: str, window: int | None, environ: Mapping[str, str]) -> Model:
    from holdfast.models.anthropic import AnthropicModel  # noqa: PLC0415 - asyncio is not for everybody

    key = _key(name, _ANTHROPIC_KEYS, environ)
    is_token = not environ.get("ANTHROPIC_API_KEY")
    return Retrying(
        model=AnthropicModel(
            model,
            api_key=None if is_token else key,
            auth_token=key if is_token else None,
            base_url=environ.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com",
            context_tokens=window,
        )
    )


def _compatible(name: str, model: str, endpoint: Endpoint, window: int | None, environ: Mapping[str, str]) -> Model:
    from holdfast.models.openai import OpenAIModel  # noqa: PLC0415 - asyncio is not for everybody
    from holdfast.models.openai_responses import ResponsesModel  # noqa: PLC0415 - as above

    other = environ.get(endpoint.address, "") if endpoint.address else ""
    url = _address(other) or endpoint.url
    if not url:
        raise SettingsError(f"no address: set the environment variable {endpoint.address}", source=name)
    if endpoint.keys and not other:  # a server of one's own may need none
        key: str | None = _key(name, endpoint.keys, environ)
    else:  # OpenAI's key is for OpenAI's variables: no other service is shown it
        key = environ.get("OPENAI_API_KEY") if endpoint.address == _OPENAI.address else None
    kind = ResponsesModel if endpoint.responses else OpenAIModel
    return Retrying(model=kind(model, name=name, api_key=key, base_url=url, context_tokens=window))


def _address(value: str) -> str:
    """An address as a base URL: Ollama's variable is often a host and a port only."""
    if not value or value.startswith(("http://", "https://")):
        return value.rstrip("/")
    return f"http://{value.rstrip('/')}/v1"


def _at_url(name: str, window: int | None, environ: Mapping[str, str]) -> Model:
    from holdfast.models.openai import OpenAIModel  # noqa: PLC0415 - asyncio is not for everybody

    url, _, model = name.partition("#")
    if not model:
        raise SettingsError(
            "which model? write its name behind the address, as in http://host:port/v1#NAME", source=name
        )
    key = environ.get("OPENAI_API_KEY")
    return Retrying(model=OpenAIModel(model, name=name, api_key=key, base_url=url.rstrip("/"), context_tokens=window))
