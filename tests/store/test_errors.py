"""What the process log says of an error."""

from __future__ import annotations

import sqlite3

import asyncpg
import pytest
from sqlalchemy.exc import OperationalError

from gateway.store.errors import DatabaseUnavailable, error_reason


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TimeoutError(), "no answer in time"),
        (ConnectionRefusedError(111, "Connection refused"), "[Errno 111] Connection refused"),
        (asyncpg.TooManyConnectionsError("too many clients"), "too many clients"),
        (
            OperationalError("SELECT 1", {}, sqlite3.OperationalError("disk full")),
            "disk full",
        ),
        (DatabaseUnavailable("it is starting"), "The database cannot be used now: it is starting."),
        (KeyError("name"), "KeyError('name')"),
    ],
)
def test_one_line_without_the_statement(error: Exception, reason: str) -> None:
    assert error_reason(error) == reason
