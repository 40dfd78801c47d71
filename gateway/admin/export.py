"""The request log as CSV or JSON lines. In CSV, text that a spreadsheet would evaluate as a formula
gets an apostrophe: clients and upstreams sent some of it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

import orjson

from gateway.store.records import RequestRow

COLUMNS: Final = RequestRow._fields

_FORMULA_SIGNS: Final = ("=", "+", "-", "@", "\t", "\r")


class ExportFormat(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"

    @property
    def content_type(self) -> str:
        return "text/csv" if self is ExportFormat.CSV else "application/jsonl"


def export_header(form: ExportFormat) -> bytes:
    return _csv([COLUMNS]) if form is ExportFormat.CSV else b""


def export_rows(form: ExportFormat, rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Rows by their columns, a line each."""
    if form is ExportFormat.CSV:
        return _csv([_cell(row[name]) for name in COLUMNS] for row in rows)
    return b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)


def _csv(rows: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)  # lines end in \r\n, so that a lone \r or \n is quoted
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_FORMULA_SIGNS):
        return f"'{value}"
    return value
