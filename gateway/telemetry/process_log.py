"""The log of the process on standard error."""

from __future__ import annotations

import logging
from typing import Any

from gateway.core.text import escape_unprintable


class LogFormatter(logging.Formatter):
    """A record is one line, and a line for each of its traceback: texts of clients and upstreams
    cannot begin another, nor control a terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escape_unprintable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return "\n".join(map(escape_unprintable, super().formatException(ei).split("\n")))


def log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
