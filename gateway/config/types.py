"""What every mapping of the file has in common. It must not know any option.

What names may look like, whatever bears them. It must not know what is called so.

Sizes and durations as an operator writes them: `64MiB`, `2m`, or a bare number.

It must not know which option it reads.

Addresses: what may stand as a channel's `base_url`, its proxy, or the gateway's public address.

It must not know whether anything answers there.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from textwrap import dedent
from typing import Annotated, Any, Final
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from gateway.core.formats import Format


class ConfigModel(BaseModel):
    """A mapping of the file: frozen, strict about types, and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: Any, handler: GetJsonSchemaHandler, /
    ) -> dict[str, Any]:
        """The docstring below an option is its description. pydantic has a setting for that, with
        which every import reads and parses the source."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for section in cls.__mro__:
            if issubclass(section, ConfigModel):
                for name, docstring in _attribute_docstrings(section).items():
                    if (field := cls.model_fields.get(name)) is not None:
                        properties[field.alias or name].setdefault("description", docstring)
        return schema


def _attribute_docstrings(section: type) -> dict[str, str]:
    """Of the attributes that the class defines itself: option → docstring."""
    (definition,) = ast.parse(dedent(inspect.getsource(section))).body
    found = {}
    if isinstance(definition, ast.ClassDef):
        for attribute, below in zip(definition.body, definition.body[1:], strict=False):
            match attribute, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = inspect.cleandoc(text)
                case _:
                    pass
    return found


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
ModelId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$")]
UpstreamModel = Annotated[str, StringConstraints(min_length=1)]
HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$", to_lower=True)]
HeaderText = Annotated[
    str, StringConstraints(pattern=r"^[\x21-\x7e]([\x20-\x7e]{0,254}[\x21-\x7e])?$")
]
"""The value of a header that is no secret."""


_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)")
_BYTES: Final = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def _parser(units: Mapping[str, float], kind: type[int | float]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        written = _QUANTITY.fullmatch(value)
        if written is None or written[2] not in units:
            raise PydanticCustomError(
                "quantity", f"must be a number, alone or with a unit: {', '.join(units)}"
            )
        return kind(float(written[1]) * units[written[2]])

    return read


def _json_schema(units: Mapping[str, float], kind: str) -> WithJsonSchema:
    pattern = rf"^\d+(\.\d+)? ?({'|'.join(units)})$"
    return WithJsonSchema({"anyOf": [{"type": kind}, {"type": "string", "pattern": pattern}]})


Bytes = Annotated[
    int, BeforeValidator(_parser(_BYTES, int)), Field(gt=0), _json_schema(_BYTES, "integer")
]
Seconds = Annotated[
    float,
    BeforeValidator(_parser(_SECONDS, float)),
    Field(gt=0, allow_inf_nan=False),
    _json_schema(_SECONDS, "number"),
]


_FORBIDDEN_PARTS: Final = {
    "username": "must not carry a user name or password: the credential belongs to an account",
    "query": "must not have a query",
    "fragment": "must not have a fragment",
}


def check_url(url: str) -> str:
    """The address without its closing slash; http or https, a host, and nothing but a path."""
    parts = _split_url(url)
    if parts.scheme not in ("http", "https"):
        raise PydanticCustomError("address", "must begin with http:// or https://")
    if not parts.hostname:
        raise PydanticCustomError("address", "must name a host")
    for field, text in _FORBIDDEN_PARTS.items():
        if getattr(parts, field):
            raise PydanticCustomError("address", text)
    return url.rstrip("/")


def check_proxy_url(url: str) -> str:
    """A proxy's address: http, a host and maybe a port. It asks for no password."""
    parts = _split_url(url)
    if parts.scheme != "http" or not parts.hostname:
        raise PydanticCustomError("address", "must begin with http:// and name a host")
    if parts.username or parts.path.strip("/") or parts.query or parts.fragment:
        raise PydanticCustomError("address", "must have nothing but a host and a port")
    return url.rstrip("/")


def check_base_url(url: str, format: Format | None) -> str:
    """Hold an address to its format (Specification, base address table); `format` None: unknown.

    Clients of messages append `/v1/messages` themselves, those of chat and responses only the
    last part of the path.
    """
    url = check_url(url)
    path = urlsplit(url).path
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
        _ = parts.port  # read for its check alone: it raises where the port is no port
    except ValueError:
        raise PydanticCustomError("address", "is not a valid address") from None
    return parts
