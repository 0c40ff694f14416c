"""Conformance suites for your own store, embedder or model.

from holdfast.testing.store import CHECKS

@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_my_store(check, tmp_path):
    check(open_my_store, tmp_path)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, ParamSpec

_Args = ParamSpec("_Args")


def collect_checks(module: Mapping[str, Any]) -> tuple[Callable[..., None], ...]:
    """Return the checks that a module has defined so far: its public functions, in order."""
    functions = (value for name, value in module.items() if isinstance(value, FunctionType) and name[0] != "_")
    return tuple(function for function in functions if function.__module__ == module["__name__"])


def run_check(check: Callable[_Args, None], *args: _Args.args, **kwargs: _Args.kwargs) -> None:
    """Run one check; an AssertionError names the check that failed and what it requires."""
    try:
        check(*args, **kwargs)
    except AssertionError as error:
        raise AssertionError(f"{check.__name__}: {check.__doc__}\n{error}") from error
