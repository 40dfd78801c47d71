"""Rows of the audit log for commands that use the database file themselves."""

from __future__ import annotations

import os
from pathlib import Path
from secrets import token_hex

import click

from gateway.admin.actor import user_name
from gateway.cli.client import connect
from gateway.cli.errors import GatewayUnreachable
from gateway.cli.option_types import now_us
from gateway.cli.output import print_note
from gateway.store.audit import first_id
from gateway.store.audit_file import add_to_file
from gateway.store.errors import StoreError
from gateway.store.records import AuditRow, sanitize_text
from gateway.store.sqlite.lock import DATABASE_NAME, lock_state_dir


def audit_row(action: str, file: Path) -> AuditRow:
    """By the user of this process."""
    now, actor = now_us(), f"command: {user_name(os.geteuid())}"
    target = sanitize_text(str(file.absolute()))
    return AuditRow(f"{first_id(now)}{token_hex(5)}", now, actor, None, action, target, None, None)


def note_backup(state_dir: Path, file: Path) -> None:
    """Through the gateway, or in the file if none runs. The backup exists in any case, so it is
    only a note if that fails."""
    try:
        try:
            with connect(state_dir, may_serve=False) as client:
                client.post("/backups", {"file": str(file.absolute())})
        except GatewayUnreachable:
            with lock_state_dir(state_dir):
                add_to_file(state_dir / DATABASE_NAME, audit_row("db.backup", file))
    except (click.ClickException, StoreError, OSError) as error:
        text = error.message if isinstance(error, click.ClickException) else error
        print_note(f"The audit log could not be written: {text}")
