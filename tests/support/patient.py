"""Requests that wait for a busy machine."""

from __future__ import annotations

from functools import partial
from typing import Final

import httpx2 as httpx

from support.waiting import PATIENCE

get: Final = partial(httpx.get, timeout=PATIENCE)
post: Final = partial(httpx.post, timeout=PATIENCE)
stream: Final = partial(httpx.stream, timeout=PATIENCE)
