"""The configuration file, and the accounts of its channels."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from gateway.config.channel import Account, Channel
from gateway.config.document import ConfigError
from gateway.config.load import load_config
from gateway.config.schema import Config, Server
from gateway.config.secrets import NO_KEY, SecretResolver
from gateway.doctor.findings import Area, Finding
from gateway.doctor.network import ANY

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def check_configuration(
    path: Path | None, state_dir: Path | None, env: Mapping[str, str] = os.environ
) -> tuple[Config | None, list[Finding]]:
    """The configuration with its references unresolved, or None if it has errors other than missing
    secrets, which belong to the accounts."""
    area = Area("configuration")
    try:
        config = load_config(path, state_dir=state_dir, resolve_secrets=False, env=env)
    except ConfigError as error:
        for problem in error.problems:
            where = ":".join(str(part) for part in (problem.file, problem.line) if part)
            text = ": ".join(part for part in (problem.path, problem.text) if part)
            remedy = "gateway check --config FILE lists all errors of the file"
            if path is None:
                remedy = "gateway doctor --config FILE, or put the file at one of these paths"
            area.problem(where, text, remedy)
        return None, area.findings
    counts = f"{len(config.channels)} channels, {len(config.models)} models"
    area.ok(str(path), f"valid: {counts}")
    for warning in config.warnings:
        area.warn(str(path), warning, "edit the file; gateway check validates it")
    return config, area.findings


def check_channels(
    path: Path | None, config: Config, *, running: bool, env: Mapping[str, str] = os.environ
) -> list[Finding]:
    """Addresses, and the secrets of the file that `config` comes from; nothing is sent. `running`:
    a gateway has resolved its own, so that those that are missing here are only worth a warning."""
    area = Area("channels")
    report = area.warn if running else area.problem
    errors = _secret_errors(path, config.state_dir, env)
    for number, channel in enumerate(config.channels):
        _check_address(area, channel, config.server)
        _check_accounts(area, channel, env, _errors_of(errors, number, channel), report)
    for place, error in errors.items():
        report(place, f"the secret cannot be used here: {error}", _REMEDY)
    return area.findings


def _secret_errors(path: Path | None, state_dir: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Place in the file → why the reference there cannot be resolved."""
    try:
        load_config(path, state_dir=state_dir, env=env)
    except ConfigError as error:
        return {problem.path: problem.text for problem in error.problems}
    return {}


def _errors_of(errors: dict[str, str], number: int, channel: Channel) -> dict[str, str]:
    """Returns the errors of the channel's accounts, by their names; they are removed from
    `errors`."""
    places = {
        f"channels[{number}].accounts[{index}].key": account.name
        for index, account in enumerate(channel.accounts)
    }
    return {name: errors.pop(place) for place, name in places.items() if place in errors}


def _check_address(area: Area, channel: Channel, server: Server) -> None:
    url = urlsplit(channel.base_url)
    port = url.port or _DEFAULT_PORTS[url.scheme]
    own = {server.host, *(LOOPBACK if server.host in {*ANY, *LOOPBACK} else ())}
    subject = channel.name
    if url.hostname in own and port == server.port:
        area.problem(
            subject,
            "its base_url is the gateway's own address: requests would run in a circle",
            "set base_url to the address of the upstream",
        )
    elif server.public_url and urlsplit(server.public_url).hostname == url.hostname:
        area.warn(
            subject,
            "its base_url has the host of server.public_url: requests may run in a circle",
            "set base_url to the address of the upstream",
        )
    elif "/v1/v1" in url.path or "//" in url.path:
        area.problem(subject, f"its base_url has the path {url.path}", "remove what is repeated")
    elif url.scheme == "http" and url.hostname not in LOOPBACK and channel.proxy is None:
        area.warn(
            subject,
            f"{channel.base_url}: requests cross the network unencrypted",
            "use https://, unless this network is your own",
        )
    else:
        area.ok(subject, f"{channel.format} at {channel.base_url}, {len(channel.models)} models")


_REMEDY: Final = (
    "set the variable, or make the file readable for the gateway's user. As a service it has other "
    "secrets than this shell: docs/install.md#configuration-and-secrets has a command to check"
)


def _check_accounts(
    area: Area,
    channel: Channel,
    env: Mapping[str, str],
    errors: Mapping[str, str],
    report: Callable[[str, str, str], None],
) -> None:
    first: dict[str, str] = {}
    for account in channel.accounts:
        subject = f"{channel.name}/{account.name}"
        if (error := errors.get(account.name)) is not None:
            report(subject, f"the credential cannot be used here: {error}", _REMEDY)
        elif account.source is not None:
            area.ok(subject, f"the credential comes from {account.source.kind}")
        elif account.static_key == NO_KEY:
            area.ok(subject, "needs no credential")
        elif (other := first.setdefault(_resolve(account, env), account.name)) != account.name:
            area.warn(
                subject,
                f"has the same credential as {other}: both share the upstream's limits",
                "remove one of the accounts, or give it a credential of its own",
            )
        else:
            area.ok(subject, "the credential resolves")
    if all(account.weight == 0 for account in channel.accounts):
        area.warn(channel.name, "all its accounts have weight 0", "set the weight of one to 1")


def _resolve(account: Account, env: Mapping[str, str]) -> str:
    """The key of an account without an error."""
    return SecretResolver(env).resolve(account.static_key)


def secret_files(config: Config) -> Iterator[Path]:
    """The files that references of accounts name by their absolute path."""
    for channel in config.channels:
        for account in channel.accounts:
            reference = account.static_key
            if reference.startswith("file:/"):
                yield Path(reference.removeprefix("file:"))
