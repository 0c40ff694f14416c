"""What is imported, and what is said where it is not installed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

EXTRAS = {
    "anthropic": "anthropic",
    "claude_agent_sdk": "claude_agent_sdk",
    "langchain": "langchain",
    "langgraph": "langgraph",
    "litellm": "litellm",
    "llm": "llm",
    "openai": "openai",
    "openai_agents": "agents",
    "pydantic_ai": "pydantic_ai",
}
"""The package that each adapter needs."""
BARE = """
import json, sys
import holdfast

print(json.dumps([name for name in sys.argv[1:] if name in sys.modules]))
"""
MISSING = """
import importlib, json, sys

adapters, packages = sys.argv[1].split(","), sys.argv[2].split(",")
sys.modules.update(dict.fromkeys(packages))
errors = {}
for adapter in adapters:
    try:
        module = importlib.import_module(f"holdfast.adapters.{adapter}")
        module.HoldfastHooks(None)  # of the Claude Agent SDK, which only the hooks need
    except Exception as error:
        errors[adapter] = [type(error).__name__, str(error)]
print(json.dumps(errors))
"""


def run(code: str, *args: str) -> object:
    """Run code in a process of its own, and return what it prints."""
    done = subprocess.run([sys.executable, "-c", code, *args], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


@pytest.mark.untraced
def test_holdfast_imports_no_framework() -> None:
    """`import holdfast` imports none of the packages that adapters need, nor an HTTP client."""
    assert run(BARE, *EXTRAS.values(), "httpx", "httpx2", "pydantic", "langchain_core") == []


@pytest.mark.untraced
def test_a_missing_package_names_the_command_that_installs_it() -> None:
    """Each adapter raises the typed error with the name of its extra."""
    words = "holdfast.adapters.{} needs an optional dependency: pip install 'holdfast-memory[{}]'"
    expected = {adapter: ["MissingExtraError", words.format(adapter, adapter.replace("_", "-"))] for adapter in EXTRAS}
    assert run(MISSING, ",".join(EXTRAS), ",".join(EXTRAS.values())) == expected
