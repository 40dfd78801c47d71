"""`gateway db`: backups, copies, the schema, the size and the integrity of the database."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

from gateway.admin.units import format_count
from gateway.cli.client import connect, database_server
from gateway.cli.errors import CommandRefused, GatewayUnreachable, report_config_errors
from gateway.cli.options import FILE, CommandContext, now_us, subcommand
from gateway.cli.output import Column, format_time, print_note, print_table
from gateway.cli.progress import show_progress
from gateway.config.cluster import DatabaseServer
from gateway.store.errors import StateLocked, StoreError
from gateway.store.records import HOUR_US, AuditRow, sanitize_text
from gateway.store.sqlite.lock import DATABASE_NAME, lock_state_dir

if TYPE_CHECKING:  # loaded by the commands that need it
    from gateway.store.postgresql import copy as copies
    from gateway.store.sqlite import backup as backups

_COLUMNS: Final[dict[str, Column]] = {
    "Column": "column",
    "Key": "token_id",
    "Hour": lambda row: format_time(row["hour"] * HOUR_US) if row["hour"] is not None else None,
    "Slot": lambda row: format_time(row["start"]) if row["start"] is not None else None,
    "Group": "group_name",
    "Model": "model",
    "Channel": "channel",
    "Request": "request_id",
    "Link": "link",
    "Stored": "stands",
    "Recomputed": "counted",
}
_CHECK_TIMEOUT: Final = 3600.0  # seconds: it reads every row


@click.group()
def db() -> None:
    """Back up, restore, copy, migrate, shrink and verify the database."""


@subcommand(
    db,
    click.argument("file", type=FILE, required=False),
    click.option(
        "--keep",
        type=click.IntRange(min=1),
        help="Then remove all but so many backups, the newest, that have names of this command.",
    ),
)
def backup(context: CommandContext, file: Path | None, keep: int | None) -> None:
    """Copy the database to a new FILE, also while the gateway runs, and verify the copy.

    FILE can be a directory; the default is `backups` in the state directory. The copy there is
    named after the time. It has digests of keys, no keys, and no secrets of the configuration.
    """
    from gateway.store.sqlite import backup as backups

    refuse_on_server(context, "backup")

    folder = context.state_dir / backups.BACKUP_DIR if file is None else file
    is_named = file is not None and not file.is_dir()
    if is_named and keep is not None:
        raise click.UsageError("--keep needs a directory, where backups are named after the time.")
    target = folder if is_named else folder / backups.backup_name(datetime.now(UTC))
    with _refused(file), show_progress("Copying", hidden=context.as_json) as progress:
        copied = backups.back_up(context.state_dir, target, progress, keep=keep)
    note_backup(context.state_dir, copied.file)
    context.print(_fields(copied), lambda _: _print_copied(copied))


@subcommand(db, click.argument("file", type=FILE))
def restore(context: CommandContext, file: Path) -> None:
    """Replace the database by the backup FILE, while no gateway runs.

    The present database is kept in a folder beside it. What happened since the backup is lost:
    keys, limits, usage, the request log.
    """
    from gateway.store.migrations import MIGRATIONS
    from gateway.store.sqlite import backup as backups

    refuse_on_server(context, "restore", str(file))
    with _refused(file), show_progress("Copying", hidden=context.as_json) as progress:
        note = audit_row("db.restore", file)
        restored = backups.restore(context.state_dir, file, progress, datetime.now(UTC), note)
    if not context.as_json:
        click.echo(f"{restored.file} is now {file} (schema {restored.schema}).")
        if restored.replaced is not None:
            click.echo(f"The database before it is in {restored.replaced}.")
        if restored.schema < len(MIGRATIONS):
            click.echo(f"The next start changes its schema to {len(MIGRATIONS)}.")
        return
    context.print(_fields(restored), lambda _: None)


@subcommand(
    db,
    click.option(
        "--dry-run",
        is_flag=True,
        help="Try it on a copy; of a server, only say what would run. Also while the gateway runs.",
    ),
)
def migrate(context: CommandContext, dry_run: bool) -> None:
    """Bring the database to this release's schema, as the next start would.

    A file is copied before, to one beside it.
    """
    from gateway.store.sqlite.trial import migrate_now, migrate_server, try_migrations

    server = database_server(context.config)
    with _refused():
        if server is not None:
            trial = migrate_server(server, dry_run=dry_run)
        elif dry_run:
            with show_progress("Copying", hidden=context.as_json) as progress:
                trial = try_migrations(context.state_dir, progress)
        else:
            trial = migrate_now(context.state_dir)
    context.print(asdict(trial), lambda _: _print_migrated(asdict(trial), dry_run=dry_run))


@subcommand(db)
def vacuum(context: CommandContext) -> None:
    """Rewrite the database file without its free space, while no gateway runs.

    Needed once for a file of an older release: from then on the file shrinks by itself.
    """
    from gateway.store.sqlite import backup as backups

    refuse_on_server(context, "vacuum")
    with _refused(), show_progress("Rewriting", hidden=context.as_json):
        compacted = backups.compact(context.state_dir)
    before, after = _size(compacted.size_before), _size(compacted.size)
    text = f"The file had {before} and has {after}; it shrinks by itself from now on."
    context.print(asdict(compacted), lambda _: click.echo(text))


@subcommand(
    db,
    click.option("--to", "to_url", metavar="URL", help="A server's empty database."),
    click.option("--to-config", type=FILE, help="The same: that of a configuration's `database`."),
    click.option("--from", "from_url", metavar="URL", help="A server's database."),
    click.option("--from-config", type=FILE, help="That of a configuration's `database`."),
)
def copy(
    context: CommandContext,
    to_url: str | None,
    to_config: Path | None,
    from_url: str | None,
    from_config: Path | None,
) -> None:
    """Copy everything from the database file to a server, or back, while no gateway runs.

    A URL is postgresql://user@host:5432/name; its password is in PGPASSWORD or ~/.pgpass. The
    target has to be empty. A copy that was interrupted goes on where it ended; at the end both are
    compared and the ledger is checked. The source is not changed.
    """
    from gateway.store.postgresql import copy as copies

    if [to_url, to_config, from_url, from_config].count(None) != 3:
        raise click.UsageError("Name one of --to, --to-config, --from and --from-config.")
    is_to = to_url is not None or to_config is not None
    server = _server(to_url or from_url, to_config or from_config)
    copy_all = (
        partial(copies.to_server, context.state_dir, server)
        if is_to
        else partial(copies.to_file, server, context.state_dir)
    )
    with _refused(), show_progress("Copying", hidden=context.as_json) as progress:
        copied = asyncio.run(copy_all(progress))
    rate = round(copied.copied / copied.seconds) if copied.seconds else 0
    context.print(
        asdict(copied) | {"rows_per_second": rate},
        lambda _: _print_tables(copied, rate, next_step=_NEXT_STEPS[is_to]),
    )


_NEXT_STEPS: Final = {
    True: "Set `database` in the configuration of each replica, and start them.",
    False: "Remove `database` and `shared` from the configuration, and start the gateway.",
}


def _server(url: str | None, config: Path | None) -> DatabaseServer:
    from pydantic import ValidationError

    from gateway.config.cluster import DatabaseServer
    from gateway.config.load import load_config
    from gateway.config.secrets import SecretResolver

    if config is not None:
        with report_config_errors():
            server = load_config(config).database
        if server is None:
            raise CommandRefused(f"{config} has no `database`.")
        return server
    if urlsplit(url or "").password is not None:
        raise click.UsageError(
            "A password is no argument, as others can read it: put it into PGPASSWORD or ~/.pgpass."
        )
    try:
        return DatabaseServer.model_validate(
            {"url": url}, context=SecretResolver({}, allow_literals=False)
        )
    except ValidationError as error:
        raise click.UsageError(f"The URL {error.errors()[0]['msg']}.") from None


def _print_tables(copied: copies.CopiedTables, rate: int, next_step: str) -> None:
    rows = [{"table": name, "rows": count} for name, count in copied.rows.items() if count]
    print_table(rows, {"Table": "table", "Rows": lambda row: format_count(row["rows"])})
    before = sum(copied.rows.values()) - copied.copied
    earlier = f", {format_count(before)} by an earlier run" if before else ""
    click.echo(
        f"Copied {format_count(copied.copied)} rows in {copied.seconds:.1f} s"
        f" ({format_count(rate)} rows/s){earlier}. Rows, sums and totals agree."
    )
    print_note(next_step)


@subcommand(
    db, click.option("--head", metavar="HEAD", default="", help="A head that was kept elsewhere.")
)
def check(context: CommandContext, head: str) -> None:
    """Verify that rows, sums and totals agree; also while the gateway runs.

    The totals of each key must be the sums of its hours, each hour the sum of its rows, and the
    rows those of their links, which are chained by hash. With the head of an earlier export or
    check, the chain must still have it. Exit code 1 if there are differences; nothing is changed.
    """
    with (
        show_progress("Verifying", hidden=context.as_json),
        connect(context.state_dir, context.config, timeout=_CHECK_TIMEOUT) as client,
    ):
        report = client.get("/check", head=head or None)
    context.print(report, _print_report)
    if not report["clean"]:
        sys.exit(1)


def _print_report(report: dict[str, Any]) -> None:
    for damage in report["damage"]:
        print_note(f"The database is damaged: {damage}")
    if report["damage"]:
        print_note("Totals were not verified. Restore a backup, or use .recover of sqlite3.")
        return
    keys, rows, hours = (format_count(report[name]) for name in ("keys", "rows", "hours"))
    if discrepancies := report["discrepancies"]:
        print_table(discrepancies, _COLUMNS)
        print_note(
            f"Differences: {len(discrepancies)}, in the totals of {keys} keys, {hours} hourly sums"
            f" and {rows} rows. Nothing was changed."
        )
        return
    click.echo(f"The totals of all keys ({keys}) are the sums of their hours.")
    since = report["rows_kept_since"]
    kept = f" since {format_time(since * HOUR_US)}; older rows are deleted" if since else ""
    click.echo(f"The hourly sums ({hours}) are the sums of their rows ({rows}){kept}.")
    if report["linked_since"] is None:
        click.echo("Rows are not linked yet: replicas of an earlier release may write.")
    else:
        begin = f" since {format_time(report['linked_since'])}" if report["linked_since"] else ""
        click.echo(f"The rows{begin} are those of their links ({format_count(report['links'])}).")
    if report["head"]:
        click.echo(f"Head of the log: {','.join(report['head'])}")
    if report["open"]:
        click.echo(f"Running requests: {format_count(report['open'])}.")


def _print_copied(copied: backups.Copied) -> None:
    click.echo(f"{copied.file} ({_size(copied.size)}, schema {copied.schema}, verified)")
    for old in copied.removed:
        click.echo(f"Removed: {old}")


def _print_migrated(trial: dict[str, Any], *, dry_run: bool) -> None:
    if not trial["steps"]:
        click.echo(f"The database has this release's schema, {trial['schema']}.")
        return
    print_table(trial["steps"], _STEP_COLUMNS)
    if trial["size"] is None:
        print_note("Nothing was changed." if dry_run else f"The schema is now {trial['schema']}.")
        return
    size, free = _size(trial["size"]), _size(trial["free"])
    if dry_run:
        print_note(
            f"Tried on a copy ({size}); the database is unchanged. The start also copies it, for "
            f"which {_size(2 * trial['size'])} have to be free: {free} are."
        )
    else:
        print_note(f"The schema is now {trial['schema']}. The copy from before: {trial['copy']}.")


_STEP_COLUMNS: Final[dict[str, Column]] = {
    "Schema": "number",
    "Migration": "name",
    "Seconds": lambda step: f"{step['seconds']:.2f}",
}


def _size(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"


def _fields(result: Any) -> dict[str, Any]:
    """JSON has paths as texts."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in asdict(result).items()
    } | ({"removed": [str(each) for each in result.removed]} if hasattr(result, "removed") else {})


