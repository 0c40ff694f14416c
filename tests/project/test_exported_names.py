"""The public face of the package."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import UnionType
from typing import Final, get_args, get_origin, get_type_hints

import pytest

import holdfast
import holdfast.settings
from holdfast.compaction import plan, run
from holdfast.embed import base as embed
from holdfast.memory import learning_state
from holdfast.models import base
from holdfast.search import candidates
from holdfast.store import base as rows
from support.cases import each


@each("name", holdfast.__all__)
def test_every_name_can_be_imported(name: str) -> None:
    """Each name of __all__ is there."""
    assert getattr(holdfast, name) is not None


def test_the_names_are_in_order() -> None:
    """They are sorted, and nothing else is offered."""
    assert holdfast.__all__ == sorted(holdfast.__all__)
    assert dir(holdfast) == holdfast.__all__


HOMES: Final = {
    "Store": (rows, embed, candidates),
    "Settings": (holdfast.settings,),
    "ProjectSettings": (holdfast.settings,),
}
"""The rows of a store and the sections of the settings are exported by modules of their own."""


@each("name", holdfast.__all__)
def test_what_a_public_name_takes_and_returns_is_public(name: str) -> None:
    """Every class in a signature or field can be imported where its user is imported from."""
    exported = {id(getattr(holdfast, other)) for other in holdfast.__all__}
    for home in HOMES.get(name, ()):
        exported |= {id(value) for value in vars(home).values()}
    missing = [kind.__qualname__ for kind in find_classes(getattr(holdfast, name)) if id(kind) not in exported]
    assert not missing


def find_classes(value: object) -> set[type]:
    """Find the classes of this package in the annotations of a public value."""
    owners = [value]
    if inspect.isclass(value):
        for member_name, member in inspect.getmembers(value):
            if not member_name.startswith("_"):
                if isinstance(member, property):
                    owners.append(member.fget)
                elif inspect.isfunction(member) or inspect.ismethod(member):
                    owners.append(inspect.unwrap(member))
    found: set[type] = set()
    for owner in owners:
        if inspect.isclass(owner) or inspect.isroutine(owner):
            for field, annotation in get_type_hints(owner, localns=LAZY).items():
                if not field.startswith("_"):
                    found |= flatten(annotation)
    return {kind for kind in found if kind.__module__.startswith("holdfast") and not kind.__name__.startswith("_")}


LAZY: Final = {**vars(base), **vars(embed), **vars(candidates), **vars(plan), **vars(run), **vars(learning_state)}
"""Names that signatures use and that are imported for type checkers alone."""


def flatten(annotation: object) -> set[type]:
    """Return all classes of an annotation."""
    if isinstance(annotation, list | tuple):
        found: set[type] = set()
        for part in annotation:
            found |= flatten(part)
        return found
    if get_origin(annotation) is not None:
        return flatten([get_origin(annotation), *get_args(annotation)])
    if isinstance(annotation, UnionType):
        return flatten(get_args(annotation))
    return {annotation} if isinstance(annotation, type) else set()


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


@each("name", holdfast.__all__)
def test_no_name_is_that_of_a_module(name: str) -> None:
    """A module that is imported later would take the place of what was exported under its name."""
    assert name == "__version__" or find_spec(f"holdfast.{name}") is None


def test_the_function_stays_a_function() -> None:
    """`holdfast.redact` masks secrets also once the engine has loaded its modules."""
    code = "import holdfast; holdfast.Engine; print(holdfast.redact('psql postgres://app:hunter2@db/shop'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "psql postgres://app:[REDACTED]@db/shop\n"
