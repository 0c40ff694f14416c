"""Ask a model for summaries: the prompts, the calls with their retries and limits, and the check of each answer."""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Final

from holdfast.compaction.audit import Checklist
from holdfast.compaction.dialogue import escape
from holdfast.compaction.sections import HEADINGS, without_lists
from holdfast.compaction.wording import Language
from holdfast.errors import HoldfastError, ModelBusyError, ModelCancelledError, ModelError, ModelRefusedError
from holdfast.messages import Message, Text
from holdfast.models.base import Model, Prompt, Reply, check_cancelled
from holdfast.models.retry import Retrying
from holdfast.prompts import load
from holdfast.settings import Compaction
from holdfast.text import digest, head

__all__ = ["Asker", "NoAnswerError", "Progress", "Prompts", "find_fault"]

_MAX_TRIES: Final = 3
_MAX_BAD_ANSWERS: Final = 2
"""How often an answer that cannot be a summary is asked for again."""
_MIN_WAIT: Final = 0.5
_MAX_WAIT: Final = 5.0
_CALL_SHARE: Final = 2 / 3
"""The share of the remaining time for one call, so that there is time for another."""
_MIN_TIME: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a compaction.

    Attributes:
        stage: What is being summarised, such as `history` or `merge`.
        step: The number of the chunk, from 1.
        steps: The number of chunks.
        calls: The calls of the model so far.
    """

    stage: str
    step: int
    steps: int
    calls: int


class NoAnswerError(HoldfastError):
    """There is no usable answer. Internal: the next step of the ladder is tried."""


@dataclass(slots=True, kw_only=True)
class Asker:
    """Calls a model with retries, a deadline and a limit of calls.

    Attributes:
        model: The model.
        system: The system prompt.
        max_tokens: The most tokens of an answer.
        deadline: The end of the compaction, by `clock`.
        max_calls: The most calls.
        clock: Returns monotonic seconds.
        sleep: Waits between two tries; `cancel.wait` can be interrupted.
        cancel: Cancels everything when set.
        done: Finished answers by the digest of their prompt; these are not asked for again.
        calls: The calls so far.
        troubles: The errors, in order.
        hopeless: Why further calls make no sense; empty while they do.
    """

    model: Model
    system: str
    max_tokens: int
    deadline: float
    max_calls: int
    clock: Callable[[], float]
    sleep: Callable[[float], object]
    cancel: Event | None
    done: MutableMapping[str, str]
    calls: int = 0
    troubles: list[str] = field(default_factory=list)
    hopeless: str = ""

    def ask(self, prompt: str) -> str:
        """Return the answer to a prompt: a text that may be a summary.

        Raises:
            NoAnswerError: There is no usable answer.
            ModelCancelledError: It was cancelled.
        """
        key = digest(f"{self.system}\0{prompt}")
        check_cancelled(self.cancel, self.model.name)
        if key not in self.done:
            self.done[key] = self._find_answer(prompt)
        return self.done[key]

    def _find_answer(self, prompt: str) -> str:
        for _ in range(_MAX_BAD_ANSWERS):
            reply = self._call(prompt)
            fault = find_fault(reply)
            if fault is None:
                return reply.text.strip()
            self.troubles.append(fault)
        raise NoAnswerError(self.troubles[-1])

    def _call(self, prompt: str) -> Reply:
        left = self._check_limits()
        system = Message(role="system", parts=(Text(text=self.system),))
        user = Message(role="user", parts=(Text(text=prompt),))
        try:
            self.calls += 1
            request = Prompt(messages=(system, user), max_tokens=self.max_tokens)
            return self._make_retrying(left).ask(request, timeout=left, cancel=self.cancel)
        except ModelCancelledError:
            raise
        except ModelError as error:
            self.troubles.append(str(error))
            if isinstance(error, ModelRefusedError | ModelBusyError):
                self.hopeless = str(error)
            raise NoAnswerError(str(error)) from error

    def _make_retrying(self, left: float) -> Retrying:
        return Retrying(
            model=self.model.model
            if isinstance(self.model, Retrying)
            else self.model,  # its own retries would multiply these
            attempts=_MAX_TRIES,
            first_wait=_MIN_WAIT,
            longest_wait=_MAX_WAIT,
            attempt_timeout=_CALL_SHARE * left,
            on_retry=self._record_retry,
            sleep=self._sleep,
            chance=lambda: 1.0,
            clock=self.clock,
        )

    def _sleep(self, seconds: float, _cancel: Event | None) -> None:
        self.sleep(seconds)

    def _record_retry(self, error: ModelError, _failed: int, _wait: float) -> None:
        self.calls += 1
        self.troubles.append(str(error))

    def _check_limits(self) -> float:
        """Return the seconds that are left; raise NoAnswerError where time or calls are used up."""
        left = self.deadline - self.clock()
        if not self.hopeless and left < _MIN_TIME:
            self.hopeless = "the time for this compaction is over"
        if not self.hopeless and self.calls + _MAX_TRIES > self.max_calls:
            self.hopeless = f"{self.calls} calls were not enough"
        if self.hopeless:
            raise NoAnswerError(self.hopeless)
        return left


# --- bad answers -----------------------------------------------------------------

_SKELETON: Final = re.compile(
    r"^(?:#{1,6} .*|[\s*>\-\[\]x\d.):_]*(?:\(?(?:none|n/a|empty|tbd|无|なし|없음)\)?\.?)?\s*)$", re.IGNORECASE
)
_REFUSAL: Final = re.compile(
    r"(?:(?:i'?m |i am )?(?:very |so )?sorry|i (?:can(?:no|')t|am (?:not able|unable)|won'?t|must decline)|"
    r"unfortunately,? i|as an ai|抱歉|对不起|很遗憾|我(?:无法|不能)|作为(?:一个)?(?:AI|人工智能)|"
    r"申し訳|恐れ入り|お手伝いでき|죄송|할 수 없습니다)",
    re.IGNORECASE,
)
_ERROR: Final = re.compile(
    r"(?:\[?(?:api |internal |server |fatal )?error\b|traceback|exception\b|http[ /]?\d|[45]\d\d\b|summary unavailable|"
    r"summari[sz]ation failed|(?:request|rate) limit|too many requests|overloaded|service unavailable|bad gateway|"
    r"(?:the )?(?:prompt|input|context)[^.\n]{0,40}(?:too long|exceed)|timed? ?out|no_reply\b|"
    r"错误|请求失败|エラー|오류)",
    re.IGNORECASE,
)
_DATA: Final = re.compile(r"\A(?:```(?:json)?\s*)?[{\[]\s*(?:[\"'{\[\]}]|\Z)")
_MAX_SKELETON_LINE: Final = 120
_MIN_LETTERS: Final = 12
_MAX_ERROR: Final = 600


def find_fault(reply: Reply) -> str | None:
    """Say why an answer cannot be a summary, such as a refusal or an error; None where it may be one."""
    text = reply.text.strip()
    if reply.stop == "refusal":
        return "the model refused"
    filled = (line for line in text.splitlines() if len(line) > _MAX_SKELETON_LINE or not _SKELETON.match(line))
    if len("".join(filled)) < _MIN_LETTERS:
        return "the answer is empty" if not text else "the answer has headings and nothing under them"
    if _DATA.match(text):
        return "the answer is data, not a summary"
    if len(text) > _MAX_ERROR or text.startswith("## "):
        return None
    if _REFUSAL.match(text):
        return "the model refused"
    return "the answer is an error message" if _ERROR.match(text.lstrip("*_`> ⚠️❌")) else None


# --- prompts ---------------------------------------------------------------------

_MAX_REPEATED: Final = 800
"""The most characters of instructions and of the last request that every prompt repeats."""
_HEADINGS: Final = ", ".join(HEADINGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """The prompts for one plan.

    Attributes:
        settings: What summaries keep exactly and focus on.
        instructions: What this summary focuses on.
        request: The user's last request.
        language: The language of the conversation.
        words: The most words of a summary.
    """

    settings: Compaction
    instructions: str | None
    request: str
    language: Language | None
    words: int

    def history(self, text: str, previous: str) -> str:
        """Ask for the summary of a text, or for an update of the previous summary."""
        material = f"{_tag('conversation', text)}{_tag_previous(previous)}"
        if previous:
            return load("summary_update", material=material, rules=self._rules, headings=_HEADINGS)
        return load("summary", material=material, rules=self._rules)

    def prefix(self, text: str, previous: str) -> str:
        """Ask for the summary of the beginning of a turn, or for an update of it."""
        return load(
            "summary_prefix", material=f"{_tag('conversation', text)}{_tag_previous(previous)}", rules=self._rules
        )

    def merge(self, texts: Sequence[str], previous: str) -> str:
        """Ask for one summary of several."""
        parts = "\n\n".join(_tag("partial-summary", escape(text)) for text in texts)
        return load(
            "summary_merge", material=f"{parts}{_tag_previous(previous)}", rules=self._rules, headings=_HEADINGS
        )

    def revise(self, text: str, misses: Checklist) -> str:
        """Ask for a summary again, with what it lacks."""
        material = _tag("summary", escape(text))
        missing = escape(str(misses))
        return load("summary_revise", material=material, missing=missing, rules=self._rules, headings=_HEADINGS)

    @property
    def _rules(self) -> str:
        focus = (self.settings.custom_instructions, self.instructions)
        language = f", {self.language}" if self.language not in {None, "Latin script"} else ""
        rules = [load("summary_rules", words=str(self.words), language=language), self._identifier_rule]
        rules += [f"The user's last request is: {self._quote(self.request)}"] if self.request else []
        rules += [f"Additional focus: {self._quote(text)}" for text in focus if text]
        return "\n\n".join(rule for rule in rules if rule)

    @property
    def _identifier_rule(self) -> str:
        match self.settings.identifier_policy:
            case "strict":
                return load("summary_identifiers")
            case "custom":
                return self._quote(self.settings.identifier_instructions or "")
            case _:
                return ""

    def _quote(self, text: str) -> str:
        return escape(head(text.strip(), _MAX_REPEATED))


def _tag(tag: str, text: str) -> str:
    return f"<{tag}>\n{text}\n</{tag}>"


def _tag_previous(text: str) -> str:
    return "\n\n" + _tag("previous-summary", escape(without_lists(text))) if text else ""
