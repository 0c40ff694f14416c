"""What tests of compaction share: a conversation, a clock that only waiting moves, and a model that can go wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event

from holdfast.compaction import summarise
from holdfast.compaction.plan import CompactionPlan, plan_compaction
from holdfast.compaction.sections import HEADINGS
from holdfast.compaction.summarise import Progress, Summary
from holdfast.context.budget import Budget, budget
from holdfast.context.edits import Item
from holdfast.errors import ModelError, ModelTimeoutError
from holdfast.messages import Message, Text
from holdfast.models.base import Model, Prompt, Reply
from holdfast.settings import Compaction, Settings
from support.conversations import answer, call, items, reply, results, system, user

WINDOW = 32_000
REQUEST = "Please fix the webhook signature check in src/hooks/verify.py"
NAMES = ("src/hooks/verify.py", "9f8a6af51b29", "https://ci.example.com/run/4711", "port 8443")
Answer = str | Reply | ModelError | Event | None
"""What a model does: words, a reply, an error, an event that it sets, or no answer until the time is over."""


class Clock:
    """Seconds that pass only where someone waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self.waits.append(seconds)
        self.now += seconds


@dataclass
class Summariser:
    """A model that does what it is told for each call, counted from 1."""

    behave: Callable[[int, Prompt], Answer]
    clock: Clock = field(default_factory=Clock)
    context_tokens: int = WINDOW
    name: str = "summariser"
    provider: str = "anthropic"
    prompts: list[Prompt] = field(default_factory=list)

    def ask(
        self,
        prompt: Prompt,
        *,
        timeout: float | None = None,
        cancel: Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """Answer, or not."""
        del cancel, on_text
        self.prompts.append(prompt)
        said = self.behave(len(self.prompts), prompt)
        if isinstance(said, ModelError):
            raise said
        if isinstance(said, Event):
            said.set()
            said = good()
        if said is None:
            assert timeout is not None, "every call has a deadline"
            self.clock.now += timeout
            raise ModelTimeoutError("no answer in time", model=self.name)
        return said if isinstance(said, Reply) else Reply(message=Message(role="assistant", parts=(Text(text=said),)))


def good(request: str = REQUEST, names: Sequence[str] = NAMES) -> str:
    """A summary as it should be."""
    body = dict.fromkeys(HEADINGS, "Something that was said about it.")
    body[HEADINGS[0]] = request
    body[HEADINGS[-1]] = "\n".join(f"- {name}" for name in names)
    return "\n\n".join(f"{heading}\n{text}" for heading, text in body.items())


def conversation(turns: int = 30, *, size: int = 1_500) -> list[Message]:
    """A system prompt, turns in which a tool is called and answers at length, and a request that is repeated."""
    said = [system()]
    for number in range(turns):
        said += [
            user(f"Look into part {number} of the gateway. We decided to use Redis {number}.x instead of files."),
            reply(f"Looking at part {number}.", call(f"c{number}", "read", path=f"src/part{number}.py")),
            results(answer(f"c{number}", f"line of part {number}\n" * (size // 15))),
            reply(f"Part {number} is fine. Next: part {number + 1}."),
        ]
    said += [user(REQUEST), *work(), reply("The check compares the wrong header, see " + ", ".join(NAMES) + ".")]
    return [*said, user(REQUEST)]


def work() -> list[Message]:
    """Tools at work: a file is read and changed, a command fails."""
    return [
        reply("", call("r1", "read", path="src/hooks/verify.py")),
        results(answer("r1", "def verify(): ...")),
        reply("", call("e1", "edit", path="src/hooks/verify.py", old="a", new="b")),
        results(answer("e1", "ok")),
        reply("", call("b1", "bash", command="pytest -q tests/hooks --maxfail=1")),
        results(answer("b1", "E   AssertionError: bad signature\nexit code 1", is_error=True)),
    ]


def limits(window: int = WINDOW) -> Budget:
    """The limits of a window."""
    return budget(Settings(), window=window)


def planned(
    messages: Sequence[Message] | Sequence[Item],
    *,
    window: int = WINDOW,
    keep: int = 2_000,
    previous: str | None = None,
    force: bool = False,
    **settings: object,
) -> CompactionPlan:
    """The plan for a conversation."""
    window_items = [one for one in messages if isinstance(one, Item)] or items(
        one for one in messages if isinstance(one, Message)
    )
    how = compaction(keep_recent_tokens=keep, **settings)
    return plan_compaction(window_items, settings=how, budget=limits(window), previous_summary=previous, force=force)


def compaction(**settings: object) -> Compaction:
    """Settings that differ from the default."""
    return Compaction(**settings)  # type: ignore[arg-type]


def summed_up(
    plan: CompactionPlan,
    model: Model | None,
    *,
    clock: Clock | None = None,
    settings: Compaction | None = None,
    instructions: str | None = None,
    cancel: Event | None = None,
    done: dict[str, str] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Summary:
    """The summary of a plan."""
    time = clock or (model.clock if isinstance(model, Summariser) else Clock())
    return summarise.Summariser(
        plan=plan,
        model=model,
        settings=settings or Compaction(),
        window_tokens=model.context_tokens if model else WINDOW,
        clock=time,
        sleep=time.sleep,
        instructions=instructions,
        cancel=cancel,
        on_progress=on_progress,
        done={} if done is None else done,
    ).summarise()
