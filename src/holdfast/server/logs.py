"""The log of the server: lines of text, or of JSON with one line for each operation in addition."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from holdfast.telemetry import Operation

LogFormat: TypeAlias = Literal["text", "json"]
log = logging.getLogger("holdfast.operations")


def start_log(format: LogFormat) -> None:
    """Write the log of this process to standard error in a format."""
    if format == "text":
        formatter = logging.Formatter("%(asctime)sZ %(message)s", datefmt="%Y-%m-%dT%H:%M:%S")
        formatter.converter = time.gmtime
    else:
        formatter = JsonFormatter()
        log.setLevel(logging.INFO)
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler])
    # It logs every attempt to connect, some fifteen a second while a server is down. The store logs such an outage.
    logging.getLogger("psycopg").propagate = False


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line: time, level, logger and message, then the session or the values of an operation."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


@contextmanager
def log_operation(operation: Operation) -> Iterator[None]:
    """Write a line about an operation when it has ended. It is an observer of `holdfast.telemetry`."""
    try:
        yield
    finally:
        fields: dict[str, object] = {"milliseconds": round(1000 * operation.seconds, 1), **operation.values}
        if operation.error:
            fields["error"] = operation.error
        log.info("%s", operation.name, extra={"fields": fields})
