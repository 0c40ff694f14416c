"""Session files: our own, and those of other agents, read into one form."""

from holdfast.transcripts.entry import Entry, Problem, Transcript
from holdfast.transcripts.registry import READERS, SessionRef, default_places, read, sessions, stream
from holdfast.transcripts.request_log import Request, requests

__all__ = [
    "READERS",
    "Entry",
    "Problem",
    "Request",
    "SessionRef",
    "Transcript",
    "default_places",
    "read",
    "requests",
    "sessions",
    "stream",
]
