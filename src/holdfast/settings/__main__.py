"""`python -m holdfast.settings` writes the reference of all settings."""

import sys

from holdfast.settings.table import reference

sys.stdout.write(reference())
