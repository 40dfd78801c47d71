"""What the file may say of a channel: where an upstream is, and how it likes to be asked.

It must not know who asks, nor when another channel is asked instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    SecretStr,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import PydanticCustomError

from gateway.config.address import check_base_url, check_proxy_url
from gateway.config.names import HeaderName, HeaderText, ModelId, Name, UpstreamModel
from gateway.config.quantity import Seconds
from gateway.config.secret import resolve_header, resolve_key
from gateway.config.section import ConfigModel
from gateway.config.traits import Traits
from gateway.core.formats import Format, Lane

_RESERVED_HEADERS: Final = frozenset(
    {
        "authorization",
        "x-api-key",
        "host",
        "connection",
        "content-type",
        "content-length",
        "transfer-encoding",
    }
)
_RESERVED_FIELDS: Final = frozenset({"model", "stream"})

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Account(ConfigModel):
    """One credential of a channel."""

    name: Name
    """The account's name in logs and commands; unique in its channel."""
    key: Annotated[SecretStr, AfterValidator(resolve_key)]
    """The upstream's key: "${NAME}" (environment), "file:/path", "file:NAME" in
    $CREDENTIALS_DIRECTORY, or the key itself in a file that only its owner can read."""
    priority: int = 0
    """Among the accounts of a channel the higher ones are asked first; the others stand in for
    them."""
    weight: Weight = 1
    """Its share of the requests among accounts of the same priority; 0: only where no other is
    left."""
    concurrency: int | None = Field(default=None, gt=0)
    """Most requests to it at once: who comes on top goes to another account; null: no limit."""


class Timeouts(ConfigModel):
    """How long each step of an attempt may take, in seconds; "30s" and "2m" are accepted too."""

    connect: Seconds = 5
    """Until the connection stands."""
    first_event: Seconds = 120
    """Until the first event of a streamed reply."""
    whole: Seconds = 600
    """Until a reply that is not streamed is complete."""
    idle: Seconds = 120
    """Between two reads of a stream."""
    total: Seconds = 1800
    """Until a streamed reply is complete."""
    write: Seconds = 60
    """Until a client has taken what is sent to it."""


def _check_header_name(header: str) -> str:
    if header in _RESERVED_HEADERS:
        raise PydanticCustomError("header", "the gateway sets this header itself")
    return header


def _check_param_name(field: str) -> str:
    if field in _RESERVED_FIELDS:
        raise PydanticCustomError("param", "the gateway sets this field itself")
    return field


def _check_params(params: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Infinity would leave as null, and a number of more than 64 bits not at all."""
    try:
        if orjson.loads(orjson.dumps(params)) == params:
            return params
    except TypeError:
        pass
    raise PydanticCustomError("param", "has a number that JSON has no place for")


def _as_mapping(models: Any) -> Any:
    if isinstance(models, dict):
        return models
    if not isinstance(models, list):
        raise PydanticCustomError("models", "must be a list or a mapping")
    if not all(isinstance(model, str) for model in models):
        raise PydanticCustomError("models", "every model must be text")
    return {model: model for model in models}


_MODELS_SCHEMA: Final = {
    "anyOf": [
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
        {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1},
    ]
}


class Channel(ConfigModel):
    """An upstream endpoint."""

    name: Name
    """The channel's name in logs and commands; unique."""
    format: Format
    """The wire format that the upstream speaks: chat, messages or responses."""
    base_url: str
    """What a client library of that format would be configured with: with /v1 for chat and
    responses, without it for messages."""
    models: Annotated[
        Mapping[ModelId, UpstreamModel], BeforeValidator(_as_mapping), WithJsonSchema(_MODELS_SCHEMA)
    ] = Field(min_length=1)
    """What it serves: a list of public ids, or a mapping of public ids to the upstream's own."""
    accounts: tuple[Account, ...] = Field(min_length=1)
    """The credentials to call it with."""
    priority: int = 0
    """Among channels that suit a client's format equally well the higher ones are asked first; the
    others stand in for them."""
    weight: Weight = 1
    """Its share of the requests among channels of the same priority: the weight of each of its
    accounts is multiplied by it."""
    affinity: bool = True
    """Whether a conversation stays with one account, so that what the upstream has cached of it is
    used again; false: every request goes by weight alone."""
    lane: Lane = Lane.NATIVE
    """native: what passes between a client and a channel of the same format stays as it is;
    translated: it is written anew also there, which mends an upstream whose own dialect is broken.
    Between different formats everything is translated."""
    headers: Mapping[
        Annotated[HeaderName, AfterValidator(_check_header_name)],
        Annotated[SecretStr, AfterValidator(resolve_header)],
    ] = {}
    """Extra headers for every call; the credential is set from the account. A value is plain text
    or a reference, as for a key; where the header's name has key, token, secret, auth, password or
    cookie in it, plain text is accepted only in a file that only its owner can read."""
    timeouts: Timeouts = Timeouts()
    """How long each step of an attempt may take."""
    params: Annotated[
        Mapping[Annotated[str, AfterValidator(_check_param_name)], JsonValue], AfterValidator(_check_params)
    ] = {}
    """Fields put into every body that is sent, in place of what stands there; the value null takes
    the field out."""
    version_header: HeaderText | None = None
    """On messages channels: the version that is sent in place of the client's; null: the
    client's."""
    user_agent: HeaderText | None = None
    """What the gateway calls itself to the upstream; null: model-gateway and its version. The
    client's own is never sent."""
    proxy: Annotated[str, AfterValidator(check_proxy_url)] | None = None
    """The http proxy through which the upstream is called; null: none, whatever the environment
    says."""
    stream: Literal["follow", "force"] = "follow"
    """follow: the upstream is asked for a stream where the client asks for one; force: always, and
    other clients get the whole reply from its events."""
    on_disconnect: Literal["cancel", "drain"] = "cancel"
    """When the client leaves, cancel ends the call; drain reads the reply to its end, for upstreams
    that tell what it has cost only there."""
    traits: Traits = Traits()
    """What its models can take, for prompts that are translated for them; goes before what the
    models' own traits say."""

    @field_validator("base_url")
    @classmethod
    def _check_base_url(cls, url: str, info: ValidationInfo) -> str:
        return check_base_url(url, info.data.get("format"))

    @field_validator("version_header")
    @classmethod
    def _check_version_header(cls, version: str | None, info: ValidationInfo) -> str | None:
        if version is not None and info.data.get("format") not in (Format.MESSAGES, None):
            raise PydanticCustomError("version", "only messages channels are sent a version")
        return version
