"""What the configuration file may say, as frozen models; one class for each kind of mapping.

It must not know YAML, files or the environment; a secret arrives here as text and leaves hidden.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    IPvAnyNetwork,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import PydanticCustomError, to_json

from gateway.config.catalog import default_models
from gateway.config.channel import Channel, FailureRule, Traits
from gateway.config.limits import Money, Multiplier, Rates, Retention, SharedLimits, UserAgents
from gateway.config.types import Bytes, ConfigModel, HeaderName, ModelId, Seconds, check_url
from gateway.core.formats import Family, Format

SOCKET_NAME: Final = "admin.sock"
MAX_SOCKET_PATH: Final = 107
"""Bytes that a unix socket's path may have on Linux, without the closing zero."""


class Lifecycle(StrEnum):
    """A retired model answers like an unknown one; a deprecated one only says so in the list."""

    ACTIVE = "active"
    DEPRECATED = "deprecated"
    RETIRED = "retired"


class Model(ConfigModel):
    """A model of the catalog, as clients name it (Specification, "Model catalog"). Where its id is
    one of the shipped catalog, prompts that are translated for it go by the max_output and the
    traits that stand there, as far as the file does not say otherwise."""

    id: ModelId
    """The public id; case counts."""
    family: Family
    """alpha (messages-native) or beta (chat-native)."""
    multiplier: Multiplier = 1.0
    """What usage of this model is multiplied by, besides its group's multiplier."""
    rates: Rates = Rates()
    """What its kinds of tokens cost, where a fresh input token costs 1."""
    context: int | None = Field(default=None, gt=0)
    """Size of the context window in tokens; null where it is not known."""
    max_output: int | None = Field(default=None, gt=0)
    """Most tokens of one reply; null where it is not known."""
    aliases: tuple[ModelId, ...] = ()
    """Other ids under which clients may ask for this model."""
    display_name: str | None = Field(default=None, min_length=1)
    """The name for people in the model list; null: the id."""
    lifecycle: Lifecycle = Lifecycle.ACTIVE
    """active, deprecated or retired; a retired model answers like an unknown one."""
    traits: Traits = Traits()
    """What the model can take, for prompts that are translated for it."""


def _parse_origins(origins: Any) -> Any:
    if origins is False:
        return ()
    return tuple(origins) if isinstance(origins, list) else origins


class Server(ConfigModel):
    """Where the gateway listens, and what it accepts from clients."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """The address to listen on."""
    port: int = Field(default=8080, ge=0, le=65535)
    """The port to listen on; 0: any free one."""
    max_body: Bytes = 64 * 2**20
    """Largest request body in bytes; "64MiB" is accepted too."""
    max_response: Bytes = 32 * 2**20
    """Largest reply of an upstream that is not streamed, in bytes; "32MiB" is accepted too."""
    trusted_proxies: tuple[IPvAnyNetwork, ...] = ()
    """Networks whose x-forwarded-for header counts, such as 127.0.0.1/32."""
    public_url: Annotated[str, AfterValidator(check_url)] | None = None
    """The address under which clients reach the gateway, where it is not host and port; `serve`
    tells it when it starts."""
    cors: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        BeforeValidator(_parse_origins),
        WithJsonSchema(
            {"anyOf": [{"const": False}, {"type": "array", "items": {"type": "string"}}]}
        ),
    ] = ()
    """Origins whose browsers may call the gateway, or off."""
    require_version_header: bool = True
    """Whether a messages request without a version header is refused."""
    version_headers: tuple[HeaderName, ...] = Field(
        default=("anthropic-version", "vendor-version"), min_length=1
    )
    """Names under which the version header of messages is read; the first is sent upstream."""
    beta_headers: tuple[HeaderName, ...] = Field(
        default=("anthropic-beta", "vendor-beta"), min_length=1
    )
    """Names under which the beta header of messages is read; the first is sent upstream."""
    drain_timeout: Seconds = 30
    """How long running replies may take to end after a stop signal; "30s" is accepted too."""
    commit_after: Seconds = 10
    """How long a streamed answer may show nothing: then its head and pings leave, while other
    accounts may still be asked; "10s" is accepted too."""
    show_channel: bool = False
    """Whether answers tell their channel, in x-gateway-channel."""


class AffinitySettings(ConfigModel):
    """How conversations are recognised, so that each stays with one account."""

    headers: tuple[HeaderName, ...] = (
        "x-session-id",
        "session-id",
        "session_id",
        "x-conversation-id",
        "conversation_id",
    )
    """Headers in which clients name their conversation. What the body says goes before them; where
    neither names it, the beginning of the prompt tells."""


class FamilyEndpoints(ConfigModel):
    """Where the models of one family may be asked for."""

    endpoints: tuple[Format, ...] = Field(default=tuple(Format), min_length=1)
    """The formats in which clients may ask: chat, messages, responses."""


class Families(ConfigModel):
    """Which formats the models of a family may be asked for in, whatever their channels speak."""

    alpha: FamilyEndpoints = FamilyEndpoints()
    """The endpoints of alpha models."""
    beta: FamilyEndpoints = FamilyEndpoints()
    """The endpoints of beta models."""

    def endpoints_for(self, family: Family) -> tuple[Format, ...]:
        """The formats in which a family may be asked for."""
        openings = {Family.ALPHA: self.alpha, Family.BETA: self.beta}
        return openings[family].endpoints


@cache
def default_catalog() -> tuple[Model, ...]:
    """The catalog of the specification."""
    return tuple(Model.model_validate_json(to_json(model)) for model in default_models())


class Config(ConfigModel, title="Model Gateway: channels.yaml"):
    """What exists upstream and how the gateway listens. Who may use it is in the database."""

    server: Server = Server()
    """The door: where clients connect and what is accepted from them."""
    state_dir: Path = Path("var")
    """Where database, admin socket and backups live; relative to the working directory."""
    models: tuple[Model, ...] = Field(default_factory=default_catalog, min_length=1)
    """The catalog; absent: the one of the specification."""
    channels: tuple[Channel, ...] = ()
    """The upstream endpoints."""
    families: Families = Families()
    """Which formats a family may be asked for in; absent: all of them."""
    rules: tuple[FailureRule, ...] = ()
    """What upstreams' failures mean, where the gateway would take them otherwise."""
    affinity: AffinitySettings = AffinitySettings()
    """How conversations are recognised."""
    limits: SharedLimits = SharedLimits()
    """What all clients together may use, and whether they may wait for their turn."""
    user_agents: UserAgents = UserAgents()
    """Which clients may call, by what they call themselves."""
    money: Money = Money()
    """How what is used is billed and shown."""
    logs: Retention = Retention()
    """What the ledger keeps, and for how long."""

    @field_validator("state_dir")
    @classmethod
    def _check_socket_length(cls, state_dir: Path) -> Path:
        length = len(str(state_dir / SOCKET_NAME).encode(errors="surrogateescape"))
        if length > MAX_SOCKET_PATH:
            raise PydanticCustomError(
                "state_dir",
                "too long: the path of the admin socket in it would have {length} bytes, "
                "{limit} are allowed",
                {"length": length, "limit": MAX_SOCKET_PATH},
            )
        return state_dir

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is allowed but hardly meant, one sentence each."""
        if not self.channels:
            return ("No channels: the gateway starts, but no request can be served.",)
        return ()
