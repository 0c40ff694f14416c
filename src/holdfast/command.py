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
    from holdfast.cli import run as run_command  # noqa: PLC0415 - as above

    run_command()
