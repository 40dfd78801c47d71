"""`python -m tests.support.shifted_clock SECONDS ARGUMENT...`: the gateway's command on a machine
whose wall clock is wrong by as many seconds. Steady clocks stay right, as they would there."""

from __future__ import annotations

import sys
import time


def shift_clock(seconds: float) -> None:
    """To be called before anything else is imported: it replaces functions of `time`."""
    nanoseconds = round(seconds * 1e9)
    right_ns, right_clock_ns = time.time_ns, time.clock_gettime_ns

    def clock_ns(clock: int) -> int:
        return right_clock_ns(clock) + (nanoseconds if clock == time.CLOCK_REALTIME else 0)

    time.time_ns = lambda: right_ns() + nanoseconds
    time.time = lambda: (right_ns() + nanoseconds) / 1e9
    time.clock_gettime_ns = clock_ns
    time.clock_gettime = lambda clock: clock_ns(clock) / 1e9


if __name__ == "__main__":
    shift_clock(float(sys.argv.pop(1)))

    from gateway.cli import main

    main()
