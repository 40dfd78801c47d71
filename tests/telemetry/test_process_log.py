"""Lines of the process log."""

from __future__ import annotations

import logging

from gateway.telemetry.process_log import LogFormatter


def test_log_lines_cannot_be_forged() -> None:
    formatter = LogFormatter("%(levelname)s %(name)s: %(message)s")
    try:
        raise ValueError("a\x1b[31m\nINFO gateway: all is well")
    except ValueError as error:
        told = (type(error), error, error.__traceback__)
    text = "\u202e\x1b[2J\nINFO gateway: all is well"
    record = logging.LogRecord("gateway", logging.ERROR, "f", 1, "from %s", (text,), told)
    first, *traceback = formatter.format(record).split("\n")
    assert first == "ERROR gateway: from \\u202e\\x1b[2J\\nINFO gateway: all is well"
    assert traceback[0].startswith("Traceback")
    assert all(line.isprintable() for line in traceback)
