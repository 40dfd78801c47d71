"""How answers look: tables for people, JSON for scripts. It must not know what they are about.

What clients and upstreams sent may be in a table (names, user agents, errors): nothing of it may
move the cursor, colour the terminal or hide, so unprintable characters are spelled out.

How every command tells what is wrong with the configuration. It must not know which command.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

import click
import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from gateway.admin.units import format_count
from gateway.config import ConfigError
from gateway.core.text import escape_unprintable

_WIDTH = 10_000  # columns: a line that the terminal wraps can still be copied and piped

_MAX_CELL = 40

_COLOURS = {
    "ok": "green",
    "active": "green",
    "running": "cyan",
    "disabled": "yellow",
    "expired": "yellow",
    "revoked": "dim",
    "rejected": "yellow",
    "client_gone": "yellow",
    "client_slow": "yellow",
    "error": "red",
    "upstream_cut": "red",
    "interrupted": "red",
}

_ACCOUNT_COLOURS = {
    "healthy": "green",
    "half_open": "cyan",
    "rate_limited": "yellow",
    "circuit_open": "red",
    "auth_failed": "red",
    "disabled": "dim",
}

Cell = str | int | Text | None


def print_json(value: Any) -> None:
    """One value for a script."""
    click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2))


def print_json_line(value: Any) -> None:
    """One value of a stream of them: a line each."""
    click.echo(orjson.dumps(value))


def print_table(
    titles: Sequence[str], rows: Iterable[Sequence[Cell]], last: Sequence[Cell] | None = None
) -> None:
    """A table with a line of titles, and a `last` line of sums where there is one. Numbers and
    figures stand right, nothing is a dash."""
    table = Table(*titles, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        for column, cell in zip(table.columns, row, strict=True):
            if isinstance(cell, int) or (isinstance(cell, Text) and cell.justify == "right"):
                column.justify = "right"
        table.add_row(*(_cell(cell) for cell in row))
    if last is not None:
        table.add_row(*(_cell(cell) for cell in last), style="bold")
    _console().print(table)


def print_fields(fields: Iterable[tuple[str, Cell]]) -> None:
    """A name and a value on each line. No table: one long value would widen every line."""
    fields = tuple(fields)
    width = max(len(name) for name, _ in fields)
    for name, value in fields:
        print_row(Text(name.ljust(width), "bold"), value)


def print_tree(root: str, branches: Iterable[tuple[str, Sequence[str]]]) -> None:
    """A sentence, what follows from it, and what follows from that: a line each."""
    tree = Tree(_cell(root))
    for branch, leaves in branches:
        grown = tree.add(_cell(branch))
        for leaf in leaves:
            grown.add(_cell(leaf))
    _console().print(tree)


def print_row(*words: Cell) -> None:
    """One line of a stream of them; unlike a table's, its widths need no other line."""
    _console().print(Text("  ").join(_cell(word) for word in words), soft_wrap=True)


def print_note(text: str) -> None:
    """A remark for the person, beside the answer."""
    click.echo("\n".join(escape_unprintable(line) for line in text.split("\n")), err=True)


def right_align(text: str | int) -> Text:
    """A cell of a column of figures; a number is grouped."""
    return Text(format_count(text) if isinstance(text, int) else text, justify="right")


def shorten(text: str | None) -> str | None:
    """The text, cut where it is long, for a cell among others."""
    return text if text is None or len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 1]}…"


def style_state(name: str) -> Text:
    """The state of a token or an exchange, in its colour."""
    return Text(name, _COLOURS.get(name, ""))


def style_account_state(name: str) -> Text:
    """The state of an account, in its colour: of the gate before it, so that open is well."""
    return Text(name, _ACCOUNT_COLOURS.get(name, ""))


def format_time(microseconds: int | None) -> str | None:
    """A time of the ledger on the clock of whoever reads."""
    if microseconds is None:
        return None
    moment = datetime.fromtimestamp(microseconds // 1_000_000, UTC).astimezone()
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _cell(value: Cell) -> Text:
    if isinstance(value, Text):
        return value
    return Text("-" if value is None else escape_unprintable(str(value)))


def _console() -> Console:
    return Console(width=_WIDTH, highlight=False)


EX_CONFIG: Final = 78
"""Exit code of sysexits.h for a wrong configuration; systemd does not start again after it."""


@contextmanager
def report_config_errors(*, as_json: bool = False) -> Iterator[None]:
    """Let ConfigMistakes end the process: every mistake on stderr, one a line, and exit 78.

    With `as_json` they are one object on stdout: `{"ok": false, "mistakes": [...]}`.
    """
    try:
        yield
    except ConfigError as found:
        if as_json:
            mistakes = [asdict(mistake) for mistake in found.problems]
            click.echo(orjson.dumps({"ok": False, "mistakes": mistakes}))
        else:
            click.echo(str(found), err=True)
        sys.exit(EX_CONFIG)
