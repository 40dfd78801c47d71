"""A record is one line of JSON, or one of text, whatever is in it."""

from __future__ import annotations

import logging
import time
from typing import Any

import orjson
import pytest

from gateway.telemetry.log_lines import (
    MAX_MESSAGE,
    MAX_TRACEBACK,
    Incident,
    json_line,
    with_priority,
)

HOSTILE = "\u202e\x1b[2J\r\nINFO gateway: all is well\x00\x9b\u2028\ud800"


def record(message: str, *args: Any, error: BaseException | None = None) -> logging.LogRecord:
    told = (type(error), error, error.__traceback__) if error is not None else None
    return logging.LogRecord("gateway.server", logging.ERROR, "f", 1, message, args, told)


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def unchanged(text: str) -> str:
    return text


def as_json(incident: Incident) -> Any:
    line = json_line(incident.fields(unchanged))
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert all(character.isprintable() for character in line.decode()[:-1])
    assert len(line) < 48 * 1024, "the journal divides longer lines"
    return orjson.loads(line)


def test_a_record_as_json() -> None:
    incident = Incident.of(record("%s: it failed", "req_" + 24 * "a", error=raised(KeyError("x"))))
    fields = as_json(incident)
    traceback = fields.pop("traceback")
    assert traceback.startswith("Traceback (most recent call last):\n")
    assert traceback.endswith("KeyError: 'x'")
    assert fields.pop("ts").endswith("Z")
    assert fields == {
        "level": "error",
        "logger": "gateway.server",
        "message": f"req_{24 * 'a'}: it failed",
        "request_id": "req_" + 24 * "a",
        "exception": "KeyError",
    }


def test_lines_cannot_be_forged() -> None:
    incident = Incident.of(record("from %s", HOSTILE, error=raised(ValueError(HOSTILE))))
    fields = as_json(incident)
    assert fields["message"] == f"from {HOSTILE[:-1]}\\ud800"
    first, *traceback = incident.text(unchanged).split("\n")
    assert first == (
        "ERROR gateway.server: from \\u202e\\x1b[2J\\r\\nINFO gateway: all is well"
        "\\x00\\x9b\\u2028\\ud800"
    )
    assert traceback[0].startswith("Traceback")
    assert all(line.isprintable() for line in traceback)
    assert not any(line.startswith("INFO") and "Traceback" in line for line in traceback)


@pytest.mark.large
@pytest.mark.parametrize("piece", ["x", "\n", "\x1b", "\U0001f600", "line\n"])
def test_a_record_of_ten_megabytes(piece: str) -> None:
    size = 10 * 2**20
    text = piece * (size // len(piece))
    error = raised(ValueError(text))
    started = time.perf_counter()
    incident = Incident.of(record("%s", text, error=error))
    assert incident.size <= MAX_MESSAGE + MAX_TRACEBACK + 100
    fields = as_json(incident)
    assert "[cut: " in fields["message"]
    assert "[cut: " in fields["traceback"]
    assert len(incident.text(unchanged)) < 20 * (MAX_MESSAGE + MAX_TRACEBACK)
    assert time.perf_counter() - started < 5


def test_redaction_comes_before_the_end_of_a_cut_text() -> None:
    """A secret that was cut is still recognised there."""

    def redact(text: str) -> str:
        return text.removesuffix("sec") + "<end>"

    message = "x" * (MAX_MESSAGE - 3) + "secret"
    told = Incident.of(record("%s", message)).text(redact)
    assert told.endswith(f"x<end> [cut: {len(message):,} characters]")


def test_a_mistake_in_the_call_loses_no_record() -> None:
    told = as_json(Incident.of(record("%d of %s", "x")))["message"]
    assert told == "'%d of %s' (its arguments do not fit: TypeError)"


def test_priorities_of_the_journal() -> None:
    assert with_priority(b"one\ntwo\n", logging.WARNING) == b"<4>one\n<4>two\n"


def test_levels_between_the_usual_ones() -> None:
    odd = logging.LogRecord("a", 35, "f", 1, "m", (), None)
    assert Incident.of(odd).level == logging.WARNING
    assert Incident.of(logging.LogRecord("a", 5, "f", 1, "m", (), None)).level == logging.DEBUG
