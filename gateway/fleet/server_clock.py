"""The database server's clock, estimated from samples. All replicas take times and ids from it, so
that they agree whatever the clocks of their machines say."""

from __future__ import annotations

import time
from collections import deque
from typing import Final, NamedTuple

_SAMPLES: Final = 8
"""The number of samples that are kept: the one with the shortest round trip is used."""
_STEP: Final = 250_000
"""Microseconds: a larger difference than this is corrected at once."""
_SLEW: Final = 1_000
"""Microseconds that each sample corrects at most, so that time does not jump."""


class Sample(NamedTuple):
    """`offset` is the server's clock minus the machine's steady clock at the middle of the round
    trip; both in microseconds."""

    round_trip: int
    offset: int


def steady_microseconds() -> int:
    """A monotonic clock that also runs while the machine sleeps; nobody can set it."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class ServerClock:
    """The machine's own clock until the first sample."""

    def __init__(self) -> None:
        self._offset = time.time_ns() // 1000 - steady_microseconds()
        self._samples: deque[Sample] = deque(maxlen=_SAMPLES)

    def now(self) -> int:
        """Unix microseconds."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000 + self._offset

    @property
    def machine_offset(self) -> float:
        """Returns the seconds by which the machine's clock is ahead of the server's."""
        return (time.time_ns() // 1000 - self.now()) / 1e6

    def add_sample(self, sent_at: int, server_time: int, received_at: int) -> None:
        """`server_time` was read between two moments of `steady_microseconds`."""
        is_first = not self._samples
        offset = server_time - (sent_at + received_at) // 2
        self._samples.append(Sample(received_at - sent_at, offset))
        if abs(offset - self._offset) > _STEP + received_at - sent_at:
            # The server's own clock was set: earlier samples are wrong.
            self._samples = deque([self._samples[-1]], maxlen=_SAMPLES)
            is_first = True
        error = min(self._samples).offset - self._offset
        self._offset += error if is_first else max(-_SLEW, min(error, _SLEW))
