"""A list of keys to be made, as a file of comma-separated values: read, and every cell that is
wrong named by its line and column.

It must not know who makes the keys. Cells may be secrets: what is wrong is told without them.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.admin.typed import parse_count, parse_time, parse_units
from gateway.core.limits import LIMIT_NAMES

_SEPARATOR: Final = ";"
_ABSENT: Final = ("", "none", "never")
_YES: Final = ("yes", "true", "1")
_NO: Final = ("no", "false", "0")
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


def _text(cell: str, now: int) -> str:
    return cell


def _words(cell: str, now: int) -> list[str]:
    return cell.replace(_SEPARATOR, " ").split()


def _agents(cell: str, now: int) -> list[str]:
    """A user agent may have blanks in it, so that they only part where nothing else does."""
    if _SEPARATOR not in cell:
        return cell.split()
    return [agent for each in cell.split(_SEPARATOR) if (agent := each.strip())]


def _expiry(cell: str, now: int) -> int:
    return parse_time(cell, now, 1)


def _probe(cell: str, now: int) -> bool:
    if cell.lower() in (*_YES, *_NO):
        return cell.lower() in _YES
    raise ValueError("must be yes or no")


def _count(cell: str, now: int) -> int:
    return parse_count(cell)


def _units(cell: str, now: int) -> int:
    return parse_units(cell)


_COLUMNS: Final[Mapping[str, tuple[str, Callable[[str, int], Any]]]] = {
    "name": ("name", _text),
    "group": ("group", _text),
    "expires": ("expires_at", _expiry),
    "note": ("note", _text),
    "models": ("models", _words),
    "addresses": ("addresses", _words),
    "user_agents": ("user_agents", _agents),
    "rpm": ("requests_per_minute", _count),
    "tpm": ("tokens_per_minute", _count),
    "concurrent": ("concurrent", _count),
    "budget": ("budget", _units),
    "budget_day": ("budget_day", _units),
    "budget_month": ("budget_month", _units),
    "probe": ("probe", _probe),
    "key": ("key", _text),
}
"""Column → the field of the desk that it fills, and how a cell is read."""

_VERBATIM: Final = ("name", "key")
"""Columns in which `none` is a word like any other."""

COLUMNS: Final = tuple(_COLUMNS)


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
    return next((column for column, (filled, _) in _COLUMNS.items() if filled == name), path)


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


def _row(line: int, columns: list[str], cells: list[str], now: int, slips: list[CellError]) -> KeyRow:
    if len(cells) > len(columns):
        slips.append(CellError(line, "", f"has {len(cells)} cells under {len(columns)} columns"))
    fields: dict[str, Any] = {"name": "", "limits": {}}
    for column, cell in zip(columns, cells, strict=False):
        cell = cell.strip()
        if not cell or (cell in _ABSENT and column not in _VERBATIM):
            continue
        name, read = _COLUMNS[column]
        try:
            value = read(cell, now)
        except ValueError as error:
            slips.append(CellError(line, column, str(error)))
            continue
        (fields["limits"] if name in LIMIT_NAMES else fields)[name] = value
    return KeyRow(line, fields)


def _repeated(rows: list[KeyRow]) -> Iterator[CellError]:
    """The same key in two lines; it is taken out of the later one, so that it is told once."""
    first: dict[str, int] = {}
    for row in rows:
        key = row.fields.get("key")
        if key is not None and first.setdefault(key, row.line) != row.line:
            del row.fields["key"]
            yield CellError(row.line, "key", f"is the key of line {first[key]} too")
