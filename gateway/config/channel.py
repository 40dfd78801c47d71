"""What an upstream's model can take, for prompts that are translated for it.

It must not know what follows from a trait: that is the affair of the format that is spoken to it.

What an operator knows better about an upstream's failures. It must not know what follows.

What the file may say of a channel: where an upstream is, and how it likes to be asked.

It must not know who asks, nor when another channel is asked instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

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
    model_validator,
)
from pydantic_core import PydanticCustomError

from gateway.config.secrets import resolve_header, resolve_key
from gateway.config.types import (
    ConfigModel,
    HeaderName,
    HeaderText,
    ModelId,
    Name,
    Seconds,
    UpstreamModel,
    check_base_url,
    check_proxy_url,
)
from gateway.core.formats import Format, Lane
from gateway.core.target import SamplingStyle, ThinkingStyle, ToolEffort

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class Traits(ConfigModel):
    """What an upstream's model can take. All of it is optional and counts only where a prompt is
    translated. A channel's word goes before the model's; what neither states follows from the
    channel's format, as each trait says, and is otherwise the most that there is."""

    thinking: ThinkingStyle | None = None
    """How a messages channel tells the model to think: budget (a number of tokens), adaptive (at
    will, by effort), always (adaptive, and it cannot be switched off) or none; null: adaptive."""
    efforts: tuple[Effort, ...] | None = None
    """The words for how hard to think that the model takes, of none, minimal, low, medium, high,
    xhigh and max; an empty list: it takes no word at all; null: all of them."""
    sampling: SamplingStyle | None = None
    """Which of temperature and top_p the model takes: both, one (of the two in one request) or
    neither; null: both."""
    tool_effort: ToolEffort | None = None
    """What becomes of the effort where a chat channel is sent function tools: keep, drop, or none
    (the word none is sent instead); null: keep."""
    structured: bool | None = None
    """Whether the model takes a JSON schema for its answer; null: true."""
    prefill: bool | None = None
    """Whether a prompt may end with words of the assistant's that the model goes on from; null:
    true."""
    system_turns: bool | None = None
    """Whether system messages may stand in the middle of a conversation; null: true on chat and
    responses channels, false on messages channels."""
    custom_tools: bool | None = None
    """Whether the model takes tools whose input is free text; null: true on responses channels."""
    cache_marks: bool | None = None
    """Whether the model takes marks up to which a prompt is to be cached; null: true on messages
    channels."""
    reasoning_text: bool | None = None
    """Whether a chat channel wants its own plain reasoning_content back with the history; null:
    false."""
    plain_max_tokens: bool | None = None
    """Whether a chat channel is sent max_tokens and not max_completion_tokens; null: true for
    alpha models."""
    developer: bool | None = None
    """Whether a chat channel is sent system prompts as role developer; null: false."""


class FailureRule(ConfigModel):
    """Whose fault it is when an upstream answers with one of the statuses and in words that fit all
    of the patterns given. The first rule that fits decides; where none does, the gateway knows."""

    blame: Literal["client", "account", "capacity", "transport", "upstream"]
    """client: it is told at once, and nobody else is asked; account: it is left out for all models;
    capacity: it is left out for this model; transport, upstream: it counts as a failure."""
    status: tuple[Annotated[int, Field(ge=100, le=599)], ...] = ()
    """The HTTP statuses, or those that an error within a stream stands for; none: any."""
    type: re.Pattern[str] | None = None
    """A regular expression that the error's whole type must match."""
    code: re.Pattern[str] | None = None
    """A regular expression that the error's whole code must match."""
    text: re.Pattern[str] | None = None
    """A regular expression that is looked for in the error's message and body; (?i) at its begin
    makes capitals and small letters the same."""
    seconds: Seconds | None = Field(default=None, alias="for")
    """How long the account is left out; null: as the gateway finds right."""

    @model_validator(mode="after")
    def _check_not_empty(self) -> Self:
        if not (self.status or self.type or self.code or self.text):
            raise PydanticCustomError("rule", "fits everything: give status, type, code or text")
        if self.blame == "client" and self.seconds is not None:
            raise PydanticCustomError("rule", "for: a client's fault keeps no account out")
        return self


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
        Mapping[ModelId, UpstreamModel],
        BeforeValidator(_as_mapping),
        WithJsonSchema(_MODELS_SCHEMA),
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
        Mapping[Annotated[str, AfterValidator(_check_param_name)], JsonValue],
        AfterValidator(_check_params),
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
