"""`python -m holdfast`."""

from holdfast.cli import run

run()
