"""Options of a channel: the upstream endpoint, its accounts, its capabilities and failure rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Annotated, Any, Final, Literal, LiteralString, Self

import orjson
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    SecretStr,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from gateway.config.key_source import Key, KeySource
from gateway.config.limits import DatedPrices
from gateway.config.secrets import NO_KEY, resolve_header
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
from gateway.core.formats import Endpoint, Family, Format, Lane
from gateway.core.target import SamplingStyle, ThinkingStyle, ToolEffort

_RESERVED_HEADERS: Final = {
    *("authorization", "connection", "content-length", "content-type"),
    *("host", "transfer-encoding", "x-api-key"),
}
_RESERVED_FIELDS: Final = {"model", "stream"}
_MODELS_SCHEMA: Final = WithJsonSchema(
    {
        "anyOf": [
            {"const": "all"},
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
            {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1},
        ]
    }
)

Auth = Literal["bearer", "x-api-key", "api-key", "none", "sigv4"]
_PATH_PATTERN: Final = r"^/([A-Za-z0-9._~!$&'()*+,;=:@/%-]|\{model\})*$"
"""What a path can have, and the place of the model's name."""
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Traits(ConfigModel):
    """The traits of an upstream's model: what it supports. All traits are optional, and all but
    refuses apply only if a prompt is translated. A channel's traits take precedence over the
    model's; what neither states depends on the channel's format, as each trait says, and otherwise
    everything is supported."""

    thinking: ThinkingStyle | None = None
    """The way in which thinking is requested on a messages channel: budget (a number of tokens),
    adaptive (by effort), always (adaptive, and it cannot be switched off) or none; null: a budget,
    but what a client of the messages format sends is not changed."""
    efforts: tuple[Effort, ...] | None = None
    """The accepted efforts, of none, minimal, low, medium, high, xhigh and max; null: all."""
    sampling: SamplingStyle | None = None
    """The parameters, of temperature and top_p, that a request may have: both, one (not both),
    neither; null: both."""
    tool_effort: ToolEffort | None = None
    """The treatment of the reasoning effort of a request with function tools on a chat channel:
    keep, drop, or none (the effort none is sent instead); null: keep."""
    structured: bool | None = None
    """Whether the model enforces JSON as its output, with a schema or without; else it gets an
    instruction; null: true."""
    prefill: bool | None = None
    """Whether a prompt may end with an assistant message that the model continues; null: true."""
    system_turns: bool | None = None
    """Whether system messages are allowed in the middle of a conversation; null: true on chat and
    responses channels, false on messages channels."""
    custom_tools: bool | None = None
    """Whether the model accepts tools with free-text input; null: true on responses channels."""
    cache_marks: bool | None = None
    """Whether the model accepts prompt cache breakpoints; null: true on messages channels."""
    reasoning_text: bool | None = None
    """Whether a chat channel expects its reasoning_content back in the history; null: false."""
    plain_max_tokens: bool | None = None
    """Whether max_tokens replaces max_completion_tokens on chat; null: true for alpha models."""
    developer: bool | None = None
    """Whether system prompts have the role developer on chat; null: false."""
    threads: bool | None = None
    """Whether a messages upstream holds message threads itself: they are passed to it then, and a
    thread stays with its account. Else the gateway holds them; null: false."""
    refuses: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] | None,
        Field(max_length=100),
    ] = None
    """What the upstream refuses, and is not sent, on either lane: fields by their path without the
    places in lists (context_management, tools.input_examples), values of the beta header
    (beta:NAME, with the fields that it allows), types of tools (tool:TYPE), and unsigned_calls,
    for a chat upstream that wants a thought signature with each call of the history; null:
    nothing. What an upstream refuses in an error is learned for a day."""
    web_search: bool | Annotated[int, Field(ge=20250305, le=99991231)] | None = None
    """Whether the upstream searches the web itself; on messages channels also the date of the
    newest version of the tool that it has, such as 20250305. Where it is false, requests that may
    search are translated even for clients of the channel's format, and the gateway searches if
    search is configured. null: true on messages and responses channels, false on chat channels,
    but without search their upstream gets the searches of chat clients."""
    compaction: bool | None = None
    """Whether the upstream of a messages or responses channel compacts conversations itself, for
    clients of its format. Else the gateway asks the model for a summary; null: true."""


