"""Output of commands: tables for people, JSON for scripts.

Names, user agents and errors are texts of clients and upstreams. Their unprintable characters are
escaped, so that they cannot control the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click
import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from gateway.admin.units import format_count
from gateway.core.text import escape_unprintable

_WIDTH: Final = (
    10_000  # columns: only the terminal wraps lines, so that they can be copied and piped
)
_MAX_CELL: Final = 40  # characters

_STATE_COLOURS: Final = {
    "ok": "green",
    "active": "green",
    "healthy": "green",
    "running": "cyan",
    "half_open": "cyan",
    "disabled": "yellow",
    "expired": "yellow",
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

Cell = str | int | Text | None


def print_json(value: Any, *, indent: bool = True) -> None:
    click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2 if indent else None))


def print_table(
    titles: Sequence[str], rows: Iterable[Sequence[Cell]], footer: Sequence[Cell] | None = None
) -> None:
    """A table with an optional `footer` of totals. Columns of numbers are aligned to the right."""
    table = Table(*titles, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        for column, cell in zip(table.columns, row, strict=True):
            if isinstance(cell, int) or (isinstance(cell, Text) and cell.justify == "right"):
                column.justify = "right"
        table.add_row(*map(_to_text, row))
    if footer is not None:
        table.add_row(*map(_to_text, footer), style="bold")
    _console().print(table)


def print_fields(fields: Iterable[tuple[str, Cell]]) -> None:
    """A name and a value per line; unlike in a table, a long value does not widen other lines."""
    fields = tuple(fields)
    width = max(len(name) for name, _ in fields)
    for name, value in fields:
        print_row(Text(name.ljust(width), "bold"), value)


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


def right_align(text: str | int) -> Text:
    """A cell of a column of numbers; an int gets separators."""
    return Text(format_count(text) if isinstance(text, int) else text, justify="right")


def shorten(text: str | None) -> str | None:
    return text if text is None or len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 1]}…"


def style_state(state: str) -> Text:
    """The state of a key, a request or an account in its colour."""
    return Text(state, _STATE_COLOURS.get(state, ""))


def format_time(microseconds: int | None) -> str | None:
    """Local time, from Unix microseconds."""
    if microseconds is None:
        return None
    local = datetime.fromtimestamp(microseconds // 1_000_000, UTC).astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S}"


def _to_text(value: Cell) -> Text:
    if isinstance(value, Text):
        return value
    return Text("-" if value is None else escape_unprintable(str(value)))


def _console() -> Console:
    return Console(width=_WIDTH, highlight=False)
