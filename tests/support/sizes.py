"""How much tests of outages and kills do: a part of it for every change, all of it with
`GATEWAY_FULL_SIZE=1`, as in `make check-full`."""

from __future__ import annotations

import os
from typing import Final

FULL: Final = os.environ.get("GATEWAY_FULL_SIZE") == "1"


def sized(small: int, full: int) -> int:
    return full if FULL else small


REQUESTS_OF_A_BUDGET: Final = sized(5_000, 50_000)
KILLS: Final = sized(3, 20)
"""Of replicas."""
DEATHS: Final = sized(5, 20)
"""Of one gateway on one state directory."""
FLUSHES: Final = sized(3, 6)
FLUSH_INTERVAL: Final = sized(3, 10)
"""Seconds."""
OUTAGE: Final = sized(12, 60)
"""Seconds that PostgreSQL is stopped."""
