"""The entry point of the `holdfast` command: it checks that `import holdfast` imports Holdfast."""

from __future__ import annotations

import sys
from typing import NoReturn

from holdfast_memory.distribution import DISTRIBUTION, REINSTALL, explain_other_project, find_other_projects


def run() -> NoReturn:
    """Run the command. Exit with a reason if files of the package were replaced by another project or deleted."""
    if not _is_intact():
        reasons = [explain_other_project(project) for project in find_other_projects()]
        if not reasons:
            reasons = [f"files of {DISTRIBUTION} are missing. Restore them: {REINSTALL}"]
        sys.exit("\n".join(f"holdfast: {reason}" for reason in reasons))

    from holdfast.command import run as run_command  # noqa: PLC0415 - it needs the whole package

    run_command()


def _is_intact() -> bool:
    try:
        import holdfast  # noqa: PLC0415 - another project's may fail to import its own modules
    except ImportError:
        return False
    return "Engine" in getattr(holdfast, "__all__", ())
