"""`gateway key import`: creates keys from a CSV file.

All rows are validated before the first key is created; errors name line and column, and do not
repeat cells, which can be secrets. Requests are small, so that they do not delay a busy gateway.
"""

from __future__ import annotations

import csv
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO

import click

from gateway.admin.text_fields import parse_field, short_name
from gateway.admin.units import NONE_WORDS
from gateway.cli.client import Client, connect
from gateway.cli.errors import CommandRefused
from gateway.cli.options import CommandContext, now_us, warn_unknown_models, with_context
from gateway.cli.output import print_json, print_note
from gateway.core.limits import DIMENSION_BUDGETS, LIMIT_NAMES

_FIELDS: Final = {
    short_name(name): name
    for name in (
        *("name", "group", "expires_at", "note", "models", "addresses", "user_agents", "trust"),
        *LIMIT_NAMES,
        *DIMENSION_BUDGETS,
        *("probe", "cost_in_usage", "key"),
    )
}
"""Column → field of the admin API."""

COLUMNS: Final = tuple(_FIELDS)

_LITERAL_COLUMNS: Final = ("name", "key")
"""Columns in which `none` does not mean an empty cell."""

_COLUMN_NAME: Final = re.compile(r"[a-z_ ]{1,20}", re.ASCII)


@dataclass(frozen=True, slots=True)
class KeyRow:
    """The fields of a key for the admin API; `line` is the row's first line in the file."""

    line: int
    fields: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True, order=True)
class CellError:
    """`column` is empty for an error of the whole line."""

    line: int
    column: str
    message: str

    def __str__(self) -> str:
        column = f", {self.column}" if self.column else ""
        return f"line {self.line}{column}: {self.message}"


def parse_key_csv(lines: Iterable[str], now: int) -> tuple[list[KeyRow], list[CellError]]:
    """Returns all rows without their invalid cells, and all errors. A file with an invalid header
    has no rows."""
    reader = csv.reader(lines, strict=True)
    rows: list[KeyRow] = []
    errors: list[CellError] = []
    try:
        columns = [column.strip() for column in next(reader, [])]
        errors += _check_header(columns)
        if errors:
            return rows, errors
        line = reader.line_num + 1
        for cells in reader:
            if any(cell.strip() for cell in cells):
                rows.append(_parse_row(line, columns, cells, now, errors))
            line = reader.line_num + 1
    except csv.Error as error:
        errors.append(CellError(reader.line_num, "", f"is not valid CSV: {error}"))
    errors += _remove_repeated_keys(rows)
    return rows, errors


def column_of(path: str) -> str:
    """The column of a field of the admin API, such as `limits.requests_per_minute`."""
    name, *rest = path.split(".")
    if name == "limits" and rest:
        name = rest[0]
    return short_name(name) if name in _FIELDS.values() else path


def _check_header(columns: list[str]) -> Iterator[CellError]:
    """Checks the header. In a file without one, the first line can have secrets: columns that do
    not look like names are reported by number."""
    rule = f"the first line must be a header of comma-separated columns: {', '.join(COLUMNS)}"
    for number, column in enumerate(columns, 1):
        if columns.index(column) != number - 1:
            continue
        if column not in COLUMNS:
            label = column if _COLUMN_NAME.fullmatch(column) else f"column {number}"
            yield CellError(1, label, f"is not a column; {rule}")
        elif columns.count(column) > 1:
            yield CellError(1, column, "occurs more than once")
    if "name" not in columns:
        yield CellError(1, "name", f"is missing; {rule}")


def _parse_row(
    line: int, columns: list[str], cells: list[str], now: int, errors: list[CellError]
) -> KeyRow:
    if len(cells) > len(columns):
        errors.append(CellError(line, "", f"has {len(cells)} cells for {len(columns)} columns"))
    fields: dict[str, Any] = {"name": "", "limits": {}}
    for column, cell in zip(columns, map(str.strip, cells), strict=False):
        if not cell or (cell in NONE_WORDS and column not in _LITERAL_COLUMNS):
            continue
        name = _FIELDS[column]
        try:
            value = parse_field(name, _split_agents(cell) if name == "user_agents" else cell, now)
        except ValueError as error:
            errors.append(CellError(line, column, str(error)))
            continue
        (fields["limits"] if name in LIMIT_NAMES else fields)[name] = value
    return KeyRow(line, fields)


