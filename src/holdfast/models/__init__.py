"""Language models: one protocol, the vendors' own SDKs behind it.

Names are loaded when they are first used: who only writes scripts needs no SDK, and no event loop.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from holdfast.providers.models import context_tokens

if TYPE_CHECKING:
    from holdfast.models.anthropic import AnthropicModel
    from holdfast.models.base import Model, Prompt, Reply, Tool
    from holdfast.models.echo import Echo
    from holdfast.models.function import FunctionModel
    from holdfast.models.naming import as_model, open_model
    from holdfast.models.openai import OpenAIModel
    from holdfast.models.openai_responses import ResponsesModel
    from holdfast.models.retry import Fallback, Retrying
    from holdfast.models.scripted import Scripted
    from holdfast.models.steps import Hang, Said

__all__ = [
    "AnthropicModel",
    "Echo",
    "Fallback",
    "FunctionModel",
    "Hang",
    "Model",
    "OpenAIModel",
    "Prompt",
    "Reply",
    "ResponsesModel",
    "Retrying",
    "Said",
    "Scripted",
    "Tool",
    "as_model",
    "context_tokens",
    "open_model",
]

_HOMES: Final = {
    "anthropic": ("AnthropicModel",),
    "base": ("Model", "Prompt", "Reply", "Tool"),
    "echo": ("Echo",),
    "function": ("FunctionModel",),
    "naming": ("as_model", "open_model"),
    "openai": ("OpenAIModel",),
    "openai_responses": ("ResponsesModel",),
    "retry": ("Fallback", "Retrying"),
    "scripted": ("Scripted",),
    "steps": ("Hang", "Said"),
}
_HOME: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
