"""Requests that wait for a busy machine."""

from __future__ import annotations

from functools import partial
from typing import Final

import httpx2 as httpx

SECONDS: Final = 60

get: Final = partial(httpx.get, timeout=SECONDS)
post: Final = partial(httpx.post, timeout=SECONDS)
stream: Final = partial(httpx.stream, timeout=SECONDS)
