"""Memory that a test has used is free at its end; a worker runs thousands."""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path
from typing import Final

from aiohttp import web_app

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_LARGE: Final = 256 * 2**10
_MUCH: Final = 32 * 2**20
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")

_left = 0
"""What this process occupied after the last garbage collection here."""


def pytest_configure() -> None:
    """glibc would give large bodies back to the system only until the first one is freed: then it
    keeps all of them up to that size. Set here, not in the environment: gateways that are processes
    of their own have what users have."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
        mallopt(_M_TRIM_THRESHOLD, _LARGE)


def pytest_runtest_logfinish() -> None:
    """aiohttp remembers the middlewares of 1,024 handlers, and with them their applications: 2 MB
    of each gateway. Large bodies in reference cycles are few objects, which no collection is due
    for."""
    global _left
    web_app._cached_build_middleware.cache_clear()
    if _occupied() > _left + _MUCH:
        gc.collect()
        _left = _occupied()


def _occupied() -> int:
    """0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0
