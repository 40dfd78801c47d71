"""Exchanges as they end: what `gateway logs tail --follow` waits for.

It must not know how a row is shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from gateway.cli.client import Client, quote_path

Row = dict[str, Any]

_FIRST_ID = "req_"  # sorts before every id
_PAGE_SIZE = 1000
_OVERLAP = 5


class LogFollower:
    """Asked again and again, gives each exchange that has ended once, by time of its ending.

    Ids are ordered by an exchange's start, but rows appear when its body is read: an id may come
    after a later one. So each look goes back as far as the look `_OVERLAP` times ago, and what is
    open is asked for by its state.
    """

    def __init__(self, known: Iterable[Row]) -> None:
        """`known` are the newest rows, which were shown already, newest first."""
        known = list(known)
        self._starts = deque([known[0]["id"] if known else _FIRST_ID], maxlen=_OVERLAP)
        self._open = {row["id"] for row in known if row["state"] == "open"}
        self._told = {row["id"] for row in known} - self._open

    def poll(self, client: Client) -> list[Row]:
        """The rows of the exchanges that have ended since the last look."""
        fresh = _after(client, self._starts[0])
        self._open |= {row["id"] for row in fresh if row["state"] == "open"}
        running = {row["id"] for row in _page(client, state="open")}
        gone = self._open - running
        rows = {row["id"]: row for row in fresh}
        rows |= {each: client.get(f"/requests/{quote_path(each)}") for each in gone}
        ended = {
            each: row
            for each, row in rows.items()
            if row["state"] != "open" and each not in self._told
        }
        self._open = (running | gone) - ended.keys()
        self._told |= ended.keys()
        self._move_on(fresh)
        return sorted(ended.values(), key=lambda row: row["started_at"] + (row["total_us"] or 0))

    def _move_on(self, fresh: list[Row]) -> None:
        self._starts.append(max((row["id"] for row in fresh), default=self._starts[-1]))
        self._told = {each for each in self._told if each > self._starts[0]}


def _after(client: Client, start: str) -> list[Row]:
    rows: list[Row] = []
    while page := _page(client, after=start):
        rows += page
        start = page[0]["id"]
    return rows


def _page(client: Client, **query: str) -> list[Row]:
    rows: list[Row] = client.get("/requests", limit=_PAGE_SIZE, **query)["requests"]
    return rows
