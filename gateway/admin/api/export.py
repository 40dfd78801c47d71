"""The request log as CSV or JSON lines. Clients and upstreams sent some of its text: unprintable
characters are escaped, and in CSV an apostrophe precedes what a spreadsheet would evaluate."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

import orjson

from gateway.core.text import escape_json, escape_unprintable
from gateway.store.records import RequestRow

COLUMNS: Final = RequestRow._fields

LOG_HEAD: Final = "x-gateway-log-head"
"""The header with the digests of the log's last links, with commas between them."""

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
    """Renders rows by their columns, a line each."""
    if form is ExportFormat.CSV:
        return _csv([_cell(row[name]) for name in COLUMNS] for row in rows)
    lines = b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)
    return escape_json(lines)


def _csv(rows: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    return csv_text(value) if isinstance(value, str) else value


def csv_text(text: str) -> str:
    """A cell that a spreadsheet shows as it is: after an apostrophe it does not evaluate it."""
    escaped = escape_unprintable(text)
    return f"'{escaped}" if text.startswith(_FORMULA_SIGNS) else escaped
