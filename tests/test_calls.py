"""Addresses in messages, and calls that may hang."""

from queue import Empty
from threading import Event, Thread, current_thread

import pytest

from holdfast.calls import DeadlineError, Watchdog, hide_keys
from support.waiting import PATIENCE, until


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://localhost:11434/v1", "http://localhost:11434/v1"),
        ("https://me:canary@host:9/v1?key=canary#canary", "https://host:9/v1"),
        ("http://me:can/ary@host/v1", "http://host/v1"),
        ("https://me:canary@端口.example/v1", "https://端口.example/v1"),
        ("localhost:1/v1?key=canary", "localhost:1/v1"),
    ],
)
def test_an_address_is_shown_without_its_keys(url: str, shown: str) -> None:
    """A login may be in front of the host, and a key in the query."""
    assert hide_keys(url) == shown


class TestWatchdog:
    def test_a_thread_makes_one_call_after_the_other(self) -> None:
        watchdog = Watchdog()
        threads = [watchdog.run(current_thread, seconds=PATIENCE, name="test") for _ in range(3)]
        assert len(set(threads)) == 1
        watchdog.close()
        until(lambda: not threads[0].is_alive())

    def test_a_call_that_hangs_keeps_its_thread(self) -> None:
        watchdog = Watchdog()
        hung: list[Thread] = []
        release = Event()

        def hang() -> None:
            hung.append(current_thread())
            release.wait(PATIENCE)

        with pytest.raises(DeadlineError):
            watchdog.run(hang, seconds=0.01, name="test", about="it")
        assert watchdog.hanging() == ["it"]
        until(lambda: bool(hung))
        assert watchdog.run(current_thread, seconds=PATIENCE, name="test") is not hung[0]
        release.set()
        until(lambda: not watchdog.hanging())
        watchdog.close()

    @pytest.mark.parametrize("kind", [TimeoutError, Empty])
    def test_an_error_of_the_call_is_raised(self, kind: type[Exception]) -> None:
        def fail() -> None:
            raise kind("of the call")

        watchdog = Watchdog()
        with pytest.raises(kind, match="of the call"):
            watchdog.run(fail, seconds=PATIENCE, name="test")
        assert not watchdog.hanging()
        watchdog.close()
