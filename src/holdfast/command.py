"""The entry point of the `holdfast` command. It imports only what the command needs that is run."""

from __future__ import annotations

import atexit
import os
import sys

TYPE_CHECKING = False  # `typing` takes longer to import than a hook takes
if TYPE_CHECKING:
    from typing import NoReturn


def run() -> NoReturn:
    """Run the command of this process."""
    if sys.argv[1:2] == ["hook"]:
        from holdfast import hook_command  # noqa: PLC0415 - see the module docstring

        home = hook_command.parse(sys.argv[2:])
        if home is not None:
            hook_command.run(home)
            atexit._run_exitfuncs()  # noqa: SLF001 - `os._exit` leaves them out
            os._exit(0)  # not a moment later, also if a thread that was given up still works
    if sys.argv[1:2] == ["mcp"] and sys.platform != "win32" and not _is_other_use_of_mcp(sys.argv[2:]) and _has_mcp():
        from holdfast.mcp_start import answer_early  # noqa: PLC0415 - see the module docstring

        answer_early()
    from holdfast.cli import run as run_command  # noqa: PLC0415 - as above

    run_command()


def _is_other_use_of_mcp(arguments: list[str]) -> bool:
    """Return whether `holdfast mcp` does something else than answer on standard input and output."""
    has_other_option = any(argument in {"-h", "--help"} or argument.startswith("--http") for argument in arguments)
    return has_other_option or sys.stdin.isatty()


def _has_mcp() -> bool:
    """Return whether the SDK is installed. Without it, no request may be answered: the command fails at its start."""
    from importlib.util import find_spec  # noqa: PLC0415 - see the module docstring

    return find_spec("mcp") is not None
