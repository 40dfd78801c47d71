"""The first commands on a connection: authentication, database, and checks of the server."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from libvalkey import pack_command

from gateway.config.cluster import SharedServer, Tls, TlsMode, tls_context
from gateway.fleet.valkey.errors import CommandFailed, SharedError, SharedLost
from gateway.fleet.valkey.link import Link

MIN_VERSION: Final = (7, 2)
"""The oldest server that is supported: major and minor version."""

_POLICY: Final = "noeviction"


async def introduce(link: Link, server: SharedServer, name: str) -> None:
    """Authenticate and select the database. Raises `SharedError`."""
    address = server.address
    secret = server.password.get_secret_value() if server.password else address.password
    if secret:
        user = (address.user,) if address.user else ()
        try:
            await link.call(pack_command(("AUTH", *user, secret)))
        except CommandFailed as error:
            raise SharedError(
                f"shared: {address.host} rejects the password or the user ({_first(error)}): "
                "set the URL's user and shared.password"
            ) from None
    try:
        await link.call(pack_command(("SELECT", address.name or "0")))
    except (CommandFailed, SharedLost) as error:
        if _first(error) == "NOAUTH":
            raise SharedError(
                f"shared: {address.host} requires a password: set shared.password"
            ) from None
        text = f"shared: database {address.name} of {address.host}: {error}"
        raise _failure(error)(text) from None
    with suppress(CommandFailed):  # for people only
        await link.call(pack_command(("CLIENT", "SETNAME", name)))


async def check(link: Link, server: SharedServer) -> None:
    """Raises `SharedError` unless the server is recent enough, evicts nothing, and can be written
    to."""
    host = server.address.host
    try:
        info = _read_info(await link.call(pack_command(("INFO",))))
    except CommandFailed as error:
        raise SharedError(
            f"shared: {host} does not allow INFO, which says whether it evicts entries ({error}): "
            "allow it to the user"
        ) from None
    text = info.get("valkey_version") or info.get("redis_version", "0.0")
    if _version(text) < MIN_VERSION:
        oldest = ".".join(map(str, MIN_VERSION))
        raise SharedError(f"shared: {host} has version {text}: {oldest} or later is needed")
    _check_policy(info, host)
    if info.get("role") != "master":
        raise SharedLost(  # during a failover, for a moment
            f"shared: {host} is a read-only replica: state the address of its primary"
        )
    try:
        await link.call(pack_command(("SET", f"{{{server.prefix}}}:probe", "1", "PX", "1000")))
    except (CommandFailed, SharedLost) as error:
        raise _failure(error)(f"shared: {host} cannot be written to: {error}") from None


def server_tls(server: SharedServer) -> ssl.SSLContext | None:
    """Returns the server's TLS context; None means plain text. Raises `SharedError` for files that
    cannot be used."""
    tls = server.tls or Tls()
    if server.address.scheme != "valkeys" or tls.mode is TlsMode.DISABLE:
        return None
    try:
        return tls_context(tls)
    except OSError as error:
        raise SharedError(f"shared.tls: {error}") from None


async def check_again(link: Link, server: SharedServer) -> None:
    """Raises `SharedError` if the server may evict entries by now."""
    with suppress(CommandFailed):
        info = _read_info(await link.call(pack_command(("INFO", "memory"))))
        _check_policy(info, server.address.host)


def _check_policy(info: Mapping[str, str], host: str) -> None:
    policy = info.get("maxmemory_policy", "")
    if policy != _POLICY:
        raise SharedError(
            f"shared: {host} has maxmemory-policy {policy or 'unknown'}: evicted entries would "
            f"open limits; set it to {_POLICY}"
        )


def _read_info(answer: Any) -> dict[str, str]:
    lines = bytes(answer).decode("utf-8", "replace").splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name: value for name, colon, value in pairs if colon}


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in text.split(".")[:2])


def _failure(error: CommandFailed | SharedLost) -> type[SharedError]:
    return SharedLost if isinstance(error, SharedLost) else SharedError


def _first(error: Exception) -> str:
    return str(error).partition(" ")[0]
