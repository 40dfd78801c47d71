"""The event loops on which connections are tested."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

BOTH_LOOPS = ("test_connection", "test_response", "test_pool", "test_proxy_tunnel")
"""What the names of modules begin with whose tests run on the loop of the gateway and on that of
the standard library: their transports differ in when they call back, and in what they raise."""


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.path.name.startswith(BOTH_LOOPS):
        loops["uvloop"] = uvloop.new_event_loop
    return loops