class FailureRule(ConfigModel):
    """Classifies upstream errors that have one of the statuses and match all given patterns. The
    first matching rule decides; where none matches, the gateway's own rules apply."""

    blame: Literal["client", "account", "capacity", "transport", "upstream"]
    """client: the client gets the error and no other account is tried; account: the account is not
    used for any model; capacity: it is not used for this model; transport, upstream: it counts as a
    failure."""
    status: tuple[Annotated[int, Field(ge=100, le=599)], ...] = ()
    """HTTP statuses, or those that an error within a stream corresponds to; empty: any."""
    type: re.Pattern[str] | None = None
    """A regular expression that matches the error's whole type."""
    code: re.Pattern[str] | None = None
    """A regular expression that matches the error's whole code."""
    text: re.Pattern[str] | None = None
    """A regular expression to search in message and body; (?i) at its start ignores case."""
    seconds: Seconds | None = Field(default=None, alias="for")
    """The time for which the account is not used; null: the gateway decides."""

    @model_validator(mode="after")
    def _check_not_empty(self) -> Self:
        if not (self.status or self.type or self.code or self.text):
            raise PydanticCustomError("rule", "matches everything: give status, type, code or text")
        if self.blame == "client" and self.seconds is not None:
            raise PydanticCustomError("rule", "for: a client error does not pause an account")
        return self


class Account(ConfigModel):
    """One credential of a channel."""

    name: Name
    """The account's name in logs and commands; unique in its channel."""
    key: Key
    """The upstream's key: "${NAME}" (environment), "file:/path", "file:NAME" in
    $CREDENTIALS_DIRECTORY, or the key itself in a file that only its owner can read; none: the
    upstream asks for no key, and gets none. Of a credential that expires, its source: {command:
    [...]}, {google: adc}, {azure: {...}}, {aws: {...}} or {oidc: {...}}."""
    auth: Auth | None = None
    """The header that has the key; null: as its channel says, but bearer for tokens of google,
    azure and oidc, and sigv4, which is all that they can have, for keys of aws."""
    priority: int = 0
    """Accounts of a channel with higher priority are tried first; the others are for failover."""
    weight: Weight = 1
    """Share of the requests among accounts of equal priority; 0: only where no other is left."""
    concurrency: int | None = Field(default=None, gt=0)
    """Maximum number of concurrent requests; more go to another account; null: no limit."""

    @property
    def source(self) -> KeySource | None:
        """Where its credential comes from, if that expires."""
        return self.key if isinstance(self.key, KeySource) else None

    @property
    def static_key(self) -> str:
        """Its key, or the reference to it; empty if it has none, or one that expires."""
        return "" if isinstance(self.key, KeySource) else self.key.get_secret_value()

    @model_validator(mode="after")
    def _check_auth(self) -> Self:
        is_aws = self.source is not None and self.source.aws is not None
        if self.auth is not None and is_aws is not (self.auth == "sigv4"):
            raise PydanticCustomError("auth", "auth: sigv4 and key: {aws: ...} need each other")
        return self


class Timeouts(ConfigModel):
    """Time limits for the steps of an attempt, in seconds; "30s" and "2m" are accepted too."""

    connect: Seconds = 5
    """The time until the connection is established."""
    first_event: Seconds = 120
    """The time until the first event of a streamed reply."""
    whole: Seconds = 600
    """The time until a reply that is not streamed is complete."""
    idle: Seconds = 120
    """Between two reads of a stream."""
    total: Seconds = 1800
    """The time until a streamed reply is complete."""
    write: Seconds = 60
    """The time in which a client has to read what is sent to it; one more second for every 32
    KiB."""


def _reject(reserved: Set[str], kind: LiteralString) -> AfterValidator:
    def check(name: str, info: ValidationInfo) -> str:
        is_removed = name == "model" and "{model}" in (info.data.get("path") or "")
        if name in reserved and not is_removed:
            raise PydanticCustomError("reserved", f"the gateway sets this {kind} itself")
        return name

    return AfterValidator(check)


