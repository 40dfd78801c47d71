"""`gateway check`: validates a configuration without using it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from gateway.cli.errors import report_config_errors
from gateway.cli.options import config_option, json_option
from gateway.cli.output import Column, print_json, print_note, print_table
from gateway.config.load import load_config
from gateway.config.locate import SYSTEM_CONFIG, find_config
from gateway.config.schema import Config, Server

_COLUMNS: Final[dict[str, Column]] = {
    "Channel": "name",
    "Format": "format",
    "Base address": "base_url",
    "Accounts": "accounts",
    "Models": "models",
}


@click.command()
@config_option
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the file.")
@json_option
def check(config: Path | None, schema: bool, as_json: bool) -> None:
    """Validate a configuration and list all its errors.

    References to secrets are resolved: each variable must be set, each file must exist.
    """
    if schema:
        print_json(Config.model_json_schema())
        return
    file = find_config(config)
    with report_config_errors(as_json=as_json):
        loaded = load_config(file)
    of_socket = socket_warning(loaded.server) if file == SYSTEM_CONFIG else None
    warnings = (*loaded.warnings, of_socket) if of_socket is not None else loaded.warnings
    summary = _summary(loaded, warnings)
    if as_json:
        print_json({"ok": True, "file": str(file), **summary})
        return
    for warning in warnings:
        print_note(f"{file}: warning: {warning}")
    counts = f"channels: {len(loaded.channels)}, models: {len(loaded.models)}"
    click.echo(f"{file}: ok ({counts}, state in {loaded.state_dir})")
    if loaded.channels:
        print_table(summary["channels"], _COLUMNS)


def _summary(config: Config, warnings: Sequence[str]) -> dict[str, Any]:
    channels = [
        {
            "name": channel.name,
            "format": channel.format,
            "base_url": channel.base_url,
            "models": list(channel.models),
            "accounts": len(channel.accounts),
        }
        for channel in config.channels
    ]
    return {
        "state_dir": str(config.state_dir),
        "models": len(config.models),
        "channels": channels,
        "warnings": warnings,
    }


_UNITS: Final = Path("/etc/systemd/system")
_SOCKET: Final = "gateway.socket"


def socket_warning(server: Server, units: Path = _UNITS) -> str | None:
    """Returns what to say of a socket whose address is not the configuration's."""
    own = f"[{server.host}]:{server.port}" if ":" in server.host else f"{server.host}:{server.port}"
    listening = socket_addresses(units)
    if not listening or own in listening:
        return None
    return (
        f"server.host and server.port ({own}) do not apply: gateway.socket is enabled and listens "
        f"on {', '.join(listening)}. Change it with systemctl edit gateway.socket"
    )


def socket_addresses(units: Path) -> list[str]:
    """Reads the addresses of the socket; there are none if the unit is not enabled. An empty
    ListenStream= removes the addresses before it."""
    if not (units / "sockets.target.wants" / _SOCKET).is_symlink():
        return []
    addresses: list[str] = []
    for file in (units / _SOCKET, *sorted((units / f"{_SOCKET}.d").glob("*.conf"))):
        try:
            lines = file.read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, value = (part.strip() for part in line.partition("="))
            if name == "ListenStream":
                addresses = [*addresses, value] if value else []
    return addresses
