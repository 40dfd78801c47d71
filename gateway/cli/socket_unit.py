"""The address of systemd's `gateway.socket`, where it is enabled: then it is the gateway's."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gateway.config.schema import Server

UNITS: Final = Path("/etc/systemd/system")
_NAME: Final = "gateway.socket"


def socket_warning(server: Server, units: Path = UNITS) -> str | None:
    """What to say of a socket whose address is not the configuration's."""
    own = f"[{server.host}]:{server.port}" if ":" in server.host else f"{server.host}:{server.port}"
    listening = socket_addresses(units)
    if not listening or own in listening:
        return None
    return (
        f"server.host and server.port ({own}) do not apply: gateway.socket is enabled and listens "
        f"on {', '.join(listening)}. Change it with systemctl edit gateway.socket"
    )


def socket_addresses(units: Path) -> list[str]:
    """None if the unit is not enabled. An empty ListenStream= removes those before it."""
    if not (units / "sockets.target.wants" / _NAME).is_symlink():
        return []
    addresses: list[str] = []
    for file in (units / _NAME, *sorted((units / f"{_NAME}.d").glob("*.conf"))):
        try:
            lines = file.read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, value = (part.strip() for part in line.partition("="))
            if name == "ListenStream":
                addresses = [*addresses, value] if value else []
    return addresses
