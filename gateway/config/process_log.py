"""Options of the process log."""

from __future__ import annotations

from enum import StrEnum

from gateway.config.types import ConfigModel


class LogFormat(StrEnum):
    """`json`: an object per line; `text`: for people."""

    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    """The least severe records that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class ProcessLogOptions(ConfigModel):
    """What the gateway writes to standard error."""

    format: LogFormat = LogFormat.TEXT
    """text or json: an object per line, with ts, level, logger and message."""
    level: LogLevel = LogLevel.INFO
    """The least severe records that are written: debug, info, warning or error."""
    requests: bool = False
    """Whether each request is a line too, of level info or, where it has failed, warning."""
