"""Options of traces."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.secrets import resolve_header
from gateway.config.types import ConfigModel, HeaderName, Seconds, check_url

_TRACES_PATH = "/v1/traces"


def _with_path(url: str) -> str:
    return url if urlsplit(url).path else url + _TRACES_PATH


class TraceOptions(ConfigModel):
    """OpenTelemetry spans of requests, attempts and web searches, sent by OTLP over HTTP. Needs the
    extra "otel"."""

    endpoint: Annotated[str, AfterValidator(check_url), AfterValidator(_with_path)] | None = None
    """The collector, such as http://127.0.0.1:4318; without a path /v1/traces is appended. null:
    $OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or $OTEL_EXPORTER_OTLP_ENDPOINT."""
    headers: Mapping[HeaderName, Annotated[SecretStr, AfterValidator(resolve_header)]] = {}
    """Headers for the collector, as for channels."""
    sample: float | None = Field(default=None, ge=0, le=1)
    """The share of traces that begin here and are sent; those of clients with a traceparent are
    sent where the client's are. null: $OTEL_TRACES_SAMPLER, or all."""
    propagate: bool = True
    """Whether upstreams get traceparent and tracestate."""
    timeout: Seconds = 10
    """How long the collector may take for a batch; "10s" is accepted too."""

    @model_validator(mode="after")
    def _check_extra(self) -> TraceOptions:
        if not has_opentelemetry():
            text = "needs OpenTelemetry: pip install 'model-gateway[otel]'"
            raise PydanticCustomError("traces", "{text}", {"text": text})
        return self


def has_opentelemetry() -> bool:
    """Whether the extra is installed."""
    try:
        return all(
            find_spec(name) is not None
            for name in ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")
        )
    except ModuleNotFoundError:
        return False
