"""Loads the memory provider in a file as Hermes Agent does, asks it for one recall, and prints the block."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from typing import Any


def load(file: str) -> Any:
    """Load the provider, with a base class in place of that of Hermes."""
    base = types.ModuleType("agent.memory_provider")
    base.MemoryProvider = type("MemoryProvider", (), {})  # type: ignore[attr-defined]
    sys.modules |= {"agent": types.ModuleType("agent"), base.__name__: base}
    spec = importlib.util.spec_from_file_location("holdfast_provider", file)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{file} is no module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(file: str) -> None:
    """Ask for the block of a question."""
    module = load(file)
    registered: list[Any] = []
    module.register(types.SimpleNamespace(register_memory_provider=registered.append))
    (provider,) = registered
    provider.initialize("s1", platform="cli")
    block = provider.prefetch("Which port does the replica use?", session_id="s1")
    provider.shutdown()
    json.dump({"command": module.COMMAND, "block": block}, sys.stdout)


main(sys.argv[1])
