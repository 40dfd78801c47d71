"""Acquires the limits of a request that costs nothing: counting tokens, filling a cache."""

from __future__ import annotations

from gateway.admission.access import Permit
from gateway.server.record.exchange import Exchange


async def acquire_free(exchange: Exchange, permit: Permit, model: str) -> None:
    """Raises what `Admission.acquire` raises."""
    meter = exchange.meter
    demand = meter.free_demand(permit, model)
    entry, meter.reservation = meter.reservation, None
    meter.reservation = await exchange.runtime.admission.acquire(permit, demand, entry)
