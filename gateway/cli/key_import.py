"""A list of keys to be made, as a file of comma-separated values: read, and every cell that is
wrong named by its line and column.

It must not know who makes the keys. Cells may be secrets: what is wrong is told without them.

`gateway key import`: many keys from a file. It must not know how a cell is read, nor how a key
is made.

All rows are checked before the first key is made, in calls so small that a gateway under load does
not notice them.
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
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO

import click

from gateway.admin.text_fields import parse_field, short_name
from gateway.admin.units import NONE_WORDS
from gateway.cli.client import Client, CommandRefused, connect
from gateway.cli.key_options import warn_unknown_models
from gateway.cli.option_types import now_us
from gateway.cli.options import Location, with_json, with_location
from gateway.cli.output import print_json, print_note
from gateway.core.limits import LIMIT_NAMES

_TITLE: Final = re.compile(r"[a-z_ ]{1,20}", re.ASCII)


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One key: what is asked of the desk, and the line that it begins in."""

    line: int
    fields: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True, order=True)
class CellError:
    """What is wrong in a cell; `column` is empty where it is the whole line."""

    line: int
    column: str
    message: str

    def __str__(self) -> str:
        where = f", {self.column}" if self.column else ""
        return f"line {self.line}{where}: {self.message}"


_VERBATIM: Final = ("name", "key")
"""Columns in which `none` is a word like any other."""

_FIELDS: Final = {
    short_name(name): name
    for name in (
        *("name", "group", "expires_at", "note", "models", "addresses", "user_agents"),
        *LIMIT_NAMES,
        *("probe", "key"),
    )
}
"""The field that each column fills."""

COLUMNS: Final = tuple(_FIELDS)


def parse_key_csv(lines: Iterable[str], now: int) -> tuple[list[KeyRow], list[CellError]]:
    """All rows, without the cells that are wrong, and what is wrong with those. Of a file whose
    columns are wrong nothing else is read."""
    reader = csv.reader(lines, strict=True)
    rows: list[KeyRow] = []
    slips: list[CellError] = []
    try:
        columns = next(reader, [])
        slips += _titles(columns := [title.strip() for title in columns])
        if slips:
            return rows, slips
        begins = reader.line_num + 1
        for cells in reader:
            if any(cell.strip() for cell in cells):
                rows.append(_row(begins, columns, cells, now, slips))
            begins = reader.line_num + 1
    except csv.Error as error:
        slips.append(CellError(reader.line_num, "", f"is no comma-separated line: {error}"))
    slips += _repeated(rows)
    return rows, slips


def column_of(path: str) -> str:
    """The column that fills a field of the desk, by the path of a mistake in it."""
    steps = path.split(".")
    name = steps[1] if steps[0] == "limits" and len(steps) > 1 else steps[0]
    return short_name(name) if name in _FIELDS.values() else path


def _titles(columns: list[str]) -> Iterator[CellError]:
    """A file may have no titles: what stands in its first line is then told by its number alone,
    unless it looks like one."""
    known = (
        f"the first line must be titles; the columns are {', '.join(COLUMNS)}, and commas part them"
    )
    for column in dict.fromkeys(columns):
        if column not in COLUMNS:
            number = columns.index(column) + 1
            named = column if _TITLE.fullmatch(column) else f"column {number}"
            yield CellError(1, named, f"is no column; {known}")
        elif columns.count(column) > 1:
            yield CellError(1, column, "stands there more than once")
    if "name" not in columns:
        yield CellError(1, "name", f"is missing; {known}")


def _row(
    line: int, columns: list[str], cells: list[str], now: int, slips: list[CellError]
) -> KeyRow:
    if len(cells) > len(columns):
        slips.append(CellError(line, "", f"has {len(cells)} cells under {len(columns)} columns"))
    fields: dict[str, Any] = {"name": "", "limits": {}}
    for column, cell in zip(columns, cells, strict=False):
        cell = cell.strip()
        if not cell or (cell in NONE_WORDS and column not in _VERBATIM):
            continue
        name = _FIELDS[column]
        try:
            value = parse_field(name, _agent_lines(cell) if name == "user_agents" else cell, now)
        except ValueError as error:
            slips.append(CellError(line, column, str(error)))
            continue
        (fields["limits"] if name in LIMIT_NAMES else fields)[name] = value
    return KeyRow(line, fields)


