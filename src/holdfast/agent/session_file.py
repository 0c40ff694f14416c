"""What a conversation leaves in the workspace when it ends: a note with its last words, for users who want one.

It is made of the transcript that was put away, so it is the same note whether the user, the hour or a pause ended the
conversation, in this process or before it began.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count, islice
from pathlib import Path
from threading import Event
from typing import Final, Self
from unicodedata import category, normalize

from holdfast.agent.paths import Bounds, locate
from holdfast.agent.sessions import Opened, id_of
from holdfast.compaction.flush import strip_silence
from holdfast.errors import InputError, ModelError, StorageError
from holdfast.messages import Message, Text
from holdfast.models.base import Model, Prompt
from holdfast.moments import utc
from holdfast.prompts import load
from holdfast.redact import redact
from holdfast.text import head
from holdfast.transcripts import journal, read

__all__ = ["Ended", "last_words", "slug", "write"]

MOST: Final = 15
"""So many of the last things that were said are in the note."""
PATIENCE: Final = 10.0
"""Seconds that a model has to find a name."""
_SHOWN: Final = 400
"""Characters of each thing that was said, for the model that finds the name."""
_LONGEST_REPLY: Final = 1_024
_LONGEST_SLUG: Final = 40
_MOST_WORDS: Final = 6
_COMMAND: Final = re.compile(r"/[^\W\d_][^\s/]*(?:\s|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A conversation that was put away.

    Attributes:
        key: Its key.
        file: Its transcript.
        source: Who or what ended it.
        time: When, in Unix milliseconds.
    """

    key: str
    file: Path
    source: str
    time: int

    @classmethod
    def of(cls, opened: Opened, *, time: int) -> Self | None:
        """The conversation that another one was opened in place of, if any."""
        if opened.archived is None:
            return None
        source = "terminal" if opened.why == "asked" else f"{opened.why} reset"
        return cls(key=opened.key, file=opened.archived, source=source, time=time)

    @property
    def session(self) -> str:
        """Its id."""
        return id_of(self.file)

    @property
    def moment(self) -> datetime:
        """When it ended."""
        return utc(self.time)


def write(
    ended: Ended, *, bounds: Bounds, model: Model | None = None, mask: bool = True, cancel: Event | None = None
) -> Path | None:
    """Write the note of a conversation; None where nothing was said in it. No file that is there is written over.

    Args:
        ended: The conversation.
        bounds: The workspace.
        model: Who may name it; without one that answers in time, its hour and minute do.
        mask: Whether secrets are masked.
        cancel: When set, by any thread, no name is waited for.

    Raises:
        InputError: The workspace may not be written, or the transcript cannot be read.
        StorageError: The disk refused it.
    """
    said = last_words(read(ended.file).messages, mask=mask)
    if not said:
        return None
    if not bounds.writable:
        raise InputError("the workspace is read-only (workspace.access)")
    name = _named(said, model, cancel) if model is not None else ""
    stem = f"memory/{ended.moment:%Y-%m-%d}-{name or f'{ended.moment:%H%M}'}"
    return _write_new(bounds, stem, _document(ended, said).encode("utf-8", "replace"))


def last_words(messages: Sequence[Message], *, mask: bool = True) -> list[str]:
    """The last of what user and agent said to each other, as `role: text`; no commands, nothing that was recalled."""
    said = islice(_said(reversed(messages)), MOST)
    return [f"{role}: {redact(words) if mask else words}" for role, words in said][::-1]


def _said(messages: Iterable[Message]) -> Iterator[tuple[str, str]]:
    for message in messages:
        words = strip_silence(message.text).strip() if message.role in {"user", "assistant"} else ""
        if words and not _COMMAND.match(words):
            yield message.role, words


def _document(ended: Ended, said: Sequence[str]) -> str:
    lines = (
        f"# Session: {ended.moment:%Y-%m-%d %H:%M:%S} UTC",
        "",
        f"- **Session Key**: {ended.key}",
        f"- **Session ID**: {ended.session}",
        f"- **Source**: {ended.source}",
        "",
        "## Conversation Summary",
        "",
        *said,
    )
    return "\n".join(lines) + "\n"


# --- its name --------------------------------------------------------------------


def _named(said: Sequence[str], model: Model, cancel: Event | None) -> str:
    """What a model calls the conversation; nothing where it does not say, or not in time."""
    words = "\n".join(head(each, _SHOWN) for each in said)
    question = Message(role="user", parts=(Text(text=load("session_name", words=words)),))
    try:
        reply = model.ask(Prompt(messages=(question,), max_tokens=_LONGEST_REPLY), timeout=PATIENCE, cancel=cancel)
    except ModelError:
        return ""
    return slug(reply.text)


def slug(text: str) -> str:
    """A name as a part of a file's name, in any script; nothing where it is none, such as a whole sentence."""
    letters = (letter if category(letter)[0] in "LMN" else " " for letter in normalize("NFC", text).lower())
    words = "".join(letters).split()
    name = "-".join(words)
    return name if len(words) <= _MOST_WORDS and len(name) <= _LONGEST_SLUG else ""


def _write_new(bounds: Bounds, stem: str, data: bytes) -> Path:
    """Write a file under the first name that is free."""
    paths = (locate(bounds, name).path for name in _names(stem))
    return next(path for path in paths if _is_written(path, data))


def _is_written(path: Path, data: bytes) -> bool:
    try:
        journal.create(path, [data])
    except StorageError as error:
        if isinstance(error.__cause__, FileExistsError):
            return False
        raise
    return True


def _names(stem: str) -> Iterator[str]:
    yield f"{stem}.md"
    yield from (f"{stem}-{number}.md" for number in count(2))
