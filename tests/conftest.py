"""What holds for every test."""

import gc
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from support.paths import FIXTURES

pytest_plugins = ["holdfast.testing.fixtures", "support.workers"]

if sys.platform == "win32":  # the agent does not run there; links, file modes, pipes and `kill -9` are POSIX
    collect_ignore_glob = [
        *("agent/*", "e2e/*", "cli/test_forget.py", "cli/test_trust.py", "cli/test_untrusted_settings.py"),
        *("cli/test_encryption.py", "store/test_encryption.py", "store/test_keys.py"),
        *("properties/test_paths.py", "properties/test_tools.py", "benchmarks/test_c*.py"),
        *("behaviour/test_resource_limits.py", "behaviour/test_seeds_*.py", "behaviour/test_store_faults.py"),
        *("project/test_docs.py", "settings/test_trust.py", "test_programs.py"),
        *("transcripts/test_journal.py", "transcripts/test_places.py"),
    ]

# A shared machine may be slow: how long an example takes is never what is tested.
settings.register_profile(
    "holdfast",
    max_examples=5,  # `make nightly` tries 20, and `make fuzz` 400
    derandomize=True,  # a run says something about the change, not about chance; `make fuzz` looks for more
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("nightly", settings.get_profile("holdfast"), max_examples=20)
settings.register_profile(
    "fuzz",
    max_examples=400,
    database=None,  # the seed alone decides what is tried
    print_blob=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("holdfast")


_MEMORY_DISK: Final = Path("/dev/shm")  # noqa: S108 - pytest makes a private folder in it
_MIN_FREE_BYTES: Final = 4 << 30
_TOKEN: Final = re.compile(r"holdfast_[\w-]{20,}", re.IGNORECASE)


def pytest_configure() -> None:
    """Handle Ctrl-C as in a terminal, and keep clients of loopback servers cheap."""
    # A shell ignores SIGINT in commands that it runs in the background, and every process that a test starts would
    # inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Every server in the tests speaks plain HTTP on this machine, but each client that is made, also by an SDK, loads
    # all certificates first. That takes 50 ms; one certificate takes none.
    os.environ["SSL_CERT_FILE"] = str(FIXTURES / "certificate.pem")
    # Tests write thousands of databases, each durably. A disk in memory has nothing to wait for.
    if os.access(_MEMORY_DISK, os.W_OK) and shutil.disk_usage(_MEMORY_DISK).free >= _MIN_FREE_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY_DISK))
        tempfile.tempdir = os.environ["PYTEST_DEBUG_TEMPROOT"]  # for tests that make a folder for each example


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave the tests themselves out of every garbage collection: they are a million objects that stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave repeated variants to the night, and let one process start a browser and one import the SDKs."""
    variants: dict[tuple[str, int | None], list[pytest.Item]] = {}
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.together("browser"))
        if item.path.parent.name == "adapters":
            item.add_marker(pytest.mark.together("SDKs"))
        if marker := item.get_closest_marker("variants"):
            end = None if marker.kwargs.get("first") else -1
            variants.setdefault((item.nodeid.partition("[")[0], end), []).append(item)
    for (_, end), found in variants.items():
        for item in found[1:end]:
            item.add_marker(pytest.mark.nightly)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a test that is given a token without it: each process that collects the tests makes another one."""
    if not isinstance(val, str) or not _TOKEN.search(val):
        return None
    return _TOKEN.sub("TOKEN", val)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Leave coverage to the tests of single cases.

    Hundreds of examples, or megabytes of text, run the same lines again and take more than twice the time for it.
    """
    tracer = sys.gettrace()
    if item.get_closest_marker("hypothesis") or item.get_closest_marker("untraced"):
        sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)
