"""What happens between a prompt and an answer; the rest is in the end-to-end tests."""

from pathlib import Path

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from prompt_toolkit.shortcuts import PromptSession

from holdfast_agent.opening import Options
from holdfast_agent.terminal import _Opening, take_interrupt


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
