"""Language models: one protocol, implemented with the vendors' own SDKs, which are imported on first use."""

from holdfast.models.anthropic import AnthropicModel
from holdfast.models.base import Model, Prompt, Reply, Tool
from holdfast.models.naming import open_model
from holdfast.models.openai import OpenAIModel
from holdfast.models.retry import Fallback, Retrying
from holdfast.models.scripted import Echo, Said, Scripted
from holdfast.providers.models import context_tokens

__all__ = [
    "AnthropicModel",
    "Echo",
    "Fallback",
    "Model",
    "OpenAIModel",
    "Prompt",
    "Reply",
    "Retrying",
    "Said",
    "Scripted",
    "Tool",
    "context_tokens",
    "open_model",
]
