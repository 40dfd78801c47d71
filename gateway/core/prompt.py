"""Everything the client asks, in the hub's form. It must not know any wire format.

A prompt is what validates a request, feeds routing, and is rendered where the formats differ.

The conversation that coding agents hide in the name of their user. It must not know what follows
from one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from gateway.core.formats import Format
from gateway.core.parts import CacheBreakpoint, Part, ProviderData
from gateway.core.value import FastStrEnum, value


class Role(FastStrEnum):
    """Who speaks. Tool results are parts of a user's turn, in every format."""

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
    """Function: JSON arguments by schema. Custom: free text. Server: run by the upstream itself,
    or known to the model by its type alone."""

    FUNCTION = "function"
    CUSTOM = "custom"
    SERVER = "server"


@value(kw_only=True)
class WebSearch:
    """What a client asks of a web search that the upstream runs. `location` holds city, region,
    country and timezone as far as told; `handed_back`: the client also takes the search as an
    ordinary call that it runs itself (Specification, "Feature rules by endpoint")."""

    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    max_uses: int | None = None
    location: Mapping[str, Any] | None = None
    context_size: str | None = None
    client_executable: bool = False


@value(kw_only=True)
class Tool:
    """`schema` is a JSON Schema; `grammar` the free-text form of a custom tool; `search` is set on
    a server tool that searches the web; `extra` holds the fields of a function or custom tool that
    the hub has no word for; `definition` is the tool as it stood on its own format's wire."""

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


class ChoiceMode(FastStrEnum):
    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"
    NAMED = "named"
    PROVIDER_SPECIFIC = "opaque"


@value
class ToolChoice:
    """`name` goes with NAMED; `allowed` narrows AUTO or REQUIRED to some of the tools; OPAQUE is
    a choice that only its own format can express."""

    mode: ChoiceMode
    name: str | None = None
    kind: ToolKind = ToolKind.FUNCTION
    allowed: tuple[str, ...] | None = None
    extra: ProviderData | None = None


@value(kw_only=True)
class Reasoning:
    """How hard to think: `enabled` None leaves it to the model; `budget` is in tokens.

    `mode` is the format's own word (`adaptive`, `between_tools`), `summary` how much of the
    reasoning the client wants to read; `extra` is the wish as it stood on the wire of a format that
    has several ways to say it.
    """

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
    """The form that the answer's text must have."""

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
"""Of a prompt that says nothing of it. Codecs use this very value, so that it is known at sight."""


@value(kw_only=True)
class Prompt:
    """One request. `model` is the id as sent; `extra` holds every top-level field that the hub
    has no word for, as it stood on the wire."""

    format: Format
    model: str
    turns: tuple[Turn, ...]
    stream: bool = False
    include_usage: bool = False
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
    extra: ProviderData | None = None


_SESSION_SUFFIX: Final = re.compile(r"_session_([0-9a-zA-Z-]+)\Z")


def agent_session_id(user: str) -> str | None:
    """At the end of the name, or a field where the name is a JSON object."""
    if match := _SESSION_SUFFIX.search(user):
        return match[1]
    if not user.startswith("{"):
        return None
    try:
        identity = orjson.loads(user)
    except orjson.JSONDecodeError:
        return None
    session = identity.get("session_id") or identity.get("session")
    return session if isinstance(session, str) else None
