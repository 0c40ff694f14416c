"""Session files: our own, and those of other agents, read into one form."""

from holdfast.transcripts.entry import Entry as Entry
from holdfast.transcripts.entry import Problem as Problem
from holdfast.transcripts.entry import Transcript as Transcript
from holdfast.transcripts.registry import READERS as READERS
from holdfast.transcripts.registry import SessionRef as SessionRef
from holdfast.transcripts.registry import default_places as default_places
from holdfast.transcripts.registry import describe as describe
from holdfast.transcripts.registry import read as read
from holdfast.transcripts.registry import sessions as sessions
from holdfast.transcripts.registry import stream as stream
from holdfast.transcripts.request_log import Request as Request
from holdfast.transcripts.request_log import requests as requests
