"""Write the reference of all settings, those of the agent included, or with `--schema` their JSON Schema."""

import json
import sys

from holdfast.settings.json_schema import make_json_schema
from holdfast.settings.reference import render_reference
from holdfast_agent.settings import CHAT

if sys.argv[1:] == ["--schema"]:
    sys.stdout.write(json.dumps(make_json_schema(CHAT), indent=1) + "\n")
elif sys.argv[1:]:
    sys.exit("usage: python -m holdfast.settings [--schema]")
else:
    sys.stdout.write(render_reference(CHAT))
