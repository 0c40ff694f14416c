"""Where model requests go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.calls import hide_keys
from holdfast.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstreams:
    """The destinations of requests."""

    anthropic: str = "https://api.anthropic.com"
    openai: str = "https://api.openai.com"

    @classmethod
    def parse(cls, values: Sequence[str]) -> Upstreams:
        """Read the values of `--upstream`: `URL` for all vendors, or `VENDOR=URL` for one.

        Raises:
            InputError: A value is neither.
        """
        urls: dict[str, str] = {}
        for value in values:
            vendor, is_named, url = value.partition("=")
            if not is_named or "://" in vendor:  # a URL may contain =
                vendor = ""
                url = value
            if not url.startswith(("http://", "https://")) or vendor not in {"", "anthropic", "openai"}:
                raise InputError(f"--upstream {value}: give URL, anthropic=URL or openai=URL")
            if vendor:
                urls[vendor] = url
            else:
                urls["anthropic"] = url
                urls["openai"] = url
        return cls(**urls)

    def __str__(self) -> str:
        addresses = map(hide_keys, (self.anthropic, self.openai))
        return " and ".join(dict.fromkeys(addresses))
