"""The public face of the package."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import holdfast


@pytest.mark.parametrize("name", holdfast.__all__)
def test_every_name_can_be_imported(name: str) -> None:
    """Each name of __all__ is there."""
    assert getattr(holdfast, name) is not None


def test_the_names_are_few_and_in_order() -> None:
    """About forty names, sorted, and nothing else is offered."""
    assert holdfast.__all__ == sorted(holdfast.__all__)
    assert len(holdfast.__all__) <= 60
    assert dir(holdfast) == holdfast.__all__


def test_type_checkers_see_the_same_names() -> None:
    """What is loaded at run time is imported for type checkers, too."""
    tree = ast.parse(Path(holdfast.__file__).read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    aliases = {f"{node.module}.{alias.asname}" for node in imports for alias in node.names if alias.asname}
    assert aliases == {f"{home}.{name}" for name, home in holdfast._HOME.items()}


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A name that does not exist says so."""
    with pytest.raises(AttributeError, match="nonsense"):
        _ = holdfast.nonsense


def test_importing_the_package_imports_nothing_else() -> None:
    """`import holdfast` loads no third-party package."""
    code = "import sys; before = set(sys.modules); import holdfast; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "click", "rich", "msgspec", "simsimd"}
    frameworks = {"anthropic", "openai", "agents", "pydantic_ai", "langchain", "langchain_core", "langgraph", "litellm"}
    assert not (heavy | frameworks) & set(eval(done.stdout))  # noqa: S307 - our own list


@pytest.mark.parametrize("name", holdfast.__all__)
def test_no_name_is_that_of_a_module(name: str) -> None:
    """A module that is imported later would take the place of what was exported under its name."""
    assert name == "__version__" or find_spec(f"holdfast.{name}") is None


def test_the_function_stays_a_function() -> None:
    """`holdfast.redact` masks secrets also once the engine has loaded its modules."""
    code = "import holdfast; holdfast.Engine; print(holdfast.redact('psql postgres://app:hunter2@db/shop'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "psql postgres://app:[REDACTED]@db/shop\n"