def _check_params(params: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """JSON would turn infinity into null, and fails on integers of more than 64 bits."""
    try:
        if orjson.loads(orjson.dumps(params)) == params:
            return params
    except TypeError:
        pass
    raise PydanticCustomError("param", "has a number that JSON cannot represent")


def _check_version(version: str | None, info: ValidationInfo) -> str | None:
    if version is not None and info.data.get("format") not in (Format.MESSAGES, None):
        raise PydanticCustomError("version", "only messages channels are sent a version")
    return version


def _as_mapping(models: Any) -> Any:
    if isinstance(models, dict):
        return models
    if not isinstance(models, list):
        raise PydanticCustomError("models", "must be a list or a mapping")
    if not all(isinstance(model, str) for model in models):
        raise PydanticCustomError("models", "every model must be text")
    return {model: model for model in models}


def _check_models(models: Mapping[str, str], info: ValidationInfo) -> Mapping[str, str]:
    """A channel that discovers its models may have none yet."""
    if not models and not info.data.get("discover"):
        raise PydanticCustomError("models", "must not be empty")
    return models


def _check_prices(
    prices: Mapping[str, DatedPrices], info: ValidationInfo
) -> Mapping[str, DatedPrices]:
    """A channel that discovers its models may not have them yet."""
    for id in prices:
        if id not in info.data.get("models", prices) and not info.data.get("discover"):
            text = "the channel has no model {id}"
            raise PydanticCustomError("prices", text, {"id": id})
    return prices


class ChannelImages(ConfigModel):
    """The way in which a channel takes images."""

    urls: Literal["pass", "fetch", "refuse"] = "pass"
    """Images at web addresses: pass sends the address, fetch downloads the image and sends its
    data, refuse answers with an error."""
    heic: bool = False
    """Whether HEIC images are accepted, besides JPEG, PNG, WebP and static GIF."""


class Channel(ConfigModel):
    """An upstream endpoint."""

    preset: str | None = None
    """A platform or local server, such as openai, azure or ollama, whose public properties are the
    defaults of this channel: name, format, base_url, auth and others (docs/upstreams.md); null:
    none."""
    name: Name
    """The channel's name in logs and commands; unique. Absent: that of the preset."""
    format: Format
    """The wire format of the upstream: chat, messages or responses."""
    base_url: Annotated[str, AfterValidator(check_base_url)]
    """The base URL as a client library of that format is configured: with /v1 for chat and
    responses, without it for messages."""
    discover: tuple[Annotated[str, StringConstraints(min_length=1, max_length=128)], ...] = ()
    """Patterns of names, such as qwen*: the models of the upstream's own list that match are served
    besides models. The list is read at the start and every ten minutes."""
    models: Annotated[
        Mapping[ModelId, UpstreamModel],
        BeforeValidator(_as_mapping),
        AfterValidator(_check_models),
        _MODELS_SCHEMA,
    ]
    """The models that it serves: a list of public ids, or a mapping of them to upstream names; all:
    what the upstream lists, as discover: ["*"] does."""
    endpoints: tuple[Endpoint, ...] = ()
    """The endpoints that it serves besides its format's, with the same models: embeddings, rerank,
    moderations, audio, images. Their requests and replies pass through unchanged."""
    prices: Annotated[Mapping[ModelId, DatedPrices], AfterValidator(_check_prices)] = {}
    """The prices of models at this channel, where they differ from the models' own price, which is
    not read then: {MODEL: {input: 2, output: 10}}."""
    family: Family | None = None
    """The family of its models that the catalog does not have; null: the catalog has all."""
    accounts: tuple[Account, ...] = Field(min_length=1)
    """The credentials to call it with."""
    auth: Auth | Literal["client"] | None = None
    """The header that has an account's key: bearer (authorization), x-api-key, api-key, or none;
    sigv4: each request is signed with an account's keys of AWS; client: the client's own
    credential, of whoever sends one besides the gateway's key; null: x-api-key on messages
    channels, else bearer."""
    query: Mapping[
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")],
        Annotated[str, StringConstraints(max_length=256)],
    ] = {}
    """Query parameters of every call, such as api-version."""
    path: Annotated[str, StringConstraints(pattern=_PATH_PATTERN, max_length=256)] | None = None
    """The path after base_url where it is not the format's own; {model} is the upstream's name of
    the model. Tokens of prompts are estimated then. null: that of the format."""
    stream_path: Annotated[str, StringConstraints(pattern=_PATH_PATTERN, max_length=256)] | None = (
        None
    )
    """The same for streamed replies; null: as path."""
    priority: int = 0
    """Among channels whose formats suit a client equally, those with higher priority are tried
    first; the others are for failover."""
    weight: Weight = 1
    """Share of the requests among channels of the same priority: multiplies the weight of each of
    its accounts."""
    affinity: bool = True
    """Session affinity: a conversation stays with one account, to reuse the upstream's prompt
    cache; false: every request is distributed by weight alone."""
    lane: Lane = Lane.NATIVE
    """native: requests and replies between a client and a channel of the same format pass
    unchanged; translated: they are parsed and rendered again, which corrects an upstream that
    deviates from its format. Between different formats everything is translated."""
    headers: Mapping[
        Annotated[HeaderName, _reject(_RESERVED_HEADERS, "header")],
        Annotated[SecretStr, AfterValidator(resolve_header)],
    ] = {}
    """Additional headers for every call; the credential is set from the account. A value is plain
    text or a reference, as for a key; where the header's name has key, token, secret, auth,
    password or cookie in it, plain text is accepted only in a file that only its owner can read."""
    timeouts: Timeouts = Timeouts()
    """Time limits for the steps of an attempt."""
    params: Annotated[
        Mapping[Annotated[str, _reject(_RESERVED_FIELDS, "field")], JsonValue],
        AfterValidator(_check_params),
    ] = {}
    """Fields that override those of every request body; null removes the field. model can only be
    removed, where path has it."""
    version_header: Annotated[HeaderText | None, AfterValidator(_check_version)] = None
    """A version that messages channels send instead of the client's version; null: the client's."""
    user_agent: HeaderText | None = None
    """Sent upstream, where the client's never is; null: model-gateway and its version."""
    proxy: Annotated[str, AfterValidator(check_proxy_url)] | None = None
    """The HTTP proxy for calls to the upstream; null: none, whatever the environment says."""
    reuse: Literal["across_keys", "within_key", "never"] = "across_keys"
    """The requests that share connections: across_keys, requests of all keys; within_key, requests
    of one key; never, none. If an upstream responds twice to a request, and too late for the
    gateway to notice, the next request on the connection gets the second response."""
    retry_unanswered: bool = True
    """true: a request that got no response before its connection broke or its time was over is sent
    again, although the upstream may have served it; false: the client gets the error."""
    stream: Literal["follow", "force"] = "follow"
    """follow: a stream is requested where the client requests one; force: always, and the replies
    of other clients are assembled from its events."""
    on_disconnect: Literal["cancel", "drain"] = "cancel"
    """The action when the client disconnects: cancel aborts the call; drain reads the reply to its
    end, for upstreams that report usage only there: at most 8 replies at a time, each for 30
    seconds."""
    images: ChannelImages = ChannelImages()
    """The way in which it takes images."""
    traits: Traits = Traits()
    """The traits that its models support, for prompts that are translated for them; takes
    precedence over the models' own traits."""

    @model_validator(mode="after")
    def _check_path(self) -> Self:
        if self.stream_path is not None and self.path is None:
            raise PydanticCustomError("path", "stream_path needs path")
        if self.endpoints and self.path is not None and "{model}/" not in self.path:
            raise PydanticCustomError("endpoints", "endpoints: path has no place for them")
        if self.auth == "client":
            (account, *others) = self.accounts
            has_key = account.source is not None or account.static_key not in ("", NO_KEY)
            if self.discover or others or has_key:
                text = "auth: client needs models by name, and one account with key: none"
                raise PydanticCustomError("auth", text)
        if self.params.get("model") is not None:
            raise PydanticCustomError("reserved", "params: model can only be removed")
        if self.auth == "sigv4" and any(
            each.auth is None and (each.source is None or each.source.aws is None)
            for each in self.accounts
        ):
            raise PydanticCustomError("auth", "auth: sigv4 needs accounts with key: {aws: ...}")
        for account in self.accounts:
            aws = account.source.aws if account.source is not None else None
            if aws is not None and aws.scope(self.base_url) is None:
                text = "key: {aws: ...} needs service and region, which base_url does not show"
                raise PydanticCustomError("key", text.replace("{", "{{").replace("}", "}}"))
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: Any, handler: GetJsonSchemaHandler, /
    ) -> dict[str, Any]:
        """A preset has what else is required."""
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        definition = handler.resolve_ref_schema(schema)
        required = [name for name in definition.pop("required") if name != "models"]
        definition["anyOf"] = [{"required": ["preset"]}, {"required": required}]
        return schema
