"""Searches of the request log as with very many rows, whatever the machine: no page is found at
once, and one call reads some minutes of the log."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from gateway.store.log import search
from gateway.store.sqlite import database


def slow_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """A span of a minute takes as long as it should: a call reads three of them."""
    clock: Iterator[int] = count()
    monkeypatch.setattr(search, "monotonic", lambda: next(clock) * 0.2)
    monkeypatch.setattr(search, "_AT_ONCE", -1.0)
    monkeypatch.setattr(database, "_CLOCK_INTERVAL", 1)  # SQLite notices at once
