"""Language models: one protocol, implemented with the vendors' own SDKs, which are imported on first use."""

from holdfast.models.anthropic import AnthropicModel
from holdfast.models.base import Model, Prompt, Reply, Tool
from holdfast.models.naming import FunctionModel, as_model, open_model
from holdfast.models.openai import OpenAIModel, ResponsesModel
from holdfast.models.retry import Fallback, Retrying
from holdfast.models.scripted import Echo, Hang, Said, Scripted
from holdfast.providers.models import context_tokens

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
