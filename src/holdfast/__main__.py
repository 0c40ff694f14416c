"""`python -m holdfast`. `holdfast` and `python -P -m holdfast` import nothing from the working directory."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the working directory, which may be a cloned repository with a `click.py` in it

from holdfast.command import run

run()
