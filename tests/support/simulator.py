"""The simulated model of the demo, on a loopback port of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from gateway.simulator import build_simulator


@asynccontextmanager
async def run_simulator(pace: float = 0) -> AsyncIterator[str]:
    """Its address, without /v1. `pace` is the delay between two events, in seconds."""
    runner = web.AppRunner(build_simulator(pace=pace))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
