"""Options of a gateway of several replicas: the database server, the shared state, the replica.

Without them a gateway is one process with an SQLite file, and its limits are in memory.
"""

from __future__ import annotations

import re
import socket
import ssl
from enum import StrEnum
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final, Self
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from gateway.config.secrets import SecretResolver
from gateway.config.types import Bytes, ConfigModel, Name, Seconds, check_host

_NAME_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9._-]+")
_EXTRA: Final = "pip install 'model-gateway[cluster]'"


class TlsMode(StrEnum):
    """DISABLE: plain text. REQUIRE: encrypted, any certificate. VERIFY: also the server's
    certificate and its name."""

    DISABLE = "disable"
    REQUIRE = "require"
    VERIFY = "verify"


class Tls(ConfigModel):
    """TLS of a connection to a server."""

    mode: TlsMode = TlsMode.VERIFY
    """disable, require (encrypted, but the certificate is not checked), or verify."""
    ca: Path | None = None
    """File with the certificates that sign the server's; null: those of the system."""
    cert: Path | None = None
    """File with the client's certificate; null: none."""
    key: Path | None = None
    """File with the key of cert; null: it is in the file cert."""

    @model_validator(mode="after")
    def _check_key(self) -> Self:
        if self.key is not None and self.cert is None:
            raise PydanticCustomError("tls", "key needs cert")
        return self


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Builds the TLS context of the client's side, of a mode other than DISABLE. Raises OSError
    (ssl.SSLError is one) for files that cannot be used."""
    context = ssl.create_default_context(cafile=str(tls.ca) if tls.ca else None)
    if tls.mode is TlsMode.REQUIRE:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key)
    return context


class ServerUrl:
    """The parts of a server's URL; a password in it is percent-decoded."""

    __slots__ = ("host", "name", "password", "port", "scheme", "user")

    def __init__(self, url: str, default_port: int) -> None:
        """The URL is valid (`_check_url`)."""
        parts = urlsplit(url)
        self.scheme = parts.scheme
        self.host = parts.hostname or ""
        self.port = parts.port or default_port
        self.user = unquote(parts.username or "")
        self.password = unquote(parts.password or "")
        self.name = unquote(parts.path.removeprefix("/"))
        """The name of the database: a name with PostgreSQL, a number with Valkey."""


def _check_url(url: str, schemes: tuple[str, ...], needs_name: bool) -> None:
    """Raises PydanticCustomError without any part of the URL: it may have a password."""
    try:
        parts: SplitResult = urlsplit(url)
        _ = parts.port  # raises where the port is invalid
    except ValueError:
        raise PydanticCustomError("address", "is not a valid address") from None
    if parts.scheme not in schemes:
        raise PydanticCustomError("address", f"must begin with {' or '.join(schemes)}, then ://")
    if not parts.hostname:
        raise PydanticCustomError("address", "must name a host")
    check_host(parts.hostname)
    if parts.query or parts.fragment:
        raise PydanticCustomError("address", "must not have a query: options have own keys")
    if needs_name and not parts.path.strip("/"):
        raise PydanticCustomError("address", "must end with the name of the database: /gateway")


def _resolve(text: SecretStr, info: ValidationInfo) -> SecretStr:
    """The text itself, or what it refers to. A URL without a password is no secret."""
    if not isinstance(info.context, SecretResolver):
        return text
    value = text.get_secret_value()
    is_public = "://" in value and "@" in value and ":" not in value.split("@")[0].split("://")[1]
    is_public = is_public or ("://" in value and "@" not in value)
    return SecretStr(info.context.resolve(value, plain=is_public))


def _resolve_database(text: SecretStr, info: ValidationInfo) -> SecretStr:
    url = _resolve(text, info)
    if isinstance(info.context, SecretResolver):
        _check_url(url.get_secret_value(), ("postgresql",), needs_name=True)
    return url


def _resolve_shared(text: SecretStr, info: ValidationInfo) -> SecretStr:
    url = _resolve(text, info)
    if isinstance(info.context, SecretResolver):
        _check_url(url.get_secret_value(), ("valkey", "valkeys"), needs_name=False)
        number = urlsplit(url.get_secret_value()).path.strip("/")
        if number and not number.isdecimal():
            raise PydanticCustomError("address", "must end with the database's number, or none")
    return url


