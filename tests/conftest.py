"""What holds for every test."""

import os

from hypothesis import HealthCheck, settings

# A shared machine may be slow: how long an example takes is never what is tested.
settings.register_profile(
    "holdfast",
    derandomize=True,  # a run says something about the change, not about chance
    max_examples=200 if os.environ.get("CI") else 100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "fuzz",
    max_examples=500,
    database=None,  # the seed alone decides what is tried
    print_blob=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("holdfast")
