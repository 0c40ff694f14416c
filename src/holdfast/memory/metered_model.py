"""A model whose calls for facts are counted, and not made if a limit is reached."""

from __future__ import annotations

from threading import Event

from holdfast.errors import ModelBudgetError, ModelError
from holdfast.memory.memory import Memory
from holdfast.memory.spending import load_spending, save_spending
from holdfast.messages import Usage
from holdfast.models.base import Model, OnText, Prompt, Reply
from holdfast.tokens import count_json, count_message, count_messages


class MeteredModel:
    """A model whose calls are counted, and not made if a limit is reached.

    Attributes:
        limit: Which limit was reached, as a sentence; empty if none was.
    """

    def __init__(self, model: Model, memory: Memory, *, tenant: str, is_limited: bool = True) -> None:
        self.name = model.name
        self.provider = model.provider
        self.context_tokens = model.context_tokens
        self.limit = ""
        self._model = model
        self._memory = memory
        self._tenant = tenant
        self._is_limited = is_limited

    def ask(
        self, prompt: Prompt, *, timeout: float | None = None, cancel: Event | None = None, on_text: OnText = None
    ) -> Reply:
        """Call the model; see `Model.ask`.

        Raises:
            ModelBudgetError: A limit is reached.
        """
        size = count_messages(prompt.messages)
        if prompt.schema is not None:
            size += count_json(prompt.schema)
        reserved = size + prompt.max_tokens
        if self._is_limited:
            now = self._memory.clock()
            spent = load_spending(self._memory.store, self._tenant)
            self.limit = spent.find_limit(self._memory.settings.knowledge, now=now, tokens=reserved)
            if self.limit:
                raise ModelBudgetError(self.limit, model=self.name)
        self._count(calls=1, tokens=reserved)
        try:
            reply = self._model.ask(prompt, timeout=timeout, cancel=cancel, on_text=on_text)
        except ModelError:
            self._count(calls=0, tokens=-reserved)
            raise
        used = _sum(reply.usage) or size + count_message(reply.message)
        self._count(calls=0, tokens=used - reserved)
        return reply

    def _count(self, *, calls: int, tokens: int) -> None:
        store = self._memory.store
        now = self._memory.clock()
        spent = load_spending(store, self._tenant)
        spent = spent.add(now=now, calls=calls, tokens=tokens, is_limited=self._is_limited)
        save_spending(store, self._tenant, spent, time=now)


def _sum(usage: Usage | None) -> int:
    if usage is None:
        return 0
    return usage.input + usage.output + usage.cache_read + usage.cache_write
