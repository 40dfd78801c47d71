"""`GET /metrics`: for Prometheus on the same machine, or with a bearer token."""

from __future__ import annotations

import asyncio
import platform
from functools import cache
from hmac import compare_digest
from typing import Final

from aiohttp import ClientConnectionResetError, hdrs, web

from gateway import __version__, commit
from gateway.admission.local_client import is_local_client
from gateway.errors import InvalidApiKey, InvalidUrl, MissingApiKey, PermissionDenied
from gateway.runtime import Runtime
from gateway.server.exchange import EXCHANGE, RUNTIME
from gateway.server.gauges import read_gauges
from gateway.telemetry.metrics import Families, Metrics

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
