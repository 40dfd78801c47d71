"""Options of alerts, metrics, traces and the process log."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from importlib.util import find_spec
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Field,
    IPvAnyNetwork,
    SecretStr,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from gateway.config.secrets import SecretResolver, resolve_header, resolve_key
from gateway.config.types import (
    Bytes,
    ConfigModel,
    HeaderName,
    Name,
    Seconds,
    check_url,
    check_webhook_url,
)
from gateway.core.value import FastStrEnum

MAX_WEBHOOKS: Final = 20

Percent = Annotated[int, Field(ge=1, le=100)]


class AlertKind(FastStrEnum):
    """The kind of an alert: what is watched. `key_new_client` and `test` are events: they do not
    last."""

    ACCOUNT_AUTH_FAILED = "account_auth_failed"
    ACCOUNT_CIRCUIT_OPEN = "account_circuit_open"
    CHANNEL_DOWN = "channel_down"
    BUDGET_USED = "budget_used"
    ERROR_RATE = "error_rate"
    CONFIG_INVALID = "config_invalid"
    DISK_LOW = "disk_low"
    LOG_UNWRITABLE = "log_unwritable"
    KEY_NEW_CLIENT = "key_new_client"
    TEST = "test"


def _resolve_url(reference: SecretStr, info: ValidationInfo) -> SecretStr:
    """The address itself where the context is a `SecretResolver`; else as written, unchecked where
    it is a reference."""
    url = reference.get_secret_value()
    if isinstance(info.context, SecretResolver):
        url = info.context.resolve(url, plain=True)
    elif url.startswith(("$", "file:")):
        return reference
    return SecretStr(check_webhook_url(url))


class Webhook(ConfigModel):
    """A receiver of alerts. Redirects are not followed; certificates are verified."""

    name: Name
    """The name for commands and the log."""
    url: Annotated[SecretStr, AfterValidator(_resolve_url)]
    """The address that gets a POST for each alert; as a rule a secret, so a reference is accepted
    as for keys. http:// only reaches allowed_networks."""
    secret: Annotated[SecretStr, AfterValidator(resolve_key)] | None = None
    """Signs each message with HMAC-SHA256 in x-gateway-signature; a reference or the secret itself,
    as for accounts; null: not signed."""
    headers: Mapping[HeaderName, Annotated[SecretStr, AfterValidator(resolve_header)]] = {}
    """Additional headers, as for channels."""
    format: Literal["json", "slack"] = "json"
    """json: the documented fields; slack: only {"text": …}, as Slack and Mattermost take it, and
    Discord at an address that ends in /slack."""
    events: tuple[AlertKind, ...] | None = Field(default=None, min_length=1)
    """The alerts that it gets; absent: all."""
    allowed_networks: tuple[IPvAnyNetwork, ...] = ()
    """Networks that it may be in besides public addresses, such as 10.1.2.3/32."""
    timeout: Annotated[Seconds, Field(le=60)] = 10
    """The time that one delivery may take; "10s" is accepted too."""

    @model_validator(mode="after")
    def _check_scheme(self) -> Self:
        if self.url.get_secret_value().startswith("http:") and not self.allowed_networks:
            raise PydanticCustomError(
                "address", "http:// needs allowed_networks: messages are not encrypted there"
            )
        return self

    def takes(self, kind: AlertKind) -> bool:
        return self.events is None or kind in self.events or kind is AlertKind.TEST


class ErrorRate(ConfigModel):
    """Requests that failed for a reason of the gateway or an upstream, not of the client."""

    above: float = Field(default=0.2, gt=0, le=1)
    """The share of failed requests from which on it is an alert."""
    window: Annotated[Seconds, Field(ge=10, le=3600)] = 300
    """The time over which it is measured; "5m" is accepted too."""
    min_requests: int = Field(default=20, ge=1)
    """The number of requests in this time below which there is no alert."""


class DiskFree(ConfigModel):
    """Free space of the file system with the state directory; less than one of the two is an
    alert."""

    percent: int = Field(default=5, ge=0, le=100)
    """Free percent."""
    bytes: Bytes = 2**30
    """Free bytes; "1GiB" is accepted too."""


class Alerts(ConfigModel):
    """The alerts: what is watched, and who is told; the section alone switches it on."""

    webhooks: tuple[Webhook, ...] = Field(default=(), max_length=MAX_WEBHOOKS)
    """The receivers; without any, alerts are in the process log and in `gateway alerts list`."""
    budget: tuple[Percent, ...] = (80, 100)
    """Used percents of a key's or group's budgets that are alerts; []: none."""
    error_rate: ErrorRate | None = ErrorRate()
    """The share of failed requests; null: not watched."""
    disk_free: DiskFree | None = DiskFree()
    """Free space for the database; null: not watched."""
    check_every: Annotated[Seconds, Field(ge=0.05, le=60)] = 5
    """The time between checks of the conditions; "5s" is accepted too."""
    clear_after: Seconds = 60
    """The time for which a condition has to be over before its alert is resolved; "1m" is accepted
    too."""


class MetricsSettings(ConfigModel):
    """Metrics for Prometheus at /metrics."""

    enabled: bool = True
    """Whether they are counted and served."""
    token: Annotated[SecretStr, AfterValidator(resolve_key)] | None = None
    """The bearer token that every reader needs then; a reference or the token itself, as for
    accounts. null: readers on this machine need none, and others get nothing."""
    keys: bool = False
    """Whether requests, tokens, units and limits of each key are series of their own."""


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
    """The time that the collector may take for a batch; "10s" is accepted too."""

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


class LogFormat(StrEnum):
    """`json`: an object per line; `text`: for people."""

    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    """The least severe records that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class ProcessLogOptions(ConfigModel):
    """The log that the gateway writes to standard error."""

    format: LogFormat = LogFormat.TEXT
    """text or json: an object per line, with ts, level, logger and message."""
    level: LogLevel = LogLevel.INFO
    """The least severe records that are written: debug, info, warning or error."""
    requests: bool = False
    """Whether each request is a line too, of level info or, if it has failed, warning."""
