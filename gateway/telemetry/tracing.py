"""Switches traces on and off. OpenTelemetry is only imported where they are on."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from gateway.config.monitoring import TraceOptions, has_opentelemetry

if TYPE_CHECKING:
    from gateway.telemetry.spans import Tracer

FLUSH_TIMEOUT: Final = 3.0
"""Seconds that the end of the process waits for the collector."""
_POLL: Final = 0.02
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

log = logging.getLogger(__name__)


@asynccontextmanager
async def tracing(options: TraceOptions | None) -> AsyncIterator[Tracer | None]:
    """The tracer of this process, None if traces are off; at the end it sends what waits."""
    tracer = _start(options)
    try:
        yield tracer
    finally:
        if tracer is not None:
            await _close(tracer)


def _start(options: TraceOptions | None) -> Tracer | None:
    environ = os.environ
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if options is None:
        is_otlp = environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() == "otlp"
        if not (is_otlp and any(environ.get(name) for name in _ENDPOINTS)):
            return None
        if not has_opentelemetry():
            text = "no traces, although the environment names a collector: %s"
            log.warning(text, "pip install 'model-gateway[otel]'")
            return None
        options = TraceOptions()
    from gateway.telemetry.spans import Tracer

    return Tracer(options)


async def _close(tracer: Tracer) -> None:
    """The collector may not answer, so a thread waits for it that the end of the process does not
    wait for."""
    thread = threading.Thread(target=tracer.shutdown, name="traces", daemon=True)
    thread.start()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + FLUSH_TIMEOUT
    while thread.is_alive() and loop.time() < deadline:
        await asyncio.sleep(_POLL)
    if thread.is_alive():
        log.warning("some spans were not sent: the collector takes too long")
        tracer.give_up()
