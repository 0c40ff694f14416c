"""Language models: one protocol, implemented with the vendors' own SDKs, which are imported on first use."""

from holdfast.models.base import Model, Prompt
from holdfast.models.naming import open_model
from holdfast.models.retry import Fallback, Retrying
from holdfast.models.scripted import Echo, Said, Scripted
from holdfast.providers.models import context_tokens

__all__ = ["Echo", "Fallback", "Model", "Prompt", "Retrying", "Said", "Scripted", "context_tokens", "open_model"]
