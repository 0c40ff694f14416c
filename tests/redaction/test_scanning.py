"""Long text is searched in steps: with the same result, and other threads run between them."""

from __future__ import annotations

import re
import sys
import time
from itertools import pairwise
from random import Random
from threading import Event, Thread

import pytest

from holdfast import redact
from holdfast.redaction.scanning import find_all

PATTERNS = [
    r"a+b",
    r"(?<![ab])a{2,}+",
    r"ab(?!b)",
    r"\bb+\b",
    r"a[ab]{0,12}c",
    r"b\Z",
    r"\Aa",
    r"(?m)^[ab]+$",
    r"c(?=[ab]{3})",
]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("step", [1, 7, 40])
def test_the_matches_are_those_of_finditer(pattern: str, step: int) -> None:
    """Wherever a step ends: a match may cross it, and what looks like the end of the text is not."""
    compiled = re.compile(pattern)
    for seed in range(60):
        random = Random(seed)  # noqa: S311 - not for secrets
        text = "".join(random.choices("ab c\n", weights=[6, 6, 1, 2, 1], k=120))
        start = random.randrange(20)
        found = [match.span() for match in find_all(compiled, text, start, step=step, reach=16)]
        assert found == [match.span() for match in compiled.finditer(text, start)], text


@pytest.mark.variants(first=True)
@pytest.mark.parametrize("place", [2**19 - 20, 2**19 + 2**17 - 20])
def test_a_secret_anywhere_in_a_long_line_is_masked(place: int) -> None:
    """Also if a step ends inside of it."""
    secret = "ghp_" + "8Kq2Lm9Xw4Zr7Tb1Yc5Vn3Pd6Hf0Js8Gu2Ea"
    line = "x" * place + "/" + secret + "/" + "x" * (2**19 + 2**18 - place)
    assert secret[10:30] not in redact(line)


@pytest.mark.nightly
@pytest.mark.untraced
@pytest.mark.skipif(sys.platform != "linux", reason="needs the processor time of another thread")
def test_other_threads_run_while_a_long_line_is_masked() -> None:
    """The processor time between two of their turns is a small part of the whole."""
    line = "x" * (4 * 2**20)
    is_done = Event()
    may_end = Event()

    def mask() -> None:
        redact(line)
        is_done.set()
        may_end.wait()  # its clock can be read until then

    masking = Thread(target=mask)
    masking.start()
    assert masking.ident is not None
    clock = time.pthread_getcpuclockid(masking.ident)
    turns = [0.0]
    while not is_done.is_set():
        turns.append(time.clock_gettime(clock))
        is_done.wait(0.001)
    may_end.set()
    masking.join()
    longest = max(after - before for before, after in pairwise(turns))
    assert longest < turns[-1] / 5
