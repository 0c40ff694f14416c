"""The life of a turn: heard, assembled, asked, tools run, written down; and, when the window is full, compacted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.agent.entry import SessionEntry
from holdfast.agent.talk import Talk
from holdfast.compaction import flush
from holdfast.compaction.digest import make_digest
from holdfast.compaction.sections import wrap_summary
from holdfast.compaction.tool_calls import find_activity
from holdfast.errors import ModelCancelledError, ModelOverflowError
from holdfast.messages import Message, Text, Usage
from holdfast.models.base import Reply
from holdfast.models.prices import cost
from holdfast.models.retry import RESTART_NOTICE
from holdfast.recovery import Answer, Ask, ask
from holdfast.store.base import FactRow
from holdfast.tokens import count_text
from holdfast.window import Window

__all__ = ["Agent", "Turn"]

_MOST_STEPS: Final = 100
"""How often a model may call tools before the user is asked again."""
_LONGEST_REPLY: Final = 8_192
_LONGEST_DIGEST: Final = 4_000
_TIMEOUT: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What came of what the user said.

    Attributes:
        text: What the agent answered, without what was not meant to be seen.
        steps: How often the model was asked.
        usage: What the provider counted, all steps together.
        window: What the model saw last.
        compactions: How often history was compacted on the way.
        interrupted: Whether it was broken off.
    """

    text: str = ""
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    window: Window | None = None
    compactions: int = 0
    interrupted: bool = False


