"""The programs of docs/frameworks.md run as they are, against a scripted server."""

from __future__ import annotations

import gc
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine
from holdfast.messages import ToolCall
from holdfast.testing.provider import ScriptedProvider, ScriptedReply, Step

PAGE = Path(__file__).resolve().parents[2] / "docs" / "frameworks.md"
PROGRAMS = dict(re.findall(r"\n## ([^\n]+)\n.*?```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL))
NEEDED = {"Claude Agent SDK": "claude_agent_sdk", "LangChain": "langchain_openai", "LangGraph": "langchain_openai"}
"""The package that the program of a section needs, where it may be missing."""
del PROGRAMS["LiteLLM proxy"]  # test_litellm.py runs it
TEST = PROGRAMS.pop("Test your agent")


def answer(body: dict[str, Any]) -> Step:
    """Answer by the newest question; where there is a tool for notes, call it first."""
    sent: list[Any] = body.get("messages") or body["input"]
    newest = str(sent[-1])
    question = newest if "deploy key" in newest else ""
    names = [tool.get("function", tool).get("name") for tool in body.get("tools") or ()]
    if "note" in names and question and "'role': 'tool'" not in newest:
        text = "Where is the deploy key?" if "Where" in newest else "The deploy key is in vault 7."
        return ScriptedReply(calls=(ToolCall(id=f"c{len(newest)}", name="note", arguments={"text": text}),))
    is_second = "Where is" in str(sent)
    return ScriptedReply(text="In vault 7." if is_second else "I noted it.")


@pytest.mark.untraced
@pytest.mark.usefixtures("runner")
@pytest.mark.parametrize("title", PROGRAMS)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_program_of_the_docs_runs(
    title: str,
    model_server: ScriptedProvider,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It prints both replies, and the archive has both questions."""
    if title in NEEDED:
        pytest.importorskip(NEEDED[title], reason=f"pip install {NEEDED[title]}, or run `make frameworks`")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ANTHROPIC_BASE_URL", model_server.url)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{model_server.url}/v1")
    for vendor in ("ANTHROPIC", "OPENAI"):
        monkeypatch.setenv(f"{vendor}_API_KEY", "k")
    model_server.set_script(answer)
    script = tmp_path / "program.py"
    script.write_text(PROGRAMS[title], "utf-8")
    runpy.run_path(str(script), run_name="__main__")
    gc.collect()  # clients that a program leaves open are reported here, and not in a later test
    assert capsys.readouterr().out == "I noted it.\nIn vault 7.\n"
    assert model_server.check() == []
    with Engine.open(tmp_path / "agent-memory", background=False) as engine:
        scopes = list(engine.sessions())
        assert scopes
        for scope in scopes:
            session = engine.session(scope.id, tenant=scope.tenant, project=scope.project, agent=scope.agent)
            assert session.search("deploy key")


def test_the_test_of_the_docs_passes(model_server: ScriptedProvider) -> None:
    """As it is shown."""
    module: dict[str, Any] = {}
    exec(TEST, module)  # noqa: S102 - our own page
    module["test_my_agent"](model_server)
