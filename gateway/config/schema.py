"""The configuration file's options as frozen pydantic models; `Config` is the whole file."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import AfterValidator, BeforeValidator, Field, IPvAnyNetwork, WithJsonSchema
from pydantic_core import PydanticCustomError, to_json

from gateway.config.channel import Channel, FailureRule, Traits
from gateway.config.cluster import DatabaseOption, Replica, SharedOption
from gateway.config.limits import (
    AuditLog,
    DatedPrices,
    Money,
    Multiplier,
    Rates,
    RequestLog,
    SharedLimits,
    StoredReplies,
    UserAgents,
)
from gateway.config.locate import MAX_SOCKET_PATH, SOCKET_NAME
from gateway.config.monitoring import Alerts, MetricsSettings, ProcessLogOptions, TraceOptions
from gateway.config.search import SearchEndpoint
from gateway.config.types import (
    Bytes,
    ConfigModel,
    HeaderName,
    Host,
    ModelAlias,
    ModelId,
    Seconds,
    check_url,
)
from gateway.core.formats import Family, Format
from gateway.core.text import list_names

_MAX_LISTED: Final = 20
"""Names in one warning."""


class Lifecycle(StrEnum):
    """A retired model answers like an unknown one; a deprecated one is marked in the model list."""

    ACTIVE = "active"
    DEPRECATED = "deprecated"
    RETIRED = "retired"


class Model(ConfigModel):
    """A model of the catalog (Specification, "Model catalog"). Where its id is one of the default
    catalog, the max_output and the traits there apply to translated prompts, unless the file states
    others."""

    id: ModelId
    """The public id; case-sensitive."""
    family: Family
    """alpha (messages-native) or beta (chat-native)."""
    multiplier: Multiplier = 1.0
    """Price multiplier for this model's usage in units; its group's multiplier applies too. Absent:
    1.0, with a warning unless price is stated."""
    rates: Rates = Rates()
    """The price of its kinds of tokens in units; a fresh input token costs 1."""
    price: DatedPrices | None = None
    """Its prices in USD for a million tokens; its group's multiplier applies too. null: units times
    money.unit_price, if that is in USD."""
    context: int | None = Field(default=None, gt=0)
    """Size of the context window in tokens; null: unknown."""
    max_output: int | None = Field(default=None, gt=0)
    """Maximum output tokens of one reply; null: unknown."""
    aliases: tuple[ModelAlias, ...] = ()
    """Other ids that clients may use for this model; in the model list too, unless there is a * in
    it, which stands for any text (claude-*). Exact ids take precedence, then the first pattern."""
    display_name: str | None = Field(default=None, min_length=1)
    """The display name in the model list; null: the id."""
    description: str | None = Field(default=None, min_length=1)
    """What the model is for, in the model list; null: nothing."""
    images: bool = True
    """Whether it accepts images: for the model list, and for models that fall back to it."""
    fallbacks: tuple[ModelId, ...] = ()
    """Models that serve a request, in order, when no upstream of this one does and nothing of a
    reply was sent: those of them that the key may use, whose context is large enough, and which
    accept the images that the request has."""
    lifecycle: Lifecycle = Lifecycle.ACTIVE
    """active, deprecated or retired; a retired model answers like an unknown one."""
    traits: Traits = Traits()
    """The traits that the model supports, for prompts that are translated for it."""


def _parse_origins(origins: Any) -> Any:
    if origins is False:
        return ()
    return tuple(origins) if isinstance(origins, list) else origins


class Server(ConfigModel):
    """The listening address, and what is accepted from clients."""

    host: Host = "127.0.0.1"
    """The address to listen on."""
    port: int = Field(default=8080, ge=0, le=65535)
    """The port to listen on; 0: any free one."""
    max_body: Bytes = 64 * 2**20
    """Maximum size of a request body in bytes; "64MiB" is accepted too."""
    max_bodies: Bytes = 256 * 2**20
    """Maximum size of all request bodies in memory together, in bytes; one key, and one address,
    can have half of it. Twice max_body if that is more; "256MiB" is accepted too."""
    min_upload_rate: Bytes = 32 * 2**10
    """Minimum rate at which a request body has to arrive, in bytes per second; "32KiB" is accepted
    too. Slower ones are rejected after 15 seconds."""
    max_response: Bytes = 32 * 2**20
    """Maximum size of an upstream reply that is not streamed, in bytes; "32MiB" is accepted too."""
    max_connections: int | None = Field(default=None, ge=1)
    """Maximum number of client connections; null: by the limit of open files, at most 4096."""
    max_connections_per_address: int | None = Field(default=None, ge=1)
    """Maximum number of client connections of one address, or one /64 of IPv6; trusted proxies have
    no such limit. null: half of all."""
    trusted_proxies: tuple[IPvAnyNetwork, ...] = ()
    """Networks whose x-forwarded-for header is trusted, such as 127.0.0.1/32."""
    public_url: Annotated[str, AfterValidator(check_url)] | None = None
    """The URL at which clients reach the gateway, if not host and port; printed at startup."""
    cors: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        BeforeValidator(_parse_origins),
        WithJsonSchema(
            {"anyOf": [{"const": False}, {"type": "array", "items": {"type": "string"}}]}
        ),
    ] = ()
    """Origins whose browsers may call the gateway, or off."""
    require_version_header: bool = True
    """Whether a messages request without a version header is rejected."""
    version_headers: tuple[HeaderName, ...] = Field(
        default=("anthropic-version", "vendor-version"), min_length=1
    )
    """Accepted names of the version header of messages; the first is sent upstream."""
    beta_headers: tuple[HeaderName, ...] = Field(
        default=("anthropic-beta", "vendor-beta"), min_length=1
    )
    """Accepted names of the beta header of messages; the first is sent upstream."""
    drain_timeout: Seconds = 30
    """The time that running replies may take to finish after a stop signal; "30s" is accepted
    too."""
    commit_after: Seconds = 10
    """The time for which a streamed reply may have no content before the response head and pings
    are sent, and its opening events if there are any: failover to other accounts is possible until
    these. "10s" is accepted too."""
    show_channel: bool = False
    """Whether responses name their channel, in x-gateway-channel."""
    log: ProcessLogOptions = ProcessLogOptions()
    """The log that the gateway writes to standard error."""


class Console(ConfigModel):
    """The console, for those who have no role in it."""

    key_holders: Annotated[
        Literal["off", "read", "rotate"],
        BeforeValidator(lambda stated: "off" if stated is False else stated),  # YAML's off
        WithJsonSchema({"enum": [False, "off", "read", "rotate"]}),
    ] = "read"
    """Whether who has a key can sign in with it: off; read: see its usage, limits and errors;
    rotate: also replace it by a new one."""


class AffinitySettings(ConfigModel):
    """The settings by which conversations are recognised for session affinity."""

    headers: tuple[HeaderName, ...] = (
        "x-session-id",
        "session-id",
        "session_id",
        "x-conversation-id",
        "conversation_id",
    )
    """Headers that identify a conversation. An id in the body takes precedence; if there is
    neither, the start of the prompt identifies it."""


class FamilyEndpoints(ConfigModel):
    """The endpoints that serve the models of one family."""

    endpoints: tuple[Format, ...] = Field(default=tuple(Format), min_length=1)
    """The formats in which clients may request them: chat, messages, responses."""


class Families(ConfigModel):
    """The formats that serve the models of each family, whatever the format of their channels."""

    alpha: FamilyEndpoints = FamilyEndpoints()
    """The endpoints of alpha models."""
    beta: FamilyEndpoints = FamilyEndpoints()
    """The endpoints of beta models."""

    def endpoints_for(self, family: Family) -> tuple[Format, ...]:
        return (self.alpha if family is Family.ALPHA else self.beta).endpoints


def _check_fit(fit: bool) -> bool:
    if fit and find_spec("PIL") is None:
        raise PydanticCustomError("images", "needs Pillow: pip install 'model-gateway[images]'")
    return fit


class Images(ConfigModel):
    """Images in requests, and the downloads of channels with images: {urls: fetch}."""

    fit: Annotated[bool, AfterValidator(_check_fit)] = False
    """Whether images that are too large for their upstream are made smaller, and animated GIFs
    static, which needs Pillow (the extra "images"); false: they are rejected and forwarded."""
    allowed_networks: tuple[IPvAnyNetwork, ...] = ()
    """Networks that images may be downloaded from besides public addresses, such as those of an
    image server of one's own: 10.1.2.3/32."""
    allowed_ports: tuple[Annotated[int, Field(ge=1, le=65535)], ...] = (80, 443)
    """Ports that images may be downloaded from."""


