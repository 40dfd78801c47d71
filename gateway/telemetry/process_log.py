"""The log of the process on standard error."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Final

from gateway.config.monitoring import LogFormat, ProcessLogOptions
from gateway.config.redaction import LogRedactor
from gateway.config.schema import Config
from gateway.store.records import RequestRow
from gateway.telemetry.line_writer import LineWriter
from gateway.telemetry.log_lines import Incident, json_line, with_priority
from gateway.telemetry.observed_request import ObservedRequest, Observer
from gateway.telemetry.request_lines import (
    request_fields,
    request_level,
    request_object,
    request_text,
)

CLOSE_TIMEOUT: Final = 3.0
"""Seconds that the end of the process waits for standard error."""
_STDERR: Final = 2
_ROW_SIZE: Final = 512

log = logging.getLogger(__name__)


class ProcessLog(logging.Handler):
    """The one handler of the root logger. Records are rendered and written by a thread, without
    secrets, as JSON or as text; a record is one line, in text with one for each of its
    traceback's."""

    def __init__(self, descriptor: int = _STDERR) -> None:
        super().__init__()
        self._redactor = LogRedactor()
        self._options = ProcessLogOptions()
        self._for_journal = is_journal(descriptor)
        self._writer = LineWriter(descriptor, self._dropped_note)

    @property
    def is_json(self) -> bool:
        return self._options.format is LogFormat.JSON

    def install(self) -> None:
        """Becomes the root logger's handler, and for errors that nothing else catches."""
        root = logging.getLogger()
        root.handlers[:] = [self]
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_uncaught_in_thread
        sys.unraisablehook = _log_unraisable
        self._set_level()

    def configure(self, config: Config) -> None:
        """Applies `server.log`, and learns the secrets of the configuration; those of earlier ones
        remain known."""
        self._redactor.learn(config)
        self._options = config.server.log
        self._set_level()

    def learn(self, issued: Collection[str]) -> None:
        """Learns the credentials that are issued now, in place of those before."""
        self._redactor.learn_issued(issued)

    def emit(self, record: logging.LogRecord) -> None:
        incident = Incident.of(record)
        urgent = record.levelno >= logging.WARNING
        self._writer.put(partial(self._render_incident, incident), incident.size, urgent=urgent)

    def write(self, text: str) -> None:
        """Text as it is, where the process says why it ends."""
        self._writer.put(lambda: _line(self._redactor.redact(text)), len(text), urgent=True)

    def request_observer(self, key_of: Callable[[str], str]) -> Observer:
        """Writes a line for each request; `key_of` gives what may be shown of a token's key."""

        def observe(ended: ObservedRequest) -> None:
            row = ended.row
            if request_level(row) >= self.level:
                trace_id = "" if ended.trace is None else ended.trace.trace_id
                render = partial(self._render_request, row, key_of(row.token_id), trace_id)
                self._writer.put(render, _ROW_SIZE, urgent=False)

        return observe

    def flush(self) -> None:
        self._writer.flush(CLOSE_TIMEOUT)

    def close(self) -> None:
        self._writer.close(CLOSE_TIMEOUT)
        super().close()

    def _set_level(self) -> None:
        """Libraries write no more than `info`: what aiosqlite says in debugging contains rows."""
        level = logging.getLevelNamesMapping()[self._options.level.upper()]
        self.setLevel(level)
        logging.getLogger("gateway").setLevel(level)
        logging.getLogger().setLevel(max(level, logging.INFO))

    def _render_incident(self, incident: Incident) -> bytes:
        redact = self._redactor.redact
        if self.is_json:
            return self._finish(json_line(incident.fields(redact)), incident.level)
        return self._finish(_line(incident.text(redact)), incident.level)

    def _render_request(self, row: RequestRow, key: str, trace_id: str) -> bytes:
        level = request_level(row)
        fields = request_fields(row, key, trace_id, self._redactor.redact)
        if self.is_json:
            return self._finish(json_line(request_object(row, fields)), level)
        return self._finish(_line(request_text(row, fields)), level)

    def _finish(self, lines: bytes, level: int) -> bytes:
        return with_priority(lines, level) if self._for_journal else lines

    def _dropped_note(self, count: int) -> bytes:
        text = "%d lines were dropped: standard error was not read as fast as they came"
        record = log.makeRecord(log.name, logging.WARNING, "", 0, text, (count,), None)
        return self._render_incident(Incident.of(record))


@contextmanager
def log_to_stderr() -> Iterator[ProcessLog]:
    """The log of this process; at the end everything is written."""
    process_log = ProcessLog()
    process_log.install()
    try:
        yield process_log
    finally:
        process_log.close()


def is_journal(descriptor: int) -> bool:
    """Whether it leads to systemd's journal, as systemd.exec(5) describes."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def _line(text: str) -> bytes:
    return (text + "\n").encode("utf-8", "backslashreplace")


def _log_uncaught(
    type_: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    if issubclass(type_, KeyboardInterrupt):
        sys.__excepthook__(type_, error, traceback)
        return
    log.critical("an unexpected error ends the process", exc_info=(type_, error, traceback))


def _log_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is None:
        return
    name = args.thread.name if args.thread else "unknown"
    told = (args.exc_type, args.exc_value, args.exc_traceback)
    log.error("an unexpected error ended the thread %s", name, exc_info=told)


def _log_unraisable(args: Any) -> None:
    told = (args.exc_type, args.exc_value or args.exc_type(), args.exc_traceback)
    log.error("an error was ignored in %r", args.object, exc_info=told)