@dataclass(slots=True, kw_only=True)
class Agent(Talk):
    """A conversation that goes on."""

    _spoken: int = 0
    _told: str = ""

    def say(self, text: str, *, heartbeat: bool = False) -> Turn:
        """Say something, and wait for the answer.

        Raises:
            ModelError: The model gave no answer. What was said stays said; saying more goes on from there.
        """
        try:
            return self._said(text, heartbeat=heartbeat)
        finally:
            self.cancel.clear()  # not at the start: that would lose a Ctrl-C that comes just before it

    def _said(self, text: str, *, heartbeat: bool) -> Turn:
        before = self.renew()
        self._record_input(text, heartbeat=heartbeat)  # before anything that asks a model, or takes time
        try:
            if before is not None:
                self.end(before)
            self._system = self.system()
            self.make_room(coming=count_text(text), heartbeat=heartbeat)
            turn = self._answered()
        finally:
            self.show_hook_failures()
            self._system = None
            if self._spoken:  # nobody answered
                self.update(self._noted)
        if not heartbeat:
            with self.memory_may_fail():
                self.memories.capture([text])
        if self.notes is not None:
            self.notes.poll()
        return replace(turn, text=flush.strip_silence(turn.text))

    def _record_input(self, text: str, *, heartbeat: bool) -> None:
        """Write what was said to the transcript and the archive.

        When it was is noted with the answer, in one write; heartbeats do not count.
        """
        self.keep(Message(role="user", parts=(Text(text=text),)))
        self._spoken = 0 if heartbeat else self.sessions.clock()
        with self.memory_may_fail():
            self.engine.session(self.session, agent=self.agent).append(self.history[-1:])

    def _noted(self, entry: SessionEntry) -> SessionEntry:
        spoken, self._spoken = self._spoken, 0
        return entry.spoken_to(spoken) if spoken else entry

    def _answered(self) -> Turn:
        """Ask until the model has said what it wants to say."""
        turn = Turn()
        while turn.steps < _MOST_STEPS:
            answer = self._asked_or_reset()
            if answer is None:
                return replace(turn, interrupted=True)
            turn = self._took(turn, answer)
            calls = answer.reply.message.calls
            if not calls:
                break
            for call in calls:
                self.view.call(call)
            results = self.tools.run_all(calls, cancel=self.cancel, on_result=self.view.result)
            self.keep(Message(role="tool", parts=tuple(results)))
            if self.cancel.is_set():
                return replace(turn, interrupted=True)
            self.make_room(coming=0)
        else:
            self.view.notice(f"Stopped after {_MOST_STEPS} steps. Say something to go on.")
        with self.memory_may_fail():
            self.engine.session(self.session, agent=self.agent).append(self.history[-1:])
        return turn

    def _took(self, turn: Turn, answer: Answer) -> Turn:
        reply, self.window = answer.reply, answer.window
        self.keep(replace(reply.message, usage=reply.usage, model=reply.message.model or self.model.name), reply=True)
        self._counted(reply)
        return replace(
            turn,
            text=reply.text,
            steps=turn.steps + 1,
            usage=_added(turn.usage, reply.usage),
            window=answer.window,
            compactions=turn.compactions + len(answer.compactions),
        )

    def _asked_or_reset(self) -> Answer | None:
        """The model's next answer. Where no request fits, a new conversation begins with a digest, and is asked once.

        Raises:
            ModelOverflowError: The new conversation does not fit either.
        """
        try:
            return self._asked()
        except ModelOverflowError as error:
            if not error.tries:
                raise
            self._begin_with_digest(error)
        return self._asked()

    def _begin_with_digest(self, error: ModelOverflowError) -> None:
        """Put the conversation away and begin another with a digest of it and the user's last request."""
        history, before = self.history, self.session
        request = next((message for message in reversed(history) if message.role == "user"), None)
        limit = min(_LONGEST_DIGEST, self.limit // 10)
        told = make_digest(
            history, limit=limit, activity=find_activity(history), request=request.text if request else ""
        )
        opened = self.sessions.reset(self.opened.key, cwd=str(self.root))
        self.take_up(opened)
        self.keep(Message(role="user", parts=(Text(text=wrap_summary(told)),)))
        if request is not None:
            self.keep(Message(role="user", parts=request.parts))
        with self.memory_may_fail():
            self.engine.session(self.session, agent=self.agent).append(self.history)
        where = opened.archived.name if opened.archived else before
        self.view.notice(
            f"The request did not fit after {error.tries} tries. A new conversation begins with a digest of the old "
            f"one, which is kept in {where}."
        )
        self.end(before)

    def _asked(self) -> Answer | None:
        """The model's next answer; None where the user broke it off."""
        in_blocks = self.settings.agent.block_streaming == "on"
        held = flush.Held(in_blocks=in_blocks)
        said: list[str] = []

        def show(piece: str) -> None:
            nonlocal held
            if piece == RESTART_NOTICE:  # what the reply that broke off had left to show is said again
                said.clear()
                if held.is_open:
                    self.view.text(RESTART_NOTICE)
                held = flush.Held(in_blocks=in_blocks)
                return
            said.append(piece)
            if shown := held.feed(piece):
                self.view.text(shown)

        request = Ask(
            session=self.session,
            tools=self.tools.tools(),
            limit=self.limit,
            max_tokens=min(_LONGEST_REPLY, self.limits.reserve),
            timeout=_TIMEOUT,
            cancel=self.cancel,
            on_text=show,
            before_compact=self.flush,
            on_compact=self.compacted,
            facts=self._memories(),
            agent=self.agent,
        )
        try:
            answer = ask(self.engine, self.messages(), request, model=self.model)
        except ModelCancelledError:
            self._broke_off("".join(said))
            return None
        if shown := held.end():
            self.view.text(shown)
        return answer

    def _memories(self) -> list[FactRow]:
        """The agent's memories that may have to do with what the user said last."""
        asked = next((message.text for message in reversed(self.history) if message.role == "user"), "")
        found: list[FactRow] = []
        with self.memory_may_fail():
            found += self.memories.recallable(asked)
        if self.memories.trouble not in {"", self._told}:
            self.view.notice(f"Long-term memories are found by their words alone: {self.memories.trouble}")
        self._told = self.memories.trouble
        return found

    def _broke_off(self, said: str) -> None:
        """Keep what was heard of a reply; it is marked as broken off."""
        if said.strip():
            parts = (Text(text=said),)
            self.keep(Message(role="assistant", parts=parts, stop="aborted", model=self.model.name), reply=True)

    def _counted(self, reply: Reply) -> None:
        provider, _, name = self.model.name.partition("/")
        spent = cost(self.model.name, reply.usage)
        self.update(
            lambda entry: self._noted(entry).replied(
                reply.usage,
                now=self.sessions.clock(),
                model=name or provider,
                provider=provider,
                window=self.limit,
                cost=spent,
            )
        )


def _added(one: Usage, other: Usage | None) -> Usage:
    if other is None:
        return one
    return Usage(
        input=one.input + other.input,
        output=one.output + other.output,
        cache_read=one.cache_read + other.cache_read,
        cache_write=one.cache_write + other.cache_write,
    )