@cache
def catalog_data() -> tuple[dict[str, Any], ...]:
    """The catalog of the specification, as a file would state it."""
    text = files("gateway.config").joinpath("catalog.yaml").read_text(encoding="utf-8")
    return tuple(yaml.load(text, Loader=yaml.CSafeLoader))


@cache
def default_catalog() -> tuple[Model, ...]:
    """The catalog of the specification."""
    return tuple(Model.model_validate_json(to_json(model)) for model in catalog_data())


def _check_socket_length(state_dir: Path) -> Path:
    length = len(str(state_dir / SOCKET_NAME).encode(errors="surrogateescape"))
    if length > MAX_SOCKET_PATH:
        raise PydanticCustomError(
            "state_dir",
            f"too long: the path of the admin socket in it would have {length} bytes, "
            f"{MAX_SOCKET_PATH} are allowed",
        )
    return state_dir


class Config(ConfigModel, title="Model Gateway: channels.yaml"):
    """The upstreams and the listener. Keys and groups are in the database."""

    server: Server = Server()
    """The listening address, and what is accepted from clients."""
    console: Console = Console()
    """The console, for those who have no role in it."""
    state_dir: Annotated[Path, AfterValidator(_check_socket_length)] = Path("var")
    """Directory of database, admin socket and backups; relative to the working directory."""
    database: DatabaseOption = None
    """A PostgreSQL server, as a URL or a mapping; null: an SQLite file in state_dir."""
    shared: SharedOption = None
    """A Valkey server for what replicas share, as a URL or a mapping; null: one replica, in
    memory."""
    replica: Replica = Replica()
    """This process among the replicas that share a database."""
    models: tuple[Model, ...] = Field(default_factory=default_catalog, min_length=1)
    """The model catalog; absent: the one of the specification."""
    channels: tuple[Channel, ...] = ()
    """The upstream endpoints."""
    families: Families = Families()
    """The formats that serve the models of a family; absent: all of them."""
    rules: tuple[FailureRule, ...] = ()
    """The classification of upstream errors, where it differs from the gateway's own rules."""
    affinity: AffinitySettings = AffinitySettings()
    """The settings by which conversations are recognised for session affinity."""
    limits: SharedLimits = SharedLimits()
    """Limits on all clients together, and whether requests may wait in a queue."""
    user_agents: UserAgents = UserAgents()
    """The clients that may call, by user agent."""
    money: Money = Money()
    """The billing and display of usage."""
    prices_file: Annotated[str, Field(min_length=1)] | None = None
    """A file with prices of models and channels that state none, such as gateway prices import
    writes; relative to this file. null: none."""
    images: Images = Images()
    """Images in requests: making them smaller, downloading them."""
    search: SearchEndpoint | None = None
    """The endpoint at which the gateway searches the web for models whose upstream does not; null:
    it does not."""
    logs: RequestLog = RequestLog()
    """The time for which the request log is kept, and how much of it may wait while it cannot be
    written."""
    traces: TraceOptions | None = None
    """OpenTelemetry spans of requests; null: none, unless $OTEL_EXPORTER_OTLP_ENDPOINT is set."""
    audit: AuditLog = AuditLog()
    """The time for which the audit log is kept."""
    responses: StoredReplies = StoredReplies()
    """The storage of replies, so that later requests can continue them by their ids."""
    metrics: MetricsSettings = MetricsSettings()
    """Metrics for Prometheus at /metrics."""

    alerts: Alerts | None = None
    """The alerts: what is watched, and the webhooks that are told; null: nothing."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Returns what is allowed but probably not intended, one sentence each."""
        if not self.channels:
            return ("No channels: the gateway starts, but no request can be served.",)
        return (*self._unstated_multipliers(), *self._unstated_prices())

    @property
    def _served_models(self) -> list[Model]:
        served = {name for channel in self.channels for name in channel.models}
        return [model for model in self.models if model.id in served]

    def _is_priced(self, model: Model) -> bool:
        """Tells whether every channel that serves the model has a price of it."""
        return model.price is not None or all(
            model.id in channel.prices for channel in self.channels if model.id in channel.models
        )

    def _unstated_multipliers(self) -> Iterator[str]:
        unstated = [
            model.id
            for model in self._served_models
            if "multiplier" not in model.model_fields_set and not self._is_priced(model)
        ]
        if unstated:
            names = list_names(unstated, _MAX_LISTED)
            yield (
                f"Neither multiplier nor price is stated for {names}: usage is billed with "
                "multiplier 1.0. State the right one under models."
            )

    @property
    def unpriced(self) -> list[str]:
        """Returns the models that are served and cost nothing in USD, where others have prices."""
        if self.money.unit_price is not None and self.money.currency == "USD":
            return []
        served = self._served_models
        unstated = [model.id for model in served if not self._is_priced(model)]
        has_prices = len(unstated) < len(served) or any(each.prices for each in self.channels)
        return unstated if has_prices else []

    def _unstated_prices(self) -> Iterator[str]:
        if unstated := self.unpriced:
            names = list_names(unstated, _MAX_LISTED)
            yield (
                f"No price is stated for {names}: usage costs nothing in USD, and budgets in USD "
                "do not limit it. State the price under models, or money.unit_price."
            )
