"""What `gateway serve --demo` tells a newcomer: ready commands, addresses, the key and the
console's password."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import click

_CALLS: Final = (
    (
        "chat-completions",
        "/v1/chat/completions",
        ("-H 'authorization: Bearer {key}'",),
        '{{"model": "beta-5.4", "stream": true, '
        '"messages": [{{"role": "user", "content": "Hello!"}}]}}',
    ),
    (
        "messages",
        "/v1/messages",
        ("-H 'x-api-key: {key}'", "-H 'vendor-version: 2023-06-01'"),
        '{{"model": "alpha-sonnet-4-6", "max_tokens": 200, "stream": true, '
        '"messages": [{{"role": "user", "content": "Hello!"}}]}}',
    ),
    (
        "responses",
        "/v1/responses",
        ("-H 'authorization: Bearer {key}'",),
        '{{"model": "beta-5.4", "stream": true, "input": "Hello!"}}',
    ),
)


def print_demo_help(address: str, key: str, password: str, state_dir: Path) -> None:
    """Prints three commands that work as they stand, and what to configure clients with."""
    click.echo(f"A gateway with a simulated model is serving on {address}\n")
    for name, path, headers, body in _CALLS:
        lines = [f"curl -N {address}{path}", "-H 'content-type: application/json'", *headers]
        command = " \\\n  ".join([*lines, f"-d '{body}'"]).format(key=key)
        click.echo(f"# {name}\n{command}\n")
    click.echo(f"base address for chat and responses clients: {address}/v1")
    click.echo(f"base address for messages clients:           {address}")
    click.echo(f"key: {key}\n")
    click.echo(f"console: {address}/console  password, for this run: {password}\n")
    click.echo(f"Every request is on record: {_command()} logs list --state-dir {state_dir}")
    click.echo("Ctrl-C stops it.")


def _command() -> str:
    """How this gateway is called from here, for a shell that may not have it on its path."""
    called = Path(sys.argv[0])
    return os.path.relpath(called) if called.name == "gateway" else "python -m gateway"
