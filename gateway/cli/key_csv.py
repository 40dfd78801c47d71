"""CSV files of keys to create: parsing, with errors by line and column.

A cell can be a secret, so errors do not repeat cells.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.admin.text_fields import parse_field, short_name
from gateway.admin.units import NONE_WORDS
from gateway.core.limits import LIMIT_NAMES

_FIELDS: Final = {
    short_name(name): name
    for name in (
        *("name", "group", "expires_at", "note", "models", "addresses", "user_agents"),
        *LIMIT_NAMES,
        *("probe", "key"),
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
    """All rows without their invalid cells, and all errors. A file with an invalid header has no
    rows."""
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
    """In a file without a header, the first line can have secrets: columns that do not look like
    names are reported by number."""
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
    """One user agent per line. Semicolons separate them, or spaces if there is no semicolon."""
    return "\n".join(cell.split(";") if ";" in cell else cell.split())


def _remove_repeated_keys(rows: list[KeyRow]) -> Iterator[CellError]:
    """Removes a key from all rows but the first, so that the admin API does not report it again."""
    first_lines: dict[str, int] = {}
    for row in rows:
        key = row.fields.get("key")
        if key is not None and first_lines.setdefault(key, row.line) != row.line:
            del row.fields["key"]
            yield CellError(row.line, "key", f"is also the key of line {first_lines[key]}")