def _from_url(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) else value


class DatabaseServer(ConfigModel):
    """A PostgreSQL server that keeps keys, groups, money, the request log and stored responses."""

    url: Annotated[SecretStr, AfterValidator(_resolve_database)]
    """postgresql://user@host:5432/database, or a reference: ${NAME} or file:/path. A password in it
    is accepted where keys are, else it has an option of its own."""
    password: Annotated[SecretStr, AfterValidator(_resolve)] | None = None
    """The password: ${NAME} or file:/path; null: the one of the URL, if any."""
    tls: Tls | None = None
    """null: encrypted where the server can, without a check of its certificate."""
    connections: int = Field(default=4, ge=1, le=100)
    """Connections of one replica for reading; it has up to seven more, of one use each."""
    timeout: Seconds = 5
    """The time that connecting, or a statement that a request waits for, may take; "5s" is accepted
    too."""

    @cached_property
    def address(self) -> ServerUrl:
        """The parts of the URL, if it is resolved."""
        return ServerUrl(self.url.get_secret_value(), 5432)


class SharedServer(ConfigModel):
    """A Valkey server that keeps what replicas share and what can be rebuilt: rate limits, running
    requests, queues, the health of accounts, session affinity."""

    url: Annotated[SecretStr, AfterValidator(_resolve_shared)]
    """valkey://user@host:6379/0, or valkeys:// for TLS, or a reference: ${NAME} or file:/path."""
    password: Annotated[SecretStr, AfterValidator(_resolve)] | None = None
    """The password: ${NAME} or file:/path; null: the one of the URL, if any."""
    tls: Tls | None = None
    """Options of valkeys://; null: the server's certificate is checked with the system's."""
    prefix: Name = "gateway"
    """The beginning of every name in it: several gateways can share a server."""
    timeout: Seconds = 0.5
    """The server counts as lost where answers are due, and for so long none comes; "500ms" is
    accepted too."""

    @cached_property
    def address(self) -> ServerUrl:
        """The parts of the URL, if it is resolved."""
        return ServerUrl(self.url.get_secret_value(), 6379)


class Replica(ConfigModel):
    """This process among the replicas of a gateway."""

    name: Name | None = None
    """Its name, which no other replica has; null: the host's name and the port."""
    expiry: Annotated[Seconds, Field(ge=10)] = 60
    """The time after which other replicas settle the requests of a replica that is not heard of,
    and another replica can have its name. At least 10."""
    lease_expiry: Seconds = 1800
    """The time for which a replica that is not heard of keeps its budget leases, as it may only be
    cut off, and have requests that run: after this, others use its part of the budgets. One that
    was killed gives them back when it is started again with its state. Never less than expiry; the
    default is the longest that a reply may take."""
    lease_share: Annotated[float, Field(ge=0, le=1)] = 0.8
    """The share of its part of what is left of a budget that a replica leases ahead, for minutes
    without the database; its part is the part of one of all replicas. Nothing in the last twentieth
    of a budget, and if another replica is short. 0 to 1."""
    spool: Bytes = 256 * 2**20
    """Size of the part of the request log that may wait on this replica's disk while the database
    cannot be reached, in bytes; "256MiB" is accepted too. Where there is no more room, new requests
    are refused."""

    def name_for(self, port: int) -> str:
        """The stated name, else the host's and the port."""
        if self.name is not None:
            return self.name
        host = _NAME_CHARACTERS.sub("-", socket.gethostname()).strip("-._")[:50] or "replica"
        return f"{host}-{port}"


def _check_extra(server: DatabaseServer | SharedServer | None) -> Any:
    module = "asyncpg" if isinstance(server, DatabaseServer) else "libvalkey"
    if server is not None and find_spec(module) is None:
        raise PydanticCustomError("cluster", f"needs the extra package: {_EXTRA}")
    return server


DatabaseOption = Annotated[
    DatabaseServer | None, BeforeValidator(_from_url), AfterValidator(_check_extra)
]
SharedOption = Annotated[
    SharedServer | None, BeforeValidator(_from_url), AfterValidator(_check_extra)
]
