"""What metrics say of the gateway's state at the moment of a scrape."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from gateway.quota.limits import Holder, HolderKind
from gateway.routing.circuit_breaker import HealthState
from gateway.runtime import Runtime
from gateway.telemetry.metrics import Families, Labels

MAX_KEYS: Final = 1000
"""Keys that have series of their own."""

Numbers = dict[Labels, float]


def read_gauges(runtime: Runtime) -> Families:
    """The values of each family that is not counted, by their labels."""
    now = asyncio.get_running_loop().time()
    snapshot, recorder = runtime.current, runtime.recorder
    opened, idle = snapshot.upstream.connections
    spool = recorder.spool
    single: dict[str, float] = {
        "gateway_requests_running": runtime.active_requests,
        "gateway_streams_open": runtime.open_streams,
        "gateway_background_drains": len(runtime.background_drains),
        "gateway_queue_length": runtime.admission.waiting,
        "gateway_client_connections": runtime.client_connections.open,
        "gateway_client_connections_refused_total": runtime.client_connections.refused,
        "gateway_malformed_requests_total": runtime.client_connections.malformed,
        "gateway_bodies_bytes": runtime.bodies.total,
        "gateway_bodies_limit_bytes": snapshot.max_bodies,
        "gateway_log_unwritten_rows": recorder.backlog,
        "gateway_log_unwritten_seconds": recorder.write_delay,
        "gateway_log_spooled_entries": 0 if spool is None else spool.count,
        "gateway_log_spooled_bytes": 0 if spool is None else spool.size,
        "gateway_log_spooled_seconds": 0 if spool is None else spool.seconds,
        "gateway_draining": runtime.draining,
        "gateway_config_last_reload_successful": runtime.config_error is None,
        "gateway_config_last_reload_success_timestamp_seconds": runtime.loaded_at / 1e6,
    }
    families: Families = {name: {(): float(value)} for name, value in single.items()}
    families["gateway_upstream_connections"] = {("busy",): opened - idle, ("idle",): idle}
    families["gateway_upstream_connections_distrusted_total"] = {
        (cause,): count for cause, count in snapshot.upstream.distrusted.items()
    }
    families["gateway_config_info"] = {(snapshot.hash,): 1}
    families["gateway_limit_used_ratio"] = dict(_limits(runtime, now))
    if runtime.config.metrics.keys:
        families["gateway_key_info"] = {
            (token.id, token.name, token.group): 1 for token in runtime.registry.tokens()[:MAX_KEYS]
        }
    return families | _accounts(runtime, now) | runtime.fleet.gauges()


def _accounts(runtime: Runtime, now: float) -> dict[str, Numbers]:
    states: Numbers = {}
    requests: Numbers = {}
    usable: Numbers = {}
    for channel in runtime.config.channels:
        usable[channel.name,] = 0
        for account in channel.accounts:
            ref = channel.name, account.name
            overall = runtime.health.overall(ref, now)
            for state in HealthState:
                states[(*ref, state.value)] = overall.state is state
            usable[channel.name,] += overall.is_usable
            requests[ref] = runtime.current.upstream.in_flight(ref)
    return {
        "gateway_account_state": states,
        "gateway_account_requests": requests,
        "gateway_channel_accounts": {(c.name,): len(c.accounts) for c in runtime.config.channels},
        "gateway_channel_accounts_usable": usable,
    }


def _limits(runtime: Runtime, now: float) -> Iterator[tuple[Labels, float]]:
    at = runtime.now()
    for holder in _holders(runtime):
        for name, ratio in runtime.quota.used_ratios(holder, at, now):
            yield (holder.kind.value, holder.id, name), ratio


def _holders(runtime: Runtime) -> Iterator[Holder]:
    yield runtime.current.gateway_holder
    for group in runtime.registry.groups():
        yield Holder(HolderKind.GROUP, group.name, group.name, group.limits)
    if runtime.config.metrics.keys:
        for token in runtime.registry.tokens()[:MAX_KEYS]:
            yield Holder(HolderKind.KEY, token.id, token.name, token.limits)
