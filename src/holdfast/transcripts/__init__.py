"""Session files: our own, and those of every other agent, read into one form."""

from holdfast.transcripts.entry import Entry, Item, Problem, Transcript
from holdfast.transcripts.places import Found, Place, default_places, sessions
from holdfast.transcripts.reader import Reader
from holdfast.transcripts.registry import READERS, read, stream
from holdfast.transcripts.request_log import Request, requests

__all__ = [
    "READERS",
    "Entry",
    "Found",
    "Item",
    "Place",
    "Problem",
    "Reader",
    "Request",
    "Transcript",
    "default_places",
    "read",
    "requests",
    "sessions",
    "stream",
]
