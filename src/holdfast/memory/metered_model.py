"""A model whose requests for facts are counted, and not made if a limit is reached."""

from __future__ import annotations

from threading import Event

from holdfast.errors import ModelBudgetError, ModelError
from holdfast.memory.extract import find_window
from holdfast.memory.memory import Memory
from holdfast.memory.spending import find_call_tokens, load_spending, save_spending
from holdfast.messages import Usage
from holdfast.models.base import Model, OnText, Prompt, Reply
from holdfast.models.retry import split_requests
from holdfast.tokens import count_json, count_message, count_messages


class MeteredModel:
    """A model whose requests are counted, and not made if a limit is reached.

    Its window is so small that no call takes more than the limits allow. With limits it does not retry by itself after
    a failure: each attempt would be a request that is not counted, and the job is tried again anyway.

    Attributes:
        limit: Which limit was reached, as a sentence; empty if none was.
    """

    def __init__(self, model: Model, memory: Memory, *, tenant: str, is_limited: bool = True) -> None:
        self.name = model.name
        self.provider = model.provider
        self.context_tokens = model.context_tokens
        self.limit = ""
        self._memory = memory
        self._tenant = tenant
        self._is_limited = is_limited
        self._model: Model = _Request(model, self)
        if is_limited:
            self._model = split_requests(model, lambda one: _Request(one, self))
            if memory.settings.knowledge.max_tokens_per_day:
                longest = find_window(find_call_tokens(memory.settings.knowledge))
                self.context_tokens = min(model.context_tokens, longest)

    def ask(
        self, prompt: Prompt, *, timeout: float | None = None, cancel: Event | None = None, on_text: OnText = None
    ) -> Reply:
        """Call the model; see `Model.ask`.

        Raises:
            ModelBudgetError: A limit is reached.
        """
        return self._model.ask(prompt, timeout=timeout, cancel=cancel, on_text=on_text)

    def check_limit(self) -> None:
        """Raise a ModelBudgetError if a limit is reached."""
        if not self._is_limited:
            return
        spent = load_spending(self._memory.store, self._tenant)
        self.limit = spent.find_limit(self._memory.settings.knowledge, now=self._memory.clock())
        if self.limit:
            raise ModelBudgetError(self.limit, model=self.name)

    def count(self, *, calls: int, tokens: int) -> None:
        """Add to what was spent."""
        store = self._memory.store
        now = self._memory.clock()
        spent = load_spending(store, self._tenant)
        spent = spent.add(now=now, calls=calls, tokens=tokens, is_limited=self._is_limited)
        save_spending(store, self._tenant, spent, time=now)


class _Request:
    """A model that makes one request for each call, which is counted before it is made."""

    def __init__(self, model: Model, meter: MeteredModel) -> None:
        self.name = model.name
        self.provider = model.provider
        self.context_tokens = model.context_tokens
        self._model = model
        self._meter = meter

    def ask(
        self, prompt: Prompt, *, timeout: float | None = None, cancel: Event | None = None, on_text: OnText = None
    ) -> Reply:
        """Make the request; see `MeteredModel.ask`."""
        self._meter.check_limit()
        size = count_messages(prompt.messages)
        if prompt.schema is not None:
            size += count_json(prompt.schema)
        reserved = size + prompt.max_tokens
        self._meter.count(calls=1, tokens=reserved)
        try:
            reply = self._model.ask(prompt, timeout=timeout, cancel=cancel, on_text=on_text)
        except ModelError:
            self._meter.count(calls=0, tokens=-reserved)
            raise
        used = _sum(reply.usage) or size + count_message(reply.message)
        self._meter.count(calls=0, tokens=used - reserved)
        return reply


def _sum(usage: Usage | None) -> int:
    if usage is None:
        return 0
    return usage.input + usage.output + usage.cache_read + usage.cache_write
