"""A client's request, independent of its format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from gateway.core.formats import Format
from gateway.core.parts import CacheBreakpoint, Part, ProviderData
from gateway.core.value import FastStrEnum, value


class Role(FastStrEnum):
    """Tool results are parts of a user turn, in every format."""

    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"


@value
class Turn:
    role: Role
    parts: tuple[Part, ...]
    name: str | None = None
    extra: ProviderData | None = None


class ToolKind(FastStrEnum):
    """FUNCTION: JSON arguments with a schema. CUSTOM: free text. SERVER: run by the upstream, or
    defined by its type alone."""

    FUNCTION = "function"
    CUSTOM = "custom"
    SERVER = "server"


@value(kw_only=True)
class WebSearch:
    """Options of a web search that the upstream runs. `location` can have city, region, country
    and timezone. `client_executable`: the client also accepts the search as an ordinary tool call
    (Specification, "Feature rules by endpoint"). `is_live`: it may fetch pages, not only read what
    is cached."""

    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    max_uses: int | None = None
    location: Mapping[str, Any] | None = None
    context_size: str | None = None
    client_executable: bool = False
    is_live: bool = True


@value(kw_only=True)
class Tool:
    """`schema` is a JSON Schema; `grammar` the text format of a custom tool; `search` is set for
    web search; `extra` has other fields of a function or custom tool; `definition` is the whole
    tool as sent in its own format, `namespace_definition` its namespace with all tools."""

    kind: ToolKind
    name: str
    description: str | None = None
    schema: Mapping[str, Any] | None = None
    strict: bool | None = None
    grammar: Mapping[str, Any] | None = None
    search: WebSearch | None = None
    namespace: str | None = None
    cache: CacheBreakpoint | None = None
    extra: ProviderData | None = None
    definition: ProviderData | None = None
    namespace_definition: ProviderData | None = None


class ChoiceMode(FastStrEnum):
    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"
    NAMED = "named"
    PROVIDER_SPECIFIC = "opaque"


@value
class ToolChoice:
    """`name` is set for NAMED; `allowed` restricts AUTO or REQUIRED to some tools;
    PROVIDER_SPECIFIC is a choice that only its own format has."""

    mode: ChoiceMode
    name: str | None = None
    kind: ToolKind = ToolKind.FUNCTION
    allowed: tuple[str, ...] | None = None
    extra: ProviderData | None = None


@value(kw_only=True)
class Reasoning:
    """`enabled` None is the model's default; `budget` is in tokens; `mode` is the format's own
    value (`adaptive`, `between_tools`); `summary` is the requested level of detail; `extra` is the
    setting as sent in a format with several forms of it."""

    enabled: bool | None = None
    effort: str | None = None
    budget: int | None = None
    mode: str | None = None
    summary: str | None = None
    extra: ProviderData | None = None


class OutputKind(FastStrEnum):
    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"


@value(kw_only=True)
class OutputFormat:
    """The required format of the reply's text."""

    kind: OutputKind
    schema: Mapping[str, Any] | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


@value(kw_only=True)
class Sampling:
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    choices: int | None = None
    top_logprobs: int | None = None


DEFAULT_SAMPLING: Final = Sampling()
"""Codecs use this object if a prompt has no sampling fields: compare with `is`."""


@value(kw_only=True)
class Prompt:
    """`model` is the id as sent; `extra` has the other top-level fields, as sent.
    `include_cost`: the usage of the reply has its cost.

    `instructions` are those of the responses format, and the first turn too. `previous_response_id`
    and `conversation_id` are only for the reply. `continues`: it names a reply, items or a
    conversation that are not among the turns yet. `background`: the client does not wait for it.
    `reply_id` is the id of the reply, where the gateway chooses it. `compaction`: it has items that
    stand for earlier turns, or that want earlier turns to be summarized."""

    format: Format
    model: str
    turns: tuple[Turn, ...]
    stream: bool = False
    include_usage: bool = False
    include_cost: bool = False
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    output: OutputFormat | None = None
    sampling: Sampling = DEFAULT_SAMPLING
    verbosity: str | None = None
    user: str | None = None
    metadata: Mapping[str, Any] | None = None
    service_tier: str | None = None
    cache_key: str | None = None
    store: bool | None = None
    previous_response_id: str | None = None
    include: tuple[str, ...] = ()
    instructions: str | None = None
    continues: bool = False
    background: bool = False
    reply_id: str | None = None
    conversation_id: str | None = None
    compaction: bool = False
    extra: ProviderData | None = None


_MAX_USER: Final = 64 * 1024
_SESSION_SUFFIX: Final = re.compile(r"_session_([0-9a-zA-Z-]+)\Z")


def agent_session_id(user: str) -> str | None:
    """The session that coding agents encode in `user`: a suffix, or a field of a JSON object."""
    if len(user) > _MAX_USER:
        return None
    if match := _SESSION_SUFFIX.search(user):
        return match[1]
    identity = _agent_identity(user)
    session = identity and (identity.get("session_id") or identity.get("session"))
    return session if isinstance(session, str) else None


def agent_user_id(user: str) -> str | None:
    """The person whom coding agents encode in `user` beside the session, by account or else device;
    other texts as they are."""
    if len(user) > _MAX_USER:
        return None
    if match := _SESSION_SUFFIX.search(user):
        return user[: match.start()]
    if (identity := _agent_identity(user)) is None:
        return user
    person = identity.get("account_uuid") or identity.get("device_id")
    return person if isinstance(person, str) else None


def _agent_identity(user: str) -> dict[str, Any] | None:
    if not user.startswith("{"):
        return None
    try:
        identity: dict[str, Any] = orjson.loads(user)
    except orjson.JSONDecodeError:
        return None
    return identity
