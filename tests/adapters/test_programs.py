"""The programs of docs/frameworks.md run as they are, against a scripted server."""

from __future__ import annotations

import gc
import re
import runpy
from pathlib import Path

import pytest

from holdfast import Engine
from holdfast.testing.provider import ScriptedProvider

PAGE = Path(__file__).resolve().parents[2] / "docs" / "frameworks.md"
PROGRAMS = re.findall(r"## ([^\n]+)\n\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.mark.untraced
@pytest.mark.usefixtures("runner")
@pytest.mark.parametrize("code", [code for _, code in PROGRAMS], ids=[title for title, _ in PROGRAMS])
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_program_of_the_docs_runs(
    code: str,
    model_server: ScriptedProvider,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It prints both replies, and the archive has both questions."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ANTHROPIC_BASE_URL", model_server.url)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{model_server.url}/v1")
    for vendor in ("ANTHROPIC", "OPENAI"):
        monkeypatch.setenv(f"{vendor}_API_KEY", "k")
    model_server.set_script(["I noted it.", "In vault 7."])
    script = tmp_path / "program.py"
    script.write_text(code, "utf-8")
    runpy.run_path(str(script), run_name="__main__")
    gc.collect()  # clients that a program leaves open are reported here, and not in a later test
    assert capsys.readouterr().out == "I noted it.\nIn vault 7.\n"
    assert model_server.check() == []
    with Engine.open(tmp_path / "agent-memory", background=False) as engine:
        (scope,) = engine.sessions()
        assert scope.session == "s1"
        assert engine.session("s1", tenant=scope.tenant).search("deploy key")
