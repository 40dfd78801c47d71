"""`GET /metrics`: what has been counted, and the gateway's state at the moment of a scrape; for
Prometheus on the same machine, or with a bearer token."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Iterator, Mapping
from functools import cache
from hmac import compare_digest
from typing import TYPE_CHECKING, Final

from aiohttp import ClientConnectionResetError, hdrs, web

from gateway import __version__, commit
from gateway.admission.local_client import is_local_client
from gateway.core.histogram import Histogram
from gateway.errors import InvalidApiKey, InvalidUrl, MissingApiKey, PermissionDenied
from gateway.quota.limits import Holder, HolderKind
from gateway.routing.circuit_breaker import HealthState
from gateway.runtime import Runtime
from gateway.server.http.health import STALE, shared_status
from gateway.server.record.exchange import EXCHANGE, RUNTIME
from gateway.telemetry.metrics import Labels, Metrics

if TYPE_CHECKING:  # one process alone does not have its libraries
    from gateway.shared.limits import SharedLimits

MAX_KEYS: Final = 1000
"""Keys that have series of their own."""

MAX_AGE: Final = 86400.0
"""Seconds: before the first contact it is unlimited."""

Numbers = dict[Labels, float]
Families = dict[str, Mapping[Labels, float | Histogram]]

READ_SECONDS: Final = 30.0
"""A reader that takes longer is cut off; Prometheus itself waits for 10 seconds."""

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
    if request.method == hdrs.METH_HEAD:
        return web.Response(body=text, headers={hdrs.CONTENT_TYPE: content_type})
    return await _send(request, text, content_type)


async def _send(request: web.Request, text: bytes, content_type: str) -> web.StreamResponse:
    """Not within the memory of replies: where that is used up, a scrape is needed most."""
    response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: content_type})
    response.content_length = len(text)
    exchange = request[EXCHANGE]
    exchange.headers_sent = True
    try:
        async with asyncio.timeout(READ_SECONDS):
            await response.prepare(request)
            await response.write(text)
            await response.write_eof()
    except TimeoutError:
        exchange.client_stalled()
        if request.transport is not None:
            request.transport.abort()
        raise ClientConnectionResetError("the reader of metrics does not read") from None
    exchange.bytes_out = len(text)
    exchange.complete()
    return response


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
        "gateway_queue_length": len(runtime.queue),
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
    if runtime.shared_admission is not None and runtime.shared_admission.limits is not None:
        families |= _shared(runtime.shared_admission.limits)
    families["gateway_limit_used_ratio"] = dict(_limits(runtime, now))
    if runtime.config.metrics.keys:
        families["gateway_key_info"] = {
            (token.id, token.name, token.group): 1 for token in runtime.registry.tokens()[:MAX_KEYS]
        }
    return families | _accounts(runtime, now) | _replicas(runtime)


def _replicas(runtime: Runtime) -> dict[str, Numbers]:
    own, contact = runtime.replica, runtime.contact
    if own is None or contact is None:
        return {}
    single = {
        "gateway_replica_is_leader": own.is_leader,
        "gateway_database_up": contact.contact_age <= STALE,
        "gateway_database_contact_age_seconds": min(contact.contact_age, MAX_AGE),
        "gateway_key_changes_confirmed": contact.is_confirmed,
        "gateway_key_changes_apply_seconds": contact.lag,
        "gateway_clock_offset_seconds": contact.clock_offset,
    }
    families: dict[str, Numbers] = {name: {(): float(value)} for name, value in single.items()}
    absent = runtime.replicas_absent_from_shared()
    states = {"living": own.position[1], "lost": own.lost, "absent": len(absent)}
    families["gateway_replicas"] = {(state,): float(number) for state, number in states.items()}
    if (shared := shared_status(runtime)) is not None:
        families["gateway_shared_up"] = {(): float(shared == "ok")}
    return families


def _shared(limits: SharedLimits) -> Families:
    times = Histogram(limits.answers.bounds)  # a copy: a thread writes it out
    times.add(limits.answers)
    return {
        "gateway_shared_lost_seconds_total": {(): limits.lost_seconds},
        "gateway_shared_answer_seconds": {(): times},
    }


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
