"""Requests that wait for a busy machine."""

from __future__ import annotations

import ssl
from functools import partial
from typing import Final

import httpx2 as httpx

from support.waiting import PATIENCE

_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Each request would make one, which takes longer than most requests do; servers of tests speak plain HTTP."""
get: Final = partial(httpx.get, timeout=PATIENCE, verify=_TLS)
post: Final = partial(httpx.post, timeout=PATIENCE, verify=_TLS)
stream: Final = partial(httpx.stream, timeout=PATIENCE, verify=_TLS)
