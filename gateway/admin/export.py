"""Rows of the ledger as files: comma-separated values, or a JSON object on each line.

It must not know where rows come from. In tables a text that a spreadsheet would take for a formula
has an apostrophe before it: texts of clients and upstreams are among them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any, Final

import orjson

from gateway.store.records import RequestRow

COLUMNS: Final = tuple(field.name for field in fields(RequestRow))
"""Of a table, and the names in a JSON object."""

_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r")


class ExportFormat(StrEnum):
    """Comma-separated values, or a JSON object on each line."""

    CSV = "csv"
    JSONL = "jsonl"

    @property
    def content_type(self) -> str:
        return "text/csv" if self is ExportFormat.CSV else "application/jsonl"


def export_header(form: ExportFormat) -> bytes:
    """What stands before all rows."""
    return _table([COLUMNS]) if form is ExportFormat.CSV else b""


def export_rows(form: ExportFormat, rows: Iterable[Mapping[str, Any]]) -> bytes:
    """A line for each row, which is given by its columns."""
    if form is ExportFormat.CSV:
        return _table([_cell(row[name]) for name in COLUMNS] for row in rows)
    return b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)


def _table(rows: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)  # lines end in two characters: so a lone one is quoted
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_FORMULAS):
        return f"'{value}"
    return value