def _agent_lines(cell: str) -> str:
    """Semicolons separate user agents; spaces do where there is no semicolon."""
    return "\n".join(cell.split(";") if ";" in cell else cell.split())


def _repeated(rows: list[KeyRow]) -> Iterator[CellError]:
    """The same key in two lines; it is taken out of the later one, so that it is told once."""
    first: dict[str, int] = {}
    for row in rows:
        key = row.fields.get("key")
        if key is not None and first.setdefault(key, row.line) != row.line:
            del row.fields["key"]
            yield CellError(row.line, "key", f"is the key of line {first[key]} too")


_BATCH_SIZE: Final = 50  # keys of one call
_RESULT_COLUMNS: Final = ("id", "name", "key")

Keys = list[dict[str, str]]
"""Of each key that was made its id, its name and the key."""

ProgressFn = Callable[[int], None]
"""Is told how many rows were dealt with."""

SaveFn = Callable[[Keys], None]
"""Takes keys as soon as they are made."""


@click.command(name="import")
@click.argument("file", type=click.File("r", encoding="utf-8-sig"))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The file for the keys, which must not exist; else they are printed.",
)
@click.option("--dry-run", is_flag=True, help="Only check the file; make no keys.")
@with_json
@with_location
def import_keys(
    place: Location, file: TextIO, out: Path | None, dry_run: bool, as_json: bool
) -> None:
    """Make keys from FILE, comma-separated values with a line of titles; - is stdin.

    Columns: name, and where wanted group, expires, note, models, addresses, user_agents (lists
    are parted by blanks or ;), rpm, tpm, concurrent, budget, budget_day, budget_month, probe, and
    key: one that clients have already, of at least 20 characters. Without it a key is minted.
    The answer is id,name,key. Where cells are wrong, all of them are named and no key is made.
    """
    rows, slips = _read(file)
    if slips and not rows:
        _fail(slips, as_json)
    made: Keys = []
    failure = None
    with connect(place.state_dir, may_create=True) as client, _progress(2 * len(rows)) as step:
        slips += _check_rows(client, rows, step)
        if not (slips or dry_run):
            with _open_output(out) as keep, _deferred_interrupt() as interrupted:
                made, failure = _create_keys(client, rows, keep, step, interrupted)
    if slips:
        _fail(slips, as_json)
    warn_unknown_models(place, _patterns(rows))
    if as_json:
        keys = made if out is None else []
        ok = failure is None
        print_json({"ok": ok, "checked": len(rows), "made": len(made), "keys": keys})
    elif dry_run:
        print_note(f"Keys that could be made: {len(rows)}. None was.")
    elif made:
        if out is None:
            _writer(sys.stdout)(made)
        where = f"they are in {out}" if out is not None else "they stand above"
        print_note(f"Keys made: {len(made)}; {where}. Only their digests are kept.")
    if failure is not None:
        print_note(f"From line {rows[len(made)].line} of the file on no key is known to be made:")
        raise failure


def _read(file: TextIO) -> tuple[list[KeyRow], list[CellError]]:
    try:
        rows, slips = parse_key_csv(file, now_us())
    except UnicodeDecodeError:
        raise CommandRefused("The file is not in UTF-8: save it as that.") from None
    if not rows and not slips:
        raise CommandRefused("The file has no line below its titles: there is no key to make.")
    return rows, slips


def _check_rows(client: Client, rows: Sequence[KeyRow], step: ProgressFn) -> list[CellError]:
    """What the desk has against any of the rows."""
    slips: list[CellError] = []
    for batch in _batches(rows):
        slips += _cell_errors(batch, _ask(client, batch, dry_run=True))
        step(len(batch))
    return slips


