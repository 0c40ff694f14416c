"""`python -m holdfast.settings` writes the reference of all settings."""

import sys

from holdfast.settings.reference import reference

sys.stdout.write(reference())