def _split_agents(cell: str) -> str:
    """Puts one user agent on a line. Semicolons separate them, or spaces if there is no
    semicolon."""
    return "\n".join(cell.split(";") if ";" in cell else cell.split())


def _remove_repeated_keys(rows: list[KeyRow]) -> Iterator[CellError]:
    """Removes a key from all rows but the first, so that the admin API does not report it again."""
    first_lines: dict[str, int] = {}
    for row in rows:
        key = row.fields.get("key")
        if key is not None and first_lines.setdefault(key, row.line) != row.line:
            del row.fields["key"]
            yield CellError(row.line, "key", f"is also the key of line {first_lines[key]}")


_BATCH_SIZE: Final = 50  # keys per request
_MAX_CHARACTERS: Final = 32 * 2**20
_OUTPUT_COLUMNS: Final = ("id", "name", "key")

CreatedKeys = list[dict[str, str]]
"""Id, name and secret of each key."""

SaveFn = Callable[[CreatedKeys], None]
ProgressFn = Callable[[int], None]
"""Gets the number of rows that are done."""


@click.command(name="import")
@click.argument("file", type=click.File("r", encoding="utf-8-sig"))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="A new file for the keys; otherwise they are printed.",
)
@click.option("--dry-run", is_flag=True, help="Only validate the file.")
@with_context
def import_keys(context: CommandContext, file: TextIO, out: Path | None, dry_run: bool) -> None:
    """Create keys from FILE, a CSV file with a header; - is stdin.

    Columns: name, and optionally group, expires, note, models, addresses, user_agents, trust
    (items separated by spaces or ;), rpm, tpm, concurrent, budget, budget_day, budget_month,
    budget_day_per_user, budget_day_per_session, probe, cost_in_usage, and key: an existing secret
    of at least 20 characters; otherwise one is generated. The output is id,name,key. If a cell is
    invalid, all errors are listed and no key is created.
    """
    rows, errors = _read(file)
    if errors and not rows:
        _fail(errors, context.as_json)
    created: CreatedKeys = []
    failure: click.ClickException | KeyboardInterrupt | None = None
    with (
        connect(context.state_dir, context.config, may_create=True) as client,
        click.progressbar(
            length=2 * len(rows),
            label="Validating and creating keys",
            file=sys.stderr,
            hidden=not sys.stderr.isatty(),
        ) as progress,
    ):
        for batch in _batches(rows):
            errors += _send(client, batch, dry_run=True)[1]
            progress.update(len(batch))
        if not (errors or dry_run):
            with _open_output(out) as save:
                try:
                    _create_keys(client, rows, created, save, progress.update)
                except (click.ClickException, KeyboardInterrupt) as error:
                    failure = error
    if errors:
        _fail(errors, context.as_json)
    models = dict.fromkeys(model for row in rows for model in row.fields.get("models", ()))
    warn_unknown_models(context, [*models])
    if context.as_json:
        keys = created if out is None else []
        ok = failure is None
        print_json({"ok": ok, "checked": len(rows), "made": len(created), "keys": keys})
    elif dry_run:
        print_note(f"Valid keys: {len(rows)}. This was a dry run: no key was created.")
    else:
        _print_created(created, out)
    if failure is not None:
        if missing := rows[len(created) :]:
            print_note(f"Stopped: the keys from line {missing[0].line} on are not confirmed.")
        _stop(failure, context.as_json)


def _stop(failure: click.ClickException | KeyboardInterrupt, as_json: bool) -> NoReturn:
    if as_json and isinstance(failure, click.ClickException):
        failure.show()  # the object on standard output says it already
        sys.exit(failure.exit_code)
    raise failure