@contextmanager
def _refused(file: Path | None = None) -> Iterator[None]:
    """`file` is what the user named."""
    try:
        yield
    except StateLocked as error:
        raise CommandRefused(
            f"{error}: stop the gateway first (systemctl stop gateway.socket gateway)."
        ) from None
    except StoreError as error:
        raise CommandRefused(f"{_sentence(str(error), file)}.") from None


def _sentence(text: str, file: Path | None) -> str:
    """Begins with a capital letter, if it does not begin with a path."""
    is_path = file is not None and text.startswith(str(file))
    return text if is_path or not text.split()[0].isalpha() else f"{text[0].upper()}{text[1:]}"


_PASSWORD: Final = "It asks for the password, or finds it in ~/.pgpass."  # noqa: S105 - a hint
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


def audit_row(action: str, file: Path) -> AuditRow:
    """Make a row of the audit log, by the user of this process."""
    from gateway.admin.access.permissions import user_name
    from gateway.store.audit import first_id

    now, actor = now_us(), f"command: {user_name(os.geteuid())}"
    target = sanitize_text(str(file.absolute()))
    return AuditRow(f"{first_id(now)}{token_hex(5)}", now, actor, None, action, target, None, None)


def note_backup(state_dir: Path, file: Path) -> None:
    """Note it through the gateway, or in the file if none runs. The backup exists in any case, so
    it is only a note if that fails."""
    from gateway.store.audit import add_to_file

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
