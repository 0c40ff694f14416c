"""Overflow is recognised by every provider's words, and by nothing else."""

from __future__ import annotations

import pytest

from holdfast.messages import Usage
from holdfast.providers.overflow import Numbers, is_overflow, is_silent_overflow, numbers
from support.cases import each

OVERFLOWS = [
    # Anthropic
    "prompt is too long: 213462 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000, decrease input length or `max_tokens`",
    "request_too_large: Request exceeds the maximum size",
    "Prompt too long",
    # Bedrock
    "ValidationException: Input is too long for requested model.",
    # OpenAI
    "context_length_exceeded: Your input exceeds the context window of this model. Please adjust your input.",
    "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
    "The context window ran out of room",
    # Gemini
    "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "INVALID_ARGUMENT: the request has more than the maximum number of tokens",
    # xAI, Groq, OpenRouter, Copilot
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens",
    "Please reduce the length of the messages or completion.",
    "This endpoint's maximum context length is 262144 tokens. However, you requested about 300000 tokens (text input).",
    "prompt token count of 140000 exceeds the limit of 128000",
    # llama.cpp, LM Studio, vLLM, TGI
    "the request exceeds the available context size, try increasing it",
    "exceed_context_size_error: request (9000 tokens) exceeds the available context size (8192 tokens)",
    "tokens to keep from the initial prompt is greater than the context length",
    "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 100 `max_new_tokens`",
    # MiniMax, Kimi, Mistral, Qwen, z.ai, Cohere
    "invalid params, context window exceeds limit",
    "Your request exceeded model token limit: 262144 (requested: 280000)",
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "Range of input length should be [1, 30720]",
    "model_context_window_exceeded",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081",
    "token limit exceeded",
    # further wordings of the same providers
    "ValidationException: The model returned the following errors: Input is too long for model anthropic.claude-v9",
    "Bedrock: 400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: 9279",
    "Malformed input request: expected maxLength: 50000, actual: 52611, please reformat your input and try again.",
    "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input.",
    "Prompt contains 300000 tokens, too large for model with 131072 maximum context length",
    "The number of tokens in the prompt exceeds the model's maximum context length of 32768.",
    "too many tokens: total number of tokens in the prompt cannot exceed 128000 - received 131000",
    "too many tokens: size limit exceeded by 11326 tokens. Try using shorter or fewer inputs.",
    "size limit exceeded by 300 tokens. Try using shorter or fewer inputs.",
    "Context size has been exceeded.",
    "input is too large to process. increase the physical batch size (current batch size: 512)",
    "Prompt has 300,000 tokens, but the configured context size is 131,072 tokens",
    "prompt too long; exceeded max context length by 4096 tokens",
    "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
    "`inputs` must have less than 4096 tokens. Given: 5000",
    "Prompt exceeds max length",
    "tokens in request more than max tokens allowed",
    "prompt length (9000) exceeds maximum input length (8192)",
    "Total tokens of image and text exceed max message tokens",
    '{"type":"error","error":{"type":"request_too_large"}}',
    "{'error': {'code': 'context_length_exceeded', 'param': 'messages'}}",
    # frameworks and proxies in between
    "context_window_exceeded",
    "Context length exceeded",
    "The request exceeds model context window",
    "model token limit reached",
    "Request size exceeds the model's context window",
    "Context overflow: prompt too large for the model",
    "would exceed context limit",
    "exceeds the model's maximum context",
    "max_tokens would exceed the context",
    "413 Request Entity Too Large",
    "413 status code (no body)",
    "400 (no body)",
    'litellm: AnthropicException - {"type":"error","error":{"message":"prompt is too long: 208310 tokens > 200000"}}',
    # Chinese
    "上下文过长,请减少输入",
    "错误:上下文超出限制",
    "上下文长度超过了模型的最大值",
    "超出最大上下文",
    "请压缩上下文后重试",
]

