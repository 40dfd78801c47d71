"""The types of option values, and the base class of the configuration models."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from itertools import pairwise
from typing import Annotated, Any, Final, LiteralString
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from gateway.core.formats import Format

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
ModelId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$")]
ModelAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9*][A-Za-z0-9._:/@+*-]{0,127}$")]
"""Another name of a model; `*` stands for any text."""
UpstreamModel = Annotated[str, StringConstraints(min_length=1)]
HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$", to_lower=True)]
HeaderText = Annotated[
    str, StringConstraints(pattern=r"^[\x21-\x7e]([\x20-\x7e]{0,254}[\x21-\x7e])?$")
]
"""A header value that is not a secret."""

_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)")
_BYTES: Final = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_FORBIDDEN_URL_PARTS: Final = {
    "username": "must not carry a user name or password: the credential belongs to an account",
    "query": "must not have a query",
    "fragment": "must not have a fragment",
}
_FORBIDDEN_WEBHOOK_PARTS: Final = {
    "username": "must not have a username",
    "fragment": "must not have a fragment",
}


class ConfigModel(BaseModel):
    """A mapping of the file: frozen, strict about types, closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: Any, handler: GetJsonSchemaHandler, /
    ) -> dict[str, Any]:
        """The docstring below an option is its description. pydantic has a setting for that, but
        it reads and parses the source at every import."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, docstring in _attribute_docstrings(cls).items():
            properties[cls.model_fields[name].alias or name].setdefault("description", docstring)
        return schema


def _attribute_docstrings(model: type) -> dict[str, str]:
    """option -> docstring"""
    docstrings: dict[str, str] = {}
    for base in model.__bases__:
        if base is not ConfigModel and issubclass(base, ConfigModel):
            docstrings |= _attribute_docstrings(base)
    (definition,) = ast.parse(inspect.getsource(model)).body
    for pair in pairwise(definition.body if isinstance(definition, ast.ClassDef) else ()):
        match pair:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                docstrings[name] = inspect.cleandoc(text)
            case _:
                pass
    return docstrings


def _quantity_parser(units: Mapping[str, float], kind: type[int | float]) -> BeforeValidator:
    def parse(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        match = _QUANTITY.fullmatch(value)
        if match is None or match[2] not in units:
            raise PydanticCustomError(
                "quantity", f"must be a number, alone or with a unit: {', '.join(units)}"
            )
        return kind(float(match[1]) * units[match[2]])

    return BeforeValidator(parse)


def _quantity_schema(units: Mapping[str, float], kind: str) -> WithJsonSchema:
    pattern = rf"^\d+(\.\d+)? ?({'|'.join(units)})$"
    return WithJsonSchema({"anyOf": [{"type": kind}, {"type": "string", "pattern": pattern}]})


Bytes = Annotated[
    int, _quantity_parser(_BYTES, int), Field(gt=0), _quantity_schema(_BYTES, "integer")
]
Seconds = Annotated[
    float,
    _quantity_parser(_SECONDS, float),
    Field(gt=0, allow_inf_nan=False),
    _quantity_schema(_SECONDS, "number"),
]


_HOST_NAME: Final = re.compile(r"(?:[\w-]{1,63}\.)*(?=\d*[^\W\d]|-)[\w-]{1,63}\.?")
"""The last label has a letter, so that an address with an error is no name."""


def check_host(host: str) -> str:
    """An IP address, or what can be a name; whether it exists is not asked."""
    with suppress(ValueError):
        ip_address(host)
        return host
    if _HOST_NAME.fullmatch(host) is None:
        raise PydanticCustomError("address", "is neither an IP address nor the name of a host")
    return host


Host = Annotated[str, AfterValidator(check_host)]


def check_url(url: str) -> str:
    """The URL without its closing slash: http or https, a host, and nothing but a path."""
    _check_web_url(url, _FORBIDDEN_URL_PARTS)
    return url.rstrip("/")


def check_webhook_url(url: str) -> str:
    """The URL: http or https, a host; a path and a query as they are."""
    _check_web_url(url, _FORBIDDEN_WEBHOOK_PARTS)
    return url


def _check_web_url(url: str, forbidden: Mapping[str, LiteralString]) -> None:
    parts = _split_url(url)
    if parts.scheme not in ("http", "https"):
        raise PydanticCustomError("address", "must begin with http:// or https://")
    if not parts.hostname:
        raise PydanticCustomError("address", "must name a host")
    for field, text in forbidden.items():
        if getattr(parts, field):
            raise PydanticCustomError("address", text)


def check_proxy_url(url: str) -> str:
    """A proxy's URL: http, a host, optionally a port; no credentials."""
    parts = _split_url(url)
    if parts.scheme != "http" or not parts.hostname:
        raise PydanticCustomError("address", "must begin with http:// and name a host")
    if parts.username or parts.path.strip("/") or parts.query or parts.fragment:
        raise PydanticCustomError("address", "must have nothing but a host and a port")
    return url.rstrip("/")


_ENDPOINT: Final = re.compile(
    r"(?:/v1)?/(?:chat/completions|messages(?:/count_tokens)?|responses|models)\Z", re.IGNORECASE
)


def check_base_url(url: str, info: ValidationInfo) -> str:
    """The URL checked against the channel's format (Specification, base address table). Messages
    clients append `/v1/messages`, chat and responses clients only the last part of the path."""
    url, format = check_url(url), info.data.get("format")
    path = urlsplit(url).path
    if match := _ENDPOINT.search(path):
        endpoint = match[0]
        if format is not Format.MESSAGES and endpoint.lower().startswith("/v1"):
            endpoint = endpoint[len("/v1") :]
        raise PydanticCustomError(
            "base_url", f"must not end in an endpoint: leave out {endpoint}, which is appended"
        )
    if format is Format.MESSAGES and path.endswith("/v1"):
        raise PydanticCustomError(
            "base_url", "must not end in /v1: in this format the path /v1/messages is appended"
        )
    if format in (Format.CHAT, Format.RESPONSES) and not path:
        raise PydanticCustomError("base_url", "must have a path, as a rule /v1, in this format")
    return url


def _split_url(url: str) -> SplitResult:
    if any(character.isspace() or not character.isprintable() for character in url):
        raise PydanticCustomError("address", "must not contain spaces")
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where the port is invalid
    except ValueError:
        raise PydanticCustomError("address", "is not a valid address") from None
    if parts.hostname:
        check_host(parts.hostname)
    return parts