def _create_keys(
    client: Client,
    rows: Sequence[KeyRow],
    keep: SaveFn,
    step: ProgressFn,
    interrupted: Callable[[], bool],
) -> tuple[Keys, BaseException | None]:
    """The keys, in the order of the rows, and what stopped it before the last of them: whatever it
    is, keys that were made must be told."""
    made: Keys = []
    for batch in _batches(rows):
        if interrupted():
            return made, KeyboardInterrupt()
        try:
            answer = _ask(client, batch, dry_run=False)
        except click.ClickException as error:
            return made, error
        if slips := _cell_errors(
            batch, answer
        ):  # somebody else was at the desk since it was checked
            return made, CommandRefused("\n".join(map(str, slips)))
        keys = [{name: each[name] for name in _RESULT_COLUMNS} for each in answer["keys"]]
        made += keys
        try:
            keep(keys)
        except OSError as error:
            _writer(sys.stdout)(keys)
            why = f"The file cannot be written: {error.strerror}. Its last keys stand above."
            return made, CommandRefused(why)
        step(len(batch))
    return made, None


def _ask(client: Client, batch: Sequence[KeyRow], *, dry_run: bool) -> dict[str, Any]:
    body = {"keys": [row.fields for row in batch], "dry_run": dry_run}
    answer: dict[str, Any] = client.post("/keys/import", body)
    return answer


def _cell_errors(batch: Sequence[KeyRow], answer: dict[str, Any]) -> list[CellError]:
    return [
        CellError(batch[each["index"]].line, column_of(each["field"]), each["message"])
        for each in answer.get("mistakes", ())
    ]


def _batches(rows: Sequence[KeyRow]) -> Iterator[Sequence[KeyRow]]:
    return (rows[start : start + _BATCH_SIZE] for start in range(0, len(rows), _BATCH_SIZE))


@contextmanager
def _open_output(out: Path | None) -> Iterator[SaveFn]:
    """Where keys go as they are made. Without a file they wait for the end: the bar may be on the
    terminal that they are for."""
    if out is None:
        yield lambda keys: None
    else:
        with _new_file(out) as file:
            yield _writer(file)


def _writer(stream: TextIO) -> SaveFn:
    table = csv.DictWriter(stream, _RESULT_COLUMNS, lineterminator="\n")
    table.writeheader()

    def keep(keys: Keys) -> None:
        table.writerows(keys)
        stream.flush()

    return keep


def _new_file(path: Path) -> TextIO:
    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CommandRefused(f"{path} exists already: name a new file. No key was made.") from None
    except OSError as error:
        raise CommandRefused(f"{path} cannot be made: {error.strerror}. No key was made.") from None
    return os.fdopen(opened, "w", encoding="utf-8", newline="")


@contextmanager
def _deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Ctrl-C only takes effect between two calls: the keys of one that is under way would be made,
    and nobody would ever have them."""
    asked = False

    def remember(*_: object) -> None:
        nonlocal asked
        asked = True

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _progress(rows: int) -> Iterator[ProgressFn]:
    """A bar on stderr, where somebody looks."""
    # Imported here: nobody else needs it, and it is half of a command's start.
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    seen = console.is_terminal
    with Progress(
        console=console, transient=True, disable=not seen, redirect_stdout=False
    ) as progress:
        task = progress.add_task("Checking and making keys", total=rows)
        yield lambda done: progress.advance(task, done)


def _patterns(rows: Sequence[KeyRow]) -> list[str]:
    """All models that are named, each once."""
    return list(dict.fromkeys(each for row in rows for each in row.fields.get("models", ())))


def _fail(slips: Sequence[CellError], as_json: bool) -> NoReturn:
    ordered = sorted(slips)
    if as_json:
        print_json({"ok": False, "mistakes": [asdict(slip) for slip in ordered]})
    else:
        for slip in ordered:
            print_note(str(slip))
        print_note(f"No key was made. Mistakes to put right: {len(ordered)}.")
    sys.exit(1)