OTHERS = [
    # rate limits, quotas and bills that speak of tokens
    "Request too large for model `llama-3.3-70b` on tokens per minute (TPM): Limit 12000, Requested 13000",
    "Rate limit reached: too many tokens. Please try again in 20s.",
    "Too many tokens per day, please wait before trying again.",
    "ThrottlingException: Too many tokens, please wait before trying again.",
    "You exceeded your current quota, please check your plan and billing details. Token limit exceeded.",
    "Your credit balance is too low to use the maximum context length of 200000 tokens",
    "Too many requests: prompt is too long for your tier",
    # a model that is too small for its host, or has to think
    "Model context window too small (4096 tokens). Minimum is 16000.",
    "context window of 8000 is too small, the minimum is 16000: exceeds the context window",
    "Reasoning is mandatory for this endpoint and cannot be disabled.",
    # other limits
    "messages.0.content: number of images exceeds the limit of 20",
    "max_tokens: 9000 exceeds the limit of 8192",
    "max_tokens is too large: 9000. This model supports at most 4096 completion tokens.",
    # somebody quotes the words
    """messages.3.content: Invalid value: 'why do I get "prompt is too long" here?'""",
    'tool_use ids without tool_result blocks: "context_length_exceeded", "maximum context length is 9"',
    "Unsupported content: “prompt is too long” is no image",
    "无效参数:「上下文过长」",
    "Unknown tool `token limit exceeded`",
    # limits of something else
    "vision tokens exceed processor budget (media_budget_exceeded)",
    "Invalid 'input': array too long. Expected an array with maximum length 2048, but got one of length 3000.",
    "tools.0.name: String should have at most 64 characters",
    "tools.0.description exceeds maximum length of 1024",
    "Too many images in request. The maximum is 20.",
    "max_tokens must be less than or equal to 4096, the maximum number of tokens to generate",
    "This request would exceed your organization's rate limit of 40,000 input tokens per minute",
    "Throttling error: Too many tokens, please wait before trying again.",
    "Service unavailable: too many tokens in the queue of this model",
    "The audio is too long for model whisper-1: 30 minutes",
    "{'error': {'type': 'invalid_request_error', 'param': 'request_too_large', 'message': 'unknown parameter'}}",
    # nothing of the kind
    "Incorrect API key provided",
    "Internal server error",
    "the prompt is empty",
]


@each("text", OVERFLOWS)
def test_every_wording_of_an_overflow_is_known(text: str) -> None:
    """Each provider's way to say that the request is too long is recognised, in any case."""
    assert is_overflow(text, status=400)
    assert is_overflow(text.upper())


@each("text", OTHERS)
def test_nothing_else_is_an_overflow(text: str) -> None:
    """Rate limits, other limits and mere quotations are no overflow, though they use the same words."""
    assert not is_overflow(text, status=400)


@each("status", [401, 402, 403, 404, 408, 409, 429, 503, 529])
def test_a_status_about_something_else_counts_more_than_words(status: int) -> None:
    """Where the status says that it is about something else, no word makes an overflow of it."""
    assert not is_overflow("prompt is too long: 9 tokens > 8 maximum", status=status)


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (400, "", True),
        (413, " ", True),
        (413, "<h1>Payload Too Large</h1>", True),
        (413, "no", False),
        (500, "", False),
    ],
)
def test_some_providers_overflow_without_a_message(status: int, text: str, expected: bool) -> None:  # noqa: FBT001 - a table
    """A 400 or 413 without a body is an overflow, and so is a 413 that says too large."""
    assert is_overflow(text, status=status) is expected


def test_a_long_error_is_read_in_linear_time() -> None:
    """Megabytes of quotes and brackets cost no more than their beginning."""
    for text in ("'" * 2_000_000, '"message": "' * 200_000, "input length " * 200_000, "1" * 1_000_000):
        assert not is_overflow(text)
        assert numbers(text).limit is None


@each(
    ("text", "requested", "limit"),
    [
        ("prompt is too long: 213,462 tokens > 200,000 maximum", 213_462, 200_000),
        ("exceed context limit: 199000 + 8192 > 200000", 207_192, 200_000),
        ("maximum context length is 8192 tokens, you requested 9000", 9_000, 8_192),
        (
            "maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
            130_000,
            128_000,
        ),
        (
            "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
            1_196_265,
            1_048_575,
        ),
        ("prompt token count of 140000 exceeds the limit of 128000", 140_000, 128_000),
        ("maximum prompt length is 131072 but the request contains 537812 tokens", 537_812, 131_072),
        ("request (9000 tokens) exceeds the available context size (8192 tokens)", 9_000, 8_192),
        ("exceeded model token limit: 262144 (requested: 280000)", 280_000, 262_144),
        ("Prompt contains 40000 tokens, too large for model with 32768 maximum context length", 40_000, 32_768),
        ("decoder prompt (length 9000) is longer than the maximum model length of 8192", 9_000, 8_192),
        ("exceed_context_size_error: n_prompt_tokens=9000: n_ctx=8192", 9_000, 8_192),
        ("must be <= 4096. Given: 5000 `inputs` tokens", 5_000, 4_096),
        ("Range of input length should be [1, 30720]", None, 30_720),
        ("too many tokens: the prompt cannot exceed 4081", None, 4_081),
        ("the request is too long", None, None),
    ],
)
def test_figures_are_read(text: str, requested: int | None, limit: int | None) -> None:
    """The figures that a provider tells are read from its words."""
    assert numbers(text) == Numbers(limit=limit, requested=requested)


def test_a_silent_overflow_is_seen_in_the_usage() -> None:
    """A provider that took more than the window holds has left something out, and did not say so."""
    assert is_silent_overflow(Usage(input=150, cache_read=60, output=1), context_tokens=200)
    assert not is_silent_overflow(Usage(input=150, output=100), context_tokens=200)
    assert not is_silent_overflow(None, context_tokens=200)
