"""Language models: one protocol, implemented with the vendors' own SDKs, which are imported on first use."""

from holdfast.models.anthropic import AnthropicModel as AnthropicModel
from holdfast.models.base import Model as Model
from holdfast.models.base import Prompt as Prompt
from holdfast.models.base import Reply as Reply
from holdfast.models.base import Tool as Tool
from holdfast.models.naming import open_model as open_model
from holdfast.models.openai import OpenAIModel as OpenAIModel
from holdfast.models.retry import Fallback as Fallback
from holdfast.models.retry import Retrying as Retrying
from holdfast.models.scripted import Echo as Echo
from holdfast.models.scripted import Scripted as Scripted
from holdfast.models.scripted import ScriptedReply as ScriptedReply
from holdfast.providers.models import context_tokens as context_tokens
