"""Language models: one protocol, implemented with the vendors' own SDKs.

Names are imported on first use, so that scripts need no SDK and no event loop.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from holdfast.providers.models import context_tokens

if TYPE_CHECKING:
    from holdfast.models.anthropic import AnthropicModel
    from holdfast.models.base import Model, Prompt, Reply, Tool
    from holdfast.models.naming import FunctionModel, as_model, open_model
    from holdfast.models.openai import OpenAIModel, ResponsesModel
    from holdfast.models.retry import Fallback, Retrying
    from holdfast.models.scripted import Echo, Hang, Said, Scripted

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

_MODULES: Final = {
    "anthropic": ("AnthropicModel",),
    "base": ("Model", "Prompt", "Reply", "Tool"),
    "naming": ("FunctionModel", "as_model", "open_model"),
    "openai": ("OpenAIModel", "ResponsesModel"),
    "retry": ("Fallback", "Retrying"),
    "scripted": ("Echo", "Hang", "Said", "Scripted"),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
