"""`python -m holdfast.settings` writes the reference of all settings, those of the agent included."""

import sys

from holdfast.settings.reference import render_reference
from holdfast_agent.settings import CHAT

sys.stdout.write(render_reference(CHAT))
