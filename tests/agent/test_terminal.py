"""What happens between a prompt and an answer; the rest is in the end-to-end tests."""

from pathlib import Path

import pytest
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput
from prompt_toolkit.shortcuts import PromptSession

from holdfast_agent.opening import Options
from holdfast_agent.terminal import QUIET_SECONDS, _Opening, ask, take_interrupt


def test_a_prompt_that_comes_after_the_error_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens in vain while no prompt is there says so to the next one."""
    monkeypatch.setenv("HOME", str(tmp_path))
    left: list[bool] = []
    opening = _Opening(Options(model="nobody/knows", home=tmp_path, workspace=tmp_path))
    opening.begin()
    opening.join()
    opening.on_error = lambda: left.append(True)
    opening.begin()
    assert "no model is called that" in str(opening.error)
    assert left == [True]


def test_ctrl_c_is_found_among_what_was_typed() -> None:
    """It is taken out, once; everything else waits for the next prompt."""
    with create_pipe_input() as typed:
        session: PromptSession[str] = PromptSession(input=typed, output=DummyOutput())
        assert not take_interrupt(session)
        typed.send_text("one\x03 more\r")
        assert take_interrupt(session)
        assert not take_interrupt(session)
        assert session.prompt() == "one more"


class Clock:
    """A clock that advances by a step at every reading."""

    def __init__(self, step: float) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        """The time."""
        self.now += self.step
        return self.now


class Screen(DummyOutput):
    """A screen that presses some keys once something is on it."""

    def __init__(self, source: PipeInput, keys: str) -> None:
        self.source = source
        self.keys = keys

    def write(self, data: str) -> None:
        """Text is drawn."""
        keys = self.keys
        self.keys = ""
        if data.strip() and keys:
            self.source.send_text(keys)


@pytest.mark.parametrize(("keys", "answer"), [("y", "y"), ("A", "a"), ("x是n", "n"), ("\r\ty", "y"), ("\x04", "n")])
def test_one_key_answers_a_question(keys: str, answer: str) -> None:
    """In either case, without Enter; other keys are no answer, and the end of input is a no."""
    with create_pipe_input() as typed:
        assert ask("Run it?", "yan", clock=Clock(2 * QUIET_SECONDS), source=typed, output=Screen(typed, keys)) == answer


def test_words_that_are_being_typed_do_not_answer() -> None:
    """Neither those from before the question nor those that go on: they wait for the next prompt, without Enter."""
    with create_pipe_input() as typed:
        typed.send_text("any\r")
        screen = Screen(typed, "way是\x1b[200~y\x1b[201~\x04")
        assert ask("Run it?", "yan", clock=Clock(0.0), source=typed, output=screen) == "n"
        typed.send_text("!\r")
        session: PromptSession[str] = PromptSession(input=typed, output=DummyOutput())
        assert session.prompt() == "anyway是y!"
