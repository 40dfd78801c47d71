"""Lines of the process log are bounded, and none of their events is lost."""

from __future__ import annotations

from itertools import count

import pytest

from gateway.server.http.connections import LineLimit


def test_a_line_stands_for_all_events_since_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    times = count(1000.0, 0.25)
    monkeypatch.setattr("time.monotonic", lambda: next(times))
    limit = LineLimit(1.0)
    assert [limit.count() for _ in range(9)] == [1, 0, 0, 0, 4, 0, 0, 0, 4]
