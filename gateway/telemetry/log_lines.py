"""What lines of the process log look like: JSON or text, with the journal's priorities."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from traceback import format_exception, format_tb
from typing import Any, Final, NamedTuple

import orjson

from gateway.core.text import escape_json, escape_unprintable

MAX_MESSAGE: Final = 8192
"""Characters of a message, and of a line of a traceback."""
MAX_TRACEBACK: Final = 24 * 1024
"""Characters of a traceback; its end says most."""
_TRACEBACK_HEAD: Final = 4096
_MAX_LINE: Final = 47 * 1024
"""Bytes of a line: the journal divides longer ones than 48 KiB."""

_REQUEST_ID: Final = re.compile(r"\breq_[0-9a-f]{24}\b")
_PRIORITIES: Final = {
    logging.CRITICAL: "<2>",
    logging.ERROR: "<3>",
    logging.WARNING: "<4>",
    logging.INFO: "<6>",
    logging.DEBUG: "<7>",
}
"""The priorities of sd-daemon(3)."""
_NAMES: Final = {level: logging.getLevelName(level).lower() for level in _PRIORITIES}

Redact = Callable[[str], str]


class Incident(NamedTuple):
    """A record of a logger, without references to what it is about. `exception` is the name of its
    class; `length` is that of the whole message, of which only the beginning is kept."""

    created: float
    level: int
    logger: str
    message: str
    length: int
    exception: str = ""
    traceback: str = ""

    @classmethod
    def of(cls, record: logging.LogRecord) -> Incident:
        message = _message(record)
        exception, traceback = "", record.stack_info or ""
        if record.exc_info and (type_ := record.exc_info[0]) is not None:
            exception = type_.__name__
            traceback = _traceback(record.exc_info[1])
        level = max((each for each in _NAMES if each <= record.levelno), default=logging.DEBUG)
        return cls(
            record.created,
            level,
            record.name,
            message[:MAX_MESSAGE],
            len(message),
            exception,
            _shorten(traceback),
        )

    @property
    def size(self) -> int:
        return len(self.message) + len(self.traceback)

    def text(self, redact: Redact) -> str:
        """A line, and one for each of the traceback's."""
        level = _NAMES[self.level].upper()
        first = escape_unprintable(f"{level} {self.logger}: {self._redacted(redact)}")
        return "\n".join([first, *map(escape_unprintable, self._traceback_lines(redact))])

    def fields(self, redact: Redact) -> dict[str, Any]:
        fields = {
            "ts": timestamp(self.created),
            "level": _NAMES[self.level],
            "logger": self.logger,
            "message": self._redacted(redact),
        }
        if found := _REQUEST_ID.search(self.message):
            fields["request_id"] = found[0]
        if self.exception:
            fields["exception"] = self.exception
        if self.traceback:
            fields["traceback"] = "\n".join(self._traceback_lines(redact))
        return fields

    def _redacted(self, redact: Redact) -> str:
        message = redact(self.message)
        return message if self.length <= MAX_MESSAGE else message + _cut_note(self.length)

    def _traceback_lines(self, redact: Redact) -> list[str]:
        """Redacts each line by itself: what was cut within a secret is at its end."""
        if not self.traceback:
            return []
        return [
            redact(line[:MAX_MESSAGE]) + (_cut_note(len(line)) if len(line) > MAX_MESSAGE else "")
            for line in self.traceback.split("\n")
        ]


def json_line(fields: Mapping[str, Any]) -> bytes:
    """Texts of any content; long ones are cut where the line would be too long."""
    line = _dumps(fields)
    if len(line) > _MAX_LINE:
        line = _dumps({name: _cut(value) for name, value in fields.items()})
    return line


def with_priority(lines: bytes, level: int) -> bytes:
    """Returns the lines, each as the journal reads its priority."""
    prefix = _PRIORITIES[level].encode()
    return b"".join(prefix + line for line in lines.splitlines(keepends=True))


def timestamp(seconds: float) -> str:
    """A Unix time as RFC 3339 has it, in UTC with microseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def level_name(level: int) -> str:
    return _NAMES[level]


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # a mistake in a call must not lose the record
        return f"{record.msg!r} (its arguments do not fit: {type(error).__name__})"


def _traceback(error: BaseException | None) -> str:
    if error is None:
        return ""
    if all(len(_text(each)) <= MAX_TRACEBACK for each in _chain(error)):
        return "".join(format_exception(error)).removesuffix("\n")
    # Python takes more than a second for a text of many lines.
    return f"{''.join(format_tb(error.__traceback__))}{type(error).__name__}: {_text(error)}"


def _chain(error: BaseException) -> list[BaseException]:
    """The error, and those that it followed from."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and each not in found:
            found.append(each)
            waiting += [each.__cause__, each.__context__]
    return found


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an error whose text fails must not lose the record
        return ""


def _shorten(traceback: str) -> str:
    if len(traceback) <= MAX_TRACEBACK:
        return traceback
    head, tail = traceback[:_TRACEBACK_HEAD], traceback[_TRACEBACK_HEAD - MAX_TRACEBACK :]
    return f"{head}\n{_cut_note(len(traceback))}\n{tail}"


def _cut_note(length: int) -> str:
    return f" [cut: {length:,} characters]"


def _dumps(fields: Mapping[str, Any]) -> bytes:
    try:
        line = orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
    except (TypeError, ValueError):  # halves of surrogate pairs
        fields = {
            name: value.encode("utf-8", "backslashreplace").decode()
            if isinstance(value, str)
            else value
            for name, value in fields.items()
        }
        line = orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE, default=repr)
    return escape_json(line)


def _cut(value: Any) -> Any:
    """Cuts a value so that any characters fit."""
    if isinstance(value, str) and len(value) > MAX_MESSAGE // 4:
        half = MAX_MESSAGE // 8
        return value[:half] + _cut_note(len(value)) + " " + value[-half:]
    return value
