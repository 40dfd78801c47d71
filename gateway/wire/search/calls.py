"""Web search in requests: its options, and what the formats can express of them.

Options that restrict a search are never lost silently, as the reply would then rest on pages that
the client excludes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.core.prompt import ChoiceMode, Prompt, WebSearch
from gateway.core.target import Target
from gateway.errors import UnsupportedField
from gateway.wire.json.fields import (
    Payload,
    invalid_field,
    join_path,
    optional_bool,
    optional_int,
    optional_object,
    optional_str,
    strings,
)
from gateway.wire.prompt.dropped import Dropped

WEB_SEARCH: Final = "web_search"
"""The name of the tool, in every format."""
TYPE_PREFIX: Final = "web_search_"
"""The prefix of types of the messages format; a date follows."""
FIRST_VERSION: Final = 20250305
"""The date of the version that every upstream of the messages format has."""

QUERY_SCHEMA: Final = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What to search for."}},
    "required": ["query"],
}
_OPTIONS: Final[Mapping[Format, frozenset[str]]] = {
    Format.CHAT: frozenset({"user_location", "search_context_size"}),
    Format.MESSAGES: frozenset({"max_uses", "allowed_domains", "blocked_domains", "user_location"}),
    Format.RESPONSES: frozenset(
        {"max_uses", "allowed_domains", "user_location", "search_context_size"}
    ),
}
_LIMITS: Final = ("allowed_domains", "blocked_domains")
_RESTRICTIONS: Final = frozenset({"alloweddomains", "blockeddomains", "maxuses", "filters"})
"""Fields that limit a search, however they are spelled."""
_MAX_NAME: Final = 64
_PLACES: Final[Mapping[Format, str]] = {
    Format.CHAT: "searches of this format cannot be limited",
    Format.MESSAGES: "searches of this format are limited by the tool's allowed_domains, "
    "blocked_domains and max_uses",
    Format.RESPONSES: "searches of this format are limited by filters.allowed_domains, "
    "filters.blocked_domains and max_tool_calls",
}
_LOCATION_FIELDS: Final = ("city", "region", "country", "timezone")
_CONTEXT_SIZES: Final = ("low", "medium", "high")
_MAX_DOMAINS: Final = 200
_MAX_DOMAIN: Final = 2048
_DOMAIN: Final = re.compile(r"(?i:https?://)?+([^\s/?#*]+(?:/[^\s?#*]*(?:\*[^\s?#*]*)?)?)")
"""A domain with at most one wildcard, in the path. Domains have no scheme, but clients send it."""
_SHARED_FIELDS: Final = frozenset(
    {
        *("type", "name", "max_uses", "allowed_domains", "blocked_domains", "user_location"),
        *("cache_control", "allowed_callers", "defer_loading", "strict"),
    }
)
"""The fields that all versions of the messages format have."""


def check_restrictions(fields: Payload, path: str, known: Set[str], format: Format) -> None:
    """Raises `InvalidRequest` for what would limit a search at another place, or by another
    spelling of its name, and would be ignored here."""
    for name, value in fields.items():
        if name in known or value is None or len(name) > _MAX_NAME:
            continue
        if name.lower().replace("_", "").replace("-", "") in _RESTRICTIONS:
            raise invalid_field(join_path(path, name), f"Extra inputs here; {_PLACES[format]}")


def parse_search(fields: Payload, path: str, *, lists: Payload, lists_path: str) -> WebSearch:
    """The options of a search; `lists` has the lists of domains. Raises `InvalidRequest` naming the
    field that is malformed."""
    allowed = _domains(lists, "allowed_domains", lists_path)
    blocked = _domains(lists, "blocked_domains", lists_path)
    if lists.get("allowed_domains") == [] and not blocked:
        at = join_path(lists_path, "allowed_domains")
        raise invalid_field(at, "List should have at least 1 item, or be null")
    if allowed and blocked:
        at = join_path(lists_path, "blocked_domains")
        raise invalid_field(at, "cannot be used together with allowed_domains")
    location = optional_object(fields, "user_location", path) or {}
    return WebSearch(
        allowed_domains=allowed,
        blocked_domains=blocked,
        max_uses=optional_int(fields, "max_uses", path, minimum=1),
        location=_location(location, join_path(path, "user_location")),
        context_size=_context_size(fields, path),
        is_live=optional_bool(fields, "external_web_access", path) is not False,
    )


def parse_chat_search(fields: Payload, path: str) -> WebSearch:
    """Parses a search of chat: `user_location` has the location in `approximate`, or has its fields
    itself."""
    at = join_path(path, "user_location")
    check_restrictions(fields, path, frozenset(), Format.CHAT)
    location = optional_object(fields, "user_location", path) or {}
    if (inner := optional_object(location, "approximate", at)) is not None:
        location, at = inner, f"{at}.approximate"
    return WebSearch(location=_location(location, at), context_size=_context_size(fields, path))


def _domains(fields: Payload, name: str, path: str) -> tuple[str, ...]:
    domains = strings(fields, name, path)
    at = join_path(path, name)
    if len(domains) > _MAX_DOMAINS:
        raise invalid_field(at, f"List should have at most {_MAX_DOMAINS} items")
    names: list[str] = []
    for index, domain in enumerate(domains):
        match = None if len(domain) > _MAX_DOMAIN else _DOMAIN.fullmatch(domain)
        if match is None:
            raise invalid_field(f"{at}.{index}", "Input should be a domain, such as example.com")
        names.append(match[1])
    return tuple(names)


def _location(fields: Payload, path: str) -> Payload | None:
    kind = optional_str(fields, "type", path)
    if kind not in (None, "approximate"):
        raise invalid_field(join_path(path, "type"), "Input should be 'approximate'")
    given = {name: optional_str(fields, name, path) for name in _LOCATION_FIELDS}
    return {name: text for name, text in given.items() if text} or None


def _context_size(fields: Payload, path: str) -> str | None:
    size = optional_str(fields, "search_context_size", path)
    if size is not None and size not in _CONTEXT_SIZES:
        at = join_path(path, "search_context_size")
        raise invalid_field(at, "Input should be 'low', 'medium' or 'high'")
    return size


def search_options(search: WebSearch, format: Format, dropped: Dropped) -> Payload:
    """The options by the names that the formats share. Raises `UnsupportedField` for a list of
    domains that the format cannot express."""
    options: Payload = {
        "max_uses": search.max_uses,
        "allowed_domains": list(search.allowed_domains) or None,
        "blocked_domains": list(search.blocked_domains) or None,
        "user_location": {"type": "approximate", **search.location} if search.location else None,
        "search_context_size": search.context_size,
    }
    options = {name: value for name, value in options.items() if value is not None}
    supported = _OPTIONS[format]
    unsupported = {name for name in options if name not in supported}
    for name in _LIMITS:
        if name in unsupported:
            reason = "the model's upstream would search without this limit"
            raise UnsupportedField(f"tools.{name}", reason)
    if search.context_size == "medium":  # the default
        unsupported -= {"search_context_size"}
    dropped.names.update(f"tools.{name}" for name in unsupported)
    return {name: options[name] for name in options if name in supported}


def drop_search_options(search: WebSearch, dropped: Dropped) -> None:
    """Drops options of a search that goes to the client as an ordinary call: the client limits it
    itself."""
    dropped.drop_set(
        **{
            "tools.max_uses": search.max_uses,
            "tools.allowed_domains": search.allowed_domains,
            "tools.blocked_domains": search.blocked_domains,
            "tools.user_location": search.location,
        }
    )


def client_function(search: WebSearch, dropped: Dropped) -> Payload | None:
    """Description and schema of the function that replaces a search where the upstream has none,
    for clients that accept it as an ordinary call; None for others, whose search is dropped."""
    if not search.client_executable:
        dropped.drop(WEB_SEARCH)
        return None
    drop_search_options(search, dropped)
    return {"description": "Searches the web.", "schema": QUERY_SCHEMA}


def can_express(search: WebSearch, format: Format) -> bool:
    """Tells whether the format has what limits the search."""
    supported = _OPTIONS[format]
    return not (search.blocked_domains and "blocked_domains" not in supported) and not (
        search.allowed_domains and "allowed_domains" not in supported
    )


def declared_search(prompt: Prompt) -> WebSearch | None:
    """The web search among the tools, whether or not the model may use it."""
    for tool in prompt.tools:
        if tool.search is not None:
            return tool.search
    return None


def requested_search(prompt: Prompt) -> WebSearch | None:
    """The web search that the model may use; None where there is none, where the choice of tools
    excludes it, or where it may not be live."""
    choice = prompt.tool_choice
    if choice is not None and choice.mode is ChoiceMode.NONE:
        return None
    for tool in prompt.tools:
        if tool.search is not None:
            is_excluded = choice is not None and (
                choice.allowed is not None
                and not {tool.name, WEB_SEARCH}.intersection(choice.allowed)
            )
            return None if is_excluded or not tool.search.is_live else tool.search
    return None


def unknown_options(prompt: Prompt) -> Set[str]:
    """The names of options that a search of the gateway does not have."""
    names: set[str] = set()
    for tool in prompt.tools:
        if tool.search is not None:
            names.update(tool.extra.data if tool.extra is not None else ())
            if tool.search.context_size not in (None, "medium"):
                names.add("search_context_size")
    return {f"tools.{name}" for name in names}


def max_calls(prompt: Prompt) -> int | None:
    """`max_tool_calls` of a responses client, which limits its searches."""
    fields = ProviderData.native_fields(prompt.extra, Format.RESPONSES)
    limit: int | None = fields.get("max_tool_calls")
    return limit


def lower_version(definition: Payload, target: Target) -> Payload:
    """A definition of the messages format in a version that the target has, where the configuration
    states one; fields that it lacks are left out."""
    known, kind = target.web_search, definition.get("type")
    if known is None or isinstance(known, bool) or not str(kind).startswith(TYPE_PREFIX):
        return definition
    date = str(kind).removeprefix(TYPE_PREFIX)
    if date.isdecimal() and int(date) <= known:
        return definition
    kept = {name: value for name, value in definition.items() if name in _SHARED_FIELDS}
    return kept | {"type": f"{TYPE_PREFIX}{known}"}


def messages_type(target: Target) -> str:
    """The type of a search for an upstream of the messages format."""
    known = target.web_search
    return f"{TYPE_PREFIX}{FIRST_VERSION if known is None or isinstance(known, bool) else known}"


def chat_options(options: Mapping[str, Any]) -> Payload:
    """`web_search_options`, of options by the names that the formats share."""
    fields = dict(options)
    if location := fields.pop("user_location", None):
        approximate = {name: value for name, value in location.items() if name != "type"}
        fields["user_location"] = {"type": "approximate", "approximate": approximate}
    return fields
