"""Output of commands: tables for people, JSON for scripts.

Names, user agents and errors are texts of clients and upstreams. Their unprintable characters are
escaped, so that they cannot control the terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from shutil import get_terminal_size
from typing import Any, Final

import click
import orjson
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from gateway.admin.units import format_count
from gateway.core.text import escape_json, escape_unprintable

_WIDTH: Final = (
    10_000  # columns: only the terminal wraps lines, so that they can be copied and piped
)
_MAX_CELL: Final = 40  # characters
_MIN_CUT: Final = 8  # characters of a column that is cut
_UNCUT: Final = ("Id", "State", "Share", "Used")
_BAR_WIDTH: Final = 20  # characters
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"

_STATE_COLOURS: Final = {
    "ok": "green",
    "warning": "yellow",
    "problem": "red",
    "active": "green",
    "healthy": "green",
    "running": "cyan",
    "half_open": "cyan",
    "disabled": "yellow",
    "expired": "yellow",
    "no models": "yellow",
    "limit of 0": "yellow",
    "budget used up": "yellow",
    "rejected": "yellow",
    "rate_limited": "yellow",
    "client_gone": "yellow",
    "client_slow": "yellow",
    "error": "red",
    "upstream_cut": "red",
    "interrupted": "red",
    "circuit_open": "red",
    "auth_failed": "red",
    "revoked": "dim",
}
"""States of keys, requests and accounts."""

_TIMES: Final = frozenset(
    {"at", "start", "since", "until", "complete_since", "linked_since", "failing_since"}
)
"""Names of fields that are times, besides those with `_at`."""
_FIRST_TIME: Final = 10**14
"""Unix microseconds, in 1973: what is less is in seconds, in the objects of clients."""
_EPOCH: Final = datetime(1970, 1, 1)

Cell = str | int | Text | None
Record = dict[str, Any]
Column = str | Callable[[Record], Cell]
"""The name of a field, or a function of the record."""


def print_json(value: Any, *, indent: bool = True) -> None:
    """Besides each time in Unix microseconds there is one in ISO 8601, `started_at_iso`."""
    option = orjson.OPT_INDENT_2 if indent else None
    click.echo(escape_json(orjson.dumps(_with_iso_times(value), option=option)))


def _with_iso_times(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [*map(_with_iso_times, value)]
    if not isinstance(value, dict):
        return value
    shown: Record = {}
    for name, each in value.items():
        shown[name] = _with_iso_times(each)
        is_time = isinstance(name, str) and (name.endswith("_at") or name in _TIMES)
        if is_time and each is None:
            shown[f"{name}_iso"] = None
        elif is_time and isinstance(each, int) and each >= _FIRST_TIME:
            time = _EPOCH + timedelta(microseconds=each)
            shown[f"{name}_iso"] = time.isoformat(timespec="milliseconds") + "Z"
    return shown


def print_table(
    records: Iterable[Record],
    columns: Mapping[str, Column],
    footer: Sequence[Cell] | None = None,
) -> None:
    """A table with an optional `footer` of totals. On a terminal that is narrower, texts are cut:
    ids and numbers are not, so that they can be copied."""
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for record in records:
        cells = [_to_text(cell_of(record, column)) for column in columns.values()]
        for table_column, cell in zip(table.columns, cells, strict=True):
            table_column.justify = cell.justify or table_column.justify
        table.add_row(*cells)
    if footer is not None:
        table.add_row(*map(_to_text, footer), style="bold")
    if sys.stdout.isatty():
        _fit(table, get_terminal_size().columns)
    _console().print(table)


def _fit(table: Table, available: int) -> None:
    """Makes the widest columns of texts narrower until the table fits, if it can."""
    widths = [
        max(cell_len(str(cell)) for cell in (each.header, *each.cells)) for each in table.columns
    ]
    flexible = [
        number
        for number, column in enumerate(table.columns)
        if column.justify == "left" and column.header not in _UNCUT and widths[number] > _MIN_CUT
    ]
    excess = sum(widths) + 2 * (len(widths) - 1) - available
    while flexible and excess > 0:
        widest = max(flexible, key=widths.__getitem__)
        if widths[widest] <= _MIN_CUT:
            return
        widths[widest] -= 1
        excess -= 1
        table.columns[widest].width = widths[widest]
        table.columns[widest].no_wrap = True
        table.columns[widest].overflow = "ellipsis"


def print_record(record: Record, columns: Mapping[str, Column]) -> None:
    """A line per column; unlike in a table, a long value does not widen other lines."""
    width = max(map(len, columns))
    for name, column in columns.items():
        print_row(Text(name.ljust(width), "bold"), cell_of(record, column))


def cell_of(record: Record, column: Column) -> Cell:
    """States get their colours, fields `…_at` are times, lists are joined. What the record of an
    older gateway lacks is empty."""
    try:
        if not isinstance(column, str):
            return column(record)
        value = record[column]
    except KeyError as error:
        if error.args[0] in record:
            raise
        return None
    if column == "state":
        return style_state(value)
    if column.endswith("_at"):
        return format_time(value)
    cell: Cell = ", ".join(value) if isinstance(value, list) else value
    return cell


def print_tree(root: str, branches: Iterable[tuple[str, Sequence[str]]]) -> None:
    """A tree of two levels, each node a line."""
    tree = Tree(_to_text(root))
    for branch, leaves in branches:
        node = tree.add(_to_text(branch))
        for leaf in leaves:
            node.add(_to_text(leaf))
    _console().print(tree)


def print_row(*cells: Cell) -> None:
    """A line of a stream, whose widths do not depend on other lines."""
    _console().print(Text("  ").join(map(_to_text, cells)), soft_wrap=True)


def print_note(text: str) -> None:
    """A message on stderr."""
    click.echo("\n".join(escape_unprintable(line) for line in text.split("\n")), err=True)


def right_align(text: str) -> Text:
    return Text(text, justify="right")


def shorten(text: str | None) -> str | None:
    return text if text is None or len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 1]}…"


def share_bar(part: int, total: int, empty: str = "") -> str:
    """A bar in eighths of a character, and percent; `empty` for a total of 0."""
    if not total:
        return empty
    full, eighths = divmod(min(part, total) * _BAR_WIDTH * 8 // total, 8)
    bar = "█" * full + _EIGHTHS[eighths].strip()
    return f"{bar.ljust(_BAR_WIDTH)} {part * 100 / total:3.0f} %"


def style_state(state: str) -> Text:
    """The state of a key, a request or an account in its colour."""
    return Text(state, _STATE_COLOURS.get(state, ""))


def state_cell(record: Record) -> Text:
    """The state of a finding in its colour."""
    return style_state(record["state"])


def format_time(microseconds: int | None) -> str | None:
    """Formats local time, from Unix microseconds."""
    if microseconds is None:
        return None
    local = datetime.fromtimestamp(microseconds // 1_000_000, UTC).astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S}"


def _to_text(cell: Cell) -> Text:
    if isinstance(cell, Text):
        return cell
    if isinstance(cell, int):
        return right_align(format_count(cell))
    return Text("-" if cell is None else escape_unprintable(cell))


def _console() -> Console:
    return Console(width=_WIDTH, highlight=False)
