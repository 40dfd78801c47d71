"""How much the tests of this folder send: a part of it in the suite, all of it with
`GATEWAY_FLEET_FULL=1`, which takes about half an hour."""

from __future__ import annotations

import os
from typing import Final

FULL: Final = os.environ.get("GATEWAY_FLEET_FULL") == "1"


def sized(small: int, full: int) -> int:
    return full if FULL else small


REQUESTS_OF_A_BUDGET: Final = sized(5_000, 50_000)
KILLS: Final = sized(3, 20)
FLUSHES: Final = sized(3, 6)
FLUSH_INTERVAL: Final = sized(3, 10)
"""Seconds."""
OUTAGE: Final = sized(12, 60)
"""Seconds that PostgreSQL is stopped."""