def _print_created(keys: CreatedKeys, out: Path | None) -> None:
    if not keys:
        return
    if out is None:
        _csv_writer(sys.stdout)(keys)
    place = f"in {out}" if out is not None else "printed above"
    print_note(f"Created keys: {len(keys)}, {place}. Keep them: they are not shown again.")


def _read(file: TextIO) -> tuple[list[KeyRow], list[CellError]]:
    try:
        text = file.read(_MAX_CHARACTERS + 1)
    except UnicodeDecodeError:
        raise CommandRefused("The file is not in UTF-8.") from None
    if len(text) > _MAX_CHARACTERS:
        raise CommandRefused(f"The file has more than {_MAX_CHARACTERS} characters: divide it.")
    rows, errors = parse_key_csv(StringIO(text), now_us())
    if not rows and not errors:
        raise CommandRefused("The file has no keys: there is no line after its header.")
    return rows, errors


def _create_keys(
    client: Client,
    rows: Sequence[KeyRow],
    created: CreatedKeys,
    save: SaveFn,
    advance: ProgressFn,
) -> None:
    """Adds the keys to `created`, in the order of the rows, also if a later batch fails."""
    with _deferred_interrupt() as is_interrupted:
        for batch in _batches(rows):
            if is_interrupted():
                raise KeyboardInterrupt
            keys, errors = _send(client, batch, dry_run=False)
            if errors:  # something has changed since the validation
                raise CommandRefused("\n".join(map(str, errors)))
            created += keys
            try:
                save(keys)
            except OSError as error:
                _csv_writer(sys.stdout)(keys)
                raise CommandRefused(
                    f"Cannot write the file: {error.strerror}. Its last keys are printed above."
                ) from None
            advance(len(batch))


def _send(
    client: Client, batch: Sequence[KeyRow], *, dry_run: bool
) -> tuple[CreatedKeys, list[CellError]]:
    body = {"keys": [row.fields for row in batch], "dry_run": dry_run}
    answer = client.post("/keys/import", body)
    keys = [{name: key[name] for name in _OUTPUT_COLUMNS} for key in answer.get("keys", ())]
    errors = [
        CellError(batch[error["index"]].line, column_of(error["field"]), error["message"])
        for error in answer.get("mistakes", ())
    ]
    return keys, errors


def _batches(rows: Sequence[KeyRow]) -> Iterator[Sequence[KeyRow]]:
    return (rows[start : start + _BATCH_SIZE] for start in range(0, len(rows), _BATCH_SIZE))


@contextmanager
def _open_output(out: Path | None) -> Iterator[SaveFn]:
    """Saves keys to the file as they are created. Without a file they are printed at the end, so
    that they do not mix with the progress bar."""
    if out is None:
        yield lambda keys: None
        return
    try:
        descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CommandRefused(
            f"{out} already exists: choose a new file. No key was created."
        ) from None
    except OSError as error:
        raise CommandRefused(
            f"Cannot create {out}: {error.strerror}. No key was created."
        ) from None
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
        yield _csv_writer(file)


def _csv_writer(stream: TextIO) -> SaveFn:
    writer = csv.DictWriter(stream, _OUTPUT_COLUMNS, lineterminator="\n")
    writer.writeheader()

    def save(keys: CreatedKeys) -> None:
        writer.writerows(keys)
        stream.flush()

    return save


@contextmanager
def _deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Defers Ctrl-C to the end of a request: the keys of an interrupted one would be lost."""
    interrupted = False

    def remember(*_: object) -> None:
        nonlocal interrupted
        interrupted = True

    previous = signal.signal(signal.SIGINT, remember)
    try:
        yield lambda: interrupted
    finally:
        signal.signal(signal.SIGINT, previous)


def _fail(errors: Sequence[CellError], as_json: bool) -> NoReturn:
    ordered = sorted(errors)
    if as_json:
        print_json({"ok": False, "mistakes": [asdict(error) for error in ordered]})
    else:
        for error in ordered:
            print_note(str(error))
        print_note(f"Errors: {len(ordered)}. No key was created.")
    sys.exit(1)
