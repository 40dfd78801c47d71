"""`GET /metrics`: what has been counted, and the gateway's state at the moment of a scrape; for
Prometheus on the same machine, or with a bearer token."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Iterator
from functools import cache
from hmac import compare_digest
from typing import Final

from aiohttp import hdrs, web

from gateway import __version__, commit
from gateway.admission.local_client import is_local_client
from gateway.errors import InvalidApiKey, InvalidUrl, MissingApiKey, PermissionDenied
from gateway.quota.limits import Holder, HolderKind
from gateway.routing.circuit_breaker import HealthState
from gateway.runtime import Runtime
from gateway.server.http.long_response import PIECE, send_long
from gateway.server.record.exchange import RUNTIME
from gateway.telemetry.metrics import Families, Labels, Metrics

MAX_KEYS: Final = 1000
"""Keys that have series of their own."""

Numbers = dict[Labels, float]

NOT_LOCAL: Final = (
    "Metrics are readable on the gateway's own machine, without a proxy; others need metrics.token"
)
UNAUTHENTICATED: Final = "Metrics need their token (metrics.token): Authorization: Bearer TOKEN"


async def show_metrics(request: web.Request) -> web.StreamResponse:
    """404 where they are off; 401 or 403 for those that may not read them."""
    runtime = request.app[RUNTIME]
    metrics = runtime.metrics
    if metrics is None:
        raise InvalidUrl(request.method, request.path)
    _check_reader(request, runtime)
    accept = request.headers.get(hdrs.ACCEPT, "")
    async with runtime.metrics_rendering:
        metrics.count_ended()
        gauges = read_gauges(runtime)
        run = runtime.operator_worker.run
        text, content_type = await run("", "", _render, metrics, gauges, accept)
    # A scrape is needed most when the memory for replies is used up.
    pieces = [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
    return await send_long(request, {hdrs.CONTENT_TYPE: content_type}, pieces)


def _render(metrics: Metrics, gauges: Families, accept: str) -> tuple[bytes, str]:
    # Here, as a gateway without metrics needs no library for them.
    from gateway.telemetry.exposition import render

    samples = {name: numbers.items() for name, numbers in gauges.items()}
    samples["gateway_build_info"] = {_build(): 1.0}.items()
    return render(metrics, samples, accept)


@cache
def _build() -> tuple[str, str, str]:
    return __version__, commit() or "", platform.python_version()


def _check_reader(request: web.Request, runtime: Runtime) -> None:
    """Raises `MissingApiKey`, `InvalidApiKey` or `PermissionDenied`."""
    token = runtime.config.metrics.token
    if token is None:
        if not is_local_client(request, runtime.config.server.trusted_proxies):
            raise PermissionDenied(NOT_LOCAL)
        return
    scheme, _, presented = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    if scheme.lower() != "bearer" or not presented.strip():
        raise MissingApiKey(UNAUTHENTICATED)
    expected = token.get_secret_value().encode()
    if not compare_digest(presented.strip().encode("utf-8", "surrogateescape"), expected):
        raise InvalidApiKey


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
        "gateway_recent_bodies_bytes": runtime.recent_bodies.bytes,
        "gateway_log_unwritten_rows": recorder.backlog,
        "gateway_log_unwritten_seconds": recorder.write_delay,
        "gateway_log_journal": recorder.has_journal,
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
            (token.id, token.name, token.group): 1 for token in runtime.registry.tokens(MAX_KEYS)
        }
    credentials = dict(snapshot.upstream.credentials())
    families["gateway_credential_refreshes_total"] = {
        (*ref, outcome): count
        for ref, credential in credentials.items()
        for outcome, count in credential.refreshes.items()
    }
    families["gateway_credential_expiry_timestamp_seconds"] = {
        ref: credential.expires_at
        for ref, credential in credentials.items()
        if credential.expires_at is not None
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
        for token in runtime.registry.tokens(MAX_KEYS):
            yield Holder(HolderKind.KEY, token.id, token.name, token.limits)
