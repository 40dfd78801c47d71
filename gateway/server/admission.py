"""Acquires the limits of a request that costs nothing: counting tokens, filling a cache."""

from __future__ import annotations

from gateway.admission.access import Permit
from gateway.server.record.exchange import Exchange


async def acquire_free(exchange: Exchange, permit: Permit, model: str) -> None:
    """Raises what `AdmissionQueue.acquire` raises."""
    runtime, meter = exchange.runtime, exchange.meter
    demand = meter.free_demand(permit, model)
    entry, meter.lease = meter.lease, None
    if runtime.shared_admission is None:
        meter.lease = runtime.queue.acquire(demand, entry)
    else:
        meter.lease = await runtime.shared_admission.acquire(permit, demand, entry)
