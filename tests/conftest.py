"""What holds for every test."""

from hypothesis import HealthCheck, settings

# A shared machine may be slow: how long an example takes is never what is tested.
settings.register_profile("holdfast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("holdfast")
