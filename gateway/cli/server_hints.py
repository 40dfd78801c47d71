"""What to use instead of `gateway db …` where the database is on a server."""

from __future__ import annotations

import shlex
from typing import Final

from gateway.cli.client import database_server
from gateway.cli.errors import CommandRefused
from gateway.cli.options import CommandContext
from gateway.config.cluster import DatabaseServer

_PASSWORD: Final = "It asks for the password, or finds it in ~/.pgpass."  # noqa: S105
_TEXTS: Final = {
    "backup": (
        "The database is on a server, which makes its backups itself, also while replicas run:\n"
        "  pg_dump --format=custom --file=gateway.dump {place} {name}"
    ),
    "restore": (
        "The database is on a server. Restore into a new database of it, then stop all replicas,"
        " name that database in `database.url`, and start them:\n"
        "  createdb --template=template0 --encoding=UTF8 {place} {restored}\n"
        "  pg_restore --exit-on-error --no-owner {place} --dbname={restored} {file}"
    ),
    "vacuum": (
        "The database is on a server, which looks after its space itself (autovacuum). To do it"
        " now:\n  vacuumdb --analyze {place} {name}"
    ),
}


def refuse_on_server(context: CommandContext, command: str, file: str = "gateway.dump") -> None:
    """Raises CommandRefused with the server's own command, without secrets."""
    server = database_server(context.config)
    if server is not None:
        name = server.address.name
        text = _TEXTS[command].format(
            place=_place(server),
            name=shlex.quote(name),
            restored=shlex.quote(f"{name}_restored"),
            file=shlex.quote(file),
        )
        raise CommandRefused(f"{text}\n{_PASSWORD}")


def _place(server: DatabaseServer) -> str:
    address = server.address
    user = ["--username", address.user] if address.user else []
    return shlex.join(["--host", address.host, "--port", str(address.port), *user])
