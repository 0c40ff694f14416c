"""The errors that Holdfast raises on purpose."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

from holdfast import errors
from holdfast.errors import (
    EmbeddingError,
    FormatError,
    HoldfastError,
    InputError,
    InvalidWindowError,
    MissingExtraError,
    SettingsError,
    StorageError,
    TranscriptError,
    WindowError,
    WindowTooSmallError,
)
from support.cases import each

FORMAT = FormatError("expected a string", where="messages[3].content", format="pi")
TRANSCRIPT = TranscriptError("cut off", path="a.jsonl", line=7)
SETTINGS = SettingsError("unknown.", source="holdfast.toml", key="recal.cap", nearest=["recall.cap"])
STORAGE = StorageError("disk full", path=Path("a.db"))
EMBEDDING = EmbeddingError("refused", provider="openai", status=429)
INVALID = InvalidWindowError("anthropic", ["orphan in messages[3]"])
SMALL = WindowTooSmallError(needed=12_000, limit=10_000, room=8_000)
EXTRA = MissingExtraError("counting with tiktoken", extra="tiktoken")
ALL = [FORMAT, TRANSCRIPT, SETTINGS, STORAGE, EMBEDDING, INVALID, SMALL, EXTRA]


NAMES = [name for name in vars(errors) if name.endswith("Error")]


class TestTree:
    """One root, and two branches."""

    def test_every_error_has_the_one_root(self) -> None:
        """Whoever calls us can catch everything at once."""
        kinds = [getattr(errors, name) for name in NAMES]

        assert all(issubclass(kind, HoldfastError) for kind in kinds)
        assert all(issubclass(kind, InputError) for kind in (FormatError, TranscriptError, SettingsError))
        assert all(issubclass(kind, WindowError) for kind in (InvalidWindowError, WindowTooSmallError))

    def test_the_drawing_shows_every_error(self) -> None:
        """The tree in the docstring is complete."""
        assert all(name in (errors.__doc__ or "") for name in NAMES)


class TestMessages:
    """What a person reads."""

    @each(
        ("error", "text"),
        [
            (FORMAT, "messages[3].content: expected a string"),
            (FormatError("not a list"), "not a list"),
            (TRANSCRIPT, "a.jsonl:7: cut off"),
            (TranscriptError("no such file", path=Path("a.jsonl")), "a.jsonl: no such file"),
            (SETTINGS, "holdfast.toml: recal.cap: unknown. Did you mean 'recall.cap'?"),
            (SettingsError("is no TOML", source="a.toml"), "a.toml: is no TOML"),
            (STORAGE, "a.db: disk full"),
            (EMBEDDING, "openai: refused"),
            (INVALID, "anthropic would refuse this window: orphan in messages[3]"),
            (EXTRA, "counting with tiktoken needs an optional dependency: pip install 'holdfast-memory[tiktoken]'"),
        ],
    )
    def test_the_place_comes_first_and_the_fix_last(self, error: HoldfastError, text: str) -> None:
        """Where, what, and what to do."""
        assert str(error) == text

    def test_what_an_error_is_about_is_data(self) -> None:
        """No one has to take the message apart."""
        assert (FORMAT.where, FORMAT.format) == ("messages[3].content", "pi")
        assert (TRANSCRIPT.path, TRANSCRIPT.line) == (Path("a.jsonl"), 7)
        assert (SETTINGS.source, SETTINGS.key, SETTINGS.nearest) == (
            "holdfast.toml",
            "recal.cap",
            ("recall.cap",),
        )
        assert (EMBEDDING.provider, EMBEDDING.status) == ("openai", 429)
        assert (INVALID.provider, INVALID.violations) == ("anthropic", ("orphan in messages[3]",))
        assert (SMALL.needed, SMALL.limit, SMALL.room) == (12_000, 10_000, 8_000)
        assert STORAGE.path == Path("a.db")
        assert (EXTRA.feature, EXTRA.extra) == ("counting with tiktoken", "tiktoken")


class TestTravel:
    """Errors that cross a border."""

    @each("error", ALL)
    def test_an_error_survives_the_way_out_of_a_worker_process(self, error: HoldfastError) -> None:
        """A pool of processes sends errors by pickle; one that cannot be unpickled breaks the pool."""
        for travelled in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301
            assert type(travelled) is type(error)
            assert str(travelled) == str(error)
            assert vars(travelled) == vars(error)
