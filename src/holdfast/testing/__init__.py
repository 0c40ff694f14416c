"""The suites that a store, an embedder or a model has to pass, for parts of your own.

from holdfast.testing.store import CHECKS

@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_my_store(check, tmp_path):
    check(open_my_store, tmp_path)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

_Args = ParamSpec("_Args")


def run_check(check: Callable[_Args, None], *args: _Args.args, **kwargs: _Args.kwargs) -> None:
    """Run one check; an AssertionError names the contract that is broken, and what it promises."""
    try:
        check(*args, **kwargs)
    except AssertionError as error:
        raise AssertionError(f"{check.__name__}: {check.__doc__}\n{error}") from error
